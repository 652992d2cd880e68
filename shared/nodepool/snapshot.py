"""A service's state as lines of canonical JSON, and back; equal states make equal bytes."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from types import UnionType
from typing import Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from immutables import Map
from pydantic import BaseModel

S = TypeVar("S")
Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
Decoder = Callable[[Json], object]


def dump(state: object) -> Iterator[bytes]:
    """The state, a line for each field and for each entry of a field that is a map.

    Maps are sorted by key, so that neither history nor hashing shows in the bytes.
    """
    assert is_dataclass(state), "a service's state is a dataclass"
    for field in fields(state):
        value = getattr(state, field.name)
        if isinstance(value, Map):
            for key in sorted(value):
                yield _line(field.name, key, encode(value[key]))
        else:
            yield _line(field.name, encode(value))


def load(kind: type[S], lines: Iterable[bytes]) -> S:
    """The state that these lines came from; raises ValueError where they are of another shape."""
    hints = get_type_hints(kind)
    maps = {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Map}
    decoders = {name: decoder(hint) for name, hint in hints.items() if name not in maps}
    entries: dict[str, dict[object, object]] = {name: {} for name in maps}
    values: dict[str, object] = {}
    values_of = {name: decoder(args[1]) for name, args in maps.items()}
    for line in lines:
        name, *rest = json.loads(line)
        if name in maps:
            entries[name][rest[0]] = values_of[name](rest[1])
        elif name in decoders:
            values[name] = decoders[name](rest[0])
        else:
            raise ValueError(f"{kind.__name__} has no field {name}")
    missing = set(decoders) - set(values)
    if missing:
        raise ValueError(f"{kind.__name__} lacks {', '.join(sorted(missing))}")
    return kind(**values, **{name: Map(found) for name, found in entries.items()})


def _line(*parts: object) -> bytes:
    return json.dumps(parts, separators=(",", ":"), sort_keys=True).encode()


def encode(value: object) -> Json:
    """A value of a state as plain JSON."""
    match value:
        case Enum():
            return encode(value.value)
        case None | bool() | int() | float() | str():
            return value
        case datetime():
            return value.isoformat()
        case Map():
            return [[encode(key), encode(value[key])] for key in sorted(value)]
        case Mapping():
            return {str(key): encode(value[key]) for key in sorted(value)}
        case tuple() | list():
            return [encode(item) for item in value]
        case BaseModel():
            found: Json = value.model_dump(mode="json", exclude_defaults=True)
            return found
        case _ if is_dataclass(value):
            return [encode(getattr(value, field.name)) for field in fields(value)]
    raise TypeError(f"a state cannot hold {type(value).__name__}")


def decoder(hint: object) -> Decoder:
    """A function that turns what `encode` made of a value of this type back into it.

    It raises ValueError for what is of another shape.
    """
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _optional(args)
    if origin is Literal:
        return _one_of(args)
    if origin is Map:
        return _map(*map(decoder, args))
    if origin is tuple:
        return _tuple(args)
    if origin is not None and issubclass(origin, Mapping):
        return lambda raw: raw
    assert isinstance(hint, type), f"a state cannot hold {hint}"
    return _plain(hint)


def _items(raw: Json) -> list[Json]:
    if isinstance(raw, list):
        return raw
    raise ValueError(f"{raw!r:.50} is no list")


def _each(*decoders: Decoder) -> Callable[[Json], tuple[object, ...]]:
    """A decoder for a list with one item for each of these."""
    return lambda raw: tuple(
        decode(item) for decode, item in zip(decoders, _items(raw), strict=True)
    )


def _map(key: Decoder, item: Decoder) -> Decoder:
    return lambda raw: Map({key(name): item(value) for name, value in map(_items, _items(raw))})


def _optional(args: tuple[object, ...]) -> Decoder:
    (inner,) = (decoder(arg) for arg in args if arg is not type(None))
    return lambda raw: None if raw is None else inner(raw)


def _one_of(values: tuple[object, ...]) -> Decoder:
    def decode(raw: Json) -> object:
        if raw not in values:
            raise ValueError(f"{raw!r:.50} is none of {', '.join(map(str, values))}")
        return raw

    return decode


def _tuple(args: tuple[object, ...]) -> Decoder:
    if len(args) == 2 and args[1] is Ellipsis:
        item = decoder(args[0])
        return lambda raw: tuple(map(item, _items(raw)))
    return _each(*map(decoder, args))


def _plain(kind: type) -> Decoder:
    if issubclass(kind, datetime):
        return lambda raw: datetime.fromisoformat(str(raw)).astimezone(UTC)
    if issubclass(kind, BaseModel):
        return kind.model_validate
    if issubclass(kind, Enum):
        return kind
    if is_dataclass(kind):
        return _record(kind)
    return lambda raw: raw


def _record(kind: type) -> Decoder:
    hints = get_type_hints(kind)
    parts = _each(*(decoder(hints[field.name]) for field in fields(kind)))
    return lambda raw: kind(*parts(raw))
