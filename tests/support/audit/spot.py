"""Rules for spot: who gives way, how many, and what happens to machines that are held back.

A decision is judged by what the allocator had read when it made it. Where a NodePool that waits has
a node affinity, which Nodes give way to it depends on which of several machines others are given;
then order and number are not compared.
"""

from collections import Counter
from collections.abc import Iterator

from nodepool.contract.events import (
    CapacityChecked,
    CapacityReclaimed,
    CWNodeCordoned,
    CWNodeUncordoned,
    MachineReclaimed,
    MachineReturned,
    NodeActivityChanged,
    NodePreemptionRequested,
    NodePreemptionWithdrawn,
)
from nodepool.contract.messages import Message
from nodepool.contract.model import ComputeClass, NodePoolSpec
from support.audit.assignment import claimed, fits
from support.audit.facts import RECLAIMED, Facts, History, Offering, Origin, Pool, Stay, Violation


def check(  # noqa: C901  # It lists the messages.
    facts: Facts, message: Message, origin: Origin
) -> None:
    """Checks and notes an event about Nodes that give way, or machines that are held back."""
    match message:
        case CapacityReclaimed():
            facts.to_reclaim[message.zone, message.instance_type] = message.count
        case MachineReclaimed():
            _reclaimed(facts, message, origin)
        case MachineReturned():
            machine = facts.machines[message.machine_key]
            if machine.holder != RECLAIMED:
                raise Violation(f"{message.machine_key} is returned and was not held back")
            machine.hold("", origin.position)
        case NodeActivityChanged(assignment=assignment, active=active):
            facts.activity.setdefault(assignment, History()).add(origin.position, active)
        case CWNodeCordoned(assignment=assignment, triage=triage):
            facts.sick.setdefault(assignment, History()).add(origin.position, triage)
        case CWNodeUncordoned(assignment=assignment):
            facts.sick.setdefault(assignment, History()).add(origin.position, False)
        case NodePreemptionRequested():
            _requested(facts, message, origin)
        case NodePreemptionWithdrawn():
            _withdrawn(facts, message, origin)
        case CapacityChecked():
            _check_promised(facts, message, origin)


def _reclaimed(facts: Facts, message: MachineReclaimed, origin: Origin) -> None:
    machine = facts.machines[message.machine_key]
    if not machine.was_free(origin.cause):
        raise Violation(f"{message.machine_key} is reclaimed, which {machine.holder} holds")
    machine.hold(RECLAIMED, origin.position)
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
    if stay.pool.is_deleting(origin.cause) and stay.removals.is_empty:
        raise Violation(f"{stay.machine} has to give way before it leaves with its NodePool")
    facts.giving_way[message.assignment] = facts.preempted[message.assignment] = stay
    offering = stay.pool.offering
    short = _short(facts, offering, origin.cause)
    if any(spec.affinity is not None for spec, _ in short):
        return
    needed = sum(missing for _, missing in short)
    needed += max(0, facts.to_reclaim.get(offering, 0) - held_back(facts, offering))
    going = [
        each
        for number, each in facts.giving_way.items()
        if each.pool.offering == offering
        and not (each.has_left(origin.cause) or _is_sick(facts, number, origin.cause))
    ]
    wiped = sum(
        each.offering == offering and bool(each.zapped.as_of(origin.cause))
        for each in facts.machines.values()
    )
    if len(going) + wiped > needed:
        text = f"{len(going)} spot Nodes have to give way, and {needed} are needed"
        raise Violation(f"{text}{f', {wiped} of them are being wiped' if wiped else ''}")
    _check_order(facts, stay, origin.cause)


def _withdrawn(facts: Facts, message: NodePreemptionWithdrawn, origin: Origin) -> None:
    """Note that a Node need not give way, and check that no Node that was asked later has to.

    The allocator may ask again before it reads that the preemption has begun meanwhile.
    """
    stay, cause = facts.stay(message), origin.cause
    if message.assignment not in facts.giving_way:
        raise Violation(f"{stay.machine} was not asked to give way, and its request is withdrawn")
    if _has_begun(stay, cause):
        raise Violation(f"{stay.machine} is preempted, and its request is withdrawn")
    asked = list(facts.giving_way)
    later = asked[asked.index(message.assignment) + 1 :]
    del facts.giving_way[message.assignment]
    short = [spec for spec, _ in _short(facts, stay.pool.offering, cause)]
    if _is_sick(facts, message.assignment, cause) or any(spec.affinity for spec in short):
        return
    if stay.pool.is_deleting(cause):
        return  # Its machine comes anyway while its Pods end soon; then it is not in the order.
    for number in later:
        other = facts.giving_way[number]
        is_same = other.pool.offering == stay.pool.offering and not other.has_left(cause)
        if is_same and not (_has_begun(other, cause) or other.pool.is_deleting(cause)):
            raise Violation(f"{stay.machine} need not give way, and {other.machine} has to")


def _has_begun(stay: Stay, cause: int) -> bool:
    """Whether it was known that the preemption of a Node has begun."""
    begun = stay.warned or stay.preempted
    return begun is not None and begun[0] <= cause


def _short(facts: Facts, offering: Offering, cause: int) -> list[tuple[NodePoolSpec, int]]:
    """The NodePools of class `default` that lack Nodes of an offering, and how many."""
    return [
        (spec, missing)
        for pool in facts.existing_pools()
        if pool.offering == offering
        for spec, missing in claimed(pool, cause)
        if spec.compute_class is ComputeClass.DEFAULT
    ]


def _check_promised(facts: Facts, message: CapacityChecked, origin: Origin) -> None:
    """Check that a verdict promises a NodePool only spot Nodes that its affinity accepts."""
    pool = facts.pools[message.uid]
    version = pool.versions.as_of(origin.cause)
    if version is None or not message.preempted:
        return
    fitting = sum(
        each.pool.offering == pool.offering
        and not each.has_left(origin.cause)
        and fits(version.spec, facts.machines[each.machine])
        for each in facts.preempted.values()
    )
    if message.preempted > fitting:
        text = f"{message.preempted} spot Nodes, and {fitting} that fit are preempted"
        raise Violation(f"{pool.key} is promised {text}")


def _check_order(facts: Facts, stay: Stay, cause: int) -> None:
    """Check that each organisation gives up what it has to, and that its least useful Nodes go.

    While a Node that leaves already may have to give way, the numbers are not compared. A NodePool
    with more Nodes than its target is still to ask some of them to leave; these come anyway.
    """
    if stay.is_leaving(cause) or not stay.removals.is_empty:
        return
    rivals = list(_rivals(facts, stay, cause))
    for other in rivals:
        is_own = _org(other) == _org(stay) and not _has_surplus(facts, other.pool, cause)
        if is_own and _worth(facts, other, cause) < _worth(facts, stay, cause):
            raise Violation(f"{stay.machine} has to give way before {other.machine}")
    chosen = facts.chosen.setdefault(cause, [])
    chosen.append(stay)
    if any(_is_on_its_way(facts, each, stay, cause) for each in facts.stays.values()):
        return
    by_worth = sorted((*rivals, *chosen), key=lambda each: _worth(facts, each, cause)[1:])
    expected = Counter(_org(each) for each in by_worth[: len(chosen)])
    given_up = Counter(_org(each) for each in chosen)
    if expected != given_up:
        text = f"{dict(given_up)} have to give way, not {dict(expected)}"
        raise Violation(f"{stay.machine} has to give way before others: {text}")


def _org(stay: Stay) -> str:
    return stay.pool.key.partition("/")[0]


def _is_on_its_way(facts: Facts, other: Stay, stay: Stay, cause: int) -> bool:
    """Whether another Node of the type and zone is chosen to leave, or may be next."""
    if other.pool.offering != stay.pool.offering or other.has_left(cause):
        return False
    is_spot = other.pool.spec.compute_class is ComputeClass.SPOT
    return not other.removals.is_empty or (is_spot and _has_surplus(facts, other.pool, cause))


def _has_surplus(facts: Facts, pool: Pool, cause: int) -> bool:
    """Whether more Nodes of a NodePool stay than it wants."""
    version = pool.versions.as_of(cause)
    staying = sum(not stay.is_leaving(cause) for stay in facts.stays_in(pool))
    return version is not None and staying > version.spec.target


def _rivals(facts: Facts, stay: Stay, cause: int) -> Iterator[Stay]:
    """The other spot Nodes of its type and zone that stay."""
    for assignment, other in facts.stays.items():
        is_same = other.pool.offering == stay.pool.offering and other is not stay
        is_spot = other.pool.spec.compute_class is ComputeClass.SPOT
        if not is_same or not is_spot or other.is_lent or assignment in facts.giving_way:
            continue
        if other.has_left(cause) or other.is_leaving(cause) or not other.removals.is_empty:
            continue
        if not (other.pool.is_deleting(cause) or _is_sick(facts, assignment, cause)):
            yield other


def _is_sick(facts: Facts, assignment: int, cause: int) -> bool:
    """Whether it was known that the machine of this Node goes to triage."""
    sick = facts.sick.get(assignment)
    return sick is not None and bool(sick.as_of(cause))


def _worth(facts: Facts, stay: Stay, cause: int) -> tuple[int, bool, bool, int, str]:
    """The place of a Node among those of its organisation that may have to give way.

    Without the priority, which comes first, it is the place among those of all organisations.
    """
    version = stay.pool.versions.as_of(cause)
    activity = facts.activity.get(stay.number)
    active = activity is not None and bool(activity.as_of(cause))
    priority = version.spec.priority if version is not None else 0
    joined = 0 < stay.joined <= cause
    return priority, joined, active, -stay.batch, stay.machine
