"""How a lock goes on by itself: it is held, given up, or ends with its Node."""

from collections.abc import Generator, Iterable, Iterator, Mapping
from datetime import datetime
from typing import TypeVar

from lifecycle.appearance import updated
from lifecycle.changes import changed
from lifecycle.lock import ANSWER_WITHIN, USUALLY
from lifecycle.node import Node
from lifecycle.node_events import answer_awaited, lock_changed
from lifecycle.template import NodeTemplate
from nodepool.contract import events as on
from nodepool.contract.keys import MachineKey, PoolKey
from nodepool.contract.messages import Message
from nodepool.contract.model import NodePhase, RemovalReason
from nodepool.service import Context

E = TypeVar("E", bound=Message)
LockSteps = Generator[on.NodeLockChanged | on.NodeUpdated | on.AnswerAwaited, None, Node]
"""What is said of a lock, and at the end the Node after that."""


def granted(template: NodeTemplate, node: Node, now: datetime) -> LockSteps:
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
            return (yield from released(template, node, now, f"Node {node.name} is cordoned"))
        if node.removal is RemovalReason.SCALE_DOWN and not node.has_answered:
            return node  # Its removal may still be cancelled.
        why = f"Node {node.name} leaves its NodePool ({node.removal.value})"
        return (yield from released(template, node, now, why))
    if not lock.is_clear:
        return node
    event = lock_changed(template, node, lock, "locked", f"{lock.work} has Node {node.name}")
    return (yield from _said(template, node, now, event))


def _is_kept_by_work(node: Node) -> bool:
    return node.removal is RemovalReason.SCALE_DOWN and node.idle_only


def given_up(template: NodeTemplate, node: Node, context: Context) -> LockSteps:
    """The Node as it is once the time of its machine to answer a lock has begun, or is over.

    As for a cordon, this time begins at the `Wake` for its very moment, which is stored after the
    taint: until then a late replica may not have published what the machine is to do.
    """
    lock, now = node.lock, context.time
    if lock is None or lock.due is None or lock.due > now:
        return node
    if lock.is_over(now):
        why = f"Node {node.name} did not answer in time"
        return (yield from released(template, node, now, why))
    is_stored = context.due == lock.due
    until = now + (ANSWER_WITHIN if is_stored else USUALLY)
    event = answer_awaited(template, node, until, is_final=is_stored, lock=lock.number)
    yield event
    return changed(node, event, now)


def released(template: NodeTemplate, node: Node, now: datetime, why: str) -> LockSteps:
    """The Node without its lock."""
    if node.lock is None:
        return node
    event = lock_changed(template, node, node.lock, "released", why)
    return (yield from _said(template, node, now, event))


def _said(
    template: NodeTemplate, node: Node, now: datetime, event: on.NodeLockChanged
) -> LockSteps:
    """The Node after this event, and as it looks then."""
    yield event
    node = changed(node, event, now)
    look = updated(template, node, node.phase, node.removal)
    yield look
    return changed(node, look, now)


def with_lock_ends(
    templates: Mapping[PoolKey, NodeTemplate],
    nodes: Mapping[MachineKey, Node],
    events: Iterable[E],
) -> Iterator[E | on.NodeLockChanged]:
    """The events; where a Node is rebooted or deleted, its lock is released right before."""
    over: set[MachineKey] = set()
    for event in events:
        if isinstance(event, on.NodeLockChanged) and event.lock == "released":
            over.add(event.machine_key)
        if isinstance(event, on.CWNodeDeleted | on.NodeUpdated) and event.machine_key not in over:
            node, end = nodes[event.machine_key], _end(event)
            if node.lock is not None and end:
                over.add(event.machine_key)
                why = f"Node {node.name} is {end}"
                yield lock_changed(templates[node.pool], node, node.lock, "released", why)
        yield event


def _end(event: on.CWNodeDeleted | on.NodeUpdated) -> str:
    """What ends every job on a Node; empty for an event that ends none."""
    if isinstance(event, on.CWNodeDeleted):
        return "deleted"
    return "rebooted" if event.phase is NodePhase.REBOOTING else ""
