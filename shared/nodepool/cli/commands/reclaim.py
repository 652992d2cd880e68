"""`nodepool reclaim` and `return`: withdraws machines from all NodePools, and returns them."""

from typing import TYPE_CHECKING

import click

from nodepool.cli.output import print_text
from nodepool.cli.settings import Command, Settings

if TYPE_CHECKING:
    from nodepool.client import Client

MACHINES = click.IntRange(1, 1_000_000)


@click.command(cls=Command)
@click.argument("zone")
@click.argument("instance_type", metavar="TYPE")
@click.argument("count", type=MACHINES)
@click.pass_obj
def reclaim(settings: Settings, zone: str, instance_type: str, count: int) -> int:
    """Hold machines back, preempting spot Nodes.

    Free machines are taken first, then spot Nodes are preempted, and no NodePool is given the
    machines before 'nodepool return'.
    """

    async def work(client: "Client") -> None:
        await client.capacity.reclaim(zone, instance_type, count)
        print_text(f"capacity/{zone}.{instance_type} {count} reclaimed")

    return settings.run(work)


@click.command("return", cls=Command)
@click.argument("zone")
@click.argument("instance_type", metavar="TYPE")
@click.argument("count", type=MACHINES)
@click.pass_obj
def return_(settings: Settings, zone: str, instance_type: str, count: int) -> int:
    """Give reclaimed machines back."""

    async def work(client: "Client") -> None:
        await client.capacity.give_back(zone, instance_type, count)
        print_text(f"capacity/{zone}.{instance_type} {count} returned")

    return settings.run(work)
