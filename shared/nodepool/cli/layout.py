"""Columns as kubectl prints them, by the rules of https://pkg.go.dev/text/tabwriter."""

from collections.abc import Iterable, Sequence

Line = Sequence[str]
"""The cells of a line; the last one is trailing text and belongs to no column."""

TABLE_MIN_WIDTH = 6
TABLE_PADDING = 3
DESCRIBE_PADDING = 2


def aligned(lines: Sequence[Line], *, padding: int = DESCRIBE_PADDING) -> list[str]:
    """The lines as text, each column as wide as its widest cell plus `padding` blanks.

    A column ends at a line without a cell in it; the cells below that form a column of their own.
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
    """Runs of consecutive lines that have a cell in this column."""
    begin = within.start
    for number in within:
        if len(widths[number]) <= column:
            if begin < number:
                yield range(begin, number)
            begin = number + 1
    if begin < within.stop:
        yield range(begin, within.stop)


class Table:
    """A table that can be printed in parts: its columns may become wider, and never narrower."""

    def __init__(self, header: Sequence[str]) -> None:
        self._header: Sequence[str] | None = header
        self._widths = [TABLE_MIN_WIDTH] * (len(header) - 1)

    def without_header(self) -> "Table":
        """This table, to be printed without a header."""
        self._header = None
        return self

    def lines(self, rows: Iterable[Sequence[str]]) -> list[str]:
        """The rows as lines of text; the header precedes the first of them."""
        cells = [[_first_line(cell) for cell in row] for row in rows]
        if self._header is not None:
            cells.insert(0, list(self._header))
            self._header = None
        for row in cells:
            for column, cell in enumerate(row[:-1]):
                self._widths[column] = max(self._widths[column], len(cell) + TABLE_PADDING)
        return [
            "".join(cell.ljust(width) for cell, width in zip(row, self._widths, strict=False))
            + row[-1]
            for row in cells
        ]


def _first_line(cell: str) -> str:
    text = escaped(cell)
    first = text.partition("\n")[0]
    return first if first == text else f"{first}..."


def escaped(text: str) -> str:
    """The text without characters that control a terminal."""
    return text.replace("\x1b", "^[").replace("\r", "\\r").replace("\t", " ")
