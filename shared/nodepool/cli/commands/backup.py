"""`nodepool backup` and `restore`: the log as a folder, and the log from an archive."""

import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nodepool.cli.output import print_note, print_text
from nodepool.cli.past import parse_point
from nodepool.cli.settings import Command, Settings

if TYPE_CHECKING:
    from nodepool.client import Client

FOLDER = click.Path(path_type=Path)
DAYS = 30
"""How many days of an archive are restored at least."""


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
@click.argument("folder", type=FOLDER, metavar="[DIR]", required=False)
@click.option("--from", "archive", metavar="URL", help="Restore from this archive, not from a DIR.")
@click.option(
    "--at",
    metavar="TIME|POSITION",
    help="Restore the archive up to here only. What came later has then never happened.",
)
@click.option(
    "--days",
    type=click.IntRange(0, 36_500),
    default=DAYS,
    show_default=True,
    help="How much of the archive to restore at least, before its end or before --at.",
)
@click.option("--force", is_flag=True, help="Delete the log that there is, for good.")
@click.pass_obj
def restore(
    settings: Settings,
    folder: Path | None,
    archive: str | None,
    at: str | None,
    days: int,
    force: bool,
) -> int:
    """Make the log from a backup or an archive, on a server without one.

    Stop the services first, and start them afterwards. Machines have gone on since the backup; read
    deploy/OPERATING.md before.
    """
    if (folder is None) == (archive is None):
        raise click.UsageError("DIR: name the folder of a backup, or an archive with --from URL")
    if folder is not None and at is not None:
        raise click.UsageError("--at: a backup is restored as it was made; leave it out")
    moment = parse_point("--at", at) if at is not None else None

    async def work(client: "Client") -> None:
        if folder is not None:
            made = await client.admin.restore(folder, force=force)
            print_text(f"log restored up to position {made.last}, as of {made.made}")
            return
        done = await client.admin.restore_archive(archive or "", at=moment, days=days, force=force)
        positions = f"positions {done.first} to {done.last}"
        print_text(f"log restored: {positions}, as of {done.time.isoformat()}")
        if done.is_branch:
            print_note(
                "the archive goes on after that, so the archiver refuses to add to it: give it"
                " another place before the services start"
            )

    return settings.run(work)
