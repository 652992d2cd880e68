"""The timetable of a preemption: warned, drained after two minutes, gone after seven at most.

The seven minutes are those of https://docs.coreweave.com/platform/capacity-plans/spot-node-pools.
"""

from datetime import datetime, timedelta
from enum import IntEnum

DRAIN_AFTER = timedelta(minutes=2)
"""How long after the warning the drain begins."""
GONE_AFTER = timedelta(minutes=7)
"""How long after the warning the Node is gone, drained or not."""


class Stage(IntEnum):
    """How far a preemption has come."""

    PENDING = 0
    IN_PROGRESS = 1
    OVER = 2


def stage(pending_since: datetime, now: datetime) -> Stage:
    """The last stage that is due at `now`."""
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
