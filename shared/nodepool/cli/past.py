"""The options with which a command looks at the past."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

import click

from nodepool.cli.settings import Settings
from nodepool.cli.times import duration_s, moment

F = TypeVar("F", bound=Callable[..., object])
ARCHIVE_HELP: Final = "Where the archive is: a folder, or the URL of a bucket."
_POSITION: Final = re.compile("[0-9]{1,18}")


def archive_option(*, required: bool = False) -> Callable[[F], F]:
    """Add `--archive`, as the parameter `archive`; it is None if there is none."""
    return click.option(
        "--archive",
        metavar="URL",
        required=required,
        envvar="NODEPOOL_ARCHIVE",
        show_envvar=True,
        help=ARCHIVE_HELP,
    )


def at_options(function: F) -> F:
    """Add `--at` and `--archive`; the settings then have what they say."""
    at = click.option(
        "--at",
        metavar="TIME|POSITION",
        expose_value=False,
        callback=_set_moment,
        help="Show what was shown then, as the archive has it: 2026-11-28T14:03:00Z, 2h for two"
        " hours ago, or a position of the log.",
    )
    archive = click.option(
        "--archive",
        metavar="URL",
        envvar="NODEPOOL_ARCHIVE",
        show_envvar=True,
        expose_value=False,
        callback=_set_archive,
        help=ARCHIVE_HELP,
    )
    return at(archive(function))


def _set_moment(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        settings = context.find_object(Settings)
        assert settings is not None, "every command has settings"
        context.obj = replace(settings, at=parse_moment("--at", value))


def _set_archive(context: click.Context, _: click.Parameter, value: str | None) -> None:
    settings = context.find_object(Settings)
    if value and settings is not None:
        context.obj = replace(settings, archive=value)


def parse_moment(option: str, value: str) -> int | datetime:
    """Return the moment that an option names; raise a usage error for another text."""
    if _POSITION.fullmatch(value):
        return int(value)
    found, now = moment(value), datetime.now(UTC)
    if found is None:
        try:
            found = now - timedelta(seconds=duration_s(value.removeprefix("-")))
        except (ValueError, OverflowError):
            text = "is no moment: write 2026-11-28T14:03:00Z, 2h for two hours ago, or a position"
            raise click.UsageError(f"{option}: {value!r} {text}") from None
    if found > now:
        raise click.UsageError(f"{option}: {value} is in the future")
    return found
