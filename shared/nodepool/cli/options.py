"""Options that several commands have, and parsing their values."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from nodepool.cli.arguments import OptionalValue
from nodepool.cli.formats import FORMATS, TABLE, Format, parse_format
from nodepool.cli.names import (
    KINDS,
    NODEPOOL,
    Kind,
    Selection,
    format_alternatives,
    parse_selections,
)
from nodepool.cli.output import print_lines, print_text
from nodepool.cli.times import duration_s

if TYPE_CHECKING:
    from nodepool.client.manifests import Manifest
    from nodepool.contract.documents import Document

F = TypeVar("F", bound=Callable[..., object])

COUNT = click.IntRange(0, 1_000_000)


class Objects(click.Argument):
    """The words `TYPE NAME...` or `TYPE/NAME...`, which a shell completes.

    kinds: the types that the command takes.
    """

    def __init__(self, *args: object, kinds: Sequence[Kind], **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # As click passes them.
        self.kinds = kinds


def objects_argument(kinds: Sequence[Kind], metavar: str) -> Callable[[F], F]:
    """Return the argument `TYPE NAME...`, as the parameter `what`, not yet parsed."""
    return click.argument("what", cls=Objects, kinds=kinds, nargs=-1, metavar=metavar)


class DryRun(StrEnum):
    """Whether a command only reports what it would do, and where the result is computed.

    SERVER: the server refuses whatever it would refuse without a dry run.
    CLIENT: the client sends nothing.
    """

    NONE = "none"
    CLIENT = "client"
    SERVER = "server"

    @property
    def suffix(self) -> str:
        """The text to print after the report of a change, as kubectl does."""
        return {"none": "", "client": " (dry run)", "server": " (server dry run)"}[self.value]


@dataclass(frozen=True, slots=True)
class Output:
    """How a command reports its changes.

    format: the format of the stored objects; for a table, the report is in words.
    dry_run: whether and where the change is only tried.
    """

    format: Format = TABLE
    dry_run: DryRun = DryRun.NONE

    @property
    def shows_objects(self) -> bool:
        """Return whether the objects are printed, all together after the last change."""
        return not (self.format.is_table or self.format.form == "name")

    def print_line(self, name: str, line: str) -> None:
        """Print the full name of an object, or a line; nothing if the object is shown."""
        if self.format.form == "name":
            print_text(name)
        elif not self.shows_objects:
            print_text(f"{line}{self.dry_run.suffix}")

    def print_objects(self, documents: "Sequence[Document]") -> None:
        """Print the objects if they are shown: one object alone, several as a list."""
        if not documents or not self.shows_objects:
            return
        if self.format.columns:
            table = self.format.custom_table()
            print_lines(table.lines(map(self.format.custom_cells, documents)))
        else:
            self.format.print_whole(documents, single=True)


IN_WORDS = Output()
"""Reports each change in words, and makes the changes."""


def format_option(
    *, but: Sequence[str] = (), also: Sequence[str] = (), help: str = "Output format"
) -> Callable[[F], F]:
    """Add `-o`, as the parameter `form`: how objects are printed.

    but: the formats that are not offered, by their first word.
    also: further formats that are offered.
    """
    forms = [*also, *(each for each in FORMATS if each.partition("=")[0] not in but)]
    offered = {"", *(each.partition("=")[0] for each in forms)}

    def parse(_: click.Context, __: click.Parameter, value: str) -> Format:
        form = parse_format(value)
        if form.form not in offered:
            message = f"--output: {form.form} is not printed here; use {format_alternatives(forms)}"
            raise click.UsageError(message)
        return form

    def complete_format(_: click.Context, __: click.Parameter, text: str) -> list[str]:
        words = [f"{word}{sign}" for word, sign, _ in (each.partition("=") for each in forms)]
        return [word for word in words if word.startswith(text)]

    return click.option(
        "-o",
        "--output",
        "form",
        default="",
        metavar="FORMAT",
        help=f"{help}: {format_alternatives(forms)}.",
        callback=parse,
        shell_complete=complete_format,
    )


def output_options(*, only_names: bool = False) -> Callable[[F], Callable[..., object]]:
    """Add `-o` and `--dry-run`, as the parameter `output`; a bare `--dry-run` means the server.

    only_names: whether the command can print only the name of an object, not the object.
    """
    objects = ("json", "yaml", "jsonpath", "custom-columns") if only_names else ()
    form = format_option(but=("wide", *objects), help="Print this instead of a report in words")
    dry_run = click.option(
        "--dry-run",
        cls=OptionalValue,
        implied="server",
        type=click.Choice([each.value for each in DryRun]),
        default="none",
        help="Report what would happen without changing anything; client sends nothing."
        "  [without a value: server]",
    )

    def decorate(function: F) -> Callable[..., object]:
        @wraps(function)
        def command(*args: object, form: Format, dry_run: str, **rest: object) -> object:
            return function(*args, output=Output(form, DryRun(dry_run)), **rest)

        return form(dry_run(command))

    return decorate


def files_options(help: str, *, required: bool = False) -> Callable[[F], Callable[..., object]]:
    """Add `-f` and `-R`, as the parameter `files`."""
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

    def decorate(function: F) -> Callable[..., object]:
        @wraps(function)
        def command(*args: object, names: Sequence[str], recursive: bool, **rest: object) -> object:
            return function(*args, files=Files(tuple(_split_names(names)), recursive), **rest)

        return file(recursive(command))

    return decorate


@dataclass(frozen=True, slots=True)
class Files:
    """Files, folders and standard input (`-`) with manifests.

    recursive: whether the subfolders of a folder are read too.
    """

    names: Sequence[str] = ()
    recursive: bool = False

    def manifests(self) -> "list[Manifest]":
        """Return the manifests in the files; raise `ManifestError` if a file cannot be read."""
        from nodepool.client.manifests import read_manifests

        return read_manifests(self.names, recursive=self.recursive)


NO_FILES = Files()


def select_objects(
    words: Sequence[str], files: Files, allowed: Sequence[Kind] = KINDS
) -> list[Selection]:
    """Return the objects that words or manifests name.

    Raises a usage error if both words and manifests are given, or neither.
    """
    if not files.names:
        return parse_selections(words, allowed)
    if words:
        raise click.UsageError("NAME: write either TYPE or -f FILE")
    names = [manifest.command.metadata.name for manifest in files.manifests()]
    return [Selection(NODEPOOL, list(dict.fromkeys(names)))]


def _split_names(names: Sequence[str]) -> Iterator[str]:
    """Yield the files; one option may name several files, separated by commas."""
    for name in names:
        # An empty name, as in -f "$FILE" if FILE is not set, would mean the current folder.
        if not name.strip(", "):
            raise click.UsageError(f"-f: {name!r} is not the name of a file, of a folder, or -")
        yield from [name] if Path(name).exists() else filter(None, name.split(","))


def no_headers_option() -> Callable[[F], F]:
    """Add `--no-headers`, as the parameter `no_headers`."""
    return click.option("--no-headers", is_flag=True, help="Print no column titles.")


def time_limit(option: str, text: str) -> float | None:
    """Return the seconds of an option that limits a wait; None for 0, which means no limit."""
    return seconds(option, text) or None


def seconds(option: str, text: str) -> float:
    """Return the value of an option that is a duration; raise a usage error for another text."""
    try:
        return duration_s(text)
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}") from None
