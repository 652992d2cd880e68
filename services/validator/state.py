"""The state of the validator service: clusters, and NodePools as they are stored."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from immutables import Map

from nodepool.contract.commands import (
    ApplyNodePool,
    DeleteNodePool,
    RegisterCluster,
    ScaleNodePool,
)
from nodepool.contract.conditions import Validated
from nodepool.contract.events import (
    ClusterRegistered,
    CWInstanceTypeNotInZone,
    CWInvalidInstanceType,
    CWNodePoolCreated,
    CWNodePoolDeleted,
    CWNodePoolNodesRemoved,
    NodePoolDeleting,
    NodePoolUpdateFailed,
    NodePoolValidated,
)
from nodepool.contract.keys import ClusterKey, PoolKey, cluster_key
from nodepool.contract.model import RemovalReason
from nodepool.service import Context
from nodepool.state.work import WithWork
from validator import Hears, Says


@dataclass(frozen=True, slots=True)
class Pool:
    """A NodePool as it is stored.

    stored: its spec and metadata, with the verdict on them, as published last.
    deleting: since when it is being deleted; None while it is to stay.
    emptied: whether its last Nodes have gone, so that it can go itself.
    """

    stored: NodePoolValidated
    deleting: datetime | None = None
    emptied: bool = False

    @property
    def is_unchecked(self) -> bool:
        """Whether it stays and could not be checked."""
        return self.deleting is None and self.stored.reason is Validated.INTERNAL_ERROR


@dataclass(frozen=True, slots=True)
class State(WithWork[PoolKey]):
    """Every registered cluster and every NodePool.

    The work queue holds those that are unchecked, or could not be brought up to date.

    clusters: the zone of each cluster.
    pools: the NodePools, those that are being deleted included.
    """

    clusters: Map[ClusterKey, str] = Map()
    pools: Map[PoolKey, Pool] = Map()


def evolve(state: State, message: Hears | Says, context: Context) -> State:
    """The state after a message; commands change nothing before their events do."""
    match message:
        case ClusterRegistered(org=org, cluster=cluster, zone=zone):
            clusters = state.clusters.set(cluster_key(org, cluster), zone)
            return replace(state, clusters=clusters)
        case NodePoolValidated(key=key):
            # A NodePool that is being deleted takes no change, so this one is not.
            pool, work = Pool(message), state.work
            work = work.failed(key, context.time) if pool.is_unchecked else work.succeeded(key)
            return replace(state, pools=state.pools.set(key, pool), work=work)
        case NodePoolDeleting(key=key, since=since):
            pool = replace(state.pools[key], deleting=since)
            return replace(state, pools=state.pools.set(key, pool), work=state.work.drop(key))
        case CWNodePoolNodesRemoved():
            return _emptied(state, message)
        case NodePoolUpdateFailed(key=key):
            return replace(state, work=state.work.failed(key, context.time))
        case CWNodePoolDeleted(key=key):
            return replace(state, pools=state.pools.delete(key), work=state.work.drop(key))
        case (
            RegisterCluster()
            | ApplyNodePool()
            | ScaleNodePool()
            | DeleteNodePool()
            | CWNodePoolCreated()
            | CWInvalidInstanceType()
            | CWInstanceTypeNotInZone()
        ):
            return state
        case _:
            assert_never(message)


def _emptied(state: State, event: CWNodePoolNodesRemoved) -> State:
    pool = state.pools.get(event.key)
    if event.removal is not RemovalReason.POOL_DELETED or pool is None:
        return state
    if pool.deleting is None or pool.stored.uid != event.uid:
        return state
    return replace(state, pools=state.pools.set(event.key, replace(pool, emptied=True)))
