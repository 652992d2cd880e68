"""The verdict on a NodePool's capacity, and the warning that there are not enough machines."""

from capacity.pool import Pool, Share
from nodepool.contract.conditions import HEALTHY, Capacity
from nodepool.contract.counting import format_count
from nodepool.contract.events import CapacityChecked, CWInsufficientCapacity
from nodepool.contract.messages import pool_fields
from nodepool.placement.racks import Delivery, lacking

DOMAINS_MAX = 3
"""The most NVLink domains that a message names among the domains that lack machines."""


def verdict(pool: Pool, share: Share) -> CapacityChecked:
    """Return how many of the Nodes that the NodePool still wants could be had now."""
    assert pool.wait.since is not None, f"{pool.key} has a verdict before its quota was checked"
    return CapacityChecked(
        **pool_fields(pool.key),
        uid=pool.uid,
        generation=pool.generation,
        granted=pool.granted,
        reason=share.reason,
        wanted=pool.claim,
        available=share.available,
        since=pool.wait.since,
        message=text(pool, share),
        preempted=share.preempted,
        position=share.position,
        needed=share.needed,
    )


def warning(pool: Pool, share: Share) -> CWInsufficientCapacity:
    """Return the Kubernetes Event for a verdict that there are not enough machines."""
    return CWInsufficientCapacity(**pool_fields(pool.key), message=text(pool, share))


def is_new(pool: Pool, share: Share, last: CapacityChecked, *, exact: bool) -> bool:
    """Return whether a verdict would say something else than the last verdict.

    With enough machines, a verdict names no number. For a type that comes in racks, the message
    names more numbers than the verdict.

    exact: whether a small change of its position counts, too.
    """
    check = (pool.generation, pool.granted, share.reason, share.preempted)
    if check != (last.generation, last.granted, last.reason, last.preempted):
        return True
    if share.reason is Capacity.SUFFICIENT:
        return False
    numbers = (pool.claim, share.available, pool.wait.since)
    if numbers != (last.wanted, last.available, last.since):
        return True
    if pool.rack_size > 1 and text(pool, share) != last.message:
        return True
    if exact:
        return (share.position, share.needed) != (last.position, last.needed)
    return not is_hardly_ahead(share, last)


def is_hardly_ahead(share: Share, last: CapacityChecked) -> bool:
    """Return whether less than a tenth of the wait is over since the last verdict.

    Each machine moves all NodePools that wait. A NodePool far behind gets few new verdicts at once,
    and an exact verdict a minute later.
    """
    position, needed = last.position - share.position, last.needed - share.needed
    if position == needed == 0:
        return True
    return 0 <= position * 10 < last.position and 0 <= needed * 10 < max(1, last.needed)


def text(pool: Pool, share: Share) -> str:
    """Return the message of the verdict."""
    if share.reason is Capacity.SUFFICIENT:
        return HEALTHY[share.reason]
    zone, instance_type = pool.zone, pool.spec.instance_type
    affinity = share.reason in (
        Capacity.PARTIAL_NODE_AFFINITY,
        Capacity.NONE_AVAILABLE_NODE_AFFINITY,
    )
    which = " that satisfy the node affinity" if affinity else ""
    return (
        f"{share.available or 'none'} of {pool.claim} wanted Nodes of {instance_type}{which} "
        f"can be had in {zone} now{_racks(pool, share) if pool.rack_size > 1 else ''}"
        f"{_format_preempted(share.preempted) if share.preempted else ''}"
    )


def _format_preempted(count: int) -> str:
    verb = "is" if count == 1 else "are"
    return f"; {format_count(count, 'spot Node')} {verb} being preempted for it"


def _racks(pool: Pool, share: Share) -> str:
    """Return why the racks that are there are not enough, in numbers."""
    size = pool.rack_size
    lacks = lacking(size, pool.spec.target // size, pool.domains, pool.leaving)
    parts = [part for part in lacks if part.domain]
    causes = [_lack(part, share.free.get(part.domain, 0)) for part in parts[:DOMAINS_MAX]]
    if (more := len(parts) - DOMAINS_MAX) > 0:
        verb = "lacks" if more == 1 else "lack"
        causes.append(f"{format_count(more, 'more domain')} {verb} some")
    lacked = sum(part.machines for part in lacks)
    others = {domain: count for domain, count in share.free.items() if domain and count}
    if pool.claim > lacked and others:
        most = max(others.values())
        causes.append(f"of {sum(others.values())} free at most {most} share an NVLink domain")
    return f", in racks of {size}{': ' if causes else ''}{'; '.join(causes)}"


def _lack(part: Delivery, free: int) -> str:
    return f"NVLink domain {part.domain} lacks {part.machines} and has {free} free"
