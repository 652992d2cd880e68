"""`nodepool describe`: shows objects in detail."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from nodepool.cli.audit_table import change_text
from nodepool.cli.clock import shown_now
from nodepool.cli.description import body, change_part, events_part
from nodepool.cli.errors import DONE
from nodepool.cli.event_table import combine_events
from nodepool.cli.missing import check_place, report_missing
from nodepool.cli.names import EVENT, KINDS, NODEPOOL, WITH_EVENTS, Kind
from nodepool.cli.options import Files, files_options, objects_argument, select_objects
from nodepool.cli.output import name_of, print_note, print_text
from nodepool.cli.past import at_options
from nodepool.cli.settings import Command, Settings
from nodepool.cli.sources import EVENTS_KEPT, read
from nodepool.cli.tables import POOL_LABEL
from nodepool.cli.times import moment
from nodepool.cli.view import View
from nodepool.contract.documents import Document, labels, text

if TYPE_CHECKING:
    from datetime import datetime

    from nodepool.client import Client
    from nodepool.client.recent_events import RecentEvents

DESCRIBED = tuple(kind for kind in KINDS if kind is not EVENT)
EVENTS_SHOWN = 50
SELECTOR_HELP = "Show only objects with these labels, as in `get`."


@click.command(cls=Command)
@objects_argument(DESCRIBED, "TYPE[,TYPE] [NAME]... | TYPE/NAME...")
@files_options("Show the NodePools that are named in these manifests.")
@click.option("-l", "--selector", default="", metavar="SELECTOR", help=SELECTOR_HELP)
@click.option(
    "--show-events/--hide-events", default=True, show_default=True, help="Show the events too."
)
@click.option(
    "--events",
    "most",
    type=click.IntRange(0),
    default=EVENTS_SHOWN,
    show_default=True,
    metavar="N",
    help="Show the newest N events of each object; similar events count as one event.",
)
@at_options
@click.pass_obj
def describe(
    settings: Settings,
    what: tuple[str, ...],
    files: Files,
    selector: str,
    show_events: bool,
    most: int,
) -> int:
    """Show objects in detail.

    TYPE is one of those that `get` lists. The events of the last hour of a NodePool or Node are
    shown too.
    """
    selections = select_objects(what, files, DESCRIBED)
    views = [View(kind, names, selector=selector) for kind, names in selections]
    for view in views:
        view.check()
    return settings.run(lambda client: describe_objects(client, views, most if show_events else 0))


async def describe_objects(client: "Client", views: Sequence[View], most: int) -> int:
    """Print objects in detail, each with its newest `most` events; return the exit code."""
    shown: list[tuple[Kind, Document]] = []
    missing: list[tuple[View, list[str]]] = []
    for view in views:
        existing = await read(client, view.kind, view.names)
        shown += [(view.kind, item.document or {}) for item in view.choose_items(existing)]
        missing.append((view, view.missing([item.document or {} for item in existing])))
    if shown:
        await _print_all(client, shown, most)
    elif not any(names for _, names in missing):
        await check_place(client, views[0].kind)
        print_note("No resources found")
    codes = [
        await report_missing(client, view.kind, names, deletions=True) for view, names in missing
    ]
    return max(codes, default=DONE)


async def _print_all(client: "Client", shown: Sequence[tuple[Kind, Document]], most: int) -> None:
    """Print objects one by one; the first one is printed before any event is read."""
    events: RecentEvents | None = None
    for number, (kind, document) in enumerate(shown):
        name = name_of(kind, document)
        if number:
            print_text("\n")
        print_text("\n".join(body(document, name=name)))
        if kind in WITH_EVENTS and (change := await _last_change(client, kind, document, name)):
            print_text("\n".join(change_part(document, change, name=name)))
        if not most or kind not in WITH_EVENTS:
            continue
        if events is None:
            events = await _recent_events(client, shown)
        own = combine_events(events.of(kind.title, name))
        lines = events_part(document, own, shown_now(), name=name, most=most)
        print_text("\n".join(lines))


async def _last_change(client: "Client", kind: Kind, document: Document, name: str) -> str:
    """Return who changed an object last, when and from where; empty if the log does not say."""
    if kind is NODEPOOL:
        change = await client.audit.last_of_pool(name)
    else:
        since = shown_now() - EVENTS_KEPT
        change = await client.audit.last_of_node(name, labels(document).get(POOL_LABEL, ""), since)
    return change_text(change) if change else ""


async def _recent_events(
    client: "Client", shown: Sequence[tuple[Kind, Document]]
) -> "RecentEvents":
    """Read the events of the objects themselves: not those of earlier ones with their names."""
    earliest = shown_now() - EVENTS_KEPT
    since: dict[tuple[str, str], datetime] = {}
    pools: set[str] = set()
    for kind, document in shown:
        if kind in WITH_EVENTS:
            name = name_of(kind, document)
            created = moment(text(document, "metadata", "creationTimestamp"))
            since[kind.title, name] = max(created or earliest, earliest)
            pools.add(name if kind is NODEPOOL else labels(document).get(POOL_LABEL, ""))
    return await client.events.recent(since, [] if "" in pools else sorted(pools))
