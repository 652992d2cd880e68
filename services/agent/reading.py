"""Reads values of an expected type from JSON documents; an error names the field."""

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

Document = Mapping[str, object]
"""An object as decoded from JSON."""
SKEW_MAX: Final = timedelta(minutes=1)
"""The most by which the clocks of two API servers differ; a new object may look that much older."""
DIGITS: Final = 16
"""The number of hex digits of a SHA-256 that represent a value."""


def version_number(version: str) -> int:
    """Return a `resourceVersion` of the bus, a position in the log; 0 for any other text."""
    return int(version) if version.isascii() and version.isdecimal() and len(version) <= 20 else 0


def digest(value: object, digits: int = DIGITS) -> str:
    """Return the first hex digits of the SHA-256 of a value; the order of keys changes nothing."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def command_id(*parts: object) -> str:
    """Return the id of a command, which is the same for the same change and says nothing else."""
    return digest(parts, 32)


_EMPTY: Document = {}


class UnreadableDocument(ValueError):
    """A document does not have the shape of its kind; names the field and what it needs."""

    def __init__(self, field: str, needed: str, value: object) -> None:
        super().__init__(f"{field}: must be {needed}, not {type(value).__name__}")
        self.field = field


def as_document(value: object, field: str) -> Document:
    """Return a value as an object; null is an empty object."""
    if value is None:
        return _EMPTY
    if not isinstance(value, Mapping):
        raise UnreadableDocument(field, "an object", value)
    return value


def part(document: Document, field: str) -> Document:
    """Return the object at a field; an empty object if the field is missing."""
    return as_document(document.get(field), field)


def parts(document: Document, field: str) -> Iterator[Document]:
    """Yield the objects in the list at a field; nothing if the field is missing."""
    value = document.get(field)
    if value is None:
        return
    if not isinstance(value, list | tuple):
        raise UnreadableDocument(field, "a list", value)
    for each in value:
        if not isinstance(each, Mapping):
            raise UnreadableDocument(field, "a list of objects", each)
        yield each


def text(document: Document, field: str, otherwise: str | None = "") -> str:
    """Return the text at a field; `otherwise` if it is missing, an error if `otherwise` is None."""
    value = document.get(field)
    if value is None and otherwise is not None:
        return otherwise
    if not isinstance(value, str):
        raise UnreadableDocument(field, "a text", value)
    return value


def texts(document: Document, field: str) -> dict[str, str]:
    """Return the texts by key at a field; an empty dict if the field is missing.

    A text that many objects have is stored only once.
    """
    found = part(document, field)
    checked = {}
    for key, value in found.items():
        if not isinstance(value, str):
            raise UnreadableDocument(field, "texts by key", value)
        checked[sys.intern(key)] = sys.intern(value)
    return checked


def number(document: Document, field: str, otherwise: int = 0) -> int:
    """Return the whole number at a field; `otherwise` if the field is missing."""
    value = document.get(field)
    if value is None:
        return otherwise
    if not isinstance(value, int) or isinstance(value, bool):
        raise UnreadableDocument(field, "a whole number", value)
    return value


def flag(document: Document, field: str) -> bool:
    """Return whether a field is true; one that is not there is false."""
    value = document.get(field)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise UnreadableDocument(field, "true or false", value)
    return value


def moment(document: Document, field: str) -> datetime | None:
    """Return the moment at a field (RFC 3339), in UTC; None if the field is missing."""
    value = document.get(field)
    if value is None:
        return None
    try:
        found = datetime.fromisoformat(value)  # type: ignore[arg-type]  # Refused right below.
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        raise UnreadableDocument(field, "a moment as RFC 3339 writes it", value) from None
