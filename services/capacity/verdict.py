"""The verdict on a NodePool's capacity, and the warning that there are not enough machines."""

from capacity.pool import Pool
from capacity.supply import Share
from nodepool.contract.catalog import INSTANCE_TYPES
from nodepool.contract.conditions import HEALTHY, Capacity
from nodepool.contract.events import CapacityChecked, CWInsufficientCapacity
from nodepool.contract.keys import offering_parts
from nodepool.contract.messages import pool_fields


def verdict(pool: Pool, share: Share) -> CapacityChecked:
    """How many of the Nodes that the NodePool still wants could be had now."""
    assert pool.since is not None, f"{pool.key} has a verdict before its quota was checked"
    return CapacityChecked(
        **pool_fields(pool.key),
        uid=pool.uid,
        generation=pool.generation,
        granted=pool.granted,
        reason=share.reason,
        wanted=pool.shortfall,
        available=share.available,
        since=pool.since,
        message=_text(pool, share),
        preempted=share.preempted,
    )


def warning(pool: Pool, share: Share) -> CWInsufficientCapacity:
    """The Kubernetes Event beside a verdict that there are not enough machines."""
    return CWInsufficientCapacity(**pool_fields(pool.key), message=_text(pool, share))


def _text(pool: Pool, share: Share) -> str:
    if share.reason is Capacity.SUFFICIENT:
        return HEALTHY[share.reason]
    zone, instance_type = offering_parts(pool.offering)
    affinity = share.reason in (
        Capacity.PARTIAL_NODE_AFFINITY,
        Capacity.NONE_AVAILABLE_NODE_AFFINITY,
    )
    which = " that satisfy the node affinity" if affinity else ""
    return (
        f"{share.available or 'none'} of {pool.shortfall} wanted Nodes of {instance_type}{which} "
        f"can be had in {zone} now{_racks(instance_type)}{_preempted(share.preempted)}"
    )


def _preempted(count: int) -> str:
    if not count:
        return ""
    return f"; {count} spot Node{' is' if count == 1 else 's are'} being preempted for it"


def _racks(instance_type: str) -> str:
    entry = INSTANCE_TYPES.get(instance_type)
    return f", in racks of {entry.rack_size}" if entry is not None and entry.rack_size else ""
