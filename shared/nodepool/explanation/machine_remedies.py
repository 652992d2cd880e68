"""The numbers behind a shortage of machines, and the changes that would end the shortage."""

from collections.abc import Iterator

from nodepool.contract.counting import format_count
from nodepool.explanation.facts import Facts, Machines
from nodepool.explanation.leaving import is_blocked, keep_nodes, without_lost
from nodepool.explanation.outlook import count_pending, foresee_loss, gets_none
from nodepool.explanation.promises import Promise
from nodepool.explanation.rack_remedies import rack_details, rack_remedies
from nodepool.explanation.remedies import (
    AddMachines,
    DropAffinity,
    Remedy,
    RepairMachines,
    ReturnMachines,
    Wait,
)
from nodepool.explanation.sharing import (
    holders,
    in_zone,
    largest,
    nodes_wait,
    rack_of,
    rivals,
)
from nodepool.explanation.unanswered import GONE_MINUTES, late_spot_nodes, spot_awaited_since


def capacity_details(facts: Facts) -> Iterator[str]:
    """Yield how many machines there are in which state, who holds them, and who waits for them."""
    yield from _queue(facts)
    machines = facts.machines
    if machines is None:
        return
    yield (
        f"of {facts.instance_type}{in_zone(facts)} {_are(machines.free)} free, "
        f"{_are(machines.assigned)} assigned and {_are(machines.triage)} out of service"
    )
    if machines.reclaimed:
        verb = "is" if machines.reclaimed == 1 else "are"
        out = f", {machines.held_out} of them out of service" if machines.held_out else ""
        yield f"{machines.reclaimed} more {verb} reclaimed by an operator{out}"
    if machines.zap:
        verb = "is" if machines.zap == 1 else "are"
        yield f"{machines.zap} more {verb} being wiped, and free afterwards"
    if pending := count_pending(machines):
        yield f"the next {pending} that become free go to an operator who reclaims them"
    own = sum(peer.held for peer in facts.peers)
    yield from holders("other NodePools hold", own, [(peer, peer.held) for peer in facts.peers])
    foreign = machines.assigned - own - facts.held
    if foreign > 0:
        yield f"other organisations or the control plane hold {foreign}"
    yield from rivals(
        "machines of the same type", [peer for peer in facts.peers if peer.waits_for_machines]
    )
    yield from rack_details(facts)
    for name, cause, _ in machines.broken:
        yield f"machine {name} is out of service{f': {cause}' if cause else ''}"


def _are(count: int) -> str:
    return f"{count} is" if count == 1 else f"{count} are"


def capacity_remedies(facts: Facts, reason: str) -> Iterator[Remedy]:
    """Yield what would make as many machines available as the NodePool may have."""
    if gets_none(facts):
        return
    comes, machines = facts.spot_awaited, facts.machines
    is_late = spot_awaited_since(facts) is not None or late_spot_nodes(facts)
    if comes and not is_late:
        nodes = "spot Node is" if comes == 1 else "spot Nodes are"
        text = f"being preempted for it, which takes at most {GONE_MINUTES} minutes"
        if machines is not None and machines.unwarned:
            text = f"to give way for it, at most {GONE_MINUTES} minutes after a warning"
        text = f"wait: {comes} {nodes} {text}, and longer with a wipe{foresee_loss(facts)}"
        is_sure = machines is None or machines.unsure < comes
        yield Remedy(text, Wait(), Promise.ENDS if is_sure else Promise.NOTHING)
    if reason.endswith("NodeAffinity") and machines is not None and machines.free:
        there = format_count(machines.free, "machine")
        verb = "is" if machines.free == 1 else "are"
        text = f"relax the node affinity: {there} {verb} free without it"
        yield Remedy(text, DropAffinity())
    elif rack_of(facts) > 1:
        yield from rack_remedies(facts)
    elif machines is not None:
        yield from _more_machines(without_lost(facts), machines)
    # A Node that leaves soon would be missed again; a Node that Pods block stays until they end.
    gone = sum(node.removal != "" and not is_blocked(node) for node in facts.counted_nodes)
    yield from keep_nodes(facts, facts.held - gone)


def capacity_proofs(facts: Facts) -> Iterator[tuple[int, str]]:
    """Yield where in the log the counts of machines, and those in triage, changed last."""
    machines = facts.machines
    if machines is None:
        return
    yield machines.position, f"capacity {facts.zone}.{facts.instance_type}"
    for name, _, position in machines.broken:
        yield position, f"machine {name}"
    for peer in largest([(peer, peer.held) for peer in facts.peers]):
        yield peer.position, f"nodepool {peer.name}"


def _queue(facts: Facts) -> Iterator[str]:
    """Yield the place among all that waits, which includes other organisations, without names."""
    if facts.queue_position:
        ahead = facts.queue_position - 1
        before = f": {nodes_wait(ahead)} before it" if ahead else ": it is served next"
        if not ahead and facts.machines is not None and count_pending(facts.machines):
            before = ", after an operator who reclaims machines"
        yield f"{facts.name} has position {facts.queue_position} of what waits{before}"


def _more_machines(facts: Facts, machines: Machines) -> Iterator[Remedy]:
    """Yield how many machines end the shortage: repaired, returned or added.

    Machines that are being wiped come by themselves, so only those that are missing besides count.
    All serve first an operator who reclaims machines, and then what waits for longer.
    """
    own = max(0, facts.allowed - facts.held)
    count = facts.machines_needed or max(0, own - facts.spot_awaited)
    if not count:
        return
    more = count - own + facts.spot_awaited
    wiped = 0 if facts.has_affinity else machines.zap
    count -= wiped
    verb = "is" if wiped == 1 else "are"
    if count <= 0:
        yield Remedy(f"wait: {format_count(wiped, 'machine')} {verb} being wiped", Wait())
        return
    before = ""
    if more > 0:
        # What is served before may have a node affinity, and want none of these machines.
        before = f", up to {min(more, count)} of them for what is served before it"
    if wiped:
        before += f"; {wiped} more {verb} being wiped"
    before += foresee_loss(facts)
    if not facts.has_affinity:
        if count <= machines.triage:
            broken = f"{format_count(machines.triage, 'machine')} out of service"
            yield Remedy(f"repair {count} of {broken}{before}", RepairMachines(count))
        if count <= machines.to_reclaim - machines.held_out:
            text = f"return {count} of {format_count(machines.to_reclaim, 'reclaimed machine')}"
            yield Remedy(text + foresee_loss(facts), ReturnMachines(count))
    which = "that satisfy the node affinity" if facts.has_affinity else "of the type"
    verb = which.replace("satisfy", "satisfies") if count == 1 else which
    yield Remedy(
        f"add {format_count(count, 'machine')} {verb} to the zone{before}", AddMachines(count)
    )
