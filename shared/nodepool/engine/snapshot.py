"""Write a folded value as lines of canonical JSON, and read it; equal values make equal bytes."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Generic, TypeVar, get_args, get_origin, get_type_hints

from immutables import Map
from pydantic_core import to_json

from nodepool.contract.exceptions import NO_FAILURE, describe
from nodepool.engine.codec import Decoder, Json, decoder, encode
from nodepool.engine.folded import Folded
from nodepool.engine.schema import Schema, schema
from nodepool.service import S

T = TypeVar("T")
_SCHEMA = "schema"
"""The path of the first line, which holds the names and types of all others; no field has it."""


def dump(folded: Folded[S]) -> Iterator[bytes]:
    """Yield the schema, the state and the receipts: a line per field, or per entry of a map.

    Maps are sorted by key, so that neither history nor hashing shows in the bytes. A field whose
    value holds maps is split in the same way, so that no line grows with the state.
    """
    assert isinstance(folded, Folded), "a state alone lacks the receipts"
    yield _line(_SCHEMA, _schema(type(folded.state)))
    yield from _lines(folded, "")


def _schema(state: type) -> Schema:
    return [*schema(state), *schema(Folded)]


def _lines(value: object, prefix: str) -> Iterator[bytes]:
    hints = get_type_hints(type(value))
    for field in fields(value):  # type: ignore[arg-type]  # The value is always a dataclass.
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


def _line(*parts: object) -> bytes:
    return to_json(parts)  # A fourth of the cost of the standard library.


def load(state: type[S], lines: Iterable[bytes]) -> Folded[S]:
    """Return the folded value that was dumped as these lines; raise the errors of `Loader`.

    state: the class of the state.
    """
    loader = Loader(state)
    for line in lines:
        loader.add(line)
    return loader.build_folded()


class Loader(Generic[S]):
    """Builds a folded value from its lines, one after the other.

    For any lines, each method either returns or raises ValueError. MemoryError does not mean that
    the lines are wrong, so it is raised unchanged.
    """

    def __init__(self, state: type[S]) -> None:
        self._state = state
        self._builder = _Builder(Folded, state=state)
        self._has_schema = False

    def add(self, line: bytes) -> None:
        """Add the next line; raise ValueError for a line that cannot be read."""
        try:
            path, *rest = json.loads(line)
            if self._has_schema:
                self._builder.add(path, rest)
            else:
                self._check_schema(path, rest)
        except NO_FAILURE:
            raise
        except Exception as error:  # A state class or the parser may raise any error.
            raise ValueError(f"a line cannot be read: {describe(error)}") from error

    def build_folded(self) -> Folded[S]:
        """Return the folded value; raise ValueError if a part is missing."""
        try:
            folded = self._builder.build()
        except NO_FAILURE:
            raise
        except Exception as error:  # As above.
            raise ValueError(describe(error)) from error
        assert isinstance(folded, Folded)
        return folded

    def _check_schema(self, path: str, rest: list[Json]) -> None:
        wanted = _schema(self._state)
        if (path, rest) != (_SCHEMA, [wanted]):
            raise ValueError("it is of another shape than this release has")
        self._has_schema = True


class _Builder:
    """Collects the lines of one dataclass, then builds an instance."""

    def __init__(self, kind: object, **hints: object) -> None:
        """Prepare to build `kind`, a dataclass; `hints` are types of fields that it leaves open."""
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
        """Add one line: where it belongs, then a value, or a key and a value."""
        name, _, deeper = path.partition(".")
        if deeper and name in self._nested:
            self._nested[name].add(deeper, rest)
            return
        if deeper or name not in self._decoders:
            raise ValueError(f"{self._name} has no field {path}")
        if name in self._entries:
            raw_key, raw = rest
            self._put(self._entries[name], self._keys[name](raw_key), name, raw)
        else:
            (raw,) = rest
            self._put(self._values, name, name, raw)

    def _put(self, items: dict[T, object], key: T, name: str, raw: Json) -> None:
        if key in items:
            raise ValueError(f"{name} is there twice")
        items[key] = self._decoders[name](raw)

    def build(self) -> object:
        """Return an instance of the dataclass; raise ValueError if a field is missing."""
        missing = set(self._decoders) - set(self._entries) - set(self._values)
        if missing:
            raise ValueError(f"{self._name} lacks {', '.join(sorted(missing))}")
        maps = {name: Map(found) for name, found in self._entries.items()}
        nested = {name: builder.build() for name, builder in self._nested.items()}
        # The class comes from an annotation, so it has no static type.
        made: object = self._kind(**self._values, **maps, **nested)  # type: ignore[operator]
        return made
