"""`nodepool users`: lists who belongs to the organisation."""

from typing import TYPE_CHECKING

import click

from nodepool.cli.formats import Format
from nodepool.cli.options import no_headers_option
from nodepool.cli.output import print_note
from nodepool.cli.rows import print_rows, row_format_option
from nodepool.cli.settings import Command, Settings
from nodepool.contract.documents import field, items, text

if TYPE_CHECKING:
    from nodepool.client import Client
    from nodepool.client.asking import Reply

COLUMNS = ("user", "role", "cluster")


@click.command(cls=Command)
@row_format_option()
@no_headers_option()
@click.pass_obj
def users(settings: Settings, form: Format, no_headers: bool) -> None:
    """List the users of the organisation with their roles, and agents with their clusters.

    Only users of the organisation see them; operators use 'nodepool auth list'.
    """
    reply = settings.result(_read)
    known = items(reply, "items")
    rows = [[text(each, column) or None for column in COLUMNS] for each in known]
    print_rows(COLUMNS, rows, form, no_headers=no_headers)
    total = field(reply, "total")
    if isinstance(total, int) and total > len(rows):
        print_note(f"{total - len(rows)} more are not shown")


async def _read(client: "Client") -> "Reply":
    from nodepool.client.asking import Asker
    from nodepool.client.errors import Refused

    if client.session.through == "bus":
        message = "an operator belongs to no organisation: 'nodepool auth list' lists all users"
        raise Refused("", "Forbidden", message)
    return await Asker(client.session).ask("Users", {})
