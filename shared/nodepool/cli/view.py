"""The objects that a command shows, and their selection, order, columns and format."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from nodepool.cli import tables
from nodepool.cli.clock import shown_now
from nodepool.cli.formats import ABSENT, TABLE, Format
from nodepool.cli.layout import Table
from nodepool.cli.names import CAPACITY, EVENT, NODEPOOL, QUOTA, Kind
from nodepool.cli.output import full_name, is_named, print_lines, print_text
from nodepool.cli.selectors import check_fields, field_paths, has_fields, selects
from nodepool.cli.sources import Item
from nodepool.contract.documents import Document, labels
from nodepool.contract.suggest import did_you_mean

if TYPE_CHECKING:
    from nodepool.cli.jsonpath import Path

_PLACES = {"cluster": ("ORG", "CLUSTER"), "organisation": ("ORG",), "cell": ()}
_OBJECT = ("apiVersion", "kind", "metadata", "spec", "status")
_PLAIN = ("kind", "org", "zone", "instanceType", "resourceVersion")
_ROOTS = {
    QUOTA: (*_PLAIN, "limit", "used"),
    CAPACITY: (
        *_PLAIN,
        "free",
        "assigned",
        "triage",
        "reclaimed",
        "toReclaim",
        "zap",
        "givingWay",
        "preemptingSince",
    ),
    EVENT: ("metadata", "involvedObject", "reason", "message", "type", "count", "source"),
}
"""The top-level fields of the types whose objects differ from most objects."""


@dataclass(frozen=True, slots=True)
class View:
    """A selection of objects of one type, and how they are shown.

    names: the names of the objects to show; empty for all objects.
    selector, fields: the labels and the fields of the objects to show.
    headers: whether a table has a header line.
    everywhere: whether to show the objects of all organisations and clusters.
    sort_by: the field to sort by; empty to sort by name.
    show_labels: whether a table has a column with all labels.
    label_columns: the labels that each get a column.
    typed: whether names in a table are written with their type.
    rare: whether a wide table also has the columns for which few objects have a value.
    """

    kind: Kind
    names: Sequence[str] = ()
    format: Format = TABLE
    selector: str = ""
    fields: str = ""
    headers: bool = True
    everywhere: bool = False
    sort_by: str = ""
    show_labels: bool = False
    label_columns: Sequence[str] = ()
    typed: bool = False
    rare: bool = False

    def check(self) -> None:
        """Raise a usage error for a selector or path that is invalid or names no field."""
        selects(self.selector, {})
        _sort_path(self.sort_by)
        if self.kind is NODEPOOL:
            check_fields(self.fields)
        roots = _ROOTS.get(self.kind, _OBJECT)
        for path in field_paths(self.fields):
            root = path.partition(".")[0]
            if root not in roots:
                hint = did_you_mean(root, roots) or f"; use {', '.join(roots)}"
                raise click.UsageError(f"--field-selector: {path!r} is not a field{hint}")

    def includes(self, document: Document) -> bool:
        """Return whether an object is part of the selection."""
        return (
            is_named(self.kind, document, self.names)
            and selects(self.selector, document)
            and has_fields(self.fields, document)
        )

    def missing(self, documents: Sequence[Document]) -> list[str]:
        """Return the names that no object has."""
        return [
            name
            for name in self.names
            if not any(is_named(self.kind, document, [name]) for document in documents)
        ]

    def choose_items(self, items: Sequence[Item]) -> list[Item]:
        """Return the objects of the selection, in the order of the view.

        Raises a usage error if no object has the field to sort by.
        """
        chosen = [item for item in items if self.includes(item.document or {})]
        path = _sort_path(self.sort_by)
        if path is None or not chosen:
            return chosen
        keys = [_sort_key(path, item.document or {}) for item in chosen]
        if not any(keys):
            raise click.UsageError(f"--sort-by: no object has the field {self.sort_by!r}")
        return [chosen[number] for number in sorted(range(len(chosen)), key=lambda at: keys[at])]

    def fit_columns(self, items: Sequence[Item]) -> "View":
        """Return the view of these objects, with the rare columns where an object has a value."""
        is_wide = self.format.form == "wide"
        rare = is_wide and any(tables.has_rare(self.kind, item.document or {}) for item in items)
        return replace(self, rare=rare)

    def table(self) -> Table:
        """Return an empty table with the columns of this view."""
        table = self.format.custom_table() if self.format.columns else self._table()
        return table if self.headers else table.without_header()

    def _table(self) -> Table:
        headings = tables.header(self.kind, wide=self.format.form == "wide", rare=self.rare)
        headings = [*self._places(), *headings]
        headings += [key.rpartition("/")[2].upper() for key in self.label_columns]
        return tables.new_table([*headings, "LABELS"] if self.show_labels else headings)

    def _places(self) -> Sequence[str]:
        """Return the titles of the place columns, if the objects of all places are shown."""
        has_own = self.format.form == "wide" and "ORG" in tables.header(self.kind, wide=True)
        return _PLACES[self.kind.scope] if self.everywhere and not has_own else ()

    def print_items(self, table: Table, items: Sequence[Item]) -> None:
        """Print objects as lines of a table."""
        print_lines(table.lines(map(self._cells, items)))

    def _cells(self, item: Item) -> list[str]:
        document = item.document or {}
        if self.format.columns:
            return self.format.custom_cells(document)
        now, wide = shown_now(), self.format.form == "wide"
        cells = tables.row(self.kind, document, now, wide=wide, rare=self.rare)
        if self.typed and tables.header(self.kind, wide=True)[0] == "NAME":
            cells[0] = f"{self.kind.singular}/{cells[0]}"
        own = labels(document) if self.label_columns or self.show_labels else {}
        cells += [own.get(key, ABSENT) for key in self.label_columns]
        if self.show_labels:
            shown = ",".join(f"{key}={value}" for key, value in sorted(own.items()))
            cells.append(shown or ABSENT)
        return [*item.place[: len(self._places())], *cells]

    def print_names(self, documents: Sequence[Document]) -> None:
        """Print the names of objects."""
        print_text("\n".join(full_name(self.kind, document) for document in documents))


def _sort_path(text: str) -> "Path | None":
    if not text:
        return None
    from nodepool.cli.jsonpath import JsonPathError
    from nodepool.cli.jsonpath_parser import parse_path

    try:
        return parse_path(text)
    except JsonPathError as error:
        raise click.UsageError(f"--sort-by: {error}") from None


def _sort_key(path: "Path", document: Document) -> tuple[int, float, str] | tuple[()]:
    """Return the sort key of an object.

    Numbers are sorted by value, other values as texts; an object without a value comes first.
    """
    from nodepool.cli.jsonpath import JsonPathError

    try:
        values = path.find(document)
    except JsonPathError:
        return ()
    match values:
        case [bool(value) | str(value), *_]:
            return 1, 0.0, str(value)
        case [int(value) | float(value), *_]:
            return 0, value, ""
        case [value, *_] if value is not None:
            return 1, 0.0, str(value)
    return ()
