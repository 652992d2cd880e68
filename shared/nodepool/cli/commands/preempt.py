"""`nodepool preempt` and `ack`: preempts spot Nodes, and gives them back before they are due."""

from typing import TYPE_CHECKING

import click

from nodepool.cli.node_verbs import format_change, in_turn, nodes_argument, parse_nodes, pool_of
from nodepool.cli.settings import Command, Settings

if TYPE_CHECKING:
    from nodepool.client import Client


@click.command(cls=Command)
@nodes_argument()
@click.pass_obj
def preempt(settings: Settings, what: tuple[str, ...]) -> int:
    """Preempt spot Nodes; each is removed within seven minutes."""
    names = parse_nodes(what)

    async def work(client: "Client") -> int:
        async def preempt_node(name: str) -> str:
            outcome = await client.nodes.preempt(await pool_of(client, name), name)
            return format_change(outcome, "preemption pending")

        return await in_turn(names, preempt_node)

    return settings.run(work)


@click.command(cls=Command)
@nodes_argument()
@click.pass_obj
def ack(settings: Settings, what: tuple[str, ...]) -> int:
    """Give preempted Nodes back now: each is drained at once, not two minutes after its warning.

    nodepool ack g15e5f1
    """
    names = parse_nodes(what)

    async def work(client: "Client") -> int:
        async def acknowledge_preemption(name: str) -> str:
            outcome = await client.nodes.acknowledge_preemption(await pool_of(client, name), name)
            return format_change(outcome, "acknowledged")

        return await in_turn(names, acknowledge_preemption)

    return settings.run(work)
