"""Which power state a machine should have, and the one request that brings it closer.

A machine has at most one request under way. Its end is a reading that shows the effect, a refusal,
or a deadline; the next request follows from a reading that began after the end of the last one.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from metal.machine import EFFECT_S, FORGET_AFTER, PAUSES, SHUTDOWN_S, TRIES_MAX, Machine, Run
from nodepool.contract.events import PowerRequested
from nodepool.contract.keys import MachineKey, machine_parts, pool_path
from nodepool.contract.real_machines import BootFrom, Power, PowerAction
from nodepool.state.values import replace

_MOVING: Final = frozenset({Power.POWERING_ON, Power.POWERING_OFF})
"""The power states that a machine leaves by itself."""


@dataclass(frozen=True, slots=True)
class Desired:
    """The power state that a machine should have.

    on: whether it should be on.
    run: why it should have been powered on; None if any reason will do.
    reason: why, as one sentence.
    gentle: whether its system is asked first before its power is cut.
    """

    on: bool
    reason: str
    run: Run | None = None
    gentle: bool = False


def find_desired(machine: Machine) -> Desired | None:
    """Return the power state that a machine should have; None if nothing may touch its power."""
    if not machine.is_known:
        return None
    if not machine.is_in_service:
        return _wished(machine)
    stay = machine.stay
    if machine.wipe_due is not None:
        run = (0, 0, 0, machine.wipe)
        is_new = not machine.assignment
        reason = "new, and is wiped before its first stay" if is_new else "wiped after its stay"
        return Desired(on=True, reason=f"the machine is {reason}", run=run)
    if stay is None:
        why = "it waits to be wiped" if machine.awaits_wipe else "no NodePool has the machine"
        return Desired(on=False, reason=why)
    if stay.outcome == "failed":
        return None
    pool = stay.pool
    if stay.boot:
        reason = f"the Node is rebooted for the {stay.boot}. time in the NodePool {pool}"
    else:
        reason = f"the NodePool {pool} has the machine"
    return Desired(on=True, reason=reason, run=stay.run, gentle=not stay.forced)


def _wished(machine: Machine) -> Desired | None:
    match machine.wish:
        case "on":
            return Desired(on=True, reason="an operator has powered the machine on")
        case "reset":
            run = (0, 0, machine.wishes, 0)
            return Desired(on=True, reason="an operator has reset the machine", run=run)
        case "off":
            return Desired(on=False, reason="the machine is out of service")
        case _:
            return None


def is_reached(machine: Machine, desired: Desired) -> bool:
    """Return whether the last reading shows the desired power state."""
    seen = machine.seen
    if seen is None:
        return False
    if not desired.on:
        return seen.power is Power.OFF
    is_right = desired.run is None or desired.run == machine.runs_for
    return seen.power is Power.ON and is_right


def find_action(machine: Machine, desired: Desired) -> PowerAction | None:
    """Return what has to be requested next; None if nothing has, or a request is under way.

    A machine is powered on only if it is observed off, so a reset is off, then on.
    """
    seen = machine.seen
    if seen is None or machine.request is not None or not machine.is_current:
        return None
    if seen.power in _MOVING or is_reached(machine, desired):
        return None
    if seen.power is Power.OFF:
        return "on"
    is_gentle = desired.gentle and not machine.offs and seen.power is Power.ON
    return "shutdown" if is_gentle else "off"


def is_wanted(machine: Machine, request: PowerRequested) -> bool:
    """Return whether a request that was not sent yet still brings the machine closer."""
    desired = find_desired(machine)
    if desired is None:
        return False
    if request.action != "on":
        return not is_reached(machine, desired)
    run = (request.assignment, request.boot, request.wish, request.wipe)
    return desired.on and run == (desired.run or (0, 0, 0, 0))


def tries_of(machine: Machine, action: PowerAction) -> int:
    """Return how often this was requested for the current end of the machine."""
    return machine.ons if action == "on" else machine.offs


def forgets_at(machine: Machine) -> datetime | None:
    """Return when the tries of a machine no longer count."""
    return None if machine.tried_at is None else machine.tried_at + FORGET_AFTER


def find_stuck(machine: Machine, now: datetime) -> str:
    """Return why no further request is made for now; empty if the machine is not stuck.

    A machine that is out of service for that reason stays stuck until its tries are forgotten.
    """
    desired = find_desired(machine)
    action = find_action(machine, desired) if desired is not None else None
    if machine.is_set_aside:
        action = "off" if machine.offs >= TRIES_MAX else "on"
    forgotten = forgets_at(machine)
    if action is None or forgotten is None or forgotten <= now:
        return ""
    if tries_of(machine, action) < TRIES_MAX:
        return ""
    word = "on" if action == "on" else "off"
    return f"it was powered {word} {TRIES_MAX} times without effect: {machine.fault or 'no cause'}"


def retries_at(machine: Machine, now: datetime) -> datetime | None:
    """Return when the next request is made; None if a reading comes first or no request is due."""
    desired = find_desired(machine)
    action = find_action(machine, desired) if desired is not None else None
    return None if action is None or find_stuck(machine, now) else machine.retry_at


def request_power(key: MachineKey, machine: Machine, now: datetime) -> PowerRequested | None:
    """Return the request that is missing now; None if none is, or if it has to wait."""
    desired = find_desired(machine)
    action = find_action(machine, desired) if desired is not None else None
    if desired is None or action is None or find_stuck(machine, now):
        return None
    if machine.retry_at is not None and machine.retry_at > now:
        return None
    zone, name = machine_parts(key)
    event = PowerRequested(
        zone=zone,
        machine=name,
        number=machine.number + 1,
        action=action,
        within_s=SHUTDOWN_S if action == "shutdown" else EFFECT_S,
        reason=desired.reason,
    )
    return event.model_copy(update=_find_origin(machine, desired, action))


def _find_origin(machine: Machine, desired: Desired, action: PowerAction) -> dict[str, object]:
    """Return the fields of a request that say for what it is."""
    if desired.run is None:
        return {}
    assignment, boot, wish, wipe = desired.run
    fields: dict[str, object] = {
        "assignment": assignment,
        "boot": boot,
        "wish": wish,
        "wipe": wipe,
    }
    if action != "on" or wish:
        return fields
    if wipe or machine.stay is None:
        return fields | {"boot_from": "wipe"}
    org, cluster, _ = pool_path(machine.stay.pool)
    return fields | {"boot_from": "cluster", "org": org, "cluster": cluster}


def find_boot(machine: Machine) -> BootFrom:
    """Return what the last request has booted the machine from; empty once nobody wants it."""
    run, stay = machine.runs_for, machine.stay
    if machine.wipe_due is not None:
        is_wanted = machine.wipe_end is None and run == (0, 0, 0, machine.wipe)
        return "wipe" if is_wanted else ""
    is_wanted = stay is not None and stay.outcome != "failed" and run == stay.run
    return "cluster" if is_wanted else ""


def restart_tries(machine: Machine) -> Machine:
    """Return the machine with another end, for which nothing was tried yet."""
    return replace(machine, ons=0, offs=0, retry_at=None, fault="")


def end_request(machine: Machine, now: datetime, fault: str) -> Machine:
    """Return the machine whose request had no effect."""
    tries = max(machine.ons, machine.offs)
    pause = PAUSES[min(max(tries, 1), len(PAUSES)) - 1]
    return replace(machine, request=None, retry_at=now + pause, fault=fault)


def note_power(machine: Machine) -> Machine:
    """Return the machine after a reading, which may show the effect of its request."""
    request, seen = machine.request, machine.seen
    if request is None or seen is None or not machine.is_current:
        return machine
    wanted = Power.ON if request.action == "on" else Power.OFF
    if seen.power is not wanted:
        return machine
    return replace(machine, request=None, retry_at=None)
