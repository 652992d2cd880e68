"""When the verdicts on an offering are made again, after something has changed there."""

from datetime import datetime, timedelta
from typing import Final

from nodepool.contract.keys import OfferingKey, PoolKey
from nodepool.state.work import WorkQueue

Work = WorkQueue[OfferingKey | PoolKey]
RENEWALS_PER_SECOND: Final = 100
"""The most verdicts per second that are renewed after a number in them changes, for racks."""
CORRECTED_AFTER: Final = timedelta(minutes=1)
"""The longest time for which a verdict names a position that is wrong by less than a tenth."""


def schedule(
    work: Work,
    key: OfferingKey,
    waiting: int,
    renewed: datetime | None,
    now: datetime,
    *,
    is_short: bool,
) -> Work:
    """Return the work queue with an offering in it after a change.

    For a type that comes in racks, each verdict names how many machines are free in each NVLink
    domain. So one machine changes the verdicts on all NodePools that wait, and their rate is
    bounded. For any other type, verdicts follow at once, but for small changes of positions; see
    `is_exact`.

    waiting: how many NodePools wait.
    renewed: when the last verdict was published, for types that come in racks.
    is_short: whether there are verdicts that name positions.
    """
    seconds = waiting // RENEWALS_PER_SECOND
    if renewed is not None and seconds:
        return _put_before(work, key, renewed + timedelta(seconds=seconds))
    work = work.put(key)
    return _put_before(work, key, now + CORRECTED_AFTER) if is_short else work


def _put_before(work: Work, key: OfferingKey, moment: datetime) -> Work:
    """Return the work queue with an offering due at a moment, or at one before it."""
    due = work.deadlines.moments.get(key)
    return work if due is not None and due <= moment else work.put_at(key, moment)


def is_exact(work: Work, key: OfferingKey) -> bool:
    """Return whether the verdicts on an offering are to name exact positions now.

    The offering is due later while small changes of positions may wait, and then no more.
    """
    return key not in work.deadlines.moments
