"""The JSON schema of a NodePool manifest, for editors: `make contracts` writes it.

It refuses nothing that the control plane takes, and what it lacks the control plane refuses: that a
minimum is no more than the target, an instance type without racks that has `targetRacks`, a taint
that is repeated, annotations that are too large together.
"""

from typing import Final

from contracts.schemas import Json, close_schema, schemas_of
from nodepool.contract.affinity import EXPRESSIONS_MAX, TERMS_MAX, Operator
from nodepool.contract.catalog import INSTANCE_TYPES, ZONES
from nodepool.contract.commands import ApplyNodePool
from nodepool.contract.grammar import (
    DNS_SUBDOMAIN,
    LABEL_LIMIT,
    NAME,
    SUBDOMAIN_LIMIT,
    TAINT_EFFECTS,
    TEXT_LIMIT,
)
from nodepool.contract.model import MANAGED_TAINTS

DIALECT: Final = "http://json-schema.org/draft-07/schema#"
"""The newest one that editors know throughout."""
_REF: Final = "#/definitions/"
_FIELDS: Final = ("apiVersion", "kind", "metadata", "spec", "status")
_VALUE: Final[Json] = {
    "type": "string",
    "maxLength": LABEL_LIMIT,
    "pattern": f"^({NAME.pattern})?$",
}
_KEY: Final[Json] = {
    "maxLength": SUBDOMAIN_LIMIT + 1 + LABEL_LIMIT,
    "pattern": f"^({DNS_SUBDOMAIN.pattern}/)?{NAME.pattern}$",
}
_LABELS: Final[Json] = {"propertyNames": _KEY, "additionalProperties": _VALUE}
_NOT_RESERVED: Final[Json] = {
    "anyOf": [
        {"const": "cks.coreweave.cloud/system-critical"},
        {"not": {"pattern": r"^([^/]*\.)?coreweave\.(cloud|com)/"}},
    ]
}
# Capitals are allowed in the prefix of an annotation, and a capital may be of any alphabet.
_ANNOTATIONS: Final[Json] = {"propertyNames": {"pattern": "^[^/]+(/[^/]+)?$"}}
_LIMITS: Final[dict[str, Json]] = {
    "metadata.name": {"maxLength": LABEL_LIMIT, "pattern": f"^{DNS_SUBDOMAIN.pattern}$"},
    "metadata.labels": _LABELS,
    "metadata.annotations": _ANNOTATIONS,
    "spec.instanceType": {
        "pattern": f"^{NAME.pattern}$",
        "anyOf": [{"enum": sorted(INSTANCE_TYPES)}, {"type": "string"}],
    },
    "spec.region": {
        "anyOf": [{"enum": sorted(ZONES)}, {"type": ["string", "null"]}],
        "maxLength": TEXT_LIMIT,
    },
    "spec.image.name": {"maxLength": TEXT_LIMIT},
    "spec.image.kernel": {"maxLength": TEXT_LIMIT},
    "spec.nodeLabels": {**_LABELS, "propertyNames": {**_KEY, **_NOT_RESERVED}},
    "spec.nodeAnnotations": _ANNOTATIONS,
    "spec.nodeTaints[].key": _KEY,
    "spec.nodeTaints[].value": _VALUE,
    "spec.nodeTaints[].effect": {"enum": list(TAINT_EFFECTS)},
    "spec.nodeTaints[]": {
        "not": {
            "anyOf": [
                {"properties": {"key": {"const": taint.key}, "effect": {"const": taint.effect}}}
                for taint in MANAGED_TAINTS
            ],
        }
    },
}
"""What the validator refuses, by the place in a manifest, beyond what the classes declare.

Alternatives that refuse nothing are what an editor proposes.
"""
_AUTOSCALED: Final[Json] = {
    "if": {"properties": {"autoscaling": {"const": True}}, "required": ["autoscaling"]},
    "then": {"required": ["minNodes", "maxNodes"]},
}
_TARGETS: Final[Json] = {
    "oneOf": [
        {
            "required": [given],
            "properties": {given: {"type": "integer"}, left_out: {"type": "null"}},
        }
        for given, left_out in (("targetNodes", "targetRacks"), ("targetRacks", "targetNodes"))
    ]
    + [
        {
            "required": ["autoscaling"],
            "properties": {
                "autoscaling": {"const": True},
                "targetNodes": {"type": "null"},
                "targetRacks": {"type": "null"},
            },
        }
    ]
}


def manifest_schema() -> Json:
    """Return the JSON schema of a manifest."""
    definitions = schemas_of([ApplyNodePool], _REF)
    whole = close_schema(definitions["ApplyNodePool"], definitions, _REF)
    assert isinstance(whole, dict)
    for place, limits in _LIMITS.items():
        _at(whole, place).update(limits)
    _at(whole, "spec").update({**_AUTOSCALED, **_TARGETS})
    _limit_affinity(_at(whole, "spec.affinity"))
    properties = {name: _at(whole, name) for name in _FIELDS}
    for name in ("apiVersion", "kind"):
        properties[name].pop("default", None)
    return {
        "$schema": DIALECT,
        "title": "NodePool",
        "description": "A pool of Nodes of one instance type.",
        "type": "object",
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "additionalProperties": False,
        "properties": properties,
    }


def _limit_affinity(affinity: Json) -> None:
    required = _at(affinity, "nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution")
    _at(required, "nodeSelectorTerms")["maxItems"] = TERMS_MAX
    expressions = _at(required, "nodeSelectorTerms[].matchExpressions")
    expressions["maxItems"] = EXPRESSIONS_MAX
    # It is there to be refused with a reason.
    _properties(_at(required, "nodeSelectorTerms[]")).pop("matchFields")
    operator = _at(expressions, "[].operator")
    operator["anyOf"] = [{"enum": list(Operator)}, {"type": "string"}]


def _at(schema: Json, place: str) -> Json:
    """Return the schema of a field of an object, such as `spec.nodeTaints[].key`."""
    found: object = schema
    for name in place.replace("[]", ".[]").strip(".").split("."):
        found = _object(found)
        found = found["items"] if name == "[]" else _properties(found)[name]
    return _object(found)


def _object(schema: object) -> Json:
    """Return the schema itself, or its alternative that is not null."""
    assert isinstance(schema, dict)
    alternatives = schema.get("anyOf")
    if not isinstance(alternatives, list) or "type" in schema:
        return schema
    return _object(next(each for each in alternatives if each.get("type") != "null"))


def _properties(schema: Json) -> Json:
    properties = schema["properties"]
    assert isinstance(properties, dict)
    return properties
