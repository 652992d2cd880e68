"""Convert the JSON of values that another release has written.

Each function returns a converter, or None if there is nothing to convert.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING

from pydantic import BaseModel

from nodepool.engine.codec import Decoder, Json, encode
from nodepool.engine.comparison import fields_of

Convert = Callable[[Json], Json]


def name_in_errors(
    where: str, convert: Convert | None, check: Decoder | None = None
) -> Convert | None:
    """Return what converts and checks a value, and raises ValueError with the name of its field."""
    if convert is None and check is None:
        return None

    def convert_field(raw: Json) -> Json:
        try:
            value = convert(raw) if convert else raw
            if check:
                check(value)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        return value

    return convert_field


def check_members(kind: type, gone: set[str]) -> Convert | None:
    """Return a check for values that no member has any more; None if there are none.

    gone: the values as a schema shows them.
    """
    if not gone:
        return None

    def check(raw: Json) -> Json:
        if repr(raw) in gone:
            raise ValueError(f"{kind.__name__} has no {raw!r:.100} any more, or with another name")
        return raw

    return check


def _wrong(raw: Json, kind: str) -> ValueError:
    return ValueError(f"{raw!r:.50} is no {kind}")


def convert_each(converters: Sequence[Convert | None]) -> Convert | None:
    """Return what converts a list with one item per converter."""
    if not any(converters):
        return None

    def convert(raw: Json) -> Json:
        if not isinstance(raw, list) or len(raw) != len(converters):
            raise _wrong(raw, f"list of {len(converters)}")
        pairs = zip(converters, raw, strict=True)
        return [convert(item) if convert else item for convert, item in pairs]

    return convert


def convert_all(converter: Convert | None) -> Convert | None:
    """Return what converts each item of a list."""
    if converter is None:
        return None

    def convert(raw: Json) -> Json:
        if not isinstance(raw, list):
            raise _wrong(raw, "list")
        return [converter(item) for item in raw]

    return convert


def convert_items(key: Convert | None, value: Convert | None) -> Convert | None:
    """Return what converts a mapping: a JSON object, or a list of pairs for a `Map`."""
    pair = convert_each((key, value))
    pairs = convert_all(pair)
    if pair is None or pairs is None:
        return None

    def convert(raw: Json) -> Json:
        if not isinstance(raw, dict):
            return pairs(raw)
        found: dict[str, Json] = {}
        for name, item in raw.items():
            found[str(key(name)) if key else name] = value(item) if value else item
        return found

    return convert


def convert_record(
    kind: type, written: Sequence[str], converters: Mapping[str, Convert | None]
) -> Convert:
    """Return what puts the values of a record in the order of this release, with its defaults.

    written: the names of its fields in the order in which they were written.
    """
    steps: list[tuple[int | None, Convert | None, Json]] = []
    for name, _, default in fields_of(kind):
        if name in converters:
            steps.append((written.index(name), converters[name], None))
        else:
            steps.append((None, None, None if default is MISSING else encode(default)))

    def convert(raw: Json) -> Json:
        if not isinstance(raw, list) or len(raw) != len(written):
            raise _wrong(raw, f"{kind.__name__} of {len(written)} fields")
        found: list[Json] = []
        for index, convert, default in steps:
            value = default if index is None else raw[index]
            found.append(convert(value) if convert else value)
        return found

    return convert


def convert_model(
    kind: type[BaseModel], written: Sequence[str], converters: Mapping[str, Convert | None]
) -> Convert:
    """Return what converts the document of a model, which lacks each field with its default."""
    is_by_alias = kind.model_config.get("serialize_by_alias", False)
    names: dict[str, str] = {}
    defaults: dict[str, Json] = {}
    for name, _, default in fields_of(kind):
        names[(is_by_alias and kind.model_fields[name].serialization_alias) or name] = name
        if not kind.model_fields[name].is_required():
            defaults[name] = encode(default)
    drops = any(name not in kind.model_fields for name in written)

    def convert(raw: Json) -> Json:
        if not isinstance(raw, dict):
            raise _wrong(raw, kind.__name__)
        found: dict[str, Json] = {}
        for key, item in raw.items():
            name = names.get(key, "")
            if name in converters:
                convert = converters[name]
                value = convert(item) if convert else item
                if name not in defaults or value != defaults[name]:
                    found[key] = value
            elif name or not drops:
                raise ValueError(f"{kind.__name__} had no field {key:.100}")
        return found

    return convert
