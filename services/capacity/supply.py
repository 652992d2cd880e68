"""How many of the free machines of an offering each NodePool that waits for them could have."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from capacity.pool import Pool
from capacity.state import State
from nodepool.contract.conditions import Capacity
from nodepool.contract.keys import OfferingKey, PoolKey
from nodepool.contract.model import ComputeClass
from nodepool.state.inventory import FreeMachines, take_racks
from nodepool.state.racks import deliveries
from nodepool.state.reclaims import take_reclaimed


class Share(NamedTuple):
    """What a NodePool could have: how many machines, and whether that is enough or why not.

    free: how many of each NVLink domain it could have taken its racks from, where there are any.
    preempted: how many spot Nodes give way to it.
    """

    key: PoolKey
    reason: Capacity
    available: int
    free: Mapping[str, int] = MappingProxyType({})
    preempted: int = 0


def share_of(state: State, pool: Pool) -> Share:
    """What one NodePool could have, after those that are served before it."""
    offering, free = state.offering(pool.offering), state.free(pool.offering)
    if not pool.shortfall:
        return Share(pool.key, Capacity.SUFFICIENT, free)
    if free >= offering.demand and not offering.restricted:
        return Share(pool.key, Capacity.SUFFICIENT, free - offering.demand + pool.shortfall)
    return next(share for share in shares(state, pool.offering) if share.key == pool.key)


def shares(state: State, key: OfferingKey) -> Iterator[Share]:
    """What each NodePool could have that wants machines, or wanted some that were not there.

    Those that wait are served in their order from the free machines, after an operator. Those that
    were short and want no more Nodes have enough.
    """
    offering = state.offering(key)
    served = _one_by_one(state, key) if offering.restricted else _by_count(state, key)
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
    free = state.free(key)
    for pool_key in state.offering(key).waiting:
        pool = state.pools[pool_key]
        share = _share(pool, free, free)
        yield share
        free -= _taken(pool, share)


def _one_by_one(state: State, key: OfferingKey) -> Iterator[Share]:
    free = state.inventory.shelf(key)
    take_reclaimed(state.inventory, key, state.to_reclaim.get(key, 0), free)
    for pool_key in state.offering(key).waiting:
        pool = state.pools[pool_key]
        affinity = pool.spec.affinity
        if pool.rack_size:
            yield _racks_share(pool, free)
            continue
        share = _share(pool, free.count(affinity) if free.left else 0, free.left)
        yield share
        free.take(affinity, _taken(pool, share))


def _racks_share(pool: Pool, free: FreeMachines) -> Share:
    """What the NodePool could have in whole racks, which are taken from those that are free."""
    affinity, size = pool.spec.affinity, pool.rack_size
    fitting = free.by_domain(affinity)
    without = fitting if affinity is None else free.by_domain(None)
    most = sum(part.machines for part in deliveries(size, pool.allowed, pool.domains, without))
    keys = take_racks(free, affinity, size, pool.allowed, pool.domains)
    return Share(pool.key, _reason(pool, len(keys), most), len(keys), fitting)


def _taken(pool: Pool, share: Share) -> int:
    return min(share.available, pool.shortfall)


def _share(pool: Pool, fitting: int, free: int) -> Share:
    """What the NodePool could have of the `free` machines, of which `fitting` fit its affinity."""
    available = min(fitting, pool.shortfall)
    reason = _reason(pool, available, min(free, pool.shortfall))
    return Share(pool.key, reason, fitting if reason is Capacity.SUFFICIENT else available)


def _reason(pool: Pool, available: int, most: int) -> Capacity:
    """The reason of the verdict, where so many can be had, and at most so many without affinity."""
    if available >= pool.shortfall:
        return Capacity.SUFFICIENT
    # The affinity is the reason where there would be more without it.
    affinity = most > available
    if available:
        return Capacity.PARTIAL_NODE_AFFINITY if affinity else Capacity.PARTIAL
    return Capacity.NONE_AVAILABLE_NODE_AFFINITY if affinity else Capacity.NONE_AVAILABLE
