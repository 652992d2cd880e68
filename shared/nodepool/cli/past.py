"""The options of the commands that read the archive of the log, and look at the past."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import click

from nodepool.cli.settings import Settings
from nodepool.cli.times import parse_moment

F = TypeVar("F", bound=Callable[..., object])
_POSITION: Final = re.compile("[0-9]{1,18}")


def archive_option(*, required: bool = False, **more: Any) -> Callable[[F], F]:
    """Add `--archive`, as the parameter `archive`; it is empty if there is none."""
    if not required:
        more["default"] = ""
    return click.option(
        "--archive",
        metavar="URL",
        required=required,
        envvar="NODEPOOL_ARCHIVE",
        show_envvar=True,
        help="Where the archive is: a folder, or the URL of a bucket.",
        **more,
    )


def only_archived_option(function: F) -> F:
    """Add `--only-archived`, as the parameter `only_archived`."""
    return click.option(
        "--only-archived",
        is_flag=True,
        help="Ask no server for what is not archived yet.",
    )(function)


def check_only_archived(archive: str, *, only_archived: bool) -> None:
    """Raise a usage error if no server is to be asked, and there is no archive either."""
    if only_archived and not archive:
        raise click.UsageError("--only-archived needs --archive")


def at_options(function: F) -> F:
    """Add `--at` and `--archive`; the settings then have what they say."""
    at = click.option(
        "--at",
        metavar="TIME|POSITION",
        expose_value=False,
        callback=_set_point,
        help="Show what was shown then, as the archive has it: 2026-11-28T14:03:00Z, 2h for two"
        " hours ago, or a position of the log.",
    )
    return at(archive_option(expose_value=False, callback=_set_archive)(function))


def _set_point(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        settings = context.find_object(Settings)
        assert settings is not None, "every command has settings"
        context.obj = replace(settings, at=parse_point("--at", value))


def _set_archive(context: click.Context, _: click.Parameter, value: str) -> None:
    settings = context.find_object(Settings)
    if value and settings is not None:
        context.obj = replace(settings, archive=value)


def moment_option(option: str, name: str, help: str) -> Callable[[F], F]:
    """Add an option whose value is a moment, as the parameter `name`; it is None if absent."""

    def parse(_: click.Context, __: click.Parameter, text: str | None) -> datetime | None:
        return _parse(option, text, datetime.now(UTC)) if text is not None else None

    return click.option(option, name, metavar="TIME", callback=parse, help=help)


def parse_point(option: str, value: str) -> int | datetime:
    """Return the position or the time that an option names; raise a usage error for other text."""
    if _POSITION.fullmatch(value):
        return int(value)
    now = datetime.now(UTC)
    found = _parse(option, value, now, ", or a position of the log")
    if found > now:
        raise click.UsageError(f"{option}: {value} is in the future")
    return found


def _parse(option: str, text: str, now: datetime, more: str = "") -> datetime:
    try:
        return parse_moment(text, now)
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}{more}") from None
