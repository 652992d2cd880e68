"""What would let a NodePool use the Nodes again that are reserved for the control plane."""

from collections.abc import Iterator

from nodepool.contract.node_failures import RESERVATION_PENDING
from nodepool.explanation.facts import RESTARTING, Facts, NodeFacts
from nodepool.explanation.remedies import EndWork, Remedy, Unreserve


def reservation_remedies(facts: Facts, nodes: list[NodeFacts]) -> Iterator[Remedy]:
    """Yield how a Node that is reserved for the control plane becomes usable again.

    A Node with work is pending until the work has ended, so an idle Node comes first. The command
    is refused for a Node that is not in production, such as a cordoned Node.
    """
    if _loses_it(facts):
        return
    for node in [node for node in nodes if _waits_for_work(node)][:1]:
        text = f"end what runs on {node.name}: it is then reserved for the organisation again"
        yield Remedy(text, EndWork((node.name,), 1))
    known = sorted(nodes, key=lambda node: node.active)
    for node in [node for node in known if node.phase == "production"][:1]:
        text = f"reserve {node.name} for the organisation again"
        if node.active:
            text += ", and end what runs there: the Node is pending until then"
        yield Remedy(text, Unreserve(node.name, ends_work=node.active))


def _waits_for_work(node: NodeFacts) -> bool:
    """Return whether only work keeps a Node from being reserved for the organisation again."""
    is_pending = RESERVATION_PENDING in node.cordon.split(",")
    return is_pending and node.active and not (node.is_silent or node.phase in RESTARTING)


def _loses_it(facts: Facts) -> bool:
    """Return whether a Node that comes back gives way at once: others wait before a spot Node."""
    return facts.spot and facts.queue_position > 1
