"""The state of the preemption service: the spot Nodes, and how far their preemptions have come."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from immutables import Map

from nodepool.contract.commands import PreemptNode
from nodepool.contract.events import (
    CWNodeDeleted,
    CWNodeRegistered,
    DeletedForPreemption,
    NodePreempted,
    PreemptionInProgress,
    PreemptionOverdue,
    PreemptionPending,
)
from nodepool.contract.keys import NodeKey, PoolKey, node_key
from nodepool.contract.model import COMPUTE_CLASS, ComputeClass
from nodepool.service import Context
from nodepool.state.work import WithWork
from preemption import Hears, Says
from preemption.timetable import Stage, next_moment


@dataclass(frozen=True, slots=True)
class Node:
    """A spot Node.

    pool: the NodePool that it belongs to.
    zone, name: its machine.
    assignment: which stay of the machine it is.
    pending_since: when its preemption began; None while it is not preempted.
    reached: the stage of its preemption that was published last.
    """

    pool: PoolKey
    zone: str
    name: str
    assignment: int
    pending_since: datetime | None = None
    reached: Stage = Stage.PENDING

    @property
    def due(self) -> datetime | None:
        """When the next stage of its preemption is due; None where there is none."""
        if self.pending_since is None:
            return None
        return next_moment(self.pending_since, self.reached)


@dataclass(frozen=True, slots=True)
class State(WithWork[NodeKey]):
    """The spot Nodes; the work queue holds each when the next stage of its preemption is due."""

    nodes: Map[NodeKey, Node] = Map()


def evolve(state: State, message: Hears | Says, _context: Context) -> State:
    """The state after a message."""
    match message:
        case CWNodeRegistered():
            return _registered(state, message)
        case CWNodeDeleted():
            return _deleted(state, message)
        case PreemptionPending(node_key=key, since=since):
            pending = replace(state.nodes[key], reached=Stage.PENDING, pending_since=since)
            return _stored(state, key, pending)
        case PreemptionInProgress(node_key=key):
            return _stored(state, key, replace(state.nodes[key], reached=Stage.IN_PROGRESS))
        case PreemptionOverdue(node_key=key):
            return _stored(state, key, replace(state.nodes[key], reached=Stage.OVER))
        case DeletedForPreemption(org=org, cluster=cluster, node=node):
            return _forgotten(state, node_key(org, cluster, node))
        case PreemptNode() | NodePreempted():
            return state
        case _:
            assert_never(message)


def _registered(state: State, event: CWNodeRegistered) -> State:
    if event.labels.get(COMPUTE_CLASS) != ComputeClass.SPOT:
        return state
    node = Node(event.key, event.zone, event.node, event.assignment)
    return _stored(state, event.node_key, node)


def _deleted(state: State, event: CWNodeDeleted) -> State:
    """A preempted Node stays until `DeletedForPreemption`, which is said in the same step."""
    node = state.nodes.get(event.node_key)
    if node is None or node.assignment != event.assignment:
        return state
    if node.pending_since is None:
        return _forgotten(state, event.node_key)
    return replace(state, work=state.work.drop(event.node_key))


def _stored(state: State, key: NodeKey, node: Node) -> State:
    """The state with this Node, and its deadline in step with it."""
    work = state.work.drop(key) if node.due is None else state.work.put_at(key, node.due)
    return replace(state, nodes=state.nodes.set(key, node), work=work)


def _forgotten(state: State, key: NodeKey) -> State:
    return replace(state, nodes=state.nodes.delete(key), work=state.work.drop(key))
