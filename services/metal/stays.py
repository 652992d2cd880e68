"""A machine after what services say about its Node."""

from datetime import datetime, timedelta
from typing import assert_never

from metal.machine import BOOT_MAX, SILENT_AFTER, WIPE_MINUTES, Machine, Marks, Stay
from metal.power import restart_tries
from nodepool.contract import events as on
from nodepool.contract.model import NodeAction, NodePhase
from nodepool.contract.node_states import MachineState
from nodepool.state.values import replace

OfStay = (
    on.CWNodeRegistered
    | on.CWNodeRegistrationFailed
    | on.NodeUpdated
    | on.CWDrainNode
    | on.NodeReportRequested
    | on.CWNodeDeleted
)
"""What services say about the current stay of a machine."""


def begin_stay(machine: Machine, event: on.CWNodeAssigned, now: datetime) -> Machine:
    """Return the machine at the start of a stay, for which it boots anew even if it is on.

    A machine that was not added, and a stay that is not newer than the last one, are ignored.
    """
    if not machine.added_type or event.assignment <= machine.assignment:
        return machine
    stay = Stay(event.assignment, event.key, now + BOOT_MAX, is_unclean=machine.is_unwiped)
    machine = replace(
        machine,
        assignment=event.assignment,
        stay=stay,
        state=MachineState.PRODUCTION,
        is_set_aside=False,
        is_unwiped=machine.wipes or machine.is_unwiped,
        wipe_due=None,
    )
    return restart_tries(machine)


def fold_stay(
    machine: Machine, stay: Stay, event: OfStay, now: datetime, *, has_agent: bool
) -> Machine:
    """Return the machine after a message about its current stay."""
    match event:
        case on.CWNodeRegistered():
            joined = _enter_phase(replace(stay, joined=True), event.phase)
            return note_silence(replace(machine, stay=joined), now, has_agent=has_agent)
        case on.NodeUpdated():
            return _instruct(machine, stay, event, now)
        case on.CWDrainNode():
            return replace(machine, stay=replace(stay, draining=True))
        case on.NodeReportRequested():
            asked = 0 if has_agent else event.request
            return replace(machine, stay=replace(stay, asked=asked))
        case on.CWNodeDeleted() | on.CWNodeRegistrationFailed():
            is_broken = isinstance(event, on.CWNodeRegistrationFailed) or event.triage
            return end_stay(machine, is_broken=is_broken)
        case _:
            assert_never(event)


def end_stay(machine: Machine, *, is_broken: bool) -> Machine:
    """Return the machine after a stay: to be wiped, or off, and free or in triage."""
    machine = replace(machine, stay=None, check=None)
    if not is_broken:
        return free_or_wipe(machine)
    return leave_service(replace(machine, state=MachineState.TRIAGE))


def leave_service(machine: Machine) -> Machine:
    """Return the machine that is out of service from now on: off, unless people work on it.

    After their work it is powered off.
    """
    return restart_tries(replace(machine, wish=machine.wish if machine.is_maintained else "off"))


def free_or_wipe(machine: Machine) -> Machine:
    """Return the machine that nothing holds any more: it awaits its wipe if it needs one."""
    state = MachineState.ZAP if machine.is_unwiped else MachineState.PRODUCTION
    machine = replace(machine, state=state, wish="", is_set_aside=False, wipe_due=None)
    return restart_tries(machine)


def begin_wipe(machine: Machine, now: datetime, wipe: int) -> Machine:
    """Return the machine at the beginning of the wipe with this number."""
    minutes = _wipe_minutes(machine)
    machine = replace(
        machine,
        wipe=wipe,
        wipe_minutes=minutes,
        wipe_due=now + timedelta(minutes=minutes),
        wipe_end=None,
    )
    return restart_tries(machine)


def note_wait(machine: Machine, now: datetime) -> Machine:
    """Return the machine with a deadline if its wipe cannot begin, else without this deadline.

    A machine that waits for its turn has no deadline. If people work on a machine before it was
    booted for its wipe, this wipe has failed at once: operators end the maintenance, and the
    machine is checked and then wiped by itself.
    """
    if machine.is_maintained and machine.runs_for != (0, 0, 0, machine.wipe):
        machine = replace(machine, wipe_due=None)
    is_barred = machine.awaits_wipe and not machine.can_be_wiped
    if is_barred is (machine.wait_due is not None):
        return machine
    due = now + timedelta(minutes=_wipe_minutes(machine)) if is_barred else None
    return replace(machine, wait_due=due)


def _wipe_minutes(machine: Machine) -> int:
    """Return how long a wipe of a machine may take that begins now."""
    declared = machine.declared
    return declared.wipe_minutes if declared is not None else WIPE_MINUTES


def _instruct(machine: Machine, stay: Stay, event: on.NodeUpdated, now: datetime) -> Machine:
    marks = Marks(event.unschedulable, event.cordon, event.lock)
    stay = replace(stay, marks=marks)
    if event.phase is not NodePhase.REBOOTING or event.boot <= stay.boot:
        return _with_phase(machine, stay, event.phase)
    stay = replace(
        stay,
        boot=event.boot,
        forced=event.action is not NodeAction.REBOOT,
        boot_due=now + BOOT_MAX,
        outcome="",
        unknown_at=None,
    )
    return restart_tries(_with_phase(machine, stay, event.phase))


def _with_phase(machine: Machine, stay: Stay, phase: NodePhase) -> Machine:
    after = _enter_phase(stay, phase)
    return replace(
        machine, stay=after, check=machine.check if after.verification == "checked" else None
    )


def _enter_phase(stay: Stay, phase: NodePhase) -> Stay:
    """Return the stay in a phase, which may begin or end a verification."""
    is_verifying = phase is NodePhase.VERIFYING
    if is_verifying is (stay.phase is NodePhase.VERIFYING):
        return replace(stay, phase=phase)
    return replace(stay, phase=phase, verification="wanted" if is_verifying else "")


def note_silence(machine: Machine, now: datetime, *, has_agent: bool) -> Machine:
    """Return the machine whose Node gets Ready=Unknown later if no system runs on it."""
    stay = machine.stay
    if stay is None or not stay.joined or stay.outcome != "booted":
        return machine
    if has_agent or machine.is_running or machine.seen is None:
        return replace(machine, stay=replace(stay, unknown_at=None))
    if stay.unknown_at is not None:
        return machine
    return replace(machine, stay=replace(stay, unknown_at=now + SILENT_AFTER))


def hand_over(machine: Machine, stay: Stay) -> Machine:
    """Return the machine of a Node which an agent reports from now on."""
    conditions = stay.conditions
    rest = conditions.delete("Ready") if "Ready" in conditions else conditions
    return replace(
        machine,
        stay=replace(stay, asked=0, draining=False, unknown_at=None, conditions=rest),
    )
