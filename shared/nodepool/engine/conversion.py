"""Read the lines of a snapshot that another release has written, by the names in its schema.

Records are written without names, so the schema of the snapshot says which value belongs to which
field. A field that is gone is dropped, and a field that is new gets its default. The result is JSON
as this release writes it, which the usual decoders then check like any other line.
"""

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum
from types import UnionType
from typing import Annotated, NamedTuple, NewType, TypeVar, Union, get_args, get_origin

from immutables import Map
from pydantic import BaseModel

from nodepool.engine.codec import Json, decoder
from nodepool.engine.comparison import Comparison, fields_of, head_of
from nodepool.engine.converters import (
    Convert,
    check_members,
    convert_all,
    convert_each,
    convert_items,
    convert_model,
    convert_record,
    name_in_errors,
)
from nodepool.engine.folded import Folded
from nodepool.engine.schema import holds_maps, text_of


class Added(NamedTuple):
    """A field that the lines lack: where it would be, its type, and its default."""

    path: str
    hint: object
    default: object


class Conversion:
    """How lines that were written with another schema become lines of this release.

    faults: why the lines cannot be read, each with its class and field; empty if they can be read.
    risks: which values could not be read, if the lines have any. `convert` refuses such a value.
    notes: which fields are new, and which are gone.
    added: the fields for which the lines have no line.
    """

    def __init__(self, written: object, state: type) -> None:
        """Compare a schema with that of a state; raise ValueError if it is no schema.

        written: the classes of a state and those of `Folded`.
        """
        self._comparison = comparison = Comparison(written, state)
        self.faults, self.risks, self.notes = comparison.faults, comparison.risks, comparison.notes
        self.added: list[Added] = []
        self._state = state
        self._by_class: dict[type, Convert | None] = {}
        self._by_path: dict[str, tuple[Convert | None, ...]] = {}
        self._gone: list[str] = []
        self._add_paths(Folded, "")

    def convert(self, path: str, rest: list[Json]) -> list[Json] | None:
        """Return what this release has after a path; None if it has no such field any more.

        Raises ValueError for a value that cannot be converted.
        """
        converters = self._by_path.get(path)
        if converters is None:
            is_gone = any(path == gone or path.startswith(f"{gone}.") for gone in self._gone)
            return None if is_gone else rest
        if len(rest) > len(converters):
            return rest  # Whoever reads it refuses it.
        pairs = zip(converters, rest, strict=False)  # The line of a removed entry is shorter.
        return [convert(raw) if convert else raw for convert, raw in pairs]

    def _add_paths(self, kind: type, prefix: str) -> None:
        """Find out about each field of a class that is written in parts."""
        written = self._comparison.compare(kind)
        if written is None:
            return
        now = list(fields_of(kind))
        self._gone += [f"{prefix}{name}" for name in written.keys() - {each.name for each in now}]
        for name, hint, default in now:
            path, where = f"{prefix}{name}", f"{kind.__name__}.{name}"
            if name not in written:
                self.added.append(Added(path, hint, default))
            elif kind is Folded and name == "state":
                self._add_path(path, where, self._state, self._state.__name__)
            else:
                self._add_path(path, where, hint, written[name])

    def _add_path(self, path: str, where: str, hint: object, was: str) -> None:
        """Find out about a field; `was` is the type that it had."""
        kind = get_origin(hint) or hint
        if kind is Map:
            key, item = get_args(hint)
            converted = self._convert_field(where, item, was, within=hint)
            self._by_path[path] = (self._convert_key(where, key), converted)
        elif not isinstance(kind, type) or not is_dataclass(kind):
            self._by_path[path] = (self._convert_field(where, hint, was),)
        elif holds_maps(kind) != (head_of(was) in self._comparison.in_parts):
            self.faults.append(f"{where}: its values were written in another form")
        elif holds_maps(kind):
            self._add_paths(kind, f"{path}.")
        else:
            self._by_path[path] = (self._convert_field(where, hint, was),)

    def _convert_field(
        self, where: str, hint: object, was: str, within: object = None
    ) -> Convert | None:
        """Return what converts a value of a field.

        was: the type that the field had.
        within: the type of the field if the values are those of a map.
        """
        check = None if was == text_of(within or hint) else decoder(hint)
        return name_in_errors(where, self._converter(where, hint), check)

    def _convert_key(self, where: str, hint: object) -> Convert | None:
        convert = self._converter(where, hint)
        if convert is not None and not (isinstance(hint, type) and issubclass(hint, Enum)):
            self.faults.append(f"{where}: the class of its keys has changed")
        return name_in_errors(where, convert)

    def _converter(self, where: str, hint: object) -> Convert | None:
        """Return what converts a value of a type; None if such values are written as they were."""
        if isinstance(hint, NewType):
            return self._converter(where, hint.__supertype__)
        if isinstance(hint, TypeVar):
            return self._converter(where, hint.__bound__)
        origin, args = get_origin(hint), get_args(hint)
        if origin is Annotated:
            return self._converter(where, args[0])
        if origin in (Union, UnionType):
            return self._convert_union(where, args)
        if origin in (tuple, list):
            parts = [self._converter(where, each) for each in args if each is not Ellipsis]
            is_record = origin is tuple and Ellipsis not in args
            return convert_each(parts) if is_record else convert_all(parts[0])
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return convert_items(self._convert_key(where, args[0]), self._converter(where, args[1]))
        kind = origin or hint
        if not isinstance(kind, type) or kind not in self._comparison.classes:
            return None
        if kind not in self._by_class:
            self._by_class[kind] = None  # For a model that contains itself.
            self._by_class[kind] = self._convert_class(kind)
        return self._by_class[kind]

    def _convert_union(self, where: str, args: Sequence[object]) -> Convert | None:
        kinds = [each for each in args if each is not type(None)]
        convert, *others = [self._converter(where, each) for each in kinds]
        if others and any((convert, *others)):
            self.faults.append(f"{where}: a class has changed that is one of several")
        if convert is None:
            return None
        return lambda raw: None if raw is None else convert(raw)

    def _convert_class(self, kind: type) -> Convert | None:
        if issubclass(kind, Enum):
            return check_members(kind, self._comparison.find_gone_members(kind))
        written = self._comparison.compare(kind)
        if written is None:
            return None
        converters: dict[str, Convert | None] = {}
        for name, hint, _ in fields_of(kind):
            if name in written:
                is_model = issubclass(kind, BaseModel)  # It checks its values itself.
                was = text_of(hint) if is_model else written[name]
                converters[name] = self._convert_field(f"{kind.__name__}.{name}", hint, was)
        if self._comparison.is_same(kind) and not any(converters.values()):
            return None
        if issubclass(kind, BaseModel):
            return convert_model(kind, list(written), converters)
        return convert_record(kind, list(written), converters)
