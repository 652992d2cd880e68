"""Which machines a NodePool's node affinity accepts, and whether any machine ever could.

Shape and meaning are those of a Pod's node affinity:
https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#node-affinity.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel

from nodepool.contract.catalog import InstanceType, Zone
from nodepool.contract.grammar import LABEL_LIMIT, label_value, qualified_name, shown

TOPOLOGY_KEYS: Final = frozenset(
    {
        "node.coreweave.cloud/rack",
        "node.coreweave.cloud/slot",
        "ds.coreweave.com/physical-topology.rack-name",
        "ds.coreweave.com/nvlink.domain",
        "ib.coreweave.cloud/fabric",
        "ib.coreweave.cloud/leafgroup",
        "backend.coreweave.cloud/fabric",
        "backend.coreweave.cloud/superpod",
        "backend.coreweave.cloud/leafgroup",
        "backend.coreweave.cloud/leafgroup-name",
        "kubernetes.io/hostname",
    }
)
"""Label keys whose value is the machine's own: its name, its place and its network fabric."""

_INTEGER: Final = re.compile(rf"[+-]?[0-9]{{1,{LABEL_LIMIT}}}")
_INT64_END: Final = 2**63
_VALUES_SHOWN: Final = 5


class Operator(StrEnum):
    """How a label is compared with the values of an expression."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


class _Shape(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        serialize_by_alias=True,
    )


class NodeSelectorRequirement(_Shape):
    """One comparison of one label; operator and values may be any text, which is checked later.

    key, operator, values: a label; In, NotIn, Exists, DoesNotExist, Gt or Lt; what it is held to.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(_Shape):
    """Comparisons that must all hold; a term without any accepts no machine."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: Any = Field(default=None, exclude=True)

    # Of the field: one of the model would get the JSON list, which strict mode takes for no tuple.
    @field_validator("match_fields")
    @classmethod
    def _only_labels(cls, _value: object) -> None:
        raise ValueError("matchFields is not supported, only matchExpressions is")


class NodeSelector(_Shape):
    """At least one term; one of them must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = Field(min_length=1)


class NodeAffinity(_Shape):
    """The hard rules of an affinity; preferences are refused."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class Affinity(_Shape):
    """Which machines a NodePool accepts."""

    node_affinity: NodeAffinity | None = None


def fault(affinity: Affinity | None) -> str | None:
    """The first fault, with its term, expression and key; None where there is none.

    In and NotIn need values, Exists and DoesNotExist take none, Gt and Lt take one integer; keys
    and values follow the grammar of labels. A term without expressions is a fault, because it
    accepts no machine.
    """
    for index, term in enumerate(_terms(affinity)):
        if not term.match_expressions:
            return f"nodeSelectorTerms[{index}] has no matchExpressions, so it matches no machine"
        for position, requirement in enumerate(term.match_expressions):
            if reason := _malformed(requirement):
                where = f"nodeSelectorTerms[{index}].matchExpressions[{position}]"
                return f"{where}, key {shown(requirement.key)}: {reason}"
    return None


def matches(affinity: Affinity | None, labels: Mapping[str, str]) -> bool:
    """Whether a machine with these labels is accepted; without an affinity every machine is.

    One term must hold, and of it every expression. NotIn and DoesNotExist hold where the key is
    absent; Gt and Lt hold for integers of 64 bits only. An expression with an unknown operator, or
    with values that do not fit its operator, never holds.
    """
    if _selector(affinity) is None:
        return True
    return any(_term_holds(term, labels) for term in _terms(affinity))


def satisfiable(
    affinity: Affinity | None, fixed: Mapping[str, str], open_keys: Collection[str]
) -> str | None:
    """Why no machine can ever be accepted, with the first such key of each term; None if one can.

    fixed: labels that every machine has, with these values.
    open_keys: labels that a machine may have, with any valid value; `fixed` takes precedence.

    Machines have no other labels. The result is exact: None means that some labels within these
    rules are accepted.
    """
    reasons: list[str] = []
    for index, term in enumerate(_terms(affinity)):
        reason = _impossible(term, fixed, open_keys)
        if reason is None:
            return None
        reasons.append(f"nodeSelectorTerms[{index}]: {reason}")
    return "; ".join(reasons) or None


def machine_labels(instance_type: InstanceType, zone: Zone) -> dict[str, str]:
    """The labels that every machine of this type in this zone has.

    The flavor of the backend fabric is one of them only for types that have such a fabric.
    """
    labels = {
        "node.kubernetes.io/instance-type": instance_type.id,
        "node.kubernetes.io/type": instance_type.id,
        "node.coreweave.cloud/class": instance_type.kind.value,
        "topology.kubernetes.io/region": zone.region,
        "topology.kubernetes.io/zone": zone.name,
        "kubernetes.io/arch": instance_type.arch,
    }
    if instance_type.backend:
        labels["backend.coreweave.cloud/flavor"] = instance_type.backend.value
    return labels


def _selector(affinity: Affinity | None) -> NodeSelector | None:
    if affinity is None or affinity.node_affinity is None:
        return None
    return affinity.node_affinity.required_during_scheduling_ignored_during_execution


def _terms(affinity: Affinity | None) -> tuple[NodeSelectorTerm, ...]:
    selector = _selector(affinity)
    return () if selector is None else selector.node_selector_terms


def _malformed(requirement: NodeSelectorRequirement) -> str | None:
    if reason := qualified_name(requirement.key) or _unfit(requirement):
        return reason
    return next(filter(None, map(label_value, requirement.values)), None)


def _unfit(requirement: NodeSelectorRequirement) -> str | None:
    """Why the values do not fit the operator, or None."""
    values = requirement.values
    match requirement.operator:
        case Operator.IN | Operator.NOT_IN:
            return None if values else f"operator {requirement.operator} needs at least one value"
        case Operator.EXISTS | Operator.DOES_NOT_EXIST:
            return f"operator {requirement.operator} takes no values" if values else None
        case Operator.GT | Operator.LT:
            if len(values) == 1 and _integer(values[0]) is not None:
                return None
            return f"operator {requirement.operator} needs exactly one integer value"
        case operator:
            return f"operator {shown(operator)} is not one of {', '.join(Operator)}"


def _term_holds(term: NodeSelectorTerm, labels: Mapping[str, str]) -> bool:
    expressions = term.match_expressions
    return bool(expressions) and all(_holds(each, labels.get(each.key)) for each in expressions)


def _holds(requirement: NodeSelectorRequirement, value: str | None) -> bool:
    """Whether the comparison holds for a label of this value; None is an absent label."""
    if _unfit(requirement):
        return False
    operator = requirement.operator
    if operator in (Operator.IN, Operator.NOT_IN):
        return (value in requirement.values) == (operator == Operator.IN)
    if operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST):
        return (value is None) == (operator == Operator.DOES_NOT_EXIST)
    number = None if value is None else _integer(value)
    bound = _integer(requirement.values[0])
    if number is None or bound is None:
        return False
    return number > bound if operator == Operator.GT else number < bound


def _impossible(
    term: NodeSelectorTerm, fixed: Mapping[str, str], open_keys: Collection[str]
) -> str | None:
    """Why the term accepts no possible machine, or None.

    Each key is checked alone: the value of one label does not limit that of another.
    """
    by_key: dict[str, list[NodeSelectorRequirement]] = {}
    for requirement in term.match_expressions:
        by_key.setdefault(requirement.key, []).append(requirement)
    for key, requirements in by_key.items():
        wanted = " and ".join(map(_text, requirements))
        if key in fixed:
            if not all(_holds(each, fixed[key]) for each in requirements):
                return f"key {shown(key)} is always {fixed[key]!r}, never {wanted}"
        elif key not in open_keys:
            if not all(_holds(each, None) for each in requirements):
                return f"key {shown(key)} is on no machine, so it is never {wanted}"
        elif not _possible(requirements):
            return f"key {shown(key)} cannot be {wanted} with any value"
    return None if by_key else "it has no matchExpressions, so it matches no machine"


def _possible(requirements: list[NodeSelectorRequirement]) -> bool:
    """Whether all these comparisons of one open key hold for some value, or for its absence."""
    if any(_unfit(each) for each in requirements):
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
    return any(all(_holds(each, value) for each in rest) for value in candidates)


def _numerals(requirements: list[NodeSelectorRequirement]) -> Iterator[str]:
    """Label values that are integers between the bounds of Gt and Lt, smallest first.

    A label value cannot begin with a sign, so none is negative; with leading zeros, each integer
    can be written in many ways.
    """
    first, end = 0, _INT64_END
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


def _integer(text: str) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -_INT64_END <= number < _INT64_END else None


def _text(requirement: NodeSelectorRequirement) -> str:
    operator = shown(requirement.operator) if _unfit(requirement) else requirement.operator
    if not requirement.values:
        return operator
    more = ", …" if len(requirement.values) > _VALUES_SHOWN else ""
    values = ", ".join(value[:LABEL_LIMIT] for value in requirement.values[:_VALUES_SHOWN])
    return f"{operator} [{values}{more}]"
