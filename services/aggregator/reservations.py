"""The read model after a Node was reserved for the control plane, or for its organisation again."""

from dataclasses import replace
from functools import partial

from aggregator import pools
from aggregator.changes import pool_changed
from aggregator.known import State
from nodepool.contract.events import NodeReservationChanged
from nodepool.service import Context


def reservation_changed(state: State, event: NodeReservationChanged, context: Context) -> State:
    """Return the state in which a NodePool counts a Node no more, or counts the Node again."""
    before = state.nodes.get(event.node_key)
    if before is None or before.assignment != event.assignment or before.usable is event.usable:
        return state
    node = replace(before, usable=event.usable, version=context.position)
    state = replace(
        state,
        nodes=state.nodes.set(event.node_key, node),
        node_figures=state.node_figures.with_activity(before, node),
    )
    domain = state.inventory.machines[event.machine_key].domain
    return pool_changed(state, event, partial(pools.node_reserved, domain=domain), context)
