"""How a Node joins its NodePool, and leaves it: cordoned, drained, deleted; or kept after all."""

from datetime import datetime, timedelta
from typing import assert_never

from lifecycle.appearance import updated
from lifecycle.curing import cured, publish_causes, resting_phase
from lifecycle.health import REBOOT_MAX, VERIFY_MAX
from lifecycle.lock import USUALLY
from lifecycle.lock_steps import granted
from lifecycle.node import Node
from lifecycle.node_events import (
    activity_changed,
    answer_awaited,
    deleted,
    draining,
    kept,
    listed,
    registered,
    registration_failed,
    replaced,
    unanswered,
)
from lifecycle.steps import Steps
from lifecycle.template import NodeTemplate
from nodepool.contract.model import NodePhase, RemovalReason
from nodepool.contract.node_failures import NodeFailure
from nodepool.service import Context


def missing(template: NodeTemplate, node: Node, now: datetime) -> Steps:
    """Yield what runs on a Node, if that is not published yet, and then the Node's next step."""
    node = yield from _shown_at_work(template, node)
    node = yield from _locked(template, node)
    is_pending = node.lock is not None and not node.lock.is_held
    node = yield from _next_step(template, node, now)
    if is_pending:
        # A cordon ends a pending lock at once: a machine that hangs does not report the cordon.
        node = yield from _locked(template, node)
    return node


def _next_step(template: NodeTemplate, node: Node, now: datetime) -> Steps:
    """The next steps of a Node that joins, leaves or is unhealthy, if what it waits for has come.

    Whatever it is to leave for otherwise comes before its health.
    """
    if node.is_kept:
        return (yield from _keep(template, node, "its NodePool wants it again"))
    if _is_at_work(node):
        names = listed(tuple(workload.name for workload in node.holding))
        return (yield from _keep(template, node, f"it became active: {names}"))
    if node.removal not in (None, RemovalReason.UNHEALTHY):
        node = yield from _shown_leaving(template, node, now)
        node = yield from publish_causes(template, node)
        return (yield from _leaving(template, node, now))
    if not node.booting:
        return (yield from cured(template, node))
    if node.booted and (node.reported or not template.has_agent):
        node = yield registered(template, node)
        # What its agent reported before is not reported again.
        return (yield from missing(template, node, now))
    if node.boot_fault:
        return (yield registration_failed(template, node, node.boot_fault))
    return node


def _locked(template: NodeTemplate, node: Node) -> Steps:
    """Yield the next step of a pending lock, and what runs on the Node then; return the Node."""
    lock = node.lock
    node = yield from granted(template, node)
    return node if node.lock is lock else (yield from _shown_at_work(template, node))


def _shown_at_work(template: NodeTemplate, node: Node) -> Steps:
    """Yield what runs on a Node if that is not published yet; return the Node then."""
    activity = None if node.booting else activity_changed(template, node)
    return node if activity is None else (yield activity)


def _is_at_work(node: Node) -> bool:
    """Return whether a Node that was to leave only if it is idle is active, as its cordon shows."""
    is_victim = node.removal is RemovalReason.SCALE_DOWN and node.idle_only
    is_held_back = node.phase in (NodePhase.CORDONED, NodePhase.DRAINING) and node.has_answered
    return is_victim and is_held_back and bool(node.holding)


def _shown_leaving(template: NodeTemplate, node: Node, now: datetime) -> Steps:
    """Yield why a Node leaves that was cordoned for another reason; return the Node then.

    A drain that goes on is published again, except for a preemption: its timetable says when the
    drain begins.
    """
    if node.is_over(now) or not node.cordoned or node.removal is node.shown:
        return node
    node = yield updated(template, node, node.phase, node.removal)
    if node.phase is not NodePhase.DRAINING or node.removal is RemovalReason.PREEMPTED:
        return node
    return (yield draining(template, node))


def _leaving(template: NodeTemplate, node: Node, now: datetime) -> Steps:
    is_evicted = node.removal is RemovalReason.PREEMPTED and node.is_to_be_forced
    match node.phase:
        case _ if node.is_over(now):
            return (yield deleted(template, node, lost=len(node.workloads)))
        case NodePhase.BOOTING | NodePhase.REBOOTING | NodePhase.VERIFYING:
            return (yield deleted(template, node))
        case NodePhase.PRODUCTION | NodePhase.CORDONED if is_evicted:
            return (yield from _drained(template, node))
        case NodePhase.PRODUCTION:
            return (yield updated(template, node, NodePhase.CORDONED, node.removal))
        case NodePhase.CORDONED:
            return (yield from _cordoned(template, node))
        case NodePhase.DRAINING:
            if node.is_to_be_forced:
                return (yield from _drained(template, node))
            is_empty = node.has_answered and not node.holding and not node.is_warned
            return (yield deleted(template, node)) if is_empty else node
        case NodePhase.DELETED:
            return node
        case _:
            assert_never(node.phase)


def overdue(template: NodeTemplate, node: Node, context: Context, patience: timedelta) -> Steps:
    """The end of a Node whose machine is taken for dead, or the beginning of its time to answer.

    Only the `Wake` for that very moment shows that what the machine is to do was stored before. A
    replica that is late may read an older one in the same step in which it requests it.
    """
    now = context.time
    if node.restarts:
        patience = REBOOT_MAX if node.phase is NodePhase.REBOOTING else VERIFY_MAX
    if node.answer_by is not None:
        if node.answer_by <= now and node.restarts:
            return (yield replaced(template, node, too_late(node)))
        if node.answer_by <= now:
            node = yield unanswered(template, node)
            is_healthy = node.removal not in (None, RemovalReason.UNHEALTHY)
            gone = deleted(template, node, triage=True) if is_healthy else replaced(template, node)
            return (yield gone)
    elif node.ask_after is not None and node.ask_after <= now:
        is_stored = context.due == node.ask_after
        until = now + (patience if is_stored else USUALLY)
        return (yield answer_awaited(template, node, until, is_final=is_stored))
    return node


def too_late(node: Node) -> str:
    """What a Node did not end in time, as one clause."""
    if node.phase is NodePhase.REBOOTING:
        minutes, failure = REBOOT_MAX.total_seconds() // 60, NodeFailure.NOT_REBOOTED
    else:
        minutes, failure = VERIFY_MAX.total_seconds() // 60, NodeFailure.NOT_VERIFIED
    return f"{failure.phrase} {int(minutes)} minutes"


def _cordoned(template: NodeTemplate, node: Node) -> Steps:
    """A cordoned Node is drained once its cordon holds; or by the timetable it has.

    Without a timetable a preemption ends no Pod: a Node on which work runs all the same gets a
    timetable as soon as the preemption service hears of that work.
    """
    is_preempted = node.removal is RemovalReason.PREEMPTED
    if not node.has_answered or (is_preempted and (node.has_timetable or node.holding)):
        return node
    is_empty = not node.holding
    node = yield draining(template, node)
    return (yield deleted(template, node)) if is_empty else node


def _drained(template: NodeTemplate, node: Node) -> Steps:
    """The Node is drained; if its cluster has shown that nothing runs there, it leaves at once."""
    is_empty = node.has_answered and not node.holding
    node = yield updated(template, node, NodePhase.DRAINING, node.removal)
    node = yield draining(template, node)
    return (yield deleted(template, node)) if is_empty else node


def _keep(template: NodeTemplate, node: Node, why: str) -> Steps:
    if not node.cordoned:
        return (yield kept(template, node, why))
    node = yield updated(template, node, resting_phase(template, node), None)
    node = yield kept(template, node, why)
    return (yield from cured(template, node))
