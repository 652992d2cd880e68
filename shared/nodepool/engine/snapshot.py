"""Write a folded value as lines of canonical JSON, and read it; equal values make equal bytes.

A folded value can also be written as its changes since an earlier value. The lines of the earlier
value, followed by the lines of the changes, make the later value.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Generic, TypeVar, get_args, get_origin

from immutables import Map
from pydantic_core import to_json

from nodepool.contract.exceptions import NO_FAILURE, describe
from nodepool.engine.codec import Decoder, Json, decoder, encode
from nodepool.engine.conversion import Conversion
from nodepool.engine.folded import Folded
from nodepool.engine.schema import Schema, hints_of, holds_maps, schema
from nodepool.service import S

T = TypeVar("T")
_SCHEMA = "schema"
"""The path of the first line, which holds the names and types of all others; no field has it."""
SEARCHED_PER_TURN = 5_000
"""After searching this many entries for changes, the caller may pause."""
_NOTHING = object()
_ANOTHER_SHAPE = "it is of another shape than this release has"


def dump(folded: Folded[S]) -> Iterator[bytes]:
    """Yield the schema, the state and the receipts: a line per field, or per entry of a map.

    Maps are sorted by key, so that neither history nor hashing shows in the bytes. A field whose
    value holds maps is split in the same way, so that no line grows with the state.
    """
    assert isinstance(folded, Folded), "a state alone lacks the receipts"
    yield _line(_SCHEMA, schema_of(type(folded.state)))
    yield from _lines(folded, "")


def schema_of(state: type) -> Schema:
    """Return the schema of a folded value with a state of this class."""
    return [*schema(state), *schema(Folded)]


def _lines(value: object, prefix: str) -> Iterator[bytes]:
    hints = hints_of(type(value))
    for field in fields(value):  # type: ignore[arg-type]  # The value is always a dataclass.
        yield from _lines_of(f"{prefix}{field.name}", hints[field.name], getattr(value, field.name))


def _lines_of(path: str, hint: object, item: object) -> Iterator[bytes]:
    """Yield the lines of a field with this type and value."""
    if isinstance(item, Map) and get_origin(hint) is Map:
        for key in sorted(item):
            yield _line(path, encode(key), encode(item[key]))
    elif holds_maps(type(item)):
        yield from _lines(item, f"{path}.")
    else:
        yield _line(path, encode(item))


def dump_changes(before: Folded[S], after: Folded[S]) -> Iterator[bytes]:
    """Yield the schema, then a line per entry or field that may have changed since `before`.

    The line of a removed entry has its key and no value. Values are compared by identity, as an
    unchanged part of an immutable value is the same object, so a line may repeat what was there.
    Empty bytes are yielded now and then, so that the caller can pause in a long search.
    """
    yield _line(_SCHEMA, schema_of(type(after.state)))
    yield from _changes(before, after, "")


def _changes(before: object, after: object, prefix: str) -> Iterator[bytes]:
    hints = hints_of(type(after))
    for field in fields(after):  # type: ignore[arg-type]  # The value is always a dataclass.
        old, new = getattr(before, field.name), getattr(after, field.name)
        path = f"{prefix}{field.name}"
        if old is new:
            continue
        if isinstance(new, Map) and get_origin(hints[field.name]) is Map:
            yield from _changed_entries(old, new, path)
        elif holds_maps(type(new)):
            yield from _changes(old, new, f"{path}.")
        else:
            yield _line(path, encode(new))


def _changed_entries(
    before: Map[str, object], after: Map[str, object], path: str
) -> Iterator[bytes]:
    changed = []
    for number, (key, value) in enumerate(after.items()):
        if before.get(key, _NOTHING) is not value:
            changed.append(key)
        if number % SEARCHED_PER_TURN == 0:
            yield b""
    for key in sorted(changed):
        yield _line(path, encode(key), encode(after[key]))
    # Most changes remove nothing, and then the sizes say so.
    added = sum(key not in before for key in changed)
    if len(before) + added > len(after):
        for key in sorted(key for key in before if key not in after):
            yield _line(path, encode(key))


def count_lines(value: object) -> int:
    """Return how many lines `dump` yields for a folded value, apart from the schema."""
    hints = hints_of(type(value))
    count = 0
    for field in fields(value):  # type: ignore[arg-type]  # The value is always a dataclass.
        item = getattr(value, field.name)
        if isinstance(item, Map) and get_origin(hints[field.name]) is Map:
            count += len(item)
        else:
            count += count_lines(item) if holds_maps(type(item)) else 1
    return count


def _line(*parts: object) -> bytes:
    return to_json(parts)  # A fourth of the cost of the standard library.


def load(state: type[S], lines: Iterable[bytes], *, converts: bool = False) -> Folded[S]:
    """Return the folded value that was dumped as these lines; raise the errors of `Loader`.

    lines: of `dump`, and of any number of `dump_changes` after that.
    state: the class of the state.
    converts: as for `Loader`.
    """
    loader = Loader(state, converts=converts)
    for line in lines:
        loader.add(line)
    return loader.build_folded()


class AnotherShape(ValueError):
    """The lines are those of another release, whose classes or fields this one cannot read."""


class Loader(Generic[S]):
    """Builds a folded value from its lines, one after the other.

    Whatever follows a second schema changes what was there before.

    For any lines, each method either returns or raises ValueError. MemoryError does not mean that
    the lines are wrong, so it is raised unchanged.

    notes: what the conversion has changed; None if the lines have the schema of this release.
    """

    def __init__(self, state: type[S], *, converts: bool = False) -> None:
        """Begin without a line.

        converts: whether to read lines of another schema if that is safe, see `Conversion`.
        """
        self.notes: Sequence[str] | None = None
        self._state, self._converts = state, converts
        self._builder = _Builder(Folded, state=state)
        self._schema: list[Json] | None = None
        self._conversion: Conversion | None = None
        self._is_change = False

    def add(self, line: bytes) -> None:
        """Add the next line; raise ValueError for a line that cannot be read.

        Raises AnotherShape for the lines of another release that are not converted.
        """
        try:
            path, *rest = json.loads(line)
            if self._schema is None or path == _SCHEMA:
                self._read_schema(path, rest)
            elif self._conversion is None:
                self._builder.add(path, rest, is_change=self._is_change)
            elif (converted := self._conversion.convert(path, rest)) is not None:
                self._builder.add(path, converted, is_change=self._is_change)
        except AnotherShape:
            raise
        except NO_FAILURE:
            raise
        except Exception as error:  # A state class or the parser may raise any error.
            text = f"a line cannot be read: {describe(error)}"
            if self._conversion is not None:
                raise AnotherShape(f"{_ANOTHER_SHAPE}: {text}") from error
            raise ValueError(text) from error

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

    def _read_schema(self, path: str, rest: list[Json]) -> None:
        """Find out how to read what follows: a whole snapshot, or changes of the same shape."""
        if path != _SCHEMA or self._schema not in (None, rest):
            raise AnotherShape(_ANOTHER_SHAPE)
        if self._schema is not None:
            self._is_change = True
        elif rest != [schema_of(self._state)]:
            self._convert(rest)
        self._schema = rest

    def _convert(self, rest: list[Json]) -> None:
        """Read what follows as lines of another schema."""
        if not self._converts:
            raise AnotherShape(_ANOTHER_SHAPE)
        (written,) = rest
        conversion = Conversion(written, self._state)
        if conversion.faults:
            more = f", and {len(conversion.faults) - 1} more" if conversion.faults[1:] else ""
            raise AnotherShape(f"{_ANOTHER_SHAPE}: {conversion.faults[0]}{more}")
        for added in conversion.added:
            for line in _lines_of(*added):
                path, *values = json.loads(line)
                self._builder.add(path, values)
        self._conversion, self.notes = conversion, conversion.notes


class _Builder:
    """Collects the lines of one dataclass, then builds an instance."""

    def __init__(self, kind: object, **hints: object) -> None:
        """Prepare to build `kind`, a dataclass; `hints` are types of fields that it leaves open."""
        self._kind = get_origin(kind) or kind
        assert isinstance(self._kind, type)
        self._name = self._kind.__name__
        self._values: dict[str, object] = {}
        self._entries: dict[str, dict[object, object]] = {}
        self._keys: dict[str, Decoder] = {}
        self._nested: dict[str, _Builder] = {}
        self._decoders: dict[str, Decoder] = {}
        for name, hint in {**hints_of(self._kind), **hints}.items():
            if get_origin(hint) is Map:
                self._entries[name] = {}
                self._keys[name], self._decoders[name] = map(decoder, get_args(hint))
            elif holds_maps(hint):
                self._nested[name] = _Builder(hint)
            else:
                self._decoders[name] = decoder(hint)

    def add(self, path: str, rest: list[Json], *, is_change: bool = False) -> None:
        """Add one line: where it belongs, then a value, or a key and a value.

        is_change: whether the line changes what an earlier line has said. Only then may it replace
            a value, or remove an entry by naming a key alone.
        """
        name, _, deeper = path.partition(".")
        if deeper and name in self._nested:
            self._nested[name].add(deeper, rest, is_change=is_change)
            return
        if deeper or name not in self._decoders:
            raise ValueError(f"{self._name} has no field {path}")
        if name not in self._entries:
            (raw,) = rest
            self._put(self._values, name, name, raw, is_change=is_change)
        elif is_change and len(rest) == 1:
            del self._entries[name][self._keys[name](rest[0])]
        else:
            raw_key, raw = rest
            key = self._keys[name](raw_key)
            self._put(self._entries[name], key, name, raw, is_change=is_change)

    def _put(
        self, items: dict[T, object], key: T, name: str, raw: Json, *, is_change: bool
    ) -> None:
        if key in items and not is_change:
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
