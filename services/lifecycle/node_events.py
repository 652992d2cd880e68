"""The events about a Node, each made from the Node and the template of its NodePool."""

from collections.abc import Iterator
from datetime import datetime

from lifecycle.appearance import illegal, look_of, node_fields, planned, standing_of
from lifecycle.health import Asked, Health, cordon_text
from lifecycle.lock import Lock
from lifecycle.node import Node, Workload
from lifecycle.template import NodeTemplate
from nodepool.contract import events as on
from nodepool.contract.events.lifecycle import BLOCKING_MAX, LockState
from nodepool.contract.health import BY_TYPE, cordon_cause
from nodepool.contract.messages import pool_fields
from nodepool.contract.model import NodePhase, RemovalReason
from nodepool.contract.node_failures import NodeFailure
from nodepool.contract.node_states import may_follow
from nodepool.contract.pods import BlockingPod
from nodepool.contract.production import asked_taints

NAMED_MAX = 5
"""How many workloads a message names."""


def template_changed(template: NodeTemplate) -> on.NodeTemplateChanged:
    """What the NodePool asks for on its Nodes, to which events about these refer from now on."""
    return on.NodeTemplateChanged(
        **pool_fields(template.key),
        revision=template.revision,
        labels=template.node_labels,
        annotations=template.node_annotations,
        taints=asked_taints(template.node_taints),
    )


def registered(template: NodeTemplate, node: Node) -> on.CWNodeRegistered:
    """The Node joined its cluster; it is in production, unless its verification follows."""
    phase = NodePhase.VERIFYING if node.health.verifying else NodePhase.PRODUCTION
    assert may_follow(node.phase, phase), illegal(node, phase)
    return on.CWNodeRegistered(
        **node_fields(template, node),
        **look_of(template, node, {}, {}, standing_of(node, phase, node.health.action, "")),
        phase=phase,
        message=f"Node {node.name} is registered",
    )


def registration_failed(
    template: NodeTemplate, node: Node, cause: str
) -> on.CWNodeRegistrationFailed:
    """The Node never joined its cluster."""
    return on.CWNodeRegistrationFailed(
        **node_fields(template, node),
        uid=template.uid,
        message=f"registration of Node {node.name} failed: {cause}",
    )


def cordoned(template: NodeTemplate, node: Node) -> on.CWNodeCordoned:
    """Return the event of a cordon, with the causes other than the removal of the Node."""
    cause = cordon_text(node.health, planned(template, node))
    return on.CWNodeCordoned(
        **node_fields(template, node),
        cause=cause,
        triage=node.health.needs_triage,
        message=f"Node {node.name} is cordoned: {cause.replace(',', ', ')}",
    )


def uncordoned(template: NodeTemplate, node: Node) -> on.CWNodeUncordoned:
    """Return the event that the Node may be used again, or is cordoned for its removal only."""
    end = "no longer cordoned" if node.removal is None else "cordoned for its removal only"
    return on.CWNodeUncordoned(**node_fields(template, node), message=f"Node {node.name} is {end}")


def asked_for(template: NodeTemplate, node: Node, asked: Asked) -> on.NodeActionRequested:
    """Commands asked for all of this, and no more."""
    return on.NodeActionRequested(
        **node_fields(template, node),
        cordon=asked.cordon,
        drain=asked.drain,
        reboot=asked.reboot,
        reserved_desired=asked.reserved_desired,
    )


def silent(
    template: NodeTemplate, node: Node, since: datetime, unhealthy_at: datetime
) -> on.NodeSilent:
    """Return that the Node is silent, and when that makes it unhealthy."""
    return on.NodeSilent(**node_fields(template, node), since=since, unhealthy_at=unhealthy_at)


def report_requested(template: NodeTemplate, node: Node, request: int) -> on.NodeReportRequested:
    """Return the question whether the Node is still silent."""
    return on.NodeReportRequested(**node_fields(template, node), request=request)


def lock_changed(
    template: NodeTemplate, node: Node, lock: Lock, state: LockState, message: str
) -> on.NodeLockChanged:
    """The lock of the Node is in this state."""
    fields = node_fields(template, node)
    return on.NodeLockChanged(
        **fields, lock=state, job=lock.job, number=lock.number, message=message
    )


def reservation_changed(template: NodeTemplate, node: Node) -> on.NodeReservationChanged:
    """Return the event on whether the NodePool can use the Node."""
    return on.NodeReservationChanged(**node_fields(template, node), usable=node.health.is_usable)


def activity_changed(template: NodeTemplate, node: Node) -> on.NodeActivityChanged | None:
    """What runs on the Node now; None where the same was published before."""
    event = _activity(template, node, node.work)
    return None if event == _activity(template, node, node.published) else event


def _activity(
    template: NodeTemplate, node: Node, workloads: tuple[Workload, ...]
) -> on.NodeActivityChanged:
    names = tuple(workload.name for workload in workloads)
    blocking = [workload for workload in workloads if workload.blocks]
    longest = sorted(blocking, key=lambda workload: (workload.since, workload.name))[:BLOCKING_MAX]
    return on.NodeActivityChanged(
        **node_fields(template, node),
        active=bool(workloads),
        message=f"running: {listed(names)}" if names else "nothing runs here",
        blocking=tuple(BlockingPod(name=pod.name, since=pod.since) for pod in longest),
        blocking_count=len(blocking),
        grace_s=max((workload.grace_s for workload in workloads), default=0),
    )


def kept(template: NodeTemplate, node: Node, why: str) -> on.NodeKept:
    """The Node stays, and its request to be deleted is no longer followed."""
    return on.NodeKept(
        **node_fields(template, node),
        request=node.request,
        message=f"Node {node.name} stays: {why}",
    )


def draining(template: NodeTemplate, node: Node) -> on.CWDrainNode:
    """The drain of the Node begins.

    No Pod may block a preemption, the deletion of a NodePool, or a drain that a command forces,
    whatever the Node is drained for since.
    """
    return on.CWDrainNode(
        **node_fields(template, node),
        force=node.is_forced or node.health.asked.drain == "forced",
        message=f"draining Node {node.name}",
    )


def deleted(
    template: NodeTemplate, node: Node, *, triage: bool = False, lost: int = 0
) -> on.CWNodeDeleted:
    """The Node is gone, and its machine is free; one that failed, or is to be seen to, is not."""
    assert node.removal is not None, f"nothing removes Node {node.name}"
    why = ": it was preempted" if node.removal is RemovalReason.PREEMPTED else ""
    return on.CWNodeDeleted(
        **node_fields(template, node),
        uid=template.uid,
        registered=not node.booting,
        triage=triage or node.health.needs_triage,
        removal=node.removal,
        lost=lost,
        message=f"Node {node.name} is deleted{why}",
    )


def replaced(template: NodeTemplate, node: Node, why: str = "") -> on.CWNodeDeleted:
    """The Node is gone because it is unhealthy, or because of `why`; another takes its place."""
    return on.CWNodeDeleted(
        **node_fields(template, node),
        uid=template.uid,
        registered=True,
        triage=True,
        removal=RemovalReason.UNHEALTHY,
        message=f"Node {node.name} is deleted: {why or removal_cause(node.health)}",
    )


def answer_awaited(
    template: NodeTemplate, node: Node, moment: datetime, *, is_final: bool, lock: int = 0
) -> on.AnswerAwaited:
    """The machine of the Node is given up unless it answers by then, or its time begins then."""
    fields = node_fields(template, node)
    return on.AnswerAwaited(**fields, answer_by=moment, is_final=is_final, lock=lock)


def unanswered(template: NodeTemplate, node: Node) -> on.CWNodePoolNodesRemoveError:
    """The machine of the Node did not answer in time, and is taken for dead."""
    step = "drain" if node.phase is NodePhase.DRAINING else "cordon"
    return on.CWNodePoolNodesRemoveError(
        **pool_fields(template.key),
        uid=template.uid,
        node=node.name,
        message=(
            f"Node {node.name} is deleted: {NodeFailure.UNANSWERED.phrase} a {step} in time and"
            " goes to triage"
        ),
    )


def listed(workloads: tuple[str, ...]) -> str:
    """The names of the first workloads, and how many more there are."""
    more = len(workloads) - NAMED_MAX
    return ", ".join(workloads[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def removal_cause(health: Health) -> str:
    """Why an unhealthy Node is deleted, as one clause."""
    if health.boot_fault:
        return f"{NodeFailure.REBOOT_FAILED.phrase}: {health.boot_fault}"
    if health.verified is False:
        fault = health.verification_fault or "no cause given"
        return f"{NodeFailure.VERIFICATION_FAILED.phrase}: {fault}"
    return ", ".join(_described(health)) or "it is unhealthy"


def _described(health: Health) -> Iterator[str]:
    for problem in health.findings:
        cause, reason = cordon_cause(problem.type), BY_TYPE[problem.type].reason
        yield cause if reason == cause else f"{cause} ({reason})"
