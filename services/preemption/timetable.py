"""The timetable of a preemption: warned, drained after two minutes, gone after seven at most."""

from datetime import datetime
from enum import IntEnum

from nodepool.contract.timetable import DRAIN_AFTER, GONE_AFTER


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
