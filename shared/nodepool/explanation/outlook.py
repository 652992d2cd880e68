"""Foretells what a NodePool and its Nodes can do now, so that no advice promises more.

If Facts do not show the effect, nothing is promised.
"""

from collections import Counter

from nodepool.explanation.facts import Check, Domain, Facts, Machines
from nodepool.explanation.leaving import (
    SCALE_DOWN,
    is_blocked,
    keeps_surplus,
    racks_to_empty,
    without_lost,
)
from nodepool.explanation.node_facts import NodeFacts
from nodepool.explanation.promises import WITH_AUTOSCALER, Promise
from nodepool.explanation.sharing import rack_of
from nodepool.explanation.unanswered import (
    CHECKED_BY,
    INTERNAL_ERROR,
    count_unchosen,
    has_failed,
    undetermined_check,
)
from nodepool.placement.racks import count_racks


def gets_none(facts: Facts) -> str:
    """Return why a NodePool gets no Node although machines may be free; empty if it can get Nodes.

    A used-up quota or a lack of machines is no such cause: lost Nodes are replaced then.
    """
    for kind in (*CHECKED_BY, "AtTarget"):
        check = facts.checks.get(kind)
        if check is not None and _stops(check):
            return f"{kind} is {check.reason}"
    kind = undetermined_check(facts) if facts.generation else ""
    return f"{kind} is not determined" if kind else ""


def _stops(check: Check) -> bool:
    is_invalid = check.type == "Validated" and check.status != "True"
    return is_invalid or check.reason == INTERNAL_ERROR


def foretell(facts: Facts, node: NodeFacts, *, is_cured: bool) -> Promise:
    """Return what becomes of a Node that stays, once nothing runs there and it is cured or drained.

    is_cured: whether a reboot cures it; otherwise the Node is drained, and its machine repaired.

    A rack is only completed by machines of its own NVLink domain. Facts do not say which free
    machines satisfy a node affinity.
    """
    if (leaves := _leaves_as_surplus(facts, node)) or leaves is None:
        return Promise.ENOUGH if leaves else Promise.NOTHING
    if is_cured:
        return Promise.CURED
    going = sum(_is_going(each) for each in facts.counted_nodes)
    left = facts.held - going - (not node.reserved)
    if left >= facts.target:
        return Promise.ENOUGH
    if left >= facts.allowed:
        return Promise.NOT_GRANTED
    if gets_none(facts):
        return Promise.NOTHING
    if facts.machines is None:
        return Promise.NOTHING
    if rack_of(facts) > 1:
        return _foretell_in_rack(facts, node, facts.allowed - left)
    if not facts.machines.free:
        lacks = Promise.LACKS if facts.spot else Promise.LACKS_OR_SPOT
        return promise_missing(facts, lacks)
    # Facts do not say which of the Nodes that leave is the first that needs a machine.
    if facts.machines.free <= min(going, facts.allowed - left - 1):
        return Promise.MAY_LACK
    return _replaced(facts, node)


def promise_missing(facts: Facts, promise: Promise) -> Promise:
    """Return what is promised about missing Nodes, which the autoscaler may give up."""
    may_lower = facts.autoscaling and facts.min_nodes < facts.target
    return WITH_AUTOSCALER.get(promise, promise) if may_lower else promise


def surplus_before(facts: Facts, node: NodeFacts, *, is_cured: bool) -> list[NodeFacts]:
    """Return the silent Nodes that are too many, and would stay if this Node left before them.

    A Node that is drained leaves; one that is rebooted leaves if it takes the place of another one.
    If one of these Nodes answers, it stays, which helps.
    """
    surplus = [each for each in facts.counted_nodes if each.removal == SCALE_DOWN]
    if count_unchosen(facts) > 0 or not all(each.is_silent for each in surplus):
        return []
    return surplus if not is_cured or _waits_for_work(facts, node) else []


def foresee_loss(facts: Facts, domain: str = "") -> str:
    """Return that more machines may be needed soon; empty if no Node is known that may be lost.

    A silent Node is given up if a command waits for its machine, or once it is unhealthy. The
    machine of a silent spot Node that gives way may go to triage instead of to a NodePool.
    domain: the NVLink domain that the machines are for; empty for any.
    """
    nodes = [node for node in facts.counted_nodes if domain in ("", node.domain)]
    is_awaited = facts.machines is not None and facts.machines.unsure > 0
    if not is_awaited and not any(may_be_lost(facts, node) for node in nodes):
        return ""
    return "; more are needed if a Node that does not answer is lost"


def may_be_lost(facts: Facts, node: NodeFacts) -> bool:
    """Return whether a Node that stays is given up unless its machine answers."""
    is_awaited = node.answer_by is not None or facts.cures
    return node.is_silent and not node.removal and is_awaited


def find_losing_peer(facts: Facts) -> str:
    """Return a NodePool to which a spot Node gives way if a silent Node is lost; empty for none."""
    peers = facts.peers if facts.spot else ()
    return next((peer.name for peer in peers if peer.may_lose and not peer.spot), "")


def stays_usable(facts: Facts) -> bool:
    """Return whether a Node that comes back stays and no other Node leaves in its place.

    A valid NodePool with as many Nodes as its grant, or with full racks, scales down to its grant
    again. No Node gives way for a spot NodePool, but those of other organisations cannot be told
    apart. So whether others are served first is known only if the NodePool waits itself.
    """
    size = rack_of(facts)
    is_full = facts.held >= -(-facts.allowed // size) * size
    if facts.is_valid and facts.allowed < facts.target and is_full:
        return False
    if not facts.spot:
        return True
    if not facts.queue_position or facts.machines is None or count_pending(facts.machines):
        return False
    if find_losing_peer(facts):
        return False
    before = [
        peer.missing
        for peer in facts.peers
        if peer.spot and 0 < peer.queue_position < facts.queue_position
    ]
    # Who is served before may not wait yet, but lose a Node soon.
    comes_first = max(0, facts.machines_needed - (facts.allowed - facts.held)) - sum(before)
    return sum(before) >= facts.queue_position - 1 and comes_first <= 0


def count_pending(machines: Machines) -> int:
    """Return how many machines an operator still gets before any NodePool."""
    return max(0, machines.to_reclaim - machines.reclaimed)


def fits_target(facts: Facts, node: NodeFacts) -> bool:
    """Return whether a Node that comes back is of a rack that stays: of more racks one leaves."""
    size, stay = rack_of(facts), Counter(facts.staying)
    stay[node.domain] += 1
    return size == 1 or count_racks(size, stay.values()) <= facts.target // size


def _leaves_as_surplus(facts: Facts, node: NodeFacts) -> bool | None:
    """Return whether an idle Node leaves because others are too many; None if that is not known."""
    if node.reserved:
        return False
    is_small = rack_of(facts) == 1
    if count_unchosen(facts) > 0:
        if keeps_surplus(facts):
            return False if not facts.is_valid else None
        return is_small or any(rack.nodes == (node,) for rack in racks_to_empty(facts)[1])
    if not _waits_for_work(facts, node):
        return False
    surplus = [each for each in facts.counted_nodes if each.removal == SCALE_DOWN]
    is_sure = is_small and not has_failed(facts) and any(map(is_blocked, surplus))
    return True if is_sure else None


def _waits_for_work(facts: Facts, node: NodeFacts) -> bool:
    """Return whether a scale-down waits for work, so that an idle Node may take a victim's place.

    With IdleOnly no Node at work leaves, and a NodePool that is not valid chooses none.
    """
    if facts.idle_only or node.reserved or not facts.is_valid:
        return False
    return any(each.removal == SCALE_DOWN and each.active for each in facts.counted_nodes)


def _is_going(node: NodeFacts) -> bool:
    """Return whether a Node leaves soon; at work, one that is too many stays in another's place."""
    is_spared = node.removal == SCALE_DOWN and node.active and not node.is_silent
    return node.removal != "" and not is_blocked(node) and not is_spared


def _foretell_in_rack(facts: Facts, node: NodeFacts, room: int) -> Promise:
    """Return what becomes of a drained Node of a rack.

    room: how many Nodes the NodePool may get without the Node.

    A rack of which nothing is left is not completed, and a whole rack may come in its place. A rack
    with too few free machines gets some if that is all that there is room for.
    """
    machines = without_lost(facts).machines
    domains = machines.domains if machines is not None else {}
    domain = domains.get(node.domain, Domain())
    needed = -(domain.held - (not node.reserved)) % rack_of(facts)
    if min(needed, room) > domain.free:
        return Promise.RACK_LACKS
    if needed > domain.free:
        return Promise.NOTHING
    return _replaced(facts, node) if needed else Promise.NOTHING


def _replaced(facts: Facts, node: NodeFacts) -> Promise:
    """Return that a free machine replaces a Node; of a silent one nothing can be cured."""
    if facts.has_affinity:
        return Promise.REPLACED_IF_FITTING
    return Promise.REPLACED if node.is_silent else Promise.CURED_OR_REPLACED
