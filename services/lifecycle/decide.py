"""What the lifecycle service says: the next step of each Node, from its boot to its deletion."""

from collections.abc import Generator, Iterator
from datetime import timedelta
from functools import partial
from typing import TypeVar, assert_never

from lifecycle import Decides, Hears, Says
from lifecycle.appearance import updated
from lifecycle.failures import on_failure
from lifecycle.gauges import gauges
from lifecycle.lock_steps import given_up, lock_end
from lifecycle.locking import lock, place_of, unlock
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
from lifecycle.steps import Steps
from lifecycle.template import NodeTemplate
from nodepool.contract import events as on
from nodepool.contract.commands import CordonNode, DrainNode, RebootNode, ReserveNode, UncordonNode
from nodepool.contract.commands_slurm import LockNode, UnlockNode
from nodepool.contract.keys import MachineKey, PoolKey, machine_key, pool_path
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
        ):
            node = state.node(message)
            if node is not None:
                steps = missing(state.templates[node.pool], node, context.time)
                yield from _followed(state, message.machine_key, steps, options)
        case LockNode() | UnlockNode():
            yield from _lock_commanded(state, message, context, options)
        case _:
            assert_never(message)


def _followed(
    state: State, key: MachineKey, steps: Generator[E, Node, object], options: Options
) -> Generator[E | Says, State, State]:
    """Yield the steps of a Node; return the state after them.

    Each event is sent back as the Node after the event. Nothing follows the deletion of the Node.
    """
    event = next(steps, None)
    while event is not None:
        for each in _with_what_belongs(state, event, options):
            state = yield each
        node = state.nodes.get(key)
        if node is None:
            steps.close()
            break
        try:
            event = steps.send(node)
        except StopIteration:
            break
    return state


def _with_what_belongs(state: State, event: E, options: Options) -> Iterator[E | Says]:
    """Yield an event, after the template or the end of a lock that has to come before the event.

    Options may change the event, and add another after it.
    """
    if isinstance(event, on.NodeUpdated | on.CWNodeRegistered):
        template, key = event.template, event.key
        if template and state.published.get(key) != template:
            yield template_changed(state.templates[key])
    if isinstance(event, on.NodeUpdated | on.CWNodeDeleted):
        node = state.nodes[event.machine_key]
        yield from lock_end(state.templates[node.pool], node, event)
    yield from with_options(event, options)


def _commanded(
    state: State, command: NodeCommand, context: Context, options: Options
) -> Generator[Says | CommandOutcome, State, None]:
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
    key = machine_key(template.zone, node.name)
    state = yield asked_for(template, node, asked)
    steps = missing(template, state.nodes[key], context.time)
    yield from _followed(state, key, steps, options)


def _lock_commanded(
    state: State, command: LockNode | UnlockNode, context: Context, options: Options
) -> Generator[Says | CommandOutcome, State, None]:
    """The outcome of a command about the lock of a Node, and what follows from it at once."""
    place = place_of(state, command)
    if isinstance(place, on.CommandRefused):
        yield place
        return
    template, node = place
    key = machine_key(template.zone, node.name)
    if isinstance(command, LockNode):
        yield from _followed(state, key, lock(template, node, command, context), options)
    else:
        yield from _followed(state, key, unlock(template, node, command, context), options)


def reconcile(
    state: State,
    key: PoolKey | MachineKey,
    context: Context,
    *,
    options: Options = DEFAULT,
) -> Generator[Says, State, None]:
    """What is missing for a NodePool that changed or failed, or for a Node whose time is up."""
    pool, machine = PoolKey(key), MachineKey(key)
    if pool in state.templates:
        state = yield from _template_changed(state, pool, options)
        if pool in state.failures:
            # Each Node takes its step once: those with problems are among all Nodes.
            yield from _tried_again(state, pool, context, options)
            return
        troubled = {*state.unhealthy.get(pool, ()), *nodes_in_racks(state.racks, pool)}
        for node in sorted(troubled):
            steps = missing(state.templates[pool], state.nodes[node], context.time)
            state = yield from _followed(state, node, steps, options)
    elif machine in state.nodes:
        yield from _next(state, machine, context, options)


def concerns(_state: State, message: Hears) -> PoolKey | None:
    """A NodePool whose desired state changed is reconciled at once."""
    match message:
        case on.NodePoolValidated(key=key):
            return key
        case _:
            return None


def _template_changed(
    state: State, key: PoolKey, options: Options
) -> Generator[Says, State, State]:
    """An update of each Node that looks like an older template; then the announcement, once."""
    template = state.templates[key]
    if state.announced[key] == template.version:
        return state
    for machine in sorted(state.members.get(key, ())):
        node = state.nodes[machine]
        if not node.booting and node.revision < template.revision:
            look = updated(template, node, node.phase, node.removal)
            for each in _with_what_belongs(state, look, options):
                state = yield each
    _, _, pool = pool_path(key)
    text = f"metadata of NodePool {pool} is updated"
    return (yield on.CWNodePoolMetadata(**pool_fields(key), message=text))


def _tried_again(
    state: State, key: PoolKey, context: Context, options: Options
) -> Generator[Says, State, None]:
    """The steps that its Nodes did not take because of a failure; then that it is over."""
    for machine in sorted(state.members.get(key, ())):
        state = yield from _next(state, machine, context, options)
    yield on.NodeRemovalRecovered(**pool_fields(key), uid=state.templates[key].uid)


def _next(
    state: State, key: MachineKey, context: Context, options: Options
) -> Generator[Says, State, State]:
    """What is missing for a Node; where that is nothing, its end if its time is up."""
    node = state.nodes[key]
    steps = _due(state.templates[node.pool], node, context, options)
    return (yield from _followed(state, key, steps, options))


def _due(template: NodeTemplate, node: Node, context: Context, options: Options) -> Steps:
    node = yield from given_up(template, node, context)
    node = yield from _asked_if_silent(template, node, context, options)
    before = node
    node = yield from missing(template, node, context.time)
    if node is not before:
        return node
    if not node.booting:
        return (yield from overdue(template, node, context, options.answer_within))
    if node.boot_by <= context.time:
        cause = f"{NodeFailure.NOT_JOINED.phrase} {BOOT_MAX // timedelta(minutes=1)} minutes"
        return (yield registration_failed(template, node, cause))
    return node


def _asked_if_silent(
    template: NodeTemplate, node: Node, context: Context, options: Options
) -> Steps:
    """Yield how long a silence has, or the question whether it goes on; return the Node then."""
    silence = node.health.silence
    if silence is not None and node.is_newly_silent:
        until = silence.since + options.unhealthy_after
        return (yield silent(template, node, silence.since, until))
    if silence is not None and silence.ask_at is not None and silence.ask_at <= context.time:
        return (yield report_requested(template, node, context.position))
    return node


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
