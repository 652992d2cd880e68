"""The events that report an input, or a key of the work queue, that could not be processed."""

from collections.abc import Iterable

from lifecycle import Says
from lifecycle.known import State
from lifecycle.node import Node
from nodepool.contract.events import (
    CWNodeDeletionRequestSuccess,
    CWNodePoolNodesRemoveError,
    NodeUpdateFailed,
)
from nodepool.contract.keys import FLEET, MachineKey, PoolKey, machine_key
from nodepool.contract.messages import pool_fields
from nodepool.service import Failure


def on_failure(state: State, failure: Failure) -> Iterable[Says]:
    """Yield that the NodePool is reconciled again later; if Nodes leave, tell users once."""
    key = _find_failed_pool(state, failure)
    if key is None:
        return
    uid, is_removal = state.templates[key].uid, _is_removal(state, failure)
    work = "removing" if is_removal else "updating"
    text = f"internal error while {work} a Node: {failure.cause}"
    yield NodeUpdateFailed(**pool_fields(key), uid=uid, message=text)
    if is_removal and state.told.get(key) != text:
        yield CWNodePoolNodesRemoveError(**pool_fields(key), uid=uid, message=text)


def _find_failed_pool(state: State, failure: Failure) -> PoolKey | None:
    """Return the NodePool that a failure is about; None if the failure is about no NodePool."""
    node = _failed_node(state, failure)
    key = node.pool if node is not None else failure.pool or PoolKey(failure.key)
    return key if key in state.templates else None


def _is_removal(state: State, failure: Failure) -> bool:
    """Return whether a Node that leaves could not be taken further."""
    node = _failed_node(state, failure)
    if node is not None:
        return node.exit.reason is not None
    if not failure.key:
        return failure.input == CWNodeDeletionRequestSuccess.__name__
    machines = state.members.get(PoolKey(failure.key), ())
    return any(state.nodes[machine].exit.reason is not None for machine in machines)


def _failed_node(state: State, failure: Failure) -> Node | None:
    """Return the Node that a failure is about; None if the failure is about a whole NodePool."""
    fleet, zone, machine = failure.address.path
    reported = machine_key(zone, machine) if fleet == FLEET else MachineKey("")
    return state.nodes.get(MachineKey(failure.key) or reported)
