"""The outcomes of the commands that take and release the lock of a Node."""

from typing import NamedTuple

from lifecycle.appearance import updated
from lifecycle.lock import Lock, taken
from lifecycle.lock_steps import released
from lifecycle.node import Node
from lifecycle.node_events import lock_changed
from lifecycle.removal import missing
from lifecycle.requests import out_of_place
from lifecycle.state import State
from lifecycle.steps import CommandSteps
from lifecycle.template import NodeTemplate
from nodepool.contract import grammar
from nodepool.contract.commands_slurm import LockNode, UnlockNode
from nodepool.contract.events import CommandRefused, NodeLockChanged
from nodepool.contract.keys import machine_key
from nodepool.contract.outcomes import accepted, refused
from nodepool.service import Context

LockCommand = LockNode | UnlockNode


class Place(NamedTuple):
    """The Node that a command names, and the template of its NodePool."""

    template: NodeTemplate
    node: Node


def lock(template: NodeTemplate, node: Node, command: LockNode, context: Context) -> CommandSteps:
    """The lock is taken, or waited for; a job that has it, or waits for it, is told so again."""
    if node.lock is not None and node.lock.job == command.job:
        yield accepted(command, "unchanged")
        return (yield _as_it_is(template, node, node.lock))
    if node.lock is not None:
        text = f"Node {node.name} is locked by {node.lock.work}"
        return (yield refused(command, "node", text, "Conflict"))
    if refusal := out_of_place(node, command):
        return (yield refused(command, refusal.field, refusal.message, refusal.reason))
    yield accepted(command, "done")
    node = yield _as_it_is(template, node, taken(command.job, context.position, context.time))
    node = yield updated(template, node, node.phase, node.removal)
    return (yield from missing(template, node, context.time))


def unlock(
    template: NodeTemplate, node: Node, command: UnlockNode, context: Context
) -> CommandSteps:
    """The lock is released, and what waits for that goes on; without a lock nothing changes."""
    if node.lock is None:
        return (yield accepted(command, "unchanged"))
    if node.lock.job != command.job:
        text = f"Node {node.name} is locked by {node.lock.work}; only that releases it"
        return (yield refused(command, "job", text, "Conflict"))
    yield accepted(command, "done")
    node = yield from released(template, node, f"{node.lock.work} released it")
    return (yield from missing(template, node, context.time))


def place_of(state: State, command: LockCommand) -> Place | CommandRefused:
    """Return the Node of a command; a refusal if the command names none, or no job."""
    template = state.templates.get(command.key)
    if template is None:
        text = f"NodePool {command.pool} does not exist"
        return refused(command, "metadata.name", text, "NotFound")
    if reason := _no_job(command.job):
        return refused(command, "job", reason)
    node = state.nodes.get(machine_key(template.zone, command.node))
    if node is None or node.pool != command.key:
        text = f"{command.node} is no Node of NodePool {command.pool}"
        return refused(command, "node", text, "NotFound")
    return Place(template, node)


def _no_job(job: str) -> str | None:
    """Why this is no id of a Slurm job; None for one that is."""
    if not job:
        return "is empty; it must be the id of the Slurm job"
    return grammar.label_value(job)


def _as_it_is(template: NodeTemplate, node: Node, lock: Lock) -> NodeLockChanged:
    if lock.is_held:
        return lock_changed(template, node, lock, "locked", f"{lock.work} has Node {node.name}")
    text = f"{lock.work} waits until every Pod that does not tolerate its lock is gone"
    return lock_changed(template, node, lock, "pending", text)
