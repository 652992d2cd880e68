"""`nodepool cordon`, `uncordon`, `drain` and `reboot`: requests about a Node."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

import click

from nodepool.cli.errors import CliError
from nodepool.cli.names import NODE
from nodepool.cli.node_verbs import (
    format_change,
    in_turn,
    nodes_argument,
    parse_nodes,
    pool_of,
    several_at_a_time,
)
from nodepool.cli.options import time_limit
from nodepool.cli.output import full_name, print_note, print_text
from nodepool.cli.settings import Command, Settings
from nodepool.cli.tables import POOL_LABEL
from nodepool.contract.documents import Document, condition, field, labels
from nodepool.contract.phases import RESTARTING

if TYPE_CHECKING:
    from nodepool.client import Client
    from nodepool.contract.events import CommandAccepted

STOPPED = ("cordoned", "draining", *RESTARTING)
"""The phases in which a Node may be while a command drains it."""
USUALLY_S = 2.0
"""The seconds after which a document names the machine of a Node that owes an answer."""
Change = Callable[["Client", str, str], "Awaitable[CommandAccepted]"]
"""Changes a Node, given the client, the NodePool's name and the Node's name."""


@click.command(cls=Command)
@nodes_argument()
@click.option("--reason", default="AdminCordon", metavar="TEXT", help="The cause that is shown.")
@click.pass_obj
def cordon(settings: Settings, what: tuple[str, ...], reason: str) -> int:
    """Cordon Nodes: nothing new is scheduled there."""
    names = parse_nodes(what)

    def cordon_node(client: "Client", pool: str, node: str) -> "Awaitable[CommandAccepted]":
        return client.nodes.cordon(pool, node, reason=reason)

    return settings.run(lambda client: _each(client, names, cordon_node, "cordoned"))


@click.command(cls=Command)
@nodes_argument()
@click.pass_obj
def uncordon(settings: Settings, what: tuple[str, ...]) -> int:
    """Take back a cordon, a drain or a reboot that waits."""
    names = parse_nodes(what)

    def uncordon_node(client: "Client", pool: str, node: str) -> "Awaitable[CommandAccepted]":
        return client.nodes.uncordon(pool, node)

    return settings.run(lambda client: _each(client, names, uncordon_node, "uncordoned"))


@click.command(cls=Command)
@nodes_argument()
@click.option("--force", is_flag=True, help="End also Pods that would block the drain.")
@click.option("--reason", default="AdminDrain", metavar="TEXT", help="The cause that is shown.")
@click.option(
    "--timeout",
    default="0s",
    show_default=True,
    metavar="DURATION",
    help="How long to wait until nothing runs there, at least 2s; 0 for no limit.",
)
@click.pass_obj
def drain(settings: Settings, what: tuple[str, ...], force: bool, reason: str, timeout: str) -> int:
    """Cordon Nodes and end what runs there; wait until that is done.

    A Node that is unhealthy is then rebooted or replaced.
    """
    names, timeout_s = parse_nodes(what), time_limit("--timeout", timeout)

    def drain_node(client: "Client", pool: str, node: str) -> "Awaitable[CommandAccepted]":
        return client.nodes.drain(pool, node, reason=reason, force=force)

    return settings.run(lambda client: _drain_each(client, names, drain_node, timeout_s))


@click.command(cls=Command)
@nodes_argument()
@click.option("--force", is_flag=True, help="Reset the power at once, whatever runs there.")
@click.pass_obj
def reboot(settings: Settings, what: tuple[str, ...], force: bool) -> int:
    """Reboot Nodes in their NodePool, each once nothing runs there that blocks it."""
    names = parse_nodes(what)

    def reboot_node(client: "Client", pool: str, node: str) -> "Awaitable[CommandAccepted]":
        return client.nodes.reboot(pool, node, force=force)

    verb = "power reset" if force else "reboot pending"
    return settings.run(lambda client: _each(client, names, reboot_node, verb))


async def _each(client: "Client", names: Sequence[str], change: Change, verb: str) -> int:
    """Change each Node and report it; return the exit code."""

    async def change_node(name: str) -> str:
        outcome = await change(client, await pool_of(client, name), name)
        return format_change(outcome, verb)

    return await several_at_a_time(names, change_node)


async def _drain_each(
    client: "Client", names: Sequence[str], change: Change, timeout_s: float | None
) -> int:
    """Begin to drain each Node and wait until it is drained; return the exit code."""

    async def drain_and_wait(name: str) -> str:
        # The Node is followed before the command is sent, so that no resulting change is missed.
        async with aclosing(client.nodes.follow(name)) as changes:
            document = await anext(changes)
            if document is None:
                raise CliError(f"not found in {client.org}/{client.cluster}")
            pool = labels(document).get(POOL_LABEL, "")
            outcome = await change(client, pool, name)
            print_text(f"{NODE.full}/{name} {format_change(outcome, 'cordoned')}")
            await wait_for_drain(document, changes, timeout_s)
        return "drained"

    return await in_turn(names, drain_and_wait)


async def wait_for_drain(
    first: Document,
    changes: AsyncIterator[Document | None],
    timeout_s: float | None,
    usually_s: float = USUALLY_S,
) -> None:
    """Wait until nothing runs on a Node, or the Node is rebooted or gone.

    Raises `CliError` if the Node is in production again, because the drain was taken back.

    usually_s: for how many seconds a document must hold that shows that the drain is over.
    """
    import asyncio

    from nodepool.client.errors import TimedOut

    document: Document | None = first
    reboots, was_stopped, shown = _reboots(first), False, ""
    try:
        async with asyncio.timeout(timeout_s):
            while document is not None and _reboots(document) <= reboots:
                was_stopped = was_stopped or field(document, "status", "phase") in STOPPED
                is_back = was_stopped and _is_in_production(document)
                if is_back or is_drained(document):
                    is_end = _is_in_production if is_back else is_drained
                    document = await _settle(document, changes, is_end, usually_s)
                    if document is None or not is_end(document):
                        continue
                    if is_back and _reboots(document) <= reboots:
                        raise CliError("the drain was taken back: it is no longer cordoned")
                    return
                awaited = say_awaited(document)
                if was_stopped and awaited != shown:
                    shown = awaited
                    print_note(f"{full_name(NODE, document)} {awaited}")
                document = await anext(changes)
    except TimeoutError:
        awaited = say_awaited(document or first)
        raise TimedOut(f"timed out waiting for the drain: the Node {awaited}") from None


async def _settle(
    document: Document,
    changes: AsyncIterator[Document | None],
    is_end: Callable[[Document], bool],
    usually_s: float,
) -> Document | None:
    """Return a document that seems to end a drain if it lasts, or else what comes instead of it.

    A machine that has yet to answer the cordon is named only after the time in which machines
    usually answer, and the read model may still show what was before the command.
    """
    import asyncio

    latest: Document | None = document
    try:
        async with asyncio.timeout(usually_s) as usually:
            while latest is not None and is_end(latest):
                latest = await anext(changes)
    except TimeoutError:
        if not usually.expired():
            raise
    return latest


def _is_in_production(document: Document) -> bool:
    return field(document, "status", "phase") == "production"


def is_drained(document: Document) -> bool:
    """Return whether a Node is cordoned and nothing runs there, as far as its machine tells."""
    phase, active = field(document, "status", "phase"), condition(document, "CWActive", "status")
    is_awaited = _is_silent(document) or field(document, "status", "answerBy") is not None
    return phase == "cordoned" and active != "True" and not is_awaited


def say_awaited(document: Document) -> str:
    """Return what the drain of a Node waits for."""
    if field(document, "status", "phase") in RESTARTING:
        return "waits until its reboot and its verification end"
    if _is_silent(document) or condition(document, "CWActive", "status") != "True":
        return "waits for its machine to answer"
    return f"waits for what is {condition(document, 'CWActive', 'message')}"


def _is_silent(document: Document) -> bool:
    """Return whether the machine of a Node does not answer, so that its work is unknown."""
    return condition(document, "Ready", "status") == "Unknown"


def _reboots(document: Document) -> int:
    count = field(document, "status", "reboots")
    return count if isinstance(count, int) else 0
