"""Options that several commands have, and parsing their values."""

from collections.abc import Callable
from typing import TypeVar

import click

from nodepool.cli.times import duration_s

F = TypeVar("F", bound=Callable[..., object])

COUNT = click.IntRange(0, 1_000_000)


def files_option(help: str, *, required: bool) -> Callable[[F], F]:
    """`-f` for manifests, as the parameter `files`."""
    return click.option(
        "-f",
        "--filename",
        "files",
        multiple=True,
        required=required,
        metavar="FILE|DIR|-",
        help=help,
    )


def dry_run_option() -> Callable[[F], F]:
    """`--dry-run`, as the parameter `dry_run`."""
    return click.option(
        "--dry-run", is_flag=True, help="Report what would happen without changing anything."
    )


def no_headers_option() -> Callable[[F], F]:
    """`--no-headers`, as the parameter `no_headers`."""
    return click.option("--no-headers", is_flag=True, help="Print no column titles.")


def seconds(option: str, text: str) -> float:
    """The value of an option that is a duration; raises a usage error for another text."""
    try:
        return duration_s(text)
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}") from None
