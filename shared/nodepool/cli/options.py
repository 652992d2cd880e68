"""Options that several commands have, and parsing their values."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from nodepool.cli.arguments import OptionalValue
from nodepool.cli.times import duration_s

if TYPE_CHECKING:
    from nodepool.client.manifests import Manifest

F = TypeVar("F", bound=Callable[..., object])

COUNT = click.IntRange(0, 1_000_000)


class DryRun(StrEnum):
    """Whether a command only reports what it would do, and where that is found out.

    The server refuses what it would refuse in earnest; the client sends nothing.
    """

    NONE = "none"
    CLIENT = "client"
    SERVER = "server"

    @property
    def suffix(self) -> str:
        """What is printed after the report of a change, as kubectl does."""
        return {"none": "", "client": " (dry run)", "server": " (server dry run)"}[self.value]


@dataclass(frozen=True, slots=True)
class Output:
    """How a command that changes something reports it.

    form: `name`, `json` or `yaml`; empty for a report in words.
    dry_run: whether and where the change is only tried.
    """

    form: str = ""
    dry_run: DryRun = DryRun.NONE


IN_WORDS = Output()
"""The report in words of a change that is made."""


def output_options(*forms: str) -> Callable[[F], Callable[..., object]]:
    """`-o` and `--dry-run`, as the parameter `output`; a bare `--dry-run` means the server."""
    form = click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(forms or ("name", "json", "yaml")),
        help="Print this instead of a report in words.",
    )
    dry_run = click.option(
        "--dry-run",
        cls=OptionalValue,
        implied="server",
        type=click.Choice([each.value for each in DryRun]),
        default="none",
        help="Report what would happen without changing anything; client sends nothing."
        "  [without a value: server]",
    )

    def decorated(function: F) -> Callable[..., object]:
        @wraps(function)
        def command(*args: object, form: str | None, dry_run: str, **rest: object) -> object:
            return function(*args, output=Output(form or "", DryRun(dry_run)), **rest)

        return form(dry_run(command))

    return decorated


def files_options(help: str, *, required: bool = False) -> Callable[[F], Callable[..., object]]:
    """`-f` and `-R`, as the parameter `files`."""
    file = click.option(
        "-f",
        "--filename",
        "names",
        multiple=True,
        required=required,
        metavar="FILE|DIR|-",
        help=help,
    )
    recursive = click.option(
        "-R", "--recursive", is_flag=True, help="Read the subfolders of a folder too."
    )

    def decorated(function: F) -> Callable[..., object]:
        @wraps(function)
        def command(*args: object, names: Sequence[str], recursive: bool, **rest: object) -> object:
            return function(*args, files=Files(tuple(_separated(names)), recursive), **rest)

        return file(recursive(command))

    return decorated


@dataclass(frozen=True, slots=True)
class Files:
    """Files, folders and standard input (`-`) with manifests.

    recursive: whether the subfolders of a folder are read too.
    """

    names: Sequence[str] = ()
    recursive: bool = False

    def manifests(self) -> "list[Manifest]":
        """The manifests in them; raises `ManifestError` if anything cannot be read."""
        from nodepool.client.manifests import read_manifests

        return read_manifests(self.names, recursive=self.recursive)


NO_FILES = Files()


def _separated(names: Sequence[str]) -> Iterator[str]:
    """The files, of which one option may name several, separated by commas."""
    for name in names:
        yield from [name] if Path(name).exists() else filter(None, name.split(","))


def no_headers_option() -> Callable[[F], F]:
    """`--no-headers`, as the parameter `no_headers`."""
    return click.option("--no-headers", is_flag=True, help="Print no column titles.")


def seconds(option: str, text: str) -> float:
    """The value of an option that is a duration; raises a usage error for another text."""
    try:
        return duration_s(text)
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}") from None
