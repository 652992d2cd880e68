"""`nodepool delete`: deletes NodePools, and unsets quotas."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from nodepool.cli.names import NODEPOOL, QUOTA
from nodepool.cli.options import DryRun, Output, output_options, time_limit
from nodepool.cli.quotas import delete_quotas
from nodepool.cli.sending import Reporting, send
from nodepool.cli.settings import Command, Settings
from nodepool.cli.targets import Targets, target_options

if TYPE_CHECKING:
    from nodepool.client import Client

NODES_STAY = (
    "--cascade: Nodes cannot stay without their NodePool; use background or foreground, which"
    " both remove them"
)
LINE = f'{NODEPOOL.full} "{{}}" deleted'


@dataclass(frozen=True, slots=True)
class Wait:
    """Whether to wait until NodePools are gone, and for how many seconds; None means no limit."""

    wanted: bool
    timeout_s: float | None


def _cascades(_: click.Context, __: click.Parameter, value: str) -> None:
    if value not in ("background", "foreground", "true"):
        raise click.UsageError(NODES_STAY)


@click.command(cls=Command)
@target_options("Delete", (NODEPOOL, QUOTA))
@click.option(
    "--wait/--no-wait", default=True, show_default=True, help="Whether to wait until they are gone."
)
@click.option(
    "--timeout",
    default="0",
    show_default=True,
    metavar="DURATION",
    help="How long to wait; 0 for no limit.",
)
@click.option("--ignore-not-found", is_flag=True, help="Do not fail for what does not exist.")
@click.option("--zone", metavar="ZONE", help="The zone of a quota.  [default: the cluster's]")
@click.option(
    "--cascade", default="foreground", hidden=True, expose_value=False, callback=_cascades
)
@output_options(only_names=True)
@click.pass_obj
def delete(
    settings: Settings,
    targets: Targets,
    wait: bool,
    timeout: str,
    ignore_not_found: bool,
    zone: str | None,
    output: Output,
) -> int:
    """Delete NodePools and all their Nodes, or unset quotas.

    Nodes are drained, and Pods have their own grace periods; neither can be skipped.

    nodepool delete quota NAME... unsets limits; the NAME is ZONE.INSTANCE_TYPE, or the type alone.
    No Node is removed, and no NodePool gets more until a limit is set again.
    """
    how = Reporting(lambda name, _: LINE.format(name), output, ignore_missing=ignore_not_found)
    waiting = Wait(wait and output.dry_run is DryRun.NONE, time_limit("--timeout", timeout))
    if targets.kind is QUOTA:
        return settings.run(lambda client: delete_quotas(client, targets.names, zone or "", how))
    if zone is not None:
        raise click.UsageError("--zone: a NodePool has the zone of its cluster; leave it out")
    return settings.run(lambda client: _delete(client, targets, how, waiting))


async def _delete(client: "Client", targets: Targets, how: Reporting, waiting: Wait) -> int:
    from nodepool.contract.commands import DeleteNodePool

    names = await targets.find(client)
    commands = [DeleteNodePool(org=client.org, cluster=client.cluster, pool=name) for name in names]
    code, accepted = await send(client, commands, how)
    if waiting.wanted and accepted:
        await client.nodepools.wait_until_gone(*accepted, timeout_s=waiting.timeout_s)
    return code
