"""The backend of operators: reads the log and the read model with JetStream, and stores commands.

This module does not use the message models, which load slowly.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from nodepool.client.accepted import (
    DELETED,
    VALIDATED,
    Accepted,
    catch_up,
    is_outdated,
    read_accepted,
)
from nodepool.client.backend import Heard
from nodepool.client.names import check_name
from nodepool.client.objects import Document, Listed, Object, document_of
from nodepool.client.session import FILTERS_MAX, Session
from nodepool.contract.buckets import Bucket
from nodepool.contract.documents import text
from nodepool.contract.keys import UNNAMED, token
from nodepool.contract.log import Entry
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM
from nodepool.nats.objects.following import DeletionsMissed

if TYPE_CHECKING:
    from nodepool.client.audit import CommandRecord, Place, Trail
    from nodepool.client.events import ObjectEvent
    from nodepool.client.recent_events import RecentEvents, Regarded
    from nodepool.client.sender import A, PendingOutcomes, Sender
    from nodepool.contract.events import NodePoolValidated

READ_MODEL_LAG_S: Final = 0.2
"""If the read model has not shown a NodePool after this many seconds, the log is read instead."""


class Bus:
    """Works with JetStream itself; the methods are those of `Backend`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.catch_up = partial(catch_up, session)
        self.newest_position = session.last_position

    def _prefix(self, bucket: Bucket) -> str:
        return prefix_of(bucket, self._session.org, self._session.cluster)

    async def get(self, bucket: Bucket, key: str) -> Document | None:
        """Return an object as the read model shows it; None if there is no such object."""
        entry = await self._session.last_message(f"KV_{bucket}", self._prefix(bucket) + key)
        return document_of(entry) if entry is not None else None

    async def watch(
        self, bucket: Bucket, prefix: str, *, everywhere: bool
    ) -> AsyncGenerator[Object | Listed, None]:
        """Yield objects, `Listed` and changes."""
        subjects = f"$KV.{bucket}." if everywhere else self._prefix(bucket)
        known: set[str] | None = None
        while True:
            found, end = set[str](), 0
            async with aclosing(self._read(bucket, f"{subjects}>")) as entries:
                async for entry in entries:
                    if entry is None:
                        for key in sorted((known or set()) - found):
                            yield Object(key, None, end)
                        if known is None:
                            yield Listed()
                        known = found
                        continue
                    key, end = entry.subject[len(subjects) :], entry.position
                    if key.startswith(prefix):
                        document = document_of(entry)
                        (found.discard if document is None else found.add)(key)
                        yield Object(key, document, end)

    async def _read(self, bucket: Bucket, filter: str) -> AsyncGenerator[Entry | None, None]:
        """Yield each write until deletions were missed; None once all that was there is yielded."""
        listed = False
        with suppress(DeletionsMissed):
            async with self._session.reader(f"KV_{bucket}", [filter], newest=True) as reader:
                while True:
                    if not listed and reader.pending == 0:
                        listed = True
                        yield None
                    for entry in await self._session.read(reader, endless=listed):
                        yield entry

    async def follow(self, bucket: Bucket, name: str) -> AsyncGenerator[Document | None, None]:
        """Yield an object and each change of it; skip what is older than the log."""
        accepted = await self._find_accepted(bucket, name)
        async with aclosing(self.changes(bucket, name)) as changes:
            async for _, document in changes:
                if document is None or not is_outdated(document, accepted):
                    yield document
                elif accepted is not None and accepted.state == "deleted":
                    yield None

    async def _find_accepted(self, bucket: Bucket, name: str) -> Accepted | None:
        """Return what the log says of a NodePool; None if there never was one of this name."""
        if bucket != "nodepools":
            return None
        pool = token(check_name("name", name))
        return await read_accepted(lambda event: self._session.last_event(event, pool))

    async def changes(
        self, bucket: Bucket, *names: str
    ) -> AsyncGenerator[tuple[str, Document | None], None]:
        """Yield each object, and each change of an object; None if the object does not exist."""
        filters = [self._prefix(bucket) + name for name in sorted(names)]
        if len(filters) > FILTERS_MAX:
            filters = [f"{self._prefix(bucket)}>"]
        while True:
            with suppress(DeletionsMissed):
                async with (
                    self._session.reader(f"KV_{bucket}", filters, newest=True) as reader,
                    aclosing(self._changes(reader, bucket, frozenset(names))) as changes,
                ):
                    async for change in changes:
                        yield change

    async def _changes(
        self, reader: Reader, bucket: Bucket, wanted: frozenset[str]
    ) -> AsyncGenerator[tuple[str, Document | None], None]:
        unseen, prefix = set(wanted), self._prefix(bucket)
        while True:
            entries = await reader.next(READ_MODEL_LAG_S if unseen else None)
            for entry in entries:
                name, document = entry.subject[len(prefix) :], document_of(entry)
                # The marker of an earlier deletion says nothing about a new object.
                if name in wanted and (document is not None or name not in unseen):
                    unseen.discard(name)
                    yield name, document
            for name in sorted(unseen) if not entries else ():
                # Under load, the read model may lag behind the log.
                accepted = await self._find_accepted(bucket, name)
                if accepted is None or accepted.state == "deleted":
                    unseen.discard(name)
                    yield name, None

    async def find_stored(self, pool: str) -> "NodePoolValidated | None":
        """Return the newest spec of a NodePool, with its verdict; None without a NodePool."""
        from nodepool.contract.decode import decode
        from nodepool.contract.events import NodePoolValidated
        from nodepool.contract.messages import Envelope

        name = token(check_name("name", pool))
        stored, deleted = await asyncio.gather(
            self._session.last_event(VALIDATED, name), self._session.last_event(DELETED, name)
        )
        if stored is None and deleted is None and await self._session.is_trimmed():
            return await self._find_shown(pool)
        if stored is None or (deleted is not None and deleted.position > stored.position):
            return None
        envelope = decode(NodePoolValidated, stored.subject, stored.content, {}, stored.position)
        return envelope.data if isinstance(envelope, Envelope) else None

    async def _find_shown(self, pool: str) -> "NodePoolValidated | None":
        """Return a NodePool whose newest spec was trimmed from the log, by the read model.

        What was trimmed is long in the read model.
        """
        from nodepool.client.stored import stored_in

        document, session = await self.get("nodepools", pool), self._session
        return stored_in(document, session.org, session.cluster) if document is not None else None

    async def find_zone(self) -> str | None:
        """Return the zone of the cluster; None if the cluster is not registered."""
        from nodepool.contract.decode import decode
        from nodepool.contract.events import ClusterRegistered
        from nodepool.contract.messages import Envelope

        entry = await self._session.last_event(
            (ClusterRegistered.speaker, ClusterRegistered.__name__), UNNAMED
        )
        if entry is None and await self._session.is_trimmed():
            document = await self.get("clusters", self._session.cluster)
            return text(document, "spec", "zone") or None
        if entry is None:
            return None
        envelope = decode(ClusterRegistered, entry.subject, entry.content, {}, entry.position)
        return envelope.data.zone if isinstance(envelope, Envelope) else None

    async def list_clusters(self) -> Sequence[tuple[str, str]]:
        """Return organisation and name of each cluster that was ever registered."""
        filter = f"np.evt.validator.*.*.{UNNAMED}.ClusterRegistered"
        names = [subject.split(".")[3:5] for subject in await self._session.message_counts(filter)]
        if await self._session.is_trimmed():
            names += [key.split(".") for key in await self._list_keys("clusters")]
        return sorted({(org, cluster) for org, cluster in names})

    async def _list_keys(self, bucket: Bucket) -> Sequence[str]:
        """Return the key of each object of a bucket, of all organisations."""
        keys = list[str]()
        async with aclosing(self.watch(bucket, "", everywhere=True)) as changes:
            async for change in changes:
                if isinstance(change, Listed):
                    break
                keys += [change.key] if change.document is not None else []
        return keys

    async def explain(self, pool: str) -> Document | None:
        """Return None: the explanation has to be computed from the objects."""
        return None

    async def events(
        self, pool: str, node: str, *, since: datetime | None, after: int, follow: bool
    ) -> "AsyncGenerator[ObjectEvent, None]":
        """Yield events of the cluster."""
        # Imported here, because the models of all events load slowly.
        from nodepool.client.events import object_events, regards

        start = after + 1 if since is None else await self._session.position_at(since)
        async with self._session.reader(STREAM, self._filters(pool), start=start) as reader:
            while follow or reader.pending:
                for entry in await self._session.read(reader, endless=follow):
                    for event in object_events(entry):
                        if regards(event, pool, node) and (since is None or event.time >= since):
                            yield event

    async def recent_events(
        self, since: "Mapping[Regarded, datetime]", pools: Sequence[str]
    ) -> "RecentEvents":
        """Return the events of some objects."""
        from nodepool.client.recent_events import RecentEvents

        events = RecentEvents(since)
        start = await self._session.position_at(min(since.values()))
        filters = self._filters(pools[0] if len(pools) == 1 else "")
        async with self._session.reader(STREAM, filters, start=start) as reader:
            while reader.pending:
                events.read(await self._session.read(reader, endless=False))
        return events

    async def read_audit(self, trail: "Trail", place: "Place") -> None:
        """Read commands and their outcomes into a trail."""
        from nodepool.client.audit import filters_of

        since = trail.wanted.since
        start = 1 if since is None else await self._session.position_at(since)
        async with self._session.reader(STREAM, filters_of(place), start=start) as reader:
            while reader.pending:
                trail.read(await self._session.read(reader, endless=False))

    async def find_last_change(self, pool: str) -> "CommandRecord | None":
        """Return the command that changed a NodePool last."""
        from nodepool.client.audit import change_position, command_record

        events = [
            await self._session.last_event(("validator", name), token(pool))
            for name in ("NodePoolValidated", "NodePoolDeleting")
        ]
        entry = await self._session.message_at(change_position(*events))
        return command_record(entry) if entry is not None else None

    def _filters(self, pool: str) -> Sequence[str]:
        return filters_of_events(self._session.org, self._session.cluster, pool)

    def hear(self, filters: Sequence[str]) -> AbstractAsyncContextManager[Heard]:
        """Read events that are stored from now on, for the time of the context."""
        return self._session.reader(STREAM, filters, at_end=True)

    async def settle(self) -> None:
        """Return at once: an outcome in the log is found by `catch_up`."""

    def sender(self, outcomes: "PendingOutcomes[A]") -> "Sender[A]":
        """Return what stores commands in the log."""
        from nodepool.client.sender import Sender

        known = self._session
        return Sender(known.connection, outcomes, source=known.source, timeout_s=known.timeout_s)


def prefix_of(bucket: Bucket, org: str, cluster: str) -> str:
    """Return how the subjects of the objects in a bucket begin that belong to a cluster."""
    match bucket:
        case "nodepools" | "nodes":
            owner = f"{org}.{cluster}."
        case "quotas" | "clusters":
            owner = f"{org}."
        case "capacity" | "machines":
            owner = ""
    return f"$KV.{bucket}.{owner}"


def filters_of_events(org: str, cluster: str, pool: str) -> Sequence[str]:
    """Return the filter for all that is said of a NodePool, or of all NodePools if it is empty.

    With a filter for each kind of event the server searches for every message: 22,000 of 28,000
    messages took four times as long as all of them with one filter.
    """
    pool_token = token(check_name("name", pool)) if pool else "*"
    return [f"np.evt.*.{org}.{cluster}.{pool_token}.>"]
