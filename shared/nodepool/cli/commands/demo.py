"""`nodepool demo`: adds demo objects to a control plane that is already running."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nodepool.cli.errors import CliError
from nodepool.cli.output import print_lines
from nodepool.cli.settings import Command, Settings

if TYPE_CHECKING:
    from nodepool.client import Client

PATH = click.Path(path_type=Path, exists=True)


@click.command(cls=Command)
@click.option("--examples", type=PATH, metavar="DIR", help="A folder of manifests to apply.")
@click.pass_obj
def demo(settings: Settings, examples: Path | None) -> int:
    """Set up a cluster with quotas, machines and NodePools, once.

    What exists is kept as it is, and what was deleted since stays deleted.
    """
    from nodepool.cli.tables import pools_table
    from nodepool.local.demo import seed_demo, seed_once
    from nodepool.local.errors import UpError

    async def work(client: "Client") -> None:
        if examples is None:
            await seed_demo(client)
        else:
            await seed_once(client, examples)
        pools = [pool.document for pool in await client.nodepools.list()]
        print_lines([pools_table([document for document in pools if document is not None])])

    try:
        return settings.run(work)
    except UpError as error:
        raise CliError(str(error)) from None
