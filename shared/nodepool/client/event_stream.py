"""Reading the events of a cluster's NodePools and Nodes from the log."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from nodepool.client.names import check_name
from nodepool.client.session import Session
from nodepool.contract.keys import token
from nodepool.nats.log.streams import STREAM

if TYPE_CHECKING:
    from nodepool.client.events import ObjectEvent
    from nodepool.client.preemptions import Preemption
    from nodepool.client.recent_events import RecentEvents, Regarded


class Events:
    """The events of the cluster, as `client.events`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def read(
        self,
        *,
        pool: str = "",
        node: str = "",
        since: datetime | None = None,
        after: int = 0,
        follow: bool = False,
    ) -> "AsyncGenerator[ObjectEvent, None]":
        """Yield the events of the cluster's NodePools and Nodes, in the order of the log.

        pool, node: only the events of this NodePool or of this Node.
        since: the time of the first event; None for any.
        after: only events that lie in the log after this position; has no meaning with `since`.
        follow: whether to continue with new events, without end.
        """
        # Imported here, because the models of all events load slowly.
        from nodepool.client.events import object_events, regards

        start = after + 1 if since is None else await self._session.position_at(since)
        filters = self._event_filters(pool)
        async with self._session.reader(STREAM, filters, start=start) as reader:
            while follow or reader.pending:
                for entry in await self._session.read(reader, endless=follow):
                    for event in object_events(entry):
                        if regards(event, pool, node) and (since is None or event.time >= since):
                            yield event

    async def recent(
        self, since: "Mapping[Regarded, datetime]", pools: Sequence[str]
    ) -> "RecentEvents":
        """Return the events of some objects, read in one pass over the log.

        since: the time from which the events of each object are read.
        pools: the NodePools that these objects are, or are Nodes of; empty for all NodePools.
        """
        from nodepool.client.recent_events import RecentEvents

        events = RecentEvents(since)
        if not since:
            return events
        start = await self._session.position_at(min(since.values()))
        filters = self._event_filters(pools[0] if len(pools) == 1 else "")
        async with self._session.reader(STREAM, filters, start=start) as reader:
            while reader.pending:
                events.read(await self._session.read(reader, endless=False))
        return events

    async def preemptions(self, *, since: datetime) -> "list[Preemption]":
        """Return the preemptions of the cluster's Nodes that began since a time, oldest first.

        If there are more than `PREEMPTIONS_MAX`, returns the newest preemptions.
        """
        from nodepool.client.preemptions import KINDS, Preemptions

        path = f"{self._session.org}.{self._session.cluster}.*"
        filters = [f"np.evt.{kind.speaker}.{path}.{name}" for name, kind in KINDS.items()]
        start = await self._session.position_at(since)
        found = Preemptions()
        async with self._session.reader(STREAM, filters, start=start) as reader:
            while reader.pending:
                found.read(await self._session.read(reader, endless=False))
        return [each for each in found.all() if each.began >= since]

    async def newest_position(self) -> int:
        """Return the position of the newest message in the log; 0 while the log is empty."""
        return await self._session.last_position()

    def _event_filters(self, pool: str) -> Sequence[str]:
        """Return the filter for all that is said of a NodePool, or of all NodePools.

        With a filter for each kind of event the server searches for every message: 22,000 of 28,000
        messages took four times as long as all of them with one filter.
        """
        pool_token = token(check_name("name", pool)) if pool else "*"
        return [f"np.evt.*.{self._session.org}.{self._session.cluster}.{pool_token}.>"]
