"""What a machine has to report by itself: its problems, its place, and its boots."""

from collections.abc import Iterator, Mapping
from datetime import datetime

from metal.machine import BOOT_MAX, Declared, Machine, Stay
from metal.nodes import request_check
from metal.power import find_stuck
from nodepool.contract import events as on
from nodepool.contract.affinity import TOPOLOGY_KEYS
from nodepool.contract.catalog import is_offered
from nodepool.contract.events import MachineCheckRequested, MachineConditionChanged
from nodepool.contract.grammar import TEXT_LIMIT
from nodepool.contract.keys import MachineKey, machine_parts
from nodepool.contract.node_failures import NodeFailure
from nodepool.contract.node_states import MachineState
from nodepool.contract.real_machines import MachineCondition

Place = (
    on.MachineAdded
    | on.MachineStateChanged
    | on.MachineRepaired
    | on.MachineWiped
    | MachineCheckRequested
)
"""What is said of the place of a machine, or asked before it may be back in service."""


def find_problems(machine: Machine, now: datetime) -> Mapping[MachineCondition, str]:
    """Return what is wrong with a machine, by the type of the condition that says it."""
    declared, seen = machine.declared, machine.seen
    if declared is None:
        return {}
    unfit = "; ".join(seen.unfit) if seen is not None else ""
    sentences: tuple[tuple[MachineCondition, str], ...] = (
        ("ControllerSilent", machine.silence),
        ("OtherMachine", seen.stranger if seen is not None else ""),
        ("OtherType", _find_change(machine, declared) or _late_wipes(machine, declared)),
        ("Unfit", unfit),
        ("PowerStuck", find_stuck(machine, now)),
    )
    return {type_: text[:TEXT_LIMIT] for type_, text in sentences if text}


def _find_change(machine: Machine, declared: Declared) -> str:
    """Return why this is not the machine that was added; empty if it is, or none was added.

    A machine with another serial number was not wiped when the first one was.
    """
    if not machine.added_type:
        return ""
    before, after = machine.added_serial, declared.serial
    if declared.instance_type != machine.added_type:
        change = f"as {declared.instance_type}, and it was added as {machine.added_type}"
    elif before and before.casefold() != after.casefold():
        change = f"with the serial number {after}, and it was added with {before}"
    else:
        return ""
    return f"the inventory declares it {change}: give it another name"


def _late_wipes(machine: Machine, declared: Declared) -> str:
    """Return why a machine that was added without wipes must not serve, if it now needs wipes.

    Services know only whether wipes were declared when the machine was added.
    """
    if not machine.added_type or machine.wipes or not declared.wipes:
        return ""
    return (
        "the inventory says that it is wiped after each stay, and it was added as one that is not:"
        " give it another name, and it is wiped before its first stay"
    )


def report_problems(
    key: MachineKey, machine: Machine, now: datetime
) -> Iterator[MachineConditionChanged]:
    """Yield each condition of a machine that began, ended or says something else."""
    zone, name = machine_parts(key)
    problems = find_problems(machine, now)
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

    A new machine that needs wipes is added unwiped: whatever was on it before, under any name, is
    wiped before its first stay.
    Out of service, a machine that people work on is debugged, and one that the inventory does not
    have any more is back at its vendor. A machine is repaired if a check has found nothing wrong;
    the check is requested once nothing is known to be wrong with a machine that was free before.
    """
    zone, name = machine_parts(key)
    declared = machine.declared
    if not machine.added_type:
        if declared is not None and _has_place(declared, zone) and _is_fit(machine):
            yield on.MachineAdded(
                zone=zone,
                machine=name,
                instance_type=declared.instance_type,
                labels=declared.labels,
                wipes=declared.wipes,
                unwiped=declared.wipes,
            )
        return
    if machine.wipe_due is not None:
        yield from _report_wipe(key, machine, machine.wipe_due, now)
    elif machine.is_free and (cause := _find_outage(machine, now)):
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
    elif machine.state is not MachineState.PRODUCTION and _may_return(machine):
        yield on.MachineRepaired(zone=zone, machine=name)
    elif machine.is_set_aside and machine.check is None and not _find_outage(machine, now):
        yield request_check(key, machine, "return")


def _find_outage(machine: Machine, now: datetime) -> str:
    """Return why a machine that no NodePool has must not get to one; empty if it may."""
    if machine.is_maintained:
        return _maintenance(machine)
    if machine.declared is None:
        return "the inventory does not have it any more"
    return next(iter(find_problems(machine, now).values()), "")


def _maintenance(machine: Machine) -> str:
    return f"it is in maintenance: {machine.reason or 'no reason was given'}"


def _report_wipe(
    key: MachineKey, machine: Machine, due: datetime, now: datetime
) -> Iterator[on.MachineWiped | on.MachineStateChanged]:
    """Yield the end of a wipe: the machine is wiped, or its wipe has failed and why."""
    zone, name = machine_parts(key)
    if machine.wipe_end == "":
        yield on.MachineWiped(zone=zone, machine=name, assignment=machine.assignment)
        return
    cause = machine.wipe_end or find_stuck(machine, now)
    if due <= now:
        why = machine.silence or machine.fault
        late = f"it has not ended in {machine.wipe_minutes} minutes"
        cause = cause or f"{late}{f'; {why}' if why else ''}"
    if cause:
        yield on.MachineStateChanged(
            zone=zone,
            machine=name,
            state=MachineState.ZAP_FAIL,
            cause=f"its wipe has failed: {cause}",
        )


def _may_return(machine: Machine) -> bool:
    """Return whether a check that was to bring a machine back has found nothing wrong."""
    check = machine.check
    is_asked = check is not None and check.purpose == "return"
    return is_asked and machine.is_checked and _is_fit(machine)


def _is_fit(machine: Machine) -> bool:
    """Return whether a machine may be in production, as it is declared and as it was seen."""
    declared, seen = machine.declared, machine.seen
    if declared is None or seen is None or not machine.is_known:
        return False
    is_sound = not seen.unfit and not machine.is_maintained
    return is_sound and not (_find_change(machine, declared) or _late_wipes(machine, declared))


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
        return "the inventory does not have it any more"
    if stay.run == machine.runs_for:
        return find_stuck(machine, now)
    return _find_obstacle(machine, machine.declared, stay) or find_stuck(machine, now)


def _find_obstacle(machine: Machine, declared: Declared, stay: Stay) -> str:
    """Return why a machine must not be booted; empty if it may be.

    What is wrong with a machine that runs may end with its reboot.
    """
    if stay.is_unclean:
        return "it was not wiped before this stay"
    if machine.is_maintained:
        return _maintenance(machine)
    seen = machine.seen
    if seen is not None and seen.stranger:
        return seen.stranger
    if seen is not None and seen.unfit and not stay.boot:
        return "; ".join(seen.unfit)[:TEXT_LIMIT]
    late = "" if stay.boot else _late_wipes(machine, declared)
    return _find_change(machine, declared) or late


def has_booted(machine: Machine, stay: Stay) -> bool:
    """Return whether the last requested boot is over: a system runs, and it is from this boot."""
    is_settled = machine.request is None and machine.is_settled
    is_it = machine.runs_for == stay.run and is_settled
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
