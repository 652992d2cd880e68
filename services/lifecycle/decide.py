"""What the lifecycle service says: the next step of each Node, from its boot to its deletion."""

from collections.abc import Generator, Iterable, Iterator
from datetime import timedelta
from functools import partial
from typing import TypeVar, assert_never

from lifecycle import Decides, Hears, Says
from lifecycle.appearance import updated
from lifecycle.changes import changed
from lifecycle.failures import on_failure
from lifecycle.gauges import gauges
from lifecycle.lock_steps import given_up, with_lock_ends
from lifecycle.locking import lock, unlock
from lifecycle.node import Node
from lifecycle.node_events import (
    asked_for,
    registration_failed,
    report_requested,
    silent,
    template_changed,
)
from lifecycle.options import Options, with_options
from lifecycle.racks import nodes_in_racks
from lifecycle.removal import missing, overdue
from lifecycle.requests import NodeCommand, asked_after, out_of_place, unfit, unknown
from lifecycle.state import State, evolve
from lifecycle.template import NodeTemplate
from nodepool.contract import events as on
from nodepool.contract.commands import CordonNode, DrainNode, RebootNode, ReserveNode, UncordonNode
from nodepool.contract.commands_slurm import LockNode, UnlockNode
from nodepool.contract.keys import MachineKey, PoolKey, pool_path
from nodepool.contract.messages import Message, pool_fields
from nodepool.contract.node_failures import NodeFailure
from nodepool.contract.outcomes import CommandOutcome, accepted, refused
from nodepool.contract.timetable import BOOT_MAX
from nodepool.service import Context, Reconciler, Service, decide_on

E = TypeVar("E", bound=Message)

DEFAULT = Options()


def decide(
    state: State, message: Decides, context: Context, *, options: Options = DEFAULT
) -> Generator[Says | CommandOutcome, State, None]:
    """The next step of the Node that a message is about; a message on an earlier stay has none."""
    match message:
        case CordonNode() | UncordonNode() | DrainNode() | RebootNode() | ReserveNode():
            yield from _commanded(state, message, context, options)
        case (
            on.MachineBooted()
            | on.MachineFailed()
            | on.NodeVerified()
            | on.NodeConditionChanged()
            | on.NodeConditionReported()
            | on.NodeObserved()
            | on.NodeReported()
            | on.CWNodeDeletionRequestSuccess()
            | on.NodeRemovalCancelled()
            | on.NodePreempted()
            | on.PreemptionPending()
            | on.PreemptionInProgress()
            | on.PreemptionOverdue()
        ):
            node = state.node(message)
            if node is not None:
                template = state.templates[node.pool]
                yield from _published(state, missing(template, node, context.time), options)
        case LockNode():
            yield from _published(state, lock(state, message, context), options)
        case UnlockNode():
            yield from _published(state, unlock(state, message, context.time), options)
        case _:
            assert_never(message)


def _published(
    state: State, events: Iterable[E], options: Options
) -> Iterator[E | on.NodeTemplateChanged | on.NodeLockChanged | on.CWRegistrationFailedEvent]:
    """The events, with each large template before the first of them that refers to it.

    And with the end of each lock whose Node is deleted or rebooted, and what options add.
    """
    published = state.published
    for event in with_lock_ends(state.templates, state.nodes, events):
        if isinstance(event, on.NodeUpdated | on.CWNodeRegistered):
            template, key = event.template, event.key
            if template and published.get(key) != template:
                published = published.set(key, template)
                yield template_changed(state.templates[key])
        yield from with_options(event, options)


def _commanded(
    state: State, command: NodeCommand, context: Context, options: Options
) -> Iterator[Says | CommandOutcome]:
    """The outcome of a command about a Node, and what follows from it at once."""
    node = state.commanded(command)
    refusal = unfit(command) or (unknown(command) if node is None else out_of_place(node, command))
    if node is None or refusal is not None:
        refusal = refusal or unknown(command)
        yield refused(command, refusal.field, refusal.message, refusal.reason)
        return
    asked = asked_after(node, command)
    if asked == node.health.asked:
        yield accepted(command, "unchanged")
        return
    yield accepted(command, "done")
    template = state.templates[node.pool]
    event = asked_for(template, node, asked)
    yield event
    after = changed(node, event, context.time)
    yield from _published(state, missing(template, after, context.time), options)


def reconcile(
    state: State,
    key: PoolKey | MachineKey,
    context: Context,
    *,
    options: Options = DEFAULT,
) -> Generator[Says, State, None]:
    """What is missing for a NodePool that changed or failed, or for a Node whose time is up."""
    missing_ = _missing(state, key, context, options)
    yield from _published(state, missing_, options)


def _missing(
    state: State, key: PoolKey | MachineKey, context: Context, options: Options
) -> Iterator[Says]:
    pool, machine = PoolKey(key), MachineKey(key)
    if pool in state.templates:
        yield from _template_changed(state, pool)
        if pool in state.failures:
            # Each Node takes its step once: those with problems are among all Nodes.
            yield from _tried_again(state, pool, context, options)
            return
        troubled = {*state.unhealthy.get(pool, ()), *nodes_in_racks(state.racks, pool)}
        for node in sorted(troubled):
            yield from missing(state.templates[pool], state.nodes[node], context.time)
    elif machine in state.nodes:
        node = state.nodes[machine]
        yield from _next(state.templates[node.pool], node, context, options)


def concerns(_state: State, message: Hears) -> PoolKey | None:
    """A NodePool whose desired state changed is reconciled at once."""
    match message:
        case on.NodePoolValidated(key=key):
            return key
        case _:
            return None


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
    yield on.CWNodePoolMetadata(
        **pool_fields(key), message=f"metadata of NodePool {pool} is updated"
    )


def _tried_again(state: State, key: PoolKey, context: Context, options: Options) -> Iterator[Says]:
    """The steps that its Nodes did not take because of a failure; then that it is over."""
    template = state.templates[key]
    for machine in sorted(state.members.get(key, ())):
        yield from _next(template, state.nodes[machine], context, options)
    yield on.NodeRemovalRecovered(**pool_fields(key), uid=template.uid)


def _next(template: NodeTemplate, node: Node, context: Context, options: Options) -> Iterator[Says]:
    """What is missing for a Node; where that is nothing, its end if its time is up."""
    node = yield from given_up(template, node, context)
    node = yield from _asked_if_silent(template, node, context, options)
    events = tuple(missing(template, node, context.time))
    for event in events or _overdue(template, node, context, options.answer_within):
        yield event


def _asked_if_silent(
    template: NodeTemplate, node: Node, context: Context, options: Options
) -> Generator[Says, None, Node]:
    """Yield how long a silence has, or the question whether it goes on; return the Node then."""
    silence = node.health.silence
    event: on.NodeSilent | on.NodeReportRequested | None = None
    if silence is not None and node.is_newly_silent:
        event = silent(template, node, silence.since, silence.since + options.unhealthy_after)
    elif silence is not None and silence.ask_at is not None and silence.ask_at <= context.time:
        event = report_requested(template, node, context.position)
    if event is None:
        return node
    yield event
    return changed(node, event, context.time)


def _overdue(
    template: NodeTemplate, node: Node, context: Context, patience: timedelta
) -> Iterator[Says]:
    if not node.booting:
        yield from overdue(template, node, context, patience)
    elif node.boot_by <= context.time:
        cause = f"{NodeFailure.NOT_JOINED.phrase} {BOOT_MAX // timedelta(minutes=1)} minutes"
        yield registration_failed(template, node, cause)


def service(options: Options) -> Service[State, Hears, Says]:
    """The lifecycle service with these options."""
    return Service(
        name="lifecycle",
        hears=Hears,
        says=Says,
        initial=State(),
        evolve=evolve,
        decide=decide_on(Decides, partial(decide, options=options)),
        reconciler=Reconciler(partial(reconcile, options=options), concerns),
        on_failure=on_failure,
        samples=gauges,
    )


SERVICE: Service[State, Hears, Says] = service(DEFAULT)
