"""Objects as text: JSON, YAML, or their names."""

import json
from collections.abc import Sequence

import click

from nodepool.cli.documents import Document, text
from nodepool.cli.names import CAPACITY, NODE, NODEPOOL, QUOTA, Kind

FORMATS = ("wide", "json", "yaml", "name")


def name_of(kind: Kind, document: Document) -> str:
    """What an object is called within its type; for quotas and capacity `<zone>.<type>`."""
    if kind in (NODEPOOL, NODE):
        return text(document, "metadata", "name")
    return f"{text(document, 'zone')}.{text(document, 'instanceType')}"


def is_called(kind: Kind, document: Document, names: Sequence[str]) -> bool:
    """Whether one of the names means this object; no names mean all."""
    if not names:
        return True
    called = {name_of(kind, document)}
    if kind in (QUOTA, CAPACITY):
        called |= {text(document, "zone"), text(document, "instanceType")}
    return not called.isdisjoint(names)


def printed(kind: Kind, documents: Sequence[Document], form: str, *, single: bool) -> str:
    """The objects as `form` has them; several become a `List` unless `single` says to give one."""
    if form == "name":
        return "\n".join(f"{kind.full}/{name_of(kind, document)}" for document in documents)
    shown = documents[0] if single and len(documents) == 1 else _list(documents)
    if form == "json":
        return json.dumps(shown, indent=4, sort_keys=True, ensure_ascii=False)
    return _yaml(shown)


def _yaml(document: Document) -> str:
    import yaml

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        """Writes a value again where it occurs again, as Kubernetes does."""

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


def say(text: str) -> None:
    """Prints a text and its newline, at once even into a pipe."""
    click.echo(text)


def complain(text: str) -> None:
    """Prints an error as one line on standard error."""
    click.echo(f"error: {' '.join(text.split())}", err=True)
