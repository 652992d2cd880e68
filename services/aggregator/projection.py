"""The read model from the objects of the aggregator: one bucket for each kind of object."""

from collections.abc import Iterable, Iterator
from typing import Final, assert_never

from immutables import Map

from aggregator import Hears
from aggregator.documents import document
from aggregator.objects import AnyObject, MachineObject, MachineStatus, NodeObject, NodePoolObject
from aggregator.read_model import ReadModel
from aggregator.real_machines import ONBOARD
from aggregator.status import Document
from nodepool.contract import events as on
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
from nodepool.contract.messages import OfMachine, OfNode, OfPool, OfRealMachine
from nodepool.contract.model import NodePhase
from nodepool.contract.observations import ConditionSeen
from nodepool.placement.machines import Machine
from nodepool.service import Object
from nodepool.state.values import replace

RENDERING: Final = "14"
"""The version of the documents; raise it when a release renders the same state differently."""
POOLS: Final = "nodepools"
NODES: Final = "nodes"
QUOTAS: Final = "quotas"
CAPACITY: Final = "capacity"
MACHINES: Final = "machines"
CLUSTERS: Final = "clusters"
_BOOTED_AGAIN: Final = (NodePhase.REBOOTING, NodePhase.VERIFYING)
"""The phases of a Node in which its profile may have changed."""


def list_touched(  # noqa: C901, PLR0912  # It lists the messages.
    model: ReadModel, message: Hears
) -> Iterator[tuple[str, str]]:
    """Yield the bucket and the key of each object that an event may have changed."""
    match message:
        case on.NodeUpdated() | on.NodeActivityChanged() | on.CWDrainNode() | on.AnswerAwaited():
            yield from _node(model, message)
        case on.NodeAnswered() | on.NodeSilent() | on.NodeReportRequested():
            yield from _node(model, message)
        case on.NodePreemptionRequested() | on.NodePreemptionWithdrawn():
            yield from _node(model, message)
        case on.NodePreempted() | on.PreemptionPending():
            yield from _node(model, message)
        case on.NodeConditionChanged() | on.NodeConditionReported():
            yield from _list_reported_node(model, message)
        case (
            on.NodeTemplateChanged()
            | on.CWNodeCordoned()
            | on.CWNodeUncordoned()
            | on.GrantAcknowledged()
        ):
            return  # Each Node that gets a template or a cordon has its own event.
        case on.CWNodeDeleted() | on.CWNodeRegistrationFailed():
            yield from _stay(message)
            yield from _machine(model, message.machine_key)
            yield from _quota_of(model, message)
        case on.NodeReservationChanged():
            yield from _stay(message)
            yield from _quota_of(model, message)
        case on.CWNodeAssigned():
            yield from _stay(message)
            yield from _machine(model, message.machine_key)
        case on.CWNodeRegistered():
            yield from _stay(message)
        case on.NodePoolValidated() | on.NodePoolDeleting():
            yield POOLS, message.key
            yield from _quota_of(model, message)
        case OfRealMachine():
            yield MACHINES, message.machine_key
        case OfMachine():
            yield from _machine(model, message.machine_key)
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


def _stay(event: OfNode) -> Iterator[tuple[str, str]]:
    yield POOLS, event.key
    yield NODES, event.node_key


def _quota_of(model: ReadModel, event: OfPool) -> Iterator[tuple[str, str]]:
    """Yield the limit of a NodePool, of which it may have given up a part."""
    pool = model.pools.get(event.key)
    if pool is not None:
        yield QUOTAS, pool.ledger


def _node(model: ReadModel, event: OfNode) -> Iterator[tuple[str, str]]:
    """Yield a Node, and the NodePool if its status may name the Node."""
    yield NODES, event.node_key
    node = model.node(event)
    is_withdrawn = isinstance(event, on.NodePreemptionWithdrawn)
    if node is not None and (node.asked_since is not None or is_withdrawn):
        yield CAPACITY, offering_key(node.zone, node.instance_type)
    pool = model.pools.get(event.key)
    has_booted = isinstance(event, on.NodeUpdated) and event.phase in _BOOTED_AGAIN
    if pool is not None and (pool.is_shrinking or has_booted):
        yield POOLS, event.key


def _list_reported_node(model: ReadModel, event: ConditionSeen) -> Iterator[tuple[str, str]]:
    key = model.reported_node(event)
    if key is None:
        return
    yield NODES, key
    pool = model.pools.get(model.nodes[key].pool)
    if pool is not None and pool.is_shrinking:
        yield POOLS, pool.key


def _machine(model: ReadModel, key: MachineKey) -> Iterator[tuple[str, str]]:
    machine = model.machine(key)
    if machine is not None:
        yield MACHINES, key
        yield CAPACITY, machine.offering


def get(model: ReadModel, bucket: str, key: str) -> AnyObject | None:
    """Return an object; None if the object does not exist."""
    match bucket:
        case "nodepools":
            return _pool(model, model.pools.get(PoolKey(key)))
        case "nodes":
            return _node_object(model, model.nodes.get(NodeKey(key)))
        case "quotas":
            return model.quotas.get(LedgerKey(key))
        case "capacity":
            return model.capacity.get(OfferingKey(key))
        case "machines":
            return _machine_object(model, MachineKey(key))
        case "clusters":
            return model.clusters.get(ClusterKey(key))
    raise ValueError(f"the aggregator fills no bucket {bucket}")


def _pool(model: ReadModel, pool: NodePoolObject | None) -> NodePoolObject | None:
    """Return the NodePool with the Nodes that its status names while it shrinks."""
    if pool is None or not pool.is_shrinking:
        return pool
    return replace(pool, busy=tuple(model.nodes[key] for key in model.busy.get(pool.key, ())))


def _node_object(model: ReadModel, node: NodeObject | None) -> NodeObject | None:
    """Return a Node with the labels, annotations and taints of its template added.

    A label or an annotation of the Node itself overrides that of the template.
    """
    if node is None:
        return None
    template = model.templates.get(node.pool, Map()).get(node.template)
    if template is None:
        return node
    return replace(
        node,
        labels={**template.labels, **node.labels},
        annotations={**template.annotations, **node.annotations},
        taints=(*node.taints, *template.taints),
    )


def _machine_object(model: ReadModel, key: MachineKey) -> MachineObject | None:
    """Return a machine; one that is declared and was never added is not in production yet."""
    status, real = model.machines.get(key), model.real.get(key)
    if status is not None:
        return MachineObject(model.inventory.machines[key], status, real)
    if real is None or real.declared is None:
        return None
    waiting = Machine(real.zone, real.name, real.instance_type, real.labels, ONBOARD)
    return MachineObject(waiting, MachineStatus(real.version, real.declared), real)


def keys(model: ReadModel, bucket: str) -> Iterable[str]:
    """Return the keys of all objects in a bucket."""
    match bucket:
        case "nodepools":
            return model.pools
        case "nodes":
            return model.nodes
        case "quotas":
            return model.quotas
        case "capacity":
            return model.capacity
        case "machines":
            waiting = [key for key in model.real if key not in model.machines]
            return [*model.machines, *waiting] if waiting else model.machines
        case "clusters":
            return model.clusters
    raise ValueError(f"the aggregator fills no bucket {bucket}")


def render(item: Object) -> Document:
    """Return an object as the read model holds it."""
    assert isinstance(item, AnyObject), f"{type(item).__name__} is no object of the aggregator"
    return document(item)


def render_deprecated(item: Object) -> Document:
    """Return an object with the deprecated NodePool conditions, for readers that still use them."""
    assert isinstance(item, AnyObject), f"{type(item).__name__} is no object of the aggregator"
    return document(item, show_deprecated=True)
