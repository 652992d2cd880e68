"""Decides what the validator publishes: the outcomes of commands and the resulting NodePools."""

from collections.abc import Generator, Iterator
from typing import assert_never

from nodepool.contract import events as on
from nodepool.contract.commands import (
    COMMANDS,
    ApplyNodePool,
    DeleteNodePool,
    RegisterCluster,
    ScaleNodePool,
)
from nodepool.contract.keys import PoolKey, cluster_key
from nodepool.contract.messages import Command, path_fields
from nodepool.contract.outcomes import CommandOutcome, build_acceptance, build_refusal
from nodepool.contract.rules import Refusal, find_fault, list_size_faults, malformed_cluster
from nodepool.contract.scaling import scale_spec, unscalable
from nodepool.service import Context, Failure, Reconciler, Service
from validator import Hears, Says
from validator.conflict import (
    apply_conflict,
    cluster_conflict,
    delete_conflict,
    scale_conflict,
    unknown_cluster,
    unknown_pool,
)
from validator.objects import autoscale_pool, change_pool, checked_again, create_pool, is_same
from validator.state import Cluster, Pool, State, evolve


def decide(
    state: State, message: Hears, context: Context
) -> Generator[Says | CommandOutcome, State, None]:
    """Yield the outcome of a command, the object it leads to, and the end of a deleted NodePool."""
    match message:
        case RegisterCluster():
            yield from _register(state, message)
        case ApplyNodePool():
            yield from _apply(state, message, context)
        case ScaleNodePool():
            yield from _scale(state, message, context)
        case DeleteNodePool():
            yield from _delete(state, message, context)
        case on.CWNodePoolNodesRemoved(key=key):
            yield from _end_deletion(state.pools.get(key))
        case on.NodePoolAutoscaled(key=key):
            pool = state.pools.get(key)
            if pool is not None:
                yield from _apply_autoscaling(pool, context)
        case _:
            assert_never(message)


def _register(state: State, command: RegisterCluster) -> Iterator[Says | CommandOutcome]:
    """Yield the outcome, and the cluster; a cluster that an agent has connected stays connected."""
    before = state.clusters.get(cluster_key(command.org, command.cluster))
    refusal = malformed_cluster(command) or cluster_conflict(command, before)
    if refusal is not None:
        yield _refuse_command(command, refusal)
        return
    after = _build_cluster(command, before)
    if after == before:
        yield build_acceptance(command, "unchanged")
    else:
        yield build_acceptance(command, "created" if before is None else "configured")
        yield on.ClusterRegistered(org=command.org, cluster=command.cluster, **after._asdict())


def _build_cluster(command: RegisterCluster, before: Cluster | None) -> Cluster:
    """Return a cluster after a registration."""
    uid, is_connected = command.kubernetes_uid, command.kubernetes
    if before is not None:
        uid, is_connected = uid or before.kubernetes_uid, is_connected or before.kubernetes
    return Cluster(command.zone, is_connected, uid)


def _apply(
    state: State, command: ApplyNodePool, context: Context
) -> Iterator[Says | CommandOutcome]:
    cluster = state.clusters.get(cluster_key(command.org, command.cluster))
    if cluster is None:
        yield _refuse_command(command, unknown_cluster(command))
        return
    pool = state.pools.get(command.key)
    refusal = find_fault(command) or apply_conflict(command, pool, context.position)
    if refusal is not None:
        yield _refuse_command(command, refusal)
    elif pool is None:
        yield from _create(command, create_pool(command, cluster.zone, context))
    else:
        metadata = command.metadata
        after = change_pool(
            pool.stored, command.spec, metadata.labels, metadata.annotations, context
        )
        yield from _change(command, pool.stored, after)


def _create(command: ApplyNodePool, after: on.NodePoolValidated) -> Iterator[Says | CommandOutcome]:
    yield build_acceptance(command, "created", after.generation, dry_run=command.dry_run)
    if command.dry_run:
        return
    message = f"NodePool {command.pool} is created"
    yield on.CWNodePoolCreated(**path_fields(command), message=message)
    yield after
    yield from _warning(after)


def _scale(
    state: State, command: ScaleNodePool, context: Context
) -> Iterator[Says | CommandOutcome]:
    pool = _existing(state, command)
    if isinstance(pool, Refusal):
        yield _refuse_command(command, pool)
        return
    stored = pool.stored
    spec = scale_spec(stored.spec, command.target_nodes)
    refusal = (
        scale_conflict(command, pool, context.position)
        or unscalable(stored.spec, command.target_nodes)
        or next(list_size_faults(spec), None)
    )
    if refusal is not None:
        yield _refuse_command(command, refusal)
        return
    after = change_pool(stored, spec, stored.labels, stored.annotations, context)
    yield from _change(command, stored, after)


def _change(
    command: ApplyNodePool | ScaleNodePool,
    before: on.NodePoolValidated,
    after: on.NodePoolValidated,
) -> Iterator[Says | CommandOutcome]:
    if is_same(before, after):
        yield build_acceptance(command, "unchanged", after.generation, dry_run=command.dry_run)
        return
    yield build_acceptance(command, "configured", after.generation, dry_run=command.dry_run)
    if command.dry_run:
        return
    yield after
    if after.message != before.message:
        yield from _warning(after)


def _delete(
    state: State, command: DeleteNodePool, context: Context
) -> Iterator[Says | CommandOutcome]:
    pool = _existing(state, command)
    if isinstance(pool, Refusal):
        yield _refuse_command(command, pool)
        return
    refusal = delete_conflict(command, pool, context.position)
    if refusal is not None:
        yield _refuse_command(command, refusal)
        return
    stored = pool.stored
    yield build_acceptance(command, "deleted", stored.generation, dry_run=command.dry_run)
    if pool.deleting is None and not command.dry_run:
        yield on.NodePoolDeleting(
            **path_fields(command),
            uid=stored.uid,
            generation=stored.generation,
            since=context.time,
        )


def _end_deletion(pool: Pool | None) -> Iterator[Says]:
    """Yield the end of a NodePool that is being deleted, once its last Node is gone."""
    if pool is not None and pool.emptied:
        message = f"NodePool {pool.stored.pool} is deleted"
        yield on.CWNodePoolDeleted(**path_fields(pool.stored), uid=pool.stored.uid, message=message)


def _apply_autoscaling(pool: Pool, context: Context) -> Iterator[Says]:
    """Yield the NodePool with the target of the autoscaler, if the target is not stored yet."""
    if pool.autoscaled is not None:
        after = autoscale_pool(pool.stored, pool.autoscaled, context)
        yield after
        if after.message != pool.stored.message:
            yield from _warning(after)


def reconcile(state: State, key: PoolKey, context: Context) -> Generator[Says, State, None]:
    """Yield the end of a deletion, a target that is not stored yet, or a missing verdict."""
    pool = state.pools.get(key)
    yield from _end_deletion(pool)
    if pool is None:
        return
    if pool.autoscaled is not None:
        yield from _apply_autoscaling(pool, context)
    elif pool.is_unchecked:
        after = checked_again(pool.stored)
        yield after
        yield from _warning(after)


def on_failure(state: State, failure: Failure) -> Iterator[Says]:
    """Yield that a step of a NodePool failed, and is tried again later."""
    key = PoolKey(failure.key) if failure.key else failure.pool
    pool = state.pools.get(key) if key is not None else None
    if pool is not None and (pool.emptied or pool.is_unchecked or pool.autoscaled):
        text = f"internal error while updating the NodePool: {failure.cause}"
        yield on.NodePoolUpdateFailed(**path_fields(pool.stored), message=text)


def _existing(state: State, command: ScaleNodePool | DeleteNodePool) -> Pool | Refusal:
    if cluster_key(command.org, command.cluster) not in state.clusters:
        return unknown_cluster(command)
    return state.pools.get(command.key) or unknown_pool(command)


def _warning(event: on.NodePoolValidated) -> Iterator[Says]:
    if event.fault == "InstanceType":
        yield on.CWInvalidInstanceType(**path_fields(event), message=event.message)
    if event.fault == "Zone":
        yield on.CWInstanceTypeNotInZone(**path_fields(event), message=event.message)


def _refuse_command(command: Command, refusal: Refusal) -> on.CommandRefused:
    return build_refusal(command, refusal.field, refusal.message, refusal.reason)


SERVICE: Service[State, Hears, Says] = Service(
    name="validator",
    hears=Hears,
    says=Says,
    initial=State(),
    evolve=evolve,
    decide=decide,
    reconciler=Reconciler(reconcile),
    on_failure=on_failure,
    commands=COMMANDS,
)
