"""Rules for spot: who gives way, how many, and what happens to machines that are held back.

A decision is judged by what the allocator had read when it made it. Where a NodePool that waits has
a node affinity, which Nodes give way to it depends on which of several machines others are given;
then order and number are not compared.
"""

from nodepool.contract.events import (
    CapacityReclaimed,
    CWNodeCordoned,
    CWNodeUncordoned,
    MachineReclaimed,
    MachineReturned,
    NodeActivityChanged,
    NodePreemptionRequested,
)
from nodepool.contract.messages import Message
from nodepool.contract.model import ComputeClass
from support.audit.assignment import claimed
from support.audit.facts import RECLAIMED, Facts, History, Offering, Origin, Stay, Violation


def check(facts: Facts, message: Message, origin: Origin) -> None:
    """Checks and notes an event about Nodes that give way, or machines that are held back."""
    match message:
        case CapacityReclaimed():
            facts.to_reclaim[message.zone, message.instance_type] = message.count
        case MachineReclaimed():
            _reclaimed(facts, message)
        case MachineReturned():
            machine = facts.machines[message.machine_key]
            if machine.holder != RECLAIMED:
                raise Violation(f"{message.machine_key} is returned and was not held back")
            machine.holder = ""
        case NodeActivityChanged(assignment=assignment, active=active):
            facts.activity.setdefault(assignment, History()).add(origin.position, active)
        case CWNodeCordoned(assignment=assignment, triage=triage):
            facts.sick.setdefault(assignment, History()).add(origin.position, triage)
        case CWNodeUncordoned(assignment=assignment):
            facts.sick.setdefault(assignment, History()).add(origin.position, False)
        case NodePreemptionRequested():
            _requested(facts, message, origin)


def _reclaimed(facts: Facts, message: MachineReclaimed) -> None:
    machine = facts.machines[message.machine_key]
    if machine.holder:
        raise Violation(f"{message.machine_key} is reclaimed, which {machine.holder} holds")
    machine.holder = RECLAIMED
    if held_back(facts, machine.offering) > facts.to_reclaim.get(machine.offering, 0):
        raise Violation(f"more machines are reclaimed than were asked for: {message.machine_key}")


def held_back(facts: Facts, offering: Offering) -> int:
    """How many machines of an offering are held back."""
    machines = facts.machines.values()
    return sum(each.holder == RECLAIMED and each.offering == offering for each in machines)


def _requested(facts: Facts, message: NodePreemptionRequested, origin: Origin) -> None:
    stay = facts.stay(message)
    if stay.pool.spec.compute_class is not ComputeClass.SPOT:
        raise Violation(f"{stay.machine} has to give way and is not a spot Node")
    if message.assignment in facts.giving_way:
        raise Violation(f"{stay.machine} has to give way twice")
    if _is_sick(facts, message.assignment, origin.cause):
        raise Violation(f"{stay.machine} has to give way, and goes to triage")
    facts.giving_way[message.assignment] = stay
    offering = stay.pool.offering
    short = [
        (spec, missing)
        for pool in facts.existing_pools()
        if pool.offering == offering
        for spec, missing in claimed(pool, origin.cause)
        if spec.compute_class is ComputeClass.DEFAULT
    ]
    if any(spec.affinity is not None for spec, _ in short):
        return
    needed = sum(missing for _, missing in short)
    needed += max(0, facts.to_reclaim.get(offering, 0) - held_back(facts, offering))
    going = [
        each
        for each in facts.giving_way.values()
        if each.pool.offering == offering and not each.has_left(origin.cause)
    ]
    if len(going) > needed:
        raise Violation(f"{len(going)} spot Nodes have to give way, and {needed} are needed")
    _check_order(facts, stay, origin.cause)


def _check_order(facts: Facts, stay: Stay, cause: int) -> None:
    """Checks that no Node of less worth stays; those that are to leave already are not compared."""
    if stay.is_leaving(cause) or not stay.removals.is_empty:
        return
    worth = _worth(facts, stay, cause)
    for assignment, other in facts.stays.items():
        is_same = other.pool.offering == stay.pool.offering
        is_spot = other.pool.spec.compute_class is ComputeClass.SPOT
        if not is_same or not is_spot or assignment in facts.giving_way:
            continue
        if other.has_left(cause) or other.is_leaving(cause) or not other.removals.is_empty:
            continue
        if other.pool.is_deleting(cause) or _is_sick(facts, assignment, cause):
            continue
        if _worth(facts, other, cause) < worth:
            raise Violation(f"{stay.machine} has to give way before {other.machine}")


def _is_sick(facts: Facts, assignment: int, cause: int) -> bool:
    """Whether it was known that the machine of this Node goes to triage."""
    sick = facts.sick.get(assignment)
    return sick is not None and bool(sick.as_of(cause))


def _worth(facts: Facts, stay: Stay, cause: int) -> tuple[int, bool, int]:
    """The place of a Node among those that may have to give way; the lowest goes first."""
    version = stay.pool.versions.as_of(cause)
    activity = facts.activity.get(stay.number)
    active = activity is not None and bool(activity.as_of(cause))
    priority = version.spec.priority if version is not None else 0
    return priority, active, -stay.number
