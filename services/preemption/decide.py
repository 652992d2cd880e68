"""Takes spot Nodes back: warned at once, drained after two minutes, gone after seven at most."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from immutables import Map
from nodepool.state.persistent import Deadlines

from nodepool.contract.commands import PreemptNode
from nodepool.contract.events import (
    CommandAccepted,
    CommandRefused,
    CWNodeDeleted,
    CWNodeRegistered,
    DeletedForPreemption,
    PreemptionInProgress,
    PreemptionOverdue,
    PreemptionPending,
    Wake,
)
from nodepool.contract.messages import Message, PoolFields, path_fields, pool_fields
from nodepool.contract.model import COMPUTE_CLASS, ComputeClass
from nodepool.service import Context, Failure, Service, refused
from nodepool.state.receipts import Receipts
from preemption.timetable import Stage, next_moment, stage

Hears = PreemptNode | CWNodeRegistered | CWNodeDeleted | Wake
Says = (
    CommandAccepted
    | CommandRefused
    | PreemptionPending
    | PreemptionInProgress
    | PreemptionOverdue
    | DeletedForPreemption
)

STAGES_MAX = 400
"""How many Nodes one decision moves on; the next `Wake` goes on with the rest."""


@dataclass(frozen=True, slots=True)
class Node:
    """A spot Node; `pending_since` is when its preemption began, `reached` how far it has come."""

    of: tuple[str, str, str]
    zone: str
    name: str
    assignment: int
    pending_since: datetime | None = None
    reached: Stage = Stage.PENDING


@dataclass(frozen=True, slots=True)
class State:
    """The spot Nodes by `pool key/node`, and when each moves on."""

    nodes: Map[str, Node] = Map()
    deadlines: Deadlines = Deadlines()
    receipts: Receipts = Receipts()


def wakes(state: State) -> datetime | None:
    """The earliest moment at which a preemption moves on."""
    return state.deadlines.next()


def evolve(state: State, message: Message, now: Context) -> State:
    """Folds which spot Nodes there are and how far their preemptions have come."""
    match message:
        case CommandAccepted() | CommandRefused():
            return replace(state, receipts=state.receipts.put(now.id, message))
        case CWNodeRegistered(key=key) if message.labels.get(COMPUTE_CLASS) == ComputeClass.SPOT:
            node = Node(message.path, message.zone, message.node, message.assignment)
            return replace(state, nodes=state.nodes.set(f"{key}/{node.name}", node))
        case CWNodeDeleted(key=key) if _is(state, message):
            return _idle(state, f"{key}/{message.node}")
        case PreemptionPending(key=key):
            return _reached(state, f"{key}/{message.node}", Stage.PENDING, message.since)
        case PreemptionInProgress(key=key):
            return _reached(state, f"{key}/{message.node}", Stage.IN_PROGRESS, None)
        case PreemptionOverdue(key=key):
            return _reached(state, f"{key}/{message.node}", Stage.OVER, None)
        case DeletedForPreemption(key=key):
            return replace(state, nodes=state.nodes.delete(f"{key}/{message.node}"))
    return state


def _is(state: State, said: CWNodeDeleted) -> bool:
    node = state.nodes.get(f"{said.key}/{said.node}")
    return node is not None and node.assignment == said.assignment


def _idle(state: State, key: str) -> State:
    """A Node that is gone: remembered until said where it was preempted, else forgotten."""
    state = replace(state, deadlines=state.deadlines.drop(key))
    if state.nodes[key].pending_since is not None:
        return state
    return replace(state, nodes=state.nodes.delete(key))


def _reached(state: State, key: str, reached: Stage, since: datetime | None) -> State:
    node = state.nodes[key]
    node = replace(node, reached=reached, pending_since=since or node.pending_since)
    assert node.pending_since is not None, f"{key} is preempted without a warning"
    due = next_moment(node.pending_since, reached)
    deadlines = state.deadlines.drop(key) if due is None else state.deadlines.put(key, due)
    return replace(state, nodes=state.nodes.set(key, node), deadlines=deadlines)


def decide(state: State, message: Message, now: Context) -> Iterator[Says]:
    """The warning, the drain and the removal, each when its moment has come."""
    match message:
        case PreemptNode():
            yield from _ask(state, message, now)
        case CWNodeDeleted(key=key):
            node = state.nodes.get(f"{key}/{message.node}")
            if node is not None and node.assignment == message.assignment:
                told = f"Reason: Deleted for preemption. Node {node.name} left its NodePool"
                yield DeletedForPreemption(**_of(node), node=node.name, message=told)
        case Wake():
            for due in state.deadlines.due(now.time, STAGES_MAX):
                yield from _move_on(state.nodes[due], now)


def _ask(state: State, message: PreemptNode, now: Context) -> Iterator[Says]:
    outcome = state.receipts.again(message, now.id)
    if outcome is not None:
        yield outcome
        return
    node = state.nodes.get(f"{message.key}/{message.node}")
    of = path_fields(message)
    if node is None:
        yield CommandRefused(
            **of,
            command="PreemptNode",
            reason="NotFound",
            field="node",
            message=f"{message.node} is no spot Node of NodePool {message.pool}",
        )
        return
    pending = node.pending_since is not None
    yield CommandAccepted(**of, command="PreemptNode", result="unchanged" if pending else "done")
    if not pending:
        told = f"Reason: Preemption pending. Node {node.name} is cordoned and goes within 7 minutes"
        yield PreemptionPending(
            **_of(node),
            node=node.name,
            zone=node.zone,
            assignment=node.assignment,
            since=now.time,
            message=told,
        )


def _move_on(node: Node, now: Context) -> Iterator[Says]:
    assert node.pending_since is not None, f"{node.name} is due without a warning"
    match stage(node.pending_since, now.time):
        case Stage.OVER:
            told = f"Node {node.name} did not drain within 7 minutes"
            yield PreemptionOverdue(
                **_of(node),
                node=node.name,
                zone=node.zone,
                assignment=node.assignment,
                message=told,
            )
        case Stage.IN_PROGRESS:
            told = f"Reason: Preemption in progress. Node {node.name} is being drained"
            yield PreemptionInProgress(
                **_of(node),
                node=node.name,
                zone=node.zone,
                assignment=node.assignment,
                evicted_at=now.time,
                message=told,
            )


def _of(node: Node) -> PoolFields:
    return pool_fields(node.of)


def on_failure(failure: Failure) -> Iterable[Says]:
    """A command that cannot be taken is refused."""
    if failure.is_command:
        yield refused(failure)


SERVICE = Service(
    name="preemption",
    hears=Hears,
    says=Says,
    initial=State(),
    evolve=evolve,
    decide=decide,
    wakes=wakes,
    on_failure=on_failure,
)
