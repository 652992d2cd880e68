"""Commands that look: get, describe, events, wait."""

import re
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from nodepool.cli import tables
from nodepool.cli.describe import described
from nodepool.cli.documents import Document, labels
from nodepool.cli.event_table import EVENT_HEADER, counted, event_row, told
from nodepool.cli.faults import failed
from nodepool.cli.layout import Table
from nodepool.cli.names import NODE, NODEPOOL, Kind, named, required
from nodepool.cli.output import FORMATS, complain, is_called, name_of, printed, say
from nodepool.cli.settings import Command, Settings
from nodepool.cli.times import duration_s

if TYPE_CHECKING:
    from nodepool.client import Client, ObjectEvent
    from nodepool.contract.model import ConditionStatus

EVENTS_KEPT = timedelta(hours=1)
"""How long Kubernetes keeps an event, and so how far back `describe` looks."""
LOOK_S = 0.5
"""How long reading the present state of an object may take, in seconds."""
STATUSES: "dict[str, ConditionStatus]" = {"true": "True", "false": "False", "unknown": "Unknown"}
_TERM = re.compile(r"(!?)([^=!\s]+)(?:(==|=|!=)([^=!\s]*))?")


@dataclass(frozen=True, slots=True)
class View:
    """Which objects are asked for, and how they are shown."""

    kind: Kind
    names: Sequence[str]
    form: str
    selector: str = ""
    headers: bool = True

    def wants(self, document: Document) -> bool:
        """Whether the object is one of those asked for."""
        return is_called(self.kind, document, self.names) and selects(self.selector, document)

    def table(self) -> Table:
        """An empty table with the columns of this view."""
        table = Table(tables.header(self.kind, wide=self.form == "wide"))
        return table if self.headers else table.without_header()

    def lines(self, table: Table, documents: Sequence[Document]) -> list[str]:
        """The objects as lines of that table."""
        now, wide = _now(), self.form == "wide"
        return table.lines(tables.row(self.kind, found, now, wide=wide) for found in documents)


def _now() -> datetime:
    return datetime.now(UTC)


def selects(selector: str, document: Document) -> bool:
    """Whether an object's labels satisfy `k=v,k!=v,k,!k`; raises a usage error for other text."""
    found = labels(document)
    return all(_holds(term, found) for term in selector.split(",") if selector)


def _holds(term: str, found: Mapping[str, str]) -> bool:
    match = _TERM.fullmatch(term.strip())
    if match is None or (match[1] and match[3]):
        raise click.UsageError(f"--selector: {term!r} is no condition; write key=value")
    absent, key, operator, value = match.groups()
    if operator is None:
        return (key in found) != bool(absent)
    return (found.get(key) == value) == (operator != "!=")


@click.command(cls=Command)
@click.argument("what", nargs=-1, metavar="TYPE [NAME]...")
@click.option("-o", "--output", "form", type=click.Choice(FORMATS), help="What to print.")
@click.option("-l", "--selector", default="", metavar="KEY=VALUE,...", help="By labels.")
@click.option("-w", "--watch", is_flag=True, help="Go on with each change, until Ctrl-C.")
@click.option("--no-headers", is_flag=True, help="Print rows only.")
@click.pass_obj
def get(
    settings: Settings,
    what: tuple[str, ...],
    form: str | None,
    selector: str,
    watch: bool,
    no_headers: bool,
) -> int:
    """List nodepools, nodes, quotas or capacity."""
    kind, names = named(what)
    view = View(kind, names, form or "", selector, not no_headers)
    selects(selector, {})
    return settings.run(lambda client: _watch(client, view) if watch else _get(client, view))


async def _get(client: "Client", view: View) -> int:
    rows = await _listed(client, view)
    documents = [row for row in rows if view.wants(row)]
    missing = _unknown(view, rows)
    if view.form in ("json", "yaml") and not (missing and not documents):
        say(printed(view.kind, documents, view.form, single=len(view.names) == 1))
    elif documents:
        _print(view, documents)
    elif not missing:
        click.echo("No resources found", err=True)
    return _missed(client, view.kind, missing)


async def _listed(client: "Client", view: View) -> list[Document]:
    if view.kind in (NODEPOOL, NODE) and view.names:
        found = [await client.get(view.kind.bucket, name) for name in view.names]
        return [document for document in found if document is not None]
    rows = await client.list(view.kind.bucket)
    return [row.document for row in rows if row.document is not None]


def _unknown(view: View, documents: Sequence[Document]) -> list[str]:
    """The names asked for that no object has."""
    return [
        name
        for name in view.names
        if not any(is_called(view.kind, document, [name]) for document in documents)
    ]


def _missed(client: "Client", kind: Kind, names: Sequence[str]) -> int:
    for name in names:
        complain(f'{kind.singular} "{name}" not found in {client.org}/{client.cluster}')
    return 1 if names else 0


def _print(view: View, documents: Sequence[Document]) -> None:
    if view.form == "name":
        say(printed(view.kind, documents, view.form, single=False))
    else:
        say("\n".join(view.lines(view.table(), documents)))


async def _watch(client: "Client", view: View) -> int:
    from nodepool.client import Listed

    table = view.table()
    known: dict[str, Document] = {}
    listing = True
    async with aclosing(client.watch(view.kind.bucket)) as rows:
        async for row in rows:
            if isinstance(row, Listed):
                listing = False
                missing = _unknown(view, list(known.values()))
                if missing:
                    return _missed(client, view.kind, missing)
                _show(
                    view, table, [found for _, found in sorted(known.items()) if view.wants(found)]
                )
                continue
            # Of an object that is gone, what it was at last is shown once more, as kubectl does.
            found = known.pop(row.key, None) if row.document is None else row.document
            if found is None:
                continue
            if row.document is not None and is_called(view.kind, found, view.names):
                known[row.key] = found
            if not listing and view.wants(found):
                _show(view, table, [found])
    return 0


def _show(view: View, table: Table, documents: Sequence[Document]) -> None:
    if view.form in ("json", "yaml", "name"):
        for document in documents:
            text = printed(view.kind, [document], view.form, single=True)
            say(f"{text}\n---" if view.form == "yaml" else text)
    elif documents:
        say("\n".join(view.lines(table, documents)))


@click.command(cls=Command)
@click.argument("what", nargs=-1, metavar="TYPE [NAME]...")
@click.pass_obj
def describe(settings: Settings, what: tuple[str, ...]) -> int:
    """Show nodepools or nodes in full, with recent events."""
    kind, names = named(what, (NODEPOOL, NODE))
    return settings.run(lambda client: _describe(client, View(kind, names, "")))


async def _describe(client: "Client", view: View) -> int:
    documents = await _listed(client, view)
    names = {name_of(view.kind, document) for document in documents}
    if not documents and not view.names:
        click.echo("No resources found", err=True)
    texts = []
    for document in documents:
        name = name_of(view.kind, document)
        seen = await _recent(client, view.kind, name, EVENTS_KEPT)
        texts.append(described(document, counted(seen), _now()))
    if texts:
        say("\n\n\n".join(texts))
    return _missed(client, view.kind, [name for name in view.names if name not in names])


async def _recent(
    client: "Client", kind: Kind | None, name: str, back: timedelta
) -> "list[ObjectEvent]":
    since = _now() - back
    pool, node = (name if kind is NODEPOOL else ""), (name if kind is NODE else "")
    seen = client.events(pool=pool, node=node, since=since)
    return [event async for event in seen]


@click.command(cls=Command)
@click.option("--for", "regarded", metavar="TYPE/NAME", help="Of one nodepool or node only.")
@click.option("-w", "--watch", is_flag=True, help="Go on with new ones, until Ctrl-C.")
@click.option("--types", default="", metavar="Normal,Warning", help="Of these types only.")
@click.option("--since", default="1h", show_default=True, metavar="DURATION", help="How far back.")
@click.option("--no-headers", is_flag=True, help="Print rows only.")
@click.pass_obj
def events(
    settings: Settings, regarded: str | None, watch: bool, types: str, since: str, no_headers: bool
) -> int:
    """List what happened to nodepools and nodes."""
    kind, name = None, ""
    if regarded:
        kind, names = required([regarded], (NODEPOOL, NODE))
        name = names[0]
    wanted = Wanted(kind, name, _types(types), _back(since), not no_headers)
    return settings.run(lambda client: _events(client, wanted, follow=watch))


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events are asked for; `types` in lower case, empty for all."""

    kind: Kind | None
    name: str
    types: frozenset[str]
    back: timedelta
    headers: bool


def _types(given: str) -> frozenset[str]:
    found = frozenset(given.lower().split(",")) if given else frozenset[str]()
    for name in found - {"normal", "warning"}:
        raise click.UsageError(f"--types: {name!r} is not known; write Normal or Warning")
    return found


def _back(since: str) -> timedelta:
    try:
        return timedelta(seconds=min(duration_s(since), 1e9))
    except ValueError as error:
        raise click.UsageError(f"--since: {error}") from None


async def _events(client: "Client", wanted: Wanted, *, follow: bool) -> int:
    table = Table(EVENT_HEADER)
    if not wanted.headers:
        table = table.without_header()
    pool = wanted.name if wanted.kind is NODEPOOL else ""
    node = wanted.name if wanted.kind is NODE else ""
    since = _now() - wanted.back
    found = []
    async with aclosing(client.events(pool=pool, node=node, since=since, follow=follow)) as seen:
        async for event in seen:
            if wanted.types and event.severity.lower() not in wanted.types:
                continue
            if follow:
                say("\n".join(table.lines([event_row(told(event), _now())])))
            else:
                found.append(event)
    if found:
        now = _now()
        say("\n".join(table.lines(event_row(event, now) for event in counted(found))))
    elif not follow:
        click.echo("No events found", err=True)
    return 0


@click.command(cls=Command)
@click.argument("what", nargs=-1, metavar="nodepool NAME...")
@click.option("--for", "until", required=True, metavar="condition=TYPE[=STATUS]|delete")
@click.option("--timeout", default="30s", show_default=True, metavar="DURATION")
@click.pass_obj
def wait(settings: Settings, what: tuple[str, ...], until: str, timeout: str) -> int:
    """Wait until nodepools have a condition, or are gone."""
    _, names = required(what, (NODEPOOL,))
    condition, status = _condition(until)
    try:
        timeout_s = duration_s(timeout)
    except ValueError as error:
        raise click.UsageError(f"--timeout: {error}") from None
    return settings.run(lambda client: _wait(client, names, condition, status, timeout_s))


def _condition(until: str) -> "tuple[str, ConditionStatus]":
    """The condition to wait for; an empty one means deletion."""
    if until == "delete":
        return "", "True"
    word, _, rest = until.partition("=")
    condition, _, status = rest.partition("=")
    if word != "condition" or not condition:
        told = "write condition=TYPE, condition=TYPE=STATUS or delete"
        raise click.UsageError(f"--for: {until!r} is not known; {told}")
    known = STATUSES.get((status or "true").lower())
    if known is None:
        raise click.UsageError(f"--for: {status!r} is no status; write True, False or Unknown")
    return condition, known


async def _wait(
    client: "Client",
    names: Sequence[str],
    condition: str,
    status: "ConditionStatus",
    timeout_s: float,
) -> int:
    """All names within one time, as in kubectl; the exit code is that of the last fault."""
    import asyncio

    from nodepool.client import ClientError

    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    code = 0
    for name in names:
        # The state as it is now is always looked at, even with no time left.
        left = max(end - loop.time(), LOOK_S)
        try:
            if condition:
                await client.wait(name, condition, status, timeout_s=left)
            else:
                await client.wait_until_gone(name, timeout_s=left)
        except ClientError as error:
            code = failed(error)
        else:
            say(f"{NODEPOOL.full}/{name} condition met")
    return code
