"""`nodepool describe`: shows objects in detail."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from nodepool.cli.description import described
from nodepool.cli.event_table import counted
from nodepool.cli.names import NODE, NODEPOOL, Kind, parse_names
from nodepool.cli.output import name_of, print_note, print_text
from nodepool.cli.settings import Command, Settings
from nodepool.cli.view import View, read, report_missing

if TYPE_CHECKING:
    from nodepool.client import Client, ObjectEvent

EVENTS_KEPT = timedelta(hours=1)
"""How old an event may be; Kubernetes deletes its events after this time."""


@click.command(cls=Command)
@click.argument("what", nargs=-1, metavar="TYPE [NAME]...")
@click.pass_obj
def describe(settings: Settings, what: tuple[str, ...]) -> int:
    """Show NodePools or Nodes in detail.

    TYPE is nodepools (np) or nodes (no). The events of the last hour are shown too.
    """
    kind, names = parse_names(what, (NODEPOOL, NODE))
    return settings.run(lambda client: _describe(client, View(kind, names)))


async def _describe(client: "Client", view: View) -> int:
    documents = await read(client, view)
    if not documents and not view.names:
        print_note("No resources found")
    texts = []
    for document in documents:
        events = await _recent_events(client, view.kind, name_of(view.kind, document))
        texts.append(described(document, counted(events), datetime.now(UTC)))
    if texts:
        print_text("\n\n\n".join(texts))
    return report_missing(client, view.kind, view.missing(documents))


async def _recent_events(client: "Client", kind: Kind, name: str) -> "list[ObjectEvent]":
    since = datetime.now(UTC) - EVENTS_KEPT
    pool, node = (name, "") if kind is NODEPOOL else ("", name)
    return [event async for event in client.events(pool=pool, node=node, since=since)]
