"""Printing: texts and errors, and objects as JSON, YAML or names."""

import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress

import click

from nodepool.cli.errors import CliError
from nodepool.cli.layout import escape_text, visible
from nodepool.cli.names import CAPACITY, MACHINE, QUOTA, Kind
from nodepool.cli.waiting_line import clear
from nodepool.contract.documents import Document, text


def print_text(text: str, *, newline: bool = True) -> None:
    """Print a text and a newline, at once even into a pipe.

    On a terminal, characters that control the terminal are made visible. Raises `CliError` if there
    is no output, and `OSError` if the output cannot be written.
    """
    is_shown = sys.stdout is not None and sys.stdout.isatty()
    _write(visible(text) if is_shown else text, newline=newline)


def print_lines(lines: Iterable[str]) -> None:
    """Print the lines of a `Table`, which makes its cells visible and may have coloured them."""
    _write("\n".join(lines), newline=True)


def _write(text: str, *, newline: bool) -> None:
    if sys.stdout is None:
        raise CliError("the output cannot be written: standard output is closed")
    clear()
    # color=True, because without it click removes parts of a value when writing to a pipe.
    click.echo(text, nl=newline, color=True)


def print_note(text: str) -> None:
    """Print a text that is not output on standard error, such as that nothing was found."""
    # If standard error cannot be written, there is nowhere left to report this.
    clear()
    with suppress(OSError):
        click.echo(visible(text), err=True)


def print_error(text: str) -> None:
    """Print an error as one line on standard error."""
    print_note(f"error: {' '.join(text.split())}")


def name_of(kind: Kind, document: Document) -> str:
    """Return the name of an object within its type; `<zone>.<type>` for quotas and capacity."""
    if kind in (QUOTA, CAPACITY):
        return f"{text(document, 'zone')}.{text(document, 'instanceType')}"
    return text(document, "metadata", "name")


def is_named(kind: Kind, document: Document, names: Sequence[str]) -> bool:
    """Return whether one of the names is the name of the object; true if there are no names.

    A quota or capacity may also be named by its zone or by its instance type alone, a machine by
    its zone, or by both, as `ZONE/MACHINE`.
    """
    if not names:
        return True
    own = {name_of(kind, document)}
    if kind in (QUOTA, CAPACITY):
        own |= {text(document, "zone"), text(document, "instanceType")}
    if kind is MACHINE:
        zone = text(document, "spec", "zone")
        own |= {zone, f"{zone}/{name_of(kind, document)}"}
    return not own.isdisjoint(names)


def full_name(kind: Kind, document: Document) -> str:
    """Return the type and name of an object, as `-o name` prints them."""
    return escape_text(f"{kind.full}/{name_of(kind, document)}")


def as_json(value: object) -> str:
    """Return a value as indented JSON, without characters that control a terminal."""
    return visible(json.dumps(value, indent=4, sort_keys=True, ensure_ascii=False))


def as_yaml(document: Document) -> str:
    """Return an object as YAML.

    The text has no final newline and no characters that control a terminal.
    """
    import yaml

    from nodepool.client.yaml_values import Dumper

    def dump_document(*, allow_unicode: bool) -> str:
        text: str = yaml.dump(document, Dumper=Dumper, allow_unicode=allow_unicode, width=1 << 30)
        return text.rstrip("\n")

    text = dump_document(allow_unicode=True)
    return text if visible(text) == text else dump_document(allow_unicode=False)


def as_list(documents: Sequence[Document]) -> Document:
    """Return objects as one object of kind `List`."""
    return {
        "apiVersion": "v1",
        "items": list(documents),
        "kind": "List",
        "metadata": {"resourceVersion": ""},
    }
