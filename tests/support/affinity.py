"""What a node affinity accepts, by its definition."""

from collections.abc import Mapping

from nodepool.contract.affinity import Affinity, holds, terms


def matches(affinity: Affinity | None, labels: Mapping[str, str]) -> bool:
    """Whether a machine with these labels is accepted; without an affinity every machine is.

    One term must hold, and of it every expression; a term without any accepts no machine.
    """
    listed = terms(affinity)
    return not listed or any(
        term.match_expressions
        and all(holds(each, labels.get(each.key)) for each in term.match_expressions)
        for term in listed
    )
