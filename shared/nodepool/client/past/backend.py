"""The backend of the past: the read model in memory, and the messages up to a moment."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from nodepool.client.bus import filters_of_events, prefix_of
from nodepool.client.names import check_name
from nodepool.client.objects import Document, Listed, Object
from nodepool.client.past.errors import refuse
from nodepool.client.past.history import History
from nodepool.client.past.objects import PastObjects
from nodepool.client.past.unchanging import Unchanging
from nodepool.contract.buckets import Bucket
from nodepool.contract.documents import field, text
from nodepool.contract.keys import token
from nodepool.contract.log import Entry

if TYPE_CHECKING:
    from nodepool.client.audit import CommandRecord, Place, Trail
    from nodepool.client.events import ObjectEvent
    from nodepool.client.recent_events import RecentEvents, Regarded
    from nodepool.contract.events import NodePoolValidated

DELETIONS_KEPT: Final = timedelta(days=30)
"""How far back it is looked for who has deleted a NodePool."""
_CHANGES: Final = ("NodePoolValidated", "NodePoolDeleting")


class PastBackend(Unchanging):
    """Shows what was shown at a moment; the methods are those of `Backend`."""

    def __init__(self, org: str, cluster: str) -> None:
        self._org, self._cluster = org, cluster
        self._shown: tuple[History, Callable[[], Awaitable[PastObjects]]] | None = None
        self._objects: PastObjects | None = None

    def show(self, history: History, read: Callable[[], Awaitable[PastObjects]]) -> None:
        """Show this from now on; nothing can be read before.

        read: returns the objects; called at their first use, because events need none of them.
        """
        self._shown = history, read

    @property
    def _history(self) -> History:
        assert self._shown is not None, "use the client in `async with`"
        return self._shown[0]

    async def _read_objects(self) -> PastObjects:
        assert self._shown is not None, "use the client in `async with`"
        if self._objects is None:
            self._objects = await self._shown[1]()
        return self._objects

    def _prefix(self, bucket: Bucket) -> str:
        return prefix_of(bucket, self._org, self._cluster)

    async def get(self, bucket: Bucket, key: str) -> Document | None:
        """Return an object as the read model had it; None if there was no such object."""
        return (await self._read_objects()).get(bucket, self._prefix(bucket) + key)

    async def watch(
        self, bucket: Bucket, prefix: str, *, everywhere: bool
    ) -> AsyncGenerator[Object | Listed, None]:
        """Yield objects and `Listed`; there are no changes."""
        subjects = f"$KV.{bucket}." if everywhere else self._prefix(bucket)
        for found in (await self._read_objects()).list(bucket, subjects):
            if found.key.startswith(prefix):
                yield found
        yield Listed()

    async def catch_up(self, bucket: Bucket, *, everywhere: bool = False) -> bool:
        """Return at once: everything up to the moment is shown."""
        return True

    async def find_stored(self, pool: str) -> "NodePoolValidated | None":
        """Return the spec that a NodePool had, with its verdict; None without a NodePool."""
        from nodepool.client.stored import stored_in

        document = await self.get("nodepools", check_name("name", pool))
        return stored_in(document, self._org, self._cluster) if document is not None else None

    async def find_zone(self) -> str | None:
        """Return the zone of the cluster; None if it was not registered."""
        document = await self.get("clusters", self._cluster)
        return text(document, "spec", "zone") or None

    async def list_clusters(self) -> Sequence[tuple[str, str]]:
        """Return organisation and name of each cluster that was registered."""
        found = (await self._read_objects()).list("clusters", "$KV.clusters.")
        names = (each.key.partition(".") for each in found)
        return sorted((org, cluster) for org, _, cluster in names)

    async def explain(self, pool: str) -> Document | None:
        """Return None: the explanation has to be computed from the objects."""
        return None

    async def events(
        self, pool: str, node: str, *, since: datetime | None, after: int, follow: bool
    ) -> "AsyncGenerator[ObjectEvent, None]":
        """Yield events of the cluster up to the moment."""
        from nodepool.client.events import object_events, regards

        if follow:
            raise refuse("wait for events")
        start = after + 1 if since is None else await self._history.first_since(since)
        async with aclosing(self._history.entries(start, self._filters(pool))) as batches:
            async for entries in batches:
                for entry in entries:
                    for event in object_events(entry):
                        if regards(event, pool, node) and (since is None or event.time >= since):
                            yield event

    def _filters(self, pool: str) -> Sequence[str]:
        return filters_of_events(self._org, self._cluster, pool)

    async def recent_events(
        self, since: "Mapping[Regarded, datetime]", pools: Sequence[str]
    ) -> "RecentEvents":
        """Return the events of some objects up to the moment."""
        from nodepool.client.recent_events import RecentEvents

        events = RecentEvents(since)
        start = await self._history.first_since(min(since.values()))
        filters = self._filters(pools[0] if len(pools) == 1 else "")
        async with aclosing(self._history.entries(start, filters)) as batches:
            async for entries in batches:
                events.read(entries)
        return events

    async def read_audit(self, trail: "Trail", place: "Place") -> None:
        """Read commands and their outcomes up to the moment into a trail."""
        from nodepool.client.audit import filters_of

        since = trail.wanted.since
        start = 1 if since is None else await self._history.first_since(since)
        async with aclosing(self._history.entries(start, filters_of(place))) as batches:
            async for entries in batches:
                trail.read(entries)

    async def find_last_change(self, pool: str) -> "CommandRecord | None":
        """Return the command that had changed a NodePool last."""
        from nodepool.client.audit import change_position, command_record

        document = await self.get("nodepools", pool)
        found = await self._newest_changes(pool, document)
        entry = await self._history.message_at(change_position(*map(found.get, _CHANGES)))
        return command_record(entry) if entry is not None else None

    async def _newest_changes(self, pool: str, document: Document | None) -> Mapping[str, Entry]:
        """Return the newest messages of the validator about a NodePool, by name.

        The search goes back to the creation of a NodePool that there was, and ends early if no
        deletion can have followed.
        """
        metadata = field(document, "metadata")
        created = text(metadata, "creationTimestamp")
        back = datetime.fromisoformat(created) if created else self._history.time - DELETIONS_KEPT
        first = await self._history.first_since(back)
        path = f"{self._org}.{self._cluster}.{token(pool)}"
        filters = [f"np.evt.validator.{path}.{name}" for name in _CHANGES]
        wanted = set(_CHANGES if text(metadata, "deletionTimestamp") else _CHANGES[:1])
        found = dict[str, Entry]()
        async with aclosing(self._history.newest(first, filters)) as batches:
            async for entries in batches:
                for entry in entries:
                    found.setdefault(entry.subject.rpartition(".")[2], entry)
                if wanted <= found.keys() or (document is None and found):
                    break
        return found

    async def newest_position(self) -> int:
        """Return the position of the newest message up to the moment."""
        return self._history.position
