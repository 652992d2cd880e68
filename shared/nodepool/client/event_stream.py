"""Reading the events of a cluster's NodePools and Nodes from the log."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING

from nodepool.client.session import Session
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

        Raises TrimGap if the log was trimmed beyond `after`, or while this client was away.
        """
        stream = self._session.backend.events(pool, node, since=since, after=after, follow=follow)
        async with aclosing(stream) as events:
            async for event in events:
                yield event

    async def recent(
        self, since: "Mapping[Regarded, datetime]", pools: Sequence[str]
    ) -> "RecentEvents":
        """Return the events of some objects, read in one pass over the log.

        since: the time from which the events of each object are read.
        pools: the NodePools that these objects are, or are Nodes of; empty for all NodePools.
        """
        from nodepool.client.recent_events import RecentEvents

        if not since:
            return RecentEvents(since)
        return await self._session.backend.recent_events(since, pools)

    async def preemptions(self, *, since: datetime) -> "list[Preemption]":
        """Return the preemptions of the cluster's Nodes that began since a time, oldest first.

        If there are more than `PREEMPTIONS_MAX`, returns the newest preemptions.
        """
        from nodepool.client.preemptions import KINDS, Preemptions

        self._session.require_bus("list preemptions")
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
        return await self._session.backend.newest_position()
