"""`nodepool rollout status`: follows a NodePool on its way to its target."""

from contextlib import aclosing
from typing import TYPE_CHECKING

import click

from nodepool.cli.errors import DONE, REFUSED
from nodepool.cli.layout import escape_text
from nodepool.cli.missing import report_missing
from nodepool.cli.names import NODEPOOL
from nodepool.cli.options import Files, files_options, objects_argument, select_objects, time_limit
from nodepool.cli.output import print_error, print_text
from nodepool.cli.progress import Progress, progress
from nodepool.cli.settings import Command, Group, Settings

if TYPE_CHECKING:
    from nodepool.client import Client


@click.group(cls=Group)
def rollout() -> None:
    """Follow NodePools on their way to their targets."""


@rollout.command(cls=Command)
@objects_argument((NODEPOOL,), "nodepool NAME... | nodepool/NAME...")
@files_options("Follow the NodePools in these manifests.")
@click.option(
    "-w/-W",
    "--watch/--no-watch",
    "watches",
    default=True,
    show_default=True,
    help="Whether to wait until the target is reached, or to print the status once.",
)
@click.option(
    "--timeout",
    default="0s",
    show_default=True,
    metavar="DURATION",
    help="How long to wait; 0 for no limit.",
)
@click.pass_obj
def status(
    settings: Settings, what: tuple[str, ...], files: Files, watches: bool, timeout: str
) -> int:
    """Print how far NodePools are, until each has reached its target.

    Ends with 1 for a NodePool that is invalid or deleted, and with 3 after the timeout.
    """
    ((_, names),) = select_objects(what, files, (NODEPOOL,))
    if not names:
        raise click.UsageError("NAME: is required; write nodepool NAME or -f FILE")
    timeout_s = time_limit("--timeout", timeout)

    async def work(client: "Client") -> int:
        return max([await _status(client, name, timeout_s, watches=watches) for name in names])

    return settings.run(work, patient=watches)


async def _status(client: "Client", name: str, timeout_s: float | None, *, watches: bool) -> int:
    """Print each change of the progress of one NodePool, and return the exit code."""
    import asyncio

    from nodepool.client.errors import TimedOut

    state = Progress("")
    try:
        async with asyncio.timeout(timeout_s), aclosing(client.nodepools.follow(name)) as all:
            async for document in all:
                if document is None:
                    return await report_missing(client, NODEPOOL, [name])
                before, state = state, progress(document)
                if state.failed:
                    print_error(state.text)
                    return REFUSED
                if state.text != before.text:
                    print_text(escape_text(state.text))
                if state.done or not watches:
                    break
    except TimeoutError:
        missing = f": {state.missing}" if state.missing else " to reach its target"
        raise TimedOut(f"timed out waiting for nodepool/{name}{missing}") from None
    return DONE
