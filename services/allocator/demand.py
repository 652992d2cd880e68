"""Derives which NodePools wait, and whether an offering is work, from the NodePools."""

from dataclasses import replace
from typing import TYPE_CHECKING

from allocator.pool import Pool, Stage
from allocator.supply import Supply, put
from nodepool.contract.keys import OfferingKey
from nodepool.placement.ranking import Ranking

if TYPE_CHECKING:
    from allocator.state import State


def supplied(state: "State", offering: OfferingKey, supply: Supply) -> "State":
    """Return the state with another supply of an offering."""
    return replace(state, supplies=put(state.supplies, offering, supply))


def stored(state: "State", pool: Pool) -> "State":
    """Return the state with this NodePool, in its place among those that wait for machines."""
    is_kept = pool.stage is Stage.ACTIVE and not (pool.has_too_many or pool.is_cancelling)
    if pool.removed == 0 and is_kept:
        pool = replace(pool, removed=None)  # All its Nodes are kept: nothing was removed.
    known = state.pools.get(pool.key)
    if known is None and pool.is_spot:
        state = supplied(state, pool.offering, state.supply(pool.offering).with_pool(pool.key))
    before = known.waiting if known is not None else None
    after = pool.waiting
    if known is not None and (known.surplus > 0) is not (pool.surplus > 0):
        supply = state.supply(pool.offering)
        shrinks = pool.surplus > 0 and pool.members.racks is None
        state = supplied(state, pool.offering, supply.with_shrinking(pool.key, shrinks=shrinks))
    state = replace(state, pools=state.pools.set(pool.key, pool))
    if before == after:
        return state
    offering, waiting = pool.offering, state.waiting
    ranking = waiting.get(offering, Ranking()).moved(before, after)
    waiting = waiting.set(offering, ranking) if len(ranking) else waiting.delete(offering)
    state = replace(state, waiting=waiting)
    # Machines that were kept for it during its check are no longer kept.
    is_free = after is None and known is not None and known.goal is None
    return offered(state, offering) if is_free else state


def offered(state: "State", offering: OfferingKey) -> "State":
    """Return the state in which an offering is work while a machine of it may change hands.

    A free one may go to a NodePool that waits, or be held back; a spot Node may have to give way.
    """
    is_served = offering in state.waiting and state.inventory.count(offering) > 0
    is_work = is_served or (offering in state.supplies and _is_unsupplied(state, offering))
    work = state.work.put(offering) if is_work else state.work.drop(offering)
    return state if work is state.work else replace(state, work=work)


def _is_unsupplied(state: "State", offering: OfferingKey) -> bool:
    """Return whether the number of held-back machines must change, or spot Nodes may give way."""
    supply = state.supply(offering)
    if supply.to_reclaim != state.inventory.reclaimed_count(offering):
        return True
    return bool(supply.spot) and state.waiting.get(offering, Ranking()).has_default
