"""Changing part of a NodePool: read it, change it, and store it if nobody else has changed it."""

from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

from nodepool.cli.dry_runs import expected_outcome, resulting_document
from nodepool.cli.errors import DONE, CliError, report
from nodepool.cli.in_order import in_order
from nodepool.cli.names import NODEPOOL
from nodepool.cli.options import DryRun, Output
from nodepool.cli.sending import change_line
from nodepool.cli.verdicts import warn
from nodepool.client import ClientError, NotFound, Refused
from nodepool.client.manifests import ManifestError, parse_manifest, stored_document
from nodepool.contract.events import CommandAccepted

if TYPE_CHECKING:
    from nodepool.client import Client
    from nodepool.contract.commands import ApplyNodePool
    from nodepool.contract.documents import Document
    from nodepool.contract.events import NodePoolValidated

ATTEMPTS = 5
"""How often a change is attempted if other changes are stored first."""

Revise = Callable[["Document"], "Document"]
"""Returns the changed object from the stored object; raises `CliError` if that is impossible."""


async def change(
    client: "Client", pool: str, revise: Revise, dry_run: DryRun
) -> "tuple[ApplyNodePool, CommandAccepted]":
    """Change the newest version of a NodePool; return the command and its outcome.

    Raises `Refused` if the change is not possible, or `NotFound`.
    """
    for attempt in range(ATTEMPTS):
        before = await client.nodepools.read_stored(pool)
        command = build_command(stored_document(before), revise)
        try:
            return command, await _send_command(
                client, client.nodepools.address_manifest(command), dry_run
            )
        except Refused as refusal:
            is_own_version = command.metadata.resource_version != str(before.version)
            if refusal.reason != "Conflict" or is_own_version or attempt == ATTEMPTS - 1:
                raise
            if (await client.nodepools.read_stored(pool)).version == before.version:
                raise
    raise AssertionError("the last attempt returns or raises")


def build_command(document: "Document", revise: Revise) -> "ApplyNodePool":
    """Return the command that stores the changed object if nothing else changed meanwhile."""
    name = str(_metadata(document).get("name"))
    command = parse_manifest(revise(document), f'nodepool "{name}"')
    if command.metadata.name != name:
        raise CliError("metadata.name: cannot be changed")
    return command


async def _send_command(
    client: "Client", command: "ApplyNodePool", dry_run: DryRun
) -> CommandAccepted:
    if dry_run is not DryRun.CLIENT:
        return await client.commands.send(
            command.model_copy(update={"dry_run": dry_run is DryRun.SERVER})
        )
    outcome = await expected_outcome(client, command)
    if isinstance(outcome, CommandAccepted):
        return outcome
    raise outcome


Verb = Callable[[str, str], str]
"""Returns the text of the report on a changed NodePool, from its name and the result."""


async def change_each(
    client: "Client", pools: Sequence[str], revise: Revise, verb: Verb, output: Output
) -> int:
    """Change NodePools, several at a time, and report each in order; return the exit code."""
    code = DONE
    printed: list[Document] = []

    async def revise_pool(pool: str) -> "Changed":
        return await _change_pool(client, pool, revise, output)

    async with aclosing(in_order(pools, revise_pool)) as changes:
        async for pool, finished in changes:
            try:
                printed += _report(pool, finished.result(), verb, output)
            except (ClientError, CliError, ManifestError) as error:
                names_it = isinstance(error, ManifestError | NotFound)
                code = report(error, "" if names_it else f'nodepool "{pool}"')
    output.print_objects(printed)
    return code


async def change_one(
    client: "Client", pool: str, revise: Revise, verb: Verb, output: Output
) -> int:
    """Change one NodePool and report it; raise the error of a change that is not possible."""
    changed = await _change_pool(client, pool, revise, output)
    output.print_objects(_report(pool, changed, verb, output))
    return DONE


class Changed(NamedTuple):
    """A change that was made, or only tried.

    result: the result that the control plane reports.
    stored: what is stored now; None if the change was only tried.
    documents: the object, if it is shown.
    """

    result: str
    stored: "NodePoolValidated | None"
    documents: "Sequence[Document]"


async def _change_pool(client: "Client", pool: str, revise: Revise, output: Output) -> Changed:
    command, outcome = await change(client, pool, revise, output.dry_run)
    stored = await client.nodepools.read_stored(pool) if output.dry_run is DryRun.NONE else None
    if not output.shows_objects:
        return Changed(outcome.result, stored, ())
    shown = await resulting_document(
        client, client.nodepools.address_manifest(command), output.dry_run
    )
    return Changed(outcome.result, stored, [shown])


def _report(pool: str, changed: Changed, verb: Verb, output: Output) -> "Sequence[Document]":
    """Print the report of a change; return the object if it is shown."""
    line = change_line(pool, verb(pool, changed.result))
    output.print_line(f"{NODEPOOL.full}/{pool}", line)
    if changed.stored is not None:
        warn(changed.stored)
    return changed.documents


def _metadata(document: "Document") -> "Document":
    metadata = document.get("metadata")
    assert isinstance(metadata, dict), "an object has metadata"
    return metadata
