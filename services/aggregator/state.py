"""What the aggregator knows: the objects of the read model, and the machines that they count."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar, assert_never

from immutables import Map

from aggregator import Hears, NodeChanged, NodeLeft, QuotaCounted, nodes, pools, quotas
from aggregator.capacity import recounted
from aggregator.objects import CapacityObject, NodeObject, NodePoolObject, QuotaObject
from nodepool.contract.events import (
    AllocationFailed,
    AllocationRecovered,
    CapacityChecked,
    CapacityCheckFailed,
    CWDrainNode,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodePoolDeleted,
    CWNodePoolNodesRemoved,
    CWNodePoolNodesRemoveError,
    CWNodePoolQuotaCheckFailed,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    MachineAdded,
    MachineRepaired,
    NodeActivityChanged,
    NodePoolDeleting,
    NodePoolValidated,
    NodeRemovalRecovered,
    NodeUpdated,
    QuotaChecked,
    QuotaReleased,
    QuotaSet,
)
from nodepool.contract.keys import LedgerKey, MachineKey, NodeKey, OfferingKey, PoolKey, ledger_key
from nodepool.contract.messages import OfPool
from nodepool.service import Context
from nodepool.state.inventory import Inventory

E = TypeVar("E", bound=OfPool)


@dataclass(frozen=True, slots=True)
class State:
    """The objects of the read model by key.

    pools, nodes, quotas, capacity: one map for each bucket.
    inventory: every machine, which `capacity` counts.
    """

    pools: Map[PoolKey, NodePoolObject] = Map()
    nodes: Map[NodeKey, NodeObject] = Map()
    quotas: Map[LedgerKey, QuotaObject] = Map()
    capacity: Map[OfferingKey, CapacityObject] = Map()
    inventory: Inventory = Inventory()


def evolve(state: State, message: Hears, context: Context) -> State:
    """The state after an event; frequent ones come first, since each case costs time."""
    match message:
        case NodeUpdated() | NodeActivityChanged() | CWDrainNode():
            return _node_changed(state, message, context)
        case CWNodeAssigned():
            return _node_assigned(state, message, context)
        case CWNodeRegistered():
            state = _node_changed(state, message, context)
            return _pool_changed(state, message, pools.node_registered, context)
        case CWNodeDeleted() | CWNodeRegistrationFailed():
            return _node_left(state, message, context)
        case MachineAdded():
            inventory = state.inventory.add(message)
            return _machine_changed(state, message.machine_key, inventory, context)
        case CapacityChecked():
            return _pool_changed(state, message, pools.checked, context)
        case QuotaChecked():
            state = _quota_counted(state, message, context)
            return _pool_changed(state, message, pools.checked, context)
        case NodePoolValidated():
            return _pool_specified(state, message, context)
        case QuotaSet() | QuotaReleased():
            return _quota_counted(state, message, context)
        case NodePoolDeleting():
            return _pool_changed(state, message, pools.deleting, context)
        case CWNodePoolNodesRemoved():
            return _pool_changed(state, message, pools.nodes_removed, context)
        case CWNodePoolDeleted():
            return _pool_deleted(state, message)
        case MachineRepaired(machine_key=machine):
            return _machine_changed(state, machine, state.inventory.repair(machine), context)
        case CWNodePoolQuotaCheckFailed() | CapacityCheckFailed():
            return _pool_changed(state, message, pools.check_failed, context)
        case AllocationRecovered() | NodeRemovalRecovered():
            return _pool_changed(state, message, pools.recovered, context)
        case AllocationFailed() | CWNodePoolNodesRemoveError():
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
    return replace(state, pools=state.pools.delete(pool.key))


def _node_assigned(state: State, event: CWNodeAssigned, context: Context) -> State:
    machine = event.machine_key
    inventory = state.inventory.assign(machine, event.key, event.assignment)
    state = _machine_changed(state, machine, inventory, context)
    node = nodes.assigned(event, context)
    state = replace(state, nodes=state.nodes.set(event.node_key, node))
    return _pool_changed(state, event, pools.node_assigned, context)


def _node_changed(state: State, event: NodeChanged, context: Context) -> State:
    key = event.node_key
    before = state.nodes.get(key)
    if before is None:
        return state
    after = nodes.changed(before, event, context)
    return state if after is before else replace(state, nodes=state.nodes.set(key, after))


def _node_left(state: State, event: NodeLeft, context: Context) -> State:
    inventory = state.inventory.depart(event)
    state = _machine_changed(state, event.machine_key, inventory, context)
    node = state.nodes.get(event.node_key)
    if node is not None and node.assignment == event.assignment:
        state = replace(state, nodes=state.nodes.delete(event.node_key))
    return _pool_changed(state, event, pools.node_left, context)


def _machine_changed(
    state: State, key: MachineKey, inventory: Inventory, context: Context
) -> State:
    """The state with this inventory, in which at most this machine differs."""
    if inventory is state.inventory:
        return state
    before, after = state.inventory.machines.get(key), inventory.machines[key]
    item = recounted(state.capacity, before, after, context)
    return replace(state, inventory=inventory, capacity=state.capacity.set(after.offering, item))


def _quota_counted(state: State, event: QuotaCounted, context: Context) -> State:
    key = ledger_key(event.org, event.zone, event.instance_type)
    before = state.quotas.get(key)
    after = quotas.counted(before, event, context)
    return state if after is before else replace(state, quotas=state.quotas.set(key, after))
