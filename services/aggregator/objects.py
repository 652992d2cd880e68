"""The objects of the read model: what is kept of each, and the document that readers see.

A NodePool and a Node are shown in the shape of a Kubernetes object, as
https://docs.coreweave.com/products/cks/nodes/nodepool-status describes its status.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from immutables import Map

from nodepool.contract.conditions import ORDER, Condition, deprecated, rfc3339
from nodepool.contract.events import SpecFault
from nodepool.contract.keys import PoolKey, pool_path
from nodepool.contract.model import (
    API_VERSION,
    FINALIZER,
    KIND,
    NodePhase,
    NodePoolSpec,
    RemovalReason,
    Taint,
    spec_document,
)

Document = Mapping[str, object]
"""An object as readers see it."""
_TYPES = tuple(kind.__name__ for kind in ORDER)


@dataclass(frozen=True, slots=True)
class NodePoolObject:
    """A NodePool and its status.

    key, uid, zone, created: what never changes of it.
    generation, labels, annotations, spec: the desired state.
    version: the position of its last change.
    deleting: since when it is being deleted; None for one that stays.
    in_progress: how many Nodes are assigned to it and have not joined its cluster yet.
    current: how many of its Nodes have joined.
    fault: what an invalid spec is wrong about.
    conditions: its conditions by type.
    """

    key: PoolKey
    uid: str
    zone: str
    created: datetime
    generation: int
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    spec: NodePoolSpec
    version: int
    deleting: datetime | None = None
    in_progress: int = 0
    current: int = 0
    fault: SpecFault = ""
    conditions: Map[str, Condition] = Map()


@dataclass(frozen=True, slots=True)
class NodeObject:
    """A Node of a NodePool.

    name, zone, instance_type: those of its machine.
    pool: the NodePool.
    assignment: the number of the machine's assignment to it.
    created: when it was assigned.
    version: the position of its last change.
    phase: where it is between its assignment and its deletion.
    unschedulable: whether it is cordoned.
    labels, annotations, taints: those of the Node in its cluster; none before it has joined.
    registered: when it joined its cluster; None before.
    active, work, active_since: whether anything runs on it, what, and since when.
    removal, removal_since: why it is to leave, and since when; None for a Node that stays.
    """

    name: str
    zone: str
    pool: PoolKey
    instance_type: str
    assignment: int
    created: datetime
    version: int
    phase: NodePhase = NodePhase.BOOTING
    unschedulable: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    registered: datetime | None = None
    active: bool = False
    active_since: datetime | None = None
    work: str = ""
    removal: RemovalReason | None = None
    removal_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class QuotaObject:
    """A limit, and how many Nodes count against it.

    org, zone, instance_type: what is limited.
    limit: the most Nodes; None where it was never set.
    used: how many Nodes count against it.
    version: the position of its last change.
    """

    org: str
    zone: str
    instance_type: str
    limit: int | None
    used: int
    version: int


@dataclass(frozen=True, slots=True)
class CapacityObject:
    """The machines of one type in one zone.

    version: the position of its last change.
    free, assigned, triage: how many are free, are Nodes, and are out of service.
    """

    zone: str
    instance_type: str
    version: int
    free: int = 0
    assigned: int = 0
    triage: int = 0


AnyObject = NodePoolObject | NodeObject | QuotaObject | CapacityObject


def document(item: AnyObject, *, show_deprecated: bool = False) -> Document:
    """An object as readers see it, with or without the deprecated conditions of a NodePool."""
    match item:
        case NodePoolObject():
            return _pool(item, show_deprecated=show_deprecated)
        case NodeObject():
            return _node(item)
        case QuotaObject():
            return {
                "kind": "Quota",
                "org": item.org,
                "zone": item.zone,
                "instanceType": item.instance_type,
                "limit": item.limit,
                "used": item.used,
                "resourceVersion": str(item.version),
            }
        case CapacityObject():
            return {
                "kind": "Capacity",
                "zone": item.zone,
                "instanceType": item.instance_type,
                "free": item.free,
                "assigned": item.assigned,
                "triage": item.triage,
                "resourceVersion": str(item.version),
            }


def _pool(pool: NodePoolObject, *, show_deprecated: bool) -> Document:
    _, _, name = pool_path(pool.key)
    metadata: dict[str, object] = {
        "name": name,
        "uid": pool.uid,
        "generation": pool.generation,
        "resourceVersion": str(pool.version),
        "creationTimestamp": rfc3339(pool.created),
        "finalizers": [FINALIZER],
    }
    if pool.labels:
        metadata["labels"] = dict(pool.labels)
    if pool.annotations:
        metadata["annotations"] = dict(pool.annotations)
    if pool.deleting is not None:
        metadata["deletionTimestamp"] = rfc3339(pool.deleting)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata,
        "spec": spec_document(pool.spec),
        "status": {
            "conditions": [
                condition.document() for condition in _pool_conditions(pool, show_deprecated)
            ],
            "currentNodes": pool.current,
            "inProgress": pool.in_progress,
        },
    }


def _pool_conditions(pool: NodePoolObject, show_deprecated: bool) -> Iterator[Condition]:
    yield from (pool.conditions[kind] for kind in _TYPES if kind in pool.conditions)
    if show_deprecated:
        yield from deprecated(pool.conditions, refused=pool.fault == "Zone")


def _node(node: NodeObject) -> Document:
    _, _, pool = pool_path(node.pool)
    labels = dict(node.labels) or {
        "node.kubernetes.io/instance-type": node.instance_type,
        "topology.kubernetes.io/zone": node.zone,
        "compute.coreweave.com/node-pool": pool,
    }
    spec: dict[str, object] = {"taints": [_taint(taint) for taint in node.taints]}
    if node.unschedulable:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "resourceVersion": str(node.version),
            "creationTimestamp": rfc3339(node.created),
            "labels": labels,
            "annotations": dict(node.annotations),
        },
        "spec": spec,
        "status": {"phase": node.phase.value, "conditions": list(_node_conditions(node))},
    }


def _taint(taint: Taint) -> dict[str, str]:
    shown = {"key": taint.key, "effect": taint.effect}
    return {**shown, "value": taint.value} if taint.value else shown


def _node_conditions(node: NodeObject) -> Iterator[Document]:
    registered = node.registered is not None
    yield _condition(
        "CWRegistered",
        registered,
        "Registered" if registered else "NotRegistered",
        f"Node {node.name} is {'' if registered else 'not yet '}registered",
        node.registered or node.created,
    )
    yield _condition(
        "CWActive",
        node.active,
        "WorkloadsRunning" if node.active else "NoWorkloads",
        node.work or "nothing runs here",
        node.active_since or node.registered or node.created,
    )
    leaves = node.removal is not None
    yield _condition(
        "CWNodeRemoval",
        leaves,
        node.removal.value if node.removal is not None else "NotPending",
        f"Node {node.name} is {'to be removed' if leaves else 'to stay'}",
        node.removal_since or node.created,
    )


def _condition(kind: str, holds: bool, reason: str, message: str, since: datetime) -> Document:
    return {
        "type": kind,
        "status": "True" if holds else "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": rfc3339(since),
    }
