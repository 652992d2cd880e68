"""`nodepool get`: lists objects, once or continuously."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from nodepool.cli.changes import Changes
from nodepool.cli.errors import DONE
from nodepool.cli.formats import Format
from nodepool.cli.missing import check_place, report_missing
from nodepool.cli.names import EVENT, KINDS, NODEPOOL, PREEMPTION, Selection
from nodepool.cli.options import (
    Files,
    files_options,
    format_option,
    no_headers_option,
    objects_argument,
    seconds,
    select_objects,
)
from nodepool.cli.output import print_note, print_text
from nodepool.cli.past import at_options
from nodepool.cli.settings import Command, Settings
from nodepool.cli.sources import WATCHED, EndOfList, Item, read, watch
from nodepool.cli.view import View

if TYPE_CHECKING:
    from nodepool.client import Client

SELECTOR_HELP = (
    "Show only objects with these labels: KEY=VALUE, KEY!=VALUE, 'KEY in (A,B)',"
    " 'KEY notin (A,B)', KEY or !KEY, separated by commas."
)
FIELDS_HELP = "Show only objects with these fields: metadata.name=NAME, spec.x!=VALUE, ..."
FILES_HELP = "Show the NodePools that are named in these manifests."
SINCE_HELP = "How far to look back for events (1h unless given) and preemptions (168h)."
SINCE_MAX_S = 1e9
EVERYWHERE_HELP = "Show the objects of all organisations and clusters."


class Options(TypedDict):
    """The options of `get`; the fields are named like its parameters."""

    form: Format
    selector: str
    fields: str
    everywhere: bool
    sort_by: str
    show_labels: bool
    label_columns: tuple[str, ...]
    ignore_not_found: bool
    watches: bool
    watch_only: bool
    no_headers: bool
    files: Files
    chunk_size: int
    since: str


@click.command(cls=Command)
@objects_argument(KINDS, "TYPE[,TYPE] [NAME]... | TYPE/NAME...")
@format_option()
@click.option("-l", "--selector", default="", metavar="SELECTOR", help=SELECTOR_HELP)
@click.option("--field-selector", "fields", default="", metavar="SELECTOR", help=FIELDS_HELP)
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help=EVERYWHERE_HELP)
@click.option(
    "--sort-by", default="", metavar="PATH", help="Sort by a field, as .spec.targetNodes."
)
@click.option("--show-labels", is_flag=True, help="Print a column with all labels.")
@click.option(
    "-L",
    "--label-columns",
    multiple=True,
    metavar="LABEL,...",
    help="Print columns with these labels.",
)
@click.option("--ignore-not-found", is_flag=True, help="Do not fail for what does not exist.")
@click.option("-w", "--watch", "watches", is_flag=True, help="After the list, print each change.")
@click.option("--watch-only", is_flag=True, help="Print each change, and no list before.")
@files_options(FILES_HELP)
@click.option("--since", default="", metavar="DURATION", help=SINCE_HELP)
@click.option("--chunk-size", type=int, default=500, hidden=True)
@no_headers_option()
@at_options
@click.pass_obj
def get(settings: Settings, what: tuple[str, ...], **options: Unpack[Options]) -> int:
    """List objects.

    TYPE is nodepools (np), nodes (no), quotas (qt), capacities (cap), clusters (cl), machines
    (ma), zones (zo), instancetypes (it), events (ev), preemptions (pr), pods (po), or all. The
    NAME of a quota or capacity is ZONE.INSTANCE_TYPE, or either part of it. The Pods are those
    that 'fleet create-pod' and 'nodepool run' made; those of Kubernetes are shown by kubectl.
    """
    views = _views(select_objects(what, options["files"]), options)
    back = _back(views, options["since"])
    if not (options["watches"] or options["watch_only"]):
        ignore = options["ignore_not_found"]
        return settings.run(lambda client: _get(client, views, back, ignore=ignore))
    settings.refuse_past("--watch")
    if back is not None:
        raise click.UsageError("--since: has no meaning with --watch; leave one of them out")
    if len(views) > 1:
        raise click.UsageError("--watch: shows objects of one type; name a single TYPE")
    if views[0].kind not in WATCHED:
        raise click.UsageError(f"--watch: {views[0].kind.plural} cannot be watched; leave it out")
    if options["sort_by"]:
        raise click.UsageError("--sort-by: has no meaning with --watch; leave one of them out")
    changes = Changes(views[0], only_changes=options["watch_only"])
    return settings.run(lambda client: _watch(client, changes), patient=True)


def _back(views: Sequence[View], since: str) -> timedelta | None:
    """Return how far to look back; None if the type of object decides."""
    if not since:
        return None
    for view in views:
        if view.kind not in (EVENT, PREEMPTION):
            raise click.UsageError(f"--since: {view.kind.plural} are those of now; leave it out")
    return timedelta(seconds=min(seconds("--since", since), SINCE_MAX_S))


def _views(selections: Sequence[Selection], options: Options) -> list[View]:
    view = View(
        NODEPOOL,
        format=options["form"],
        selector=options["selector"],
        fields=options["fields"],
        headers=not options["no_headers"],
        everywhere=options["everywhere"],
        sort_by=options["sort_by"],
        show_labels=options["show_labels"],
        label_columns=[key for text in options["label_columns"] for key in text.split(",") if key],
        typed=len(selections) > 1,
    )
    views = [replace(view, kind=kind, names=names) for kind, names in selections]
    for each in views:
        if each.everywhere and each.names and each.kind.scope != "cell":
            raise click.UsageError("--all-namespaces: shows all objects; leave the names out")
        each.check()
    return views


async def _get(
    client: "Client", views: Sequence[View], back: timedelta | None, *, ignore: bool
) -> int:
    """Print the objects of the views; with `ignore`, a missing object is no error."""
    shown: list[tuple[View, list[Item]]] = []
    missing: list[tuple[View, list[str]]] = []
    for view in views:
        existing = await read(client, view.kind, view.names, everywhere=view.everywhere, back=back)
        shown.append((view, view.choose_items(existing)))
        missing.append((view, view.missing([item.document or {} for item in existing])))
    has_missing = any(names for _, names in missing)
    for view, items in shown:
        if not (items or view.everywhere) and (ignore or not has_missing):
            await check_place(client, view.kind)
    _print(shown, has_missing=has_missing)
    codes = [
        DONE if ignore else await report_missing(client, view.kind, names)
        for view, names in missing
    ]
    return max(codes)


def _print(shown: Sequence[tuple[View, list[Item]]], *, has_missing: bool) -> None:
    """Print all objects in the format of the first view; all views have the same format."""
    (view, _), *others = shown
    documents = [item.document or {} for _, items in shown for item in items]
    if view.format.is_whole:
        if documents or not has_missing:
            single = not others and len(view.names) == 1
            view.format.print_whole(documents, single=single)
        return
    if not documents:
        if not has_missing:
            print_note("No resources found")
        return
    is_first = True
    for each, items in shown:
        if not items:
            continue
        if view.format.form == "name":
            each.print_names([item.document or {} for item in items])
            continue
        if not is_first:
            print_text("")
        is_first = False
        fitted = each.fit_columns(items)
        fitted.print_items(fitted.table(), items)


async def _watch(client: "Client", changes: Changes) -> int:
    view = changes.view
    past = not changes.only_changes
    stream = watch(client, view.kind, everywhere=view.everywhere, past=past)
    async with aclosing(stream) as items:
        async for change in items:
            if not isinstance(change, EndOfList):
                changes.take(change)
                continue
            missing = changes.finish_list()
            if missing:
                return await report_missing(client, view.kind, missing)
            if changes.is_empty and not view.everywhere:
                await check_place(client, view.kind)
    return DONE
