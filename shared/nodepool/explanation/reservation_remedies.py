"""What would let a NodePool use the Nodes again that are reserved for the control plane."""

from collections.abc import Iterator

from nodepool.contract.node_failures import ADMIN_DRAIN, RESERVATION_PENDING
from nodepool.explanation.facts import RESTARTING, Facts, NodeFacts
from nodepool.explanation.outlook import fits_target, stays_usable
from nodepool.explanation.promises import Promise
from nodepool.explanation.remedies import EndWork, Remedy, Unreserve


def reservation_remedies(facts: Facts, nodes: list[NodeFacts]) -> Iterator[Remedy]:
    """Yield how a Node that is reserved for the control plane becomes usable again.

    A Node with work is pending until the work has ended, so an idle Node comes first. The command
    is refused for a Node that is not in production, so a drained Node takes work again first.
    """
    nodes = [node for node in nodes if fits_target(facts, node)]
    if not stays_usable(facts):
        return
    for node in [node for node in nodes if _waits_for_work(node)][:1]:
        text = f"end what runs on {node.name}: it is then reserved for the organisation again"
        yield Remedy(text, EndWork((node.name,), 1), Promise.COUNTED)
    known = sorted(nodes, key=lambda node: (node.active, node.domain not in facts.staying))
    usable = [node for node in known if node.phase == "production"]
    drained = [node for node in known if _is_drained(node)]
    if usable:
        node = usable[0]
        text = f"reserve {node.name} for the organisation again"
        if node.active:
            text += ", and end what runs there: the Node is pending until then"
        action = Unreserve(node.name, ends_work=node.active)
        yield Remedy(text, action, Promise.COUNTED)
    elif drained:
        name = drained[0].name
        text = f"'nodepool uncordon {name}', then reserve it for the organisation again"
        yield Remedy(text, Unreserve(name, uncordons=True), Promise.COUNTED)


def _waits_for_work(node: NodeFacts) -> bool:
    """Return whether only work keeps a Node from being reserved for the organisation again."""
    is_pending = RESERVATION_PENDING in node.cordon.split(",")
    return is_pending and node.active and not (node.is_silent or node.phase in RESTARTING)


def _is_drained(node: NodeFacts) -> bool:
    """Return whether only the command of an operator keeps an idle Node out of production."""
    return node.cordon == ADMIN_DRAIN and not (node.active or node.problems or node.removal)
