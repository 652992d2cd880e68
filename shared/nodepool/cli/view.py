"""Which objects a command shows, and how: their selection, columns and format."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from nodepool.cli import tables
from nodepool.cli.documents import Document
from nodepool.cli.errors import DONE, REFUSED
from nodepool.cli.layout import Table
from nodepool.cli.names import NODE, NODEPOOL, Kind
from nodepool.cli.output import formatted, is_named, print_error, print_text
from nodepool.cli.selectors import selects

if TYPE_CHECKING:
    from nodepool.client import Client


@dataclass(frozen=True, slots=True)
class View:
    """A selection of objects of one type, and their format.

    names: the objects to show; all where it is empty.
    form: `wide`, `json`, `yaml`, `name`, or empty for a table.
    selector: the labels of the objects to show.
    headers: whether a table has a line of titles.
    """

    kind: Kind
    names: Sequence[str]
    form: str = ""
    selector: str = ""
    headers: bool = True

    def includes(self, document: Document) -> bool:
        """Whether an object is part of the selection."""
        return is_named(self.kind, document, self.names) and selects(self.selector, document)

    def missing(self, documents: Sequence[Document]) -> list[str]:
        """The names that no object has."""
        return [
            name
            for name in self.names
            if not any(is_named(self.kind, document, [name]) for document in documents)
        ]

    def table(self) -> Table:
        """An empty table with the columns of this view."""
        table = Table(tables.header(self.kind, wide=self.form == "wide"))
        return table if self.headers else table.without_header()

    def print_rows(self, table: Table, documents: Sequence[Document]) -> None:
        """Prints objects as lines of a table."""
        now, wide = datetime.now(UTC), self.form == "wide"
        rows = (tables.row(self.kind, document, now, wide=wide) for document in documents)
        print_text("\n".join(table.lines(rows)))

    def print_names(self, documents: Sequence[Document]) -> None:
        """Prints the names of objects."""
        print_text(formatted(self.kind, documents, "name", single=False))


async def read(client: "Client", view: View) -> list[Document]:
    """The objects that have the names of a view; for some types, all objects of the type."""
    if view.kind in (NODEPOOL, NODE) and view.names:
        documents = [await client.get(view.kind.bucket, name) for name in view.names]
    else:
        documents = [each.document for each in await client.list(view.kind.bucket)]
    return [document for document in documents if document is not None]


def report_missing(client: "Client", kind: Kind, names: Sequence[str]) -> int:
    """Prints an error for each name that no object has, and returns the exit code."""
    for name in names:
        print_error(f'{kind.singular} "{name}" not found in {client.org}/{client.cluster}')
    return REFUSED if names else DONE
