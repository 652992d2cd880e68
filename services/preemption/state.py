"""The state of the preemption service: the spot Nodes, and how punctual their preemptions are."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

from immutables import Map

from nodepool.contract import events as on
from nodepool.contract.commands import PreemptNode
from nodepool.contract.commands_spot import AcknowledgePreemption
from nodepool.contract.keys import NodeKey, PoolKey, node_key
from nodepool.contract.messages import OfNode
from nodepool.contract.model import COMPUTE_CLASS, ComputeClass, RemovalReason
from nodepool.contract.timetable import GONE_AFTER
from nodepool.service import Context
from nodepool.state.maps import mark
from nodepool.state.values import replace
from nodepool.state.work import WithWork
from preemption import Hears, Says
from preemption.figures import Figures
from preemption.node import Node


@dataclass(frozen=True, slots=True)
class State(WithWork[NodeKey]):
    """The spot Nodes, and the Nodes that left in a preemption whose end is not published yet.

    The work queue holds each Node with a stage to publish, at once or when its drain is due.

    deleting: the NodePools that are being deleted.
    departed: the Nodes that left, by the number of their stay.
    figures: how punctual all preemptions were.
    """

    nodes: Map[NodeKey, Node] = Map()
    deleting: Map[PoolKey, bool] = Map()
    departed: Map[int, Node] = Map()
    figures: Figures = Figures()

    def node(self, message: OfNode) -> Node | None:
        """Return the spot Node that a message is about; None if it is about another stay."""
        node = self.find_node(message.node_key)
        return node if node is not None and node.assignment == message.assignment else None

    def find_node(self, key: NodeKey) -> Node | None:
        """Return the spot Node of this name; from its deletion on, its NodePool takes it along."""
        node = self.nodes.get(key)
        if node is None or node.pool not in self.deleting:
            return node
        return replace(node, goes_with_pool=True)

    def list_ended_stays(self, key: NodeKey) -> Iterator[Node]:
        """Return the stays of this Node whose end is not published yet, in their order."""
        for assignment in sorted(self.departed):
            if self.departed[assignment].key == key:
                yield self.departed[assignment]


Seen = (
    on.CWNodeRegistered
    | on.NodeActivityChanged
    | on.CWNodeDeletionRequestSuccess
    | on.NodeKept
    | on.NodePreemptionRequested
)
"""The events of other services about a Node during its stay."""
Stages = on.NodePreempted | on.PreemptionPending | on.PreemptionInProgress
"""The stages of a preemption."""


def evolve(state: State, message: Hears | Says, context: Context) -> State:
    """Return the state after a message."""
    match message:
        case on.CWNodeAssigned(node_key=key):
            if message.compute_class is not ComputeClass.SPOT:
                return state
            return _store_node(state, key, _new(message, booting=True))
        case on.CWNodeRegistered() | on.CWNodeDeletionRequestSuccess() | on.NodeKept():
            return _fold_node_event(state, message)
        case on.NodeActivityChanged() | on.NodePreemptionRequested():
            return _fold_node_event(state, message)
        case on.NodePreemptionWithdrawn():
            return _fold_withdrawal(state, message)
        case on.CWNodeDeleted() | on.CWNodeRegistrationFailed():
            return _fold_departure(state, message, context)
        case on.CWDrainNode():
            return _fold_drain(state, message, context)
        case on.NodePreempted() | on.PreemptionPending() | on.PreemptionInProgress():
            return _fold_stage(state, message, context)
        case on.NodePoolDeleting(key=pool):
            return replace(state, deleting=mark(state.deleting, pool, is_in=True))
        case on.CWNodePoolDeleted(key=pool):
            return replace(state, deleting=mark(state.deleting, pool, is_in=False))
        case on.DeletedForPreemption(org=org, cluster=cluster, node=node):
            return _fold_end(state, node_key(org, cluster, node))
        case on.PreemptionFailed(node_key=key):
            return replace(state, work=state.work.retry_later(key, context.time))
        case AcknowledgePreemption():
            return _fold_acknowledgement(state, message)
        case PreemptNode():
            return _fold_command(state, message)
        case _:
            assert_never(message)


def _new(event: on.CWNodeAssigned | on.CWNodeRegistered, *, booting: bool) -> Node:
    return Node(event.key, event.zone, event.node, event.assignment, booting)


def _fold_node_event(state: State, event: Seen) -> State:
    node = state.node(event)
    match event:
        case on.CWNodeRegistered(labels=labels):
            if labels.get(COMPUTE_CLASS) != ComputeClass.SPOT:
                return state
            # In earlier releases, the assignment of a Node did not include its compute class.
            node = replace(node, booting=False) if node else _new(event, booting=False)
        case on.NodeActivityChanged(active=active):
            node = replace(node, active=active) if node and node.active is not active else None
        case on.CWNodeDeletionRequestSuccess(request=request):
            node = replace(node, request=max(1, request)) if node else None
        case on.NodeKept(request=request):
            is_kept = node is not None and node.request == max(1, request)
            node = replace(node, request=0) if node and is_kept else None
        case on.NodePreemptionRequested(cause=cause):
            node = replace(node, requested=node.requested or cause) if node else None
        case _:
            assert_never(event)
    return state if node is None else _store_node(state, event.node_key, node)


def _fold_withdrawal(state: State, event: on.NodePreemptionWithdrawn) -> State:
    """Return the state without a request to preempt a Node, and without the retry of its begin.

    A preemption that has begun goes on, and so does a request by command.
    """
    node, key = state.node(event), event.node_key
    if node is None or not node.is_to_begin or node.requested == "Command":
        return state
    if not any(state.list_ended_stays(key)):
        state = replace(state, work=state.work.clear_failures(key))
    return _store_node(state, key, replace(node, requested=None, acknowledged=False))


def _fold_stage(state: State, event: Stages, context: Context) -> State:
    """Return the state with a Node that has come to this stage of its preemption."""
    node = state.nodes[event.node_key]
    figures = _count_stage(state.figures, node, event, context)
    state = replace(state, work=state.work.clear_failures(event.node_key), figures=figures)
    match event:
        case on.NodePreempted():
            # No drain is announced for a Node on which no work runs.
            node = replace(node, pending_since=context.time, in_progress=True)
        case on.PreemptionPending(since=since):
            node = replace(node, pending_since=since, has_timetable=True, in_progress=False)
        case on.PreemptionInProgress():
            node = replace(node, in_progress=True)
        case _:
            assert_never(event)
    return _store_node(state, event.node_key, node)


def _fold_command(state: State, command: PreemptNode) -> State:
    """Return the state in which the preemption of this Node is due to begin."""
    key = node_key(command.org, command.cluster, command.node)
    node = state.nodes.get(key)
    if node is None or node.pool != command.key or node.pending_since:
        return state
    # The request of the allocator may be taken back; the command may not.
    return _store_node(state, key, replace(node, requested="Command"))


def _fold_acknowledgement(state: State, command: AcknowledgePreemption) -> State:
    """Return the state in which the drain of this Node may begin before its time."""
    key = node_key(command.org, command.cluster, command.node)
    node = state.nodes.get(key)
    if node is None or node.pool != command.key:
        return state
    if node.in_progress or not node.may_be_acknowledged:
        return state
    return _store_node(state, key, replace(node, acknowledged=True))


def _count_stage(figures: Figures, node: Node, event: Stages, context: Context) -> Figures:
    """Return the figures after a Node came to a stage, which may begin again with a timetable."""
    if isinstance(event, on.PreemptionInProgress):
        is_early = node.due is not None and context.time < node.due and not node.acknowledged
        return figures.early(context.position) if is_early else figures
    return figures.began(node.requested or "Command") if node.pending_since is None else figures


def _fold_drain(state: State, event: on.CWDrainNode, context: Context) -> State:
    """Return the state after the beginning of a drain; the drain of a preemption counts once."""
    node = state.node(event)
    if node is None or node.pending_since is None or not node.has_timetable:
        return state
    if node.drained or not node.in_progress:
        return state
    nodes = state.nodes.set(node.key, replace(node, drained=True))
    return replace(
        state, nodes=nodes, figures=state.figures.count_drain(node.pending_since, context.time)
    )


def is_announced(node: Node, event: on.CWNodeDeleted) -> bool:
    """Return whether the end of this Node is the end of a preemption that users were told of.

    Where its NodePool removed it before it knew of the preemption, it is not.
    """
    return node.has_timetable and event.removal is RemovalReason.PREEMPTED


def _fold_departure(
    state: State, event: on.CWNodeDeleted | on.CWNodeRegistrationFailed, context: Context
) -> State:
    """Return the state after a Node left; a preempted Node is kept until `DeletedForPreemption`."""
    node = state.node(event)
    if node is None:
        return state
    state = replace(state, nodes=state.nodes.delete(node.key))
    if isinstance(event, on.CWNodeDeleted) and node.pending_since is not None:
        figures = state.figures.count_end(node.pending_since, context.time, event.lost)
        if event.lost and context.time < node.pending_since + GONE_AFTER:
            figures = figures.early(context.position)
        state = replace(state, figures=figures)
    if isinstance(event, on.CWNodeDeleted) and is_announced(node, event):
        state = replace(state, departed=state.departed.set(node.assignment, node))
    return _in_step(state, node.key)


def _fold_end(state: State, key: NodeKey) -> State:
    """Return the state in which the end of the first of these stays is published."""
    node = next(state.list_ended_stays(key))
    return _in_step(replace(state, departed=state.departed.delete(node.assignment)), key)


def _store_node(state: State, key: NodeKey, node: Node) -> State:
    return _in_step(replace(state, nodes=state.nodes.set(key, node)), key)


def _in_step(state: State, key: NodeKey) -> State:
    """Return the state with the deadline of a Node up to date; a retry stays a retry."""
    node = state.find_node(key)
    if any(state.list_ended_stays(key)) or (node is not None and state.work.is_retried(key)):
        return state
    due = node.due if node is not None else None
    work = state.work.drop(key) if due is None else state.work.put_at(key, due)
    if node is not None and node.is_to_go_on:
        work = work.put(key)
    return replace(state, work=work)
