"""The events that report an input, or a key of the work queue, that could not be processed."""

from collections.abc import Iterable

from fleet import Says
from fleet.state import State
from nodepool.contract.events import MachineUpdateFailed, PodUpdateFailed
from nodepool.contract.keys import MachineKey, PoolKey, machine_parts
from nodepool.contract.messages import pool_fields
from nodepool.service import Failure


def on_failure(state: State, failure: Failure) -> Iterable[Says]:
    """Yield that a machine, or the Pods of a NodePool, could not be updated and are tried again."""
    pool = PoolKey(failure.key)
    text = f"internal error in the data centre: {failure.cause}"
    if pool in state.pools:
        yield PodUpdateFailed(**pool_fields(pool), message=text)
        return
    machine = MachineKey(failure.key) if failure.key else _find_unobserved_node(state, failure)
    if machine in state.machines:
        zone, name = machine_parts(machine)
        yield MachineUpdateFailed(zone=zone, machine=name, message=text)


def _find_unobserved_node(state: State, failure: Failure) -> MachineKey:
    """Return the first Node of the input's NodePool that owes a report and has not failed.

    Return an empty key if no Node does.
    """
    pool = state.pools.get(failure.pool) if failure.pool is not None else None
    nodes = ((key, state.machines[key]) for key in sorted(pool.nodes)) if pool is not None else ()
    waiting = (
        key
        for key, machine in nodes
        if machine.asked or (machine.answers and not machine.is_observed)
    )
    return next((key for key in waiting if key not in state.work.failures), MachineKey(""))
