"""The read model after a Node was reserved for the control plane, or for its organisation again."""

from dataclasses import replace

from aggregator import pools
from aggregator.known import State
from nodepool.contract.events import NodeReservationChanged
from nodepool.service import Context


def reservation_changed(state: State, event: NodeReservationChanged, context: Context) -> State:
    """Return the state in which a NodePool counts a Node no more, or counts the Node again."""
    key = event.node_key
    before, pool = state.nodes.get(key), state.pools.get(event.key)
    if before is None or before.assignment != event.assignment or before.usable is event.usable:
        return state
    node = replace(before, usable=event.usable)
    state = replace(
        state,
        nodes=state.nodes.set(key, node),
        node_figures=state.node_figures.with_activity(before, node),
    )
    if pool is None:
        return state
    domain = state.inventory.machines[event.machine_key].domain
    after = pools.node_reserved(pool, context, domain=domain, usable=event.usable)
    return replace(
        state,
        pools=state.pools.set(pool.key, after),
        pool_figures=state.pool_figures.changed(pool, after, context),
    )
