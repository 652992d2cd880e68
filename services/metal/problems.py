"""What is wrong with a machine, what says so, and what it keeps the machine from: one table."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final, Literal, NamedTuple

from metal.machine import Declared, Machine, Stay
from metal.power import find_stuck
from metal.turns import WIPES_MAX
from nodepool.contract.grammar import TEXT_LIMIT
from nodepool.contract.real_machines import MachineCondition

Step = Literal["serve", "boot", "reboot"]
"""What a problem may bar: to be in service, the first boot of a stay, or a later one."""
UNDECLARED: Final = "the inventory does not have it any more"
_ANY: Final[frozenset[Step]] = frozenset({"serve", "boot", "reboot"})
_FIRST: Final[frozenset[Step]] = frozenset({"serve", "boot"})
_SERVICE: Final[frozenset[Step]] = frozenset({"serve"})
_NOTHING: Final[frozenset[Step]] = frozenset()


class Problem(NamedTuple):
    """Something that is wrong with a machine; a free machine with any problem is taken out.

    condition: the type of the condition that says it; empty if there is none.
    text: what is wrong, as one sentence; empty if nothing is.
    bars: the steps that it keeps the machine from.
    """

    condition: MachineCondition | Literal[""]
    text: str
    bars: frozenset[Step]


def list_problems(machine: Machine, now: datetime) -> Iterator[Problem]:
    """Yield what is wrong with a machine, the reason to name first in front.

    A reboot may end what is wrong with a machine that runs, so that less keeps it from that.
    """
    for problem in _table(machine, now):
        if problem.text:
            yield problem


def _table(machine: Machine, now: datetime) -> Iterator[Problem]:
    declared, seen = machine.declared, machine.seen
    yield Problem("", _maintenance(machine), _ANY)
    if declared is None:
        yield Problem("", UNDECLARED, _SERVICE)
        return
    yield Problem("ControllerSilent", machine.silence, _SERVICE)
    yield Problem("OtherMachine", seen.stranger if seen is not None else "", _ANY)
    yield Problem("OtherMachine", machine.rival, _ANY)
    yield Problem("OtherType", machine.change, _ANY)
    yield Problem("OtherType", _late_wipes(machine, declared), _FIRST)
    yield Problem("Unfit", "; ".join(seen.unfit) if seen is not None else "", _FIRST)
    yield Problem("PowerStuck", find_stuck(machine, now), _NOTHING)
    yield Problem("WipeWaits", _wait(machine), _NOTHING)


def find_conditions(machine: Machine, now: datetime) -> Mapping[MachineCondition, str]:
    """Return what the conditions of a machine should say, by type."""
    found: dict[MachineCondition, str] = {}
    for problem in list_problems(machine, now):
        if problem.condition:
            found.setdefault(problem.condition, problem.text[:TEXT_LIMIT])
    return found


def find_outage(machine: Machine, now: datetime) -> str:
    """Return why a machine that no NodePool has must not get to one; empty if it may."""
    return next((each.text[:TEXT_LIMIT] for each in list_problems(machine, now)), "")


def is_fit(machine: Machine, now: datetime) -> bool:
    """Return whether a machine may be in production, as it is declared and as it was seen."""
    return machine.seen is not None and not _find_bar(machine, "serve", now)


def find_obstacle(machine: Machine, stay: Stay, now: datetime) -> str:
    """Return why a machine must not be booted for a stay; empty if it may be."""
    if stay.is_unclean:
        return "it was not wiped before this stay"
    return _find_bar(machine, "reboot" if stay.boot else "boot", now)


def _find_bar(machine: Machine, step: Step, now: datetime) -> str:
    problems = list_problems(machine, now)
    return next((each.text[:TEXT_LIMIT] for each in problems if step in each.bars), "")


def _maintenance(machine: Machine) -> str:
    if not machine.is_maintained:
        return ""
    return f"it is in maintenance: {machine.reason or 'no reason was given'}"


def _wait(machine: Machine) -> str:
    if not (machine.awaits_wipe and machine.can_be_wiped):
        return ""
    return f"it waits for its turn: {WIPES_MAX} machines of a zone are wiped at a time"


def _late_wipes(machine: Machine, declared: Declared) -> str:
    """Return why a machine that was added without wipes must not serve, if it now needs wipes.

    Services know only whether wipes were declared when the machine was added.
    """
    if not machine.added_type or machine.wipes or not declared.wipes:
        return ""
    return (
        "the inventory says that it is wiped after each stay, and it was added as one that is not:"
        " drain it, then give it another name, and it is wiped before its first stay"
    )
