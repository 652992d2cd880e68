"""How a machine boots: when it is done, and what it reports then."""

from dataclasses import replace
from datetime import datetime, timedelta

from immutables import Map

from fleet.machine import Machine
from nodepool.contract.events import MachineBooted, MachineBroken, MachineFailed
from nodepool.contract.keys import MachineKey, machine_parts


def broken(machine: Machine, event: MachineBroken) -> Machine:
    """The machine with a fault; one that is a Node hangs at once, or answers again."""
    times, failing = event.times, machine.failing
    if machine.joined and event.fault == "hang" and times and failing != "hang":
        times, failing = times - 1, "hang"
    elif not times and failing == "hang":
        failing = ""
    return replace(
        machine,
        fault=event.fault,
        fault_times=times,
        fault_cause=event.cause,
        failing=failing,
    )


def powered_on(machine: Machine, assignment: int, now: datetime) -> Machine:
    """The machine at the beginning of a stay; a silent one never ends its boot."""
    failing = machine.fault if machine.fault_times else ""
    done = None if failing == "silence" else now + timedelta(seconds=machine.boot_s)
    return replace(
        powered_off(machine),
        assignment=assignment,
        cordon=0,
        failing=failing,
        fault_times=max(0, machine.fault_times - 1),
        boots_at=done,
    )


def powered_off(machine: Machine) -> Machine:
    """The machine after a stay: no boot under way, in no cluster, without Pods."""
    return replace(
        machine,
        boots_at=None,
        joined=False,
        unschedulable=False,
        lock=0,
        reported=False,
        reported_lock=0,
        evicting=False,
        pods=Map(),
        kills=Map(),
    )


def report(key: MachineKey, machine: Machine) -> MachineBooted | MachineFailed:
    """What a machine reports when its boot is over."""
    zone, name = machine_parts(key)
    if machine.failing in ("", "hang"):
        return MachineBooted(zone=zone, machine=name, assignment=machine.assignment)
    failed = "did not boot" if machine.failing == "boot" else "was turned away at registration"
    cause = f": {machine.fault_cause}" if machine.fault_cause else ""
    return MachineFailed(
        zone=zone,
        machine=name,
        assignment=machine.assignment,
        cause=f"the machine {failed}{cause}",
    )
