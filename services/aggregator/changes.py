"""How each event changes the read model."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar, assert_never

from immutables import Map

from aggregator import Hears, NodeChanged, NodeLeft, QuotaCounted, nodes, pools, quotas
from aggregator.machines import (
    capacity_reclaimed,
    count_giving_way,
    machine_reported,
    real_machine_seen,
    with_inventory,
)
from aggregator.objects import ClusterObject, NodeObject, NodePoolObject
from aggregator.profiles import counted_profiles, profile_of
from aggregator.read_model import ReadModel
from aggregator.templates import add_template, drop_templates, move_node
from nodepool.contract import events as on
from nodepool.contract.keys import NodeKey, PoolKey, cluster_key, ledger_key
from nodepool.contract.messages import OfMachine, OfPool, OfRealMachine
from nodepool.contract.observations import ConditionSeen
from nodepool.service import Context
from nodepool.state.values import replace

E = TypeVar("E", bound=OfPool)
Pools = Map[PoolKey, NodePoolObject]
Busy = Map[PoolKey, Map[NodeKey, bool]]


def evolve(  # noqa: C901, PLR0912  # It lists the messages.
    model: ReadModel, message: Hears, context: Context
) -> ReadModel:
    """Return the read model after an event; frequent events come first, as each case takes time."""
    match message:
        case (
            on.NodeUpdated()
            | on.NodeActivityChanged()
            | on.CWDrainNode()
            | on.AnswerAwaited()
            | on.NodeAnswered()
            | on.NodeSilent()
            | on.NodeReportRequested()
            | on.NodePreemptionRequested()
            | on.NodePreemptionWithdrawn()
            | on.NodePreempted()
            | on.PreemptionPending()
        ):
            return _node_changed(model, message, context)
        case on.NodeConditionChanged() | on.NodeConditionReported():
            return _node_reported(model, message, context)
        case on.CWNodeAssigned():
            return _node_assigned(model, message, context)
        case on.CWNodeRegistered():
            return _node_joined(model, message, context)
        case on.CWNodeDeleted() | on.CWNodeRegistrationFailed():
            return _node_left(model, message, context)
        case OfRealMachine():
            return real_machine_seen(model, message, context)
        case OfMachine():
            return machine_reported(model, message, context)
        case on.CapacityReclaimed():
            return capacity_reclaimed(model, message, context)
        case on.CapacityChecked():
            return _pool_changed(model, message, pools.apply_verdict, context)
        case on.QuotaChecked() | on.QuotaSet() | on.QuotaDeleted() | on.QuotaReleased():
            return _quota_counted(model, message, context)
        case on.NodePoolValidated():
            pool = pools.specify_pool(model.pools.get(message.key), message, context)
            after = replace(model, pools=model.pools.set(pool.key, pool))
            return quotas.note_given_up_quota(model, after, pool.key, context)
        case on.NodeTemplateChanged():
            return replace(model, templates=add_template(model.templates, message))
        case on.NodePoolDeleting():
            after = _pool_changed(model, message, pools.deleting, context)
            return quotas.note_given_up_quota(model, after, message.key, context)
        case on.CWNodePoolNodesRemoved():
            return _pool_changed(model, message, pools.nodes_removed, context)
        case on.NodePoolUpdateFailed():
            return _pool_changed(model, message, pools.update_failed, context)
        case on.CWNodePoolDeleted():
            return _pool_deleted(model, message)
        case on.ClusterRegistered():
            return _cluster_registered(model, message, context)
        case on.AllocationRecovered() | on.NodeRemovalRecovered():
            return _pool_changed(model, message, pools.clear_error, context)
        case (
            on.CWNodePoolQuotaCheckFailed()
            | on.CapacityCheckFailed()
            | on.AllocationFailed()
            | on.CWNodePoolNodesRemoveError()
            | on.NodeUpdateFailed()
        ):
            return _pool_changed(model, message, pools.check_failed, context)
        case on.NodeReservationChanged():
            return _reservation_changed(model, message, context)
        case on.GrantAcknowledged() | on.CWNodeCordoned() | on.CWNodeUncordoned():
            return model  # Only figures change: the read model shows the current grant and cordon.
        case _:
            assert_never(message)


def _pool_changed(
    model: ReadModel,
    event: E,
    change: Callable[[NodePoolObject, E, Context], NodePoolObject],
    context: Context,
) -> ReadModel:
    """Return the read model after a change of a NodePool; an unknown NodePool does not change."""
    after = _changed_pools(model.pools, event, change, context)
    return model if after is model.pools else replace(model, pools=after)


def _changed_pools(
    known: Pools,
    event: E,
    change: Callable[[NodePoolObject, E, Context], NodePoolObject],
    context: Context,
) -> Pools:
    """Return the NodePools after an event; the same object if nothing changed."""
    before = known.get(event.key)
    if before is None:
        return known
    after = change(before, event, context)
    return known if after is before else known.set(after.key, after)


def _pool_deleted(model: ReadModel, event: on.CWNodePoolDeleted) -> ReadModel:
    pool = model.pools.get(event.key)
    if pool is None or pool.uid != event.uid:
        return model
    return replace(
        model,
        pools=model.pools.delete(pool.key),
        templates=drop_templates(model.templates, pool.key),
    )


def _node_assigned(model: ReadModel, event: on.CWNodeAssigned, context: Context) -> ReadModel:
    """Return the read model with a new Node."""
    inventory = model.inventory.assign(event.machine_key, event.key, event.assignment)
    pool = model.pools.get(event.key)
    profile = profile_of(pool.spec) if pool is not None and pool.uid == event.uid else ""
    node = nodes.build_node(event, context, profile)
    return replace(
        with_inventory(model, event, inventory, context),
        pools=_changed_pools(model.pools, event, pools.node_assigned, context),
        nodes=model.nodes.set(event.node_key, node),
        busy=_with_busy(model.busy, node.pool, event.node_key, is_busy=node.is_busy),
    )


def _node_joined(model: ReadModel, event: on.CWNodeRegistered, context: Context) -> ReadModel:
    """Return the read model after a Node joined its cluster."""
    key = event.node_key
    node = nodes.change_node(model.nodes[key], event, context)
    return replace(
        model,
        pools=_changed_pools(model.pools, event, pools.node_registered, context),
        nodes=model.nodes.set(key, node),
        busy=_with_busy(model.busy, node.pool, key, is_busy=node.is_busy),
        templates=move_node(model.templates, node.pool, 0, node.template),
    )


def _node_changed(model: ReadModel, event: NodeChanged, context: Context) -> ReadModel:
    """Return the read model after a Node changed."""
    key = event.node_key
    before = model.nodes.get(key)
    if before is None:
        return model
    after = nodes.change_node(before, event, context)
    if after is before:
        return model
    model = count_giving_way(model, before, after, context)
    templates = move_node(model.templates, after.pool, before.template, after.template)
    busy, pools_ = model.busy, model.pools
    if after.boot != before.boot:
        after, pools_ = _booted_again(pools_, after, context)
    if before.is_busy or after.is_busy:
        busy = _with_busy(busy, after.pool, key, is_busy=after.is_busy)
        pools_ = _named(pools_, after, context)
    return replace(
        model, pools=pools_, nodes=model.nodes.set(key, after), busy=busy, templates=templates
    )


def _named(known: Pools, node: NodeObject, context: Context) -> Pools:
    """Return the NodePools after a change of a Node that the status of its NodePool may name."""
    pool = known.get(node.pool)
    if pool is None or not pool.is_shrinking:
        return known
    return known.set(pool.key, pools.changed_while_shrinking(pool, context))


def _booted_again(known: Pools, node: NodeObject, context: Context) -> tuple[NodeObject, Pools]:
    """Return the Node with the active profile, and the NodePools that count it."""
    pool = known.get(node.pool)
    profile = profile_of(pool.spec) if pool is not None else ""
    if pool is None or node.profile in ("", profile):
        return node, known
    profiles = counted_profiles(pool.profiles, node.profile, -1)
    profiles = counted_profiles(profiles, profile, 1)
    pool = replace(pool, profiles=profiles, version=context.position)
    return replace(node, profile=profile), known.set(pool.key, pool)


def _node_reported(model: ReadModel, event: ConditionSeen, context: Context) -> ReadModel:
    """Return the read model after a condition of a Node was reported."""
    key = model.reported_node(event)
    if key is None:
        return model
    before = model.nodes[key]
    after = nodes.set_reported_condition(before, event, context)
    model = count_giving_way(model, before, after, context)
    pools_ = _named(model.pools, after, context) if after.is_busy else model.pools
    return replace(model, pools=pools_, nodes=model.nodes.set(key, after))


def _with_busy(busy: Busy, pool: PoolKey, node: NodeKey, *, is_busy: bool) -> Busy:
    """Return the busy Nodes of all NodePools, with or without this Node."""
    before = busy.get(pool, Map())
    if is_busy is (node in before):
        return busy
    after = before.set(node, True) if is_busy else before.delete(node)
    return busy.set(pool, after) if len(after) else busy.delete(pool)


def _node_left(model: ReadModel, event: NodeLeft, context: Context) -> ReadModel:
    """Return the read model without a Node; its machine is free or out of service."""
    key = event.node_key
    node = model.nodes[key]
    inventory = model.inventory.depart(event)
    change = partial(pools.node_left, node=node, others=model.uncounted_peers(key))
    model = count_giving_way(model, node, None, context)
    after = replace(
        with_inventory(model, event, inventory, context),
        pools=_changed_pools(model.pools, event, change, context),
        nodes=model.nodes.delete(key),
        busy=_with_busy(model.busy, node.pool, key, is_busy=False),
        templates=move_node(model.templates, node.pool, node.template, 0),
    )
    return quotas.note_given_up_quota(model, after, event.key, context)


def _reservation_changed(
    model: ReadModel, event: on.NodeReservationChanged, context: Context
) -> ReadModel:
    """Return the read model in which a NodePool counts a Node no more, or counts it again."""
    before = model.node(event)
    if before is None or before.usable is event.usable:
        return model
    node = replace(before, usable=event.usable, version=context.position)
    change = partial(pools.node_reserved, domain=node.domain)
    after = replace(
        model,
        pools=_changed_pools(model.pools, event, change, context),
        nodes=model.nodes.set(event.node_key, node),
    )
    return quotas.note_given_up_quota(model, after, event.key, context)


def _cluster_registered(
    model: ReadModel, event: on.ClusterRegistered, context: Context
) -> ReadModel:
    """Return the read model with a new cluster, or with a cluster that has an agent from now on."""
    key = cluster_key(event.org, event.cluster)
    before = model.clusters.get(key)
    item = ClusterObject(
        event.org,
        event.cluster,
        event.zone,
        before.registered if before is not None else context.time,
        context.position,
        event.kubernetes,
        event.kubernetes_uid,
    )
    return replace(model, clusters=model.clusters.set(key, item))


def _quota_counted(model: ReadModel, event: QuotaCounted, context: Context) -> ReadModel:
    """Return the read model after a change of a limit, or of the Nodes that count against it."""
    if isinstance(event, on.QuotaChecked):
        judged = _pool_changed(model, event, pools.apply_verdict, context)
        model = quotas.note_given_up_quota(model, judged, event.key, context)
    key = ledger_key(event.org, event.zone, event.instance_type)
    before = model.quotas.get(key)
    after = quotas.update_quota(before, event, context)
    if after is before:
        return model
    quotas_ = model.quotas.delete(key) if after is None else model.quotas.set(key, after)
    return replace(model, quotas=quotas_)
