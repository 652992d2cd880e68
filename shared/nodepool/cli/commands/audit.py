"""`nodepool audit`: lists commands, who sent each of them, and what became of it."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from nodepool.cli import tables
from nodepool.cli.audit_table import HEADINGS, WIDE, cells, document
from nodepool.cli.formats import Format
from nodepool.cli.names import WITH_EVENTS, parse_required_names
from nodepool.cli.options import format_option, no_headers_option, seconds
from nodepool.cli.output import print_lines, print_note, print_text
from nodepool.cli.settings import Command, Settings

if TYPE_CHECKING:
    from nodepool.client import Client
    from nodepool.client.audit import CommandRecord

SINCE_MAX_S = 1e9
LIMIT_MAX = 100_000


class Shown(TypedDict):
    """How much is shown: commands of all organisations, how many, and the column titles."""

    everywhere: bool
    limit: int
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

    async def work(client: "Client") -> None:
        from nodepool.client.audit import Wanted

        wanted = Wanted(datetime.now(UTC) - back, by, kind, name or "")
        trail = await client.audit.read(wanted, everywhere=shown["everywhere"], most=shown["limit"])
        _print(trail.all(), form, headers=not shown["no_headers"])
        if trail.older:
            print_note(f"{trail.older} older ones are not shown; choose with --since or --limit")

    return settings.run(work)


def _print(records: "list[CommandRecord]", form: Format, *, headers: bool) -> None:
    documents = [document(record) for record in records]
    if form.is_whole:
        form.print_whole(documents, single=False)
    elif form.form == "name":
        print_text("\n".join(f"command/{record.position}" for record in records))
    elif not records:
        print_note("No commands found")
    else:
        wide = form.form == "wide"
        table = (
            form.custom_table() if form.columns else tables.new_table(WIDE if wide else HEADINGS)
        )
        rows = (
            map(form.custom_cells, documents)
            if form.columns
            else (cells(record, wide=wide) for record in records)
        )
        print_lines((table if headers else table.without_header()).lines(rows))
