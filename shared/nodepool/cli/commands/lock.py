"""`nodepool lock` and `unlock`: run by the prolog and the epilog of a Slurm job for its Nodes."""

from typing import TYPE_CHECKING

import click

from nodepool.cli.node_verbs import format_change, nodes_argument, parse_nodes, pool_of, together
from nodepool.cli.options import time_limit
from nodepool.cli.settings import Command, Settings

if TYPE_CHECKING:
    from nodepool.client import Client

JOB = click.option("--job", required=True, metavar="JOB", help="The id of the Slurm job.")


@click.command(cls=Command)
@nodes_argument()
@JOB
@click.option(
    "--timeout",
    default="10m",
    show_default=True,
    metavar="DURATION",
    help="How long to wait for all of them together; 0 for no limit.",
)
@click.pass_obj
def lock(settings: Settings, what: tuple[str, ...], job: str, timeout: str) -> int:
    """Lock Nodes for a Slurm job, as its prolog does, and wait until they are.

    A Node is locked when the last Pod that does not tolerate the lock is gone. After a timeout its
    lock stays pending, until 'nodepool unlock' releases it.
    """
    names = parse_nodes(what)
    timeout_s = time_limit("--timeout", timeout)

    async def work(client: "Client") -> int:
        async def lock_node(name: str) -> str:
            await client.nodes.lock(await pool_of(client, name), name, job, timeout_s=timeout_s)
            return "locked"

        return await together(names, lock_node)

    return settings.run(work)


@click.command(cls=Command)
@nodes_argument()
@JOB
@click.pass_obj
def unlock(settings: Settings, what: tuple[str, ...], job: str) -> int:
    """Release the lock of a Slurm job on Nodes, as its epilog does."""
    names = parse_nodes(what)

    async def work(client: "Client") -> int:
        async def unlock_node(name: str) -> str:
            outcome = await client.nodes.unlock(await pool_of(client, name), name, job)
            return format_change(outcome, "unlocked")

        return await together(names, unlock_node)

    return settings.run(work)
