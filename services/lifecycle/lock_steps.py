"""How a lock goes on by itself: it is held, given up, or ends with its Node."""

from collections.abc import Iterator

from lifecycle.appearance import updated
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
    """The Node as it is after the next step of its lock, if that is pending.

    It is held once the last Pod that does not tolerate it is gone. Where the Node is not in
    production any more, no job begins; where it goes only if it is idle, the job keeps it. One that
    is kept after all first returns to production.
    """
    lock = node.lock
    if lock is None or lock.is_held or node.is_kept:
        return node
    if node.phase is not NodePhase.PRODUCTION and not _is_kept_by_work(node):
        if node.removal is None:
            return (yield from released(template, node, f"Node {node.name} is cordoned"))
        if node.removal is RemovalReason.SCALE_DOWN and not node.has_answered:
            return node  # Its removal may still be cancelled.
        why = f"Node {node.name} leaves its NodePool ({node.removal.value})"
        return (yield from released(template, node, why))
    if not lock.is_clear:
        return node
    event = lock_changed(template, node, lock, "locked", f"{lock.work} has Node {node.name}")
    return (yield from _said(template, node, event))


def _is_kept_by_work(node: Node) -> bool:
    return node.removal is RemovalReason.SCALE_DOWN and node.idle_only


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
