"""`nodepool events`: lists events, once or continuously."""

from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from nodepool.cli.errors import DONE
from nodepool.cli.event_table import EVENT_HEADER, counted, event_row, occurred_once
from nodepool.cli.layout import Table
from nodepool.cli.names import NODE, NODEPOOL, parse_required_names
from nodepool.cli.options import no_headers_option, seconds
from nodepool.cli.output import print_note, print_text
from nodepool.cli.settings import Command, Settings

if TYPE_CHECKING:
    from nodepool.client import Client, ObjectEvent

SINCE_MAX_S = 1e9
TYPES_HELP = "Show only events of these types, separated by commas."


@dataclass(frozen=True, slots=True)
class Query:
    """Which events to show.

    pool, node: the object they regard; empty for any.
    types: their types in lower case; empty for all.
    since: how far to look back.
    """

    pool: str
    node: str
    types: frozenset[str]
    since: timedelta

    def includes(self, event: "ObjectEvent") -> bool:
        """Whether the event has one of the types."""
        return not self.types or event.severity.lower() in self.types


@click.command(cls=Command)
@click.option("--for", "regarded", metavar="TYPE/NAME", help="Show only events of this object.")
@click.option("-w", "--watch", is_flag=True, help="After the list, print each new event.")
@click.option("--types", default="", metavar="Normal,Warning", help=TYPES_HELP)
@click.option(
    "--since", default="1h", show_default=True, metavar="DURATION", help="How far to look back."
)
@no_headers_option()
@click.pass_obj
def events(
    settings: Settings, regarded: str | None, watch: bool, types: str, since: str, no_headers: bool
) -> int:
    """List the events of NodePools and Nodes, oldest first."""
    pool = node = ""
    if regarded:
        kind, (name, *_) = parse_required_names([regarded], (NODEPOOL, NODE))
        pool, node = (name, "") if kind is NODEPOOL else ("", name)
    back = timedelta(seconds=min(seconds("--since", since), SINCE_MAX_S))
    query = Query(pool, node, _types(types), back)
    table = Table(EVENT_HEADER)
    if no_headers:
        table = table.without_header()
    show = _follow if watch else _list
    return settings.run(lambda client: show(client, query, table))


def _types(text: str) -> frozenset[str]:
    types = frozenset(text.lower().split(",")) if text else frozenset[str]()
    for name in types - {"normal", "warning"}:
        raise click.UsageError(f"--types: {name!r} is not an event type; use Normal or Warning")
    return types


async def _list(client: "Client", query: Query, table: Table) -> int:
    since = datetime.now(UTC) - query.since
    events = [
        event
        async for event in client.events(pool=query.pool, node=query.node, since=since)
        if query.includes(event)
    ]
    if events:
        now = datetime.now(UTC)
        print_text("\n".join(table.lines(event_row(event, now) for event in counted(events))))
    else:
        print_note("No events found")
    return DONE


async def _follow(client: "Client", query: Query, table: Table) -> int:
    since = datetime.now(UTC) - query.since
    stream = client.events(pool=query.pool, node=query.node, since=since, follow=True)
    async with aclosing(stream) as events:
        async for event in events:
            if query.includes(event):
                row = event_row(occurred_once(event), datetime.now(UTC))
                print_text("\n".join(table.lines([row])))
    return DONE
