"""What would let a NodePool use the Nodes again that are reserved for the control plane."""

from collections.abc import Iterator

from nodepool.contract.cordons import can_be_reserved, can_be_reserved_uncordoned, split_causes
from nodepool.contract.phases import RESTARTING
from nodepool.explanation.facts import Facts
from nodepool.explanation.node_facts import NodeFacts
from nodepool.explanation.outlook import find_losing_peer, fits_target, stays_usable
from nodepool.explanation.promises import Promise
from nodepool.explanation.remedies import EndWork, Remedy, Unreserve, Wait


def reservation_remedies(facts: Facts, nodes: list[NodeFacts]) -> Iterator[Remedy]:
    """Yield how a Node that is reserved for the control plane becomes usable again.

    A Node with work is pending until the work has ended, so an idle Node comes first. A cordon or a
    drain for which a command asked ends first, if the command to reserve would be refused.
    """
    nodes = [node for node in nodes if fits_target(facts, node)]
    if not stays_usable(facts):
        could = (waits_for_work, _can_be_reserved, _can_be_uncordoned)
        peer = find_losing_peer(facts)
        if peer and any(can(node) for node in nodes for can in could):
            text = f"wait: a Node of {peer} does not answer; if it is lost, a spot Node gives way"
            yield Remedy(text, Wait(), Promise.NOTHING)
        return
    for node in [node for node in nodes if waits_for_work(node)][:1]:
        text = f"end what runs on {node.name}: it is then reserved for the organisation again"
        # What runs there is known from that service alone.
        text += "; if nothing runs there any more, see that the lifecycle service runs"
        yield Remedy(text, EndWork((node.name,), 1), Promise.COUNTED)
    known = sorted(nodes, key=lambda node: (node.active, node.domain not in facts.staying))
    ready = [node for node in known if _can_be_reserved(node)]
    cordoned = [node for node in known if _can_be_uncordoned(node)]
    for node in (ready or cordoned)[:1]:
        text = f"reserve {node.name} for the organisation again"
        if not ready:
            text = f"'nodepool uncordon {node.name}', then reserve it for the organisation again"
        if node.active:
            text += ", and end what runs there: the Node is pending until then"
        action = Unreserve(node.name, ends_work=node.active, uncordons=not ready)
        yield Remedy(text, action, Promise.COUNTED)


def waits_for_work(node: NodeFacts) -> bool:
    """Return whether only work keeps a Node from being reserved for another user."""
    return node.is_pending and node.active and not (node.is_silent or node.phase in RESTARTING)


def _can_be_reserved(node: NodeFacts) -> bool:
    """Return whether a Node would count again; a silent Node owes an answer, and is given up."""
    return not node.is_silent and can_be_reserved(node.phase, split_causes(node.cordon))


def _can_be_uncordoned(node: NodeFacts) -> bool:
    """Return whether only a command keeps a Node that answers from being reserved."""
    causes = split_causes(node.cordon)
    return not node.is_silent and can_be_reserved_uncordoned(node.phase, causes)
