"""Reads Nodes from the documents of the read model and of their cluster."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, get_args

from agent.actions import Drain
from agent.reading import (
    Document,
    UnreadableDocument,
    flag,
    moment,
    number,
    part,
    parts,
    text,
    texts,
)
from nodepool.contract.events import NodeConditionReported, NodeReported
from nodepool.contract.model import NodePhase, Taint


@dataclass(frozen=True, slots=True)
class WantedNode:
    """A Node of the read model.

    name, zone, pool, assignment: its name, zone and NodePool, and the number of the machine's stay.
    version: its `resourceVersion`.
    phase: its phase between its assignment and its deletion.
    registered: whether it has joined its cluster; its object shows the fields below only then.
    unschedulable, cordon: whether it must be cordoned, and the number of its last cordon.
    lock: the number of the lock that a Slurm job holds on it or waits for; 0 without a lock.
    drain: whether to drain it, and how.
    request: the number of the request for its condition Ready; 0 if the request is answered.
    labels, annotations, taints: those that the control plane owns.
    conditions: its conditions in the read model.
    """

    name: str
    zone: str
    pool: str
    assignment: int
    version: str
    phase: NodePhase
    registered: bool = False
    unschedulable: bool = False
    cordon: int = 0
    lock: int = 0
    drain: Drain = ""
    request: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    conditions: tuple[Document, ...] = ()


@dataclass(frozen=True, slots=True)
class Reported:
    """What this process last reported about a Node.

    node: the last report of the Node; None if there was no report.
    conditions: the last report of each condition, by type.
    drain: which drain of the Node the last report answered.
    """

    node: NodeReported | None = None
    conditions: Mapping[str, NodeConditionReported] = field(default_factory=dict)
    drain: Drain = ""


NOTHING_REPORTED: Final = Reported()
"""The reports about a Node by a process that has just started."""


@dataclass(frozen=True, slots=True)
class NodeObject:
    """A Node object.

    name, uid, version: from its metadata; version is its `resourceVersion`.
    labels, annotations: from its metadata.
    taints, unschedulable: from its spec.
    taints_added: the `timeAdded` of each taint that has one, by `key:effect`.
    conditions: from its status.
    deleting: whether it has a `deletionTimestamp`.
    created: its `creationTimestamp`; None if it has none.
    provider_id, pod_cidrs: from its spec; other components set them.
    """

    name: str
    uid: str
    version: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    taints_added: Mapping[str, str] = field(default_factory=dict)
    unschedulable: bool = False
    conditions: tuple[Document, ...] = ()
    deleting: bool = False
    created: datetime | None = None
    provider_id: str = ""
    pod_cidrs: tuple[str, ...] = ()


POOL_LABEL: Final = "compute.coreweave.com/node-pool"
"""The label that names the NodePool of a Node."""
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
"""The label that names the zone of a Node."""


def wanted_node(document: Document, name: str) -> WantedNode:
    """Return a Node of the read model by this name; raise UnreadableDocument if it is invalid."""
    metadata, spec, status = (part(document, field) for field in ("metadata", "spec", "status"))
    labels = texts(metadata, "labels")
    conditions = tuple(parts(status, "conditions"))
    return WantedNode(
        name=name,
        zone=text(labels, ZONE_LABEL, None),
        pool=text(labels, POOL_LABEL, None),
        assignment=number(status, "assignment"),
        version=text(metadata, "resourceVersion"),
        phase=_phase(status),
        registered=any(
            each.get("type") == "CWRegistered" and each.get("status") == "True"
            for each in conditions
        ),
        unschedulable=flag(spec, "unschedulable"),
        cordon=number(status, "cordon"),
        lock=number(status, "lock"),
        drain=_drain(status),
        request=number(status, "reportRequest"),
        labels=labels,
        annotations=texts(metadata, "annotations"),
        taints=_taints(spec),
        conditions=conditions,
    )


def node_object(document: Document) -> NodeObject:
    """Return a Node of a Kubernetes cluster; raise UnreadableDocument if it is invalid."""
    metadata, spec, status = (part(document, field) for field in ("metadata", "spec", "status"))
    added = {
        f"{each.get('key')}:{each.get('effect')}": text(each, "timeAdded")
        for each in parts(spec, "taints")
        if each.get("timeAdded") is not None
    }
    return NodeObject(
        name=text(metadata, "name", None),
        uid=text(metadata, "uid", None),
        version=text(metadata, "resourceVersion"),
        labels=texts(metadata, "labels"),
        annotations=texts(metadata, "annotations"),
        taints=_taints(spec),
        taints_added=added,
        unschedulable=flag(spec, "unschedulable"),
        conditions=tuple(map(_intern_condition, parts(status, "conditions"))),
        deleting=metadata.get("deletionTimestamp") is not None,
        created=moment(metadata, "creationTimestamp"),
        provider_id=text(spec, "providerID"),
        pod_cidrs=_pod_cidrs(spec),
    )


def _intern_condition(condition: Document) -> Document:
    """Return a condition whose texts are stored once for all Nodes that have them."""
    return {
        sys.intern(key): sys.intern(value) if isinstance(value, str) else value
        for key, value in condition.items()
    }


def _pod_cidrs(spec: Document) -> tuple[str, ...]:
    value = spec.get("podCIDRs")
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _phase(status: Document) -> NodePhase:
    value = status.get("phase")
    phase = next((each for each in NodePhase if each.value == value), None)
    if phase is None:
        raise UnreadableDocument("phase", f"one of {', '.join(NodePhase)}", value)
    return phase


def _drain(status: Document) -> Drain:
    value = status.get("drain") or ""
    drain: Drain | None = next((each for each in get_args(Drain) if each == value), None)
    if drain is None:
        raise UnreadableDocument("drain", "safe or forced", value)
    return drain


def _taints(spec: Document) -> tuple[Taint, ...]:
    return tuple(
        Taint(key=text(each, "key", None), value=text(each, "value"), effect=text(each, "effect"))
        for each in parts(spec, "taints")
    )
