"""`nodepool scale`: sets the target of NodePools."""

from typing import TYPE_CHECKING

import click

from nodepool.cli.errors import DONE, CliError, report
from nodepool.cli.options import COUNT, Output, output_options
from nodepool.cli.sending import Reporting, change_line, send
from nodepool.cli.settings import Command, Settings
from nodepool.cli.targets import Targets, target_options

if TYPE_CHECKING:
    from nodepool.client import Client
    from nodepool.contract.commands import ScaleNodePool

VERSION_HELP = "Change a NodePool only if this is still its resourceVersion."
CURRENT_HELP = "Change a NodePool only if this is its target now."


@click.command(cls=Command)
@target_options("Scale")
@click.option(
    "--target",
    "--replicas",
    "target",
    type=COUNT,
    metavar="N",
    help="The new number of Nodes.",
)
@click.option(
    "--racks", type=COUNT, metavar="N", help="The new number of racks, instead of --target."
)
@click.option(
    "--current-target", "--current-replicas", "current", type=COUNT, metavar="N", help=CURRENT_HELP
)
@click.option("--resource-version", "version", metavar="V", help=VERSION_HELP)
@output_options()
@click.pass_obj
def scale(
    settings: Settings,
    targets: Targets,
    target: int | None,
    racks: int | None,
    current: int | None,
    version: str | None,
    output: Output,
) -> int:
    """Set how many Nodes NodePools should have.

    nodepool scale nodepool training --target 12
    """
    if (target is None) is (racks is None):
        raise click.UsageError("Missing option '--target': write either --target N or --racks N")

    async def work(client: "Client") -> int:
        code, commands = DONE, []
        for name in await targets.find(client):
            try:
                nodes = await _nodes(client, name, racks) if target is None else target
                commands.append(await _command(client, name, nodes, current, version))
            except CliError as error:
                code = report(error, f'nodepool "{name}"')
        how = Reporting(lambda name, _: change_line(name, "scaled"), output)
        return (await send(client, commands, how))[0] or code

    return settings.run(work)


async def _nodes(client: "Client", name: str, racks: int | None) -> int:
    """Return how many Nodes a number of racks has."""
    spec = (await client.nodepools.read_stored(name)).spec
    if not spec.rack_size:
        raise CliError(f"--racks: {spec.instance_type} does not come in racks; use --target")
    return (racks or 0) * spec.rack_size


async def _command(
    client: "Client", name: str, target: int, current: int | None, version: str | None
) -> "ScaleNodePool":
    """Return the command; with `current`, it is refused if the NodePool changes meanwhile."""
    from nodepool.contract.commands import ScaleNodePool

    if current is not None:
        stored = await client.nodepools.find_stored(name)
        if stored is not None:
            if stored.spec.target != current:
                raise CliError(f"its target is {stored.spec.target}, not {current}")
            version = version or str(stored.version)
    return ScaleNodePool(
        org=client.org,
        cluster=client.cluster,
        pool=name,
        target_nodes=target,
        resource_version=version,
    )
