"""What the agent writes to Nodes and NodePools, for a peer that writes the same.

The values are those of a NodePool with enough quota and machines: the peer computes no verdict.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from nodepool.contract.moments import rfc3339

Document = Mapping[str, Any]  # JSON of Kubernetes, whose parts are of any type.
POOL: Final = "compute.coreweave.com/node-pool"
TYPE: Final = "node.kubernetes.io/instance-type"
STATE: Final = "node.coreweave.cloud/state"
"""The label that a Node has from when it has joined its NodePool."""
RESERVED: Final = "node.coreweave.cloud/reserved"
STARTUP_TAINT: Final = {"key": RESERVED, "value": "onboard", "effect": "NoSchedule"}
"""The taint with which a kubelet registers its Node."""
TAINT: Final = {"key": "is_gpu", "value": "true", "effect": "PreferNoSchedule"}
UP: Final = (
    ("CWNodePoolScaledUp", "scaled up from {before} to {target} Nodes"),
    ("CWNodeRequestQueued", "requested {changed} Nodes"),
    ("CWNodeAssigned", "{changed} Nodes are assigned to NodePool {pool}"),
)
DOWN: Final = (
    ("CWNodePoolRemoveNodes", "removing {changed} Nodes (IdleOnly)"),
    ("CWNodeDeletionRequestSuccess", "deletion of {changed} Nodes requested"),
    ("CWDrainNode", "draining {changed} Nodes"),
    ("CWNodeDeleted", "{changed} Nodes are deleted"),
    ("CWNodePoolNodesRemoved", "{changed} Nodes removed, {target} remain"),
    ("CWNodePoolScaledDown", "scaled down from {before} to {target} Nodes"),
)
"""The reasons and the messages of the Events of a NodePool, when it grows and when it shrinks."""


def kubelet_labels(name: str) -> dict[str, str]:
    """Return the labels with which a kubelet registers its Node."""
    return {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
    }


def node_labels(pool: str, uid: str, instance_type: str) -> dict[str, str]:
    """Return the labels of a Node that has joined, beside those of its kubelet."""
    return {
        POOL: pool,
        f"{POOL}-uid": uid,
        TYPE: instance_type,
        "node.kubernetes.io/type": instance_type,
        "backend.coreweave.cloud/flavor": "infiniband",
        "compute.coreweave.com/compute-class": "default",
        "node.coreweave.cloud/class": "gpu",
        RESERVED: "demo",
        STATE: "production",
        "topology.kubernetes.io/region": "US-EAST-04",
        "topology.kubernetes.io/zone": "US-EAST-04A",
    }


def node_taints(taints: Sequence[Document]) -> list[Document]:
    """Return the taints of a Node that has joined: others stay, and that of its kubelet goes."""
    return [TAINT, *(each for each in taints if each["key"] not in (RESERVED, TAINT["key"]))]


def joined(name: str) -> Document:
    """Return the strategic merge patch of the status of a Node that joins."""
    conditions = (
        _node_condition("CWRegistered", True, "Registered", f"Node {name} is registered"),
        _node_condition("CWActive", False, "NoWorkloads", "nothing runs here"),
        _node_condition("CWNodeRemoval", False, "NotPending", f"Node {name} is to stay"),
    )
    return {"status": {"conditions": conditions}}


def leaving(name: str) -> Document:
    """Return the same of a Node that leaves."""
    message = f"Node {name} is to be removed"
    return {
        "status": {"conditions": [_node_condition("CWNodeRemoval", True, "ScaleDown", message)]}
    }


def pool_status(
    generation: int, instance_type: str, target: int, total: int, current: int, since: str
) -> Document:
    """Return the merge patch of the status of a NodePool.

    total, current: how many Nodes it has, and how many of them have joined.
    since: when it last reached its target, or left it.
    """
    verdicts = (
        ("Validated", "True", "Valid", "NodePool configuration is valid."),
        ("Capacity", "True", "Sufficient", "Sufficient capacity available."),
        ("Quota", "True", "Under", "NodePool is within instance type quota."),
        _at_target(target, total, current),
    )
    names = ("type", "status", "reason", "message")
    shown = {"observedGeneration": generation, "lastTransitionTime": since}
    status = {
        "conditions": [{**dict(zip(names, each, strict=True)), **shown} for each in verdicts],
        "currentNodes": current,
        "inProgress": max(0, target - current),
        "nodeProfile": f"{instance_type}/default",
        "observedGeneration": generation,
    }
    return {"status": status}


def _at_target(target: int, total: int, current: int) -> tuple[str, str, str, str]:
    if current == total == target:
        return "AtTarget", "True", "TargetMet", "NodePool has reached its target node count."
    reason = "UnderTarget" if current < target else "PendingDelete"
    return "AtTarget", "False", reason, f"NodePool has {current} of {target} Nodes."


def _node_condition(type_: str, holds: bool, reason: str, message: str) -> Document:
    now = moment()
    return {
        "type": type_,
        "status": "True" if holds else "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
        "lastHeartbeatTime": now,
    }


def moment() -> str:
    """Return the current time as Kubernetes writes it."""
    return rfc3339(datetime.now(UTC))
