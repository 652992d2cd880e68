"""What a Node should look like in its cluster: labels, annotations and taints the house owns."""

from collections.abc import Mapping
from dataclasses import dataclass

from nodepool.contract.affinity import machine_labels
from nodepool.contract.catalog import INSTANCE_TYPES, ZONES, Kind
from nodepool.contract.model import COMPUTE_CLASS, ComputeClass, Taint

CPU_TAINT = Taint(key="is_cpu_compute", effect="NoSchedule")
GPU_TAINT = Taint(key="is_gpu", value="true", effect="PreferNoSchedule")
CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


@dataclass(frozen=True, slots=True)
class Wish:
    """What a NodePool asks of its Nodes."""

    of: tuple[str, str, str]
    uid: str
    zone: str
    instance_type: str
    compute_class: ComputeClass
    node_labels: Mapping[str, str]
    node_annotations: Mapping[str, str]
    node_taints: tuple[Taint, ...]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


def labels(wish: Wish, node: str, topology: Mapping[str, str]) -> dict[str, str]:
    """A Node's labels in production; what the control plane manages wins over what a pool asks."""
    org, _, pool = wish.of
    return {
        **wish.node_labels,
        **machine_labels(INSTANCE_TYPES[wish.instance_type], ZONES[wish.zone]),
        **topology,
        "kubernetes.io/hostname": node,
        "node.coreweave.cloud/state": "production",
        "node.coreweave.cloud/reserved": org,
        "compute.coreweave.com/node-pool": pool,
        "compute.coreweave.com/node-pool-uid": wish.uid,
        COMPUTE_CLASS: wish.compute_class.value,
    }


def taints(wish: Wish, *, cordoned: bool) -> tuple[Taint, ...]:
    """A Node's taints: its kind's, the cordon's, then the NodePool's own."""
    gpu = INSTANCE_TYPES[wish.instance_type].kind is Kind.GPU
    kind = GPU_TAINT if gpu else CPU_TAINT
    return (kind, *((CORDON,) if cordoned else ()), *wish.node_taints)
