"""The result that a command would have, without sending it, and the resulting object."""

from typing import TYPE_CHECKING

from nodepool.cli.options import DryRun
from nodepool.client import Refused
from nodepool.client.manifests import desired_document, stored_document
from nodepool.client.names import find_name_refusal
from nodepool.contract import grammar
from nodepool.contract.commands import ApplyNodePool, ScaleNodePool
from nodepool.contract.documents import Document, field
from nodepool.contract.outcomes import build_acceptance
from nodepool.contract.scaling import scale_spec, unscalable

if TYPE_CHECKING:
    from nodepool.client import Client, Outcome
    from nodepool.contract.events import NodePoolValidated, Result
    from nodepool.contract.messages import Command


async def expected_outcome(client: "Client", command: "Command") -> "Outcome":
    """Return what `--dry-run=client` reports.

    It reads what is stored, and checks only the name, and that no rack is scaled in part.
    """
    name = command.path[2]
    refusal = find_name_refusal(command)
    if refusal is not None:
        return refusal
    stored = await client.nodepools.find_stored(name)
    if isinstance(command, ApplyNodePool):
        fault = grammar.pool_name(name)
        if fault is not None:
            return Refused("metadata.name", "Invalid", fault)
        return _compute_outcome(command, stored)
    if stored is None:
        return Refused("metadata.name", "NotFound", f"NodePool {name} does not exist")
    if not isinstance(command, ScaleNodePool):
        return build_acceptance(command, "deleted")
    part = unscalable(stored.spec, command.target_nodes)
    if part is not None:
        return Refused(part.field, part.reason, part.message)
    return build_acceptance(command, "configured")


def _compute_outcome(command: ApplyNodePool, stored: "NodePoolValidated | None") -> "Outcome":
    if stored is not None and command.create_only:
        message = f"NodePool {stored.pool} exists already"
        return Refused("metadata.name", "Conflict", message)
    result: Result = "configured"
    if stored is None:
        result = "created"
    elif _list_desired_parts(stored_document(stored)) == _list_desired_parts(
        desired_document(command)
    ):
        result = "unchanged"
    return build_acceptance(command, result)


def _list_desired_parts(document: Document) -> tuple[object, ...]:
    paths = (("metadata", "labels"), ("metadata", "annotations"), ("spec",))
    return tuple(field(document, *path) for path in paths)


async def resulting_document(client: "Client", command: "Command", dry_run: DryRun) -> Document:
    """Return the object after an accepted command; for a dry run, as it would be."""
    if dry_run is not DryRun.NONE and isinstance(command, ApplyNodePool):
        return desired_document(command)
    name = command.path[2]
    stored = await client.nodepools.read_stored(name)
    if dry_run is not DryRun.NONE and isinstance(command, ScaleNodePool):
        spec = scale_spec(stored.spec, command.target_nodes)
        stored = stored.model_copy(update={"spec": spec})
    document = dict(stored_document(stored))
    shown = await client.nodepools.get(name)
    # The read model may still show the status of an earlier NodePool with this name.
    if field(shown, "metadata", "uid") == stored.uid:
        document["status"] = field(shown, "status")
    return document
