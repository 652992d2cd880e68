"""How many of the free machines of an offering each NodePool that waits for them could have."""

from collections.abc import Iterator
from typing import NamedTuple

from capacity.state import Pool, State
from nodepool.contract.conditions import Capacity
from nodepool.contract.keys import MachineKey, OfferingKey, PoolKey


class Share(NamedTuple):
    """What a NodePool could have: how many machines, and whether that is enough or why not."""

    key: PoolKey
    reason: Capacity
    available: int


def share_of(state: State, pool: Pool) -> Share:
    """What one NodePool could have, after those that are served before it."""
    offering, free = state.offering(pool.offering), state.inventory.count(pool.offering)
    if not pool.shortfall:
        return Share(pool.key, Capacity.SUFFICIENT, free)
    if free >= offering.demand and not offering.restricted:
        return Share(pool.key, Capacity.SUFFICIENT, free - offering.demand + pool.shortfall)
    none = Share(pool.key, Capacity.NONE_AVAILABLE, 0)
    return next((share for share in shares(state, pool.offering) if share.key == pool.key), none)


def shares(state: State, key: OfferingKey) -> Iterator[Share]:
    """What each NodePool could have whose verdict may have to change.

    Those that wait are served in their order from the free machines. Once none is left, a NodePool
    that was warned of that already is passed over. Those that were short and want no more Nodes
    have enough.
    """
    offering = state.offering(key)
    yield from _with_affinity(state, key) if offering.restricted else _by_count(state, key)
    for pool_key in offering.short:
        pool = state.pools[pool_key]
        if pool.checked and not pool.shortfall:
            yield Share(pool_key, Capacity.SUFFICIENT, 0)


def _by_count(state: State, key: OfferingKey) -> Iterator[Share]:
    free = state.inventory.count(key)
    for pool_key in state.offering(key).waiting:
        pool = state.pools[pool_key]
        if free or not _was_warned_of_none(pool):
            yield Share(pool_key, _reason(pool, free, free), free)
        free = max(0, free - pool.shortfall)


def _with_affinity(state: State, key: OfferingKey) -> Iterator[Share]:
    taken: set[MachineKey] = set()
    free = state.inventory.count(key)
    for pool_key in state.offering(key).waiting:
        pool = state.pools[pool_key]
        if len(taken) == free and _was_warned_of_none(pool):
            continue
        fitting = state.inventory.fitting(key, pool.spec.affinity)
        available = [machine for machine in fitting if machine not in taken]
        reason = _reason(pool, len(available), free - len(taken))
        yield Share(pool_key, reason, len(available))
        taken.update(available[: pool.shortfall])


def _was_warned_of_none(pool: Pool) -> bool:
    return pool.reason is Capacity.NONE_AVAILABLE and pool.warned is Capacity.NONE_AVAILABLE


def _reason(pool: Pool, available: int, free: int) -> Capacity:
    """Whether `available` of the `free` machines, those that fit the affinity, are enough."""
    if available >= pool.shortfall:
        return Capacity.SUFFICIENT
    affinity = pool.spec.affinity is not None and free > available
    if available:
        return Capacity.PARTIAL_NODE_AFFINITY if affinity else Capacity.PARTIAL
    return Capacity.NONE_AVAILABLE_NODE_AFFINITY if affinity else Capacity.NONE_AVAILABLE
