"""`nodepool describe`: shows objects in detail."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from nodepool.cli.description import described
from nodepool.cli.documents import Document, text
from nodepool.cli.errors import DONE
from nodepool.cli.event_table import CountedEvent, counted
from nodepool.cli.missing import check_place, report_missing
from nodepool.cli.names import EVENT, KINDS, NODEPOOL, WITH_EVENTS
from nodepool.cli.options import Files, files_options, objects_argument, selected
from nodepool.cli.output import name_of, print_note, print_text
from nodepool.cli.settings import Command, Settings
from nodepool.cli.sources import EVENTS_KEPT, Item, read
from nodepool.cli.times import moment
from nodepool.cli.view import View

if TYPE_CHECKING:
    from nodepool.client import ReadingClient

DESCRIBED = tuple(kind for kind in KINDS if kind is not EVENT)
SELECTOR_HELP = "Show only objects with these labels, as in `get`."


@click.command(cls=Command)
@objects_argument(DESCRIBED, "TYPE[,TYPE] [NAME]... | TYPE/NAME...")
@files_options("Show the NodePools that are named in these manifests.")
@click.option("-l", "--selector", default="", metavar="SELECTOR", help=SELECTOR_HELP)
@click.option(
    "--show-events/--hide-events", default=True, show_default=True, help="Show the events too."
)
@click.pass_obj
def describe(
    settings: Settings, what: tuple[str, ...], files: Files, selector: str, show_events: bool
) -> int:
    """Show objects in detail.

    TYPE is one of those that `get` lists. The events of the last hour of a NodePool or Node are
    shown too.
    """
    selections = selected(what, files, DESCRIBED)
    views = [View(kind, names, selector=selector) for kind, names in selections]
    for view in views:
        view.check()
    return settings.read(lambda client: _describe(client, views, show_events=show_events))


async def _describe(client: "ReadingClient", views: Sequence[View], *, show_events: bool) -> int:
    texts: list[str] = []
    missing: list[tuple[View, list[str]]] = []
    for view in views:
        existing = await read(client, view.kind, view.names)
        for item in view.chosen(existing):
            texts.append(await _described(client, view, item, show_events=show_events))
        missing.append((view, view.missing([item.document or {} for item in existing])))
    if texts:
        print_text("\n\n\n".join(texts))
    elif not any(names for _, names in missing):
        await check_place(client, views[0].kind)
        print_note("No resources found")
    codes = [await report_missing(client, view.kind, names) for view, names in missing]
    return max(codes, default=DONE)


async def _described(client: "ReadingClient", view: View, item: Item, *, show_events: bool) -> str:
    document = item.document or {}
    name = name_of(view.kind, document)
    events: Sequence[CountedEvent] | None = None
    if show_events and view.kind in WITH_EVENTS:
        events = await _recent_events(client, view, name, document)
    return described(document, events, datetime.now(UTC), name=name)


async def _recent_events(
    client: "ReadingClient", view: View, name: str, document: Document
) -> Sequence[CountedEvent]:
    """The events of the object itself: not those of an earlier one that had its name."""
    from nodepool.client.events import of_present_life

    now = datetime.now(UTC)
    since = now - EVENTS_KEPT
    pool, node = (name, "") if view.kind is NODEPOOL else ("", name)
    events = [event async for event in client.events(pool=pool, node=node, since=since)]
    created = moment(text(document, "metadata", "creationTimestamp"))
    return counted(of_present_life(events, created or since))
