"""What the aggregator knows: the objects of the read model, and the machines that they count."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar, assert_never

from immutables import Map

from aggregator import (
    Hears,
    MachineReported,
    NodeChanged,
    NodeLeft,
    QuotaCounted,
    machines,
    nodes,
    pools,
    quotas,
)
from aggregator.objects import (
    CapacityObject,
    ClusterObject,
    MachineStatus,
    NodeObject,
    NodePoolObject,
    QuotaObject,
)
from aggregator.templates import Templates, counted, dropped, published
from nodepool.contract.events import (
    AllocationFailed,
    AllocationRecovered,
    CapacityChecked,
    CapacityCheckFailed,
    CapacityReclaimed,
    ClusterRegistered,
    CWDrainNode,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodePoolDeleted,
    CWNodePoolNodesRemoved,
    CWNodePoolNodesRemoveError,
    CWNodePoolQuotaCheckFailed,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    MachineBroken,
    MachineStateChanged,
    NodeActivityChanged,
    NodeConditionChanged,
    NodePoolDeleting,
    NodePoolValidated,
    NodeRemovalRecovered,
    NodeTemplateChanged,
    NodeUpdated,
    QuotaChecked,
    QuotaDeleted,
    QuotaReleased,
    QuotaSet,
)
from nodepool.contract.keys import (
    ClusterKey,
    LedgerKey,
    MachineKey,
    NodeKey,
    OfferingKey,
    PoolKey,
    as_pool_key,
    cluster_key,
    ledger_key,
    node_key,
    offering_key,
    pool_path,
)
from nodepool.contract.messages import OfMachine, OfPool
from nodepool.service import Context
from nodepool.state.inventory import Inventory

E = TypeVar("E", bound=OfPool)


@dataclass(frozen=True, slots=True)
class State:
    """The objects of the read model by key.

    pools, nodes, quotas, capacity, clusters: one map for each of these buckets.
    inventory, machines: every machine, which `capacity` counts, and the rest of its status.
    busy: the Nodes of each NodePool that are active, or are to leave.
    templates: what the Nodes of a NodePool have in common, where that is large.
    """

    pools: Map[PoolKey, NodePoolObject] = Map()
    nodes: Map[NodeKey, NodeObject] = Map()
    quotas: Map[LedgerKey, QuotaObject] = Map()
    capacity: Map[OfferingKey, CapacityObject] = Map()
    clusters: Map[ClusterKey, ClusterObject] = Map()
    inventory: Inventory = Inventory()
    machines: Map[MachineKey, MachineStatus] = Map()
    busy: Map[PoolKey, Map[NodeKey, bool]] = Map()
    templates: Templates = Map()

    def node_on(self, key: MachineKey) -> NodeKey | None:
        """The Node that a machine is, or is to be; None for a machine that is none."""
        machine = self.inventory.machines.get(key)
        holder = as_pool_key(machine.holder) if machine is not None else None
        if machine is None or holder is None:
            return None
        org, cluster, _ = pool_path(holder)
        return node_key(org, cluster, machine.name)


def evolve(state: State, message: Hears, context: Context) -> State:
    """The state after an event; frequent ones come first, since each case costs time."""
    match message:
        case NodeUpdated() | NodeActivityChanged() | CWDrainNode():
            return _node_changed(state, message, context)
        case NodeConditionChanged():
            return _node_reported(state, message, context)
        case CWNodeAssigned():
            return _node_assigned(state, message, context)
        case CWNodeRegistered():
            state = _node_changed(state, message, context)
            return _pool_changed(state, message, pools.node_registered, context)
        case CWNodeDeleted() | CWNodeRegistrationFailed():
            return _node_left(state, message, context)
        case OfMachine():
            return _machine_reported(state, message, context)
        case CapacityReclaimed():
            return _capacity_reclaimed(state, message, context)
        case CapacityChecked():
            return _pool_changed(state, message, pools.checked, context)
        case QuotaChecked() | QuotaSet() | QuotaDeleted() | QuotaReleased():
            return _quota_counted(state, message, context)
        case NodePoolValidated():
            return _pool_specified(state, message, context)
        case NodeTemplateChanged():
            return replace(state, templates=published(state.templates, message))
        case NodePoolDeleting():
            return _pool_changed(state, message, pools.deleting, context)
        case CWNodePoolNodesRemoved():
            return _pool_changed(state, message, pools.nodes_removed, context)
        case CWNodePoolDeleted():
            return _pool_deleted(state, message)
        case ClusterRegistered():
            return _cluster_registered(state, message, context)
        case AllocationRecovered() | NodeRemovalRecovered():
            return _pool_changed(state, message, pools.recovered, context)
        case CWNodePoolQuotaCheckFailed() | CapacityCheckFailed() | AllocationFailed():
            return _pool_changed(state, message, pools.check_failed, context)
        case CWNodePoolNodesRemoveError():
            return _pool_changed(state, message, pools.check_failed, context)
        case _:
            assert_never(message)


def _pool_changed(
    state: State,
    event: E,
    change: Callable[[NodePoolObject, E, Context], NodePoolObject],
    context: Context,
) -> State:
    before = state.pools.get(event.key)
    if before is None:
        return state
    after = change(before, event, context)
    return state if after is before else replace(state, pools=state.pools.set(after.key, after))


def _pool_specified(state: State, event: NodePoolValidated, context: Context) -> State:
    pool = pools.specified(state.pools.get(event.key), event, context)
    return replace(state, pools=state.pools.set(pool.key, pool))


def _pool_deleted(state: State, event: CWNodePoolDeleted) -> State:
    pool = state.pools.get(event.key)
    if pool is None or pool.uid != event.uid:
        return state
    templates = dropped(state.templates, pool.key)
    return replace(state, pools=state.pools.delete(pool.key), templates=templates)


def _node_assigned(state: State, event: CWNodeAssigned, context: Context) -> State:
    inventory = state.inventory.assign(event.machine_key, event.key, event.assignment)
    state = _machine_changed(state, event, inventory, context)
    node = nodes.assigned(event, context)
    state = replace(state, nodes=state.nodes.set(event.node_key, node))
    return _pool_changed(state, event, pools.node_assigned, context)


def _node_changed(state: State, event: NodeChanged, context: Context) -> State:
    key = event.node_key
    before = state.nodes.get(key)
    if before is None:
        return state
    after = nodes.changed(before, event, context)
    if after is before:
        return state
    templates = counted(state.templates, after.pool, before.template, after.template)
    state = replace(state, nodes=state.nodes.set(key, after), templates=templates)
    if not before.is_busy and not after.is_busy:
        return state
    state = _with_busy(state, after.pool, key, is_busy=after.is_busy)
    pool = state.pools.get(after.pool)
    if pool is None or not pool.is_shrinking:
        return state
    pool = pools.changed_while_shrinking(pool, context)
    return replace(state, pools=state.pools.set(pool.key, pool))


def _node_reported(state: State, event: NodeConditionChanged, context: Context) -> State:
    key = state.node_on(event.machine_key)
    node = state.nodes.get(key) if key is not None else None
    if key is None or node is None:
        return state
    return replace(state, nodes=state.nodes.set(key, nodes.reported(node, event, context)))


def _with_busy(state: State, pool: PoolKey, node: NodeKey, *, is_busy: bool) -> State:
    """The state in which this Node is among the busy ones of its NodePool, or not."""
    before = state.busy.get(pool, Map())
    if is_busy is (node in before):
        return state
    after = before.set(node, True) if is_busy else before.delete(node)
    busy = state.busy.set(pool, after) if len(after) else state.busy.delete(pool)
    return replace(state, busy=busy)


def _node_left(state: State, event: NodeLeft, context: Context) -> State:
    inventory = state.inventory.depart(event)
    state = _machine_changed(state, event, inventory, context)
    key = event.node_key
    node = state.nodes.get(key)
    if node is not None and node.assignment == event.assignment:
        templates = counted(state.templates, node.pool, node.template, 0)
        state = replace(state, nodes=state.nodes.delete(key), templates=templates)
        state = _with_busy(state, node.pool, key, is_busy=False)
    left = partial(pools.node_left, domain=inventory.machines[event.machine_key].domain)
    return _pool_changed(state, event, left, context)


def _machine_reported(state: State, event: MachineReported, context: Context) -> State:
    if isinstance(event, MachineBroken):
        return _machine_broken(state, event, context)
    if isinstance(event, MachineStateChanged):
        return replace(state, machines=machines.moved(state.machines, event, context))
    return _machine_changed(state, event, state.inventory.changed(event), context)


def _machine_changed(
    state: State, event: machines.MachineEvent, inventory: Inventory, context: Context
) -> State:
    """The state with this inventory, in which at most the machine of the event differs."""
    if inventory is state.inventory:
        return state
    key = event.machine_key
    before, after = state.inventory.machines.get(key), inventory.machines[key]
    item = machines.recounted(state.capacity, before, after, context)
    status = machines.changed_hands(state.machines.get(key), after, event, context)
    return replace(
        state,
        inventory=inventory,
        capacity=state.capacity.set(after.offering, item),
        machines=state.machines.set(key, status),
    )


def _capacity_reclaimed(state: State, event: CapacityReclaimed, context: Context) -> State:
    key = offering_key(event.zone, event.instance_type)
    item = machines.reclaimed(state.capacity.get(key), event, context)
    return replace(state, capacity=state.capacity.set(key, item))


def _machine_broken(state: State, event: MachineBroken, context: Context) -> State:
    key = event.machine_key
    before = state.machines.get(key)
    if before is None:
        return state
    holder = state.node_on(key)
    node = state.nodes.get(holder) if holder is not None else None
    joined = node is not None and node.registered is not None
    after = machines.broken(before, event, joined=joined, context=context)
    return replace(state, machines=state.machines.set(key, after))


def _cluster_registered(state: State, event: ClusterRegistered, context: Context) -> State:
    key = cluster_key(event.org, event.cluster)
    item = ClusterObject(event.org, event.cluster, event.zone, context.time, context.position)
    return replace(state, clusters=state.clusters.set(key, item))


def _quota_counted(state: State, event: QuotaCounted, context: Context) -> State:
    if isinstance(event, QuotaChecked):
        state = _pool_changed(state, event, pools.checked, context)
    key = ledger_key(event.org, event.zone, event.instance_type)
    before = state.quotas.get(key)
    after = quotas.counted(before, event, context)
    if after is before:
        return state
    quotas_ = state.quotas.delete(key) if after is None else state.quotas.set(key, after)
    return replace(state, quotas=quotas_)
