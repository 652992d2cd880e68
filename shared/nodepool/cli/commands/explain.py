"""`nodepool explain`: documents the fields of a NodePool, or says what a NodePool waits for."""

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from nodepool.cli.clock import shown_now
from nodepool.cli.errors import DONE, CliError
from nodepool.cli.formats import Format
from nodepool.cli.missing import report_missing
from nodepool.cli.names import NODEPOOL, parse_names, parse_required_names
from nodepool.cli.options import format_option
from nodepool.cli.output import print_text
from nodepool.cli.past import at_options
from nodepool.cli.settings import Command, Settings
from nodepool.cli.sources import read

if TYPE_CHECKING:
    from nodepool.client import Client
    from nodepool.contract.reference import Field

WIDTH = 80


@click.command(cls=Command)
@click.argument("path", metavar="nodepool[.FIELD]... | nodepool NAME")
@click.argument("explained_name", metavar="", default="")
@click.option(
    "--recursive", is_flag=True, help="List the fields of fields too, without their texts."
)
@format_option(but=("wide", "name", "custom-columns"), help="Print a NodePool's causes this way")
@at_options
@click.pass_obj
def explain(
    settings: Settings, path: str, explained_name: str, recursive: bool, form: Format
) -> int:
    """Document the fields of a NodePool: types, limits, defaults, meaning.

    With a NAME, say what that NodePool wants, what blocks it, since when, and what would help.

    nodepool explain nodepool.spec.lifecycle

    nodepool explain nodepool training
    """
    if explained_name or "/" in path:
        if recursive:
            raise click.UsageError("--recursive: is for fields, not for a NAME")
        words = [path, explained_name] if explained_name else [path]
        _, (name, *others) = parse_required_names(words, (NODEPOOL,))
        if others:
            raise click.UsageError("NAME: explain one NodePool at a time")
        return settings.run(lambda client: _explain(client, name, form))
    if not form.is_table:
        raise click.UsageError(f"--output: {form.form} is for a NAME, not for fields")
    return _document(path, recursive=recursive)


async def _explain(client: "Client", name: str, form: Format) -> int:
    """Print why a NodePool does not have what it wants; return the exit code."""
    from nodepool.cli.explained import explain_pool, format_explanation

    items = await read(client, NODEPOOL, [name])
    if not items:
        return await report_missing(client, NODEPOOL, [name], deletions=True)
    explanation = await explain_pool(client, items[0].document or {})
    if form.is_table:
        print_text(format_explanation(explanation, shown_now()))
    else:
        form.print_whole([explanation], single=True)
    return DONE


def _document(path: str, *, recursive: bool) -> int:
    """Print the documentation of a field; return the exit code."""
    from nodepool.cli.schema import NoSuchFieldError, find_field

    spelling, *names = path.rstrip(".").split(".")
    parse_names([spelling], (NODEPOOL,))
    try:
        field = find_field(names)
    except NoSuchFieldError as error:
        raise CliError(f"{path}: {error}") from None
    print_text("\n".join(_lines(field, recursive=recursive, is_object=not names)))
    return DONE


def _lines(field: "Field", *, recursive: bool, is_object: bool) -> Iterator[str]:
    from nodepool.contract.model import API_VERSION

    group, _, version = API_VERSION.partition("/")
    yield f"GROUP:      {group}"
    yield f"KIND:       {NODEPOOL.title}"
    yield from (f"VERSION:    {version}", "")
    if not is_object:
        yield from (f"FIELD: {field.name} {_type(field)}", "")
    yield "DESCRIPTION:"
    yield from _wrap_text(" ".join((field.about or field.text, *field.notes)), 4)
    if not field.fields:
        return
    yield ""
    yield "FIELDS:"
    yield from _tree(field, 2) if recursive else _format_fields(field)


def _format_fields(field: "Field") -> Iterator[str]:
    for each in field.fields:
        yield f"  {each.name}\t{_type(each)}"
        yield from _wrap_text(" ".join((each.text or each.about, *each.notes)), 4)
        yield ""


def _tree(field: "Field", indent: int) -> Iterator[str]:
    for each in field.fields:
        yield f"{' ' * indent}{each.name}\t{_type(each)}"
        yield from _tree(each, indent + 2)


def _type(field: "Field") -> str:
    return f"<{field.type}>{' -required-' if field.required else ''}"


def _wrap_text(text: str, indent: int) -> list[str]:
    margin = " " * indent
    return textwrap.wrap(text, WIDTH, initial_indent=margin, subsequent_indent=margin)
