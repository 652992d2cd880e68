"""Options of the commands that read the archive of the log, and the rest of the log."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

import click

from nodepool.cli.times import parse_moment

F = TypeVar("F", bound=Callable[..., object])

ARCHIVE = click.option(
    "--archive",
    metavar="URL",
    required=True,
    envvar="NODEPOOL_ARCHIVE",
    show_envvar=True,
    help="Where the archive is: a folder, or the URL of a bucket.",
)
OPTIONAL_ARCHIVE = click.option(
    "--archive",
    metavar="URL",
    default="",
    envvar="NODEPOOL_ARCHIVE",
    show_envvar=True,
    help="Where the archive is: a folder, or the URL of a bucket; without it, the server has all.",
)
ONLY_ARCHIVED = click.option(
    "--only-archived",
    is_flag=True,
    help="Ask no server for what is not archived yet.",
)


def moment_option(option: str, name: str, help: str) -> Callable[[F], F]:
    """Return an option whose value is a moment, as the parameter `name`; None if it is absent."""

    def parse(_: click.Context, __: click.Parameter, text: str | None) -> datetime | None:
        if text is None:
            return None
        try:
            return parse_moment(text, datetime.now(UTC))
        except ValueError as error:
            raise click.UsageError(f"{option}: {error}") from None

    return click.option(option, name, metavar="TIME", callback=parse, help=help)


def check_only_archived(archive: str, *, only_archived: bool) -> None:
    """Raise a usage error if no server is to be asked, and there is no archive either."""
    if only_archived and not archive:
        raise click.UsageError("--only-archived needs --archive")
