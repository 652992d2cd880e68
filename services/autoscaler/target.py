"""The right target for a NodePool, and when it will change.

A Pod with room on a Node is placed there almost immediately. So Nodes are added only after Pods
have waited for some seconds, as with `new-pod-scale-up-delay` of the Kubernetes cluster autoscaler.
The other times are the defaults of that autoscaler: a Node is unneeded after ten minutes
(`scale-down-unneeded-time`), and no Node is removed for ten minutes after a Node was added
(`scale-down-delay-after-add`); see
https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from autoscaler.ledger import Ledger
from autoscaler.pool import Pool
from nodepool.contract.counting import format_count

DELAY_OF_PODS = timedelta(seconds=3)
"""How long Pods have to wait before Nodes are added for them."""
UNNEEDED_AFTER = timedelta(minutes=10)
"""How long a Node must be idle, or missing, before the target is lowered by that Node."""
DELAY_AFTER_ADD = timedelta(minutes=10)
"""How long the autoscaler does not lower a target after it has raised the target."""
DELAY_AFTER_COMMAND = timedelta(minutes=10)
"""How long the autoscaler does not change a target that a command has set."""


@dataclass(frozen=True, slots=True)
class Advice:
    """The right target, and the reason for it as one sentence without a full stop."""

    target: int
    message: str


def advice(pool: Pool, ledger: Ledger, now: datetime) -> Advice | None:
    """Another target for the NodePool; None where its own is right, or may not be changed now.

    ledger: the limit that the NodePool counts against.
    """
    due = next_change(pool)
    if due is None or due > now:
        return None
    if pool.waiting.count:
        return _upward(pool, ledger)
    return _downward(pool, now)


def next_change(pool: Pool) -> datetime | None:
    """When another target is right if nothing else happens; it may have passed; None for never."""
    if not pool.is_autoscaled or pool.proposed:
        return None
    due = _rises_at(pool) if pool.waiting.count else _falls_at(pool)
    if due is None or pool.commanded is None:
        return due
    return max(due, pool.commanded + DELAY_AFTER_COMMAND)


def _rises_at(pool: Pool) -> datetime | None:
    return pool.full_since and pool.full_since + DELAY_OF_PODS


def _upward(pool: Pool, ledger: Ledger) -> Advice | None:
    """Return a target for the Pods that wait, as far as quota allows; None if it allows no Node.

    A target that quota does not allow gets no Node at all, so it becomes as low as quota allows.
    """
    (least, most), before = pool.bounds, pool.spec.target
    needed = max(least, pool.needed) if pool.is_over else pool.needed
    allowed = pool.counted + pool.unjudged + ledger.room_with(pool.own_room)
    after = min(needed, allowed)
    is_corrected = pool.is_over and max(least, pool.counted + 1) <= after < before
    if after <= before and not is_corrected:
        return None
    pods = pool.waiting.count
    who = f"{pods} {_plural(pods, 'Pod waits', 'Pods wait')}"
    change = f"targetNodes from {before} to {after}"
    if after < needed:
        lacking = f"quota lacks {format_count(needed - after)} for them"
        return Advice(after, f"{change}, {_format_allowance(after, ledger)}: {who}, and {lacking}")
    if is_corrected:
        more = after - max(pool.counted, pool.nodes.billable)
        return Advice(after, f"{change}, which quota allows: {_waiting(who, more, after)}")
    limit = ", which is maxNodes" if after == most else ""
    more = after - max(before, pool.nodes.kept)
    return Advice(after, f"{change}{limit}: {_waiting(who, more, after)}")


def _format_allowance(target: int, ledger: Ledger) -> str:
    """Return why quota allows a target and no higher one."""
    if ledger.limit is None:
        return "as many as it has and no quota is set"
    if target > ledger.limit:
        return f"as many as it has and more than quota {ledger.limit} allows"
    return f"all that quota {ledger.limit} allows"


def _waiting(who: str, more: int, kept: int = 0) -> str:
    """Return that Pods wait for Nodes that come, or that a NodePool keeps those that it has."""
    return (
        f"{who} for {format_count(more)} more"
        if more > 0
        else f"{who}, so it keeps {format_count(kept)}"
    )


def _falls_at(pool: Pool) -> datetime | None:
    """Return when a Node that it can do without has been idle, or been missing, for long enough.

    A lower target gives up Nodes that are missing or leave before any idle Node, so no idle Node
    goes for it until those are given up or replaced.
    """
    least, _ = pool.bounds
    target, nodes = pool.spec.target, pool.nodes
    if target <= least:
        return None
    since = pool.short_since
    if nodes.kept >= target:
        name = next(islice(nodes.idle, pool.surplus, None), None)
        since = nodes.nodes[name].since if name is not None else None
    if since is None:
        return None
    due = since + UNNEEDED_AFTER
    return due if pool.raised is None else max(due, pool.raised + DELAY_AFTER_ADD)


def _downward(pool: Pool, now: datetime) -> Advice:
    """Return a target without the Nodes that have been idle, or missing, for long enough.

    A Node that leaves for another reason, as it is preempted, is not given up before it has left.
    """
    (least, _), before, nodes = pool.bounds, pool.spec.target, pool.nodes
    given_up, idle = pool.count_missing(now - UNNEEDED_AFTER), 0
    for name in nodes.idle if nodes.kept >= before - given_up else ():
        if nodes.nodes[name].since + UNNEEDED_AFTER > now:
            break
        idle += 1
    after = max(least, before + pool.surplus - given_up - idle)
    return Advice(after, f"targetNodes from {before} to {after}: {_why(idle, given_up)}")


def _why(idle: int, missing: int) -> str:
    """Return for how long Nodes have been idle, and others missing."""
    clauses = [
        f"{format_count(count)} {_plural(count, 'has', 'have')} been {what}"
        for count, what in ((idle, "idle"), (missing, "missing"))
        if count
    ]
    minutes = int(UNNEEDED_AFTER.total_seconds() // 60)
    unneeded = "" if idle else "no Pod waits, and "
    return f"{unneeded}{' and '.join(clauses)} for {minutes} minutes"


def _plural(count: int, singular: str, plural: str) -> str:
    return singular if count == 1 else plural
