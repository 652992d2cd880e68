"""The events of the preemption service: the outcomes of commands, and each stage when it is due.

Each stage is published at a `Wake`, and `DeletedForPreemption` at the `CWNodeDeleted` that it
follows. So the time of a stage is the time of its publication, even if the service hears of the
cause much later. Everything in the log up to that time counts, such as the end of the Node.
"""

from collections.abc import Generator, Iterator
from typing import assert_never

from nodepool.contract import events as on
from nodepool.contract.commands import PreemptNode
from nodepool.contract.commands_spot import AcknowledgePreemption
from nodepool.contract.keys import NodeKey, node_key
from nodepool.contract.messages import pool_fields
from nodepool.contract.metrics import Sample
from nodepool.contract.outcomes import CommandOutcome, build_acceptance, build_refusal
from nodepool.contract.timetable import GONE_AFTER
from nodepool.service import Context, Failure, Reconciler, Service, decide_on
from preemption import Decides, Hears, Says
from preemption.figures import samples
from preemption.node import Node
from preemption.state import State, evolve

MINUTES = int(GONE_AFTER.total_seconds() // 60)


def decide(
    state: State, message: Decides, _context: Context
) -> Generator[Says | CommandOutcome, State, None]:
    """Yield the outcome of a command, or the end of a preemption."""
    match message:
        case PreemptNode():
            yield _outcome_of_preempt(state, message)
        case AcknowledgePreemption():
            yield _outcome_of_acknowledge(state, message)
        case on.CWNodeDeleted(node_key=key):
            for node in state.list_ended_stays(key):
                yield _report_deletion(node)
        case _:
            assert_never(message)


def reconcile(state: State, key: NodeKey, context: Context) -> Generator[Says, State, None]:
    """Yield the next stage of a preemption if it is due, after what an earlier try did not say.

    The lifecycle service deletes the Node at the latest seven minutes after the warning:
    `lifecycle.changes` sets `Exit.gone_by`, and `leave` in `lifecycle.table` ends the Node.
    """
    for ended in state.list_ended_stays(key):
        yield _report_deletion(ended)
    node = state.find_node(key)
    if node is None:
        return
    if node.is_to_begin:
        yield _begin(node, context)
    elif node.is_stranded:
        yield _pending(node, context)
    elif node.is_to_be_drained(context.time):
        yield _in_progress(node, context)


def _outcome_of_preempt(state: State, command: PreemptNode) -> CommandOutcome:
    node = state.nodes.get(node_key(command.org, command.cluster, command.node))
    if node is None or node.pool != command.key:
        message = f"{command.node} is no spot Node of NodePool {command.pool}"
        return build_refusal(command, "node", message, "NotFound")
    return build_acceptance(command, "done" if node.pending_since is None else "unchanged")


def _outcome_of_acknowledge(state: State, command: AcknowledgePreemption) -> CommandOutcome:
    node = state.nodes.get(node_key(command.org, command.cluster, command.node))
    if node is None or node.pool != command.key or not node.may_be_acknowledged:
        message = f"{command.node} is no Node of NodePool {command.pool} that is being preempted"
        return build_refusal(command, "node", message, "NotFound")
    return build_acceptance(command, "unchanged" if node.in_progress else "done")


def _begin(node: Node, context: Context) -> Says:
    """Return the first stage of a preemption, with a timetable unless the Node leaves anyway."""
    return _immediate(node) if node.is_going else _pending(node, context)


def _immediate(node: Node) -> on.NodePreempted:
    return on.NodePreempted(
        **pool_fields(node.pool), node=node.name, zone=node.zone, assignment=node.assignment
    )


def _pending(node: Node, context: Context) -> on.PreemptionPending:
    return on.PreemptionPending(
        **pool_fields(node.pool),
        node=node.name,
        zone=node.zone,
        assignment=node.assignment,
        since=context.time,
        message=(
            f"Reason: Preemption pending. Node {node.name} is cordoned and goes within"
            f" {MINUTES} minutes"
        ),
    )


def _in_progress(node: Node, context: Context) -> on.PreemptionInProgress:
    return on.PreemptionInProgress(
        **pool_fields(node.pool),
        node=node.name,
        zone=node.zone,
        assignment=node.assignment,
        evicted_at=context.time,
        message=f"Reason: Preemption in progress. Node {node.name} is being drained",
    )


def _report_deletion(node: Node) -> on.DeletedForPreemption:
    message = f"Reason: Deleted for preemption. Node {node.name} left its NodePool"
    return on.DeletedForPreemption(**pool_fields(node.pool), node=node.name, message=message)


def on_failure(state: State, failure: Failure) -> Iterator[Says]:
    """Yield that the next stage of a Node could not be published, and is tried again later."""
    node = _find_failed_node(state, failure)
    if node is not None:
        yield on.PreemptionFailed(
            **pool_fields(node.pool),
            node=node.name,
            zone=node.zone,
            assignment=node.assignment,
            message=f"internal error during a preemption: {failure.cause}",
        )


def _find_failed_node(state: State, failure: Failure) -> Node | None:
    """Return the Node that a failure is about; None if the failure is about no Node."""
    if failure.key:
        key = NodeKey(failure.key)
        return next(state.list_ended_stays(key), None) or state.nodes.get(key)
    departed = state.departed.values()
    undone = [
        node
        for node in departed
        if node.pool == failure.pool and node.key not in state.work.failures
    ]
    return min(undone, key=lambda node: node.assignment, default=None)


def gauges(state: State) -> Iterator[Sample]:
    """Yield what was counted of all preemptions."""
    yield from samples(state.figures)


SERVICE: Service[State, Hears, Says] = Service(
    name="preemption",
    hears=Hears,
    says=Says,
    initial=State(),
    evolve=evolve,
    decide=decide_on(Decides, decide),
    reconciler=Reconciler(reconcile),
    on_failure=on_failure,
    samples=gauges,
)
