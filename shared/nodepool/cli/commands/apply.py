"""`nodepool apply`: creates and changes NodePools from manifests."""

from typing import TYPE_CHECKING

import click

from nodepool.cli.names import NODEPOOL
from nodepool.cli.options import dry_run_option, files_option
from nodepool.cli.sending import DRY_RUN, send
from nodepool.cli.settings import Command, Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nodepool.client import Client
    from nodepool.client.manifests import Manifest

FILES_HELP = "Manifest file, folder of manifests, or - for standard input; may be repeated."


@click.command(cls=Command)
@files_option(FILES_HELP, required=True)
@dry_run_option()
@click.pass_obj
def apply(settings: Settings, files: tuple[str, ...], dry_run: bool) -> int:
    """Create or change the NodePools in manifests."""
    from nodepool.client.manifests import read_manifests

    manifests = read_manifests(files)
    return settings.run(lambda client: _apply(client, manifests, dry_run=dry_run))


async def _apply(client: "Client", manifests: "Sequence[Manifest]", *, dry_run: bool) -> int:
    commands = [
        client.addressed(manifest).model_copy(update={"dry_run": dry_run}) for manifest in manifests
    ]
    suffix = DRY_RUN if dry_run else ""
    code, _ = await send(
        client,
        commands,
        lambda name, outcome: f"{NODEPOOL.full}/{name} {outcome.result}{suffix}",
        places=[f"{manifest.place}: " for manifest in manifests],
    )
    return code
