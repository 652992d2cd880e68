"""Commands that change: apply, scale, delete, preempt, set, register."""

from contextlib import aclosing
from typing import TYPE_CHECKING

import click

from nodepool.cli.columns import POOL_LABEL
from nodepool.cli.documents import labels
from nodepool.cli.faults import Refusal, failed
from nodepool.cli.files import gathered
from nodepool.cli.names import NODE, NODEPOOL, Kind, required
from nodepool.cli.output import say
from nodepool.cli.settings import Command, Group, Settings
from nodepool.cli.times import duration_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nodepool.client import Client
    from nodepool.manifests import Manifest

COUNT = click.IntRange(0, 1_000_000)
DRY_RUN = " (dry run)"


@click.command(cls=Command)
@click.option(
    "-f", "--filename", "files", multiple=True, required=True, metavar="FILE|DIR|-",
    help="A file, a folder, or - for standard input; may be given again.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Say what would happen; change nothing.")
@click.pass_obj
def apply(settings: Settings, files: tuple[str, ...], dry_run: bool) -> int:
    """Create the nodepools in files, or change them to what is written there."""
    found = gathered(files)
    return settings.run(lambda client: _apply(client, found, dry_run=dry_run))


async def _apply(client: "Client", manifests: "Sequence[Manifest]", *, dry_run: bool) -> int:
    from nodepool.client import ClientError

    commands = [
        client.addressed(manifest.command).model_copy(update={"dry_run": dry_run})
        for manifest in manifests
    ]
    code = 0
    async with aclosing(client.send_many(commands)) as answers:
        places = iter(manifests)
        async for _, outcome in answers:
            manifest = next(places)
            name = manifest.command.metadata.name
            if isinstance(outcome, ClientError):
                code = failed(type(outcome)(*_told(outcome, f'{manifest.place}: "{name}"')))
            else:
                say(f"{NODEPOOL.full}/{name} {outcome.result}{DRY_RUN if dry_run else ''}")
    return code
