"""The state of the validator service: the registered clusters and the stored NodePools."""

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, assert_never

from immutables import Map

from nodepool.contract import events as on
from nodepool.contract.commands import (
    ApplyNodePool,
    DeleteNodePool,
    RegisterCluster,
    ScaleNodePool,
)
from nodepool.contract.conditions import Validated
from nodepool.contract.keys import ClusterKey, PoolKey, cluster_key
from nodepool.contract.model import RemovalReason
from nodepool.contract.rules import list_size_faults
from nodepool.contract.scaling import scale_spec
from nodepool.service import Context
from nodepool.state.values import replace
from nodepool.state.work import WithWork
from validator import Hears, Says


class Cluster(NamedTuple):
    """A registered cluster.

    zone: its zone.
    kubernetes: whether an agent connects it to a Kubernetes cluster.
    kubernetes_uid: the uid of that Kubernetes cluster; empty if unknown.
    """

    zone: str
    kubernetes: bool = False
    kubernetes_uid: str = ""


@dataclass(frozen=True, slots=True)
class Pool:
    """A stored NodePool.

    stored: its spec and metadata, with the verdict on them, as published last.
    deleting: when its deletion began; None if it is not being deleted.
    emptied: whether its last Node is gone, so that its deletion can end.
    autoscaled: the target of the autoscaler that is not stored yet; None if there is none.
    """

    stored: on.NodePoolValidated
    deleting: datetime | None = None
    emptied: bool = False
    autoscaled: on.NodePoolAutoscaled | None = None

    @property
    def is_unchecked(self) -> bool:
        """Return whether its check failed, and it is not being deleted."""
        return self.deleting is None and self.stored.reason is Validated.INTERNAL_ERROR


@dataclass(frozen=True, slots=True)
class State(WithWork[PoolKey]):
    """Every registered cluster and every NodePool.

    The work queue holds the NodePools that are unchecked or not up to date.

    clusters: the clusters.
    pools: the NodePools, including NodePools that are being deleted.
    """

    clusters: Map[ClusterKey, Cluster] = Map()
    pools: Map[PoolKey, Pool] = Map()


def evolve(state: State, message: Hears | Says, context: Context) -> State:
    """Return the state after a message; a command changes nothing before its events do."""
    match message:
        case on.ClusterRegistered(org=org, cluster=cluster):
            item = Cluster(message.zone, message.kubernetes, message.kubernetes_uid)
            clusters = state.clusters.set(cluster_key(org, cluster), item)
            return replace(state, clusters=clusters)
        case on.NodePoolValidated():
            return _fold_spec(state, message, context)
        case on.NodePoolDeleting(key=key, since=since):
            pool = replace(state.pools[key], deleting=since, autoscaled=None)
            return replace(state, pools=state.pools.set(key, pool), work=state.work.drop(key))
        case on.CWNodePoolNodesRemoved():
            return _fold_removal(state, message)
        case on.NodePoolAutoscaled():
            return _fold_target(state, message)
        case on.NodePoolUpdateFailed(key=key):
            return replace(state, work=state.work.retry_later(key, context.time))
        case on.CWNodePoolDeleted(key=key):
            return replace(state, pools=state.pools.delete(key), work=state.work.drop(key))
        case (
            RegisterCluster()
            | ApplyNodePool()
            | ScaleNodePool()
            | DeleteNodePool()
            | on.CWNodePoolCreated()
            | on.CWInvalidInstanceType()
            | on.CWInstanceTypeNotInZone()
        ):
            return state
        case _:
            assert_never(message)


def _fold_spec(state: State, event: on.NodePoolValidated, context: Context) -> State:
    """Return the state with a NodePool as it is stored now, unless it is being deleted."""
    key, before = event.key, state.pools.get(event.key)
    pool, work = Pool(event), state.work
    work = work.retry_later(key, context.time) if pool.is_unchecked else work.clear_failures(key)
    autoscaled = before.autoscaled if before is not None else None
    # New metadata alone makes no new generation, so a target for this generation still holds.
    if autoscaled is not None and autoscaled.generation == event.generation:
        pool, work = replace(pool, autoscaled=autoscaled), work.put(key)
    return replace(state, pools=state.pools.set(key, pool), work=work)


def _fold_removal(state: State, event: on.CWNodePoolNodesRemoved) -> State:
    pool = state.pools.get(event.key)
    if event.removal is not RemovalReason.POOL_DELETED or pool is None:
        return state
    if pool.deleting is None or pool.stored.uid != event.uid:
        return state
    return replace(state, pools=state.pools.set(event.key, replace(pool, emptied=True)))


def _fold_target(state: State, event: on.NodePoolAutoscaled) -> State:
    """Return the state with a target for the NodePool as it is stored; ignore a late target."""
    pool = state.pools.get(event.key)
    if pool is None or pool.deleting is not None:
        return state
    stored = pool.stored
    if (event.uid, event.generation) != (stored.uid, stored.generation):
        return state
    spec = scale_spec(stored.spec, event.target)
    if (
        not spec.autoscaling
        or spec == stored.spec
        or next(list_size_faults(spec), None) is not None
    ):
        return state
    return replace(state, pools=state.pools.set(event.key, replace(pool, autoscaled=event)))
