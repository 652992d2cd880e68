"""`nodepool log`: the archive of the log."""

from typing import TYPE_CHECKING

import click

from nodepool.cli.errors import DONE, REFUSED
from nodepool.cli.output import print_error, print_text
from nodepool.cli.settings import Command, Group

if TYPE_CHECKING:
    from nodepool.archive.storage.checking import Report

ARCHIVE = click.option(
    "--archive",
    metavar="URL",
    required=True,
    envvar="NODEPOOL_ARCHIVE",
    show_envvar=True,
    help="Where the archive is: a folder, or the URL of a bucket.",
)


@click.group(cls=Group)
def log() -> None:
    """Check the archive of the log."""


@log.command(cls=Command)
@ARCHIVE
def verify(archive: str) -> int:
    """Read the whole archive back, and say what is damaged, missing or foreign.

    No server is needed. The exit code is 1 if the archive has a fault.
    """
    import asyncio

    report = asyncio.run(_verify(archive))
    for fault in report.named:
        print_error(fault)
    if report.faults:
        more = report.faults - len(report.named)
        also = f", and {more} more" if more else ""
        print_error(f"the archive is sound up to position {report.sound} only{also}")
        return REFUSED
    print_text(
        f"archive of log {report.log} is whole: {report.messages} messages,"
        f" positions {report.first} to {report.head.last}, in {report.segments} segments of"
        f" {report.bytes >> 10} KiB; {report.sets} snapshot sets"
    )
    if report.unnamed:
        print_text(f"{report.unnamed} segments belong to no manifest, and do no harm")
    return DONE


async def _verify(archive: str) -> "Report":
    from nodepool.archive.storage.checking import verify
    from nodepool.archive.storage.errors import ArchiveError, StoreError
    from nodepool.archive.storage.store import Store
    from nodepool.cli.waiting_line import shown_while
    from nodepool.client.errors import ClientError, Unreachable

    position = 0

    def note(report: "Report") -> None:
        nonlocal position
        position = report.head.last

    try:
        store = Store(archive)
    except StoreError as error:
        raise Unreachable(str(error)) from None
    try:
        async with shown_while(
            lambda seconds: f"read back to position {position}, {seconds:.0f} s"
        ):
            return await verify(store, note)
    except StoreError as error:
        raise Unreachable(str(error)) from None
    except ArchiveError as error:
        raise ClientError(str(error)) from None
    finally:
        await store.close()
