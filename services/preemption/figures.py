"""How late the stages of preemptions were, and what was lost, as gauges."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from nodepool.contract.timetable import DRAIN_AFTER, GONE_AFTER
from nodepool.service import Sample

LATE = timedelta(seconds=1)
"""A stage that comes later than this after its moment is late."""


@dataclass(frozen=True, slots=True)
class Punctuality:
    """The stages of one kind since the log began.

    count, late: how many there were, and how many of them were late.
    last_s: how late the last one was, in seconds.
    """

    count: int = 0
    late: int = 0
    last_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Figures:
    """All preemptions since the log began.

    drain, end: how punctual the beginnings of their drains were, and their ends where the time was
        over.
    lost: how many Pods ran on when the time was over.
    """

    drain: Punctuality = Punctuality()
    end: Punctuality = Punctuality()
    lost: int = 0

    def drained(self, since: datetime, now: datetime) -> "Figures":
        """The figures with a drain that began at `now`, of a preemption that began at `since`."""
        return replace(self, drain=_counted(self.drain, now - since - DRAIN_AFTER))

    def ended(self, since: datetime, now: datetime, lost: int) -> "Figures":
        """The figures with the end of such a preemption; one before its time counts for nothing."""
        delay = now - since - GONE_AFTER
        if delay < timedelta():
            return self
        return replace(self, end=_counted(self.end, delay), lost=self.lost + lost)


def _counted(before: Punctuality, delay: timedelta) -> Punctuality:
    # A drain that was asked for comes before its moment, and is not late.
    seconds = max(0.0, delay.total_seconds())
    return Punctuality(before.count + 1, before.late + (delay > LATE), seconds)


def samples(figures: Figures) -> Iterator[Sample]:
    """The gauges; none of a stage before its first time."""
    for name, stage in (("drain", figures.drain), ("end", figures.end)):
        if stage.count:
            labels = {"stage": name}
            yield "nodepool_preemption_stages", labels, float(stage.count)
            yield "nodepool_preemption_late_stages", labels, float(stage.late)
            yield "nodepool_preemption_lateness_seconds", labels, stage.last_s
    if figures.end.count:
        yield "nodepool_preemption_lost_pods", {}, float(figures.lost)
