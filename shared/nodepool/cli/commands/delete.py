"""`nodepool delete`: deletes NodePools."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from nodepool.cli.names import NODEPOOL, parse_required_names
from nodepool.cli.options import dry_run_option, files_option, seconds
from nodepool.cli.sending import DRY_RUN, send
from nodepool.cli.settings import Command, Settings

if TYPE_CHECKING:
    from nodepool.client import Client

FILES_HELP = "Delete the NodePools in these manifests; may be repeated."


@click.command(cls=Command)
@click.argument("what", nargs=-1, metavar="[nodepool NAME...]")
@files_option(FILES_HELP, required=False)
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
@click.option("--ignore-not-found", is_flag=True, help="Do not fail for missing NodePools.")
@dry_run_option()
@click.pass_obj
def delete(
    settings: Settings,
    what: tuple[str, ...],
    files: tuple[str, ...],
    wait: bool,
    timeout: str,
    ignore_not_found: bool,
    dry_run: bool,
) -> int:
    """Delete NodePools and all their Nodes."""
    if bool(what) == bool(files):
        raise click.UsageError("NAME: write either nodepool NAME or -f FILE")
    names = _names_in(files) if files else parse_required_names(what, (NODEPOOL,))[1]
    timeout_s = seconds("--timeout", timeout) or None
    deletion = Deletion(names, wait and not dry_run, timeout_s, ignore_not_found, dry_run)
    return settings.run(deletion.run)


def _names_in(files: Sequence[str]) -> list[str]:
    from nodepool.client.manifests import read_manifests

    return [manifest.command.metadata.name for manifest in read_manifests(files)]


@dataclass(frozen=True, slots=True)
class Deletion:
    """A deletion of NodePools.

    wait: whether to wait until they are gone.
    timeout_s: how long to wait, in seconds; None without limit.
    ignore_missing: whether a NodePool that does not exist is no error.
    """

    names: Sequence[str]
    wait: bool
    timeout_s: float | None
    ignore_missing: bool
    dry_run: bool

    async def run(self, client: "Client") -> int:
        """Deletes them and returns the exit code."""
        from nodepool.contract.commands import DeleteNodePool

        commands = [
            DeleteNodePool(org=client.org, cluster=client.cluster, pool=name, dry_run=self.dry_run)
            for name in self.names
        ]
        suffix = DRY_RUN if self.dry_run else ""
        code, accepted = await send(
            client,
            commands,
            lambda name, _: f'{NODEPOOL.full} "{name}" deleted{suffix}',
            ignore_missing=self.ignore_missing,
        )
        if self.wait and accepted:
            await client.wait_until_gone(*accepted, timeout_s=self.timeout_s)
        return code
