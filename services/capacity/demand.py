"""Derives the demand for an offering from the NodePools that want its machines."""

from dataclasses import replace
from typing import TYPE_CHECKING

from capacity.pool import Pool, with_offering
from nodepool.contract.keys import OfferingKey

if TYPE_CHECKING:
    from capacity.state import State


def stored(state: "State", pool: Pool) -> "State":
    """Return the state with this NodePool, and the demand for its offering in step with it."""
    before = state.pools.get(pool.key)
    offering = state.offering(pool.offering)
    offering = replace(
        offering,
        waiting=offering.waiting.moved(before.waiting if before else None, pool.waiting),
        demand=offering.demand + pool.shortfall - (before.shortfall if before else 0),
        restricted=offering.restricted + pool.restricted - (before.restricted if before else False),
    )
    return replace(
        state,
        pools=state.pools.set(pool.key, pool),
        offerings=with_offering(state.offerings, pool.offering, offering),
    )


def supply_changed(state: "State", key: OfferingKey) -> "State":
    """Return the state with the offering in the work queue, if a verdict may change.

    Machines come and go in large numbers, so verdicts follow once, at the next `Wake` or later.
    """
    offering = state.offering(key)
    if offering.is_quiet:
        return state
    is_enough = state.free(key) >= offering.demand and not offering.restricted
    if is_enough and not len(offering.short):
        return state
    due = offering.renewable_at
    if due is None:
        return replace(state, work=state.work.put(key))
    if key in state.work.deadlines.moments:
        return state
    return replace(state, work=state.work.put_at(key, due))
