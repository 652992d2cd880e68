"""`nodepool backup` and `restore`: the log as a folder."""

import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nodepool.cli.output import print_text
from nodepool.cli.settings import Command, Settings

if TYPE_CHECKING:
    from nodepool.client import Client

FOLDER = click.Path(path_type=Path)


@click.command(cls=Command)
@click.argument("folder", type=FOLDER, metavar="DIR")
@click.pass_obj
def backup(settings: Settings, folder: Path) -> int:
    """Store the log, as it is now, in a new folder.

    The services go on. The folder appears once all of it is on disk. What is made from the log, the
    read model and the snapshots, is not in it: services make it again.
    """

    # Ctrl-C first removes the incomplete folder, and then ends the program.
    with suppress(ValueError):  # Signal handlers work in the main thread only.
        signal.signal(signal.SIGINT, signal.default_int_handler)

    async def work(client: "Client") -> None:
        made = await client.admin.backup(folder)
        print_text(
            f"backup/{folder} created: {made.messages} messages up to position {made.last},"
            f" {made.bytes >> 10} KiB"
        )

    return settings.run(work)


@click.command(cls=Command)
@click.argument("folder", type=FOLDER, metavar="DIR")
@click.option("--force", is_flag=True, help="Delete the log that there is, for good.")
@click.pass_obj
def restore(settings: Settings, folder: Path, force: bool) -> int:
    """Make the log from a backup, on a server without one.

    Stop the services first, and start them afterwards. Machines have gone on since the backup; read
    deploy/OPERATING.md before.
    """

    async def work(client: "Client") -> None:
        made = await client.admin.restore(folder, force=force)
        print_text(f"log restored up to position {made.last}, as of {made.made}")

    return settings.run(work)
