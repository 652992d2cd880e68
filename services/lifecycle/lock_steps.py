"""How a lock goes on by itself: it is held, given up, or ends with its Node."""

from collections.abc import Iterator

from lifecycle.appearance import planned, updated
from lifecycle.lock import ANSWER_WITHIN, USUALLY
from lifecycle.node import Node
from lifecycle.node_events import answer_awaited, lock_changed
from lifecycle.steps import Steps
from lifecycle.template import NodeTemplate
from nodepool.contract import events as on
from nodepool.contract.messages import Message
from nodepool.contract.model import NodePhase, RemovalReason
from nodepool.service import Context


def granted(template: NodeTemplate, node: Node) -> Steps:
    """Yield the next step of a pending lock; return the Node after it.

    A job holds the lock once the last Pod that does not tolerate the lock is gone. No job begins on
    a Node that is not in production, or that its next step takes out of production. A job keeps a
    Node that leaves only if it is idle, unless the Node has a cordon of its own. A Node that stays
    after all returns to production first.
    """
    lock = node.lock
    if lock is None or lock.is_held or node.is_kept:
        return node
    if node.phase is NodePhase.PRODUCTION:
        if _is_taken_out(template, node):
            return node
    elif not _is_kept_by_work(template, node):
        is_victim = node.removal is RemovalReason.SCALE_DOWN
        if node.removal is None or (is_victim and not planned(template, node).is_nothing):
            return (yield from released(template, node, f"Node {node.name} is cordoned"))
        if is_victim and not node.has_answered:
            return node  # Its removal may still be cancelled.
        why = f"Node {node.name} leaves its NodePool ({node.removal.value})"
        return (yield from released(template, node, why))
    if not lock.is_clear:
        return node
    event = lock_changed(template, node, lock, "locked", f"{lock.work} has Node {node.name}")
    return (yield from _said(template, node, event))


def _is_taken_out(template: NodeTemplate, node: Node) -> bool:
    """Return whether the next step of a Node in production cordons or reboots the Node."""
    plan = planned(template, node)
    return node.removal is not None or bool(plan.causes) or plan.forced


def _is_kept_by_work(template: NodeTemplate, node: Node) -> bool:
    is_kept = node.removal is RemovalReason.SCALE_DOWN and node.idle_only
    return is_kept and planned(template, node).is_nothing


def given_up(template: NodeTemplate, node: Node, context: Context) -> Steps:
    """The Node as it is once the time of its machine to answer a lock has begun, or is over.

    As for a cordon, this time begins at the `Wake` for its very moment, which is stored after the
    taint: until then a late replica may not have published what the machine is to do.
    """
    lock, now = node.lock, context.time
    if lock is None or lock.due is None or lock.due > now:
        return node
    if lock.is_over(now):
        why = f"Node {node.name} did not answer in time"
        return (yield from released(template, node, why))
    is_stored = context.due == lock.due
    until = now + (ANSWER_WITHIN if is_stored else USUALLY)
    return (yield answer_awaited(template, node, until, is_final=is_stored, lock=lock.number))


def released(template: NodeTemplate, node: Node, why: str) -> Steps:
    """The Node without its lock."""
    if node.lock is None:
        return node
    event = lock_changed(template, node, node.lock, "released", why)
    return (yield from _said(template, node, event))


def _said(template: NodeTemplate, node: Node, event: on.NodeLockChanged) -> Steps:
    """The Node after this event, and as it looks then."""
    node = yield event
    return (yield updated(template, node, node.phase, node.removal))


def lock_end(template: NodeTemplate, node: Node, event: Message) -> Iterator[on.NodeLockChanged]:
    """Yield the end of the lock of a Node that is rebooted or deleted."""
    match event:
        case on.CWNodeDeleted():
            end = "deleted"
        case on.NodeUpdated(phase=NodePhase.REBOOTING):
            end = "rebooted"
        case _:
            return
    if node.lock is not None:
        yield lock_changed(template, node, node.lock, "released", f"Node {node.name} is {end}")
