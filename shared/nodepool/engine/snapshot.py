"""What a replica has folded as lines of canonical JSON, and back; equal values make equal bytes."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from types import UnionType
from typing import Literal, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

from immutables import Map
from pydantic import BaseModel

from nodepool.engine.folded import Folded
from nodepool.service import S

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
Decoder = Callable[[Json], object]


def dump(folded: Folded[S]) -> Iterator[bytes]:
    """The state and the receipts, a line for each field; a map has a line for each entry.

    Maps are sorted by key, so that neither history nor hashing shows in the bytes. A field that
    holds maps of its own is taken apart likewise: no line grows with the state.
    """
    assert isinstance(folded, Folded), "a state alone lacks the receipts"
    yield from _lines(folded, "")


def _lines(value: object, prefix: str) -> Iterator[bytes]:
    hints = get_type_hints(type(value))
    for field in fields(value):  # type: ignore[arg-type]  # Only dataclasses come here.
        item, path = getattr(value, field.name), f"{prefix}{field.name}"
        if isinstance(item, Map) and get_origin(hints[field.name]) is Map:
            for key in sorted(item):
                yield _line(path, encode(key), encode(item[key]))
        elif _holds_maps(type(item)):
            yield from _lines(item, f"{path}.")
        else:
            yield _line(path, encode(item))


def _holds_maps(hint: object) -> bool:
    kind = get_origin(hint) or hint
    if not isinstance(kind, type) or not is_dataclass(kind):
        return False
    hints = get_type_hints(kind).values()
    return any(get_origin(hint) is Map or _holds_maps(hint) for hint in hints)


def load(state: type[S], lines: Iterable[bytes]) -> Folded[S]:
    """What was dumped as these lines, with a state of this class.

    Raises ValueError, TypeError or LookupError for lines of another form.
    """
    builder = _Builder(Folded, state=state)
    for line in lines:
        path, *rest = json.loads(line)
        builder.add(path, rest)
    folded = builder.build()
    assert isinstance(folded, Folded)
    return folded


class _Builder:
    """Takes the lines of one dataclass, then makes it."""

    def __init__(self, kind: object, **hints: object) -> None:
        """`kind` is the dataclass; `hints` are the types of fields that its own leave open."""
        self._kind = get_origin(kind) or kind
        self._name = getattr(self._kind, "__name__", "")
        self._values: dict[str, object] = {}
        self._entries: dict[str, dict[object, object]] = {}
        self._keys: dict[str, Decoder] = {}
        self._nested: dict[str, _Builder] = {}
        self._decoders: dict[str, Decoder] = {}
        for name, hint in {**get_type_hints(self._kind), **hints}.items():
            if get_origin(hint) is Map:
                self._entries[name] = {}
                self._keys[name], self._decoders[name] = map(decoder, get_args(hint))
            elif _holds_maps(hint):
                self._nested[name] = _Builder(hint)
            else:
                self._decoders[name] = decoder(hint)

    def add(self, path: str, rest: list[Json]) -> None:
        """Takes one line: where it belongs, and a value or a key and a value."""
        name, _, deeper = path.partition(".")
        if deeper and name in self._nested:
            self._nested[name].add(deeper, rest)
        elif deeper or name not in self._decoders:
            raise ValueError(f"{self._name} has no field {path}")
        elif name in self._entries:
            self._entries[name][self._keys[name](rest[0])] = self._decoders[name](rest[1])
        else:
            self._values[name] = self._decoders[name](rest[0])

    def build(self) -> object:
        """The dataclass; raises ValueError where a field is missing."""
        missing = set(self._decoders) - set(self._entries) - set(self._values)
        if missing:
            raise ValueError(f"{self._name} lacks {', '.join(sorted(missing))}")
        maps = {name: Map(found) for name, found in self._entries.items()}
        nested = {name: builder.build() for name, builder in self._nested.items()}
        # Which class it is comes from an annotation, which has no static type.
        made: object = self._kind(**self._values, **maps, **nested)  # type: ignore[operator]
        return made


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
            return value.astimezone(UTC).isoformat()
        case Map():
            return [[encode(key), encode(value[key])] for key in sorted(value)]
        case Mapping():
            return {str(key): encode(value[key]) for key in sorted(value)}
        case tuple() | list():
            return [encode(item) for item in value]
        case BaseModel():
            document: Json = value.model_dump(mode="json", exclude_defaults=True)
            return document
        case _ if is_dataclass(value):
            return [encode(getattr(value, field.name)) for field in fields(value)]
    raise TypeError(f"a state cannot hold {type(value).__name__}")


def decoder(hint: object) -> Decoder:
    """A function that turns what `encode` made of a value of this type back into it.

    It raises ValueError for what is of another shape.
    """
    if isinstance(hint, NewType):
        return decoder(hint.__supertype__)
    if isinstance(hint, TypeVar):
        return decoder(hint.__bound__)
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
        return _mapping
    kind = origin if is_dataclass(origin) else hint
    assert isinstance(kind, type), f"a state cannot hold {hint}"
    return _plain(kind)


def _items(raw: Json) -> list[Json]:
    if isinstance(raw, list):
        return raw
    raise ValueError(f"{raw!r:.50} is no list")


def _each(*decoders: Decoder) -> Callable[[Json], tuple[object, ...]]:
    """A decoder for a list with one item for each of these."""
    return lambda raw: tuple(
        decode(item) for decode, item in zip(decoders, _items(raw), strict=True)
    )


def _mapping(raw: Json) -> object:
    """Any mapping with text for keys: plain JSON, or a persistent map as a list of pairs."""
    if isinstance(raw, list):
        return Map({str(name): value for name, value in map(_items, raw)})
    return raw


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
    if issubclass(kind, tuple):
        return _named_tuple(kind)
    if issubclass(kind, datetime):
        return lambda raw: datetime.fromisoformat(str(raw)).astimezone(UTC)
    if issubclass(kind, BaseModel):
        return kind.model_validate
    if issubclass(kind, Enum):
        return kind
    if is_dataclass(kind):
        return _record(kind)
    return lambda raw: raw


def _named_tuple(kind: type) -> Decoder:
    parts = _each(*map(decoder, get_type_hints(kind).values()))
    return lambda raw: kind(*parts(raw))


def _record(kind: type) -> Decoder:
    hints = get_type_hints(kind)
    parts = _each(*(decoder(hints[field.name]) for field in fields(kind)))
    return lambda raw: kind(*parts(raw))
