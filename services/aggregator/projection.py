"""The state of the aggregator as the read model: four buckets of objects."""

from collections.abc import Iterable, Iterator
from typing import Final, assert_never

from aggregator import Hears
from aggregator.objects import (
    AnyObject,
    Document,
    document,
)
from aggregator.state import State
from nodepool.contract.buckets import BUCKETS
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
from nodepool.service import Object, Projection

POOLS: Final = "nodepools"
NODES: Final = "nodes"
QUOTAS: Final = "quotas"
CAPACITY: Final = "capacity"


def touched(state: State, message: Hears) -> Iterator[tuple[str, str]]:
    """The objects, as bucket and key, that an event may have changed."""
    match message:
        case NodeUpdated() | NodeActivityChanged() | CWDrainNode():
            yield NODES, message.node_key
        case CWNodeAssigned() | CWNodeDeleted() | CWNodeRegistrationFailed():
            yield POOLS, message.key
            yield NODES, message.node_key
            yield from _offering(state, message.machine_key)
        case CWNodeRegistered():
            yield POOLS, message.key
            yield NODES, message.node_key
        case MachineAdded() | MachineRepaired():
            yield from _offering(state, message.machine_key)
        case QuotaChecked():
            yield POOLS, message.key
            yield QUOTAS, ledger_key(message.org, message.zone, message.instance_type)
        case QuotaSet() | QuotaReleased():
            yield QUOTAS, ledger_key(message.org, message.zone, message.instance_type)
        case (
            CapacityChecked()
            | NodePoolValidated()
            | NodePoolDeleting()
            | CWNodePoolNodesRemoved()
            | CWNodePoolDeleted()
            | CWNodePoolQuotaCheckFailed()
            | CapacityCheckFailed()
            | AllocationFailed()
            | CWNodePoolNodesRemoveError()
            | AllocationRecovered()
            | NodeRemovalRecovered()
        ):
            yield POOLS, message.key
        case _:
            assert_never(message)


def _offering(state: State, key: MachineKey) -> Iterator[tuple[str, str]]:
    machine = state.inventory.machines.get(key)
    if machine is not None:
        yield CAPACITY, machine.offering


def get(state: State, bucket: str, key: str) -> AnyObject | None:
    """An object of the state; None where there is none."""
    match bucket:
        case "nodepools":
            return state.pools.get(PoolKey(key))
        case "nodes":
            return state.nodes.get(NodeKey(key))
        case "quotas":
            return state.quotas.get(LedgerKey(key))
        case "capacity":
            return state.capacity.get(OfferingKey(key))
    raise ValueError(f"the aggregator fills no bucket {bucket}")


def keys(state: State, bucket: str) -> Iterable[str]:
    """The keys of all objects of a bucket."""
    match bucket:
        case "nodepools":
            return state.pools
        case "nodes":
            return state.nodes
        case "quotas":
            return state.quotas
        case "capacity":
            return state.capacity
    raise ValueError(f"the aggregator fills no bucket {bucket}")


def render(item: Object) -> Document:
    """An object as the read model holds it."""
    assert isinstance(item, AnyObject), f"{type(item).__name__} is no object of the aggregator"
    return document(item)


def render_deprecated(item: Object) -> Document:
    """The same with the deprecated conditions of a NodePool, for those who still read them."""
    assert isinstance(item, AnyObject), f"{type(item).__name__} is no object of the aggregator"
    return document(item, show_deprecated=True)


PROJECTION: Projection[State, Hears] = Projection(
    buckets=BUCKETS,
    touched=touched,
    get=get,
    keys=keys,
    render=render,
    render_deprecated=render_deprecated,
)
