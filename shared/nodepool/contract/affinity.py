"""Which machines a NodePool's node affinity accepts.

Shape and meaning are those of a Pod's node affinity:
https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#node-affinity.
"""

import re
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel

from nodepool.contract.catalog import InstanceType, Zone
from nodepool.contract.grammar import LABEL_LIMIT, format_quoted, label_value, qualified_name
from nodepool.contract.words import Word

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

TERMS_MAX: Final = 32
"""The most terms of a node affinity."""
EXPRESSIONS_MAX: Final = 16
"""The most expressions of a term."""
VALUES_MAX: Final = 1_000
"""The most values of all expressions together."""

_INTEGER: Final = re.compile(rf"[+-]?[0-9]{{1,{LABEL_LIMIT}}}")
INT64_END: Final = 2**63
"""Gt and Lt compare integers of 64 bits: this is the first that is too large."""


class Operator(Word):
    """How a label is compared with the values of an expression."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


class _Shape(BaseModel):
    model_config = ConfigDict(
        defer_build=True,
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        serialize_by_alias=True,
    )


class NodeSelectorRequirement(_Shape):
    """One comparison of one label; operator and values may be any text, which is checked later.

    key: the key of the label.
    operator: how it is compared: In, NotIn, Exists, DoesNotExist, Gt or Lt.
    values: what it is compared with; one integer for Gt and Lt, none for Exists and DoesNotExist.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(_Shape):
    """Comparisons that must all hold; a term without any accepts no machine.

    match_expressions: the comparisons.
    """

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: Any = Field(default=None, exclude=True)

    # Of the field: one of the model would get the JSON list, which strict mode takes for no tuple.
    @field_validator("match_fields")
    @classmethod
    def _only_labels(cls, _value: object) -> None:
        raise ValueError("matchFields is not supported, only matchExpressions is")


class NodeSelector(_Shape):
    """At least one term, at most 32 with 16 expressions each and 1,000 values; one must hold.

    node_selector_terms: the terms.
    """

    node_selector_terms: tuple[NodeSelectorTerm, ...] = Field(min_length=1)


class NodeAffinity(_Shape):
    """The hard rules of an affinity; preferences are refused.

    required_during_scheduling_ignored_during_execution: what a machine must have to become a Node.
    """

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class Affinity(_Shape):
    """Which machines a NodePool accepts.

    node_affinity: rules for the labels of a machine.
    """

    node_affinity: NodeAffinity | None = None


TERMS_FIELD: Final = (
    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
)
"""Where the terms lie in a manifest."""


def find_excess(affinity: Affinity | None) -> tuple[str, str] | None:
    """Return the field of a manifest that is too large, and why; None if no field is too large.

    Every machine that becomes free is checked against every NodePool that waits, so the cost of a
    NodePool is limited.
    """
    listed = terms(affinity)
    if len(listed) > TERMS_MAX:
        return TERMS_FIELD, f"has {len(listed)} terms, more than the {TERMS_MAX} allowed"
    for index, term in enumerate(listed):
        count = len(term.match_expressions)
        if count > EXPRESSIONS_MAX:
            field = f"{TERMS_FIELD}[{index}].matchExpressions"
            return field, f"has {count} expressions, more than the {EXPRESSIONS_MAX} allowed"
    values = sum(len(each.values) for term in listed for each in term.match_expressions)
    if values > VALUES_MAX:
        return TERMS_FIELD, f"has {values} values, more than the {VALUES_MAX} allowed"
    return None


def fault(affinity: Affinity | None) -> str | None:
    """Return the first fault, with its term, expression and key; None if the affinity is valid.

    In and NotIn need values, Exists and DoesNotExist take none, Gt and Lt take one integer; keys
    and values follow the grammar of labels. A term without expressions is a fault, because it
    accepts no machine.
    """
    for index, term in enumerate(terms(affinity)):
        if not term.match_expressions:
            return f"nodeSelectorTerms[{index}] has no matchExpressions, so it matches no machine"
        for position, requirement in enumerate(term.match_expressions):
            if reason := _find_fault(requirement):
                where = f"nodeSelectorTerms[{index}].matchExpressions[{position}]"
                return f"{where}, key {format_quoted(requirement.key)}: {reason}"
    return None


def machine_labels(instance_type: InstanceType, zone: Zone) -> dict[str, str]:
    """Return the labels that every machine of this type in this zone has.

    The label of the backend flavor is included only for types with a backend fabric.
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


def terms(affinity: Affinity | None) -> tuple[NodeSelectorTerm, ...]:
    """Return the terms of an affinity, of which one must hold; empty if it accepts all machines."""
    selector = _selector(affinity)
    return () if selector is None else selector.node_selector_terms


def with_rules(affinity: Affinity | None) -> Affinity | None:
    """Return the affinity, but None for one without rules: a document of a spec leaves it out."""
    return affinity if terms(affinity) else None


def _find_fault(requirement: NodeSelectorRequirement) -> str | None:
    if reason := qualified_name(requirement.key) or unfit(requirement):
        return reason
    return next(filter(None, map(label_value, requirement.values)), None)


def unfit(requirement: NodeSelectorRequirement) -> str | None:
    """Return why the values of a comparison do not fit its operator, or None."""
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
            return f"operator {format_quoted(operator)} is not one of {', '.join(Operator)}"


def holds(requirement: NodeSelectorRequirement, value: str | None) -> bool:
    """Return whether a comparison holds for a label of this value; None is an absent label.

    NotIn and DoesNotExist hold if the label is absent; Gt and Lt hold only for integers of 64 bits.
    A comparison with an unknown operator, or with values that do not fit its operator, never holds.
    """
    if unfit(requirement):
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


def _integer(text: str) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -INT64_END <= number < INT64_END else None
