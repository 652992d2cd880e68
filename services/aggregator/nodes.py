"""A Node of the read model after an event about it."""

from functools import lru_cache
from typing import assert_never

from aggregator import NodeChanged
from aggregator.objects import NodeObject, ReportedCondition
from nodepool.contract import events as on
from nodepool.contract.health import READY
from nodepool.contract.model import NodePhase, RemovalReason, Taint
from nodepool.contract.observations import ConditionSeen
from nodepool.contract.phases import RESTARTING
from nodepool.service import Context
from nodepool.state.values import replace

GivesWay = (
    on.NodePreemptionRequested
    | on.NodePreempted
    | on.PreemptionPending
    | on.NodePreemptionWithdrawn
)
"""The events that say whether a Node is to give way."""


def build_node(event: on.CWNodeAssigned, context: Context, profile: str) -> NodeObject:
    """Return a new Node with this profile; the Node has not joined its cluster yet."""
    return NodeObject(
        name=event.node,
        zone=event.zone,
        pool=event.key,
        instance_type=event.instance_type,
        assignment=event.assignment,
        created=context.time,
        version=context.position,
        labels=event.labels,
        profile=profile,
    )


def change_node(node: NodeObject, event: NodeChanged, context: Context) -> NodeObject:
    """Return the Node after an event; an event about another assignment changes nothing."""
    if event.assignment != node.assignment:
        return node
    after = _fold_event(node, event, context)
    # The wait for an action and the action itself are two conditions, each with its own time.
    if after.action_condition != node.action_condition:
        after = replace(after, action_since=context.time)
    return after if after.removal is None else replace(after, progressed=context.time)


def _fold_event(node: NodeObject, event: NodeChanged, context: Context) -> NodeObject:
    if isinstance(event, GivesWay):
        return _give_way(node, event, context)
    match event:
        case on.NodeUpdated():
            return _update_node(node, event, context)
        case on.NodeActivityChanged(active=active, message=work):
            return replace(
                node,
                active=active,
                work=work,
                active_since=node.active_since if active is node.active else context.time,
                blocking=event.blocking,
                blocking_count=event.blocking_count,
                version=context.position,
            )
        case on.CWNodeRegistered():
            return replace(
                node,
                phase=event.phase,
                registered=context.time,
                silence_due=context.time if node.is_silent else None,
                labels=event.labels,
                annotations=event.annotations,
                taints=_share_taints(event.taints),
                template=event.template,
                version=context.position,
            )
        case on.CWDrainNode(force=force):
            return replace(node, phase=NodePhase.DRAINING, forced=force, version=context.position)
        case on.AnswerAwaited(answer_by=moment, is_final=is_final, lock=lock):
            is_shown = is_final and not lock
            return replace(node, answer_by=moment, version=context.position) if is_shown else node
        case on.NodeAnswered():
            return replace(node, answer_by=None, version=context.position)
        case on.NodeSilent() | on.NodeReportRequested():
            return _follow_silence(node, event, context)
        case _:
            assert_never(event)


REPORTED_MAX = 32
"""The maximum number of reported conditions of a Node; there are fewer kinds of problems."""


def set_reported_condition(node: NodeObject, event: ConditionSeen, context: Context) -> NodeObject:
    """Return the Node with a reported condition; a report on another assignment is ignored."""
    if event.assignment != node.assignment:
        return node
    before = next((each for each in node.reported if each.type == event.type), None)
    if before is None and len(node.reported) >= REPORTED_MAX:
        return node
    is_same = before is not None and before.status == event.status
    since = before.since if before is not None and is_same else context.time
    after = ReportedCondition(event.type, event.status, event.reason, event.message, since)
    rest = [each for each in node.reported if each.type != event.type]
    is_answer = event.request == node.request
    reported = tuple(sorted((*rest, after)))
    changed = replace(
        node,
        reported=reported,
        request=0 if is_answer else node.request,
        version=context.position,
    )
    is_due = not is_same or (is_answer and event.request > 0)
    return _with_silence_due(changed, context) if event.type == READY and is_due else changed


def _follow_silence(
    node: NodeObject, event: on.NodeSilent | on.NodeReportRequested, context: Context
) -> NodeObject:
    """Return the Node after the lifecycle service has said what follows from its silence."""
    if isinstance(event, on.NodeReportRequested):
        return replace(node, request=event.request, silence_due=None, version=context.position)
    # The Node may have reported since. A question that was asked before needs no answer any more.
    due = event.unhealthy_at if node.is_silent and not event.is_widespread else None
    return replace(node, request=0, silence_due=due, version=context.position)


def _with_silence_due(node: NodeObject, context: Context) -> NodeObject:
    """Return the Node after its silence began or ended, from which the next steps are due.

    The lifecycle service says what follows from a silence, and goes on with a cordon after it.
    """
    due = context.time if node.is_silent else None
    return replace(node, silence_due=due, cordoned_since=context.time)


def _give_way(node: NodeObject, event: GivesWay, context: Context) -> NodeObject:
    """Return the Node that is to give way; a timetable counts from its warning.

    Only a preemption that has not begun is taken back.
    """
    if isinstance(event, on.NodePreemptionWithdrawn):
        may_stay = node.asked_since is not None and not node.warned
        return replace(node, asked_since=None, version=context.position) if may_stay else node
    begun = event.since if isinstance(event, on.PreemptionPending) else node.preempted_since
    return replace(
        node,
        asked_since=node.asked_since or context.time,
        warned=node.warned or not isinstance(event, on.NodePreemptionRequested),
        preempted_since=begun,
        version=context.position,
    )


@lru_cache(maxsize=1024)
def _share_taints(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    """Return equal taints as the same object: most Nodes share taints of half a kilobyte."""
    return taints


def _update_node(node: NodeObject, event: on.NodeUpdated, context: Context) -> NodeObject:
    turned = (node.removal is None) is not (event.removal is None)
    is_preempted = event.removal is RemovalReason.PREEMPTED
    after = replace(
        node,
        phase=event.phase,
        unschedulable=event.unschedulable,
        cordon=event.cordon,
        lock=event.lock,
        forced=node.forced and event.phase is NodePhase.DRAINING,
        labels=event.labels,
        annotations=event.annotations,
        taints=_share_taints(event.taints),
        template=event.template,
        removal=event.removal,
        removal_since=context.time if turned else node.removal_since,
        preempted_since=node.preempted_since or (context.time if is_preempted else None),
        asked_since=node.asked_since or (context.time if is_preempted else None),
        action=event.action,
        boot=event.boot,
        rebooted_for=event.rebooted_for,
        version=context.position,
    )
    if (after.cordon, after.cordon_reason) != (node.cordon, node.cordon_reason):
        after = replace(after, cordoned_since=context.time)
    if node.phase in RESTARTING and after.phase not in RESTARTING:
        return _with_silence_due(after, context)
    return after
