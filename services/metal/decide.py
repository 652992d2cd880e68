"""The events of the metal service: what is missing for a machine, and the outcomes of commands.

Everything but the outcomes follows from the state alone, as in a controller of Kubernetes: each
message only leads to another look at its machine.
"""

from collections.abc import Generator, Iterable, Iterator
from datetime import datetime
from typing import Final

from metal import Decides, Hears, Says
from metal.commands import carry_out
from metal.machine import Machine, Stay
from metal.nodes import answer, report_faults, report_ready, verify
from metal.power import request_power
from metal.reports import (
    build_booted,
    build_failed,
    find_boot_failure,
    has_booted,
    report_place,
    report_problems,
)
from metal.state import State, evolve
from nodepool.contract import events as on
from nodepool.contract.events import MachineUpdateFailed, PowerOverdue
from nodepool.contract.keys import MachineKey, machine_parts
from nodepool.contract.outcomes import CommandOutcome
from nodepool.contract.real_machines import PROVIDER
from nodepool.service import Context, Failure, Reconciler, Service, decide_on

EVENTS_MAX: Final = 64
"""More events than a machine ever has to say at once."""


def decide(
    state: State, message: Decides, _context: Context
) -> Generator[Says | CommandOutcome, State, None]:
    """Yield the outcome of a command, and its event."""
    yield from carry_out(state, message)


def reconcile(state: State, key: MachineKey, context: Context) -> Generator[Says, State, None]:
    """Yield the events that are missing for a machine, each from the state after the last one."""
    for _ in range(EVENTS_MAX):
        machine = state.machines.get(key)
        event = None if machine is None else _find_next(state, key, machine, context.time)
        if event is None:
            return
        state = yield event


def _find_next(state: State, key: MachineKey, machine: Machine, now: datetime) -> Says | None:
    return next(_missing(state, key, machine, now), None)


def _missing(state: State, key: MachineKey, machine: Machine, now: datetime) -> Iterator[Says]:
    """Yield what is missing for a machine; only the first of these events is certain."""
    yield from report_problems(key, machine, now)
    request, stay = machine.request, machine.stay
    if request is not None and request.due <= now:
        zone, name = machine_parts(key)
        yield PowerOverdue(zone=zone, machine=name, number=request.number)
    yield from report_place(key, machine, now)
    if stay is not None:
        yield from _missing_in_stay(key, machine, stay, now, has_agent=state.has_agent(stay))
    if (event := request_power(key, machine, now)) is not None:
        yield event


def _missing_in_stay(
    key: MachineKey, machine: Machine, stay: Stay, now: datetime, *, has_agent: bool
) -> Iterator[Says]:
    """Yield what is missing for a machine in a NodePool.

    A Node is Ready before its boot counts as over, because its kubelet reports the boot. Other
    problems that a reboot cures end after it, as a node problem detector reports them.
    """
    is_over = has_booted(machine, stay)
    cause = "" if is_over else find_boot_failure(machine, stay, now)
    if cause:
        yield build_failed(key, stay, cause)
    is_up = stay.joined and (is_over or stay.outcome == "booted")
    if is_up and not has_agent:
        yield from report_ready(key, machine, stay, now)
    if is_over:
        yield build_booted(key, stay)
    if stay.joined:
        yield from answer(key, stay)
    if is_up:
        yield from report_faults(key, machine, stay)
        yield from verify(key, machine, stay, now)


def concerns(_state: State, message: Hears) -> MachineKey | None:
    """Return the machine that a message is about, to look at it in the same step."""
    return None if isinstance(message, on.ClusterRegistered) else message.machine_key


def on_failure(state: State, failure: Failure) -> Iterable[Says]:
    """Yield that a machine could not be updated and is tried again."""
    key = MachineKey(failure.key)
    if key in state.machines:
        zone, name = machine_parts(key)
        text = f"internal error in the provider of real machines: {failure.cause}"
        yield MachineUpdateFailed(zone=zone, machine=name, message=text)


SERVICE: Service[State, Hears, Says] = Service(
    name=PROVIDER,
    hears=Hears,
    says=Says,
    initial=State(),
    evolve=evolve,
    decide=decide_on(Decides, decide),
    reconciler=Reconciler(reconcile, concerns),
    on_failure=on_failure,
)
