"""The outcomes of the commands that take and release the lock of a Node."""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from lifecycle import Says
from lifecycle.appearance import updated
from lifecycle.changes import changed
from lifecycle.lock import Lock, taken
from lifecycle.lock_steps import released
from lifecycle.node import Node
from lifecycle.node_events import lock_changed
from lifecycle.removal import missing
from lifecycle.requests import out_of_place
from lifecycle.state import State
from lifecycle.template import NodeTemplate
from nodepool.contract import grammar
from nodepool.contract.commands_slurm import LockNode, UnlockNode
from nodepool.contract.events import CommandRefused, NodeLockChanged
from nodepool.contract.keys import machine_key
from nodepool.contract.outcomes import CommandOutcome, accepted, refused
from nodepool.service import Context

LockCommand = LockNode | UnlockNode


class Place(NamedTuple):
    """The Node that a command names, and the template of its NodePool."""

    template: NodeTemplate
    node: Node


def lock(state: State, command: LockNode, context: Context) -> Iterator[Says | CommandOutcome]:
    """The lock is taken, or waited for; a job that has it, or waits for it, is told so again."""
    place = _place(state, command)
    if isinstance(place, CommandRefused):
        yield place
        return
    template, node = place
    if node.lock is not None and node.lock.job == command.job:
        yield accepted(command, "unchanged")
        yield _as_it_is(template, node, node.lock)
        return
    if node.lock is not None:
        text = f"Node {node.name} is locked by {node.lock.work}"
        yield refused(command, "node", text, "Conflict")
        return
    if refusal := out_of_place(node, command):
        yield refused(command, refusal.field, refusal.message, refusal.reason)
        return
    now = context.time
    yield accepted(command, "done")
    event = _as_it_is(template, node, taken(command.job, context.position, now))
    yield event
    node = changed(node, event, now)
    look = updated(template, node, node.phase, node.removal)
    yield look
    yield from missing(template, changed(node, look, now), now)


def unlock(state: State, command: UnlockNode, now: datetime) -> Iterator[Says | CommandOutcome]:
    """The lock is released, and what waits for that goes on; without a lock nothing changes."""
    place = _place(state, command)
    if isinstance(place, CommandRefused):
        yield place
        return
    template, node = place
    if node.lock is None:
        yield accepted(command, "unchanged")
    elif node.lock.job != command.job:
        text = f"Node {node.name} is locked by {node.lock.work}; only that releases it"
        yield refused(command, "job", text, "Conflict")
    else:
        yield accepted(command, "done")
        node = yield from released(template, node, now, f"{node.lock.work} released it")
        yield from missing(template, node, now)


def _place(state: State, command: LockCommand) -> Place | CommandRefused:
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
