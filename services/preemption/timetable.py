"""The timetable of a preemption, counted from its warning (seed: Spot Node Pools, SEMANTICS 8)."""

from datetime import datetime, timedelta
from enum import IntEnum

DRAIN_AFTER = timedelta(minutes=2)
GONE_AFTER = timedelta(minutes=7)


class Stage(IntEnum):
    """How far a preemption has come."""

    PENDING = 0
    IN_PROGRESS = 1
    OVER = 2


def stage(pending_since: datetime, now: datetime) -> Stage:
    """The stage that is due at `now`; never one whose moment has not come."""
    elapsed = now - pending_since
    if elapsed >= GONE_AFTER:
        return Stage.OVER
    return Stage.IN_PROGRESS if elapsed >= DRAIN_AFTER else Stage.PENDING


def next_moment(pending_since: datetime, reached: Stage) -> datetime | None:
    """When the stage after `reached` is due; None after the last."""
    match reached:
        case Stage.PENDING:
            return pending_since + DRAIN_AFTER
        case Stage.IN_PROGRESS:
            return pending_since + GONE_AFTER
        case Stage.OVER:
            return None
