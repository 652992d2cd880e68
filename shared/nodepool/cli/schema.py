"""The fields of a NodePool as its model declares them: types, limits, documentation."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from nodepool.contract.model import ConditionStatus, ManifestMetadata, NodePoolSpec
from nodepool.contract.suggest import did_you_mean

Schema = Mapping[str, object]
"""A part of a JSON schema (https://json-schema.org/draft/2020-12)."""
_DOCUMENTED = re.compile(r"([a-z_]+(?:, [a-z_]+)*): (.*)")
_LIMITS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
}
_ABSENT = ("matchFields",)
"""Fields that the model has only to refuse them with a reason."""


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)


class ConditionShape(_Shape):
    """One statement about the NodePool: Validated, Capacity, Quota, AtTarget, NodesRemoved.

    type: which statement it is.
    status: whether it holds.
    reason: why, in one word.
    message: why, in a sentence with the numbers of now.
    last_transition_time: when the status changed last.
    observed_generation: the generation that the statement is about.
    """

    type: str
    status: ConditionStatus
    reason: str
    message: str
    last_transition_time: str
    observed_generation: int


class StatusShape(_Shape):
    """What has become of the NodePool so far; the control plane sets it.

    conditions: what is true of the NodePool, and why.
    current_nodes: how many of its Nodes have joined the cluster.
    in_progress: how many Nodes are assigned to it and have not joined yet.
    """

    conditions: tuple[ConditionShape, ...]
    current_nodes: int
    in_progress: int


class NodePoolShape(_Shape):
    """A pool of machines of one type, which join a cluster as its Nodes.

    api_version: the version of this format.
    kind: the type of the object.
    metadata: the name of the NodePool, and what identifies this version of it.
    spec: the desired state.
    status: what has become of it so far.
    """

    api_version: str
    kind: str
    metadata: ManifestMetadata
    spec: NodePoolSpec
    status: StatusShape | None = None


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an object.

    name: as a manifest writes it.
    type: such as `string`, `integer`, `[]Object` or `map[string]string`.
    text: its documentation, without a newline.
    required: whether a manifest must have it.
    notes: its limits, its default, and the values that it may have, each as one sentence.
    fields: the fields of the object, or of each object in the list, that it holds.
    about: the documentation of that object; empty for a plain value.
    """

    name: str
    type: str
    text: str
    required: bool
    notes: tuple[str, ...]
    fields: "tuple[Field, ...]"
    about: str


class NoSuchFieldError(LookupError):
    """A path names a field that does not exist; the text says which, and what there is instead."""


def find_field(path: Sequence[str]) -> Field:
    """The field of a NodePool at a path of names; the NodePool itself for the empty path.

    The keys of a map are no fields: a path into it leads to the map. Raises `NoSuchFieldError`.
    """
    field = nodepool()
    for name in path:
        if field.type.startswith("map["):
            return field
        inner = {each.name: each for each in field.fields}
        if name not in inner:
            hint = did_you_mean(name, inner) or f"; its fields: {', '.join(inner) or 'none'}"
            raise NoSuchFieldError(f"{field.name} has no field {name!r}{hint}")
        field = inner[name]
    return field


def nodepool() -> Field:
    """A NodePool as the field that `explain nodepool` is about."""
    schema = NodePoolShape.model_json_schema(by_alias=True)
    definitions = schema["$defs"]
    assert isinstance(definitions, dict), "the parts of a NodePool have names"
    return _field("nodepool", schema, _Reader(definitions), text="", required=True)


@dataclass(frozen=True, slots=True)
class _Reader:
    """The definitions that a schema refers to."""

    definitions: Mapping[str, Schema]

    def resolved(self, schema: Schema) -> Schema:
        """The schema itself, without references and without `null` as an alternative."""
        while True:
            alternatives = schema.get("anyOf")
            if isinstance(alternatives, list):
                chosen = next(each for each in alternatives if each.get("type") != "null")
                schema = {**chosen, **{k: v for k, v in schema.items() if k == "default"}}
            elif "$ref" in schema:
                target = self.definitions[str(schema["$ref"]).rpartition("/")[2]]
                schema = {**target, **{k: v for k, v in schema.items() if k == "default"}}
            else:
                return schema


def _field(name: str, given: Schema, reader: _Reader, *, text: str, required: bool) -> Field:
    schema = reader.resolved(given)
    items = schema.get("items")
    inner = reader.resolved(items) if isinstance(items, Mapping) else schema
    about, texts = _documentation(str(inner.get("description", "")))
    properties, needed = inner.get("properties"), inner.get("required")
    fields = tuple(
        _field(
            each,
            part,
            reader,
            text=texts.get(each, ""),
            required=isinstance(needed, list) and each in needed,
        )
        for each, part in (properties.items() if isinstance(properties, Mapping) else ())
        if each not in _ABSENT
    )
    kind = _type(schema, inner)
    return Field(name, kind, text, required, tuple(_notes(schema)), fields, about if fields else "")


def _type(schema: Schema, inner: Schema) -> str:
    if schema is not inner:
        return f"[]{_type(inner, inner)}"
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping):
        return f"map[string]{_type(values, values)}"
    kind = str(schema.get("type", "string"))
    return "Object" if kind == "object" else kind


def _notes(schema: Schema) -> Iterator[str]:
    limits = [text.format(schema[key]) for key, text in _LIMITS.items() if key in schema]
    if limits:
        yield f"Must be {' and '.join(limits)}."
    enum = schema.get("enum")
    if isinstance(enum, Sequence):
        yield f"One of {', '.join(map(str, enum))}."
    default = schema.get("default")
    if default not in (None, "", [], {}) and not isinstance(default, Mapping):
        shown = default if isinstance(default, str) else json.dumps(default)
        yield f"Default: {shown}."


def _documentation(text: str) -> tuple[str, Mapping[str, str]]:
    """The documentation of an object, and of its fields: the lines `name, name: text` of it."""
    about: list[str] = []
    texts: dict[str, str] = {}
    names: list[str] | None = None
    for line in map(str.strip, text.split("\n")):
        match = _DOCUMENTED.fullmatch(line)
        if match:
            names = [to_camel(name) for name in match[1].split(", ")]
            texts |= dict.fromkeys(names, match[2])
        elif not line:
            names = names and []
        elif names is None:
            about.append(line)
        else:
            texts |= {name: f"{texts[name]} {line}" for name in names}
    return " ".join(about), {name: f"{each[:1].upper()}{each[1:]}" for name, each in texts.items()}
