"""Whether any machine could ever satisfy a node affinity, by the labels that machines may have."""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from nodepool.contract.affinity import (
    INT64_END,
    Affinity,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Operator,
    holds,
    terms,
    unfit,
)
from nodepool.contract.counting import format_count
from nodepool.contract.grammar import LABEL_LIMIT, format_quoted, label_value

_TERMS_SHOWN: Final = 3
_VALUES_SHOWN: Final = 5


def satisfiable(
    affinity: Affinity | None, fixed: Mapping[str, str], open_keys: Collection[str]
) -> str | None:
    """Return why no machine can ever be accepted, or None if a machine can.

    The reason names the first impossible key of some terms, and counts the other terms:
    a condition whose message is longer than Kubernetes allows would not be shown at all.

    fixed: labels that every machine has, with these values.
    open_keys: labels that a machine may have, with any valid value; `fixed` takes precedence.

    Machines have no other labels. The result is exact: None means that some labels within these
    rules are accepted.
    """
    reasons: list[str] = []
    for index, term in enumerate(terms(affinity)):
        reason = _impossible(term, fixed, open_keys)
        if reason is None:
            return None
        reasons.append(f"nodeSelectorTerms[{index}]: {reason}")
    more = len(reasons) - _TERMS_SHOWN
    if more > 0:
        reasons[_TERMS_SHOWN:] = [f"{format_count(more, 'more term')} that no machine can meet"]
    return "; ".join(reasons) or None


def _impossible(
    term: NodeSelectorTerm, fixed: Mapping[str, str], open_keys: Collection[str]
) -> str | None:
    """Return why the term accepts no possible machine, or None.

    Each key is checked alone: the value of one label does not limit the value of another label.
    """
    by_key: dict[str, list[NodeSelectorRequirement]] = {}
    for requirement in term.match_expressions:
        by_key.setdefault(requirement.key, []).append(requirement)
    for key, requirements in by_key.items():
        wanted = " and ".join(map(_text, requirements))
        if key in fixed:
            if not all(holds(each, fixed[key]) for each in requirements):
                return f"key {format_quoted(key)} is always {fixed[key]!r}, never {wanted}"
        elif key not in open_keys:
            if not all(holds(each, None) for each in requirements):
                return f"key {format_quoted(key)} is on no machine, so it is never {wanted}"
        elif not _possible(requirements):
            return f"key {format_quoted(key)} cannot be {wanted} with any value"
    return None if by_key else "it has no matchExpressions, so it matches no machine"


def _possible(requirements: list[NodeSelectorRequirement]) -> bool:
    """Return whether these comparisons of an open key all hold for a value, or for its absence."""
    if any(unfit(each) for each in requirements):
        return False
    listed = [set(each.values) for each in requirements if each.operator == Operator.IN]
    excluded = {
        value for each in requirements if each.operator == Operator.NOT_IN for value in each.values
    }
    rest = [each for each in requirements if each.operator not in (Operator.IN, Operator.NOT_IN)]
    candidates: list[str | None]
    if listed:
        allowed = set.intersection(*listed) - excluded
        candidates = [value for value in allowed if label_value(value) is None]
    else:
        # Without In, only the bounds and the excluded values distinguish one value from another, so
        # the first number that is left stands for all.
        number = next((value for value in _numerals(rest) if value not in excluded), None)
        candidates = [None, number]
    return any(all(holds(each, value) for each in rest) for value in candidates)


def _numerals(requirements: list[NodeSelectorRequirement]) -> Iterator[str]:
    """Yield label values that are integers between the bounds of Gt and Lt, smallest first.

    A label value cannot begin with a sign, so no value is negative; with leading zeros, each
    integer can be written in many ways.
    """
    first, end = 0, INT64_END
    for requirement in requirements:
        if requirement.operator in (Operator.GT, Operator.LT):
            bound = int(requirement.values[0])
            if requirement.operator == Operator.GT:
                first = max(first, bound + 1)
            else:
                end = min(end, bound)
    for number in range(first, end):
        for width in range(len(str(number)), LABEL_LIMIT + 1):
            yield f"{number:0{width}d}"


def _text(requirement: NodeSelectorRequirement) -> str:
    operator = format_quoted(requirement.operator) if unfit(requirement) else requirement.operator
    if not requirement.values:
        return operator
    more = ", …" if len(requirement.values) > _VALUES_SHOWN else ""
    values = ", ".join(value[:LABEL_LIMIT] for value in requirement.values[:_VALUES_SHOWN])
    return f"{operator} [{values}{more}]"
