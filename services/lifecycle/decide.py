"""What the lifecycle service says: the next step of each Node, from its boot to its deletion."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from functools import partial
from typing import TypeVar, assert_never

from lifecycle import Hears, Says
from lifecycle.lock_steps import given_up, with_lock_ends
from lifecycle.locking import lock, unlock
from lifecycle.node import ANSWER_WITHIN, Node
from lifecycle.node_events import registration_failed, template_changed, updated
from lifecycle.removal import missing, overdue, preempted, requested
from lifecycle.state import BOOT_MAX, State, evolve
from lifecycle.template import NodeTemplate
from nodepool.contract.commands import LockNode, UnlockNode
from nodepool.contract.events import (
    CWNodeAssigned,
    CWNodeDeletionRequestSuccess,
    CWNodePoolDeleted,
    CWNodePoolMetadata,
    CWNodePoolNodesRemoveError,
    CWNodeRegistered,
    MachineBooted,
    MachineFailed,
    NodeLockChanged,
    NodeObserved,
    NodePoolValidated,
    NodePreempted,
    NodeRemovalCancelled,
    NodeRemovalRecovered,
    NodeTemplateChanged,
    NodeUpdated,
    NodeUpdateFailed,
    PreemptionInProgress,
    PreemptionOverdue,
    PreemptionPending,
)
from nodepool.contract.keys import FLEET, MachineKey, PoolKey, machine_key, pool_path
from nodepool.contract.messages import Message, pool_fields
from nodepool.contract.outcomes import CommandOutcome
from nodepool.service import Context, Failure, Reconciler, Service

E = TypeVar("E", bound=Message)

NodeMessage = (
    MachineBooted
    | MachineFailed
    | NodeObserved
    | CWNodeDeletionRequestSuccess
    | NodeRemovalCancelled
    | NodePreempted
    | PreemptionPending
    | PreemptionInProgress
    | PreemptionOverdue
)
"""The messages that lead to the next step of a Node."""


def decide(state: State, message: Hears, context: Context) -> Iterator[Says | CommandOutcome]:
    """The next step of the Node that a message is about; a message on an earlier stay has none."""
    match message:
        case (
            MachineBooted()
            | MachineFailed()
            | NodeObserved()
            | CWNodeDeletionRequestSuccess()
            | NodeRemovalCancelled()
            | NodePreempted()
            | PreemptionPending()
            | PreemptionInProgress()
            | PreemptionOverdue()
        ):
            node = state.node(message)
            if node is not None:
                template = state.templates[node.pool]
                yield from _with_templates(state, _next_step(template, node, message))
        case LockNode():
            yield from _with_templates(state, lock(state, message, context))
        case UnlockNode():
            yield from _with_templates(state, unlock(state, message))
        case NodePoolValidated() | CWNodePoolDeleted() | CWNodeAssigned():
            return
        case _:
            assert_never(message)


def _with_templates(
    state: State, events: Iterable[E]
) -> Iterator[E | NodeTemplateChanged | NodeLockChanged]:
    """The events, with each large template before the first of them that refers to it.

    And with the end of each lock whose Node is deleted.
    """
    published = state.published
    for event in with_lock_ends(state.templates, state.nodes, events):
        if isinstance(event, NodeUpdated | CWNodeRegistered):
            template, key = event.template, event.key
            if template and published.get(key) != template:
                published = published.set(key, template)
                yield template_changed(state.templates[key])
        yield event


def _next_step(template: NodeTemplate, node: Node, message: NodeMessage) -> Iterator[Says]:
    match message:
        case MachineBooted() | MachineFailed() | NodeObserved():
            yield from missing(template, node)
        case NodeRemovalCancelled() | PreemptionOverdue():
            yield from missing(template, node)
        case CWNodeDeletionRequestSuccess():
            yield from requested(template, node)
        case NodePreempted() | PreemptionPending() | PreemptionInProgress():
            yield from preempted(template, node, message)
        case _:
            assert_never(message)


def reconcile(
    state: State,
    key: PoolKey | MachineKey,
    context: Context,
    *,
    patience: timedelta = ANSWER_WITHIN,
) -> Iterator[Says]:
    """What is missing for a NodePool that changed or failed, or for a Node whose time is up.

    A machine that does not answer has `patience` to do so.
    """
    yield from _with_templates(state, _missing(state, key, context, patience))


def _missing(
    state: State, key: PoolKey | MachineKey, context: Context, patience: timedelta
) -> Iterator[Says]:
    pool, machine = PoolKey(key), MachineKey(key)
    if pool in state.templates:
        yield from _template_changed(state, pool)
        if pool in state.failures:
            yield from _tried_again(state, pool, context, patience)
    elif machine in state.nodes:
        node = state.nodes[machine]
        yield from _next(state.templates[node.pool], node, context, patience)


def concerns(_state: State, message: Hears) -> PoolKey | None:
    """A NodePool whose desired state changed is reconciled at once."""
    match message:
        case NodePoolValidated(key=key):
            return key
        case CWNodePoolDeleted() | CWNodeAssigned() | MachineBooted() | MachineFailed():
            return None
        case NodeObserved() | CWNodeDeletionRequestSuccess() | NodeRemovalCancelled():
            return None
        case NodePreempted() | PreemptionPending() | PreemptionInProgress() | PreemptionOverdue():
            return None
        case LockNode() | UnlockNode():
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


def _tried_again(
    state: State, key: PoolKey, context: Context, patience: timedelta
) -> Iterator[Says]:
    """The steps that its Nodes did not take because of a failure; then that it is over."""
    template = state.templates[key]
    for machine in sorted(state.members.get(key, ())):
        yield from _next(template, state.nodes[machine], context, patience)
    yield NodeRemovalRecovered(**pool_fields(key), uid=template.uid)


def _next(
    template: NodeTemplate, node: Node, context: Context, patience: timedelta
) -> Iterator[Says]:
    """What is missing for a Node; where that is nothing, its end if its time is up."""
    node = yield from given_up(template, node, context)
    events = tuple(missing(template, node))
    yield from events or _overdue(template, node, context, patience)


def _overdue(
    template: NodeTemplate, node: Node, context: Context, patience: timedelta
) -> Iterator[Says]:
    if not node.booting:
        yield from overdue(template, node, context, patience)
    elif node.boot_by <= context.time:
        minutes = int(BOOT_MAX.total_seconds() // 60)
        cause = f"it did not join its cluster within {minutes} minutes"
        yield registration_failed(template, node, cause)


def on_failure(state: State, failure: Failure) -> Iterable[Says]:
    """The NodePool is reconciled again later; where Nodes are leaving, users are told, once."""
    key = _concerned(state, failure)
    if key is None:
        return
    text = f"internal error while removing a Node: {failure.cause}"
    yield NodeUpdateFailed(**pool_fields(key), message=text)
    if state.failures.get(key) != text and _is_removal(state, failure):
        uid = state.templates[key].uid
        yield CWNodePoolNodesRemoveError(**pool_fields(key), uid=uid, message=text)


def _concerned(state: State, failure: Failure) -> PoolKey | None:
    """The NodePool that a failure is about; None where there is none."""
    node = _failed_node(state, failure)
    key = node.pool if node is not None else failure.pool or PoolKey(failure.key)
    return key if key in state.templates else None


def _is_removal(state: State, failure: Failure) -> bool:
    """Whether a Node that leaves could not be taken further."""
    node = _failed_node(state, failure)
    if node is not None:
        return node.removal is not None
    if not failure.key:
        return failure.input == CWNodeDeletionRequestSuccess.__name__
    machines = state.members.get(PoolKey(failure.key), ())
    return any(state.nodes[machine].removal is not None for machine in machines)


def _failed_node(state: State, failure: Failure) -> Node | None:
    """The Node that a failure is about; None where it is about a whole NodePool."""
    fleet, zone, machine = failure.address.path
    reported = machine_key(zone, machine) if fleet == FLEET else MachineKey("")
    return state.nodes.get(MachineKey(failure.key) or reported)


def service(answer_within: timedelta) -> Service[State, Hears, Says]:
    """The lifecycle service, in which a machine has so long to answer a cordon or a drain.

    That goes into what is said when its time begins. So replicas with different settings fold the
    same state: the setting of the one that stored that message counts.
    """
    return Service(
        name="lifecycle",
        hears=Hears,
        says=Says,
        initial=State(),
        evolve=evolve,
        decide=decide,
        reconciler=Reconciler(partial(reconcile, patience=answer_within), concerns),
        on_failure=on_failure,
    )


SERVICE: Service[State, Hears, Says] = service(ANSWER_WITHIN)
