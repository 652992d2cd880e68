"""Frames of open pages: the whole page first, then pages without the unchanged rows.

What is said of rows is true of the parts of a grid, too.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Final

DIFFERENCES_MAX: Final = 8
"""The most differences to earlier frames that are kept for browsers that show the same page."""
_MOVING: Final = (
    re.compile(r'data-now="[^"]*"'),
    re.compile(r'<li class="now">.*?</li>'),
    re.compile(r'<svg class="count".*?</svg>'),
    re.compile(r"(<time [^>]*>)[^<]*"),
)
"""What changes with the time alone, which the browser updates itself; the groups stay.

Each begins with plain text, which is found ten times as fast as one of several patterns.
"""
_ROW: Final = re.compile(
    r'<(tr|div) [^>]*\bid="([^"]+)"[^>]*\bdata-(?:row|part)\b[^>]*>',
)
"""The begin of a row of a table, or of a part of a grid; neither contains another element of its
kind."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A page at one moment.

    position: of the log, that it shows.
    parts: the text before, between and after its rows.
    rows: the rows of tables and the parts of grids, by their ids, in order.
    still: `parts` without the text that changes with the time alone.
    number: the same for frames that do not differ.
    """

    position: int
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
        return self._event({**self.rows, **{id: _keep(id, self.rows[id]) for id in same}})

    def _event(self, rows: Mapping[str, str]) -> bytes:
        """Return an event, whose id is the position of the log that the page shows."""
        pieces = [self.parts[0]]
        for part, row in zip(self.parts[1:], rows.values(), strict=True):
            pieces += row, part
        data = "".join(f"data: {line}\n" for line in "".join(pieces).splitlines() if line)
        return f"id: {self.position}\n{data}\n".encode()


def make_frame(position: int, text: str) -> Frame:
    """Return a page as a frame."""
    parts, rows, end = list[str](), dict[str, str](), 0
    for match in _ROW.finditer(text):
        parts.append(text[end : match.start()])
        close = f"</{match[1]}>"
        end = text.index(close, match.end()) + len(close)
        rows[match[2]] = text[match.start() : end]
    parts.append(text[end:])
    if len(rows) != len(parts) - 1:
        # Two rows have the same id, so a browser could not tell which row stays.
        parts, rows = [text], {}
    return Frame(position, tuple(parts), rows, _still("\0".join(parts)))


def _keep(id: str, row: str) -> str:
    """Return the mark for a row that stays as it is."""
    if row.startswith("<tr"):
        return f'<tr id="{id}" data-row data-same></tr>'
    return f'<div id="{id}" data-part data-same></div>'


def _is_same(one: str, other: str) -> bool:
    return one == other or _still(one) == _still(other)


def _still(text: str) -> str:
    for moving in _MOVING:
        text = moving.sub(r"\1" if moving.groups else "", text)
    return text
