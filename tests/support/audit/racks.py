"""Rules for types that come in racks: no rack is shared, and none that leaves gets a Node."""

from nodepool.contract.events import CWNodeAssigned
from nodepool.contract.messages import Message
from support.audit.facts import NOBODY, TRIAGE, Facts, Machine, Origin, Stay, Violation
from support.reference.racks import DOMAIN, size_of


def check(facts: Facts, message: Message, _origin: Origin) -> None:
    """Checks an assignment, which has been noted already."""
    if not isinstance(message, CWNodeAssigned):
        return
    machine = facts.machines[message.machine_key]
    size, domain = size_of(machine.instance_type), machine.labels.get(DOMAIN, "")
    if not size or not domain:
        return
    rack = _rack(facts, machine)
    others = {each.holder for each in rack} - {*NOBODY, message.uid}
    if len(rack) > size:
        return
    if others:
        raise Violation(f"{message.key} is given {message.node} of a rack that {others} hold")
    own = [facts.stays[each.assignment] for each in rack if each.holder == message.uid]
    leaving = [each.machine for each in own if _leaves(each)]
    if leaving:
        raise Violation(f"{message.key} is given {message.node} of a rack that {leaving} leave")


def _leaves(stay: Stay) -> bool:
    """Whether a Node leaves that its NodePool holds; what the allocator may not know yet aside."""
    is_chosen = not stay.removals.is_empty and stay.removals.last
    return is_chosen and not stay.was_kept and not stay.is_lent


def _is_in(machine: Machine, other: Machine) -> bool:
    return machine.offering == other.offering and machine.labels.get(
        DOMAIN, ""
    ) == other.labels.get(DOMAIN, "")


def racks_of(facts: Facts) -> dict[tuple[str, str], list[str]]:
    """The Nodes of each NodePool in each rack that has no more machines than it needs."""
    racks: dict[tuple[str, str], list[str]] = {}
    for key, machine in facts.machines.items():
        domain, is_held = (
            machine.labels.get(DOMAIN, ""),
            machine.holder not in NOBODY,
        )
        if not is_held or not domain or not size_of(machine.instance_type):
            continue
        if len(_rack(facts, machine)) <= size_of(machine.instance_type):
            racks.setdefault((machine.holder, domain), []).append(key)
    return racks


def missing_in(facts: Facts, key: str) -> tuple[int, int]:
    """How many machines of the rack of a Node are no Nodes, and how many of those were lost.

    A machine that a scale-down gave back, and whose wipe failed then, is missing but was not lost.
    """
    machine = facts.machines[key]
    rack = _rack(facts, machine)
    held = sum(each.holder == machine.holder for each in rack)
    lost = sum(each.holder == TRIAGE and each.was_lost for each in rack)
    return size_of(machine.instance_type) - held, lost


def _rack(facts: Facts, machine: Machine) -> list[Machine]:
    return [each for each in facts.machines.values() if _is_in(each, machine)]
