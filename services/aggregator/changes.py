"""How each event changes the state of the aggregator, and the figures in that state."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from immutables import Map

from aggregator import (
    CordonChanged,
    NodeChanged,
    NodeLeft,
    QuotaCounted,
    nodes,
    pools,
    quotas,
)
from aggregator.departures import failure_at_the_end, problems_of, triage_cause
from aggregator.grants import NO_GRANTS, acknowledged, granted
from aggregator.invariants import LIMIT_PASSED, limit_passed
from aggregator.known import State
from aggregator.machine_changes import moved
from aggregator.objects import ClusterObject, NodePoolObject
from aggregator.pool_figures import PoolFigures
from aggregator.profile_changes import booted_again
from aggregator.profiles import profile_of
from aggregator.templates import counted, dropped
from nodepool.contract import events as on
from nodepool.contract.health import cordon_cause
from nodepool.contract.keys import (
    NodeKey,
    PoolKey,
    cluster_key,
    ledger_key,
    node_key,
)
from nodepool.contract.messages import OfPool
from nodepool.contract.metrics import NODE_JOIN
from nodepool.contract.node_failures import NodeFailure, cordon_label, failure_of
from nodepool.contract.observations import ConditionSeen
from nodepool.service import Context

E = TypeVar("E", bound=OfPool)
Pools = Map[PoolKey, NodePoolObject]
Busy = Map[PoolKey, Map[NodeKey, bool]]


def pool_changed(
    state: State,
    event: E,
    change: Callable[[NodePoolObject, E, Context], NodePoolObject],
    context: Context,
) -> State:
    """Return the state after a change of a NodePool; an unknown NodePool does not change."""
    pools_, figures = _changed_pools(state.pools, state.pool_figures, event, change, context)
    return state if pools_ is state.pools else replace(state, pools=pools_, pool_figures=figures)


def _changed_pools(
    known: Pools,
    figures: PoolFigures,
    event: E,
    change: Callable[[NodePoolObject, E, Context], NodePoolObject],
    context: Context,
) -> tuple[Pools, PoolFigures]:
    """Return the NodePools and figures after an event; the same objects if nothing changed."""
    before = known.get(event.key)
    if before is None:
        return known, figures
    after = change(before, event, context)
    if after is before:
        return known, figures
    return known.set(after.key, after), figures.changed(before, after, context)


def pool_specified(state: State, event: on.NodePoolValidated, context: Context) -> State:
    """Return the state after a new verdict on the spec of a NodePool."""
    before = state.pools.get(event.key)
    after = pools.specified(before, event, context)
    return replace(
        state,
        pools=state.pools.set(after.key, after),
        pool_figures=state.pool_figures.changed(before, after, context),
    )


def pool_deleted(state: State, event: on.CWNodePoolDeleted) -> State:
    """Return the state without this NodePool."""
    pool = state.pools.get(event.key)
    if pool is None or pool.uid != event.uid:
        return state
    return replace(
        state,
        pools=state.pools.delete(pool.key),
        templates=dropped(state.templates, pool.key),
        pool_figures=state.pool_figures.deleted(pool),
    )


def removal_failed(state: State, event: on.CWNodePoolNodesRemoveError, context: Context) -> State:
    """Return the state after the removal of a Node failed, or its silent machine was given up."""
    node = state.nodes.get(node_key(event.org, event.cluster, event.node))
    if node is not None and failure_of(event.message) == NodeFailure.UNANSWERED:
        figures = state.node_figures.failed(node, NodeFailure.UNANSWERED.value)
        state = replace(state, node_figures=figures)
    return pool_changed(state, event, pools.check_failed, context)


def node_assigned(state: State, event: on.CWNodeAssigned, context: Context) -> State:
    """Return the state with a new Node."""
    inventory = state.inventory.assign(event.machine_key, event.key, event.assignment)
    machine = moved(state, event, inventory, context)
    change = pools.node_assigned
    pools_, figures = _changed_pools(state.pools, state.pool_figures, event, change, context)
    pool = state.pools.get(event.key)
    profile = profile_of(pool.spec) if pool is not None and pool.uid == event.uid else ""
    return replace(
        state,
        pools=pools_,
        nodes=state.nodes.set(event.node_key, nodes.assigned(event, context, profile)),
        inventory=machine.inventory,
        capacity=machine.capacity,
        machines=machine.machines,
        pool_figures=figures,
        out_of_service=machine.out_of_service,
    )


def node_joined(state: State, event: on.CWNodeRegistered, context: Context) -> State:
    """Return the state after a Node joined its cluster."""
    key = event.node_key
    before = state.nodes[key]
    node = nodes.changed(before, event, context)
    change = pools.node_registered
    pools_, figures = _changed_pools(state.pools, state.pool_figures, event, change, context)
    of_nodes = state.node_figures.with_activity(before, node)
    return replace(
        state,
        pools=pools_,
        nodes=state.nodes.set(key, node),
        templates=counted(state.templates, node.pool, 0, node.template),
        pool_figures=figures,
        node_figures=of_nodes.changed(key, node, context.time),
        joins=state.joins.observe(
            NODE_JOIN, (context.time - node.created).total_seconds(), node.zone, node.instance_type
        ),
    )


def cordon_changed(state: State, event: CordonChanged, context: Context) -> State:
    """Return the state after the cordon of a Node, other than for its removal, began or ended."""
    key = event.node_key
    cordon = cordon_label(event.cause) if isinstance(event, on.CWNodeCordoned) else ""
    figures = state.node_figures.changed(key, state.nodes[key], context.time, cordon)
    return replace(state, node_figures=figures)


def node_changed(state: State, event: NodeChanged, context: Context) -> State:
    """Return the state after a Node changed."""
    key = event.node_key
    before = state.nodes.get(key)
    if before is None:
        return state
    after = nodes.changed(before, event, context)
    if after is before:
        return state
    templates = counted(state.templates, after.pool, before.template, after.template)
    figures = state.node_figures.with_activity(before, after)
    if after.phase is not before.phase or after.removal is not before.removal:
        figures = figures.changed(key, after, context.time)
    busy, pools_ = state.busy, state.pools
    if after.boot != before.boot:
        after, pools_ = booted_again(pools_, after, context)
    if before.is_busy or after.is_busy:
        busy = _with_busy(busy, after.pool, key, is_busy=after.is_busy)
        pool = pools_.get(after.pool)
        if pool is not None and pool.is_shrinking:
            pools_ = pools_.set(pool.key, pools.changed_while_shrinking(pool, context))
    return replace(
        state,
        pools=pools_,
        nodes=state.nodes.set(key, after),
        busy=busy,
        templates=templates,
        node_figures=figures,
    )


def node_reported(state: State, event: ConditionSeen, context: Context) -> State:
    """Return the state after a condition of a Node was reported."""
    key = state.reported_node(event)
    if key is None:
        return state
    node = state.nodes[key]
    after = nodes.reported(node, event, context)
    figures = state.node_figures
    if problems_of(after) - problems_of(node):
        figures = figures.failed(node, cordon_cause(event.type))
    return replace(state, nodes=state.nodes.set(key, after), node_figures=figures)


def _with_busy(busy: Busy, pool: PoolKey, node: NodeKey, *, is_busy: bool) -> Busy:
    """Return the busy Nodes of all NodePools, with or without this Node."""
    before = busy.get(pool, Map())
    if is_busy is (node in before):
        return busy
    after = before.set(node, True) if is_busy else before.delete(node)
    return busy.set(pool, after) if len(after) else busy.delete(pool)


def node_left(state: State, event: NodeLeft, context: Context) -> State:
    """Return the state without a Node; its machine is free or out of service."""
    key = event.node_key
    node = state.nodes[key]
    cause = triage_cause(event, node)
    machine = moved(state, event, state.inventory.depart(event), context, cause)
    failure = failure_at_the_end(event, cause)
    domain = machine.inventory.machines[event.machine_key].domain
    change = partial(pools.node_left, domain=domain, profile=node.profile, usable=node.usable)
    pools_, figures = _changed_pools(state.pools, state.pool_figures, event, change, context)
    return replace(
        state,
        pools=pools_,
        nodes=state.nodes.delete(key),
        busy=_with_busy(state.busy, node.pool, key, is_busy=False),
        templates=counted(state.templates, node.pool, node.template, 0),
        inventory=machine.inventory,
        capacity=machine.capacity,
        machines=machine.machines,
        pool_figures=figures,
        node_figures=state.node_figures.left(key, node, event, failure, context.time),
        out_of_service=machine.out_of_service,
    )


def grant_acknowledged(state: State, event: on.GrantAcknowledged, context: Context) -> State:
    """Return the state after the allocator has given up the Nodes beyond a smaller grant."""
    pool, figures = state.pools.get(event.key), state.pool_figures
    if pool is None or pool.uid != event.uid:
        return state
    grants = acknowledged(figures.grants.get(event.key, NO_GRANTS), event)
    return replace(state, pool_figures=figures.changed(pool, pool, context, grants))


def cluster_registered(state: State, event: on.ClusterRegistered, context: Context) -> State:
    """Return the state with a new cluster, or with a cluster that has an agent from now on."""
    key = cluster_key(event.org, event.cluster)
    before = state.clusters.get(key)
    item = ClusterObject(
        event.org,
        event.cluster,
        event.zone,
        before.registered if before is not None else context.time,
        context.position,
        event.kubernetes,
        event.kubernetes_uid,
    )
    return replace(state, clusters=state.clusters.set(key, item))


def quota_counted(state: State, event: QuotaCounted, context: Context) -> State:
    """Return the state after a change of a limit, or of the Nodes that count against it."""
    if isinstance(event, on.QuotaChecked):
        state = _granted(state, event, context)
    key = ledger_key(event.org, event.zone, event.instance_type)
    before = state.quotas.get(key)
    after = quotas.counted(before, event, context)
    if after is before:
        return state
    quotas_ = state.quotas.delete(key) if after is None else state.quotas.set(key, after)
    return replace(state, quotas=quotas_)


def _granted(state: State, event: on.QuotaChecked, context: Context) -> State:
    """Return the state after a verdict on quota; its grant counts for any generation."""
    pool, figures = state.pools.get(event.key), state.pool_figures
    if pool is None or pool.uid != event.uid:
        return state
    after = pools.checked(pool, event, context)
    grants = figures.grants.get(event.key, NO_GRANTS)
    if not pool.is_invalid:  # Otherwise the allocator knows that it may use no grant.
        grants = granted(grants, event)
    figures = figures.changed(pool, after, context, grants)
    pools_ = state.pools if after is pool else state.pools.set(pool.key, after)
    state_ = replace(state, pools=pools_, pool_figures=figures)
    if not limit_passed(state, figures.reserved, event):
        return state_
    return replace(state_, violations=state.violations.add(LIMIT_PASSED, context.position))
