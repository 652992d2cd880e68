"""What a machine has to report by itself: its problems, its place, and its boots."""

from collections.abc import Iterator
from datetime import datetime

from metal.machine import BOOT_MAX, IN_SERVICE, Declared, Machine, Stay
from metal.nodes import request_check
from metal.power import find_stuck
from metal.problems import UNDECLARED, find_conditions, find_obstacle, find_outage, is_fit
from nodepool.contract import events as on
from nodepool.contract.affinity import TOPOLOGY_KEYS
from nodepool.contract.catalog import is_offered
from nodepool.contract.events import MachineCheckRequested, MachineConditionChanged
from nodepool.contract.grammar import TEXT_LIMIT
from nodepool.contract.keys import MachineKey, machine_parts
from nodepool.contract.node_failures import NodeFailure
from nodepool.contract.node_states import MachineState

Place = (
    on.MachineAdded
    | on.MachineStateChanged
    | on.MachineRepaired
    | on.MachineWiped
    | MachineCheckRequested
)
"""What is said of the place of a machine, or asked before it may be back in service."""


def report_problems(
    key: MachineKey, machine: Machine, now: datetime
) -> Iterator[MachineConditionChanged]:
    """Yield each condition of a machine that began, ended or says something else."""
    zone, name = machine_parts(key)
    problems = find_conditions(machine, now)
    for type_, text in problems.items():
        if machine.conditions.get(type_) != text:
            yield MachineConditionChanged(
                zone=zone, machine=name, type=type_, status=True, message=text
            )
    for ended in machine.conditions:
        if ended not in problems:
            yield MachineConditionChanged(zone=zone, machine=name, type=ended, status=False)


def report_place(key: MachineKey, machine: Machine, now: datetime) -> Iterator[Place]:
    """Yield that a machine is added, or where it is out of service.

    Out of service, a machine that people work on is debugged, and one that the inventory does not
    have any more is back at its vendor. A machine is repaired if a check has found nothing wrong;
    the check is requested once nothing is known to be wrong with a machine that was free before, or
    whose wipe could not begin.
    """
    zone, name = machine_parts(key)
    declared = machine.declared
    if not machine.added_type:
        if declared is not None and _has_place(declared, zone) and is_fit(machine, now):
            yield _build_added(key, machine, declared)
        return
    if machine.wipe_due is not None:
        yield from _report_wipe(key, machine, machine.wipe_due, now)
    elif failure := _find_failed_wait(machine, now):
        yield _build_wipe_failed(key, failure)
    elif machine.is_free and (cause := find_outage(machine, now)):
        yield on.MachineStateChanged(
            zone=zone,
            machine=name,
            state=MachineState.TRIAGE,
            assignment=machine.assignment,
            cause=cause,
        )
    elif machine.state is MachineState.TRIAGE and machine.is_maintained:
        yield on.MachineStateChanged(zone=zone, machine=name, state=MachineState.DEBUG)
    elif machine.state is MachineState.TRIAGE and declared is None:
        yield on.MachineStateChanged(zone=zone, machine=name, state=MachineState.RMA)
    elif machine.state not in IN_SERVICE and _may_return(machine, now):
        yield on.MachineRepaired(zone=zone, machine=name)
    elif machine.is_set_aside and machine.check is None and not find_outage(machine, now):
        yield request_check(key, machine, "return")


def _build_added(key: MachineKey, machine: Machine, declared: Declared) -> on.MachineAdded:
    """Return that a machine is added: unwiped if it needs wipes, or needed them as it was before.

    Whatever was on it before, under any name, is wiped before its first stay.
    """
    zone, name = machine_parts(key)
    return on.MachineAdded(
        zone=zone,
        machine=name,
        instance_type=declared.instance_type,
        labels=declared.labels,
        wipes=declared.wipes,
        unwiped=declared.wipes or machine.is_unwiped,
    )


def _report_wipe(
    key: MachineKey, machine: Machine, due: datetime, now: datetime
) -> Iterator[on.MachineWiped | on.MachineStateChanged]:
    """Yield the end of a wipe: the machine is wiped, or its wipe has failed and why.

    A wipe does not count while its machine may be another one.
    """
    if machine.wipe_end == "" and not machine.is_other:
        zone, name = machine_parts(key)
        yield on.MachineWiped(zone=zone, machine=name, assignment=machine.assignment)
        return
    cause = machine.wipe_end or find_stuck(machine, now)
    if due <= now:
        why = find_outage(machine, now) or machine.fault
        late = f"it has not ended in {machine.wipe_minutes} minutes"
        cause = cause or f"{late}{f'; {why}' if why else ''}"
    if cause:
        yield _build_wipe_failed(key, cause)


def _find_failed_wait(machine: Machine, now: datetime) -> str:
    """Return why a wipe has failed before it began; empty if no wipe has failed.

    A machine on which people work has no time to wait, because they may work for days.
    """
    if machine.awaits_wipe and machine.is_maintained:
        why = find_outage(machine, now)
        return f"it could not begin; after the maintenance the machine is checked and wiped: {why}"
    if machine.wait_due is not None and machine.wait_due <= now:
        why = find_outage(machine, now) or "its controller was not read"
        return f"it could not begin in time; {why}"
    return ""


def _build_wipe_failed(key: MachineKey, cause: str) -> on.MachineStateChanged:
    """Return that a wipe has failed, and why."""
    zone, name = machine_parts(key)
    return on.MachineStateChanged(
        zone=zone,
        machine=name,
        state=MachineState.ZAP_FAIL,
        cause=f"its wipe has failed: {cause}"[:TEXT_LIMIT],
    )


def _may_return(machine: Machine, now: datetime) -> bool:
    """Return whether a check that was to bring a machine back has found nothing wrong."""
    check = machine.check
    is_asked = check is not None and check.purpose == "return"
    return is_asked and machine.is_checked and is_fit(machine, now)


def find_boot_failure(machine: Machine, stay: Stay, now: datetime) -> str:
    """Return why a boot that was requested has failed; empty if it may go on."""
    if stay.outcome:
        return ""
    if stay.boot_due <= now:
        minutes = int(BOOT_MAX.total_seconds()) // 60
        why = f"its controller does not answer: {machine.silence}" if machine.silence else ""
        why = why or machine.fault
        return f"no system ran on it within {minutes} minutes{f'; {why}' if why else ''}"
    if machine.declared is None:
        return UNDECLARED
    if stay.run == machine.runs_for:
        return find_stuck(machine, now)
    return find_obstacle(machine, stay, now) or find_stuck(machine, now)


def has_booted(machine: Machine, stay: Stay) -> bool:
    """Return whether the last requested boot is over: a system runs, and it is from this boot."""
    is_over = machine.request is None and machine.is_current
    is_it = machine.runs_for == stay.run and is_over
    return not stay.outcome and is_it and machine.is_running


def build_booted(key: MachineKey, stay: Stay) -> on.MachineBooted:
    """Return that a machine has booted; its verification is a complete reading."""
    zone, name = machine_parts(key)
    return on.MachineBooted(
        zone=zone, machine=name, assignment=stay.assignment, boot=stay.boot, verifying=True
    )


def build_failed(key: MachineKey, stay: Stay, cause: str) -> on.MachineFailed:
    """Return that a machine has not booted, and why."""
    zone, name = machine_parts(key)
    return on.MachineFailed(
        zone=zone,
        machine=name,
        assignment=stay.assignment,
        boot=stay.boot,
        cause=f"{NodeFailure.BOOT_FAILED.phrase}: {cause}",
    )


def _has_place(declared: Declared, zone: str) -> bool:
    """Return whether its zone offers the type of a declared machine, and its labels are known."""
    return is_offered(declared.instance_type, zone) and not set(declared.labels) - TOPOLOGY_KEYS
