"""`nodepool skip`: makes a service skip an input at which it is stuck."""

from importlib import import_module
from typing import TYPE_CHECKING

import click

from nodepool.cli.errors import CliError
from nodepool.cli.output import print_text
from nodepool.cli.settings import Command, Settings
from nodepool.contract.services import EVERY

if TYPE_CHECKING:
    from nodepool.client import Client
    from nodepool.contract.log import Entry

EXCERPT_MAX = 300
"""How many characters of the input are shown."""


@click.command(cls=Command)
@click.argument("service", type=click.Choice(EVERY), metavar="SERVICE")
@click.option(
    "--position",
    type=click.IntRange(min=1),
    metavar="N",
    help="The position of the input to pass over, which must be the next one.",
)
@click.pass_obj
def skip(settings: Settings, service: str, position: int | None) -> int:
    """Show the next input of a service, and pass over it if its position is given.

    For an input that ends or stops the process of the service. It is parked as a dead letter, and
    a command is refused. It cannot be undone.
    """

    async def work(client: "Client") -> None:
        known = import_module(f"{service}.decide").SERVICE
        standing = await client.admin.next_input(known)
        if standing.next is None:
            raise CliError(f"{service} has processed all its inputs")
        _show(service, standing.next)
        if position is None:
            return
        if position != standing.next.position:
            raise CliError(f"position {position} is not the next input of {service}")
        await client.admin.skip(known, standing)
        print_text(f"{service} passes over position {position}")

    return settings.run(work)


def _show(service: str, entry: "Entry") -> None:
    text = entry.content[: 4 * EXCERPT_MAX].decode(errors="replace")[:EXCERPT_MAX]
    print_text(f"next input of {service}: position {entry.position}")
    print_text(f"subject: {entry.subject!a}")
    print_text(f"stored: {entry.time:%Y-%m-%dT%H:%M:%SZ}, {len(entry.content)} bytes")
    print_text(f"content: {text!a}")
