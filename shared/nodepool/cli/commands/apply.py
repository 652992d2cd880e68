"""`nodepool apply`, `create` and `replace`: NodePools from manifests and flags."""

from typing import TYPE_CHECKING

import click

from nodepool.cli.creating import new_pool, only_new
from nodepool.cli.errors import DONE, report
from nodepool.cli.names import NODEPOOL, parse_names
from nodepool.cli.options import (
    COUNT,
    DryRun,
    Files,
    Output,
    files_options,
    objects_argument,
    output_options,
)
from nodepool.cli.sending import Reporting, change_line, send
from nodepool.cli.settings import Command, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nodepool.client import Client
    from nodepool.client.manifests import Manifest
    from nodepool.contract.commands import ApplyNodePool

FILES_HELP = (
    "Manifest file, folder of manifests, or - for standard input; may be repeated, or several"
    " with commas between them."
)


@click.command(cls=Command)
@files_options(FILES_HELP, required=True)
@output_options()
@click.pass_obj
def apply(settings: Settings, files: Files, output: Output) -> int:
    """Create or change the NodePools in manifests.

    A NodePool becomes what its manifest says; what the manifest leaves out gets its default.
    """
    manifests = files.manifests()

    async def work(client: "Client") -> int:
        commands = [client.nodepools.address_manifest(manifest) for manifest in manifests]
        how = Reporting(change_line, output, _places(manifests))
        code, _ = await send(client, commands, how)
        return code

    return settings.run(work)


@click.command(cls=Command)
@objects_argument((NODEPOOL,), "[nodepool NAME]")
@files_options(FILES_HELP)
@click.option("--instance-type", metavar="TYPE", help="The type of the Nodes.")
@click.option("--target", "--replicas", type=COUNT, metavar="N", help="The number of Nodes.")
@click.option("--racks", type=COUNT, metavar="N", help="Instead of --target: the number of racks.")
@click.option("--compute-class", metavar="CLASS", help="spot for Nodes that may be preempted.")
@output_options()
@click.pass_obj
def create(
    settings: Settings,
    /,
    what: tuple[str, ...],
    files: Files,
    output: Output,
    **flags: str | int | None,
) -> int:
    """Create NodePools that do not exist yet, from manifests or from flags.

    nodepool create nodepool NAME --instance-type TYPE --target N

    With --dry-run=client -o yaml it prints a manifest, and needs no server.
    """
    commands, places = _build_commands(
        parse_names(what, (NODEPOOL,))[1] if what else [], files, flags
    )
    if output.dry_run is DryRun.CLIENT and not output.format.is_table:
        _print_manifests(commands, output)
        return DONE

    async def work(client: "Client") -> int:
        how = Reporting(change_line, output, places)
        code, _ = await send(
            client, [client.nodepools.address_manifest(each) for each in commands], how
        )
        return code

    return settings.run(work)


@click.command(cls=Command)
@files_options(FILES_HELP, required=True)
@output_options()
@click.pass_obj
def replace(settings: Settings, files: Files, output: Output) -> int:
    """Change the NodePools in manifests; one that does not exist is an error.

    With metadata.resourceVersion in a manifest, its NodePool must not have changed since.
    """
    manifests = files.manifests()

    async def work(client: "Client") -> int:
        from nodepool.client import NotFound

        commands, places, code = [], [], DONE
        for manifest, place in zip(manifests, _places(manifests), strict=True):
            try:
                commands.append(await _existing(client, manifest))
                places.append(place)
            except NotFound as error:
                code = report(error, manifest.place)
        how = Reporting(lambda name, _: change_line(name, "replaced"), output, places)
        return (await send(client, commands, how))[0] or code

    return settings.run(work)


def _places(manifests: "Sequence[Manifest]") -> list[str]:
    return [f"{manifest.place}: " for manifest in manifests]


def _build_commands(
    names: "Sequence[str]", files: Files, flags: "Mapping[str, object]"
) -> "tuple[list[ApplyNodePool], list[str]]":
    """Return the commands that create the NodePools, and where each command is written."""
    given = [f"--{name.replace('_', '-')}" for name, value in flags.items() if value is not None]
    if files.names:
        if names or given:
            raise click.UsageError(f"-f: cannot be combined with {' and '.join([*names, *given])}")
        manifests = files.manifests()
        commands = [manifest.command for manifest in manifests]
        return [only_new(command) for command in commands], _places(manifests)
    if len(names) != 1:
        raise click.UsageError("NAME: write either nodepool and one NAME, or -f FILE")
    target = "target" if flags["racks"] is None else "racks"
    for flag in ("instance_type", target):
        if flags[flag] is None:
            raise click.UsageError(f"--{flag.replace('_', '-')}: is required")
    spec: dict[str, object] = {"instanceType": flags["instance_type"]}
    for flag, field in (("target", "targetNodes"), ("racks", "targetRacks")):
        if flags[flag] is not None:
            spec[field] = flags[flag]
    if flags["compute_class"] is not None:
        spec["computeClass"] = flags["compute_class"]
    return [new_pool(names[0], spec)], [""]


async def _existing(client: "Client", manifest: "Manifest") -> "ApplyNodePool":
    """Return the command for a manifest, refused unless the current NodePool still exists.

    Raises `NotFound` if the NodePool does not exist.
    """
    command = client.nodepools.address_manifest(manifest)
    metadata = command.metadata
    uid = metadata.uid or (await client.nodepools.read_stored(metadata.name)).uid
    return command.model_copy(update={"metadata": metadata.model_copy(update={"uid": uid})})


def _print_manifests(commands: "Sequence[ApplyNodePool]", output: Output) -> None:
    from nodepool.client.manifests import desired_document

    for command in commands:
        output.print_line(f"{NODEPOOL.full}/{command.metadata.name}", "")
    output.print_objects([desired_document(command) for command in commands])
