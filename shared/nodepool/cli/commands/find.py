"""`nodepool find capacity`: finds zones that are likely to have a number of spot Nodes."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import click

from nodepool.cli.creating import Place, best_place, new_pool
from nodepool.cli.formats import Format
from nodepool.cli.missing import registering
from nodepool.cli.names import ZONE
from nodepool.cli.options import DryRun, Output, no_headers_option, output_options
from nodepool.cli.output import full_name, print_lines, print_note, print_text
from nodepool.cli.sending import Reporting, change_line, send
from nodepool.cli.settings import Command, Group, Settings
from nodepool.cli.tables import new_table
from nodepool.contract.documents import Document, text

if TYPE_CHECKING:
    from nodepool.client import Client
    from nodepool.contract.events import CapacityFound

Selection = tuple[str, int]
KIND = "ZoneAvailability"


@click.group(cls=Group)
def find() -> None:
    """Find capacity."""


def _selections(
    _: click.Context, __: click.Parameter, words: Sequence[str]
) -> tuple[Selection, ...]:
    """Return instance types and counts; the query checks later which of them are valid."""
    return tuple(map(_selection, words))


def _selection(word: str) -> Selection:
    name, _, count = word.partition("=")
    if not (name and count.isascii() and count.isdecimal() and len(count) <= 9):
        raise click.UsageError(
            f"TYPE=COUNT: {word!r} must be an instance type and a number of Nodes,"
            " such as gd-8xh100ib-i128=16"
        )
    return name, int(count)


@find.command(cls=Command)
@click.argument(
    "selections", nargs=-1, required=True, metavar="TYPE=COUNT...", callback=_selections
)
@click.option(
    "--create",
    metavar="NAME",
    help="Create a spot NodePool in the best zone that has a cluster of the organisation.",
)
@output_options()
@no_headers_option()
@click.pass_obj
def capacity(
    settings: Settings,
    /,
    selections: Sequence[Selection],
    output: Output,
    create: str | None,
    no_headers: bool,
) -> int:
    """Rank zones by where spot Nodes are likely.

    Each zone that is open to all customers has a tag for every selection, and as a whole the worst
    of these. What was found holds for the moment, and nothing is reserved.

    With --create NAME, a spot NodePool of the type and the count is created in the best zone that
    may have the Nodes and has a cluster; --cluster chooses where the zone has several. Add
    --dry-run -o yaml to print the manifest instead.
    """
    if create is not None:
        return _create(settings, create, selections, output)
    if output.dry_run is not DryRun.NONE:
        raise click.UsageError("--dry-run: add --create NAME; nothing else is changed")

    async def work(client: "Client") -> None:
        _print(await client.capacity.find(selections), output.format, no_headers=no_headers)

    return settings.run(work)


def _create(settings: Settings, name: str, selections: Sequence[Selection], output: Output) -> int:
    """Create a NodePool in the best zone with a cluster, and return the exit code."""
    if len(selections) > 1:
        raise click.UsageError("--create: a NodePool has one instance type; write one TYPE=COUNT")
    ((instance_type, count),) = selections
    spec = {"instanceType": instance_type, "targetNodes": count, "computeClass": "spot"}
    command = new_pool(name, spec)

    async def choose(client: "Client") -> Place:
        found = await client.capacity.find(selections)
        clusters = [item.document or {} for item in await client.clusters.list()]
        zones = {text(each, "metadata", "name"): text(each, "spec", "zone") for each in clusters}
        return best_place(found, zones, settings.cluster, partial(registering, client))

    zone, cluster = settings.result(choose)
    print_note(f"{zone.zone}, cluster {cluster}: {zone.availability.value}")

    async def work(client: "Client") -> int:
        how = Reporting(change_line, output)
        return (await send(client, [client.nodepools.address_manifest(command)], how))[0]

    return replace(settings, cluster=cluster).run(work)


def _print(found: "CapacityFound", form: Format, *, no_headers: bool) -> None:
    documents = zone_documents(found)
    if form.is_whole:
        form.print_whole(documents, single=False)
        return
    if form.form == "name":
        print_text("\n".join(full_name(ZONE, document) for document in documents))
        return
    table = form.custom_table() if form.columns else new_table(_titles(found))
    table = table.without_header() if no_headers else table
    cells = map(form.custom_cells, documents) if form.columns else _cells(found)
    print_lines(table.lines(cells))


def zone_documents(found: "CapacityFound") -> list[Document]:
    """Return the zones as objects, in the order of the result."""
    return [
        {
            "kind": KIND,
            "metadata": {"name": zone.zone},
            "spec": {
                "selections": [
                    {"instanceType": selection.instance_type, "count": selection.count}
                    for selection in found.selections
                ]
            },
            "status": {
                "availability": zone.availability.value,
                "hasCluster": zone.has_cluster,
                "tags": [tag.value for tag in zone.tags],
            },
        }
        for zone in found.zones
    ]


def _titles(found: "CapacityFound") -> list[str]:
    """Return the titles of the columns; several selections have a column each."""
    each = [f"{selection.instance_type}={selection.count}" for selection in found.selections]
    return ["ZONE", "AVAILABILITY", "CLUSTER", *(each if len(each) > 1 else ())]


def _cells(found: "CapacityFound") -> list[list[str]]:
    several = len(found.selections) > 1
    return [
        [
            zone.zone,
            zone.availability.value,
            "yes" if zone.has_cluster else "no",
            *(tag.value for tag in zone.tags if several),
        ]
        for zone in found.zones
    ]
