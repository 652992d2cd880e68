"""`nodepool events`: lists events, once or continuously."""

from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from nodepool.cli import tables
from nodepool.cli.clock import shown_now
from nodepool.cli.errors import DONE
from nodepool.cli.event_table import count_events, event_document, occurred_once
from nodepool.cli.formats import Format
from nodepool.cli.missing import check_place, note_trimmed
from nodepool.cli.names import EVENT, NODEPOOL, WITH_EVENTS, parse_required_names
from nodepool.cli.options import format_option, no_headers_option, seconds
from nodepool.cli.output import print_lines, print_note, print_text
from nodepool.cli.past import at_options
from nodepool.cli.settings import Command, Settings

if TYPE_CHECKING:
    from nodepool.cli.layout import Table
    from nodepool.client import Client, ObjectEvent
    from nodepool.contract.documents import Document

SINCE_MAX_S = 1e9
TYPES_HELP = "Show only events of these types, separated by commas."


@dataclass(frozen=True, slots=True)
class Query:
    """Which events to show.

    pool, node: the object that the events are about; empty for any object.
    types: the types of the events in lower case; empty for all types.
    since: how far to look back.
    """

    pool: str
    node: str
    types: frozenset[str]
    since: timedelta

    def includes(self, event: "ObjectEvent") -> bool:
        """Return whether the event has one of the types."""
        return not self.types or event.severity.lower() in self.types


class Printer:
    """Prints events in a format; if the format is a table, all events are in one table."""

    def __init__(self, form: Format, *, headers: bool) -> None:
        self.form = form
        self._is_wide = form.form == "wide"
        table = (
            form.custom_table()
            if form.columns
            else tables.new_table(tables.header(EVENT, wide=self._is_wide))
        )
        self._table: Table = table if headers else table.without_header()

    def print_each(self, documents: "list[Document]") -> None:
        """Print some of the events."""
        if self.form.is_whole:
            for document in documents:
                self.form.print_one_of_many(document)
            return
        if self.form.form == "name":
            print_text("\n".join(f"event/{_name(document)}" for document in documents))
            return
        now = shown_now()
        rows = (
            self.form.custom_cells(document)
            if self.form.columns
            else tables.row(EVENT, document, now, wide=self._is_wide)
            for document in documents
        )
        print_lines(self._table.lines(rows))

    def print_all(self, documents: "list[Document]") -> None:
        """Print all events, as one list if the format has lists."""
        if self.form.is_whole:
            self.form.print_whole(documents, single=False)
        elif documents:
            self.print_each(documents)
        else:
            print_note("No events found")


def _name(document: "Document") -> str:
    metadata = document["metadata"]
    return str(metadata["name"]) if isinstance(metadata, dict) else ""


@click.command(cls=Command)
@click.option("--for", "regarded", metavar="TYPE/NAME", help="Show only events of this object.")
@click.option("-w", "--watch", is_flag=True, help="After the list, print each new event.")
@click.option("--types", default="", metavar="Normal,Warning", help=TYPES_HELP)
@click.option(
    "--since", default="1h", show_default=True, metavar="DURATION", help="How far to look back."
)
@format_option()
@no_headers_option()
@at_options
@click.pass_obj
def events(
    settings: Settings,
    regarded: str | None,
    watch: bool,
    types: str,
    since: str,
    form: Format,
    no_headers: bool,
) -> int:
    """List the events of NodePools and Nodes, oldest first."""
    pool = node = ""
    if regarded:
        kind, (name, *_) = parse_required_names([regarded], WITH_EVENTS)
        pool, node = (name, "") if kind is NODEPOOL else ("", name)
    back = timedelta(seconds=min(seconds("--since", since), SINCE_MAX_S))
    query = Query(pool, node, _types(types), back)
    printer = Printer(form, headers=not no_headers)
    show = _follow if watch else _list
    if watch:
        settings.refuse_past("--watch")
    return settings.run(lambda client: show(client, query, printer), patient=watch)


def _types(text: str) -> frozenset[str]:
    types = frozenset(text.lower().split(",")) if text else frozenset[str]()
    for name in types - {"normal", "warning"}:
        raise click.UsageError(f"--types: {name!r} is not an event type; use Normal or Warning")
    return types


async def _list(client: "Client", query: Query, printer: Printer) -> int:
    since = shown_now() - query.since
    events = [
        event
        async for event in client.events.read(pool=query.pool, node=query.node, since=since)
        if query.includes(event)
    ]
    if not events:
        await check_place(client, EVENT)
    printer.print_all([event_document(event) for event in count_events(events)])
    note_trimmed(client)
    return DONE


async def _follow(client: "Client", query: Query, printer: Printer) -> int:
    # A cluster that does not exist will never have events.
    await check_place(client, EVENT)
    since = shown_now() - query.since
    stream = client.events.read(pool=query.pool, node=query.node, since=since, follow=True)
    async with aclosing(stream) as events:
        async for event in events:
            if query.includes(event):
                printer.print_each([event_document(occurred_once(event))])
    return DONE
