"""What the lifecycle service says: the next step of each Node, from its boot to its deletion."""

from collections.abc import Iterable, Iterator
from typing import assert_never

from lifecycle import Hears, Says
from lifecycle.node import Node
from lifecycle.node_events import registered, registration_failed, updated
from lifecycle.removal import cancelled, observed, preempted, requested
from lifecycle.state import BOOT_MAX, State, evolve
from lifecycle.template import NodeTemplate
from nodepool.contract.events import (
    CWNodeAssigned,
    CWNodeDeletionRequestSuccess,
    CWNodePoolDeleted,
    CWNodePoolMetadata,
    CWNodePoolNodesRemoveError,
    MachineBooted,
    MachineFailed,
    NodeObserved,
    NodePoolValidated,
    NodePreempted,
    NodeRemovalCancelled,
    PreemptionInProgress,
    PreemptionOverdue,
    PreemptionPending,
)
from nodepool.contract.keys import MachineKey, PoolKey, pool_path
from nodepool.contract.messages import pool_fields
from nodepool.service import Context, Failure, Reconciler, Service

NodeMessage = (
    MachineBooted
    | MachineFailed
    | NodeObserved
    | CWNodeDeletionRequestSuccess
    | NodeRemovalCancelled
    | PreemptionPending
    | PreemptionInProgress
    | PreemptionOverdue
)
"""The messages that lead to the next step of a Node."""


def decide(state: State, message: Hears, _context: Context) -> Iterator[Says]:
    """The next step of the Node that a message is about; a message on an earlier stay has none."""
    match message:
        case (
            MachineBooted()
            | MachineFailed()
            | NodeObserved()
            | CWNodeDeletionRequestSuccess()
            | NodeRemovalCancelled()
            | PreemptionPending()
            | PreemptionInProgress()
            | PreemptionOverdue()
        ):
            node = state.node(message)
            if node is not None:
                yield from _next_step(state.templates[node.pool], node, message)
        case NodePoolValidated() | NodePreempted() | CWNodePoolDeleted() | CWNodeAssigned():
            return
        case _:
            assert_never(message)


def _next_step(template: NodeTemplate, node: Node, message: NodeMessage) -> Iterator[Says]:
    match message:
        case MachineBooted():
            if node.booting:
                yield registered(template, node)
        case MachineFailed(cause=cause):
            if node.booting:
                yield registration_failed(template, node, cause)
        case NodeObserved():
            yield from observed(template, node, message)
        case CWNodeDeletionRequestSuccess():
            yield from requested(template, node)
        case NodeRemovalCancelled():
            yield from cancelled(template, node)
        case PreemptionPending() | PreemptionInProgress() | PreemptionOverdue():
            yield from preempted(template, node, message)
        case _:
            assert_never(message)


def reconcile(state: State, key: PoolKey | MachineKey, context: Context) -> Iterator[Says]:
    """What is missing for a NodePool whose template changed, or for a Node that has to boot."""
    if key in state.templates:
        yield from _template_changed(state, PoolKey(key))
    else:
        yield from _boot_overdue(state, MachineKey(key), context)


def concerns(_state: State, message: Hears) -> PoolKey | None:
    """A NodePool whose desired state changed is reconciled at once."""
    match message:
        case NodePoolValidated(key=key):
            return key
        case CWNodePoolDeleted() | CWNodeAssigned() | MachineBooted() | MachineFailed():
            return None
        case NodeObserved() | CWNodeDeletionRequestSuccess() | NodeRemovalCancelled():
            return None
        case NodePreempted():
            return None
        case PreemptionPending() | PreemptionInProgress() | PreemptionOverdue():
            return None
        case _:
            assert_never(message)


def _template_changed(state: State, key: PoolKey) -> Iterator[Says]:
    """An update of each Node that looks like an older template; then the announcement, once."""
    template = state.templates[key]
    if state.announced[key] == template.version:
        return
    for machine in sorted(state.members.get(key, ())):
        node = state.nodes[machine]
        if not node.booting and node.revision < template.revision:
            yield updated(template, node, node.phase, node.removal)
    _, _, pool = pool_path(key)
    yield CWNodePoolMetadata(**pool_fields(key), message=f"metadata of NodePool {pool} is updated")


def _boot_overdue(state: State, key: MachineKey, context: Context) -> Iterator[Says]:
    node = state.nodes.get(key)
    if node is not None and node.booting and node.boot_by <= context.time:
        minutes = int(BOOT_MAX.total_seconds() // 60)
        cause = f"it did not join its cluster within {minutes} minutes"
        yield registration_failed(state.templates[node.pool], node, cause)


def on_failure(_state: State, failure: Failure) -> Iterable[Says]:
    """A removal that failed shows on its NodePool; what else fails ends by its own deadline."""
    if failure.input == CWNodeDeletionRequestSuccess.__name__ and failure.pool is not None:
        text = f"internal error while removing a Node: {failure.cause}"
        yield CWNodePoolNodesRemoveError(**pool_fields(failure.pool), message=text)


SERVICE: Service[State, Hears, Says] = Service(
    name="lifecycle",
    hears=Hears,
    says=Says,
    initial=State(),
    evolve=evolve,
    decide=decide,
    reconciler=Reconciler(reconcile, concerns),
    on_failure=on_failure,
)
