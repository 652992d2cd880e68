"""`nodepool wait`: waits until NodePools or Nodes reach a state, are created, or are gone."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from nodepool.cli.awaited import FORMS, Awaited, parse_awaited
from nodepool.cli.errors import DONE, REFUSED, report
from nodepool.cli.missing import check_place
from nodepool.cli.names import NODE, NODEPOOL, Kind, Selection
from nodepool.cli.options import Files, files_options, objects_argument, seconds, select_objects
from nodepool.cli.output import name_of, print_error, print_text
from nodepool.cli.settings import Command, Settings
from nodepool.cli.sources import read
from nodepool.cli.view import View
from nodepool.contract.documents import Document

if TYPE_CHECKING:
    from nodepool.client import Client

AWAITED = (NODEPOOL, NODE)


class Options(TypedDict):
    """The options of `wait`; the fields are named like its parameters."""

    files: Files
    until: str
    everything: bool
    selector: str
    fields: str
    timeout: str


@click.command(cls=Command)
@objects_argument(AWAITED, "TYPE NAME... | TYPE/NAME...")
@files_options("Wait for the NodePools in these manifests.")
@click.option("--for", "until", required=True, metavar="STATE", help=f"What to wait for: {FORMS}.")
@click.option("--all", "everything", is_flag=True, help="Wait for all objects of the type.")
@click.option("-l", "--selector", default="", metavar="SELECTOR", help="Wait for these, as in get.")
@click.option("--field-selector", "fields", default="", metavar="SELECTOR", hidden=True)
@click.option(
    "--timeout",
    default="30s",
    show_default=True,
    metavar="DURATION",
    help="How long to wait for all of them together; 0 to look only once, as in kubectl.",
)
@click.pass_obj
def wait(settings: Settings, what: tuple[str, ...], **options: Unpack[Options]) -> int:
    """Wait until NodePools (np) or Nodes (no) have a condition or a value, exist or are gone."""
    selector, fields = options["selector"], options["fields"]
    selections = select_objects(what, options["files"], AWAITED)
    views = [View(kind, names, selector=selector, fields=fields) for kind, names in selections]
    for view in views:
        view.check()
        chosen = options["everything"] or selector or fields
        if not view.names and not chosen:
            raise click.UsageError(
                f"NAME: is required; write {view.kind.singular} NAME, --all or -l SELECTOR"
            )
        if view.names and chosen:
            raise click.UsageError("NAME: write either names, or --all or a selector")
    awaited = parse_awaited(options["until"])
    timeout_s = seconds("--timeout", options["timeout"])
    return settings.run(lambda client: _wait(client, views, awaited, timeout_s), patient=True)


async def _wait(client: "Client", views: Sequence[View], awaited: Awaited, timeout_s: float) -> int:
    """Wait for one object after the other; return the exit code of the last error.

    The time limit is for all objects together, as in kubectl.
    """
    import asyncio

    from nodepool.client.errors import ClientError

    deadline = asyncio.get_running_loop().time() + timeout_s
    selections = [await _selection(client, view) for view in views]
    if awaited.event != "change" or not all(names for _, names in selections):
        # A cluster that does not exist has no objects, and never will.
        await check_place(client, views[0].kind)
    if awaited.event != "delete" and not any(names for _, names in selections):
        print_error("no resources found that could be waited for")
        return REFUSED
    code = DONE
    for kind, name in ((kind, name) for kind, names in selections for name in names):
        left = max(deadline - asyncio.get_running_loop().time(), 0)
        try:
            await _wait_for(client, kind, name, awaited, left)
        except ClientError as error:
            code = report(error)
        else:
            print_text(f"{kind.full}/{name} condition met")
    return code


async def _selection(client: "Client", view: View) -> Selection:
    """Return the objects to wait for; objects that are given by name may not exist."""
    if view.names:
        return Selection(view.kind, view.names)
    items = view.choose_items(await read(client, view.kind))
    return Selection(view.kind, [name_of(view.kind, item.document or {}) for item in items])


async def _wait_for(
    client: "Client", kind: Kind, name: str, awaited: Awaited, timeout_s: float
) -> None:
    from nodepool.client.errors import TimedOut

    objects = client.objects(kind.bucket)
    if awaited.event == "create":
        await objects.wait_until_created(name, timeout_s=timeout_s)
        return
    if awaited.event == "delete":
        await objects.wait_until_gone(name, timeout_s=timeout_s)
        return
    seen: list[Document] = []

    def is_met(document: Document) -> bool:
        seen[:] = [document]
        return awaited.is_met(document)

    try:
        await objects.wait_for(name, is_met, awaited.what, timeout_s=timeout_s)
    except TimedOut as error:
        instead = awaited.instead(seen[0]) if seen else ""
        raise TimedOut(f"{error}; {instead}" if instead else str(error)) from None
