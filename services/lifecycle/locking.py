"""The commands that take and release the lock of a Node."""

from collections.abc import Generator
from typing import NamedTuple

from lifecycle import Says
from lifecycle.commands import find_conflict
from lifecycle.known import State
from lifecycle.lock import Lock, begin_lock
from lifecycle.node import Node
from lifecycle.node_events import lock_changed, update_node
from lifecycle.template import NodeTemplate
from nodepool.contract import grammar
from nodepool.contract.commands_slurm import LockNode, UnlockNode
from nodepool.contract.events import CommandRefused, NodeLockChanged
from nodepool.contract.keys import machine_key
from nodepool.contract.outcomes import CommandOutcome, build_acceptance, build_refusal
from nodepool.service import Context

LockCommand = LockNode | UnlockNode
CommandSteps = Generator[Says | CommandOutcome, Node, Node]
"""The steps of a Node after a command; the first step is the outcome of the command."""


class Place(NamedTuple):
    """The Node that a command names, and the template of its NodePool."""

    template: NodeTemplate
    node: Node


def take_lock(
    template: NodeTemplate, node: Node, command: LockNode, context: Context
) -> CommandSteps:
    """Yield the outcome of a command that takes the lock of a Node, and the lock after it.

    A job that has the lock, or waits for the lock, gets the same answer again.
    """
    lock = node.work.lock
    if lock is not None and lock.job == command.job:
        yield build_acceptance(command, "unchanged")
        return (yield _publish_lock(template, node, lock))
    if lock is not None:
        text = f"Node {node.name} is locked by {lock.work}"
        return (yield build_refusal(command, "node", text, "Conflict"))
    if refusal := find_conflict(node, command):
        return (yield build_refusal(command, refusal.field, refusal.message, refusal.reason))
    yield build_acceptance(command, "done")
    lock = begin_lock(command.job, context.position, context.time)
    node = yield _publish_lock(template, node, lock)
    return (yield update_node(template, node, node.phase, node.exit.reason))


def release_lock(template: NodeTemplate, node: Node, command: UnlockNode) -> CommandSteps:
    """Yield the outcome of a command that releases the lock of a Node, and the end of the lock.

    Without a lock nothing changes.
    """
    lock = node.work.lock
    if lock is None:
        return (yield build_acceptance(command, "unchanged"))
    if lock.job != command.job:
        text = f"Node {node.name} is locked by {lock.work}; only that releases it"
        return (yield build_refusal(command, "job", text, "Conflict"))
    yield build_acceptance(command, "done")
    text = f"{lock.work} released it"
    node = yield lock_changed(template, node, lock, "released", text)
    return (yield update_node(template, node, node.phase, node.exit.reason))


def find_place(state: State, command: LockCommand) -> Place | CommandRefused:
    """Return the Node of a command; a refusal if the command names no Node, or no job."""
    template = state.templates.get(command.key)
    if template is None:
        text = f"NodePool {command.pool} does not exist"
        return build_refusal(command, "metadata.name", text, "NotFound")
    if reason := _no_job(command.job):
        return build_refusal(command, "job", reason)
    node = state.nodes.get(machine_key(template.zone, command.node))
    if node is None or node.pool != command.key:
        text = f"{command.node} is no Node of NodePool {command.pool}"
        return build_refusal(command, "node", text, "NotFound")
    return Place(template, node)


def _no_job(job: str) -> str | None:
    """Return why this is no id of a Slurm job; None if it is an id."""
    if not job:
        return "is empty; it must be the id of the Slurm job"
    return grammar.label_value(job)


def _publish_lock(template: NodeTemplate, node: Node, lock: Lock) -> NodeLockChanged:
    if lock.is_held:
        return lock_changed(template, node, lock, "locked", f"{lock.work} has Node {node.name}")
    text = f"{lock.work} waits until every Pod that does not tolerate its lock is gone"
    return lock_changed(template, node, lock, "pending", text)
