"""Reads Nodes from the documents of the read model and of their cluster."""

from typing import Final, get_args

from agent.bus import Document, Drain, WantedNode
from agent.cluster import NodeObject
from agent.reading import UnreadableDocument, flag, moment, number, part, parts, text, texts
from nodepool.contract.model import NodePhase, Taint

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
        conditions=tuple(parts(status, "conditions")),
        deleting=metadata.get("deletionTimestamp") is not None,
        created=moment(metadata, "creationTimestamp"),
        provider_id=text(spec, "providerID"),
        pod_cidrs=_pod_cidrs(spec),
    )


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
