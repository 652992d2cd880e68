"""How a Node joins its NodePool, and leaves it: cordoned, drained, deleted; or kept after all."""

from collections.abc import Generator, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import assert_never

from lifecycle import Says
from lifecycle.appearance import updated
from lifecycle.changes import NodeChange, changed
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
from lifecycle.template import NodeTemplate
from nodepool.contract.events import CWNodeDeleted
from nodepool.contract.model import NodePhase, RemovalReason
from nodepool.contract.node_failures import NodeFailure
from nodepool.service import Context


def next_step(template: NodeTemplate, node: Node, now: datetime) -> Iterator[Says]:
    """The next steps of a Node that joins, leaves or is unhealthy, if what it waits for has come.

    Whatever it is to leave for otherwise comes before its health.
    """
    if node.is_kept:
        yield from _keep(template, node, now, "its NodePool wants it again")
    elif node.removal not in (None, RemovalReason.UNHEALTHY):
        node = yield from _shown_leaving(template, node, now)
        node = yield from publish_causes(template, node, now)
        yield from _leaving(template, node, now)
    elif not node.booting:
        yield from cured(template, node, now)
    elif node.booted and (node.reported or not template.has_agent):
        event = registered(template, node)
        yield event
        # What its agent reported before is not reported again.
        yield from missing(template, changed(node, event, now), now)
    elif node.boot_fault:
        yield registration_failed(template, node, node.boot_fault)


def _shown_leaving(
    template: NodeTemplate, node: Node, now: datetime
) -> Generator[Says, None, Node]:
    """Yield why a Node leaves that was cordoned for another reason; return the Node then.

    A drain that goes on is announced anew, but for a preemption, whose timetable says when.
    """
    if node.is_over(now) or not node.cordoned or node.removal is node.shown:
        return node
    look = updated(template, node, node.phase, node.removal)
    yield look
    node = changed(node, look, now)
    if node.phase is not NodePhase.DRAINING or node.removal is RemovalReason.PREEMPTED:
        return node
    drain = draining(template, node)
    yield drain
    return changed(node, drain, now)


def _leaving(template: NodeTemplate, node: Node, now: datetime) -> Iterator[Says]:
    is_evicted = node.removal is RemovalReason.PREEMPTED and node.is_to_be_forced
    match node.phase:
        case _ if node.is_over(now):
            yield deleted(template, node, lost=len(node.workloads))
        case NodePhase.BOOTING | NodePhase.REBOOTING | NodePhase.VERIFYING:
            yield deleted(template, node)
        case NodePhase.PRODUCTION | NodePhase.CORDONED if is_evicted:
            yield from _drained(template, node)
        case NodePhase.PRODUCTION:
            yield updated(template, node, NodePhase.CORDONED, node.removal)
        case NodePhase.CORDONED:
            yield from _cordoned(template, node, now)
        case NodePhase.DRAINING:
            if node.is_to_be_forced:
                yield from _drained(template, node)
            elif node.has_answered and not node.holding and not node.is_warned:
                yield deleted(template, node)
        case NodePhase.DELETED:
            return
        case _:
            assert_never(node.phase)


def missing(template: NodeTemplate, node: Node, now: datetime) -> Iterator[Says]:
    """What is to be said of a Node now: what runs on it, and its next step."""
    node = yield from _shown_at_work(template, node, now)
    node = yield from _locked(template, node, now)
    steps = next_step(template, node, now)
    if node.lock is None or node.lock.is_held:
        yield from steps
        return
    for event in steps:
        yield event
        if isinstance(event, CWNodeDeleted):
            return
        if isinstance(event, NodeChange):
            node = changed(node, event, now)
    # A cordon ends a pending lock at once: a machine that hangs does not report the cordon.
    yield from _locked(template, node, now)


def _locked(template: NodeTemplate, node: Node, now: datetime) -> Generator[Says, None, Node]:
    """Yield the next step of a pending lock, and what runs on the Node then; return the Node."""
    lock = node.lock
    node = yield from granted(template, node, now)
    return node if node.lock is lock else (yield from _shown_at_work(template, node, now))


def _shown_at_work(
    template: NodeTemplate, node: Node, now: datetime
) -> Generator[Says, None, Node]:
    """Yield what runs on a Node if that is not published yet; return the Node then."""
    activity = None if node.booting else activity_changed(template, node)
    if activity is None:
        return node
    yield activity
    return changed(node, activity, now)


def overdue(
    template: NodeTemplate, node: Node, context: Context, patience: timedelta
) -> Iterator[Says]:
    """The end of a Node whose machine is taken for dead, or the beginning of its time to answer.

    Only the `Wake` for that very moment shows that what the machine is to do was stored before. A
    replica that is late may read an older one in the same step in which it requests it.
    """
    now = context.time
    if node.restarts:
        patience = REBOOT_MAX if node.phase is NodePhase.REBOOTING else VERIFY_MAX
    if node.answer_by is not None:
        if node.answer_by <= now and node.restarts:
            yield replaced(template, node, too_late(node))
        elif node.answer_by <= now:
            yield unanswered(template, node)
            is_healthy = node.removal not in (None, RemovalReason.UNHEALTHY)
            yield deleted(template, node, triage=True) if is_healthy else replaced(template, node)
    elif node.ask_after is not None and node.ask_after <= now:
        is_stored = context.due == node.ask_after
        until = now + (patience if is_stored else USUALLY)
        yield answer_awaited(template, node, until, is_final=is_stored)


def too_late(node: Node) -> str:
    """What a Node did not end in time, as one clause."""
    if node.phase is NodePhase.REBOOTING:
        minutes, failure = REBOOT_MAX.total_seconds() // 60, NodeFailure.NOT_REBOOTED
    else:
        minutes, failure = VERIFY_MAX.total_seconds() // 60, NodeFailure.NOT_VERIFIED
    return f"{failure.phrase} {int(minutes)} minutes"


def _cordoned(template: NodeTemplate, node: Node, now: datetime) -> Iterator[Says]:
    """A cordoned Node is kept or drained once its cordon holds; or by the timetable it has.

    Without a timetable a preemption ends no Pod: a Node on which work runs all the same gets a
    timetable as soon as the preemption service hears of that work.
    """
    if node.removal is RemovalReason.PREEMPTED:
        if not node.has_timetable and node.has_answered and not node.holding:
            yield draining(template, node)
            yield deleted(template, node)
    elif not node.has_answered:
        return
    elif node.holding and node.idle_only:
        names = listed(tuple(workload.name for workload in node.holding))
        yield from _keep(template, node, now, f"it became active: {names}")
    else:
        yield draining(template, node)
        if not node.holding:
            yield deleted(template, node)


def _drained(template: NodeTemplate, node: Node) -> Iterator[Says]:
    """The Node is drained; if its cluster has shown that nothing runs there, it leaves at once."""
    yield updated(template, node, NodePhase.DRAINING, node.removal)
    yield draining(template, node)
    if node.has_answered and not node.holding:
        yield deleted(template, node)


def _keep(template: NodeTemplate, node: Node, now: datetime, why: str) -> Iterator[Says]:
    if node.cordoned:
        phase = resting_phase(template, node)
        event = updated(template, node, phase, None)
        yield event
        yield kept(template, node, why)
        yield from cured(template, replace(changed(node, event, now), cancelled=False), now)
    else:
        yield kept(template, node, why)
