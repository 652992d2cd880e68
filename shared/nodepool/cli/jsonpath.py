"""The parts of templates as in https://kubernetes.io/docs/reference/kubectl/jsonpath/.

`nodepool.cli.jsonpath_parser` parses a template from a text. This module computes the result of a
template for an object, which may be any JSON value.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass


class JsonPathError(ValueError):
    """A template that cannot be parsed or does not fit an object; the error names the place."""


@dataclass(frozen=True, slots=True)
class Field:
    """The value of one key of an object: `.name` or `['name']`.

    path: the path to follow if the key does not exist; kubectl reads `['a.b']` as a path.
    """

    name: str
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wildcard:
    """Every element of a list or value of an object: `[*]` or `.*`."""


@dataclass(frozen=True, slots=True)
class Descent:
    """The value itself and everything below it: `..`."""


@dataclass(frozen=True, slots=True)
class Index:
    """One element of a list; a negative number counts from its end."""

    at: int


@dataclass(frozen=True, slots=True)
class Slice:
    """Some elements of a list, like a slice in Python: `[start:end:step]`."""

    start: int | None
    end: int | None
    step: int | None


@dataclass(frozen=True, slots=True)
class Union:
    """The values of several selections, one after the other: `['a','b']` or `[0,1]`."""

    parts: "tuple[Path, ...]"


@dataclass(frozen=True, slots=True)
class Filter:
    """The elements of a list for which a comparison holds: `[?(@.x=="y")]`.

    operator: `==`, `!=`, `<`, `<=`, `>`, `>=`; if empty, tests whether the left side exists.
    """

    left: "Operand"
    operator: str = ""
    right: "Operand | None" = None


PlainStep = Field | Wildcard | Descent | Index | Slice | Filter
Step = PlainStep | Union


@dataclass(frozen=True, slots=True)
class Path:
    """Steps from a value to other values.

    from_root: whether the path begins at the whole object (`$`), not at the current value.
    """

    steps: tuple[Step, ...]
    from_root: bool = False

    def find(self, value: object, root: object | None = None) -> list[object]:
        """Return the values that the path leads to; empty if a field is missing.

        Raises `JsonPathError` for an index beyond the end of a list.
        """
        root = value if root is None else root
        values = [root if self.from_root else value]
        for step in self.steps:
            if isinstance(step, Union):
                values = [result for part in step.parts for result in part.find_all(values, root)]
            else:
                values = [result for each in values for result in _take_step(step, each, root)]
        return values

    def find_all(self, values: Sequence[object], root: object) -> list[object]:
        """Return the values that the path leads to from each of several values."""
        return [result for value in values for result in self.find(value, root)]


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant in a comparison: a text, a number, true or false."""

    value: str | float | bool


Operand = Path | Literal


@dataclass(frozen=True, slots=True)
class Text:
    """Text that is printed as it is."""

    text: str


@dataclass(frozen=True, slots=True)
class Range:
    """Parts that are printed once for each value of a path: `{range ...}...{end}`."""

    over: Path
    body: "Template"


Template = tuple[Text | Range | Path, ...]


def render_template(template: Template, value: object, root: object | None = None) -> str:
    """Return the text of a template for an object; a missing field is the empty text.

    The values of one expression are separated by a blank. Raises `JsonPathError` for an index
    beyond the end of a list.
    """
    root = value if root is None else root
    texts: list[str] = []
    for part in template:
        match part:
            case Text(text):
                texts.append(text)
            case Path():
                texts.append(" ".join(map(text_of, part.find(value, root))))
            case Range(over, body):
                texts += [render_template(body, each, root) for each in over.find(value, root)]
    return "".join(texts)


def text_of(value: object) -> str:
    """Return a JSON value as kubectl prints it: strings bare, lists and objects as JSON."""
    match value:
        case None:
            return ""
        case str():
            return value
        case Mapping() | list() | tuple():
            return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return json.dumps(value)


def _take_step(step: PlainStep, value: object, root: object) -> Iterator[object]:
    match step:
        case Field(name, path):
            yield from _find_field(value, name, path)
        case Wildcard():
            yield from _children(value)
        case Descent():
            yield value
            for child in _children(value):
                yield from _take_step(step, child, root)
        case Index(at):
            yield from _element(_elements(value), at)
        case Slice(start, end, step_size):
            yield from _elements(value)[start:end:step_size]
        case Filter():
            yield from (each for each in _elements(value) if _holds(step, each, root))


def _find_field(value: object, name: str, path: Sequence[str]) -> Iterator[object]:
    if isinstance(value, Mapping) and name in value:
        yield value[name]
    elif path:
        yield from Path(tuple(map(Field, path))).find(value)


def _children(value: object) -> Sequence[object]:
    return tuple(value.values()) if isinstance(value, Mapping) else _elements(value)


def _elements(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()


def _element(elements: Sequence[object], at: int) -> Sequence[object]:
    if not elements:
        return ()
    if not -len(elements) <= at < len(elements):
        raise JsonPathError(f"index {at} is out of bounds: the list has {len(elements)} elements")
    return (elements[at],)


def _holds(test: Filter, value: object, root: object) -> bool:
    left = _operands(test.left, value, root)
    if test.right is None:
        return bool(left)
    right = _operands(test.right, value, root)
    if not left or not right:
        return False
    return _compares(left[0], test.operator, right[0])


def _operands(operand: Operand, value: object, root: object) -> list[object]:
    return [operand.value] if isinstance(operand, Literal) else operand.find(value, root)


def _compares(left: object, operator: str, right: object) -> bool:
    if operator in ("==", "!="):
        # In Python, True equals 1; in JSON, true does not equal 1.
        same = left == right and isinstance(left, bool) is isinstance(right, bool)
        return same is (operator == "==")
    if isinstance(left, str) and isinstance(right, str):
        return _is_in_order(left, operator, right)
    if isinstance(left, int | float) and isinstance(right, int | float):
        return _is_in_order(left, operator, right)
    return False


def _is_in_order(left: "str | float", operator: str, right: "str | float") -> bool:
    order = (left > right) - (left < right)  # type: ignore[operator]  # Both have the same type.
    match operator:
        case "<":
            return order < 0
        case "<=":
            return order <= 0
        case ">":
            return order > 0
    return order >= 0
