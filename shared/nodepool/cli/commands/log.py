"""`nodepool log`: the archive of the log, the log in SQL, and where the log may be trimmed."""

from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from nodepool.archive.floor import KEEP_BYTES, KEEP_S
from nodepool.cli.errors import DONE, REFUSED
from nodepool.cli.formats import Format
from nodepool.cli.options import no_headers_option
from nodepool.cli.output import print_error, print_lines, print_note, print_text
from nodepool.cli.past import (
    archive_option,
    check_only_archived,
    moment_option,
    only_archived_option,
)
from nodepool.cli.rows import print_rows, row_format_option
from nodepool.cli.settings import Command, Group, Settings
from nodepool.cli.tables import new_table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from nodepool.archive.storage.checking import Report
    from nodepool.archive.storage.sql import Answer
    from nodepool.client import Client
    from nodepool.client.floor import Floor
    from nodepool.client.session import Session

ROWS_MAX = 1_000_000


@click.group(cls=Group)
def log() -> None:
    """Check the archive of the log, ask the log in SQL, and see what of it may go."""


@log.command(cls=Command)
@archive_option(required=True)
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


@asynccontextmanager
async def _progress() -> "AsyncIterator[Callable[[Report], None]]":
    """Show how much of an archive was read back; provide what is called with each report."""
    from nodepool.cli.waiting_line import shown_while

    position = 0

    def note(report: "Report") -> None:
        nonlocal position
        position = report.head.last

    async with shown_while(lambda seconds: f"read back to position {position}, {seconds:.0f} s"):
        yield note


async def _verify(archive: str) -> "Report":
    from nodepool.archive.storage.store import Store
    from nodepool.client.errors import translate_archive_errors

    with translate_archive_errors():
        from nodepool.archive.storage.checking import verify

        store = Store(archive)
        try:
            async with _progress() as note:
                return await verify(store, note)
        finally:
            await store.close()


class Asked(TypedDict):
    """What is asked: the places, the time, and how many rows."""

    archive: str
    only_archived: bool
    since: datetime | None
    until: datetime | None
    limit: int


@log.command(cls=Command)
@click.argument("sql", metavar="SQL")
@archive_option()
@only_archived_option
@moment_option("--from", "since", "Only messages from then on: a time, a date, or 2h (ago).")
@moment_option("--to", "until", "Only messages before then.")
@click.option(
    "--limit",
    type=click.IntRange(1, ROWS_MAX),
    default=1_000,
    show_default=True,
    metavar="N",
    help="Print at most N rows.",
)
@row_format_option()
@no_headers_option()
@click.pass_obj
def query(
    settings: Settings, sql: str, form: Format, no_headers: bool, **asked: Unpack[Asked]
) -> int:
    """Ask the log a SELECT of DuckDB; its one table is named log.

    Whoever can read the archive, or the log itself, sees all organisations. Nothing can be changed,
    and DuckDB reads no files but the segments. shared/QUESTIONS.md lists the columns, and questions
    to begin with.
    """
    import asyncio

    check_only_archived(asked["archive"], only_archived=asked["only_archived"])
    if asked["only_archived"]:
        answer = asyncio.run(_answer(None, sql, asked))
    else:
        answer = settings.result(lambda client: _answer(client.session, sql, asked))
    print_rows(answer.columns, answer.rows, form, no_headers=no_headers)
    if not answer.is_whole:
        print_note(f"only the first {asked['limit']} rows are shown; choose with --limit")
    return DONE


async def _answer(session: "Session | None", sql: str, asked: Asked) -> "Answer":
    from nodepool.client import whole_log

    window = asked["since"], asked["until"]
    with TemporaryDirectory(prefix="nodepool-log-") as name:
        folder = Path(name)
        async with whole_log.opened(asked["archive"], session, window[1]) as history:
            others = await whole_log.lay_out(folder, history, *window)
        return await whole_log.ask(folder, others, sql, asked["limit"], window)


@log.command(cls=Command)
@archive_option(required=True)
@click.option("--dry-run", is_flag=True, help="Say what would go, and trim nothing.")
@click.option(
    "--keep-seconds",
    type=click.IntRange(min=1),
    default=KEEP_S,
    show_default=True,
    envvar="NODEPOOL_TRIM_KEEP_SECONDS",
    help="Keep the messages that are not older.",
)
@click.option(
    "--keep-bytes",
    type=click.IntRange(min=1),
    default=KEEP_BYTES,
    show_default=True,
    envvar="NODEPOOL_TRIM_KEEP_BYTES",
    help="Keep so many bytes of the newest messages.",
)
@click.pass_obj
def trim(
    settings: Settings, archive: str, dry_run: bool, keep_seconds: int, keep_bytes: int
) -> int:
    """Show who needs the log from which position on, and what would go.

    The archiver alone trims the log, if NODEPOOL_TRIM is on for it. The whole archive is read back
    first.
    """
    if not dry_run:
        text = "the archiver alone trims the log: set NODEPOOL_TRIM=on for it"
        raise click.UsageError(f"{text}; --dry-run shows what it would do")

    async def work(client: "Client") -> None:
        from nodepool.archive.floor import Keep
        from nodepool.client.floor import find_floor_of

        keep = Keep(keep_seconds, keep_bytes)
        async with _progress() as note:
            floor = await find_floor_of(client.session, archive, keep, note)
        _print_floor(floor)

    return settings.run(work)


def _print_floor(floor: "Floor") -> None:
    table = new_table(("HOLDER", "NEEDS FROM", "WHY"))
    print_lines(table.lines([[name, str(first), why] for name, first, why in floor.holders]))
    messages, size = floor.would_go
    extent = f"the log has positions {floor.log.first} to {floor.log.last}"
    if not floor.is_purgeable:
        print_note("the log denies every purge, as logs of early releases do: back up and restore")
    if messages:
        going = f"{messages} messages of about {size >> 10} KiB would go"
        print_text(f"{extent}; {going}, up to its floor at {floor.holder.first}")
    else:
        print_text(f"{extent}; nothing would go, as {floor.holder.name} needs all of it")
