"""The NodePool objects that result from commands, each with the verdict on it."""

from collections.abc import Mapping
from uuid import UUID, uuid5

from nodepool.contract.commands import ApplyNodePool
from nodepool.contract.conditions import Validated
from nodepool.contract.events import NodePoolAutoscaled, NodePoolValidated
from nodepool.contract.exceptions import NO_FAILURE, describe
from nodepool.contract.messages import path_fields
from nodepool.contract.model import NodePoolSpec
from nodepool.contract.scaling import scale_spec
from nodepool.service import Context
from validator.verdict import Verdict, verdict

UIDS = UUID("6f9c8f2e-5d0b-4b53-9a53-2f0e6a3f7a11")
"""The namespace of NodePool uids: version 5 (RFC 9562), so that a replay makes the same uids."""


def create_pool(command: ApplyNodePool, zone: str, context: Context) -> NodePoolValidated:
    """Return the NodePool that a manifest creates in a cluster of this zone."""
    spec = _with_target(command.spec, None)
    checked = _check_spec(spec, zone)
    return NodePoolValidated(
        **path_fields(command),
        uid=str(uuid5(UIDS, f"{command.key}@{context.position}")),
        zone=zone,
        generation=1,
        version=context.position,
        created=context.time,
        labels=command.metadata.labels,
        annotations=command.metadata.annotations,
        spec=spec,
        reason=checked.reason,
        fault=checked.fault,
        message=checked.message,
    )


def change_pool(
    stored: NodePoolValidated,
    spec: NodePoolSpec,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    context: Context,
) -> NodePoolValidated:
    """Return the stored NodePool with this spec and metadata; a new spec is a new generation."""
    spec = _with_target(spec, stored.spec)
    checked = _check_spec(spec, stored.zone)
    is_kept = spec.autoscaling and spec.target == stored.spec.target
    return NodePoolValidated(
        **path_fields(stored),
        uid=stored.uid,
        zone=stored.zone,
        generation=stored.generation + (spec != stored.spec),
        version=context.position,
        created=stored.created,
        labels=labels,
        annotations=annotations,
        spec=spec,
        reason=checked.reason,
        fault=checked.fault,
        message=checked.message,
        autoscaled=stored.autoscaled if is_kept else "",
    )


def _with_target(spec: NodePoolSpec, before: NodePoolSpec | None) -> NodePoolSpec:
    """Return the spec with a target; one that leaves it to the autoscaler keeps that of `before`.

    It stays within its bounds, and begins with the fewest Nodes.
    """
    if spec.target_nodes is not None or spec.target_racks is not None:
        return spec
    least, most = spec.min_nodes or 0, spec.max_nodes or 0
    target = least if before is None else max(least, min(before.target, most))
    return spec.model_copy(update={"target_nodes": target})


def autoscale_pool(
    stored: NodePoolValidated, event: NodePoolAutoscaled, context: Context
) -> NodePoolValidated:
    """Return the stored NodePool with the target that the autoscaler has set."""
    spec = scale_spec(stored.spec, event.target)
    after = change_pool(stored, spec, stored.labels, stored.annotations, context)
    return after.model_copy(update={"autoscaled": event.message})


def checked_again(stored: NodePoolValidated) -> NodePoolValidated:
    """Return the stored NodePool, which no command has changed, with a new verdict."""
    checked = _check_spec(stored.spec, stored.zone)
    return stored.model_copy(
        update={"reason": checked.reason, "fault": checked.fault, "message": checked.message}
    )


def is_same(before: NodePoolValidated, after: NodePoolValidated) -> bool:
    """Return whether two versions of a NodePool differ in nothing but the version."""
    return after.model_copy(update={"version": before.version}) == before


def _check_spec(spec: NodePoolSpec, zone: str) -> Verdict:
    try:
        return verdict(spec, zone)
    except NO_FAILURE:
        raise
    except Exception as error:  # Store the spec; its condition reports the failed check.
        message = f"internal error while validating: {describe(error)}"
        return Verdict(Validated.INTERNAL_ERROR, message)
