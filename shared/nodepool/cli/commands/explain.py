"""`nodepool explain`: documents the fields of a NodePool."""

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from nodepool.cli.errors import DONE, CliError
from nodepool.cli.names import NODEPOOL, parse_names
from nodepool.cli.output import print_text
from nodepool.cli.settings import Command

if TYPE_CHECKING:
    from nodepool.contract.reference import Field

WIDTH = 80


@click.command(cls=Command)
@click.argument("path", metavar="nodepool[.FIELD]...")
@click.option(
    "--recursive", is_flag=True, help="List the fields of fields too, without their texts."
)
def explain(path: str, recursive: bool) -> int:
    """Document the fields of a NodePool: types, limits, defaults, meaning.

    nodepool explain nodepool.spec.lifecycle
    """
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
    yield from _wrapped(" ".join((field.about or field.text, *field.notes)), 4)
    if not field.fields:
        return
    yield ""
    yield "FIELDS:"
    yield from _tree(field, 2) if recursive else _described(field)


def _described(field: "Field") -> Iterator[str]:
    for each in field.fields:
        yield f"  {each.name}\t{_type(each)}"
        yield from _wrapped(" ".join((each.text or each.about, *each.notes)), 4)
        yield ""


def _tree(field: "Field", indent: int) -> Iterator[str]:
    for each in field.fields:
        yield f"{' ' * indent}{each.name}\t{_type(each)}"
        yield from _tree(each, indent + 2)


def _type(field: "Field") -> str:
    return f"<{field.type}>{' -required-' if field.required else ''}"


def _wrapped(text: str, indent: int) -> list[str]:
    margin = " " * indent
    return textwrap.wrap(text, WIDTH, initial_indent=margin, subsequent_indent=margin)
