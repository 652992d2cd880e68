"""What every Node of a NodePool has while it is in production and takes work."""

from collections.abc import Sequence

from nodepool.contract.affinity import machine_labels
from nodepool.contract.catalog import InstanceType, Kind, Zone
from nodepool.contract.keys import PoolKey, pool_path
from nodepool.contract.model import (
    COMPUTE_CLASS,
    CPU_TAINT,
    GPU_TAINT,
    MANAGED_TAINTS,
    RESERVED,
    ComputeClass,
    Taint,
)

PRODUCTION = "production"
"""The `node.coreweave.cloud/state` of a Node that takes work."""
_MANAGED = frozenset((taint.key, taint.effect) for taint in MANAGED_TAINTS)


def production_labels(
    pool: PoolKey, uid: str, instance_type: InstanceType, zone: Zone, compute_class: ComputeClass
) -> dict[str, str]:
    """Return the labels that take precedence over the labels of the NodePool.

    Labels that differ between Nodes of the NodePool, such as the name, are not included.
    """
    org, _, name = pool_path(pool)
    return {
        **machine_labels(instance_type, zone),
        "node.coreweave.cloud/state": PRODUCTION,
        RESERVED: org,
        "compute.coreweave.com/node-pool": name,
        "compute.coreweave.com/node-pool-uid": uid,
        COMPUTE_CLASS: compute_class.value,
    }


def kind_taint(instance_type: InstanceType) -> Taint:
    """Return the taint that tells whether a Node computes with GPUs or with CPUs."""
    return GPU_TAINT if instance_type.kind is Kind.GPU else CPU_TAINT


def asked_taints(taints: Sequence[Taint]) -> tuple[Taint, ...]:
    """Return the taints that Nodes get because their NodePool asks for the taints.

    Managed taints are left out, because a stored spec may hold a managed taint.
    """
    return tuple(taint for taint in taints if (taint.key, taint.effect) not in _MANAGED)


def production_taints(instance_type: InstanceType, taints: Sequence[Taint]) -> tuple[Taint, ...]:
    """Return the taints of a Node: the taint of its kind, then the taints of its NodePool."""
    return (kind_taint(instance_type), *asked_taints(taints))
