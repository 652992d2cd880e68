"""`nodepool lock` and `unlock`: what the prolog and the epilog of a Slurm job do to its Nodes."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import click

from nodepool.cli.commands.preempt import pool_of
from nodepool.cli.errors import DONE, CliError, report
from nodepool.cli.names import NODE, parse_required_names
from nodepool.cli.options import objects_argument, seconds
from nodepool.cli.output import print_text
from nodepool.cli.settings import Command, Settings

if TYPE_CHECKING:
    from nodepool.client import Client

JOB = click.option("--job", required=True, metavar="JOB", help="The id of the Slurm job.")


@click.command(cls=Command)
@objects_argument((NODE,), "node NAME...")
@JOB
@click.option(
    "--timeout",
    default="10m",
    show_default=True,
    metavar="DURATION",
    help="How long to wait for all of them together.",
)
@click.pass_obj
def lock(settings: Settings, what: tuple[str, ...], job: str, timeout: str) -> int:
    """Lock Nodes for a Slurm job, as its prolog does, and wait until they are.

    A Node is locked when the last Pod that does not tolerate the lock is gone. After a timeout its
    lock stays pending, until 'nodepool unlock' releases it.
    """
    _, names = parse_required_names(what, (NODE,))
    timeout_s = seconds("--timeout", timeout)

    async def work(client: "Client") -> int:
        async def locked(name: str) -> str:
            await client.lock_node(await pool_of(client, name), name, job, timeout_s=timeout_s)
            return "locked"

        return await _together(names, locked)

    return settings.run(work)


@click.command(cls=Command)
@objects_argument((NODE,), "node NAME...")
@JOB
@click.pass_obj
def unlock(settings: Settings, what: tuple[str, ...], job: str) -> int:
    """Release the lock of a Slurm job on Nodes, as its epilog does."""
    _, names = parse_required_names(what, (NODE,))

    async def work(client: "Client") -> int:
        async def unlocked(name: str) -> str:
            outcome = await client.unlock_node(await pool_of(client, name), name, job)
            return "unlocked" if outcome.result == "done" else "unchanged"

        return await _together(names, unlocked)

    return settings.run(work)


async def _together(names: Sequence[str], change: Callable[[str], Awaitable[str]]) -> int:
    """Changes all Nodes at the same time; the exit code is that of the last error."""
    import asyncio

    from nodepool.client import ClientError

    results = await asyncio.gather(*map(change, names), return_exceptions=True)
    code = DONE
    for name, result in zip(names, results, strict=True):
        match result:
            case str():
                print_text(f"{NODE.full}/{name} {result}")
            case ClientError() | CliError():
                code = report(result, f'node "{name}"')
            case _:
                raise result
    return code
