"""Choosing the NodePools to change: by name, by manifest, by label or field, or all NodePools."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, TypeVar

import click

from nodepool.cli.missing import check_place
from nodepool.cli.names import NODEPOOL, Kind, parse_names
from nodepool.cli.options import NO_FILES, Files, files_options, objects_argument
from nodepool.cli.output import name_of, print_note
from nodepool.cli.selectors import check_fields, has_fields, selects
from nodepool.cli.sources import read

if TYPE_CHECKING:
    from nodepool.client import Client

F = TypeVar("F", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class Targets:
    """A choice of objects of one type.

    names: the names of the objects, if they are chosen by name.
    selector, fields: the labels and the fields that the objects must have.
    everything: whether all objects of the cluster are chosen.
    """

    kind: Kind = NODEPOOL
    names: Sequence[str] = ()
    selector: str = ""
    fields: str = ""
    everything: bool = False

    def check(self) -> None:
        """Raise a usage error unless the objects are chosen in exactly one way."""
        by_selector = bool(self.selector or self.fields)
        if self.kind is not NODEPOOL and by_selector:
            raise click.UsageError(f"NAME: a {self.kind.singular} is chosen by NAME or --all")
        if not (self.names or by_selector or self.everything):
            message = "NAME: is required; write nodepool NAME, -f FILE, -l SELECTOR or --all"
            raise click.UsageError(message)
        if self.names and (by_selector or self.everything):
            raise click.UsageError("NAME: write either names, or --all or a selector")
        selects(self.selector, {})  # Raises for an invalid selector before anything is sent.
        check_fields(self.fields)

    async def find(self, client: "Client") -> Sequence[str]:
        """Return the names of the NodePools; NodePools that are given by name may not exist.

        Prints a note if no NodePool is chosen.
        """
        if self.names:
            return self.names
        names = [
            name_of(NODEPOOL, document)
            for document in [item.document or {} for item in await read(client, NODEPOOL)]
            if selects(self.selector, document) and has_fields(self.fields, document)
        ]
        if not names:
            await check_place(client, NODEPOOL)
            print_note("No resources found")
        return names


def target_options(
    verb: str, kinds: Sequence[Kind] = (NODEPOOL,), *, trailing: bool = False
) -> Callable[[F], Callable[..., object]]:
    """Add `TYPE NAME...`, `-l`, `--field-selector`, `--all` and `-f` as `targets`.

    verb: what the command does with the objects, for the help.
    trailing: whether `KEY=VALUE` and `KEY-` may follow, which become the parameter `trailing`.
    """
    pairs = " [KEY=VALUE|KEY-]..." if trailing else ""
    options = _selection(verb, kinds, f"[{kinds[0].singular} NAME...]{pairs}")

    def decorate(function: F) -> Callable[..., object]:
        @wraps(function)
        def command(
            *args: object, what: Sequence[str], files: Files = NO_FILES, **rest: object
        ) -> object:
            if trailing:
                rest["trailing"] = [word for word in what if _is_pair(word)]
                what = [word for word in what if not _is_pair(word)]
            given = [rest.pop(name) for name in ("selector", "fields", "everything")]
            targets = _targets(what, files, kinds, str(given[0]), str(given[1]), bool(given[2]))
            return function(*args, targets=targets, **rest)

        wrapped = files_options(f"{verb} the NodePools in these manifests.")(command)
        for option in reversed(options):
            wrapped = option(wrapped)
        return wrapped

    return decorate


def _selection(verb: str, kinds: Sequence[Kind], what: str) -> "Sequence[Callable[[F], F]]":
    return (
        objects_argument(kinds, what),
        click.option(
            "-l", "--selector", default="", metavar="LABELS", help=f"{verb} all with these labels."
        ),
        click.option(
            "--field-selector",
            "fields",
            default="",
            metavar="FIELD=VALUE",
            help=f"{verb} all with these values, such as spec.computeClass!=spot.",
        ),
        click.option("--all", "everything", is_flag=True, help=f"{verb} all of the cluster."),
    )


def _targets(
    what: Sequence[str],
    files: Files,
    kinds: Sequence[Kind],
    selector: str,
    fields: str,
    everything: bool,
) -> Targets:
    """Return the choice that a command line makes; raise a usage error for none or several."""
    kind, names = parse_names(what, kinds) if what else (NODEPOOL, [])
    if files.names and (names or selector or fields or everything):
        raise click.UsageError("-f: cannot be combined with names, --all or a selector")
    if files.names:
        names = [each.command.metadata.name for each in files.manifests()]
    targets = Targets(kind, names, selector, fields, everything)
    targets.check()
    return targets


def _is_pair(word: str) -> bool:
    """Return whether a word is `KEY=VALUE` or `KEY-`, which no type and no name can be."""
    return "=" in word or word.endswith("-")
