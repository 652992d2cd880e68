"""Columns as kubectl prints them, by the rules of https://pkg.go.dev/text/tabwriter."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

Line = Sequence[str]
"""The cells of a line; the last one is trailing text and belongs to no column."""

TABLE_MIN_WIDTH = 6
TABLE_PADDING = 3
NARROW_PADDING, NARROWEST_PADDING = 2, 1
DESCRIBE_PADDING = 2

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_CARET_MAX = 0x1F


def align_columns(lines: Sequence[Line], *, padding: int = DESCRIBE_PADDING) -> list[str]:
    """Return the lines as text, each column as wide as its widest cell plus `padding` blanks.

    A column ends at a line without a cell in it; the cells below that line form another column.
    """
    widths: list[list[int]] = [[0] * max(len(line) - 1, 0) for line in lines]
    _measure(lines, widths, range(len(lines)), 0, padding)
    return [
        "".join(cell.ljust(width) for cell, width in zip(line, own, strict=False))
        + (line[-1] if line else "")
        for line, own in zip(lines, widths, strict=True)
    ]


def _measure(
    lines: Sequence[Line], widths: list[list[int]], within: range, column: int, padding: int
) -> None:
    for block in _blocks(widths, within, column):
        width = max(len(lines[number][column]) for number in block) + padding
        for number in block:
            widths[number][column] = width
        _measure(lines, widths, block, column + 1, padding)


def _blocks(widths: list[list[int]], within: range, column: int) -> Iterable[range]:
    """Yield the runs of consecutive lines that have a cell in the column."""
    begin = within.start
    for number in within:
        if len(widths[number]) <= column:
            if begin < number:
                yield range(begin, number)
            begin = number + 1
    if begin < within.stop:
        yield range(begin, within.stop)


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of a column.

    usual: the usual text of a cell. If the table is too wide, a column in which every cell has
      this text may be left out. Empty for a column that is never left out.
    """

    title: str
    usual: str = ""


@dataclass(frozen=True, slots=True)
class Screen:
    """What a table is printed on.

    width: how many characters fit on a line; None if the width is not limited.
    paint: returns the text of a cell with its colour, from the title of its column and the text.
    """

    width: int | None = None
    paint: Callable[[str, str], str] = lambda _, text: text


class Table:
    """A table that can be printed in parts: its columns may become wider, but never narrower.

    If the first part is too wide for the screen, the columns move closer together, and columns
    with only usual texts are left out. If that is not enough, the columns move as close together
    as possible. A column that was left out appears, below a new header, as soon as a cell of the
    column has another text.
    """

    def __init__(self, headings: Sequence[Heading | str], screen: Screen | None = None) -> None:
        self._headings = [
            Heading(heading) if isinstance(heading, str) else heading for heading in headings
        ]
        self._screen = screen or Screen()
        self._has_header = True
        self._prints_header = True
        self._padding = TABLE_PADDING
        self._hidden: set[int] = set()
        self._contents = [0] * len(self._headings)
        self._began = False

    def without_header(self) -> "Table":
        """Return this table, set to be printed without a header."""
        self._has_header = False
        return self

    def lines(self, rows: Iterable[Sequence[str]]) -> list[str]:
        """Return the rows as lines of text; the header precedes the first row."""
        cells = [[_first_line(cell) for cell in row] for row in rows]
        self._reveal(cells)
        titles = [_first_line(heading.title) for heading in self._headings]
        prints_header = self._has_header and self._prints_header
        self._prints_header = False
        measured = [titles, *cells] if self._has_header else cells
        for row in measured:
            for column, cell in enumerate(row):
                self._contents[column] = max(self._contents[column], len(cell))
        if not self._began:
            self._fit(cells)
        self._began = True
        shown = self._list_columns()
        widths = [(column, self._column_width(column)) for column in shown[:-1]]
        widths.append((shown[-1], 0))
        header = [self._line(titles, widths, plain=True)] if prints_header else []
        return header + [self._line(row, widths) for row in cells]

    def _reveal(self, cells: Sequence[Sequence[str]]) -> None:
        """Start the table again if a hidden column now has an unusual value."""
        if not all(self._is_usual(column, cells) for column in self._hidden):
            self._hidden.clear()
            self._prints_header = True
            self._began = False

    def _is_usual(self, column: int, cells: Sequence[Sequence[str]]) -> bool:
        usual = self._headings[column].usual
        return bool(usual) and all(row[column] == usual for row in cells)

    def _fit(self, cells: Sequence[Sequence[str]]) -> None:
        """Make the table as narrow as the screen, as far as no information is lost."""
        limit = self._screen.width
        if limit is None or self._width() <= limit:
            return
        self._padding = NARROW_PADDING
        for column in range(len(self._headings)):
            if self._width() <= limit:
                return
            if self._is_usual(column, cells):
                self._hidden.add(column)
        if self._width() > limit:
            self._padding = NARROWEST_PADDING

    def _width(self) -> int:
        *columns, last = self._list_columns()
        return sum(self._column_width(column) for column in columns) + self._contents[last]

    def _list_columns(self) -> list[int]:
        return [column for column in range(len(self._headings)) if column not in self._hidden]

    def _column_width(self, column: int) -> int:
        return max(TABLE_MIN_WIDTH, self._contents[column] + self._padding)

    def _line(
        self, row: Sequence[str], widths: Sequence[tuple[int, int]], *, plain: bool = False
    ) -> str:
        texts = []
        for column, width in widths:
            text = row[column]
            painted = text if plain else self._screen.paint(self._headings[column].title, text)
            texts.append(painted + " " * (width - len(text)))
        return "".join(texts)


def _first_line(cell: str) -> str:
    text = visible(cell).replace("\t", " ")
    first = text.partition("\n")[0]
    return first if first == text else f"{first}..."


def visible(text: str) -> str:
    """Return the text with characters that control a terminal made visible.

    These are the control characters, and characters that change the direction of a text. Line ends
    and tabs are kept.
    """
    return _CONTROL.sub(lambda match: _format_character(match[0]), text)


def escape_text(text: str) -> str:
    """Return the `visible` text as one line: a line end becomes visible, and a tab a blank."""
    return visible(text).replace("\t", " ").replace("\n", "\\n")


def _format_character(character: str) -> str:
    if character == "\r":
        return "\\r"
    code = ord(character)
    return f"^{chr(code + 0x40)}" if code <= _CARET_MAX else f"\\u{code:04x}"
