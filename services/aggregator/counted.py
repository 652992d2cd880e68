"""The Nodes as their use is counted, from the state of the aggregator at any moment."""

from collections.abc import Mapping

from aggregator.objects import NodeObject
from aggregator.state import State
from nodepool.contract.keys import NodeKey, pool_path
from nodepool.contract.model import COMPUTE_CLASS, ComputeClass
from nodepool.usage.nodes import Account, CountedNode


def count_nodes(state: State) -> Mapping[NodeKey, CountedNode]:
    """Return all Nodes."""
    return {key: _count_node(state, key, node) for key, node in state.read_model.nodes.items()}


def _count_node(state: State, key: NodeKey, node: NodeObject) -> CountedNode:
    unusable = state.figures.nodes.unusable.get(key)
    return CountedNode(
        assignment=node.assignment,
        account=Account(*pool_path(node.pool), node.instance_type, _class_of(state, node)),
        phase=node.phase,
        is_registered=node.is_registered,
        is_usable=node.usable,
        is_active=node.active,
        removal=node.removal,
        cordon=unusable.cordon if unusable is not None else "",
        cause=unusable.cause if unusable is not None else "",
    )


def _class_of(state: State, node: NodeObject) -> str:
    """Return the compute class of a Node, which does not change while its NodePool exists."""
    pool = state.read_model.pools.get(node.pool)
    if pool is not None:
        return pool.spec.compute_class.value
    return node.labels.get(COMPUTE_CLASS, ComputeClass.DEFAULT.value)
