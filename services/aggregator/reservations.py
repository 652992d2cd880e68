"""The read model after a Node was reserved for the control plane, or for its organisation again."""

from dataclasses import replace

from aggregator.known import State
from nodepool.contract.events import NodeReservationChanged
from nodepool.service import Context


def reservation_changed(state: State, event: NodeReservationChanged, context: Context) -> State:
    """Return the state in which a Node counts against no limit, or counts again."""
    key = event.node_key
    node, pool = state.nodes.get(key), state.pools.get(event.key)
    if node is None or node.assignment != event.assignment or node.usable is event.usable:
        return state
    state = replace(state, nodes=state.nodes.set(key, replace(node, usable=event.usable)))
    if pool is None:
        return state
    away = pool.away + (-1 if event.usable else 1)
    after = replace(pool, away=away, version=context.position)
    return replace(
        state,
        pools=state.pools.set(pool.key, after),
        pool_figures=state.pool_figures.changed(pool, after, context),
    )
