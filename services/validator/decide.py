"""Keeps the NodePool objects: takes or refuses what is asked of them, and judges what is stored."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID, uuid5

from immutables import Map

from nodepool.contract import grammar
from nodepool.contract.catalog import ZONES
from nodepool.contract.commands import (
    COMMANDS,
    ApplyNodePool,
    DeleteNodePool,
    RegisterCluster,
    ScaleNodePool,
)
from nodepool.contract.conditions import Validated
from nodepool.contract.events import (
    ClusterRegistered,
    CommandAccepted,
    CommandRefused,
    CWInstanceTypeNotInZone,
    CWInvalidInstanceType,
    CWNodePoolCreated,
    CWNodePoolDeleted,
    CWNodePoolNodesRemoved,
    NodePoolDeleting,
    NodePoolValidated,
)
from nodepool.contract.keys import FLEET
from nodepool.contract.messages import Message, path_fields
from nodepool.contract.model import NodePoolSpec, RemovalReason
from nodepool.service import Context, Failure, Service, describe, refused
from nodepool.state.receipts import Receipts, Result
from validator.rules import Refusal, Verdict, immutable, malformed, sized, verdict

PoolCommand = ApplyNodePool | ScaleNodePool | DeleteNodePool
Hears = RegisterCluster | PoolCommand | CWNodePoolNodesRemoved
Says = (
    CommandAccepted
    | CommandRefused
    | ClusterRegistered
    | NodePoolValidated
    | NodePoolDeleting
    | CWNodePoolCreated
    | CWNodePoolDeleted
    | CWInvalidInstanceType
    | CWInstanceTypeNotInZone
)

VERSION_DIGITS = 20
"""As many as a stream's sequence may have."""
UIDS = UUID("6f9c8f2e-5d0b-4b53-9a53-2f0e6a3f7a11")


@dataclass(frozen=True, slots=True)
class Pool:
    """A NodePool as it was last wished, and whether it is on its way out."""

    stored: NodePoolValidated
    deleting: datetime | None = None


@dataclass(frozen=True, slots=True)
class State:
    """Clusters by `org/cluster` with their zone, NodePools by key, accepted commands."""

    clusters: Map[str, str] = Map()
    pools: Map[str, Pool] = Map()
    receipts: Receipts = Receipts()


def evolve(state: State, message: Message, now: Context) -> State:
    """Folds what was said of clusters, NodePools and commands; the commands themselves do not."""
    match message:
        case ClusterRegistered(org=org, cluster=cluster, zone=zone):
            return replace(state, clusters=state.clusters.set(f"{org}/{cluster}", zone))
        case NodePoolValidated(key=key):
            return replace(state, pools=state.pools.set(key, Pool(message)))
        case NodePoolDeleting(key=key, since=since):
            pool = replace(state.pools[key], deleting=since)
            return replace(state, pools=state.pools.set(key, pool))
        case CWNodePoolDeleted(key=key) if key in state.pools:
            return replace(state, pools=state.pools.delete(key))
        case CommandAccepted() | CommandRefused():
            return replace(state, receipts=state.receipts.put(now.id, message))
    return state


def decide(state: State, message: Message, now: Context) -> Iterator[Says]:
    """The outcome of a command, and the verdict on what it stored."""
    match message:
        case CWNodePoolNodesRemoved(removal=RemovalReason.POOL_DELETED):
            yield from _gone(state, message)
        case RegisterCluster() | ApplyNodePool() | ScaleNodePool() | DeleteNodePool():
            outcome = state.receipts.again(message, now.id)
            if outcome is not None:
                yield outcome
            elif isinstance(message, RegisterCluster):
                yield from _register(state, message)
            else:
                yield from _ask(state, message, now)


def _gone(state: State, message: CWNodePoolNodesRemoved) -> Iterator[Says]:
    pool = state.pools.get(message.key)
    if pool is not None and pool.deleting is not None and pool.stored.uid == message.uid:
        told = f"NodePool {message.pool} is deleted"
        yield CWNodePoolDeleted(**path_fields(message), uid=message.uid, message=told)


def _register(state: State, message: RegisterCluster) -> Iterator[Says]:
    known = state.clusters.get(f"{message.org}/{message.cluster}")
    if message.zone not in ZONES:
        yield _refused(message, Refusal("zone", f"{message.zone} is not a known zone"))
    elif message.org == FLEET:
        yield _refused(message, Refusal("org", f"{FLEET} is a reserved word, not an organisation"))
    elif reason := grammar.dns1123_label(message.org):
        yield _refused(message, Refusal("org", reason))
    elif reason := grammar.dns1123_label(message.cluster):
        yield _refused(message, Refusal("cluster", reason))
    elif known is None:
        yield _accepted(message, "created")
        yield ClusterRegistered(org=message.org, cluster=message.cluster, zone=message.zone)
    elif known == message.zone:
        yield _accepted(message, "unchanged")
    else:
        told = f"the cluster lies in {known} and cannot move"
        yield _refused(message, Refusal("zone", told, "Conflict"))


def _ask(state: State, message: PoolCommand, now: Context) -> Iterator[Says]:
    pool = state.pools.get(message.key)
    zone = state.clusters.get(f"{message.org}/{message.cluster}")
    refusal = _refusal(message, pool, zone)
    if refusal is not None:
        yield _refused(message, refusal)
        return
    assert zone is not None, f"{message.key} has no zone"
    match message:
        case ApplyNodePool():
            yield from _apply(message, pool, zone, now)
        case ScaleNodePool():
            assert pool is not None, f"{message.key} is not stored"
            yield from _scale(message, pool, now)
        case DeleteNodePool():
            assert pool is not None, f"{message.key} is not stored"
            yield from _delete(message, pool, now)


def _refusal(message: PoolCommand, pool: Pool | None, zone: str | None) -> Refusal | None:
    if zone is None:
        told = f"{message.org}/{message.cluster} is not a known cluster; register it first"
        return Refusal("cluster", told, "NotFound")
    if isinstance(message, ApplyNodePool):
        fault = malformed(message)
        if fault is not None or pool is None:
            return fault or _of_another(message)
        return _conflict(message, pool) or immutable(pool.stored.spec, message.spec)
    if pool is None:
        return Refusal("metadata.name", f"NodePool {message.pool} does not exist", "NotFound")
    return _conflict(message, pool)


def _of_another(message: ApplyNodePool) -> Refusal | None:
    """A manifest that was read of a NodePool which is not there any more."""
    metadata = message.metadata
    for field, value in (("resourceVersion", metadata.resource_version), ("uid", metadata.uid)):
        if value is not None:
            told = f"NodePool {message.pool} does not exist; leave {field} out to create it"
            return Refusal(f"metadata.{field}", told, "NotFound")
    return None


def _conflict(message: PoolCommand, pool: Pool) -> Refusal | None:
    """A change meant for another state of the object than the one stored."""
    if isinstance(message, ApplyNodePool):
        version, uid = message.metadata.resource_version, message.metadata.uid
        seen = message.metadata.generation
        field = "metadata.resourceVersion"
    else:
        version, uid, field = message.resource_version, None, "resourceVersion"
        seen = None
    if uid is not None and uid != pool.stored.uid:
        told = f"is of another NodePool; this one has uid {pool.stored.uid}"
        return Refusal("metadata.uid", told, "Conflict")
    if version is not None and not (version.isdecimal() and len(version) <= VERSION_DIGITS):
        return Refusal(field, "must be a resourceVersion as it was read")
    # A status that changed while a wish was on its way makes the version new and not the wish.
    unseen = seen is not None and seen < pool.stored.generation
    if version is not None and (unseen or int(version) < pool.stored.version):
        told = f"{version} is stale: the NodePool was changed since; read it again"
        return Refusal(field, told, "Conflict")
    if pool.deleting is not None and not isinstance(message, DeleteNodePool):
        told = f"NodePool {message.pool} is being deleted; wait until it is gone"
        return Refusal("metadata.name", told, "Conflict")
    return None


def _apply(message: ApplyNodePool, pool: Pool | None, zone: str, now: Context) -> Iterator[Says]:
    if pool is None:
        wish = _judged(message, message.spec, zone, now, None)
        yield _accepted(message, "created", wish.generation, dry_run=message.dry_run)
        if not message.dry_run:
            told = f"NodePool {message.pool} is created"
            yield CWNodePoolCreated(**path_fields(message), message=told)
            yield wish
            yield from _complaint(wish)
        return
    wish = _judged(message, message.spec, zone, now, pool.stored)
    yield from _change(message, pool, wish)


def _scale(message: ScaleNodePool, pool: Pool, now: Context) -> Iterator[Says]:
    stored = pool.stored
    spec = stored.spec.model_copy(update={"target_nodes": message.target_nodes})
    refusal = next(sized(spec), None)
    if refusal is not None:
        yield _refused(message, refusal)
        return
    yield from _change(message, pool, _judged(message, spec, stored.zone, now, stored))


def _change(
    message: ApplyNodePool | ScaleNodePool, pool: Pool, wish: NodePoolValidated
) -> Iterator[Says]:
    stored = pool.stored
    same = wish.model_copy(update={"version": stored.version}) == stored
    result: Result = "unchanged" if same else "configured"
    yield _accepted(message, result, wish.generation, dry_run=message.dry_run)
    if same or message.dry_run:
        return
    yield wish
    if wish.message != stored.message:
        yield from _complaint(wish)


def _judged(
    message: ApplyNodePool | ScaleNodePool,
    spec: NodePoolSpec,
    zone: str,
    now: Context,
    stored: NodePoolValidated | None,
) -> NodePoolValidated:
    found = _verdict(spec, zone)
    metadata = message.metadata if isinstance(message, ApplyNodePool) else stored
    assert metadata is not None, f"{message.key} is not stored"
    same = stored is not None and stored.spec == spec
    generation = stored.generation + (not same) if stored is not None else 1
    return NodePoolValidated(
        **path_fields(message),
        uid=stored.uid if stored else str(uuid5(UIDS, f"{message.key}@{now.position}")),
        zone=zone,
        generation=generation,
        version=now.position,
        created=stored.created if stored else now.time,
        labels=metadata.labels,
        annotations=metadata.annotations,
        spec=spec,
        reason=found.reason,
        fault=found.fault,
        message=found.message,
    )


def _verdict(spec: NodePoolSpec, zone: str) -> Verdict:
    try:
        return verdict(spec, zone)
    except Exception as mistake:  # The wish is kept; its condition says that we failed to judge it.
        told = f"internal error while validating: {describe(mistake)}"
        return Verdict(Validated.INTERNAL_ERROR, told)


def _complaint(wish: NodePoolValidated) -> Iterator[Says]:
    if wish.fault == "InstanceType":
        yield CWInvalidInstanceType(**path_fields(wish), message=wish.message)
    if wish.fault == "Zone":
        yield CWInstanceTypeNotInZone(**path_fields(wish), message=wish.message)


def _delete(message: DeleteNodePool, pool: Pool, now: Context) -> Iterator[Says]:
    stored = pool.stored
    yield _accepted(message, "deleted", stored.generation, dry_run=message.dry_run)
    if pool.deleting is None and not message.dry_run:
        yield NodePoolDeleting(
            **path_fields(message), uid=stored.uid, generation=stored.generation, since=now.time
        )


def _accepted(
    message: RegisterCluster | PoolCommand,
    result: Result,
    generation: int | None = None,
    *,
    dry_run: bool = False,
) -> CommandAccepted:
    return CommandAccepted(
        **path_fields(message),
        command=type(message).__name__,
        result=result,
        generation=generation,
        dry_run=dry_run,
    )


def _refused(message: RegisterCluster | PoolCommand, refusal: Refusal) -> CommandRefused:
    return CommandRefused(
        **path_fields(message),
        command=type(message).__name__,
        reason=refusal.reason,
        field=refusal.field,
        message=refusal.message,
    )


def on_failure(failure: Failure) -> Iterable[Says]:
    """A command that cannot be taken is refused; of anything else there is nothing to say."""
    if failure.is_command:
        yield refused(failure)


SERVICE = Service(
    name="validator",
    hears=Hears,
    says=Says,
    initial=State(),
    evolve=evolve,
    decide=decide,
    on_failure=on_failure,
    commands=COMMANDS,
)
