"""Checks a command against the stored object: its existence, its version and its fixed fields."""

from nodepool.contract.commands import (
    ApplyNodePool,
    DeleteNodePool,
    RegisterCluster,
    ScaleNodePool,
)
from nodepool.contract.model import ManifestMetadata, NodePoolSpec
from nodepool.contract.rules import Refusal
from validator.state import Cluster, Pool

VERSION_DIGITS_MAX = 20
"""The most digits of a resourceVersion: a sequence number of the stream, which fits in 64 bits."""


def cluster_conflict(command: RegisterCluster, before: Cluster | None) -> Refusal | None:
    """Return why a cluster cannot be registered that is registered already as `before`."""
    if before is None:
        return _nothing_replaced(command) if command.replaces else None
    if before.zone != command.zone:
        return Refusal("zone", f"the cluster lies in {before.zone} and cannot move", "Conflict")
    is_same = before.kubernetes_uid in ("", command.replaces, command.kubernetes_uid)
    if is_same or not command.kubernetes:
        return None
    return _other_kubernetes(command, before)


def _nothing_replaced(command: RegisterCluster) -> Refusal:
    message = f"there is no cluster {command.org}/{command.cluster} yet: leave it out"
    return Refusal("replaces", message, "Conflict")


def _other_kubernetes(command: RegisterCluster, before: Cluster) -> Refusal:
    registered = (
        f"{command.org}/{command.cluster} is the Kubernetes cluster whose namespace kube-system has"
        f" the uid {before.kubernetes_uid}"
    )
    if not command.kubernetes_uid:
        message = f"{registered}; an agent that may not get that namespace cannot register it"
        return Refusal("kubernetesUid", message, "Conflict")
    message = (
        f"{registered}, and here it is {command.kubernetes_uid}: give this one a name of its own;"
        " or, if the other one is gone for good: nodepool register cluster"
        f" {command.cluster} --zone {command.zone} --kubernetes-uid {command.kubernetes_uid}"
        f" --replaces {before.kubernetes_uid} --org {command.org}"
    )
    return Refusal("kubernetesUid", message, "Conflict")


def unknown_cluster(command: ApplyNodePool | ScaleNodePool | DeleteNodePool) -> Refusal:
    """Return why a command about a NodePool of a cluster that was never registered is refused."""
    message = f"{command.org}/{command.cluster} is not a known cluster; register it first"
    return Refusal("cluster", message, "NotFound")


def unknown_pool(command: ScaleNodePool | DeleteNodePool) -> Refusal:
    """Return why a command to a NodePool that does not exist is refused."""
    return Refusal("metadata.name", f"NodePool {command.pool} does not exist", "NotFound")


def apply_conflict(command: ApplyNodePool, pool: Pool | None, position: int) -> Refusal | None:
    """Return why a manifest cannot be stored, given the NodePool of its name; None where it can.

    `position` is where the command itself lies in the log, in this function and those below.
    """
    metadata = command.metadata
    if pool is None:
        return _not_found(metadata, command.pool)
    if command.create_only:
        return Refusal("metadata.name", f"NodePool {command.pool} exists already", "Conflict")
    version, generation = metadata.resource_version, metadata.generation
    return (
        _another("metadata.uid", metadata.uid, pool)
        or _refuse_stale("metadata.resourceVersion", version, pool, position, generation)
        or _being_deleted(pool)
        or immutable(pool.stored.spec, command.spec)
    )


def scale_conflict(command: ScaleNodePool, pool: Pool, position: int) -> Refusal | None:
    """Return why a NodePool cannot be scaled; None where it can."""
    version = command.resource_version
    return _refuse_stale("resourceVersion", version, pool, position) or _being_deleted(pool)


def delete_conflict(command: DeleteNodePool, pool: Pool, position: int) -> Refusal | None:
    """Return why a NodePool cannot be deleted; None where it can, or where it is being deleted."""
    version = command.resource_version
    return _another("uid", command.uid, pool) or _refuse_stale(
        "resourceVersion", version, pool, position
    )


def immutable(before: NodePoolSpec, after: NodePoolSpec) -> Refusal | None:
    """Return the first change of a field that may never change once a NodePool exists."""
    if before.instance_type != after.instance_type:
        return Refusal("spec.instanceType", "InstanceType cannot be changed")
    if before.compute_class is not after.compute_class:
        return Refusal("spec.computeClass", "ComputeClass cannot be changed")
    return None


def _not_found(metadata: ManifestMetadata, pool: str) -> Refusal | None:
    """Return why a manifest of a NodePool that no longer exists creates no new NodePool."""
    for field, value in (("resourceVersion", metadata.resource_version), ("uid", metadata.uid)):
        if value is not None:
            message = f"NodePool {pool} does not exist; leave {field} out to create it"
            return Refusal(f"metadata.{field}", message, "NotFound")
    return None


def _another(field: str, uid: str | None, pool: Pool) -> Refusal | None:
    if uid is None or uid == pool.stored.uid:
        return None
    message = f"is of another NodePool; this one has uid {pool.stored.uid}"
    return Refusal(field, message, "Conflict")


def _refuse_stale(
    field: str, version: str | None, pool: Pool, position: int, generation: int | None = None
) -> Refusal | None:
    """Refuse a change that was made from another version than the stored one.

    Versions are positions in the log, so none that was read can lie behind the command itself.
    """
    if version is None:
        return None
    is_version = version.isdecimal() and len(version) <= VERSION_DIGITS_MAX
    if not is_version or int(version) >= position:
        return Refusal(field, "must be a resourceVersion as it was read")
    # A new status also gives the object a new version. So an object whose version is new enough
    # may still have an older spec. The generation changes only with the spec.
    older_spec = generation is not None and generation < pool.stored.generation
    if older_spec or int(version) < pool.stored.version:
        message = f"{version} is stale: the NodePool was changed since; read it again"
        return Refusal(field, message, "Conflict")
    return None


def _being_deleted(pool: Pool) -> Refusal | None:
    if pool.deleting is None:
        return None
    message = f"NodePool {pool.stored.pool} is being deleted; wait until it is gone"
    return Refusal("metadata.name", message, "Conflict")
