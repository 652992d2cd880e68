"""How a Node leaves its NodePool: cordoned, drained, deleted; or kept after all."""

from collections.abc import Iterator
from typing import assert_never

from lifecycle import Says
from lifecycle.node import Node
from lifecycle.node_events import activity_changed, deleted, draining, kept, listed, updated
from lifecycle.template import NodeTemplate
from nodepool.contract.events import (
    NodeObserved,
    PreemptionInProgress,
    PreemptionOverdue,
    PreemptionPending,
)
from nodepool.contract.model import NodePhase, RemovalReason


def requested(template: NodeTemplate, node: Node) -> Iterator[Says]:
    """A Node that never joined goes at once; one in production is cordoned first."""
    match node.phase:
        case NodePhase.BOOTING:
            yield deleted(template, node)
        case NodePhase.PRODUCTION:
            yield updated(template, node, NodePhase.CORDONED, node.removal)
        case NodePhase.DRAINING if node.removal is RemovalReason.POOL_DELETED:
            yield draining(template, node)


def cancelled(template: NodeTemplate, node: Node) -> Iterator[Says]:
    """A Node that was to leave in a scale-down is wanted again; other removals go on."""
    if node.cordoned and node.removal is RemovalReason.SCALE_DOWN:
        yield from _keep(template, node, "its NodePool wants it again")


def preempted(
    template: NodeTemplate,
    node: Node,
    event: PreemptionPending | PreemptionInProgress | PreemptionOverdue,
) -> Iterator[Says]:
    """A preemption moves on by its timetable, whatever runs on the Node."""
    match event:
        case PreemptionPending():
            is_draining = node.phase is NodePhase.DRAINING
            phase = NodePhase.DRAINING if is_draining else NodePhase.CORDONED
            yield updated(template, node, phase, RemovalReason.PREEMPTED)
        case PreemptionInProgress():
            yield updated(template, node, NodePhase.DRAINING, RemovalReason.PREEMPTED)
            yield draining(template, node)
        case PreemptionOverdue():
            yield deleted(template, node)
        case _:
            assert_never(event)


def observed(template: NodeTemplate, node: Node, report: NodeObserved) -> Iterator[Says]:
    """What follows from the Pods on a Node: its activity, and the next step of its removal."""
    active = bool(node.workloads)
    if active is not node.active and not node.booting:
        yield activity_changed(template, node)
    # Only a report that includes the last cordon shows all Pods that ran before it took hold.
    if not report.unschedulable or report.cordon != node.cordon:
        return
    if node.phase is NodePhase.CORDONED and node.removal is not RemovalReason.PREEMPTED:
        yield from _cordoned(template, node)
    elif node.phase is NodePhase.DRAINING and not active:
        yield deleted(template, node)


def _cordoned(template: NodeTemplate, node: Node) -> Iterator[Says]:
    if node.workloads and node.idle_only:
        yield from _keep(template, node, f"it became active: {listed(node.workloads)}")
        return
    yield draining(template, node)
    if not node.workloads:
        yield deleted(template, node)


def _keep(template: NodeTemplate, node: Node, why: str) -> Iterator[Says]:
    yield updated(template, node, NodePhase.PRODUCTION, None)
    yield kept(template, node, why)
