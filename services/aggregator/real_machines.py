"""Folds what the read model shows of real machines alone: power, problems and last entries."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple, assert_never

from immutables import Map

from aggregator import RealMachineSeen
from nodepool.contract import events as on
from nodepool.contract.catalog import INSTANCE_TYPES, provider_of
from nodepool.contract.node_states import MachineState
from nodepool.contract.real_machines import PROVIDER, MachineCondition
from nodepool.service import Context
from nodepool.state.maps import put
from nodepool.state.values import replace

ENTRIES_MAX: Final = 16
"""The most entries about a machine that the read model keeps: the last ones."""
TEXT_MAX: Final = 256
"""The most characters of an entry that the read model keeps."""
_DONE: Final[Mapping[str, str]] = {"done": "accepted", "refused": "refused", "unknown": "unclear"}
ONBOARD: Final = str(MachineState.ONBOARD)
"""The holder of a machine that is declared and was never added."""


class Problem(NamedTuple):
    """A problem of a machine: a sentence that names it, and when it began."""

    message: str
    since: datetime


class Entry(NamedTuple):
    """An event in the life of a machine, as a short text, and its time."""

    time: datetime
    text: str


@dataclass(frozen=True, slots=True)
class RealMachine:
    """A real machine that the inventory has, or that was added.

    zone, name, instance_type, labels: as in the inventory.
    declared: since when the inventory has it; None if it does not.
    version: the position of its last change.
    power: its power state; empty until its controller was read.
    problems: what is wrong with it, by the type of the condition.
    maintained: since when people work on it; None if nobody does. reason: why they do.
    wiped: when it was last wiped; None if it never was.
    entries: what happened to it lately, the oldest first.
    """

    zone: str
    name: str
    instance_type: str
    labels: Mapping[str, str]
    declared: datetime | None
    version: int
    power: str = ""
    problems: Map[MachineCondition, Problem] = Map()
    maintained: datetime | None = None
    reason: str = ""
    wiped: datetime | None = None
    entries: tuple[Entry, ...] = ()


def fold_real_machine(
    before: RealMachine | None, event: RealMachineSeen, context: Context
) -> RealMachine | None:
    """Return a real machine after an event; the same object if nothing that is shown has changed.

    Only a machine of a zone of `metal`, and of a type that exists, is shown.
    """
    if isinstance(event, on.MachineDeclared):
        is_known = provider_of(event.zone) == PROVIDER and event.instance_type in INSTANCE_TYPES
        return _declare(before, event, context) if is_known else before
    if before is None:
        return None
    after = _change(before, event, context.time)
    return before if after == before else replace(after, version=context.position)


def note_move(
    before: RealMachine, event: on.MachineWiped | on.MachineStateChanged, context: Context
) -> RealMachine:
    """Return a real machine after a change of its place that people look for."""
    if isinstance(event, on.MachineWiped):
        after = _note(replace(before, wiped=context.time), context.time, "wiped")
    else:
        cause = f": {event.cause}" if event.cause else ""
        after = _note(before, context.time, f"now {event.state.value}{cause}")
    return replace(after, version=context.position)


def end_of_request(event: RealMachineSeen) -> str:
    """Return how a power request ended, if it ended now; empty if not."""
    match event:
        case on.PowerAnswered(outcome=outcome):
            return outcome
        case on.PowerOverdue():
            return "overdue"
        case _:
            return ""


def _declare(
    before: RealMachine | None, event: on.MachineDeclared, context: Context
) -> RealMachine:
    if before is None:
        before = RealMachine(event.zone, event.machine, "", {}, None, context.position)
    since = before.declared or context.time
    after = replace(
        before,
        instance_type=event.instance_type,
        labels=event.labels,
        declared=since,
        version=context.position,
    )
    return _note(after, context.time, f"declared as {event.instance_type}")


def _change(before: RealMachine, event: RealMachineSeen, now: datetime) -> RealMachine:
    match event:
        case on.MachineDeclared() | on.MachineUndeclared():
            return _note(replace(before, declared=None), now, "taken out of the inventory")
        case on.ControllerReported():
            power = event.power.value
            if power == before.power:
                return before
            return _note(replace(before, power=power), now, f"power {power}")
        case on.PowerRequested():
            return _note(before, now, f"request {event.number}: {event.action}, {event.reason}")
        case on.PowerAnswered():
            cause = f": {event.cause}" if event.cause else ""
            return _note(before, now, f"request {event.number} {_DONE[event.outcome]}{cause}")
        case on.PowerOverdue():
            return _note(before, now, f"request {event.number} had no effect in time")
        case on.MachineMaintenanceChanged(maintenance=is_maintained, reason=reason):
            since = (before.maintained or now) if is_maintained else None
            text = f"into maintenance: {reason}" if is_maintained else "out of maintenance"
            return _note(replace(before, maintained=since, reason=reason), now, text)
        case on.MachineConditionChanged():
            return _note(_fold_problem(before, event, now), now, _tell_problem(event))
        case _:
            assert_never(event)


def _fold_problem(
    before: RealMachine, event: on.MachineConditionChanged, now: datetime
) -> RealMachine:
    if not event.status:
        return replace(before, problems=put(before.problems, event.type, None))
    earlier = before.problems.get(event.type)
    since = earlier.since if earlier is not None else now
    problem = Problem(event.message, since)
    return replace(before, problems=before.problems.set(event.type, problem))


def _tell_problem(event: on.MachineConditionChanged) -> str:
    return f"{event.type}: {event.message}" if event.status else f"{event.type} is over"


def _note(machine: RealMachine, now: datetime, text: str) -> RealMachine:
    entries = (*machine.entries, Entry(now, text[:TEXT_MAX]))[-ENTRIES_MAX:]
    return replace(machine, entries=entries)
