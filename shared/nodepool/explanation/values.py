"""Read values from JSON of any shape: a value of the wrong type counts as missing."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

NUMBER_MAX = 10**15
"""The largest count or position; a larger number counts as missing."""
TEXT_MAX = 10_000
"""How many characters of a text are kept."""


def at(document: object, *path: str) -> object:
    """Return the value at a path of field names; None if a part of the path is missing."""
    for name in path:
        # Nearly all are dicts, and the check against an abstract class is slow.
        if type(document) is not dict and not isinstance(document, Mapping):
            return None
        document = document.get(name)
    return document


def text(document: object, *path: str) -> str:
    """Return the text at a path, cut to `TEXT_MAX`; empty for anything else."""
    value = at(document, *path)
    return value[:TEXT_MAX] if isinstance(value, str) else ""


def number(document: object, *path: str) -> int:
    """Return the count or the position at a path; 0 for anything else."""
    value = at(document, *path)
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return value if 0 <= value <= NUMBER_MAX else 0


def items(document: object, *path: str) -> Sequence[object]:
    """Return the list at a path; empty for anything else."""
    value = at(document, *path)
    return value if isinstance(value, list | tuple) else ()


def moment(document: object, *path: str) -> datetime | None:
    """Return the moment at a path; None for anything else."""
    words = text(document, *path)
    if not words:
        return None
    try:
        found = datetime.fromisoformat(words)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def position(document: object) -> int:
    """Return the log position of the last change of an object; 0 if it is unknown."""
    return number_in_text(document, "metadata", "resourceVersion")


def number_in_text(document: object, *path: str) -> int:
    """Return the number that a text at a path has; 0 for anything else."""
    words = text(document, *path)
    return int(words) if words.isascii() and words.isdigit() and len(words) <= 15 else 0
