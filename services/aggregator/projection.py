"""The read model from the state of the aggregator: one bucket for each kind of object."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, assert_never

from aggregator import Hears
from aggregator.documents import Document, document
from aggregator.objects import AnyObject, MachineObject, NodePoolObject
from aggregator.state import State
from aggregator.templates import whole
from nodepool.contract import events as on
from nodepool.contract.buckets import BUCKETS
from nodepool.contract.keys import (
    ClusterKey,
    LedgerKey,
    MachineKey,
    NodeKey,
    OfferingKey,
    PoolKey,
    cluster_key,
    ledger_key,
    offering_key,
)
from nodepool.contract.messages import OfMachine, OfNode, OfPool
from nodepool.contract.model import NodePhase
from nodepool.contract.observations import ConditionSeen
from nodepool.service import Object, Projection

RENDERING: Final = "8"
"""The version of the documents; raise it when a release renders the same state differently."""
POOLS: Final = "nodepools"
NODES: Final = "nodes"
QUOTAS: Final = "quotas"
CAPACITY: Final = "capacity"
MACHINES: Final = "machines"
CLUSTERS: Final = "clusters"
_BOOTED_AGAIN: Final = (NodePhase.REBOOTING, NodePhase.VERIFYING)
"""The phases of a Node in which its profile may have changed."""


def touched(  # noqa: C901, PLR0912  # It lists the messages.
    state: State, message: Hears
) -> Iterator[tuple[str, str]]:
    """Yield the bucket and the key of each object that an event may have changed."""
    match message:
        case on.NodeUpdated() | on.NodeActivityChanged():
            yield from _node(state, message)
        case on.CWDrainNode() | on.NodeReportRequested():
            yield from _node(state, message)
        case on.NodeConditionChanged() | on.NodeConditionReported():
            yield from _reported(state, message)
        case (
            on.NodeTemplateChanged()
            | on.CWNodeCordoned()
            | on.CWNodeUncordoned()
            | on.GrantAcknowledged()
        ):
            return  # Each Node that gets a template or a cordon has its own event.
        case on.CWNodeAssigned() | on.CWNodeDeleted() | on.CWNodeRegistrationFailed():
            yield POOLS, message.key
            yield NODES, message.node_key
            yield from _machine(state, message.machine_key)
        case on.CWNodeRegistered() | on.NodeReservationChanged():
            yield POOLS, message.key
            yield NODES, message.node_key
        case OfMachine():
            yield from _machine(state, message.machine_key)
        case on.CapacityReclaimed():
            yield CAPACITY, offering_key(message.zone, message.instance_type)
        case on.ClusterRegistered():
            yield CLUSTERS, cluster_key(message.org, message.cluster)
        case on.QuotaChecked():
            yield POOLS, message.key
            yield QUOTAS, ledger_key(message.org, message.zone, message.instance_type)
        case on.QuotaSet() | on.QuotaDeleted() | on.QuotaReleased():
            yield QUOTAS, ledger_key(message.org, message.zone, message.instance_type)
        case OfPool():
            yield POOLS, message.key
        case _:
            assert_never(message)


def _node(state: State, event: OfNode) -> Iterator[tuple[str, str]]:
    """Yield a Node, and the NodePool if its status may name the Node."""
    yield NODES, event.node_key
    pool = state.pools.get(event.key)
    has_booted = isinstance(event, on.NodeUpdated) and event.phase in _BOOTED_AGAIN
    if pool is not None and (pool.is_shrinking or has_booted):
        yield POOLS, event.key


def _reported(state: State, event: ConditionSeen) -> Iterator[tuple[str, str]]:
    node = state.reported_node(event)
    if node is not None:
        yield NODES, node


def _machine(state: State, key: MachineKey) -> Iterator[tuple[str, str]]:
    machine = state.inventory.machines.get(key)
    if machine is not None:
        yield MACHINES, key
        yield CAPACITY, machine.offering


def get(state: State, bucket: str, key: str) -> AnyObject | None:
    """Return an object of the state; None if the object does not exist."""
    match bucket:
        case "nodepools":
            return _pool(state, state.pools.get(PoolKey(key)))
        case "nodes":
            node = state.nodes.get(NodeKey(key))
            return None if node is None else whole(state.templates, node)
        case "quotas":
            return state.quotas.get(LedgerKey(key))
        case "capacity":
            return state.capacity.get(OfferingKey(key))
        case "machines":
            return _machine_object(state, MachineKey(key))
        case "clusters":
            return state.clusters.get(ClusterKey(key))
    raise ValueError(f"the aggregator fills no bucket {bucket}")


def _pool(state: State, pool: NodePoolObject | None) -> NodePoolObject | None:
    """Return the NodePool with the Nodes that its status names while it shrinks."""
    if pool is None or not pool.is_shrinking:
        return pool
    return replace(pool, busy=tuple(state.nodes[key] for key in state.busy.get(pool.key, ())))


def _machine_object(state: State, key: MachineKey) -> MachineObject | None:
    status = state.machines.get(key)
    return MachineObject(state.inventory.machines[key], status) if status is not None else None


def keys(state: State, bucket: str) -> Iterable[str]:
    """Return the keys of all objects in a bucket."""
    match bucket:
        case "nodepools":
            return state.pools
        case "nodes":
            return state.nodes
        case "quotas":
            return state.quotas
        case "capacity":
            return state.capacity
        case "machines":
            return state.machines
        case "clusters":
            return state.clusters
    raise ValueError(f"the aggregator fills no bucket {bucket}")


def render(item: Object) -> Document:
    """Return an object as the read model holds it."""
    assert isinstance(item, AnyObject), f"{type(item).__name__} is no object of the aggregator"
    return document(item)


def render_deprecated(item: Object) -> Document:
    """Return an object with the deprecated NodePool conditions, for readers that still use them."""
    assert isinstance(item, AnyObject), f"{type(item).__name__} is no object of the aggregator"
    return document(item, show_deprecated=True)


PROJECTION: Projection[State, Hears] = Projection(
    buckets=BUCKETS,
    touched=touched,
    get=get,
    keys=keys,
    render=render,
    render_deprecated=render_deprecated,
    rendering=RENDERING,
)
