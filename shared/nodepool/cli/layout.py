"""Columns as kubectl lays them out, after the rules of Go's text/tabwriter."""

from collections.abc import Iterable, Sequence

Line = Sequence[str]
"""The cells of a line; the last one is trailing text, which belongs to no column."""

TABLE_MIN_WIDTH = 6
TABLE_PADDING = 3
DESCRIBE_PADDING = 2


def aligned(lines: Sequence[Line], *, padding: int = DESCRIBE_PADDING) -> list[str]:
    """The lines with each column as wide as its widest cell and `padding` blanks.

    A column ends where a line has no cell in it: what lies below is laid out anew.
    """
    widths: list[list[int]] = [[0] * max(len(line) - 1, 0) for line in lines]
    _measure(lines, widths, range(len(lines)), 0, padding)
    return [
        "".join(cell.ljust(width) for cell, width in zip(line, of, strict=False))
        + (line[-1] if line else "")
        for line, of in zip(lines, widths, strict=True)
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
    """A table that may be printed bit by bit: a column never becomes narrower than it was."""

    def __init__(self, header: Sequence[str]) -> None:
        self._header: Sequence[str] | None = header
        self._widths = [TABLE_MIN_WIDTH] * (len(header) - 1)

    def without_header(self) -> "Table":
        """The same table, whose first lines are rows."""
        self._header = None
        return self

    def lines(self, rows: Iterable[Sequence[str]]) -> list[str]:
        """The rows as lines, below the header the first time."""
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
    """The text with nothing in it that a terminal would obey."""
    return text.replace("\x1b", "^[").replace("\r", "\\r").replace("\t", " ")
