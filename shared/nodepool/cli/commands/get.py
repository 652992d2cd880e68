"""`nodepool get`: lists objects, once or continuously."""

from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

import click

from nodepool.cli.documents import Document
from nodepool.cli.errors import DONE
from nodepool.cli.names import parse_names
from nodepool.cli.options import no_headers_option
from nodepool.cli.output import FORMATS, formatted, is_named, print_note, print_text
from nodepool.cli.selectors import selects
from nodepool.cli.settings import Command, Settings
from nodepool.cli.view import View, read, report_missing

if TYPE_CHECKING:
    from nodepool.client import Client, Object

SELECTOR_HELP = "Show only objects with these labels: KEY=VALUE, KEY!=VALUE, KEY or !KEY, ..."


@click.command(cls=Command)
@click.argument("what", nargs=-1, metavar="TYPE [NAME]...")
@click.option("-o", "--output", "form", type=click.Choice(FORMATS), help="Output format.")
@click.option("-l", "--selector", default="", metavar="SELECTOR", help=SELECTOR_HELP)
@click.option("-w", "--watch", is_flag=True, help="After the list, print each change.")
@no_headers_option()
@click.pass_obj
def get(
    settings: Settings,
    what: tuple[str, ...],
    form: str | None,
    selector: str,
    watch: bool,
    no_headers: bool,
) -> int:
    """List NodePools, Nodes, quotas or capacity.

    TYPE is nodepools (np), nodes (no), quotas or capacity. The NAME of a quota or capacity is
    ZONE.INSTANCE_TYPE, or either part of it.
    """
    kind, names = parse_names(what)
    view = View(kind, names, form or "", selector, not no_headers)
    selects(selector, {})  # Raises for a selector that cannot be read, before anything is sent.
    return settings.run(lambda client: _watch(client, view) if watch else _get(client, view))


async def _get(client: "Client", view: View) -> int:
    existing = await read(client, view)
    documents = [document for document in existing if view.includes(document)]
    missing = view.missing(existing)
    if view.form in ("json", "yaml"):
        if documents or not missing:
            single = len(view.names) == 1
            print_text(formatted(view.kind, documents, view.form, single=single))
    elif not documents:
        if not missing:
            print_note("No resources found")
    elif view.form == "name":
        view.print_names(documents)
    else:
        view.print_rows(view.table(), documents)
    return report_missing(client, view.kind, missing)


async def _watch(client: "Client", view: View) -> int:
    from nodepool.client import Listed

    changes = Changes(view)
    async with aclosing(client.watch(view.kind.bucket)) as stream:
        async for change in stream:
            if not isinstance(change, Listed):
                changes.take(change)
                continue
            missing = changes.finish_list()
            if missing:
                return report_missing(client, view.kind, missing)
    return DONE


class Changes:
    """Prints a list of objects, and then each change of one of them."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._table = view.table()
        self._known: dict[str, Document] = {}
        self._is_listed = False

    def take(self, change: "Object") -> None:
        """Keeps an object of the list to come; prints a change after it.

        An object that is deleted is printed as it was last, as kubectl does.
        """
        deleted = change.document is None
        document = self._known.pop(change.key, None) if deleted else change.document
        if document is None:
            return
        if not deleted and is_named(self._view.kind, document, self._view.names):
            self._known[change.key] = document
        if self._is_listed and self._view.includes(document):
            self._print([document])

    def finish_list(self) -> list[str]:
        """Prints the list; or nothing, and returns the names that no object has."""
        self._is_listed = True
        missing = self._view.missing(list(self._known.values()))
        if not missing:
            documents = [document for _, document in sorted(self._known.items())]
            self._print([document for document in documents if self._view.includes(document)])
        return missing

    def _print(self, documents: Sequence[Document]) -> None:
        form = self._view.form
        if form in ("json", "yaml", "name"):
            for document in documents:
                text = formatted(self._view.kind, [document], form, single=True)
                print_text(f"{text}\n---" if form == "yaml" else text)
        elif documents:
            self._view.print_rows(self._table, documents)
