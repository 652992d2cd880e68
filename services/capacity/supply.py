"""How many of the free machines of an offering each NodePool that waits for them could have."""

from collections.abc import Iterator
from typing import NamedTuple

from capacity.pool import Pool
from capacity.state import State
from nodepool.contract.conditions import Capacity
from nodepool.contract.keys import OfferingKey, PoolKey
from nodepool.contract.model import ComputeClass
from nodepool.state.inventory import in_whole_racks


class Share(NamedTuple):
    """What a NodePool could have: how many machines, and whether that is enough or why not.

    preempted: how many spot Nodes give way to it.
    """

    key: PoolKey
    reason: Capacity
    available: int
    preempted: int = 0


def share_of(state: State, pool: Pool) -> Share:
    """What one NodePool could have, after those that are served before it."""
    offering, free = state.offering(pool.offering), state.inventory.count(pool.offering)
    if not pool.shortfall:
        return Share(pool.key, Capacity.SUFFICIENT, free)
    if free >= offering.demand and not offering.restricted:
        return Share(pool.key, Capacity.SUFFICIENT, free - offering.demand + pool.shortfall)
    return next(share for share in shares(state, pool.offering) if share.key == pool.key)


def shares(state: State, key: OfferingKey) -> Iterator[Share]:
    """What each NodePool could have that wants machines, or wanted some that were not there.

    Those that wait are served in their order from the free machines. Those that were short and want
    no more Nodes have enough.
    """
    offering = state.offering(key)
    served = _with_affinity(state, key) if offering.restricted else _by_count(state, key)
    yield from _preempted(state, key, served) if key in state.preempted else served
    for pool_key in offering.short:
        pool = state.pools[pool_key]
        if pool.may_grow and not pool.shortfall:
            yield Share(pool_key, Capacity.SUFFICIENT, 0)


def _preempted(state: State, key: OfferingKey, served: Iterator[Share]) -> Iterator[Share]:
    """The shares with the spot Nodes that give way; they follow in the order of those that wait."""
    left = len(state.preempted[key])
    for share in served:
        pool = state.pools[share.key]
        is_spot = pool.spec.compute_class is ComputeClass.SPOT
        count = 0 if is_spot else min(left, pool.shortfall - _taken(pool, share))
        left -= count
        yield share._replace(preempted=count)


def _by_count(state: State, key: OfferingKey) -> Iterator[Share]:
    free = state.inventory.count(key)
    for pool_key in state.offering(key).waiting:
        pool = state.pools[pool_key]
        share = _share(pool, free, free)
        yield share
        free -= _taken(pool, share)


def _with_affinity(state: State, key: OfferingKey) -> Iterator[Share]:
    free = state.inventory.shelf(key)
    for pool_key in state.offering(key).waiting:
        pool = state.pools[pool_key]
        affinity = pool.spec.affinity
        share = _share(pool, free.count(affinity) if free.left else 0, free.left)
        yield share
        free.take(affinity, _taken(pool, share))


def _taken(pool: Pool, share: Share) -> int:
    return min(share.available, pool.shortfall)


def _share(pool: Pool, fitting: int, free: int) -> Share:
    """What the NodePool could have of the `free` machines, of which `fitting` fit its affinity."""
    available = _deliverable(pool, fitting)
    if available >= pool.shortfall:
        return Share(pool.key, Capacity.SUFFICIENT, fitting)
    # The affinity is the reason where there would be more without it.
    affinity = _deliverable(pool, free) > available
    if available:
        reason = Capacity.PARTIAL_NODE_AFFINITY if affinity else Capacity.PARTIAL
    else:
        reason = Capacity.NONE_AVAILABLE_NODE_AFFINITY if affinity else Capacity.NONE_AVAILABLE
    return Share(pool.key, reason, available)


def _deliverable(pool: Pool, machines: int) -> int:
    count = min(machines, pool.shortfall)
    return in_whole_racks(pool.spec.instance_type, pool.held, count)
