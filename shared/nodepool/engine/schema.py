"""The shape of a state as plain text, so that a snapshot of another shape is detected."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import Annotated, Literal, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

from immutables import Map
from pydantic import BaseModel

Schema = list[list[str]]
"""A list for each class: its name, then its fields or members in order, with their types."""
hints_of: Callable[[type], Mapping[str, object]] = cache(get_type_hints)
"""The types of the fields of a class, which take longer to find out than to use."""


def schema(state: type) -> Schema:
    """Return the classes that a state is made of, in the order in which they are met first.

    Two states with equal schemas are written alike. A schema contains the members of enumerations.
    It also contains the defaults of models, because a model is written without the fields that
    have their defaults.
    """
    return list(classes(state).values())


@cache
def classes(state: type) -> Mapping[type, list[str]]:
    """Return the entry of each class in the schema of a state, by class."""
    found: dict[type, list[str]] = {}
    _collect(state, found)
    return found


def holds_maps(hint: object) -> bool:
    """Return whether a type is a dataclass with maps; such a value is written in parts."""
    kind = get_origin(hint) or hint
    if not isinstance(kind, type) or not is_dataclass(kind):
        return False
    hints = hints_of(kind).values()
    return any(get_origin(hint) is Map or holds_maps(hint) for hint in hints)


def _collect(hint: object, found: dict[type, list[str]]) -> None:
    if isinstance(hint, NewType):
        return _collect(hint.__supertype__, found)
    if isinstance(hint, TypeVar):
        return _collect(hint.__bound__, found)
    for argument in () if get_origin(hint) is Literal else get_args(hint):
        _collect(argument, found)
    kind = get_origin(hint) or hint
    if not isinstance(kind, type) or kind in found or not (lines := list(_lines(kind))):
        return None
    found[kind] = [kind.__name__, *lines]
    if not issubclass(kind, Enum):
        for inner in hints_of(kind).values():
            _collect(inner, found)
    return None


def _lines(kind: type) -> Iterator[str]:
    """Yield the fields or members of a class; nothing for a class without any, such as `str`."""
    if issubclass(kind, Enum):
        yield from (f"{member.name} = {member.value!r}" for member in kind)
    elif issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            default = field.get_default(call_default_factory=True)
            shown = "" if field.is_required() else f" = {default!r}"
            yield f"{name}: {text_of(field.annotation)}{shown}"
    elif is_dataclass(kind):
        hints = hints_of(kind)
        yield from (f"{field.name}: {text_of(hints[field.name])}" for field in fields(kind))
    elif issubclass(kind, tuple) and kind is not tuple:
        yield from (f"{name}: {text_of(hint)}" for name, hint in hints_of(kind).items())


def text_of(hint: object) -> str:
    """Return a type as source code, the same for each form in which it can be written."""
    if hint is None or hint is type(None):
        return "None"
    if hint is Ellipsis:
        return "..."
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return text_of(arguments[0])
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if origin in (Union, UnionType):
        return " | ".join(map(text_of, arguments))
    name = str(getattr(origin or hint, "__name__", hint))
    return f"{name}[{', '.join(map(text_of, arguments))}]" if arguments else name
