"""Advice for Nodes that take no work, as a command or their rack keeps them cordoned."""

from collections.abc import Iterator

from nodepool.contract.cordons import is_by_command, is_for_rack, is_own, split_causes
from nodepool.contract.phases import RESTARTING
from nodepool.explanation.facts import Facts
from nodepool.explanation.node_facts import NodeFacts
from nodepool.explanation.promises import Promise
from nodepool.explanation.remedies import EndWork, Remedy, UncordonNodes, Wait
from nodepool.explanation.reservation_remedies import waits_for_work
from nodepool.explanation.sharing import of_domain, rack_of
from nodepool.placement.racks import UNAVAILABLE_MAX


def find_closed(facts: Facts) -> list[NodeFacts]:
    """Return the Nodes that stay and are cordoned for other Nodes of their rack.

    A Node that restarts is cordoned for that, and shows why it was cordoned before.
    """
    nodes = [node for node in facts.counted_nodes if node.phase not in RESTARTING]
    staying = [node for node in nodes if not node.removal]
    return [node for node in staying if any(map(is_for_rack, split_causes(node.cordon)))]


def cordon_details(facts: Facts, nodes: list[NodeFacts]) -> Iterator[str]:
    """Yield the racks on which no work begins because too many of their Nodes are unavailable."""
    for domain in sorted({node.domain for node in nodes}):
        if count_unavailable(facts, domain) > UNAVAILABLE_MAX:
            lost = _count_lost(facts, domain)
            verb = "has" if lost == 1 else "have"
            names = ", ".join(node.name for node in _find_unavailable(facts, domain))
            yield (
                f"no work begins on {of_domain(domain)} while more than {UNAVAILABLE_MAX} of "
                f"its Nodes are unavailable{f': {names}' if names else ''}"
                f"{f'; {lost} went to triage and {verb} not been replaced' if lost else ''}"
            )


def cordon_remedy(facts: Facts, nodes: list[NodeFacts]) -> Remedy:
    """Return what lets Nodes take work again: in a rack, enough Nodes at once."""
    domains = tuple(dict.fromkeys(node.domain for node in nodes))
    found = (_uncordon(facts, domain) or _reserve(facts, domain) for domain in domains)
    return next(filter(None, found), None) or _wait(facts, domains[0])


def _uncordon(facts: Facts, domain: str) -> Remedy | None:
    nodes = [node for node in _of_rack(facts, domain) if is_by_command(split_causes(node.cordon))]
    known = [node for node in nodes if not (node.problems or node.removal or node.answer_by)]
    # A Node that restarts takes work only once that is over, also if it is uncordoned before.
    known = [node for node in known if node.phase not in RESTARTING]
    names = [node.name for node in sorted(known, key=lambda node: node.active)]
    needed = _count_needed(facts, domain)
    if needed > len(names):
        return None
    shown, what = " ".join(names[:needed]), "it" if needed == 1 else "their rack"
    text = f"'nodepool uncordon {shown}' opens {what} to work again"
    return Remedy(text, UncordonNodes(tuple(names[:needed])))


def _reserve(facts: Facts, domain: str) -> Remedy | None:
    """Return the advice to end the work for which the reservations of enough Nodes wait.

    A Node that has a further cause of its own stays unavailable when it is reserved.
    """
    nodes = [node for node in _of_rack(facts, domain) if waits_for_work(node)]
    names = [node.name for node in nodes if _count_own(node) == 1]
    needed = _count_needed(facts, domain)
    if needed > len(names):
        return None
    waits = "its reservation waits" if needed == 1 else "their reservations wait"
    text = f"end what runs on {', '.join(names[:needed])}: {waits} for that, and so does the rack"
    return Remedy(text, EndWork(tuple(names[:needed]), needed))


def _wait(facts: Facts, domain: str) -> Remedy:
    needed = _count_needed(facts, domain)
    text = (
        f"wait: {of_domain(domain)} takes work again once {needed} of its unavailable Nodes "
        f"{'is' if needed == 1 else 'are'} cured, replaced, uncordoned or reserved"
    )
    return Remedy(text, Wait(), Promise.NOTHING)


def _of_rack(facts: Facts, domain: str) -> list[NodeFacts]:
    return [node for node in facts.nodes if node.domain == domain]


def _count_needed(facts: Facts, domain: str) -> int:
    """Return how many Nodes of a rack have to be available again before work begins there."""
    return max(1, count_unavailable(facts, domain) - UNAVAILABLE_MAX)


def count_unavailable(facts: Facts, domain: str) -> int:
    """Return how many Nodes of a rack are unavailable, as the lifecycle service counts them.

    Nodes that are cordoned for the others of their rack do not count. A Node whose machine went to
    triage counts until another machine has taken its place, even after a repair.
    """
    return len(_find_unavailable(facts, domain)) + _count_lost(facts, domain)


def _find_unavailable(facts: Facts, domain: str) -> list[NodeFacts]:
    """Return the Nodes of a rack that are unavailable for a cause of their own."""
    if rack_of(facts) == 1 or not domain:
        return []
    return [
        node
        for node in _of_rack(facts, domain)
        if (node.phase in RESTARTING and node.reboots > 0)
        or node.removal == "Unhealthy"
        or _count_own(node) > 0
    ]


def _count_own(node: NodeFacts) -> int:
    """Return how many causes for which a Node is cordoned make it unavailable in its rack."""
    return sum(map(is_own, split_causes(node.cordon)))


def _count_lost(facts: Facts, domain: str) -> int:
    """Return how many machines went to triage whose places in a rack are empty."""
    if rack_of(facts) == 1 or not domain:
        return 0
    nodes = len(_of_rack(facts, domain))
    return min(facts.lost.get(domain, 0), max(0, rack_of(facts) - nodes))
