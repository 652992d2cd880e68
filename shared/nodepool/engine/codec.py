"""Convert values of a state to plain JSON and back, and check every type.

The keys of each JSON object are sorted.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from operator import attrgetter
from types import UnionType
from typing import Any, Literal, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

from immutables import Map
from pydantic import BaseModel

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
Decoder = Callable[[Json], object]


_Encoder = Callable[[Any], Json]
_ENCODERS: dict[type, _Encoder] = {}
"""The encoder of each type, determined once: a snapshot has millions of values."""
MODELS_MAX, MODEL_MAX = 4_096, 500
"""The most documents of a model to cache, and their maximum length: many Nodes have equal ones."""


_PLAIN = frozenset((str, int, bool, float, type(None)))
"""The types of most values; a value of such a type is its own JSON."""


def encode(value: object) -> Json:
    """Return a value of a state as plain JSON; raise TypeError for a value no state can hold."""
    kind = type(value)
    if kind in _PLAIN:
        return value  # type: ignore[return-value]  # It has one of these types.
    encoder = _ENCODERS.get(kind)
    if encoder is None:
        encoder = _ENCODERS[kind] = _encoder(kind)
    return encoder(value)


def _encoder(kind: type) -> _Encoder:
    if issubclass(kind, Enum):
        return lambda value: encode(value.value)
    if kind is type(None) or issubclass(kind, bool | int | float | str):
        return lambda value: value
    if issubclass(kind, datetime):
        return _encode_moment
    if issubclass(kind, Map):
        return lambda value: [[encode(key), encode(value[key])] for key in sorted(value)]
    if issubclass(kind, Mapping):
        return _encode_mapping
    if issubclass(kind, tuple | list):
        return _encode_items
    if issubclass(kind, BaseModel):
        return lambda value: _sort(value.model_dump(mode="json", exclude_defaults=True))
    if is_dataclass(kind):
        names = [field.name for field in fields(kind)]
        if len(names) > 1:
            read = attrgetter(*names)
            return lambda value: _encode_items(read(value))
        return lambda value: [encode(getattr(value, name)) for name in names]
    raise TypeError(f"a state cannot hold {kind.__name__}")


# Plain values are most of a snapshot, so their encoding is not a call.


def _encode_items(values: Iterable[Any]) -> list[Json]:
    return [value if type(value) in _PLAIN else encode(value) for value in values]


def _encode_mapping(values: Mapping[Any, Any]) -> dict[str, Json]:
    return {
        str(key): item if type(item := values[key]) in _PLAIN else encode(item)
        for key in sorted(values)
    }


def _sort(document: Json) -> Json:
    """Return a document with the keys of all its objects sorted, as a snapshot has them."""
    if isinstance(document, dict):
        return {key: _sort(document[key]) for key in sorted(document)}
    return [_sort(item) for item in document] if isinstance(document, list) else document


def _encode_moment(moment: datetime) -> str:
    return (moment if moment.tzinfo is UTC else moment.astimezone(UTC)).isoformat()


@cache
def decoder(hint: object) -> Decoder:
    """Return the decoder that turns the JSON of a value of this type back into the value.

    The decoder raises ValueError for JSON that `encode` makes of no value of this type.
    """
    if isinstance(hint, NewType):
        return decoder(hint.__supertype__)
    if isinstance(hint, TypeVar):
        return decoder(hint.__bound__)
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _optional(args)
    if origin is Literal:
        return _one_of({(type(value), value): value for value in args})
    if origin is Map:
        return _map(*map(decoder, args))
    if origin is tuple:
        return _tuple(args)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(*map(decoder, args))
    kind = origin if is_dataclass(origin) else hint
    assert isinstance(kind, type), f"a state cannot hold {hint}"
    return _plain(kind)


def _wrong(raw: Json, wanted: str) -> ValueError:
    return ValueError(f"{raw!r:.50} is no {wanted}")


def _items(raw: Json) -> list[Json]:
    if isinstance(raw, list):
        return raw
    raise _wrong(raw, "list")


def _each(*decoders: Decoder) -> Callable[[Json], tuple[object, ...]]:
    """Return a decoder for a list with one item per decoder."""

    def decode(raw: Json) -> tuple[object, ...]:
        if type(raw) is not list or len(raw) != len(decoders):
            raise _wrong(raw, f"list of {len(decoders)}")
        return tuple([decode(item) for decode, item in zip(decoders, raw, strict=True)])

    return decode


def _pairs(key: Decoder, item: Decoder, raw: list[Json]) -> dict[object, object]:
    """Return the decoded pairs of a key and an item; raise ValueError for a duplicate key."""
    pair = _each(key, item)
    decoded: dict[object, object] = {}
    for name, value in map(pair, raw):
        decoded[name] = value
    if len(decoded) < len(raw):
        raise ValueError("a key is there twice")
    return decoded


def _map(key: Decoder, item: Decoder) -> Decoder:
    return lambda raw: Map(_pairs(key, item, _items(raw)))


def _mapping(key: Decoder, item: Decoder) -> Decoder:
    """Return a decoder for a mapping with text keys: a JSON object, or pairs for a `Map`."""

    def decode(raw: Json) -> object:
        if isinstance(raw, dict):
            return {key(name): item(value) for name, value in raw.items()}
        return Map(_pairs(key, item, _items(raw)))

    return decode


def _optional(args: tuple[object, ...]) -> Decoder:
    (inner,) = (decoder(arg) for arg in args if arg is not type(None))
    return lambda raw: None if raw is None else inner(raw)


def _one_of(values: Mapping[tuple[type, object], object]) -> Decoder:
    """Return a decoder for these plain values, each with its type, because True equals 1."""

    def decode(raw: Json) -> object:
        if not isinstance(raw, str | int) or (type(raw), raw) not in values:
            raise ValueError(f"{raw!r:.50} is none of {', '.join(str(name) for _, name in values)}")
        return values[type(raw), raw]

    return decode


def _tuple(args: tuple[object, ...]) -> Decoder:
    if len(args) == 2 and args[1] is Ellipsis:
        item = decoder(args[0])
        return lambda raw: tuple(map(item, _items(raw)))
    return _each(*map(decoder, args))


def _plain(kind: type) -> Decoder:
    if simple := _SIMPLE.get(kind):
        return simple
    if issubclass(kind, tuple):
        return _record(kind, list(get_type_hints(kind).values()))
    if issubclass(kind, BaseModel):
        return _model(kind)
    if issubclass(kind, Enum):
        return _one_of({(type(member.value), member.value): member for member in kind})
    assert is_dataclass(kind), f"a state cannot hold {kind.__name__}"
    hints = get_type_hints(kind)
    return _record(kind, [hints[field.name] for field in fields(kind)])


def _record(kind: type, hints: list[object]) -> Decoder:
    parts = _each(*map(decoder, hints))
    return lambda raw: kind(*parts(raw))


def _model(kind: type[BaseModel]) -> Decoder:
    known: dict[str, BaseModel] = {}

    def decode(raw: Json) -> object:
        document = repr(raw)
        if (model := known.get(document)) is not None:
            return model
        model = kind.model_validate(raw)
        # A model is lenient with its input: it converts values, and ignores unknown fields.
        if encode(model) != raw:
            raise _wrong(raw, kind.__name__)
        if len(document) <= MODEL_MAX and len(known) < MODELS_MAX:
            known[document] = model
        return model

    return decode


def _text(raw: Json) -> str:
    if type(raw) is not str:
        raise _wrong(raw, "text")
    if not raw.isascii():
        raw.encode()  # Raises ValueError for a lone surrogate, which cannot be stored.
    return raw


def _integer(raw: Json) -> int:
    if type(raw) is not int:
        raise _wrong(raw, "integer")
    return raw


def _number(raw: Json) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not math.isfinite(raw):
        raise _wrong(raw, "number")
    return raw


def _truth(raw: Json) -> bool:
    if type(raw) is not bool:
        raise _wrong(raw, "truth value")
    return raw


def _moment(raw: Json) -> datetime:
    moment = datetime.fromisoformat(_text(raw))
    if moment.tzinfo is not UTC or moment.isoformat() != raw:
        raise _wrong(raw, "moment in UTC")
    return moment


_SIMPLE: Mapping[object, Decoder] = {
    str: _text,
    int: _integer,
    float: _number,
    bool: _truth,
    datetime: _moment,
}
