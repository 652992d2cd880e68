"""Since when a NodePool waits to be at its target, as its time to target counts it.

A wait begins when the NodePool has fewer or more Nodes than its target, because the target changed
or a Node was lost. It ends when the number of Nodes equals the target. Another change of the target
in the same direction does not begin a new wait. If a change of the target ends the wait, the wait
does not count, because nothing was delivered.

* A NodePool whose target is above its quota waits for its customer: no time counts until the quota
  is sufficient. A lack of machines does count: this metric exists to show it.
* A NodePool that is invalid, or is being deleted, has no target to reach.
* A target of the autoscaler counts like a target of a command.
"""

from datetime import datetime
from typing import Final, NamedTuple

from aggregator.objects import NodePoolObject
from nodepool.contract.conditions import AtTarget, Quota, Validated
from nodepool.service import Context

DIRECTIONS: Final = ("down", "up")
"""The directions of a wait: for Nodes to leave, or to come."""
_UNANSWERABLE: Final = (Quota.OVER, Quota.NOT_SET)


class Wait(NamedTuple):
    """Since when a NodePool waits for Nodes to come, `up`, or to leave, `down`."""

    since: datetime
    direction: str


def wait_after(known: Wait | None, after: NodePoolObject, context: Context) -> Wait | None:
    """Return the wait of a changed NodePool; None if the NodePool waits for nothing that counts."""
    direction = _direction(after)
    if direction == "":
        return None
    is_same = known is not None and known.direction == direction
    return known if is_same else Wait(context.time, direction)


def delivered(
    before: NodePoolObject | None, after: NodePoolObject, wait: Wait | None
) -> Wait | None:
    """Return the wait if the awaited Nodes have come or left; None otherwise."""
    if before is None or wait is None or after.at_target is not AtTarget.TARGET_MET:
        return None
    return wait if before.spec.target == after.spec.target else None


def _direction(pool: NodePoolObject) -> str:
    """Return `up` if a NodePool waits for Nodes to come, `down` to leave; empty for neither."""
    validated, quota = pool.conditions.get("Validated"), pool.conditions.get("Quota")
    if validated is None or validated.reason != Validated.VALID:
        return ""
    match pool.at_target:
        case AtTarget.OVER_TARGET:
            return "down"
        case AtTarget.UNDER_TARGET:
            return "" if quota is not None and quota.reason in _UNANSWERABLE else "up"
        case _:
            return ""
