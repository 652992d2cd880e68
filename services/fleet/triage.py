"""The machines in triage: each is repaired after a while, or goes back to its vendor."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from fleet.boot import powered_off
from fleet.machine import Machine
from nodepool.contract import events as on
from nodepool.contract.keys import MachineKey, machine_parts
from nodepool.contract.node_states import MachineState
from nodepool.state.values import replace

VISITS_MAX = 3
"""The number of visits to triage after which a machine is returned to its vendor."""


def end_stay(
    machine: Machine, event: on.CWNodeDeleted | on.CWNodeRegistrationFailed, now: datetime
) -> Machine:
    """Return the machine after a stay: free, or in triage, where its investigation may begin."""
    machine = powered_off(machine)
    if isinstance(event, on.CWNodeDeleted) and not event.triage:
        return machine
    moment = now + timedelta(seconds=machine.repair_s / 2) if machine.repair_s else None
    visits = machine.visits + 1
    return replace(machine, state=MachineState.TRIAGE, visits=visits, moves_at=moment)


def move_machine(machine: Machine, state: MachineState, now: datetime) -> Machine:
    """Return the machine in another state; debugging takes the second half of the repair time."""
    is_debugged = state is MachineState.DEBUG
    moment = now + timedelta(seconds=machine.repair_s / 2) if is_debugged else None
    return replace(machine, state=state, moves_at=moment)


def repair_machine(machine: Machine) -> Machine:
    """Return the machine, free again; a machine back from its vendor has no visits to triage."""
    visits = 0 if machine.state is MachineState.RMA else machine.visits
    return replace(machine, state=MachineState.PRODUCTION, visits=visits, moves_at=None)


def move(
    key: MachineKey, machine: Machine
) -> Iterator[on.MachineStateChanged | on.MachineRepaired]:
    """Yield the next step of a machine in triage: debugged, repaired or returned to its vendor."""
    zone, name = machine_parts(key)
    if machine.state is MachineState.DEBUG:
        yield on.MachineRepaired(zone=zone, machine=name)
        return
    is_hopeless = machine.visits >= VISITS_MAX
    state = MachineState.RMA if is_hopeless else MachineState.DEBUG
    yield on.MachineStateChanged(zone=zone, machine=name, state=state)
