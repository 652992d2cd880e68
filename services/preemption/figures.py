"""The figures about all preemptions: how late their stages were, and how many Pods were lost.

There are at most three causes and two stages: seven series of counters, and two histograms.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, get_args

from nodepool.contract.metrics import (
    INVARIANT_LAST_POSITION,
    INVARIANT_VIOLATIONS,
    PREEMPTION_LATE_STAGES,
    PREEMPTION_LATENESS,
    PREEMPTION_LOST_PODS,
    PREEMPTION_STAGES,
    PREEMPTIONS,
    Sample,
)
from nodepool.contract.timetable import DRAIN_AFTER, GONE_AFTER
from nodepool.state.tallies import Counters, Histograms, Violations
from nodepool.state.values import replace

LATE: Final = timedelta(seconds=1)
"""A stage is late if more than this time has passed since it was due."""
Cause = Literal["Reclaimed", "DefaultPoolShort", "Command"]
"""Why a preemption began: the reason of the allocator, or a command."""
CAUSES: Final[tuple[str, ...]] = get_args(Cause)
STAGES: Final = ("drain", "end")
STAGE_EARLY: Final = "PreemptionStageEarly"
"""A drain began before it was due, or a Node with Pods was deleted before its time was over."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures about all preemptions since the log began.

    begun: the number of preemptions, by cause.
    stages: the number of drains, and of ends because the time was over.
    late: how many of these stages were late.
    lateness: how long after it was due each stage came, in seconds.
    lost: how many Pods were still running when the time was over.
    violations: how often a stage came before it was due.
    """

    begun: Counters = Counters()
    stages: Counters = Counters()
    late: Counters = Counters()
    lateness: Histograms = Histograms()
    lost: int = 0
    violations: Violations = Violations()

    def began(self, cause: Cause) -> "Figures":
        """Return the figures with one more preemption."""
        return replace(self, begun=self.begun.add(cause))

    def count_drain(self, since: datetime, now: datetime) -> "Figures":
        """Return the figures with a drain that began at `now`, of a preemption from `since`."""
        # A drain that a command requested begins before it is due, and is not late.
        return self._count_stage("drain", max(timedelta(), now - since - DRAIN_AFTER))

    def count_end(self, since: datetime, now: datetime, lost: int) -> "Figures":
        """Return the figures with the end of such a preemption; an early end does not count."""
        delay = now - since - GONE_AFTER
        if delay < timedelta():
            return self
        return replace(self._count_stage("end", delay), lost=self.lost + lost)

    def early(self, position: int) -> "Figures":
        """Return the figures with one more stage that began too soon, at this position."""
        return replace(self, violations=self.violations.add(STAGE_EARLY, position))

    def _count_stage(self, stage: str, delay: timedelta) -> "Figures":
        return replace(
            self,
            stages=self.stages.add(stage),
            late=self.late.add(stage, by=int(delay > LATE)),
            lateness=self.lateness.observe(PREEMPTION_LATENESS, delay.total_seconds(), stage),
        )


def samples(figures: Figures) -> Iterator[Sample]:
    """Yield the counters and histograms of every cause and stage, from 0 on."""
    stages = tuple((stage,) for stage in STAGES)
    yield from figures.begun.samples(PREEMPTIONS, ((cause,) for cause in CAUSES))
    yield from figures.stages.samples(PREEMPTION_STAGES, stages)
    yield from figures.late.samples(PREEMPTION_LATE_STAGES, stages)
    yield from figures.lateness.samples(PREEMPTION_LATENESS, stages)
    yield Sample(PREEMPTION_LOST_PODS, (), figures.lost)
    yield from figures.violations.samples(
        INVARIANT_VIOLATIONS, INVARIANT_LAST_POSITION, (STAGE_EARLY,)
    )
