"""The longest line of a log, and how longer lines are shortened."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pydantic_core import to_json

LINE_BYTES_MAX: Final = (16 << 10) - 1
"""The most bytes of a line without its line end, which Docker does not split:
https://docs.docker.com/engine/logging/drivers/json-file/."""


class _Stage(NamedTuple):
    """How much is kept: characters of a text or a name, items of a list, fields, and levels."""

    characters: int
    items: int
    fields: int
    depth: int


_STAGES: Final = (
    _Stage(1_000, 30, 100, 8),
    _Stage(300, 15, 100, 8),
    _Stage(100, 8, 60, 8),
    _Stage(30, 4, 40, 8),
    _Stage(10, 2, 40, 8),
    # 40 names and texts of 30 characters, with up to six bytes per character: that fits.
    _Stage(30, 2, 40, 1),
)
"""A line is shortened by the first stage that makes it fit; the last stage fits every line."""
_INTEGER_BITS_MAX: Final = 64
_LAST: Final = "frames"
"""The list that keeps its last items: the frames of an exception, which end where it was raised."""


def line_of(fields: Mapping[str, object]) -> str:
    """Return the fields as a line of JSON of at most LINE_BYTES_MAX bytes.

    Most lines are written as they are. In a longer line, texts, names and lists are cut; the frames
    of an exception are cut before the frame that raised it. If there are many fields, those in the
    middle are left out. Invalid text (bytes that are not UTF-8, halves of surrogate pairs) is
    written with backslashes.
    """
    content = _json_of(fields)
    for stage in _STAGES:
        if content is not None and len(content) <= LINE_BYTES_MAX:
            break
        content = to_json(_cut(fields, stage, stage.depth))
    assert content is not None, "what is cut consists of texts, numbers and lists"
    return content.decode()


def _json_of(fields: Mapping[str, object]) -> bytes | None:
    """Return the fields as JSON without cuts; None if they cannot be written."""
    try:
        return to_json(fields, fallback=str)
    except ValueError:  # Invalid text or a circular reference; plain or pydantic's subclass.
        return None


def _cut(value: object, stage: _Stage, depth: int) -> object:
    match value:
        case str():
            text = value[: stage.characters + 1].encode(errors="backslashreplace").decode()
            is_whole = len(value) <= stage.characters >= len(text)
            return text if is_whole else f"{text[: stage.characters]}…"
        case bytes() | bytearray():
            text = value[: stage.characters + 1].decode(errors="backslashreplace")
            return _cut(text, stage, depth)
        case Mapping() if depth:
            return {
                _name(name, stage): _cut(_ending(name, each, stage.items), stage, depth - 1)
                for name, each in _ends(value.items(), len(value), stage.fields)
            }
        case Sequence() if depth:
            return [_cut(each, stage, depth - 1) for each in value[: stage.items]]
        case Mapping() | Sequence():
            return "…"
        case int() if value.bit_length() > _INTEGER_BITS_MAX:
            return _cut(hex(value), stage, depth)
        case None | bool() | int() | float():
            return value
    return _cut(str(value), stage, depth)


def _name(name: object, stage: _Stage) -> str:
    return str(_cut(str(name), stage, 0))


def _ends(
    items: Iterable[tuple[object, object]], count: int, most: int
) -> Iterable[tuple[object, object]]:
    """Return the first and last fields: these are the fields that all lines have."""
    left_out = range(most // 2, count - most // 2) if count > most else range(0)
    return (item for number, item in enumerate(items) if number not in left_out)


def _ending(name: object, value: object, items: int) -> object:
    """Return the last items of a list whose last items matter most; any other value unchanged."""
    return value[-items:] if name == _LAST and isinstance(value, list) else value
