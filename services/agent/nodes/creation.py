"""Creates a missing Node object, which the kubelet of the Node then uses."""

from collections.abc import Collection, Mapping
from typing import Final

from agent.actions import Create
from agent.nodes.marks import (
    STARTUP_TAINT,
    annotations_of,
    build_record,
    claim,
    foreign_taints,
    labels_of,
    taint_documents,
    taints_of,
)
from agent.nodes.objects import NodeObject, WantedNode
from agent.nodes.record import Managed, read_record
from agent.reading import Document
from nodepool.contract.catalog import INSTANCE_TYPES
from nodepool.contract.log import LogId
from nodepool.contract.well_known import MANAGED

KUBELET_LABELS: Final = {"kubernetes.io/os": "linux"}
"""The labels that each kubelet registers with the same value."""
INSTANCE_TYPE_LABEL: Final = "node.kubernetes.io/instance-type"


def build_creation(
    wanted: WantedNode, pool_uid: str, log: LogId, last_seen: NodeObject | None
) -> Create:
    """Return the creation of a Node as the bus has it, with what others gave the last object.

    A kubelet registers its labels once, when it starts: a kubelet that keeps running does not
    restore them. Pods have to wait until the Node is ready.
    """
    state, taints = claim(wanted, log), [STARTUP_TAINT]
    labels = _labels(wanted)
    annotations: dict[str, str] = {}
    if last_seen is not None:
        old = read_record(last_seen) or Managed(log)
        labels |= _foreign(last_seen.labels, old.labels)
        annotations |= _foreign(last_seen.annotations, (*old.annotations, MANAGED))
        taints += foreign_taints(last_seen, old)
    if wanted.registered:
        state = build_record(wanted, pool_uid, state, wanted.unschedulable, wanted.cordon)
        labels |= labels_of(wanted, pool_uid)
        annotations |= annotations_of(wanted)
        own = taints_of(wanted)
        keys = {(taint.key, taint.effect) for taint in own}
        taints = [*own, *(each for each in taints if (each.key, each.effect) not in keys)]
    annotations[MANAGED] = state.text()
    spec: dict[str, object] = {
        "taints": taint_documents(taints, {}),
        **_copy_foreign_spec(last_seen),
    }
    if wanted.registered and wanted.unschedulable:
        spec["unschedulable"] = True
    metadata = {"name": wanted.name, "labels": labels, "annotations": annotations}
    document = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}
    return Create("Node", document)


def _labels(wanted: WantedNode) -> dict[str, str]:
    """Return the labels that each kubelet registers."""
    labels = {"kubernetes.io/hostname": wanted.name, **KUBELET_LABELS}
    instance_type = INSTANCE_TYPES.get(wanted.labels.get(INSTANCE_TYPE_LABEL, ""))
    if instance_type is not None:
        labels["kubernetes.io/arch"] = instance_type.arch
    return labels


def _foreign(found: Mapping[str, str], own: Collection[str]) -> Mapping[str, str]:
    return {key: value for key, value in found.items() if key not in own}


def _copy_foreign_spec(last_seen: NodeObject | None) -> Document:
    """Return the fields that others have set in the spec of a Node."""
    spec: dict[str, object] = {}
    if last_seen is not None and last_seen.provider_id:
        spec["providerID"] = last_seen.provider_id
    if last_seen is not None and last_seen.pod_cidrs:
        spec |= {"podCIDR": last_seen.pod_cidrs[0], "podCIDRs": list(last_seen.pod_cidrs)}
    return spec
