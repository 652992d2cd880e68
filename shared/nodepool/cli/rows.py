"""Rows of any columns as a table, CSV, or objects with a field for each column."""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Final

from nodepool.cli import tables
from nodepool.cli.formats import ABSENT, CSV, Format
from nodepool.cli.options import format_option
from nodepool.cli.output import print_lines, print_note, print_text

row_format_option = partial(format_option, but=("wide", "name"), also=(CSV,))
"""Adds `-o`, as the parameter `form`: how rows are printed."""
_CSV_ROWS: Final = 1_000
"""How many rows are written at a time."""


def print_rows(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    form: Format,
    *,
    no_headers: bool = False,
) -> None:
    """Print rows as a format has them; the titles of a table are in capitals."""
    if form.form == CSV:
        _print_csv(columns, rows, no_headers=no_headers)
    elif form.is_whole:
        form.print_whole([_document(columns, row) for row in rows], single=False)
    elif not rows:
        print_note("No rows found")
    elif form.columns:
        table = form.custom_table()
        lines = [form.custom_cells(_document(columns, row)) for row in rows]
        print_lines((table.without_header() if no_headers else table).lines(lines))
    else:
        table = tables.new_table([column.upper().replace("_", " ") for column in columns])
        lines = [[_cell(value, ABSENT) for value in row] for row in rows]
        print_lines((table.without_header() if no_headers else table).lines(lines))


def _print_csv(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, no_headers: bool
) -> None:
    """Print rows as RFC 4180 has them, but with the line ends of the system."""
    lines = [] if no_headers else [list(columns)]
    for first in range(0, max(len(rows), 1), _CSV_ROWS):
        lines += [[_cell(value, "") for value in row] for row in rows[first : first + _CSV_ROWS]]
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows(lines)
        if lines:
            print_text(buffer.getvalue(), newline=False)
        lines = []


def _document(columns: Sequence[str], row: Sequence[object]) -> dict[str, object]:
    return {column: _plain(value) for column, value in zip(columns, row, strict=True)}


def _cell(value: object, absent: str) -> str:
    """Return a value as text."""
    plain = _plain(value)
    match plain:
        case None:
            return absent
        case str():
            return plain
        case _:
            return json.dumps(plain, ensure_ascii=False)


def _plain(value: object) -> object:
    """Return a value as JSON has it; a time as RFC 3339 in UTC, and what JSON has not as text."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case datetime():
            return _time(value)
        case date():
            return value.isoformat()
        case bytes():
            return value.decode(errors="backslashreplace")
        case Mapping():
            return {str(key): _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case _:
            return str(value)


def _time(value: datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat()
    return value.astimezone(UTC).isoformat().removesuffix("+00:00") + "Z"
