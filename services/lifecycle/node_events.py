"""The events about a Node, each made from the Node and the template of its NodePool."""

from collections.abc import Mapping
from datetime import datetime
from typing import TypedDict

from lifecycle.lock import Lock, lock_annotations, lock_taints
from lifecycle.node import Node, is_cordoned
from lifecycle.template import (
    NodeTemplate,
    labels,
    managed_labels,
    managed_taints,
    own_taints,
    taints,
)
from lifecycle.workload import Workload
from nodepool.contract.events import (
    AnswerAwaited,
    CWDrainNode,
    CWNodeDeleted,
    CWNodePoolNodesRemoveError,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    NodeActivityChanged,
    NodeKept,
    NodeLockChanged,
    NodeTemplateChanged,
    NodeUpdated,
)
from nodepool.contract.events.lifecycle import BLOCKING_MAX, LockState
from nodepool.contract.messages import PoolFields, pool_fields
from nodepool.contract.model import NodePhase, RemovalReason, Taint
from nodepool.contract.pods import BlockingPod

NAMED_MAX = 5
"""How many workloads a message names."""


class NodeFields(PoolFields):
    """The identity of a Node as the fields of a message about it."""

    node: str
    zone: str
    assignment: int


class Look(TypedDict):
    """What a Node looks like in its cluster, as the fields of an event."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: tuple[Taint, ...]
    template: int


def template_changed(template: NodeTemplate) -> NodeTemplateChanged:
    """What the NodePool asks for on its Nodes, to which events about these refer from now on."""
    return NodeTemplateChanged(
        **pool_fields(template.key),
        revision=template.revision,
        labels=template.node_labels,
        annotations=template.node_annotations,
        taints=own_taints(template),
    )


def registered(template: NodeTemplate, node: Node) -> CWNodeRegistered:
    """The Node joined its cluster."""
    return CWNodeRegistered(
        **_fields(template, node),
        **_look(template, node, cordoned=False),
        message=f"Node {node.name} is registered",
    )


def registration_failed(template: NodeTemplate, node: Node, cause: str) -> CWNodeRegistrationFailed:
    """The Node never joined its cluster."""
    return CWNodeRegistrationFailed(
        **_fields(template, node),
        uid=template.uid,
        message=f"registration of Node {node.name} failed: {cause}",
    )


def updated(
    template: NodeTemplate, node: Node, phase: NodePhase, removal: RemovalReason | None
) -> NodeUpdated:
    """The Node as it should look from now on, in this phase and with this reason to leave."""
    cordoned = is_cordoned(phase)
    marks = {}
    if removal is RemovalReason.PREEMPTED:
        marks["qos.coreweave.cloud/pending-preemption"] = "true"
    if node.evicted_at is not None:
        marks["qos.coreweave.cloud/evicted-at"] = str(int(node.evicted_at.timestamp()))
    return NodeUpdated(
        **_fields(template, node),
        phase=phase,
        unschedulable=cordoned,
        cordon=node.cordon + (cordoned and not node.cordoned),
        removal=removal,
        lock=node.lock.number if node.lock is not None else 0,
        **_look(template, node, marks, cordoned=cordoned),
    )


def _look(
    template: NodeTemplate, node: Node, marks: Mapping[str, str] | None = None, *, cordoned: bool
) -> Look:
    """What the Node looks like: whole, or beside a template that is too large for each event."""
    revision = template.revision if template.is_large else 0
    labels_of = managed_labels if revision else labels
    taints_of = managed_taints if revision else taints
    annotations = {} if revision else template.node_annotations
    return Look(
        labels={**labels_of(template, node.name, node.topology), **(marks or {})},
        annotations={**annotations, **lock_annotations(node.lock)},
        taints=(*taints_of(template, cordoned=cordoned), *lock_taints(node.lock)),
        template=revision,
    )


def lock_changed(
    template: NodeTemplate, node: Node, lock: Lock, state: LockState, message: str
) -> NodeLockChanged:
    """The lock of the Node is in this state."""
    return NodeLockChanged(
        **_fields(template, node), lock=state, job=lock.job, number=lock.number, message=message
    )


def activity_changed(template: NodeTemplate, node: Node) -> NodeActivityChanged | None:
    """What runs on the Node now; None where the same was published before."""
    event = _activity(template, node, node.work)
    return None if event == _activity(template, node, node.published) else event


def _activity(
    template: NodeTemplate, node: Node, workloads: tuple[Workload, ...]
) -> NodeActivityChanged:
    names = tuple(workload.name for workload in workloads)
    blocking = [workload for workload in workloads if workload.blocks]
    longest = sorted(blocking, key=lambda workload: (workload.since, workload.name))[:BLOCKING_MAX]
    return NodeActivityChanged(
        **_fields(template, node),
        active=bool(workloads),
        message=f"running: {listed(names)}" if names else "nothing runs here",
        blocking=tuple(BlockingPod(name=pod.name, since=pod.since) for pod in longest),
        blocking_count=len(blocking),
    )


def kept(template: NodeTemplate, node: Node, why: str) -> NodeKept:
    """The Node stays, and its request to be deleted is no longer followed."""
    return NodeKept(
        **_fields(template, node),
        request=node.request,
        message=f"Node {node.name} stays: {why}",
    )


def draining(template: NodeTemplate, node: Node) -> CWDrainNode:
    """The drain of the Node begins; no Pod may block a preemption or the deletion of a NodePool."""
    return CWDrainNode(
        **_fields(template, node),
        force=node.is_forced,
        message=f"draining Node {node.name}",
    )


def deleted(template: NodeTemplate, node: Node, *, triage: bool = False) -> CWNodeDeleted:
    """The Node is gone, and its machine is free, or goes to triage."""
    return CWNodeDeleted(
        **_fields(template, node),
        uid=template.uid,
        registered=not node.booting,
        triage=triage,
        removal=node.removal,
        message=f"Node {node.name} is deleted",
    )


def answer_awaited(
    template: NodeTemplate, node: Node, moment: datetime, *, is_final: bool
) -> AnswerAwaited:
    """The machine of the Node is given up unless it answers by then, or its time begins then."""
    return AnswerAwaited(**_fields(template, node), answer_by=moment, is_final=is_final)


def unanswered(template: NodeTemplate, node: Node) -> CWNodePoolNodesRemoveError:
    """The machine of the Node did not answer in time, and is taken for dead."""
    step = "drain" if node.phase is NodePhase.DRAINING else "cordon"
    return CWNodePoolNodesRemoveError(
        **pool_fields(template.key),
        uid=template.uid,
        node=node.name,
        message=(
            f"Node {node.name} is deleted: its machine did not answer a {step} in time and goes to"
            " triage"
        ),
    )


def listed(workloads: tuple[str, ...]) -> str:
    """The names of the first workloads, and how many more there are."""
    more = len(workloads) - NAMED_MAX
    return ", ".join(workloads[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _fields(template: NodeTemplate, node: Node) -> NodeFields:
    return {
        **pool_fields(template.key),
        "node": node.name,
        "zone": template.zone,
        "assignment": node.assignment,
    }
