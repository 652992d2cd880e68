"""Printing: texts, errors, and objects as JSON, YAML or names."""

import json
from collections.abc import Sequence

import click

from nodepool.cli.documents import Document, text
from nodepool.cli.names import CAPACITY, NODE, NODEPOOL, QUOTA, Kind

FORMATS = ("wide", "json", "yaml", "name")


def print_text(text: str) -> None:
    """Prints a text and a newline, at once even into a pipe."""
    click.echo(text)


def print_note(text: str) -> None:
    """Prints a text that is not output, such as that nothing was found, on standard error."""
    click.echo(text, err=True)


def print_error(text: str) -> None:
    """Prints an error as one line on standard error."""
    click.echo(f"error: {' '.join(text.split())}", err=True)


def name_of(kind: Kind, document: Document) -> str:
    """The name of an object within its type; `<zone>.<type>` for quotas and capacity."""
    if kind in (NODEPOOL, NODE):
        return text(document, "metadata", "name")
    return f"{text(document, 'zone')}.{text(document, 'instanceType')}"


def is_named(kind: Kind, document: Document, names: Sequence[str]) -> bool:
    """Whether one of the names is this object's; true where there are no names.

    A quota or capacity may also be named by its zone or by its instance type alone.
    """
    if not names:
        return True
    own = {name_of(kind, document)}
    if kind in (QUOTA, CAPACITY):
        own |= {text(document, "zone"), text(document, "instanceType")}
    return not own.isdisjoint(names)


def formatted(kind: Kind, documents: Sequence[Document], form: str, *, single: bool) -> str:
    """The objects in the format `json`, `yaml` or `name`.

    They are wrapped in a `List`, unless `single` is set and there is just one.
    """
    if form == "name":
        return "\n".join(f"{kind.full}/{name_of(kind, document)}" for document in documents)
    value = documents[0] if single and len(documents) == 1 else _list(documents)
    if form == "json":
        return json.dumps(value, indent=4, sort_keys=True, ensure_ascii=False)
    return _yaml(value)


def _yaml(document: Document) -> str:
    import yaml

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        """Writes a repeated value in full each time, as Kubernetes does."""

        def ignore_aliases(self, _: object) -> bool:
            return True

    text: str = yaml.dump(document, Dumper=Dumper, allow_unicode=True, width=1 << 30)
    return text.rstrip("\n")


def _list(documents: Sequence[Document]) -> Document:
    return {
        "apiVersion": "v1",
        "items": list(documents),
        "kind": "List",
        "metadata": {"resourceVersion": ""},
    }
