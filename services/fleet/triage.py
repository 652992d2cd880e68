"""The machines in triage: each is repaired after a while, or goes back to its vendor."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from fleet.boot import powered_off
from fleet.machine import Machine
from fleet.wipes import free_or_wipe
from nodepool.contract import events as on
from nodepool.contract.keys import MachineKey, machine_parts
from nodepool.contract.node_states import MachineState
from nodepool.state.values import replace

VISITS_MAX = 3
"""The number of visits to triage after which a machine is returned to its vendor."""


def end_stay(
    machine: Machine, event: on.CWNodeDeleted | on.CWNodeRegistrationFailed, now: datetime
) -> Machine:
    """Return the machine after a stay: free, or wiped, or in triage, where it may be debugged."""
    machine = powered_off(machine)
    if isinstance(event, on.CWNodeDeleted) and not event.triage:
        return free_or_wipe(machine, now) if machine.unwiped else machine
    moment = now + timedelta(seconds=machine.repair_s / 2) if machine.repair_s else None
    visits = machine.visits + 1
    return replace(machine, state=MachineState.TRIAGE, visits=visits, moves_at=moment)


def move_machine(machine: Machine, state: MachineState, now: datetime) -> Machine:
    """Return the machine in another state; debugging takes the second half of the repair time.

    So does the repair of a machine whose wipe has failed.
    """
    is_mended = state in (MachineState.DEBUG, MachineState.ZAP_FAIL) and machine.repair_s > 0
    moment = now + timedelta(seconds=machine.repair_s / 2) if is_mended else None
    return replace(machine, state=state, moves_at=moment, wiped_at=None)


def repair_machine(machine: Machine, now: datetime) -> Machine:
    """Return the machine, free again or wiped first; one back from its vendor has no visits."""
    visits = 0 if machine.state is MachineState.RMA else machine.visits
    return free_or_wipe(replace(machine, visits=visits, moves_at=None), now)


def move(
    key: MachineKey, machine: Machine
) -> Iterator[on.MachineStateChanged | on.MachineRepaired]:
    """Yield the next step of a machine in triage: debugged, repaired or returned to its vendor."""
    zone, name = machine_parts(key)
    if machine.state in (MachineState.DEBUG, MachineState.ZAP_FAIL):
        yield on.MachineRepaired(zone=zone, machine=name)
        return
    is_hopeless = machine.visits >= VISITS_MAX
    state = MachineState.RMA if is_hopeless else MachineState.DEBUG
    yield on.MachineStateChanged(zone=zone, machine=name, state=state)
