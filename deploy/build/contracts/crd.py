"""The CustomResourceDefinition of a NodePool, from the classes of a manifest.

The API server refuses by it what the validator refuses whatever is stored, at the same fields:
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/.
"""

from typing import Final

from contracts import crd_rules
from contracts.crd_status import STATUS
from contracts.schemas import Json, close_schema, schemas_of
from nodepool.contract.affinity import TERMS_FIELD
from nodepool.contract.columns import NODEPOOL_COLUMNS, PrinterColumn
from nodepool.contract.grammar import LABEL_LIMIT, TEXT_LIMIT
from nodepool.contract.model import API_VERSION, KIND, NodePoolSpec

GROUP, _, VERSION = API_VERSION.partition("/")
_REF: Final = "#/definitions/"
_NOT_STRUCTURAL: Final = ("additionalProperties", "const", "examples")


def crd() -> Json:
    """Return the whole CustomResourceDefinition."""
    plural = f"{KIND.lower()}s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": plural,
                "singular": KIND.lower(),
                "shortNames": ["np"],
                "categories": ["coreweave"],
            },
            "versions": [_version()],
        },
    }


def _make_column(column: PrinterColumn) -> Json:
    shown: Json = {"name": column.name, "type": column.type, "jsonPath": column.json_path}
    return {**shown, "priority": 1} if column.is_wide else shown


def _version() -> Json:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [_make_column(each) for each in NODEPOOL_COLUMNS],
        "schema": {"openAPIV3Schema": _object()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.targetNodes",
                "statusReplicasPath": ".status.currentNodes",
            },
        },
    }


def _object() -> Json:
    definitions = schemas_of([NodePoolSpec], _REF)
    spec = _structural(close_schema(definitions["NodePoolSpec"], definitions, _REF))
    for place, additions in crd_rules.ADDITIONS.items():
        _at(spec, place.removeprefix("spec").lstrip(".")).update(additions)
    # Absent is the same, and the documented output of `kubectl describe` shows none.
    _at(spec, "computeClass").pop("default")
    # It is there to be refused with a reason; here no field is known that is not declared.
    _properties(_at(spec, f"{TERMS_FIELD.removeprefix('spec.')}[]")).pop("matchFields")
    _bound(spec)
    return {
        "type": "object",
        "description": "A pool of Nodes of one instance type.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"Always {API_VERSION}."},
            "kind": {"type": "string", "description": f"Always {KIND}."},
            # Each Node of the NodePool has the name as the value of a label.
            "metadata": {
                "type": "object",
                "properties": {"name": {"type": "string", "maxLength": LABEL_LIMIT}},
            },
            "spec": spec,
            "status": STATUS,
        },
    }


def _structural(schema: object) -> Json:
    """Return the schema without alternatives: null is absent, and undeclared fields are pruned."""
    assert isinstance(schema, dict)
    alternatives = schema.get("anyOf")
    if isinstance(alternatives, list):
        chosen = next(each for each in alternatives if each.get("type") != "null")
        rest = {key: value for key, value in schema.items() if key != "anyOf"}
        return _structural({**chosen, **rest})
    result: Json = {key: schema[key] for key in schema if key not in _NOT_STRUCTURAL}
    if isinstance(result.get("type"), list):
        result["type"] = next(kind for kind in schema["type"] if kind != "null")
    if isinstance(schema.get("properties"), dict):
        result["properties"] = {
            name: _structural(each) for name, each in schema["properties"].items()
        }
    if isinstance(schema.get("additionalProperties"), dict):
        result["additionalProperties"] = _structural(schema["additionalProperties"])
    if "items" in schema:
        # A default in a list would differ from the manifest at each `kubectl apply`.
        result["items"] = _structural(schema["items"])
        for each in _object_properties(result["items"]):
            each.pop("default", None)
    if result.get("default") in ({}, [], ""):
        del result["default"]
    return result


def _object_properties(schema: object) -> list[Json]:
    assert isinstance(schema, dict)
    properties = schema.get("properties")
    return list(properties.values()) if isinstance(properties, dict) else []


def _bound(schema: Json) -> None:
    """Bound each text that has no bound yet."""
    if schema.get("type") == "string" and "enum" not in schema:
        schema.setdefault("maxLength", TEXT_LIMIT)
    for inner in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, dict):
            _bound(inner)
    for each in _object_properties(schema):
        _bound(each)


def _at(schema: Json, place: str) -> Json:
    """Return the schema of a field, such as `nodeTaints[].key`; `{}` is a value of a map."""
    found: object = schema
    names = place.replace("[]", ".[]").replace("{}", ".{}").strip(".")
    for name in names.split(".") if names else ():
        assert isinstance(found, dict)
        keyword = {"[]": "items", "{}": "additionalProperties"}.get(name)
        found = found[keyword] if keyword else _properties(found)[name]
    assert isinstance(found, dict)
    return found


def _properties(schema: Json) -> Json:
    properties = schema["properties"]
    assert isinstance(properties, dict)
    return properties
