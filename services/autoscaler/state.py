"""The state of the autoscaler: every NodePool, with its Nodes and the Pods that wait for more.

It holds NodePools that are not autoscaled as well, since any may be from the next moment on.
"""

from dataclasses import dataclass, replace
from typing import assert_never

from immutables import Map

from autoscaler import Hears, Says
from autoscaler.nodes import Node
from autoscaler.pool import Pool, Waiting, WaitingPod
from autoscaler.target import next_change
from nodepool.contract.conditions import Validated
from nodepool.contract.events import (
    AutoscalingFailed,
    ClusterRegistered,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodePoolDeleted,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    NodeActivityChanged,
    NodePoolAutoscaled,
    NodePoolDeleting,
    NodePoolValidated,
    NodeUpdated,
    PodChanged,
    PodsWaitingReported,
)
from nodepool.contract.keys import ClusterKey, PoolKey, cluster_key, cluster_of
from nodepool.contract.model import NodePhase, RemovalReason
from nodepool.service import Context
from nodepool.state.work import WithWork

NodeChanged = (
    CWNodeAssigned
    | CWNodeRegistered
    | CWNodeRegistrationFailed
    | NodeUpdated
    | NodeActivityChanged
    | CWNodeDeleted
)
"""What is said of a Node."""
COMING = (NodePhase.BOOTING, NodePhase.VERIFYING, NodePhase.REBOOTING)
"""The phases of a Node on its way into production, or back."""


@dataclass(frozen=True, slots=True)
class State(WithWork[PoolKey]):
    """The NodePools; the work queue holds each when another target will be right for it.

    agents: the clusters that an agent connects to Kubernetes; it reports which Pods wait there.
    """

    agents: Map[ClusterKey, bool] = Map()
    pools: Map[PoolKey, Pool] = Map()


def evolve(state: State, message: Hears | Says, context: Context) -> State:
    """The state after a message; one about a NodePool or a Node that is gone changes nothing."""
    match message:
        case NodePoolValidated():
            return _stored(state, _specified(state, message, context), context)
        case NodePoolDeleting(key=key, uid=uid):
            pool = state.pools.get(key)
            if pool is None or pool.uid != uid:
                return state
            return _stored(state, replace(pool, valid=False), context)
        case CWNodePoolDeleted(key=key, uid=uid):
            pool = state.pools.get(key)
            if pool is None or pool.uid != uid:
                return state
            return replace(state, pools=state.pools.delete(key), work=state.work.drop(key))
        case CWNodeAssigned() | CWNodeRegistered() | CWNodeRegistrationFailed():
            return _node_changed(state, message, context)
        case NodeUpdated() | NodeActivityChanged() | CWNodeDeleted():
            return _node_changed(state, message, context)
        case PodChanged():
            return _pod_changed(state, message, context)
        case PodsWaitingReported():
            return _pods_reported(state, message, context)
        case ClusterRegistered(org=org, cluster=name, kubernetes=True):
            return replace(state, agents=state.agents.set(cluster_key(org, name), True))
        case ClusterRegistered():
            return state
        case NodePoolAutoscaled(key=key):
            pool = replace(state.pools[key], proposed=True)
            return _stored(state, pool, context)
        case AutoscalingFailed(key=key):
            return _failed(state, key, context)
        case _:
            assert_never(message)


def _specified(state: State, event: NodePoolValidated, context: Context) -> Pool:
    """The NodePool as it is stored now, with who changed its target, and when."""
    valid = event.reason is Validated.VALID
    known = state.pools.get(event.key)
    if known is None or known.uid != event.uid:
        return Pool(event.key, event.uid, event.generation, event.spec, valid)
    before, after = known.spec.target, event.spec.target
    is_raised = after > before and event.autoscaled
    is_commanded = after != before and not event.autoscaled
    pool = replace(
        known,
        generation=event.generation,
        spec=event.spec,
        valid=valid,
        commanded=context.time if is_commanded else known.commanded,
        raised=context.time if is_raised else known.raised,
        proposed=known.proposed and known.generation == event.generation,
    )
    if cluster_of(event.key) in state.agents and not event.spec.autoscaling:
        # What waits is reported again once it is autoscaled again, and nobody says so meanwhile.
        return replace(pool, waiting=Waiting())
    return pool if event.spec.node_taints == known.spec.node_taints else pool.refitted()


def _node_changed(state: State, event: NodeChanged, context: Context) -> State:
    pool = state.pools.get(event.key)
    if pool is None:
        return state
    nodes, name = pool.nodes, event.node
    node = nodes.get(name, event.assignment)
    match event:
        case CWNodeAssigned():
            nodes = nodes.put(name, _new(event.assignment, NodePhase.BOOTING, context))
        case CWNodeRegistered():
            nodes = nodes.put(name, _new(event.assignment, event.phase, context))
        case _ if node is None:
            return state
        case NodeUpdated(removal=RemovalReason.SCALE_DOWN) if node.is_idle:
            nodes = nodes.removed(name, _updated(node, event, context))
        case NodeUpdated():
            nodes = nodes.put(name, _updated(node, event, context))
        case NodeActivityChanged(active=active):
            since = node.since if active == node.active else context.time
            nodes = nodes.put(name, replace(node, active=active, since=since))
        case CWNodeDeleted() | CWNodeRegistrationFailed():
            nodes = nodes.drop(name)
        case _:
            assert_never(event)
    return _stored(state, replace(pool, nodes=nodes), context)


def _new(assignment: int, phase: NodePhase, context: Context) -> Node:
    """A Node that begins its stay, or has just joined its cluster."""
    is_coming = phase in COMING
    return Node(assignment, context.time, held=not is_coming, coming=is_coming)


def _updated(node: Node, event: NodeUpdated, context: Context) -> Node:
    """The Node as it should look in its cluster; one that is back is idle from then on."""
    stays, is_coming = event.removal is None, event.phase in COMING
    held = stays and not is_coming
    since = node.since if held <= node.held else context.time
    usable = event.phase is NodePhase.PRODUCTION and not event.unschedulable
    return replace(node, held=held, coming=stays and is_coming, usable=usable, since=since)


def _pod_changed(state: State, event: PodChanged, context: Context) -> State:
    pool = state.pools.get(event.key)
    if pool is None or pool.uid != event.uid:
        return state
    is_simulated = cluster_of(event.key) not in state.agents
    if event.phase == "Pending" and event.spec is not None and is_simulated:
        pod = WaitingPod(event.number, event.spec, pool.fits(event.spec))
        waiting = pool.waiting.put(pod)
    else:
        waiting = pool.waiting.drop(event.name, event.number)
    if waiting is pool.waiting:
        return state
    return _stored(state, replace(pool, waiting=waiting), context)


def _pods_reported(state: State, event: PodsWaitingReported, context: Context) -> State:
    """The state after a report, which is believed of a cluster only that has an agent."""
    pool = state.pools.get(event.key)
    if pool is None or pool.uid != event.uid or cluster_of(event.key) not in state.agents:
        return state
    return _stored(state, pool.reported(event.waiting), context)


def _failed(state: State, key: PoolKey, context: Context) -> State:
    """The state with a NodePool due to be reconciled again, no sooner than it is to change."""
    pool = state.pools.get(key)
    due = next_change(pool) if pool is not None else None
    if due is None:
        return replace(state, work=state.work.drop(key))
    work = state.work.failed(key, context.time)
    if due > work.deadlines.moments[key]:
        work = work.put_at(key, due)
    return replace(state, work=work)


def _stored(state: State, pool: Pool, context: Context) -> State:
    """The state with this NodePool, due when another target will be right for it."""
    pool = pool.observed(context.time)
    due = next_change(pool)
    work = state.work.drop(pool.key) if due is None else state.work.put_at(pool.key, due)
    return replace(state, pools=state.pools.set(pool.key, pool), work=work)
