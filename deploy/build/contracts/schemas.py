"""JSON schemas of the models, tidied for people and editors: documented, short, without titles.

What they are made from is pydantic's own schema of what a reader takes. Pydantic titles each field,
writes a value that may be null as two alternatives, and leaves the documentation of a field in the
docstring of its class.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from nodepool.contract.reference import documentation

Json = dict[str, object]
"""A JSON object."""
REF: Final = "#/components/schemas/"
_AS_THEY_ARE: Final = frozenset(("enum", "default", "const", "required", "examples"))
"""Keywords whose values are no schemas."""


def schemas_of(models: Iterable[type[BaseModel]], ref: str = REF) -> dict[str, Json]:
    """Return the schemas of models and all nested models, by name; references begin with `ref`."""
    asked = [(model, "validation") for model in models]
    _, whole = models_json_schema(asked, ref_template=f"{ref}{{model}}")  # type: ignore[arg-type]
    return {name: tidy_schema(schema) for name, schema in sorted(whole["$defs"].items())}


def tidy_schema(schema: Mapping[str, object]) -> Json:
    """Return the schema without titles, with the documentation of each field at that field."""
    about, texts = documentation(str(schema.get("description", "")))
    result: Json = {}
    for keyword, value in schema.items():
        if keyword == "title" and isinstance(value, str):
            continue
        if keyword == "properties" and isinstance(value, Mapping):
            result[keyword] = {
                name: _document_schema(tidy_schema(each), texts.get(name, ""))
                for name, each in value.items()
            }
        else:
            result[keyword] = _tidy_value(keyword, value)
    if about:
        result["description"] = about
    return _without_null_default(_nullable(result))


def _tidy_value(keyword: str, value: object) -> object:
    if keyword in _AS_THEY_ARE:
        return value
    if isinstance(value, Mapping):
        return tidy_schema(value)
    if isinstance(value, list):
        return [tidy_schema(each) if isinstance(each, Mapping) else each for each in value]
    return value


def _document_schema(schema: Json, text: str) -> Json:
    if not text:
        return schema
    # What stands beside a reference is ignored by many tools.
    whole = {"allOf": [{"$ref": schema.pop("$ref")}], **schema} if "$ref" in schema else schema
    return {"description": text, **whole}


def _nullable(schema: Json) -> Json:
    """Return a nullable schema as one schema, unless the value is a reference or an enum."""
    alternatives = schema.get("anyOf")
    if not isinstance(alternatives, list) or len(alternatives) != 2:
        return schema
    first, second = alternatives
    kind = first.get("type")
    if second != {"type": "null"} or not isinstance(kind, str) or "enum" in first:
        return schema
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    return {**first, "type": [kind, "null"], **rest}


def _without_null_default(schema: Json) -> Json:
    if schema.get("default", "") is None:
        del schema["default"]
    return schema


def close_schema(schema: object, definitions: Mapping[str, Json], ref: str) -> object:
    """Return a schema with its references inlined, which refuses unknown fields."""
    if isinstance(schema, list):
        return [close_schema(each, definitions, ref) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return close_schema(definitions[str(schema["$ref"]).removeprefix(ref)], definitions, ref)
    result = {
        key: value if key in _AS_THEY_ARE else close_schema(value, definitions, ref)
        for key, value in schema.items()
    }
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        result.setdefault("additionalProperties", False)
    whole = result.pop("allOf", None)
    return {**whole[0], **result} if isinstance(whole, list) else result
