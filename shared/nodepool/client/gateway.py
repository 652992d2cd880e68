"""The backend of an organisation's users: asks the gateway, and needs no right to JetStream.

This module does not use the message models, which load slowly.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Final

from nodepool.client.asking import Asker
from nodepool.client.backend import Heard
from nodepool.client.errors import ClientError
from nodepool.client.gateway_objects import Asked, GatewayObjects, number_in
from nodepool.client.names import check_name
from nodepool.client.objects import Document, Listed
from nodepool.client.session import Session
from nodepool.contract.buckets import Bucket
from nodepool.contract.documents import text

if TYPE_CHECKING:
    from nodepool.client.audit import CommandRecord, Place, Trail
    from nodepool.client.events import ObjectEvent
    from nodepool.client.recent_events import RecentEvents, Regarded
    from nodepool.client.sender import A, PendingOutcomes, Sender
    from nodepool.contract.events import NodePoolValidated

OWN_S: Final = 2.0
"""How long to wait until the read model shows a command of this client, in seconds."""
OWN_PAUSE_S: Final = 0.02


class Gateway:
    """Asks the gateway; the methods are those of `Backend`."""

    def __init__(self, session: Session, asker: Asker | None = None) -> None:
        self._session = session
        self._asker = asker or Asker(session)
        self._objects = objects = GatewayObjects(session, self._asker)
        self.get, self.watch, self.catch_up = objects.get, objects.watch, objects.catch_up
        self.list_clusters = objects.list_clusters
        self._changed: dict[str, int] = {}

    async def follow(self, bucket: Bucket, name: str) -> AsyncGenerator[Document | None, None]:
        """Yield an object and each change of it; None while it does not exist."""
        async with aclosing(self.changes(bucket, name)) as changes:
            async for _, document in changes:
                yield document

    async def changes(
        self, bucket: Bucket, *names: str
    ) -> AsyncGenerator[tuple[str, Document | None], None]:
        """Yield each object, and each change of an object; None if the object does not exist."""
        if bucket == "nodepools":
            for name in names:
                await self._get_current(name)
        unseen = set(names)
        fields = f"metadata.name={names[0]}" if len(names) == 1 else ""
        stream = self._objects.follow_all(bucket, everywhere=False, fields=fields, current=True)
        async with aclosing(stream) as changes:
            async for change in changes:
                if isinstance(change, Listed):
                    for name in sorted(unseen):
                        yield name, None
                elif change.key in names:
                    unseen.discard(change.key)
                    yield change.key, change.document

    # NodePools and clusters.

    async def _get_current(self, pool: str) -> Document | None:
        """Return a NodePool with the effect of all that this client has changed about it.

        An outcome is heard a moment before the log has it, so asking for all that the log has is
        not enough.
        """
        asked = self._objects.ask_about("nodepools", name=check_name("name", pool), current=True)
        clock = asyncio.get_running_loop().time
        ends = clock() + OWN_S
        while True:
            document = await self._objects.get_one(asked)
            version = text(document, "metadata", "resourceVersion")
            is_own = version.isdecimal() and int(version) > self._changed.get(pool, 0)
            if is_own or pool not in self._changed or clock() >= ends:
                self._changed.pop(pool, None)
                return document
            await asyncio.sleep(OWN_PAUSE_S)

    def note_change(self, pool: str, position: int) -> None:
        """Note that the command at a position of the log has changed a NodePool."""
        self._changed[pool] = max(position, self._changed.get(pool, 0))

    async def settle(self) -> None:
        """Return once the log has what the commands so far have changed, for two seconds at most.

        Changes are stored in their order, so the newest change is enough.
        """
        newest = max(self._changed, key=self._changed.__getitem__, default="")
        with suppress(ClientError, TimeoutError):
            async with asyncio.timeout(OWN_S):
                if newest:
                    await self._get_current(newest)
        self._changed.clear()

    async def find_stored(self, pool: str) -> "NodePoolValidated | None":
        """Return the newest spec of a NodePool, with its verdict; None without a NodePool."""
        from nodepool.client.stored import stored_in

        document = await self._get_current(pool)
        session = self._session
        return stored_in(document, session.org, session.cluster) if document is not None else None

    async def find_zone(self) -> str | None:
        """Return the zone of the client's cluster; None if the cluster is not registered."""
        document = await self.get("clusters", self._session.cluster)
        return text(document, "spec", "zone") if document is not None else None

    async def explain(self, pool: str) -> Document | None:
        """Return why a NodePool lacks Nodes; None without a NodePool."""
        asked: Asked = {"cluster": self._session.cluster, "pool": pool, "current": True}
        reply = await self._objects.ask_for_one("Explain", asked)
        if reply is None:
            return None
        return {name: value for name, value in reply.items() if name != "position"}

    async def newest_position(self) -> int:
        """Return the position of the newest message in the log; 0 while the log is empty."""
        asked = self._objects.ask_about("clusters", limit=1, current=True)
        return number_in(await self._asker.ask("List", asked), "position")

    # Events and commands.

    async def events(
        self, pool: str, node: str, *, since: datetime | None, after: int, follow: bool
    ) -> "AsyncGenerator[ObjectEvent, None]":
        """Yield events of the cluster."""
        from nodepool.client.event_pages import read_events

        place = {"cluster": self._session.cluster, "pool": pool, "node": node}
        stream = read_events(
            self._session, self._asker, place, since=since, after=after, follow=follow
        )
        async with aclosing(stream) as events:
            async for event in events:
                yield event

    async def recent_events(
        self, since: "Mapping[Regarded, datetime]", pools: Sequence[str]
    ) -> "RecentEvents":
        """Return the events of some objects."""
        from nodepool.client.event_pages import read_recent

        return await read_recent(self._session, self._asker, since, pools)

    async def read_audit(self, trail: "Trail", place: "Place") -> None:
        """Read commands and their outcomes into a trail."""
        from nodepool.client.audit_pages import read_pages

        await read_pages(self._session, self._asker, trail, place)

    async def find_last_change(self, pool: str) -> "CommandRecord | None":
        """Return the command that changed a NodePool last."""
        from nodepool.client.audit_pages import read_last

        return await read_last(self._asker, self._session.cluster, pool)

    def hear(self, filters: Sequence[str]) -> AbstractAsyncContextManager[Heard]:
        """Hear events that are published from now on, for the time of the context."""
        return _hear(self._session, filters)

    def sender(self, outcomes: "PendingOutcomes[A]") -> "Sender[A]":
        """Return what sends commands; `outcomes` receives what is heard of them."""
        from nodepool.client.gateway_sender import GatewaySender

        return GatewaySender(self._session, outcomes, self.note_change)


@asynccontextmanager
async def _hear(session: Session, filters: Sequence[str]) -> AsyncIterator[Heard]:
    from nodepool.client.hearing import hear

    async with hear(session, filters) as hearing:
        yield hearing
