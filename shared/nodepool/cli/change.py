"""Commands that change: apply, scale, delete, preempt, set, register."""

from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from nodepool.cli.documents import labels
from nodepool.cli.faults import Refusal, failed
from nodepool.cli.names import NODE, NODEPOOL, required
from nodepool.cli.output import complain, say
from nodepool.cli.settings import Command, Group, Settings
from nodepool.cli.tables import POOL_LABEL
from nodepool.cli.times import duration_s

if TYPE_CHECKING:
    from nodepool.client import Client
    from nodepool.client.manifests import Manifest
    from nodepool.contract.commands import ApplyNodePool, DeleteNodePool, ScaleNodePool
    from nodepool.contract.events import CommandAccepted

    PoolCommand = ApplyNodePool | ScaleNodePool | DeleteNodePool

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
    """Create or change the nodepools written in files."""
    from nodepool.client.manifests import read_manifests

    found = read_manifests(files)
    return settings.run(lambda client: _apply(client, found, dry_run=dry_run))


async def _apply(client: "Client", manifests: "Sequence[Manifest]", *, dry_run: bool) -> int:
    commands = [
        client.addressed(manifest).model_copy(update={"dry_run": dry_run}) for manifest in manifests
    ]
    suffix = DRY_RUN if dry_run else ""
    code, _ = await _send(
        client,
        commands,
        lambda name, outcome: f"{NODEPOOL.full}/{name} {outcome.result}{suffix}",
        places=[f"{manifest.place}: " for manifest in manifests],
    )
    return code


async def _send(
    client: "Client",
    commands: "Sequence[PoolCommand]",
    line: "Callable[[str, CommandAccepted], str]",
    *,
    places: Sequence[str] = (),
    ignore_missing: bool = False,
) -> tuple[int, list[str]]:
    """The exit code, and the NodePools whose command was accepted; prints a line for each.

    `places` says where each command was written down, for its error.
    """
    from nodepool.client import ClientError, NoOutcome, Refused

    code = unanswered = 0
    accepted = []
    async with aclosing(client.send_each(commands)) as answers:
        beside = iter(places or [""] * len(commands))
        async for command, outcome in answers:
            name, place = command.path[2], next(beside)
            if ignore_missing and isinstance(outcome, Refused) and outcome.reason == "NotFound":
                continue
            silent = isinstance(outcome, NoOutcome)
            unanswered += silent
            if not isinstance(outcome, ClientError):
                accepted.append(name)
                say(line(name, outcome))
            elif not silent or unanswered == 1:
                code = failed(outcome, f'{place}nodepool "{name}"')
    if unanswered > 1:
        complain(f"{unanswered - 1} more commands were not answered")
    return code, accepted


@click.command(cls=Command)
@click.argument("what", nargs=-1, metavar="nodepool NAME...")
@click.option("--target", type=COUNT, required=True, metavar="N", help="How many Nodes to have.")
@click.option("--resource-version", metavar="V", help="Only if not changed since this version.")
@click.option("--dry-run", is_flag=True, help="Say what would happen; change nothing.")
@click.pass_obj
def scale(
    settings: Settings,
    what: tuple[str, ...],
    target: int,
    resource_version: str | None,
    dry_run: bool,
) -> int:
    """Set how many Nodes nodepools are to have."""
    _, names = required(what, (NODEPOOL,))

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
        told = f"scaled{DRY_RUN if dry_run else ''}"
        code, _ = await _send(client, commands, lambda name, _: f"{NODEPOOL.full}/{name} {told}")
        return code

    return settings.run(work)


@click.command(cls=Command)
@click.argument("what", nargs=-1, metavar="[nodepool NAME...]")
@click.option("-f", "--filename", "files", multiple=True, metavar="FILE|DIR|-", help="Named there.")
@click.option("--wait/--no-wait", default=True, help="Wait until they are gone (the default).")
@click.option("--timeout", default="0", metavar="DURATION", help="How long to wait; 0 for ever.")
@click.option("--ignore-not-found", is_flag=True, help="One that is not there is no error.")
@click.option("--dry-run", is_flag=True, help="Say what would happen; change nothing.")
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
    """Remove nodepools and all their Nodes."""
    if bool(what) == bool(files):
        raise click.UsageError("NAME: write either nodepool NAME or -f FILE")
    if files:
        from nodepool.client.manifests import read_manifests

        names = [manifest.command.metadata.name for manifest in read_manifests(files)]
    else:
        _, names = required(what, (NODEPOOL,))
    try:
        timeout_s = duration_s(timeout) or None
    except ValueError as error:
        raise click.UsageError(f"--timeout: {error}") from None
    deletion = Deletion(names, wait and not dry_run, timeout_s, ignore_not_found, dry_run)
    return settings.run(deletion.run)


@dataclass(frozen=True, slots=True)
class Deletion:
    """What is to be deleted, and whether to stay until it is; `timeout_s` None is for ever."""

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
        told = f"deleted{DRY_RUN if self.dry_run else ''}"
        code, going = await _send(
            client,
            commands,
            lambda name, _: f'{NODEPOOL.full} "{name}" {told}',
            ignore_missing=self.ignore_missing,
        )
        if self.wait and going:
            await client.wait_until_gone(*going, timeout_s=self.timeout_s)
        return code


@click.command(cls=Command)
@click.argument("what", nargs=-1, metavar="node NAME...")
@click.pass_obj
def preempt(settings: Settings, what: tuple[str, ...]) -> int:
    """Take spot Nodes back; each has seven minutes."""
    _, names = required(what, (NODE,))

    async def work(client: "Client") -> int:
        from nodepool.client import ClientError

        code = 0
        for name in names:
            try:
                told = await client.preempt(await _pool_of(client, name), name)
            except (ClientError, Refusal) as error:
                code = failed(error, f'node "{name}"')
            else:
                change = "preemption pending" if told.result == "done" else "unchanged"
                say(f"{NODE.full}/{name} {change}")
        return code

    return settings.run(work)


async def _pool_of(client: "Client", node: str) -> str:
    document = await client.get("nodes", node)
    if document is None:
        raise Refusal(f"not found in {client.org}/{client.cluster}")
    return labels(document).get(POOL_LABEL, "")


@click.group("set", cls=Group)
def set_() -> None:
    """Set quotas."""


@set_.command()
@click.argument("instance_type")
@click.argument("limit", type=COUNT, metavar="N")
@click.option("--zone", metavar="ZONE", help="The zone; the cluster's own where none is named.")
@click.pass_obj
def quota(settings: Settings, instance_type: str, limit: int, zone: str | None) -> int:
    """Set how many Nodes of a type the organisation may hold in a zone."""

    async def work(client: "Client") -> None:
        where = zone or await client.zone()
        if where is None:
            raise Refusal(
                f"--zone: {client.org}/{client.cluster} lies in no zone that is known; name one"
            )
        outcome = await client.set_quota(where, instance_type, limit)
        say(f"quota/{where}.{instance_type} {outcome.result}")

    return settings.run(work)


@click.group(cls=Group)
def register() -> None:
    """Make clusters known."""


@register.command()
@click.argument("name")
@click.option("--zone", required=True, metavar="ZONE", help="The zone it lies in, for ever.")
@click.pass_obj
def cluster(settings: Settings, name: str, zone: str) -> int:
    """Make a cluster of the organisation known."""

    async def work(client: "Client") -> None:
        outcome = await client.register_cluster(name, zone)
        say(f"cluster/{name} {outcome.result}")

    return settings.run(work)
