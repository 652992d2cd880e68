"""What lets the Nodes take work again that were drained, alone or with their rack."""

from collections.abc import Iterator

from nodepool.contract.cordons import is_for_rack, split_causes
from nodepool.explanation.facts import Facts
from nodepool.explanation.node_facts import RESTARTING, NodeFacts
from nodepool.explanation.remedies import Remedy, UncordonNodes
from nodepool.explanation.sharing import of_domain, rack_of
from nodepool.placement.racks import UNAVAILABLE_MAX


def cordon_details(facts: Facts, nodes: list[NodeFacts]) -> Iterator[str]:
    """Yield the racks on which no work begins because too many of their Nodes are unavailable."""
    for domain in sorted({node.domain for node in nodes}):
        if count_unavailable(facts, domain) > UNAVAILABLE_MAX:
            lost = _count_lost(facts, domain)
            verb = "has" if lost == 1 else "have"
            yield (
                f"no work begins on {of_domain(domain)} while more than {UNAVAILABLE_MAX} of "
                f"its Nodes are unavailable"
                f"{f'; {lost} went to triage and {verb} not been replaced' if lost else ''}"
            )


def cordon_remedies(facts: Facts, nodes: list[NodeFacts]) -> Iterator[Remedy]:
    """Yield how Nodes that were drained take work again: in a rack, enough Nodes at once."""
    drained: dict[str, list[str]] = {}
    for node in nodes:
        drained.setdefault(node.domain, []).append(node.name)
    for domain, names in drained.items():
        needed = max(1, count_unavailable(facts, domain) - UNAVAILABLE_MAX)
        if needed <= len(names):
            shown, what = " ".join(names[:needed]), "it" if needed == 1 else "their rack"
            text = f"'nodepool uncordon {shown}' opens {what} to work again"
            yield Remedy(text, UncordonNodes(tuple(names[:needed])))
            return


def count_unavailable(facts: Facts, domain: str) -> int:
    """Return how many Nodes of a rack are unavailable, as the lifecycle service counts them.

    Nodes that are cordoned for the others of their rack do not count. A Node whose machine went to
    triage counts until another machine has taken its place, even after a repair.
    """
    if rack_of(facts) == 1 or not domain:
        return 0
    found = sum(
        (node.phase in RESTARTING and node.reboots > 0)
        or node.removal == "Unhealthy"
        or not all(map(is_for_rack, split_causes(node.cordon)))
        for node in facts.nodes
        if node.domain == domain
    )
    return found + _count_lost(facts, domain)


def _count_lost(facts: Facts, domain: str) -> int:
    """Return how many machines went to triage whose places in a rack are empty."""
    nodes = sum(node.domain == domain for node in facts.nodes)
    return min(facts.lost.get(domain, 0), max(0, rack_of(facts) - nodes))
