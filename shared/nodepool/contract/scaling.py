"""Scaling a NodePool: its spec with another number of Nodes, or why it cannot have that number."""

from nodepool.contract.catalog import RACK_SIZE
from nodepool.contract.model import NodePoolSpec
from nodepool.contract.rules import Refusal


def scale_spec(spec: NodePoolSpec, target: int) -> NodePoolSpec:
    """Return the spec with another number of Nodes, in racks if the spec counts racks."""
    if spec.target_racks is None:
        return spec.model_copy(update={"target_nodes": target})
    return spec.model_copy(update={"target_racks": target // (spec.rack_size or RACK_SIZE)})


def unscalable(spec: NodePoolSpec, target: int) -> Refusal | None:
    """Return why a target in racks cannot be scaled to so many Nodes; None where it can."""
    size = spec.rack_size or RACK_SIZE
    if spec.target_racks is None or not target % size:
        return None
    message = f"must be a multiple of {size}, the Nodes of one rack: this NodePool has targetRacks"
    return Refusal("targetNodes", message)
