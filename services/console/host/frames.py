"""Frames of open pages: the whole page first, then pages without the unchanged rows."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Final

DIFFERENCES_MAX: Final = 8
"""The most differences to earlier frames that are kept for browsers that show the same page."""
_MOVING: Final = re.compile(
    r'data-now="[^"]*"|<li class="now">.*?</li>|<svg class="count".*?</svg>|>[^<]*</time>'
)
"""The parts that change with the time alone, which the browser updates itself."""
_ROW: Final = re.compile(r'<tr [^>]*\bid="([^"]+)"[^>]*\bdata-row\b[^>]*>.*?</tr>', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Frame:
    """A page at one moment.

    revision, position: of the mirror, and of the log, that it shows.
    made: when it was made, by a clock that never jumps.
    parts: the text before, between and after its rows. rows: the rows, by their ids, in order.
    still: `parts` without the text that changes with the time alone.
    number: unique to this frame.
    """

    revision: int
    position: int
    made: float
    parts: tuple[str, ...]
    rows: Mapping[str, str]
    still: str
    number: int = field(default_factory=count().__next__)
    _differences: dict[int, bytes | None] = field(default_factory=dict)

    def whole(self) -> bytes:
        """Return the page as an event."""
        return self._event(self.rows)

    def after(self, before: "Frame") -> bytes | None:
        """Return the event for a browser that shows an earlier frame; None if both are equal.

        Unchanged rows are sent without their content, to keep their place.
        """
        found = self._differences
        if before.number not in found:
            if len(found) >= DIFFERENCES_MAX:
                del found[next(iter(found))]
            found[before.number] = self._compare(before)
        return found[before.number]

    def _compare(self, before: "Frame") -> bytes | None:
        known = before.rows
        same = {id for id, row in self.rows.items() if id in known and _is_same(row, known[id])}
        if self.still == before.still and [*self.rows] == [*known] and len(same) == len(known):
            return None
        kept = {id: f'<tr id="{id}" data-row data-same></tr>' for id in same}
        return self._event({**self.rows, **kept})

    def _event(self, rows: Mapping[str, str]) -> bytes:
        """Return an event, whose id is the position of the log that the page shows."""
        pieces = [self.parts[0]]
        for part, row in zip(self.parts[1:], rows.values(), strict=True):
            pieces += row, part
        data = "".join(f"data: {line}\n" for line in "".join(pieces).splitlines() if line)
        return f"id: {self.position}\n{data}\n".encode()


def make_frame(revision: int, position: int, made: float, text: str) -> Frame:
    """Return a page as a frame."""
    found = _ROW.split(text)
    rows = {match[1]: match[0] for match in _ROW.finditer(text)}
    parts = tuple(found[::2])
    if len(rows) != len(parts) - 1:
        # Two rows have the same id, so a browser could not tell which row stays.
        parts, rows = (text,), {}
    return Frame(revision, position, made, parts, rows, "\0".join(map(_still, parts)))


def _is_same(one: str, other: str) -> bool:
    return one == other or _still(one) == _still(other)


def _still(text: str) -> str:
    return _MOVING.sub("", text)
