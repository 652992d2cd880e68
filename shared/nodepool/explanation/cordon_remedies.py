"""What lets the Nodes take work again that were drained, alone or with their rack."""

from collections.abc import Iterator

from nodepool.contract.counting import format_count
from nodepool.contract.node_failures import RACK_UNAVAILABLE
from nodepool.explanation.facts import RESTARTING, Domain, Facts, NodeFacts
from nodepool.explanation.remedies import Remedy, UncordonNodes
from nodepool.explanation.sharing import of_domain, rack_of
from nodepool.placement.racks import UNAVAILABLE_MAX


def cordon_details(facts: Facts, nodes: list[NodeFacts]) -> Iterator[str]:
    """Yield the racks on which no work begins because too many of their Nodes are unavailable."""
    for domain in sorted({node.domain for node in nodes}):
        if _count_unavailable(facts, domain) > UNAVAILABLE_MAX:
            lacks = _count_missing(facts, domain)
            yield (
                f"no work begins on {of_domain(domain)} while more than {UNAVAILABLE_MAX} of "
                f"its Nodes are unavailable{f'; it lacks {format_count(lacks)}' if lacks else ''}"
            )


def cordon_remedies(facts: Facts, nodes: list[NodeFacts]) -> Iterator[Remedy]:
    """Yield how Nodes that were drained take work again: in a rack, enough Nodes at once."""
    drained: dict[str, list[str]] = {}
    for node in nodes:
        drained.setdefault(node.domain, []).append(node.name)
    for domain, names in drained.items():
        needed = max(1, _count_unavailable(facts, domain) - UNAVAILABLE_MAX)
        if needed <= len(names):
            shown, what = " ".join(names[:needed]), "it" if needed == 1 else "their rack"
            text = f"'nodepool uncordon {shown}' opens {what} to work again"
            yield Remedy(text, UncordonNodes(tuple(names[:needed])))
            return


def _count_unavailable(facts: Facts, domain: str) -> int:
    """Return how many Nodes of a rack are unavailable, as the lifecycle service counts them.

    Nodes that are cordoned for the others of their rack do not count. A Node whose machine went to
    triage counts until another machine has taken its place, even after a repair; Facts do not show
    it then, but the cordons of the others show that it counts.
    """
    if rack_of(facts) == 1 or not domain:
        return 0
    nodes = [node for node in facts.nodes if node.domain == domain]
    found = sum(
        node.phase in RESTARTING
        or node.removal == "Unhealthy"
        or (node.cordon != "" and not node.cordon.startswith(RACK_UNAVAILABLE))
        for node in nodes
    )
    missing = _count_missing(facts, domain)
    if any(node.cordon.startswith(RACK_UNAVAILABLE) for node in nodes):
        return found + missing
    return found + min(len(_machines_of(facts, domain).triage), missing)


def _count_missing(facts: Facts, domain: str) -> int:
    """Return how many Nodes a rack lacks; a Node that boots shows no NVLink domain yet."""
    nodes = sum(node.domain == domain for node in facts.nodes)
    return max(0, rack_of(facts) - max(nodes, _machines_of(facts, domain).held))


def _machines_of(facts: Facts, domain: str) -> Domain:
    domains = facts.machines.domains if facts.machines is not None else {}
    return domains.get(domain, Domain())
