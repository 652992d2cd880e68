"""Compare the classes in the schema of a snapshot with those of this release, by name.

What may have another meaning now is a fault: a changed type or default, a new field without a
default, and whatever looks renamed.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import NamedTuple, get_type_hints

from pydantic import BaseModel

from nodepool.engine.folded import Folded
from nodepool.engine.schema import classes, text_of

CLASSES_MAX, FIELDS_MAX, TEXT_MAX = 500, 5_000, 2_000
"""The most classes and fields in a schema, and the longest entry; some tenfold what states have."""
_LITERAL = re.compile(r"Literal\[([^\]]*)\]")
_OR_NONE = " | None"


class Field(NamedTuple):
    """A field of a class of this release; `default` is MISSING if it has none."""

    name: str
    hint: object
    default: object

    @property
    def is_required(self) -> bool:
        """Whether each value must name the field."""
        return self.default is MISSING


class Comparison:
    """The classes of a schema beside those of this release.

    faults: why the lines cannot be read, each with its class and field.
    risks: which values could not be read, if there are any of them.
    notes: which fields are new, and which are gone.
    in_parts: the names of the classes whose values were written in parts, since they hold maps.
    """

    def __init__(self, written: object, state: type) -> None:
        """Begin to compare; raise ValueError if `written` is no schema."""
        self.faults, self.risks, self.notes = list[str](), list[str](), list[str]()
        self._written = _entries_by_name(written)
        self.in_parts = _find_holders(self._written)
        self.classes = {**classes(state), **classes(Folded)}
        self._compared: dict[type, Mapping[str, str] | None] = {}

    def is_same(self, kind: type) -> bool:
        """Return whether a class has the entry that it had."""
        return self._written.get(kind.__name__) == self.classes[kind][1:]

    def compare(self, kind: type) -> Mapping[str, str] | None:
        """Return the written fields of a class with their types; None if there is no such class."""
        if kind in self._compared:
            return self._compared[kind]
        lines = self._written.get(kind.__name__)
        before = None if lines is None else dict(line.partition(": ")[::2] for line in lines)
        self._compared[kind] = before
        if before is None:
            self.faults.append(f"{kind.__name__}: the snapshot has no class of this name")
            return None
        now = list(fields_of(kind))
        gone = sorted(before.keys() - {field.name for field in now})
        for field in now:
            where = f"{kind.__name__}.{field.name}"
            if field.name in before:
                self._compare_field(where, kind, field, before[field.name])
                continue
            self.notes.append(f"{where} is new")
            text = text_of(field.hint)
            twins = [name for name in gone if type_of(kind, before[name])[0] == text]
            if field.is_required:
                self.faults.append(f"{where}: it is new and has no default")
            elif twins:
                renamed = f"it is new, and {twins[0]:.100}, which is gone, had its type"
                self.faults.append(f"{where}: {renamed}; a field cannot be renamed")
        self.notes += [f"{kind.__name__}.{name:.100} is gone" for name in gone]
        if not self.is_same(kind) and before.keys() == {field.name for field in now}:
            self.notes.append(f"{kind.__name__} has other types, defaults or another order")
        return before

    def _compare_field(self, where: str, kind: type, field: Field, text: str) -> None:
        was, default = type_of(kind, text)
        now = text_of(field.hint)
        if not _accepts(was, now):
            self.faults.append(f"{where}: its type was {was:.100} and is {now}")
        for word in sorted(_words(was) - _words(now)):
            self.risks.append(f"{where}: it cannot be {word} any more")
        if default and (field.is_required or not self._is_same(field.default, default)):
            is_now = "it has none" if field.is_required else f"it is {field.default!r:.100}"
            self.faults.append(f"{where}: its default was {default:.100}, and {is_now}")

    def _is_same(self, default: object, text: str) -> bool:
        """Return whether a default is the one that a text shows."""
        if text == repr(default):
            return True
        # A model with all its own defaults is shown with all its fields, of which some may be new.
        kind = type(default)
        if not isinstance(default, BaseModel) or default != kind():
            return False
        shown = [line.partition(": ") for line in self._written.get(kind.__name__, ())]
        parts = [f"{name}={rest.partition(' = ')[2]}" for name, _, rest in shown]
        return text == f"{kind.__name__}({', '.join(parts)})"

    def find_gone_members(self, kind: type[Enum]) -> set[str]:
        """Return the values that members had, as text, which are gone or have another name now."""
        gone = set(self._written.get(kind.__name__, ())) - set(self.classes[kind][1:])
        if not self.is_same(kind):
            self.notes.append(f"{kind.__name__} has other members")
        self.risks += [f"{kind.__name__}: it has no {line:.100} any more" for line in sorted(gone)]
        return {line.partition(" = ")[2] for line in gone}


def fields_of(kind: type) -> Iterator[Field]:
    """Yield the fields of a class of this release in order."""
    if issubclass(kind, BaseModel):
        kind.model_rebuild()  # Only a class that is built knows how its fields are written.
        for name, model_field in kind.model_fields.items():
            default = model_field.get_default(call_default_factory=True)
            default = MISSING if model_field.is_required() else default
            yield Field(name, model_field.annotation, default)
    elif is_dataclass(kind):
        hints = get_type_hints(kind)
        for field in fields(kind):
            made = MISSING if field.default_factory is MISSING else field.default_factory()
            default = made if field.default is MISSING else field.default
            yield Field(field.name, hints[field.name], default)
    else:
        defaults: Mapping[str, object] = getattr(kind, "_field_defaults", {})
        for name, hint in get_type_hints(kind).items():
            yield Field(name, hint, defaults.get(name, MISSING))


def type_of(kind: type, text: str) -> tuple[str, str]:
    """Return the type of a field and its default from what a schema says of it."""
    if not issubclass(kind, BaseModel):
        return text, ""
    shown, _, default = text.partition(" = ")
    return shown, default


def head_of(text: str) -> str:
    """Return the class that a type names first; empty if the value may be None."""
    return "" if text.endswith(_OR_NONE) else text.partition("[")[0]


def _accepts(was: str, now: str) -> bool:
    """Return whether a type takes values of another, but for words that are gone."""
    before, after = (_LITERAL.sub("Literal", text) for text in (was, now))
    return before in (after, after.removesuffix(_OR_NONE))


def _words(text: str) -> set[str]:
    """Return the values in each Literal of a type, as text."""
    return {word for words in _LITERAL.findall(text) for word in words.split(", ")}


def _entries_by_name(written: object) -> dict[str, list[str]]:
    """Return the fields or members of each class; raise ValueError if it is no schema."""
    if not isinstance(written, list) or len(written) > CLASSES_MAX:
        raise ValueError(f"its schema is no list of at most {CLASSES_MAX} classes")
    found: dict[str, list[str]] = {}
    count = 0
    for entry in written:
        texts = [each for each in entry if isinstance(each, str)] if isinstance(entry, list) else []
        count += len(texts)
        if not texts or texts != entry or max(map(len, texts)) > TEXT_MAX or count > FIELDS_MAX:
            bounds = f"with at most {FIELDS_MAX} fields of {TEXT_MAX} characters"
            raise ValueError(f"its schema has what is no list of texts, {bounds}")
        name, *lines = texts
        if found.setdefault(name, lines) != lines:
            raise ValueError(f"its schema has two classes with the name {name:.100}")
    return found


def _find_holders(written: Mapping[str, Iterable[str]]) -> set[str]:
    """Return the names of the classes that were written in parts, since they hold maps."""
    types = {
        name: {head_of(line.partition(": ")[2]) for line in lines}
        for name, lines in written.items()
    }
    holders, found = {"Map"}, True
    while found:
        more = {name for name, heads in types.items() if name not in holders and heads & holders}
        holders, found = holders | more, bool(more)
    return holders - {"Map"}
