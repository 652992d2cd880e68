"""The fields of a model as its class declares them: types, limits, defaults, documentation.

The documentation of a field is the line `name: text` in the docstring of its class.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

Schema = Mapping[str, object]
"""A part of a JSON schema (https://json-schema.org/draft/2020-12)."""
_DOCUMENTED = re.compile(r"([a-z_]+(?:, [a-z_]+)*): (.*)")
_BOUNDS = (
    ("minimum", "maximum", ""),
    ("minLength", "maxLength", " characters"),
    ("minItems", "maxItems", " items"),
)
"""The lower and the upper bound of a number, a text and a list, and the unit of both."""
_ABSENT = ("matchFields",)
"""Fields that a model has only to refuse them with a reason."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an object.

    name: as a manifest writes it.
    type: such as `string`, `integer`, `[]Object` or `map[string]string`.
    text: its documentation, without a newline; empty where its class has none.
    required: whether it must be there.
    limits: what it must be, and the values that it may have, each as one sentence.
    default: what it is where it is absent; empty for nothing.
    fields: the fields of the object, or of each object in the list, that it holds.
    about: the documentation of that object; empty for a plain value.
    """

    name: str
    type: str
    text: str
    required: bool
    limits: tuple[str, ...]
    default: str
    fields: "tuple[Field, ...]"
    about: str

    @property
    def notes(self) -> tuple[str, ...]:
        """The limits, and the default if there is one, each as one sentence."""
        return (*self.limits, f"Default: {self.default}.") if self.default else self.limits


def describe_model(model: type[BaseModel], name: str) -> Field:
    """Return an object of this class, described as a required field of this name."""
    schema = model.model_json_schema(by_alias=True)
    definitions = schema.get("$defs", {})
    return _field(name, schema, _Reader(definitions), text="", required=True)


@dataclass(frozen=True, slots=True)
class _Reader:
    """The definitions that a schema refers to."""

    definitions: Mapping[str, Schema]

    def resolve(self, schema: Schema) -> Schema:
        """Return the schema, without references and without `null` as an alternative."""
        while True:
            alternatives = schema.get("anyOf")
            if isinstance(alternatives, list):
                chosen = next(each for each in alternatives if each.get("type") != "null")
            elif "$ref" in schema:
                chosen = self.definitions[str(schema["$ref"]).rpartition("/")[2]]
            else:
                return schema
            schema = {**chosen, **{key: schema[key] for key in ("default",) if key in schema}}


def _field(name: str, given: Schema, reader: _Reader, *, text: str, required: bool) -> Field:
    schema = reader.resolve(given)
    items = schema.get("items")
    inner = reader.resolve(items) if isinstance(items, Mapping) else schema
    about, texts = documentation(str(inner.get("description", "")))
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
    return Field(
        name=name,
        type=_type(schema, inner),
        text=text,
        required=required,
        limits=tuple(_limits(schema)),
        default=_default(schema.get("default")),
        fields=fields,
        about=about if fields else "",
    )


def _type(schema: Schema, inner: Schema) -> str:
    if schema is not inner:
        return f"[]{_type(inner, inner)}"
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping):
        return f"map[string]{_type(values, values)}"
    kind = str(schema.get("type", "string"))
    return "Object" if kind == "object" else kind


def _limits(schema: Schema) -> Iterator[str]:
    for least, most, unit in _BOUNDS:
        if least in schema and most in schema:
            yield f"From {schema[least]} to {schema[most]}{unit}."
        elif least in schema:
            yield f"At least {schema[least]}{unit}."
        elif most in schema:
            yield f"At most {schema[most]}{unit}."
    values = schema.get("enum")
    if isinstance(values, Sequence):
        yield f"One of {', '.join(map(str, values))}."
    if "const" in schema:
        yield f"Always {schema['const']}."


def _default(value: object) -> str:
    if value in (None, "", [], {}) or isinstance(value, Mapping):
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def documentation(text: str) -> tuple[str, Mapping[str, str]]:
    """Return the documentation of an object, and of its fields: the lines `name, name: text`."""
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
