"""The resources of a Node, as a Kubernetes client sees them."""

from collections.abc import Mapping

from nodepool.contract.catalog import INSTANCE_TYPES
from nodepool.contract.pods import ACCELERATOR, GPU, PODS_MAX


def resources(instance_type: str) -> Mapping[str, str]:
    """Return the resources of a Node of this type; GPUs are listed under both of their names.

    See https://docs.coreweave.com/products/cks/clusters/scheduling/workload-scheduling.
    """
    entry = INSTANCE_TYPES.get(instance_type)
    if entry is None:
        return {}
    gpus = {GPU: str(entry.gpus), ACCELERATOR: str(entry.gpus)} if entry.gpus else {}
    return {
        "cpu": str(entry.vcpu),
        "memory": f"{entry.memory_ki}Ki",
        "pods": str(PODS_MAX),
        **gpus,
    }
