"""The rows of the read model: what is kept of each object, and how readers see it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from immutables import Map

from nodepool.contract.conditions import ORDER, AtTarget, Condition, deprecated, rfc3339
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
_TYPES = tuple(kind.__name__ for kind in ORDER)


@dataclass(frozen=True, slots=True)
class NodePoolObject:
    """A NodePool and its status; `version` is the position that touched it last."""

    of: tuple[str, str, str]
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
    fault: str = ""
    conditions: Map[str, Condition] = Map()


@dataclass(frozen=True, slots=True)
class NodeObject:
    """A Node of a NodePool, as its cluster sees it."""

    name: str
    zone: str
    pool: str
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
    """A limit, and how much of it is granted; None for a limit that was never set."""

    org: str
    zone: str
    instance_type: str
    limit: int | None
    used: int
    version: int


@dataclass(frozen=True, slots=True)
class CapacityObject:
    """The machines of one type in one zone: how many are free, assigned, and in triage."""

    zone: str
    instance_type: str
    version: int
    free: int = 0
    assigned: int = 0
    triage: int = 0


Row = NodePoolObject | NodeObject | QuotaObject | CapacityObject


def document(row: Row, *, show_deprecated: bool = False) -> Document:
    """A row as readers see it; the shape of a Kubernetes object where it is one."""
    match row:
        case NodePoolObject():
            return _pool(row, show_deprecated=show_deprecated)
        case NodeObject():
            return _node(row)
        case QuotaObject():
            return {
                "kind": "Quota",
                "org": row.org,
                "zone": row.zone,
                "instanceType": row.instance_type,
                "limit": row.limit,
                "used": row.used,
                "resourceVersion": str(row.version),
            }
        case CapacityObject():
            return {
                "kind": "Capacity",
                "zone": row.zone,
                "instanceType": row.instance_type,
                "free": row.free,
                "assigned": row.assigned,
                "triage": row.triage,
                "resourceVersion": str(row.version),
            }


def _pool(row: NodePoolObject, *, show_deprecated: bool) -> Document:
    metadata: dict[str, object] = {
        "name": row.of[2],
        "uid": row.uid,
        "generation": row.generation,
        "resourceVersion": str(row.version),
        "creationTimestamp": rfc3339(row.created),
        "finalizers": [FINALIZER],
    }
    if row.labels:
        metadata["labels"] = dict(row.labels)
    if row.annotations:
        metadata["annotations"] = dict(row.annotations)
    if row.deleting is not None:
        metadata["deletionTimestamp"] = rfc3339(row.deleting)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata,
        "spec": spec_document(row.spec),
        "status": {
            "conditions": [c.document() for c in _conditions(row, show_deprecated)],
            "currentNodes": row.current,
            "inProgress": row.in_progress,
        },
    }


def _conditions(row: NodePoolObject, show_deprecated: bool) -> Iterable[Condition]:
    found = [row.conditions[kind] for kind in _TYPES if kind in row.conditions]
    if show_deprecated:
        found += deprecated(row.conditions, refused=row.fault == "Zone")
    return found


def _node(row: NodeObject) -> Document:
    _, _, pool = row.pool.split("/")
    labels = dict(row.labels) or {
        "node.kubernetes.io/instance-type": row.instance_type,
        "topology.kubernetes.io/zone": row.zone,
        "compute.coreweave.com/node-pool": pool,
    }
    spec: dict[str, object] = {"taints": [_taint(taint) for taint in row.taints]}
    if row.unschedulable:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": row.name,
            "resourceVersion": str(row.version),
            "creationTimestamp": rfc3339(row.created),
            "labels": labels,
            "annotations": dict(row.annotations),
        },
        "spec": spec,
        "status": {"phase": row.phase.value, "conditions": list(_node_conditions(row))},
    }


def _taint(taint: Taint) -> dict[str, str]:
    document = {"key": taint.key, "effect": taint.effect}
    return {**document, "value": taint.value} if taint.value else document


def _node_conditions(row: NodeObject) -> Iterable[Document]:
    registered = row.registered is not None
    yield _condition(
        "CWRegistered",
        registered,
        "Registered" if registered else "NotRegistered",
        f"Node {row.name} is {'' if registered else 'not yet '}registered",
        row.registered or row.created,
    )
    yield _condition(
        "CWActive",
        row.active,
        "WorkloadsRunning" if row.active else "NoWorkloads",
        row.work or "nothing runs here",
        row.active_since or row.registered or row.created,
    )
    leaves = row.removal is not None
    yield _condition(
        "CWNodeRemoval",
        leaves,
        row.removal.value if row.removal is not None else "NotPending",
        f"Node {row.name} is {'to be removed' if leaves else 'to stay'}",
        row.removal_since or row.created,
    )


def _condition(kind: str, holds: bool, reason: str, message: str, since: datetime) -> Document:
    return {
        "type": kind,
        "status": "True" if holds else "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": rfc3339(since),
    }


TARGET_MESSAGES = {
    AtTarget.UNDER_TARGET: "NodePool has {current} of {target} Nodes.",
    AtTarget.OVER_TARGET: "NodePool has {current} Nodes and wants {target}; {strategy} removes.",
    AtTarget.PENDING_DELETE: "NodePool is being deleted, {held} Nodes are still to be removed.",
}
