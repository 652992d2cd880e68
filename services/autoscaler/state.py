"""The state of the autoscaler: every NodePool, with its Nodes and the Pods that wait for more.

It also holds NodePools that are not autoscaled, because autoscaling may be turned on at any time.
"""

from dataclasses import dataclass
from typing import assert_never

from immutables import Map

from autoscaler import Hears, LimitChanged, NodeChanged, Says
from autoscaler.ledger import NONE, Ledger
from autoscaler.nodes import Node
from autoscaler.pool import Pool, Waiting, WaitingPod
from autoscaler.target import advice, next_change
from nodepool.contract import events as on
from nodepool.contract.conditions import Quota, Validated
from nodepool.contract.keys import (
    ClusterKey,
    LedgerKey,
    PoolKey,
    cluster_key,
    cluster_of,
    ledger_key,
)
from nodepool.contract.messages import OfNode
from nodepool.contract.model import NodePhase, RemovalReason
from nodepool.service import Context
from nodepool.state.values import replace
from nodepool.state.work import WithWork

COMING = (NodePhase.BOOTING, NodePhase.VERIFYING, NodePhase.REBOOTING)
"""The phases of a Node on its way into production, or back into production."""


@dataclass(frozen=True, slots=True)
class State(WithWork[LedgerKey | PoolKey]):
    """The NodePools; the work queue holds each NodePool when its right target will change.

    The queue also holds a limit with new room for NodePools that need more Nodes.

    ledgers: the limits.
    agents: the clusters that an agent connects to Kubernetes; the agent reports the waiting Pods.
    """

    agents: Map[ClusterKey, bool] = Map()
    pools: Map[PoolKey, Pool] = Map()
    ledgers: Map[LedgerKey, Ledger] = Map()

    def ledger(self, key: LedgerKey) -> Ledger:
        """Return the limit of this key."""
        return self.ledgers.get(key, NONE)


def evolve(state: State, message: Hears | Says, context: Context) -> State:
    """Return the state after a message; ignore a message about a NodePool or Node that is gone."""
    match message:
        case on.NodePoolValidated():
            return _store_pool(state, _specify_pool(state, message, context), context)
        case on.NodePoolDeleting(key=key, uid=uid):
            pool = state.pools.get(key)
            if pool is None or pool.uid != uid:
                return state
            return _store_pool(state, replace(pool, valid=False, asked=0), context)
        case on.CWNodePoolDeleted(key=key, uid=uid):
            pool = state.pools.get(key)
            if pool is None or pool.uid != uid:
                return state
            state = _ledger_of(state, replace(pool, asked=0, full_since=None), pool)
            return replace(state, pools=state.pools.delete(key), work=state.work.drop(key))
        case on.QuotaSet() | on.QuotaDeleted() | on.QuotaReleased() | on.QuotaChecked():
            return _limit_changed(state, message, context)
        case OfNode():
            return _node_changed(state, message, context)
        case on.PodChanged():
            return _pod_changed(state, message, context)
        case on.PodsWaitingReported():
            return _pods_reported(state, message, context)
        case on.ClusterRegistered(org=org, cluster=name, kubernetes=True):
            return replace(state, agents=state.agents.set(cluster_key(org, name), True))
        case on.ClusterRegistered():
            return state
        case on.NodePoolAutoscaled(key=key):
            pool = replace(state.pools[key], proposed=True, asked=message.target)
            return _store_pool(state, pool, context)
        case on.AutoscalingFailed(key=key):
            return _fold_failure(state, key, context)
        case _:
            assert_never(message)


def _specify_pool(state: State, event: on.NodePoolValidated, context: Context) -> Pool:
    """Return the NodePool as it is stored now, with who changed its target, and when."""
    valid = event.reason is Validated.VALID
    known = state.pools.get(event.key)
    if known is None or known.uid != event.uid:
        ledger = ledger_key(event.org, event.zone, event.spec.instance_type)
        return Pool(event.key, event.uid, event.generation, event.spec, valid, ledger=ledger)
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
        asked=known.asked if valid and event.autoscaled else 0,
        is_over=known.is_over and known.generation == event.generation,
        granted=0 if event.reason is Validated.INVALID else known.granted,
        beyond=0 if event.reason is Validated.INVALID else known.beyond,
    )
    is_reported = event.spec.autoscaling and event.reason is not Validated.INVALID
    if cluster_of(event.key) in state.agents and not is_reported:
        # The agent reports the waiting Pods again only when the NodePool can grow again.
        return replace(pool, waiting=Waiting())
    return pool if event.spec.node_taints == known.spec.node_taints else pool.refit()


def _node_changed(state: State, event: NodeChanged, context: Context) -> State:
    pool = state.pools.get(event.key)
    if pool is None:
        return state
    nodes, name = pool.nodes, event.node
    node = nodes.get(name, event.assignment)
    match event:
        case on.CWNodeAssigned():
            nodes = nodes.put(name, _new(event.assignment, NodePhase.BOOTING, context))
        case on.CWNodeRegistered():
            nodes = nodes.put(name, _new(event.assignment, event.phase, context))
        case _ if node is None:
            return state
        case on.NodeUpdated(removal=RemovalReason.SCALE_DOWN) if node.is_idle:
            nodes = nodes.begin_removal(name, _update_node(node, event, context))
        case on.NodeUpdated():
            nodes = nodes.put(name, _update_node(node, event, context))
        case on.NodeActivityChanged(active=active):
            since = node.since if active == node.active else context.time
            nodes = nodes.put(name, replace(node, active=active, since=since))
        case on.NodeReservationChanged(usable=usable):
            since = node.since if node.reserved is not usable else context.time
            nodes = nodes.put(name, replace(node, reserved=not usable, since=since))
        case on.CWNodeDeleted() | on.CWNodeRegistrationFailed():
            nodes = nodes.drop(name)
        case _:
            assert_never(event)
    return _store_pool(state, replace(pool, nodes=nodes), context)


def _new(assignment: int, phase: NodePhase, context: Context) -> Node:
    """Return a Node that begins its stay, or has just joined its cluster."""
    is_coming = phase in COMING
    return Node(assignment, context.time, held=not is_coming, coming=is_coming)


def _update_node(node: Node, event: on.NodeUpdated, context: Context) -> Node:
    """Return the Node as it looks in its cluster; a Node that is back is idle from then on.

    An unhealthy Node that waits for its Pods holds its place in the NodePool until it is replaced.
    """
    replaced = event.removal is RemovalReason.UNHEALTHY
    stays = replaced or event.removal is None
    is_coming = event.phase in COMING
    held = stays and not is_coming
    since = node.since if held <= node.held else context.time
    usable = event.phase is NodePhase.PRODUCTION and not event.unschedulable
    coming = stays and is_coming
    return replace(node, held=held, coming=coming, usable=usable, since=since, replaced=replaced)


def _pod_changed(state: State, event: on.PodChanged, context: Context) -> State:
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
    return _store_pool(state, replace(pool, waiting=waiting), context)


def _pods_reported(state: State, event: on.PodsWaitingReported, context: Context) -> State:
    """Return the state after a report, if it comes from an agent and is not out of date.

    An agent reports each generation that can grow, so a report of an older one is not needed.
    """
    pool = state.pools.get(event.key)
    if pool is None or pool.uid != event.uid or cluster_of(event.key) not in state.agents:
        return state
    if event.generation < pool.generation:
        return state
    return _store_pool(state, pool.replace_waiting(event.waiting), context)


def _fold_failure(state: State, key: PoolKey, context: Context) -> State:
    """Return the state with a NodePool due again, not before its next change."""
    pool = state.pools.get(key)
    due = next_change(pool) if pool is not None else None
    if due is None:
        return replace(state, work=state.work.drop(key))
    work = state.work.retry_later(key, context.time)
    if due > work.deadlines.moments[key]:
        work = work.put_at(key, due)
    return replace(state, work=work)


def _store_pool(state: State, pool: Pool, context: Context) -> State:
    """Return the state with this NodePool, due when another target becomes right.

    A NodePool that quota allows no Node more is due when there is more room under its limit.
    """
    before = state.pools.get(pool.key)
    pool = pool.update_moments(before, context.time)
    due = next_change(pool)
    state = _ledger_of(state, pool, before)
    if due is not None and due <= context.time:
        due = due if advice(pool, state.ledger(pool.ledger), context.time) else None
    work = state.work.drop(pool.key) if due is None else state.work.put_at(pool.key, due)
    return replace(state, pools=state.pools.set(pool.key, pool), work=work)


def _ledger_of(state: State, pool: Pool, before: Pool | None) -> State:
    """Return the state with the limit of a NodePool in step with what the NodePool needs."""
    if before is not None and before.uid != pool.uid:
        state, before = _ledger_of(state, replace(before, asked=0, full_since=None), before), None
    ledger = state.ledger(pool.ledger)
    is_full = pool.is_autoscaled and pool.full_since is not None
    asked = ledger.asked + pool.unjudged - (before.unjudged if before is not None else 0)
    after = ledger.with_full(pool.key, is_full=is_full)
    return _with_ledger(state, pool.ledger, replace(after, asked=asked))


def _with_ledger(state: State, key: LedgerKey, ledger: Ledger) -> State:
    """Return the state with this limit, due if it has more room for NodePools that need room."""
    before = state.ledger(key)
    if ledger == before:
        return state
    if ledger == NONE:
        return replace(state, ledgers=state.ledgers.delete(key), work=state.work.drop(key))
    work = state.work
    if ledger.left > before.left and len(ledger.full):
        work = work.put(key)
    return replace(state, ledgers=state.ledgers.set(key, ledger), work=work)


def _limit_changed(state: State, event: LimitChanged, context: Context) -> State:
    """Return the state after a change of a limit, of its use, or of a grant under it."""
    key = ledger_key(event.org, event.zone, event.instance_type)
    ledger = state.ledger(key)
    match event:
        case on.QuotaSet(limit=limit, granted=used):
            return _with_ledger(state, key, replace(ledger, limit=limit, used=used))
        case on.QuotaDeleted(granted=used):
            return _with_ledger(state, key, replace(ledger, limit=None, used=used))
        case on.QuotaReleased(used=used):
            return _with_ledger(state, key, replace(ledger, used=used))
        case on.QuotaChecked(limit=limit, used=used):
            state = _with_ledger(state, key, replace(ledger, limit=limit, used=used))
            return _fold_quota_verdict(state, event, context)
        case _:
            assert_never(event)


def _fold_quota_verdict(state: State, event: on.QuotaChecked, context: Context) -> State:
    """Return the state after quota has judged a NodePool."""
    pool = state.pools.get(event.key)
    if pool is None or pool.uid != event.uid:
        return state
    is_current = event.generation == pool.generation
    is_over = event.reason is not Quota.UNDER if is_current else pool.is_over
    asked = 0 if is_current and not pool.proposed else pool.asked
    after = replace(pool, granted=event.granted, beyond=event.beyond, is_over=is_over, asked=asked)
    return state if after == pool else _store_pool(state, after, context)
