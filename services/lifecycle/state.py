"""The state of the lifecycle service: NodePools, their Nodes, and how those should look."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import assert_never

from immutables import Map

from lifecycle import Hears, Says
from lifecycle.node import Node, changed
from lifecycle.template import NodeTemplate, first, following
from nodepool.contract.events import (
    CWDrainNode,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodeDeletionRequestSuccess,
    CWNodePoolDeleted,
    CWNodePoolMetadata,
    CWNodePoolNodesRemoveError,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    MachineBooted,
    MachineFailed,
    NodeActivityChanged,
    NodeKept,
    NodeObserved,
    NodePoolValidated,
    NodePreempted,
    NodeRemovalCancelled,
    NodeRemovalRecovered,
    NodeUpdated,
    PreemptionInProgress,
    PreemptionOverdue,
    PreemptionPending,
)
from nodepool.contract.keys import MachineKey, PoolKey
from nodepool.contract.messages import OfNode
from nodepool.service import Context
from nodepool.state.work import WithWork

BOOT_MAX = timedelta(minutes=30)
"""How long a machine may take to boot and join; the documented delivery takes 20 to 30 minutes."""

OfStay = OfNode | MachineBooted | MachineFailed | NodeObserved
"""The messages about one stay of a machine in a NodePool."""


@dataclass(frozen=True, slots=True)
class State(WithWork[PoolKey | MachineKey]):
    """NodePools and their Nodes.

    templates: what the Nodes of each NodePool look like.
    announced: the version of each template that the last `CWNodePoolMetadata` was about.
    nodes: every Node, by its machine.
    members: the Nodes of each NodePool that has any.
    work: when each booting Node has to be registered; and the NodePools with so many Nodes that one
        step could not update them all.
    """

    templates: Map[PoolKey, NodeTemplate] = Map()
    announced: Map[PoolKey, int] = Map()
    nodes: Map[MachineKey, Node] = Map()
    members: Map[PoolKey, Map[MachineKey, bool]] = Map()

    def node(self, message: OfStay) -> Node | None:
        """The Node that a message is about; None where it is about an earlier stay."""
        node = self.nodes.get(message.machine_key)
        return node if node is not None and node.assignment == message.assignment else None


def evolve(state: State, message: Hears | Says, context: Context) -> State:
    """The state after a message; one about an earlier stay of a machine changes nothing."""
    match message:
        case NodePoolValidated():
            return _specified(state, message)
        case CWNodePoolDeleted():
            return _pool_deleted(state, message)
        case CWNodePoolMetadata(key=key):
            return _announced(state, state.templates.get(key))
        case CWNodeAssigned():
            return _assigned(state, message, context)
        case CWNodeRegistered() | NodeUpdated():
            return _looks_current(state, message)
        case CWNodeDeleted() | CWNodeRegistrationFailed():
            return _left(state, message)
        case (
            NodeObserved()
            | NodeActivityChanged()
            | CWDrainNode()
            | CWNodeDeletionRequestSuccess()
            | PreemptionPending()
            | PreemptionInProgress()
        ):
            node = state.node(message)
            return state if node is None else _stored(state, message, changed(node, message))
        case (
            MachineBooted()
            | MachineFailed()
            | NodeRemovalCancelled()
            | PreemptionOverdue()
            | NodeKept()
            | NodePreempted()
            | NodeRemovalRecovered()
            | CWNodePoolNodesRemoveError()
        ):
            return state
        case _:
            assert_never(message)


def _specified(state: State, event: NodePoolValidated) -> State:
    key, before = event.key, state.templates.get(event.key)
    if before is not None and before.uid == event.uid:
        return replace(state, templates=state.templates.set(key, following(before, event)))
    template = first(event)
    return _announced(replace(state, templates=state.templates.set(key, template)), template)


def _announced(state: State, template: NodeTemplate | None) -> State:
    if template is None:
        return state
    return replace(state, announced=state.announced.set(template.key, template.version))


def _pool_deleted(state: State, event: CWNodePoolDeleted) -> State:
    template = state.templates.get(event.key)
    if template is None or template.uid != event.uid:
        return state
    return replace(
        state,
        templates=state.templates.delete(event.key),
        announced=state.announced.delete(event.key),
        work=state.work.drop(event.key),
    )


def _assigned(state: State, event: CWNodeAssigned, context: Context) -> State:
    key, boot_by = event.machine_key, context.time + BOOT_MAX
    node = Node(event.node, event.key, event.assignment, event.labels, boot_by)
    members = state.members.get(event.key, Map()).set(key, True)
    # A step that was stopped at its bound may have left the last stay of the machine in the queue.
    return replace(
        _stored(state, event, node),
        members=state.members.set(event.key, members),
        work=state.work.drop(key).put_at(key, boot_by),
    )


def _looks_current(state: State, event: CWNodeRegistered | NodeUpdated) -> State:
    """The state with a Node, booted and in its cluster, that looks like its template."""
    node = state.node(event)
    if node is None:
        return state
    node = replace(changed(node, event), revision=state.templates[node.pool].revision)
    return replace(_stored(state, event, node), work=state.work.drop(event.machine_key))


def _left(state: State, event: CWNodeDeleted | CWNodeRegistrationFailed) -> State:
    node, key = state.node(event), event.machine_key
    if node is None:
        return state
    rest = state.members[node.pool].delete(key)
    members = state.members
    return replace(
        state,
        nodes=state.nodes.delete(key),
        members=members.set(node.pool, rest) if rest else members.delete(node.pool),
        work=state.work.drop(key),
    )


def _stored(state: State, message: OfStay, node: Node) -> State:
    return replace(state, nodes=state.nodes.set(message.machine_key, node))
