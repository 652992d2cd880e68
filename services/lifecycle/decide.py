"""The events of the lifecycle service: each step of each Node, from its boot to its deletion."""

from collections.abc import Generator, Iterator
from functools import partial
from typing import TypeVar, assert_never

from lifecycle import Decides, Hears, Says
from lifecycle.commands import (
    NodeCommand,
    add_to_asked,
    find_conflict,
    find_fault,
    refuse_unknown,
)
from lifecycle.failures import on_failure
from lifecycle.gauges import gauges
from lifecycle.locking import find_place, release_lock, take_lock
from lifecycle.node import Node
from lifecycle.node_events import asked_for, lock_changed, template_changed, update_node
from lifecycle.options import Options, with_options
from lifecycle.racks import find_nodes_in_racks
from lifecycle.state import State, evolve
from lifecycle.table import take_steps
from nodepool.contract import events as on
from nodepool.contract.commands import CordonNode, DrainNode, RebootNode, ReserveNode, UncordonNode
from nodepool.contract.commands_slurm import LockNode, UnlockNode
from nodepool.contract.keys import MachineKey, PoolKey, machine_key, pool_path
from nodepool.contract.messages import Message, pool_fields
from nodepool.contract.model import NodePhase
from nodepool.contract.outcomes import CommandOutcome, build_acceptance, build_refusal
from nodepool.service import Context, Reconciler, Service, decide_on

E = TypeVar("E", bound=Message)

DEFAULT = Options()


def decide(
    state: State, message: Decides, context: Context, *, options: Options = DEFAULT
) -> Generator[Says | CommandOutcome, State, None]:
    """Yield the outcome of a command, or the missing steps of the Node that a message is about."""
    match message:
        case CordonNode() | UncordonNode() | DrainNode() | RebootNode() | ReserveNode():
            yield from _follow_command(state, message, context, options)
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
            if state.node(message) is not None:
                yield from _take_steps(state, message.machine_key, context, options)
        case LockNode() | UnlockNode():
            yield from _follow_lock_command(state, message, context, options)
        case _:
            assert_never(message)


def _take_steps(
    state: State, key: MachineKey, context: Context, options: Options, *, is_due: bool = False
) -> Generator[Says, State, State]:
    """Yield all steps that are missing for a Node; return the state after them.

    is_due: whether a deadline may lead to a step too.
    """
    node = state.nodes[key]
    steps = take_steps(state.templates[node.pool], node, context, options, is_due=is_due)
    return (yield from _follow(state, key, steps, options))


def _follow(
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
        yield from _end_lock(state, event)
    yield from with_options(event, options)


def _end_lock(
    state: State, event: on.NodeUpdated | on.CWNodeDeleted
) -> Iterator[on.NodeLockChanged]:
    """Yield the end of the lock of a Node that is rebooted or deleted."""
    node = state.nodes[event.machine_key]
    is_deleted, lock = isinstance(event, on.CWNodeDeleted), node.work.lock
    is_rebooted = isinstance(event, on.NodeUpdated) and event.phase is NodePhase.REBOOTING
    if lock is not None and (is_deleted or is_rebooted):
        text = f"Node {node.name} is {'deleted' if is_deleted else 'rebooted'}"
        yield lock_changed(state.templates[node.pool], node, lock, "released", text)


def _follow_command(
    state: State, command: NodeCommand, context: Context, options: Options
) -> Generator[Says | CommandOutcome, State, None]:
    """Yield the outcome of a command about a Node, and the steps that follow at once."""
    node = state.find_commanded_node(command)
    refusal = find_fault(command) or (node and find_conflict(node, command))
    if node is None or refusal is not None:
        refusal = refusal or refuse_unknown(command)
        yield build_refusal(command, refusal.field, refusal.message, refusal.reason)
        return
    asked = add_to_asked(node, command)
    if asked == node.health.asked:
        yield build_acceptance(command, "unchanged")
        return
    yield build_acceptance(command, "done")
    template = state.templates[node.pool]
    key = machine_key(template.zone, node.name)
    state = yield asked_for(template, node, asked)
    yield from _take_steps(state, key, context, options)


def _follow_lock_command(
    state: State, command: LockNode | UnlockNode, context: Context, options: Options
) -> Generator[Says | CommandOutcome, State, None]:
    """Yield the outcome of a command about the lock of a Node, and the steps that follow."""
    place = find_place(state, command)
    if isinstance(place, on.CommandRefused):
        yield place
        return
    template, node = place
    key = machine_key(template.zone, node.name)
    if isinstance(command, LockNode):
        steps = take_lock(template, node, command, context)
    else:
        steps = release_lock(template, node, command)
    after = yield from _follow(state, key, steps, options)
    if after.nodes[key] is not node:
        yield from _take_steps(after, key, context, options)


def reconcile(
    state: State,
    key: PoolKey | MachineKey,
    context: Context,
    *,
    options: Options = DEFAULT,
) -> Generator[Says, State, None]:
    """Yield what is missing for a NodePool that changed or failed, or for a Node that is due."""
    pool, machine = PoolKey(key), MachineKey(key)
    if pool in state.templates:
        state = yield from _update_nodes(state, pool, options)
        if pool in state.failed:
            # This covers all Nodes, so the Nodes with problems need no second step.
            yield from _try_again(state, pool, context, options)
            return
        troubled = {*state.unhealthy.get(pool, ()), *find_nodes_in_racks(state.racks, pool)}
        for node in sorted(troubled):
            state = yield from _take_steps(state, node, context, options)
    elif machine in state.nodes:
        yield from _take_steps(state, machine, context, options, is_due=True)


def concerns(_state: State, message: Hears) -> PoolKey | None:
    """Return the NodePool to reconcile at once, because its desired state changed."""
    match message:
        case on.NodePoolValidated(key=key):
            return key
        case _:
            return None


def _update_nodes(state: State, key: PoolKey, options: Options) -> Generator[Says, State, State]:
    """Update each Node that looks like an older template, and announce the template once."""
    template = state.templates[key]
    if state.announced[key] == template.version:
        return state
    for machine in sorted(state.members.get(key, ())):
        node = state.nodes[machine]
        if not node.is_booting and node.revision < template.revision:
            look = update_node(template, node, node.phase, node.exit.reason)
            for each in _with_what_belongs(state, look, options):
                state = yield each
    _, _, pool = pool_path(key)
    text = f"metadata of NodePool {pool} is updated"
    return (yield on.CWNodePoolMetadata(**pool_fields(key), message=text))


def _try_again(
    state: State, key: PoolKey, context: Context, options: Options
) -> Generator[Says, State, None]:
    """Yield the steps that a failure has kept from the Nodes, and then the end of the failure."""
    for machine in sorted(state.members.get(key, ())):
        state = yield from _take_steps(state, machine, context, options, is_due=True)
    yield on.NodeRemovalRecovered(**pool_fields(key), uid=state.templates[key].uid)


def service(options: Options) -> Service[State, Hears, Says]:
    """Return the lifecycle service with these options."""
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
