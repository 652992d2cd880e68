"""How a machine is wiped after a stay in a NodePool, before it is free again."""

from datetime import datetime, timedelta
from typing import Final, get_args

from fleet.machine import Machine
from nodepool.contract import events as on
from nodepool.contract.commands import WipeFault
from nodepool.contract.keys import MachineKey, machine_parts
from nodepool.contract.node_states import MachineState
from nodepool.state.values import replace

WIPE_FAULTS: Final[tuple[str, ...]] = get_args(WipeFault)
WIPE_MAX_S: Final = 3_600
"""How long a wipe may take, in seconds, until it has failed."""
_CAUSES: Final = {
    "wipe": "its wipe has failed",
    "wipe-hang": "its wipe has not ended in an hour",
}


def free_or_wipe(machine: Machine, now: datetime) -> Machine:
    """Return the machine, which nothing holds any more: wiped if it has to be, or free."""
    if not machine.unwiped:
        return replace(machine, state=MachineState.PRODUCTION)
    has_fault = bool(machine.fault_times) and machine.fault in WIPE_FAULTS
    failing = machine.fault if has_fault else ""
    seconds = WIPE_MAX_S if failing == "wipe-hang" else machine.wipe_s
    return replace(
        machine,
        state=MachineState.ZAP,
        failing=failing,
        fault_times=machine.fault_times - has_fault,
        wiped_at=now + timedelta(seconds=seconds),
    )


def end_wipe(machine: Machine) -> Machine:
    """Return the machine after its wipe, free."""
    return replace(machine, state=MachineState.PRODUCTION, unwiped=False, wiped_at=None)


def report_wipe(key: MachineKey, machine: Machine) -> on.MachineWiped | on.MachineStateChanged:
    """Return the report of a machine at the end of its wipe: that it is wiped, or why it is not."""
    zone, name = machine_parts(key)
    if machine.failing not in _CAUSES:
        return on.MachineWiped(zone=zone, machine=name, assignment=machine.assignment)
    cause = f": {machine.fault_cause}" if machine.fault_cause else ""
    return on.MachineStateChanged(
        zone=zone,
        machine=name,
        state=MachineState.ZAP_FAIL,
        cause=f"{_CAUSES[machine.failing]}{cause}",
    )
