"""`nodepool usage`: for how many hours Nodes were used, idle, lost or not billable."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from nodepool.cli.formats import Format
from nodepool.cli.options import no_headers_option
from nodepool.cli.output import print_note
from nodepool.cli.past import (
    archive_option,
    check_only_archived,
    moment_option,
    only_archived_option,
)
from nodepool.cli.rows import print_rows, row_format_option
from nodepool.cli.settings import Command, Settings
from nodepool.contract.moments import rfc3339

if TYPE_CHECKING:
    from nodepool.client.session import Session
    from nodepool.usage.meter import Meter

GROUPS = ("organisation", "pool", "type", "class")


class Asked(TypedDict):
    """What is asked: the places, and the time."""

    archive: str
    only_archived: bool
    since: datetime | None
    until: datetime | None


@click.command(cls=Command)
@moment_option(
    "--from",
    "since",
    "A time, a date, or 2h (ago).  [default: the begin of this month]",
)
@moment_option("--to", "until", "Up to then.  [default: now]")
@click.option(
    "--by",
    type=click.Choice(GROUPS),
    default=GROUPS[0],
    show_default=True,
    help="What has a row of its own.",
)
@archive_option()
@only_archived_option
@row_format_option()
@no_headers_option()
@click.pass_obj
def usage(
    settings: Settings, by: str, form: Format, no_headers: bool, **asked: Unpack[Asked]
) -> None:
    """Say for how many hours Nodes were used, idle, lost or not billable.

    These are the hours of all organisations, which whoever can read the log sees. Days and months
    begin in UTC. shared/USAGE.md says what each column counts.
    """
    import asyncio

    from nodepool.usage.report import COLUMNS, HOURS, By, build_rows

    check_only_archived(asked["archive"], only_archived=asked["only_archived"])
    if asked["only_archived"]:
        meter = asyncio.run(_measure(None, asked))
    else:
        meter = settings.result(lambda client: _measure(client.session, asked))
    group = By(by)
    rows = [(*row.group, *row[1:]) for row in build_rows(meter.sums(), group)]
    print_rows((*COLUMNS[group], *HOURS), rows, form, no_headers=no_headers)
    print_note(f"Node-hours from {rfc3339(meter.since)} to {rfc3339(meter.until)}")


async def _measure(session: "Session | None", asked: Asked) -> "Meter":
    from nodepool.client import whole_log
    from nodepool.client.node_hours import measure

    now = datetime.now(UTC)
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    since, until = asked["since"] or month, asked["until"] or now
    if until <= since:
        raise click.UsageError(f"--to: {rfc3339(until)} is not after --from, {rfc3339(since)}")
    async with whole_log.opened(asked["archive"], session, until) as history:
        return await measure(history, since, until)
