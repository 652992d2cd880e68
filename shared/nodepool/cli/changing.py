"""Changing part of a NodePool: read, changed, and stored unless another change came between."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from nodepool.cli.dry_runs import expected_outcome, resulting_document
from nodepool.cli.errors import DONE, CliError, report
from nodepool.cli.names import NODEPOOL
from nodepool.cli.options import DryRun, Output
from nodepool.cli.sending import change_line
from nodepool.cli.verdicts import warn
from nodepool.client import ClientError, NotFound, Refused
from nodepool.client.manifests import ManifestError, parse_manifest
from nodepool.client.stored import stored_document
from nodepool.contract.events import CommandAccepted

if TYPE_CHECKING:
    from nodepool.cli.documents import Document
    from nodepool.client import Client
    from nodepool.contract.commands import ApplyNodePool

ATTEMPTS = 5
"""How often a change is made anew because another one came first."""

Revise = Callable[["Document"], "Document"]
"""Makes the changed object from the stored one; raises `CliError` where it cannot be changed so."""


async def change(
    client: "Client", pool: str, revise: Revise, dry_run: DryRun
) -> "tuple[ApplyNodePool, CommandAccepted]":
    """Changes a NodePool, from its newest version on; returns what was stored and the outcome.

    Raises the `Refused` of a change that is not possible, or `NotFound`.
    """
    for attempt in range(ATTEMPTS):
        before = await client.stored(pool)
        command = revised(stored_document(before), revise)
        try:
            return command, await _sent(client, client.addressed(command), dry_run)
        except Refused as refusal:
            is_own_version = command.metadata.resource_version != str(before.version)
            if refusal.reason != "Conflict" or is_own_version or attempt == ATTEMPTS - 1:
                raise
            if (await client.stored(pool)).version == before.version:
                raise
    raise AssertionError("the last attempt returns or raises")


def revised(document: "Document", revise: Revise) -> "ApplyNodePool":
    """The command that stores the changed object, if nothing else has changed meanwhile."""
    name = str(_metadata(document).get("name"))
    command = parse_manifest(revise(document), f'nodepool "{name}"')
    if command.metadata.name != name:
        raise CliError("metadata.name: cannot be changed")
    return command


async def _sent(client: "Client", command: "ApplyNodePool", dry_run: DryRun) -> CommandAccepted:
    if dry_run is not DryRun.CLIENT:
        return await client.send(command.model_copy(update={"dry_run": dry_run is DryRun.SERVER}))
    outcome = await expected_outcome(client, command)
    if isinstance(outcome, CommandAccepted):
        return outcome
    raise outcome


Verb = Callable[[str, str], str]
"""What the report says of a changed NodePool, from its name and the result."""


async def change_each(
    client: "Client", pools: Sequence[str], revise: Revise, verb: Verb, output: Output
) -> int:
    """Changes NodePools one after the other and reports each; returns the exit code."""
    code, printed = DONE, []
    for pool in pools:
        try:
            printed += await _changed(client, pool, revise, verb, output)
        except (ClientError, CliError, ManifestError) as error:
            names_it = isinstance(error, ManifestError | NotFound)
            code = report(error, "" if names_it else f'nodepool "{pool}"')
    output.print_objects(printed)
    return code


async def change_one(
    client: "Client", pool: str, revise: Revise, verb: Verb, output: Output
) -> int:
    """Changes one NodePool and reports it; raises the error of a change that is not possible."""
    output.print_objects(await _changed(client, pool, revise, verb, output))
    return DONE


async def _changed(
    client: "Client", pool: str, revise: Revise, verb: Verb, output: Output
) -> "list[Document]":
    """Changes a NodePool and prints the report; returns the object where that is to be printed."""
    command, outcome = await change(client, pool, revise, output.dry_run)
    output.print_line(f"{NODEPOOL.full}/{pool}", change_line(pool, verb(pool, outcome.result)))
    if output.dry_run is DryRun.NONE:
        warn(await client.stored(pool))
    if output.shows_objects:
        return [await resulting_document(client, client.addressed(command), output.dry_run)]
    return []


def _metadata(document: "Document") -> "Document":
    metadata = document.get("metadata")
    assert isinstance(metadata, dict), "an object has metadata"
    return metadata
