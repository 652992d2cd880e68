"""A machine after what its driver has observed, and after what was decided and reported of it."""

from datetime import datetime, timedelta
from typing import assert_never

from immutables import Map

from metal.machine import READY, Check, Machine, Marks, Request, Seen, Wish
from metal.power import end_request, forgets_at, note_power, restart_tries
from metal.stays import begin_wipe, free_or_wipe, leave_service, note_silence
from nodepool.contract import events as on
from nodepool.contract.events import (
    ControllerReported,
    ControllerSilent,
    MachineCheckRequested,
    MachineConditionChanged,
    MachineMaintenanceChanged,
    MachinePowerWished,
    MachineUndeclared,
    PowerAnswered,
    PowerOverdue,
    PowerRequested,
    WipeEnded,
)
from nodepool.contract.health import is_problem
from nodepool.contract.node_states import MachineState
from nodepool.state.values import replace

Seeing = MachineUndeclared | ControllerReported | ControllerSilent | PowerAnswered | WipeEnded
"""What the driver has observed of a machine that is known."""
Decisions = (
    PowerRequested
    | PowerOverdue
    | MachineCheckRequested
    | MachinePowerWished
    | MachineMaintenanceChanged
    | MachineConditionChanged
)
Report = (
    on.MachineBooted
    | on.MachineFailed
    | on.NodeVerified
    | on.NodeConditionChanged
    | on.NodeObserved
)
"""What was reported of a stay."""


def observe(machine: Machine, event: Seeing, now: datetime, *, has_agent: bool) -> Machine:
    """Return a machine after what the driver has observed of it.

    A reading of another declaration than the current one says nothing of the machine.
    """
    request = machine.request
    match event:
        case MachineUndeclared():
            machine = replace(machine, declared=None, seen=None, silence="", check=None)
            return replace(machine, wish=_end_wish(machine))
        case ControllerSilent():
            return machine if machine.declared is None else replace(machine, silence=event.cause)
        case PowerAnswered():
            if request is None or request.number != event.number:
                return machine
            if event.outcome != "refused":
                return replace(machine, request=replace(request, is_answered=True))
            fault = event.cause or "its controller refused the request"
            # What powers the machine on from now on is not this request.
            return replace(end_request(machine, now, fault), runs_for=None)
        case WipeEnded():
            is_it = machine.wipe_due is not None and event.wipe == machine.wipe
            is_it = is_it and machine.runs_for == (0, 0, 0, event.wipe) and not machine.change
            end = "" if event.passed else event.cause or "no cause is known"
            return replace(machine, wipe_end=end) if is_it else machine
        case ControllerReported():
            declared = machine.declared
            if declared is None or declared.digest != event.digest:
                return machine
            machine = note_power(replace(machine, seen=_seen(event), silence=""))
            return _end_check(note_silence(machine, now, has_agent=has_agent))
        case _:
            assert_never(event)


def _seen(event: ControllerReported) -> Seen:
    return Seen(
        event.settled,
        event.check,
        event.power,
        event.runs,
        event.stranger,
        event.unfit,
        Map(event.faults),
    )


def _end_check(machine: Machine) -> Machine:
    """Return the machine after a reading; a check for which nothing is to be said is over.

    A machine out of service with which something is wrong stays there.
    """
    check, seen = machine.check, machine.seen
    if check is None or seen is None or not machine.is_checked:
        return machine
    is_wrong = bool(seen.stranger or seen.unfit)
    is_over = check.purpose == "look" or (check.purpose == "return" and is_wrong)
    return replace(machine, check=None) if is_over else machine


def fold_decision(machine: Machine, event: Decisions, now: datetime) -> Machine:
    """Return a machine after what was decided about it."""
    match event:
        case PowerRequested():
            return _requested(machine, event, now)
        case PowerOverdue():
            return end_request(machine, now, "no effect was observed in time")
        case MachineCheckRequested():
            due = now + timedelta(seconds=event.within_s)
            check = Check(event.number, event.purpose, due)
            stay = machine.stay
            if stay is not None and event.purpose == "verify":
                stay = replace(stay, verification="checked")
            return replace(machine, check=check, checks=event.number, stay=stay)
        case MachinePowerWished():
            return restart_tries(replace(machine, wish=event.power, wishes=event.wish))
        case MachineMaintenanceChanged(maintenance=is_maintained, reason=reason):
            # A check from before the work says nothing of what people have done.
            is_old = machine.check is not None and machine.check.purpose == "return"
            machine = replace(
                machine,
                is_maintained=is_maintained,
                reason=reason,
                check=None if is_old else machine.check,
            )
            return restart_tries(replace(machine, wish=_end_wish(machine)))
        case MachineConditionChanged(type=type_):
            rest = machine.conditions
            if event.status:
                return replace(machine, conditions=rest.set(type_, event.message))
            return replace(machine, conditions=rest.delete(type_))
        case _:
            assert_never(event)


def _end_wish(machine: Machine) -> Wish:
    """Return the wish if no operator wishes anything: off for a machine that is out of service."""
    is_left_alone = machine.is_maintained or machine.state is MachineState.PRODUCTION
    return "" if is_left_alone else "off"


def _requested(machine: Machine, event: PowerRequested, now: datetime) -> Machine:
    """Return the machine with a request under way; earlier tries count for an hour.

    An earlier release gave no turns: in its log, a request for a wipe also begins the wipe.
    """
    if event.wipe > machine.wipe:
        machine = begin_wipe(machine, now, event.wipe)
    forgotten = forgets_at(machine)
    if forgotten is not None and forgotten <= now:
        machine = restart_tries(machine)
    is_on = event.action == "on"
    due = now + timedelta(seconds=event.within_s)
    return replace(
        machine,
        number=event.number,
        request=Request(event.number, event.action, due),
        runs_for=(event.assignment, event.boot, event.wish, event.wipe) if is_on else None,
        ons=machine.ons + is_on,
        offs=machine.offs + (not is_on),
        tried_at=now,
        retry_at=None,
    )


Move = on.MachineAdded | on.MachineRepaired | on.MachineStateChanged | on.MachineWiped
"""What was reported of the place of a machine."""


def move_machine(machine: Machine, event: Move) -> Machine:
    """Return a machine in its new place; back in service, it has all tries of a request again."""
    match event:
        case on.MachineAdded():
            return free_or_wipe(_add(machine, event))
        case on.MachineRepaired():
            return free_or_wipe(replace(machine, check=None))
        case on.MachineWiped():
            return free_or_wipe(replace(machine, is_unwiped=False))
        case on.MachineStateChanged():
            was_free = machine.state is MachineState.PRODUCTION
            after = replace(
                machine,
                state=event.state,
                is_set_aside=machine.is_set_aside or was_free or machine.awaits_wipe,
                wipe_due=None,
            )
            return leave_service(after) if event.state is MachineState.ZAP_FAIL else after
        case _:
            assert_never(event)


def _add(machine: Machine, event: on.MachineAdded) -> Machine:
    declared = machine.declared
    return replace(
        machine,
        added_type=event.instance_type,
        added_serial=declared.serial if declared is not None else "",
        wipes=event.wipes,
        is_unwiped=event.unwiped,
    )


def fold_report(machine: Machine, event: Report) -> Machine:
    """Return a machine after what was reported of its stay."""
    stay = machine.stay
    if stay is None:
        return machine
    match event:
        case on.MachineBooted():
            return restart_tries(replace(machine, stay=replace(stay, outcome="booted")))
        case on.MachineFailed():
            return replace(machine, stay=replace(stay, outcome="failed"))
        case on.NodeVerified():
            return replace(machine, check=None, stay=replace(stay, verification=""))
        case on.NodeObserved():
            seen = Marks(event.unschedulable, event.cordon, event.lock)
            return replace(machine, stay=replace(stay, observed=seen, draining=False))
        case on.NodeConditionChanged():
            asked = 0 if event.request == stay.asked else stay.asked
            conditions = stay.conditions
            if is_problem(event.type, event.status):
                conditions = conditions.set(event.type, True)
            elif event.type in conditions:
                conditions = conditions.delete(event.type)
            unknown_at = None if event.type == READY else stay.unknown_at
            stay = replace(stay, asked=asked, conditions=conditions, unknown_at=unknown_at)
            return replace(machine, stay=stay)
        case _:
            assert_never(event)
