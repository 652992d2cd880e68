"""`nodepool audit`: lists commands, who sent each of them, and what became of it."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from nodepool.cli import tables
from nodepool.cli.audit_table import (
    HEADINGS,
    USAGE,
    WIDE,
    cells,
    document,
    usage_cells,
    usage_document,
)
from nodepool.cli.formats import Format
from nodepool.cli.missing import note_trimmed
from nodepool.cli.names import EVENT, WITH_EVENTS, parse_required_names
from nodepool.cli.options import format_option, no_headers_option, seconds
from nodepool.cli.output import name_of, print_lines, print_note, print_text
from nodepool.cli.settings import Command, Settings

if TYPE_CHECKING:
    from nodepool.client import Client
    from nodepool.contract.documents import Document

SINCE_MAX_S = 1e9
LIMIT_MAX = 100_000


class Shown(TypedDict):
    """What is shown: all organisations, how many commands, their bytes, and column titles."""

    everywhere: bool
    limit: int
    usage: bool
    no_headers: bool


@click.command(cls=Command)
@click.argument("name", required=False, metavar="[NAME|TYPE/NAME]")
@click.option(
    "--since", default="1h", show_default=True, metavar="DURATION", help="How far to look back."
)
@click.option("--by", default="", metavar="USER", help="Only commands of alice, or of operator.")
@click.option("-A", "--all", "everywhere", is_flag=True, help="Of all organisations and the fleet.")
@click.option(
    "--limit",
    type=click.IntRange(1, LIMIT_MAX),
    default=500,
    show_default=True,
    metavar="N",
    help="Show the newest N commands.",
)
@click.option("--usage", is_flag=True, help="Show the bytes of the last hour of organisations.")
@format_option()
@no_headers_option()
@click.pass_obj
def audit(
    settings: Settings,
    name: str | None,
    since: str,
    by: str,
    form: Format,
    **shown: Unpack[Shown],
) -> int:
    """List the commands of the organisation, oldest first: who sent which, and its outcome.

    NAME chooses the commands about a NodePool, a Node or any other object. A command without an
    address came from the operator, who does not go through the gateway.
    """
    kind = ""
    if name and "/" in name:
        found, (name, *_) = parse_required_names([name], WITH_EVENTS)
        kind = found.singular
    back = timedelta(seconds=min(seconds("--since", since), SINCE_MAX_S))

    if shown["usage"]:
        return settings.run(lambda client: _print_usage(client, form, shown))

    async def work(client: "Client") -> None:
        from nodepool.client.audit import Wanted

        wanted = Wanted(datetime.now(UTC) - back, by, kind, name or "")
        trail = await client.audit.read(wanted, everywhere=shown["everywhere"], most=shown["limit"])
        records = trail.all()
        documents = [document(record) for record in records]
        wide = form.form == "wide"
        rows = [cells(record, wide=wide) for record in records]
        _print("command", documents, WIDE if wide else HEADINGS, rows, form, shown)
        if trail.older:
            print_note(f"{trail.older} older ones are not shown; choose with --since or --limit")
        note_trimmed(client)

    return settings.run(work)


async def _print_usage(client: "Client", form: Format, shown: Shown) -> None:
    found = await client.audit.usage()
    documents = [usage_document(each) for each in found]
    _print("organisation", documents, USAGE, [usage_cells(each) for each in found], form, shown)


def _print(
    what: str,
    documents: "list[Document]",
    headings: Sequence[str],
    rows: Sequence[list[str]],
    form: Format,
    shown: Shown,
) -> None:
    if form.is_whole:
        form.print_whole(documents, single=False)
    elif form.form == "name":
        print_text("\n".join(f"{what}/{name_of(EVENT, document)}" for document in documents))
    elif not documents:
        print_note(f"No {what}s found")
    else:
        table = form.custom_table() if form.columns else tables.new_table(headings)
        lines = map(form.custom_cells, documents) if form.columns else rows
        print_lines((table.without_header() if shown["no_headers"] else table).lines(lines))
