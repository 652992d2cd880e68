"""How a lock goes on by itself: it is held, given up, or ends with its Node."""

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from lifecycle import Says
from lifecycle.node import Node
from lifecycle.node_events import lock_changed, updated
from lifecycle.template import NodeTemplate
from nodepool.contract.events import CWNodeDeleted, NodeLockChanged
from nodepool.contract.keys import MachineKey, PoolKey
from nodepool.contract.messages import Message
from nodepool.service import Context

E = TypeVar("E", bound=Message)


def granted(template: NodeTemplate, node: Node) -> Generator[Says, None, Node]:
    """The Node as it is after the next step of its lock, if that is pending.

    It is held once the last Pod that does not tolerate it is gone. On a Node that leaves whatever
    runs there, no job begins any more.
    """
    lock = node.lock
    if lock is None or lock.is_held:
        return node
    if node.is_forced and node.removal is not None:
        reason = f"Node {node.name} leaves its NodePool ({node.removal.value})"
        return (yield from released(template, node, reason))
    if not lock.is_clear:
        return node
    node = replace(node, lock=replace(lock, is_held=True))
    yield lock_changed(template, node, lock, "locked", f"{lock.work} has Node {node.name}")
    yield updated(template, node, node.phase, node.removal)
    return node


def given_up(template: NodeTemplate, node: Node, context: Context) -> Generator[Says, None, Node]:
    """The Node as it is after its lock was released because its machine did not answer in time."""
    due = None if node.lock is None else node.lock.due
    if due is None or due > context.time:
        return node
    return (yield from released(template, node, f"Node {node.name} did not answer in time"))


def released(template: NodeTemplate, node: Node, why: str) -> Generator[Says, None, Node]:
    """The Node without its lock."""
    if node.lock is None:
        return node
    yield lock_changed(template, node, node.lock, "released", why)
    node = replace(node, lock=None)
    yield updated(template, node, node.phase, node.removal)
    return node


def with_lock_ends(
    templates: Mapping[PoolKey, NodeTemplate],
    nodes: Mapping[MachineKey, Node],
    events: Iterable[E],
) -> Iterator[E | NodeLockChanged]:
    """The events; where a Node is deleted, its lock is released right before."""
    over: set[MachineKey] = set()
    for event in events:
        if isinstance(event, NodeLockChanged) and event.lock == "released":
            over.add(event.machine_key)
        if isinstance(event, CWNodeDeleted) and event.machine_key not in over:
            node = nodes[event.machine_key]
            if node.lock is not None:
                why = f"Node {node.name} is deleted"
                yield lock_changed(templates[node.pool], node, node.lock, "released", why)
        yield event
