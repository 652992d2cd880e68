"""The mirror of the agent of an organisation: asks the gateway, and needs no right to JetStream."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final
from uuid import uuid4

from nodepool.client.asking import Asker, Reply, request
from nodepool.client.backend import Heard
from nodepool.client.gateway_objects import GatewayObjects, number_in
from nodepool.client.hearing import Hearing, hear
from nodepool.client.mirror import PAGE, LogState
from nodepool.client.objects import Listed, Object
from nodepool.client.session import Session
from nodepool.contract.buckets import Bucket
from nodepool.contract.cluster_events import subjects_of_events
from nodepool.contract.documents import field, items, text
from nodepool.contract.door import OBSERVER
from nodepool.contract.events import ClusterRegistered
from nodepool.contract.log import Entry, LogId
from nodepool.contract.messages import Event, wrap
from nodepool.contract.subjects import subject_of
from nodepool.nats.log.pages import Page
from nodepool.nats.wire.errors import LogChanged, StreamChanged

TURN_S: Final = 0.1
"""The least time between two pages of new events, in seconds."""
SOON_S: Final = 0.02
LATE_S: Final = 10.0
"""The shortest and the longest pause before looking for new events if none is heard, in seconds.

What is heard is in the log a moment later, and may be lost on its way.
"""
STORED_S: Final = 6.0
"""How long it may take to store an observation, in seconds; the log may take 5."""


class GatewayMirror:
    """Asks the gateway; the methods are those of `Mirror`."""

    def __init__(self, session: Session, release: str) -> None:
        self._session, self._release = session, release
        self._asker = Asker(session)
        self._objects = GatewayObjects(session, self._asker)
        self._log = LogId("")
        self._read_to = 0

    async def open(self) -> LogState:
        """Return the state of the log, as soon as a gateway answers."""
        page = await self._ask([ClusterRegistered.__name__], {"last": True}, patient=True)
        self._log = page.log
        return LogState(page.log, page.end, page.time)

    async def find_state(self) -> LogState:
        """Return the state of the log now."""
        page = await self.newest([ClusterRegistered.__name__], "")
        return LogState(page.log, page.end, page.time)

    async def objects(
        self, bucket: Bucket, not_older_than: int
    ) -> AsyncGenerator[Object | Listed, None]:
        """Yield all objects of the cluster, `Listed`, and every change from then on."""
        # Another replica than the one that has caught up may answer.
        found, revisions = await self._objects.list_all(
            bucket, everywhere=False, not_older_than=not_older_than
        )
        for each in found:
            yield each
        yield Listed()
        async for change in self._objects.changes_after(bucket, revisions):
            yield change
        raise StreamChanged(f"the bucket {bucket} was made anew, or has gone on too far")

    async def read(
        self,
        names: Collection[str],
        *,
        pool: str = "",
        after: int = 0,
        since: datetime | None = None,
        limit: int = PAGE,
    ) -> Page:
        """Return events of these names about the cluster, or about a NodePool of the cluster."""
        asked: dict[str, object] = {"pool": pool, "after": after, "limit": limit}
        if since is not None:
            asked["since"] = since.astimezone(UTC).isoformat()
        return await self._ask(names, asked)

    async def newest(self, names: Collection[str], pool: str) -> Page:
        """Return the newest event of each of these few names about a NodePool."""
        return await self._ask(names, {"pool": pool, "last": True})

    async def _ask(
        self, names: Collection[str], fields: Mapping[str, object], *, patient: bool = False
    ) -> Page:
        """Return a page of the log; raise LogChanged if it is of another history than before.

        patient: whether to wait without limit for a gateway that answers.
        """
        asked = {"cluster": self._session.cluster, "names": sorted(names), **fields}
        asked["release"] = self._release
        # Another page may be read meanwhile, so this one may end before what that has shown.
        read_to = self._read_to
        page = _page_in(await self._asker.ask("Messages", asked, patient=patient))
        if self._log not in ("", page.log):
            raise LogChanged(f"the log is {page.log}, and no longer {self._log}")
        if page.end < read_to:
            raise LogChanged(f"the log {page.log} ends at {page.end}, and was read further")
        self._read_to = max([self._read_to, *(each.position for each in page.entries)])
        return page

    async def follow_page(self, names: Collection[str], after: int) -> Page:
        """Return the events after a position, as soon as a gateway answers."""
        page = await self._ask(names, {"after": after, "limit": PAGE}, patient=True)
        page.check_reaches(after)
        return page

    @asynccontextmanager
    async def follow(self, names: Collection[str], after: int) -> AsyncIterator[Heard]:
        """Read all events of these names about the cluster that are stored after a position."""
        subjects = subjects_of_events(names, self._session.org, self._session.cluster)
        async with hear(self._session, subjects) as hearing:
            reconnected = self._session.connection.on_reconnect
            reconnected.append(hearing.wake)
            try:
                yield Follower(self, names, after, hearing)
            finally:
                reconnected.remove(hearing.wake)

    async def publish(self, event: Event) -> None:
        """Have an observation stored; an error says that it may or may not be stored."""
        content = wrap(event, id=str(uuid4()), source=OBSERVER).encode()
        await request(self._session, subject_of(event, OBSERVER), content, STORED_S)


class Follower:
    """The events of a cluster after a position, page by page: none is left out, or comes twice."""

    def __init__(
        self, mirror: GatewayMirror, names: Collection[str], after: int, hearing: Hearing
    ) -> None:
        self._mirror, self._names, self._after = mirror, names, after
        self._hearing = hearing
        self._at_end, self._pause_s = False, SOON_S
        self._clock, self._read_at = asyncio.get_running_loop().time, 0.0

    async def next(self) -> Sequence[Entry]:
        """Return the next events, at least one."""
        while True:
            if self._at_end:
                await self._wait()
            page = await self._mirror.follow_page(self._names, self._after)
            self._read_at = self._clock()
            self._after, self._at_end = page.after, page.at_end
            if page.entries:
                self._pause_s = SOON_S
                return page.entries

    async def _wait(self) -> None:
        """Wait until it is time to look for new events."""
        if await self._hearing.wait(self._pause_s):
            self._pause_s = SOON_S
            await asyncio.sleep(max(SOON_S, self._read_at + TURN_S - self._clock()))
        else:
            self._pause_s = min(self._pause_s * 2, LATE_S)


def _page_in(reply: Reply) -> Page:
    return Page(
        entries=[_entry_in(each) for each in items(reply, "items") if isinstance(each, Mapping)],
        log=LogId(text(reply, "log")),
        end=number_in(reply, "position"),
        time=datetime.fromisoformat(text(reply, "time")),
        after=number_in(reply, "after"),
        at_end=field(reply, "atEnd") is True,
        first=number_in(reply, "first"),
    )


def _entry_in(item: Reply) -> Entry:
    time, content = datetime.fromisoformat(text(item, "time")), json.dumps(item.get("event"))
    return Entry(number_in(item, "position"), time, text(item, "subject"), content.encode(), {})
