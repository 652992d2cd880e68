"""`nodepool scale`: sets the target of NodePools."""

from typing import TYPE_CHECKING

import click

from nodepool.cli.names import NODEPOOL, parse_required_names
from nodepool.cli.options import COUNT, dry_run_option
from nodepool.cli.sending import DRY_RUN, send
from nodepool.cli.settings import Command, Settings

if TYPE_CHECKING:
    from nodepool.client import Client

VERSION_HELP = "Change a NodePool only if this is still its resourceVersion."


@click.command(cls=Command)
@click.argument("what", nargs=-1, metavar="nodepool NAME...")
@click.option("--target", type=COUNT, required=True, metavar="N", help="The new number of Nodes.")
@click.option("--resource-version", metavar="V", help=VERSION_HELP)
@dry_run_option()
@click.pass_obj
def scale(
    settings: Settings,
    what: tuple[str, ...],
    target: int,
    resource_version: str | None,
    dry_run: bool,
) -> int:
    """Set how many Nodes NodePools should have."""
    _, names = parse_required_names(what, (NODEPOOL,))
    suffix = DRY_RUN if dry_run else ""

    async def work(client: "Client") -> int:
        from nodepool.contract.commands import ScaleNodePool

        commands = [
            ScaleNodePool(
                org=client.org,
                cluster=client.cluster,
                pool=name,
                target_nodes=target,
                resource_version=resource_version,
                dry_run=dry_run,
            )
            for name in names
        ]
        code, _ = await send(
            client, commands, lambda name, _: f"{NODEPOOL.full}/{name} scaled{suffix}"
        )
        return code

    return settings.run(work)
