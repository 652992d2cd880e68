"""The state of the lifecycle service after each message."""

from typing import TypeVar, assert_never

from immutables import Map

from lifecycle import Hears, Says
from lifecycle.changes import BootReport, NodeChange, change_node, is_expected
from lifecycle.commands import PhaseCommand, find_conflict
from lifecycle.known import State
from lifecycle.node import Node
from lifecycle.racks import awaits_cordon, update_racks
from lifecycle.template import NodeTemplate, make_template, update_template
from nodepool.contract import events as on
from nodepool.contract.catalog import rack_size
from nodepool.contract.commands import CordonNode, DrainNode, RebootNode, ReserveNode, UncordonNode
from nodepool.contract.commands_slurm import LockNode, UnlockNode
from nodepool.contract.keys import PoolKey, cluster_key, cluster_of
from nodepool.contract.messages import OfMachine, OfNode
from nodepool.contract.timetable import BOOT_MAX
from nodepool.placement.racks import domain_of
from nodepool.service import Context
from nodepool.state.values import replace

__all__ = ["State", "evolve"]

V = TypeVar("V")


def evolve(state: State, message: Hears | Says, context: Context) -> State:
    """Return the state after a message; a message about an earlier stay of a machine is ignored."""
    after = _fold_message(state, message, context)
    if after.nodes is state.nodes or not isinstance(message, OfNode | OfMachine):
        return after
    after = after.with_areas(state, message.machine_key, context)
    return _with_racks(state, after, message)


def _fold_message(state: State, message: Hears | Says, context: Context) -> State:
    match message:
        case on.NodePoolValidated():
            return _fold_spec(state, message)
        case on.ClusterRegistered():
            return _fold_registration(state, message)
        case on.CWNodePoolDeleted():
            return _pool_deleted(state, message)
        case on.CWNodePoolMetadata(key=key):
            return _fold_announcement(state, state.templates.get(key))
        case on.NodeTemplateChanged(key=key, revision=revision):
            return replace(state, published=state.published.set(key, revision))
        case on.CWNodeAssigned():
            return _fold_assignment(state, message, context)
        case on.CWNodeRegistered() | on.NodeUpdated():
            return _looks_current(state, message, context)
        case on.CWNodeDeleted() | on.CWNodeRegistrationFailed():
            return _fold_departure(state, message)
        case on.NodeObserved() | on.NodeReported() | on.NodeConditionReported():
            return _fold_change(state, message, context)
        case (
            on.NodeActivityChanged()
            | on.NodeReservationChanged()
            | on.AnswerAwaited()
            | on.NodeAnswered()
            | on.CWDrainNode()
        ):
            return _fold_change(state, message, context)
        case on.NodeSilent() | on.NodeReportRequested():
            return _fold_change(state, message, context)
        case on.CWNodeDeletionRequestSuccess() | on.NodePreempted():
            return _fold_change(state, message, context)
        case on.PreemptionPending() | on.PreemptionInProgress():
            return _fold_change(state, message, context)
        case on.NodeUpdateFailed():
            return _fold_failure(state, message, context)
        case on.NodeRemovalRecovered(key=key):
            return replace(
                state,
                work=state.work.clear_failures(key),
                failed=state.failed.delete(key),
                told=_without(state.told, key),
            )
        case on.MachineBooted() | on.MachineFailed() | on.NodeVerified():
            return _fold_report(state, message, context)
        case on.NodeConditionChanged() | on.NodeActionRequested() | on.CWNodeCordoned():
            return _fold_change(state, message, context)
        case (
            on.CWNodeUncordoned() | on.NodeRemovalCancelled() | on.NodeKept() | on.NodeLockChanged()
        ):
            return _fold_change(state, message, context)
        case CordonNode() | UncordonNode() | DrainNode() | RebootNode() | ReserveNode():
            return _fold_command(state, message)
        case LockNode():
            return _fold_command(state, message)
        case on.CWNodePoolNodesRemoveError(key=key, node="", message=text):
            return replace(state, told=state.told.set(key, text))
        case on.CWNodePoolNodesRemoveError() | on.CWRegistrationFailedEvent() | UnlockNode():
            return state
        case _:
            assert_never(message)


def _fold_registration(state: State, event: on.ClusterRegistered) -> State:
    """Return the state in which the NodePools of a cluster know that the cluster has an agent."""
    key = cluster_key(event.org, event.cluster)
    if not event.kubernetes or key in state.agents:
        return state
    templates = state.templates
    for pool, template in state.templates.items():
        if cluster_of(pool) == key:
            templates = templates.set(pool, replace(template, has_agent=True))
    return replace(state, agents=state.agents.set(key, True), templates=templates)


def _fold_spec(state: State, event: on.NodePoolValidated) -> State:
    key, before = event.key, state.templates.get(event.key)
    if before is not None and before.uid == event.uid:
        return replace(state, templates=state.templates.set(key, update_template(before, event)))
    template = make_template(event, has_agent=cluster_of(key) in state.agents)
    templates, published = state.templates.set(key, template), _without(state.published, key)
    return _fold_announcement(replace(state, templates=templates, published=published), template)


def _without(by_pool: Map[PoolKey, V], key: PoolKey) -> Map[PoolKey, V]:
    return by_pool.delete(key) if key in by_pool else by_pool


def _fold_announcement(state: State, template: NodeTemplate | None) -> State:
    if template is None:
        return state
    return replace(state, announced=state.announced.set(template.key, template.version))


def _pool_deleted(state: State, event: on.CWNodePoolDeleted) -> State:
    key = event.key
    template = state.templates.get(key)
    if template is None or template.uid != event.uid:
        return state
    return replace(
        state,
        templates=state.templates.delete(key),
        announced=state.announced.delete(key),
        published=_without(state.published, key),
        failed=_without(state.failed, key),
        told=_without(state.told, key),
        work=state.work.drop(key),
    )


def _fold_failure(state: State, event: on.NodeUpdateFailed, context: Context) -> State:
    """Return the state with a NodePool that is reconciled again later, until that succeeds."""
    if event.key not in state.templates:
        return state
    return replace(
        state,
        failed=state.failed.set(event.key, True),
        work=state.work.retry_later(event.key, context.time),
    )


def _fold_assignment(state: State, event: on.CWNodeAssigned, context: Context) -> State:
    key, boot_by = event.machine_key, context.time + BOOT_MAX
    node = Node(event.node, event.key, event.assignment, event.labels, boot_by)
    members = state.members.get(event.key, Map()).set(key, True)
    # A step that stopped at its limit may have left an earlier stay of the machine in the queue.
    state = replace(state, nodes=state.nodes.set(key, node), work=state.work.drop(key))
    return replace(
        state,
        members=state.members.set(event.key, members),
        work=state.work.put_at(key, boot_by),
    )


def _fold_change(state: State, message: NodeChange, context: Context) -> State:
    node = state.node(message)
    if node is None:
        return state
    return state.with_node(message.machine_key, change_node(node, message, context.time))


def _fold_report(state: State, report: BootReport, context: Context) -> State:
    """Return the state after a report; count a report that does not fit what its Node does."""
    node = state.node(report)
    if node is None or is_expected(node, report):
        return _fold_change(state, report, context)
    return _count_refusal(state, node, type(report).__name__)


def _fold_command(state: State, command: PhaseCommand) -> State:
    """Return the state with a count of commands that a Node could not follow.

    What they ask for is published and folded then.
    """
    node = state.find_commanded_node(command)
    if node is None or find_conflict(node, command) is None:
        return state
    return _count_refusal(state, node, type(command).__name__)


def _count_refusal(state: State, node: Node, message: str) -> State:
    before = state.refused.get(node.phase, Map())
    after = before.set(message, before.get(message, 0) + 1)
    return replace(state, refused=state.refused.set(node.phase.value, after))


def _looks_current(
    state: State, event: on.CWNodeRegistered | on.NodeUpdated, context: Context
) -> State:
    """Return the state with a Node, booted and in its cluster, that looks like its template."""
    node = state.node(event)
    if node is None:
        return state
    after = change_node(node, event, context.time)
    after = replace(after, revision=state.templates[node.pool].revision)
    return state.with_node(event.machine_key, after)


def _fold_departure(state: State, event: on.CWNodeDeleted | on.CWNodeRegistrationFailed) -> State:
    return state if state.node(event) is None else state.without_node(event.machine_key)


def _with_racks(before: State, state: State, message: OfNode | OfMachine) -> State:
    """Return the state with the other Nodes of a rack in step with a Node that changed."""
    key = message.machine_key
    node = state.nodes.get(key)
    seen = node or before.nodes[key]
    template = state.templates.get(seen.pool)
    size = rack_size(template.instance_type) if template and domain_of(seen.topology) else 0
    if not size:
        return state
    is_lost = isinstance(message, on.CWNodeRegistrationFailed) or getattr(message, "triage", False)
    racks, nodes = update_racks(state.racks, state.nodes, key, seen, size, is_lost=is_lost)
    is_step_missing = nodes is not state.nodes or awaits_cordon(nodes.get(key))
    work = state.work.put(seen.pool) if is_step_missing else state.work
    return replace(state, racks=racks, nodes=nodes, work=work)
