"""The events about a Node, each made from the Node and the template of its NodePool."""

from datetime import datetime

from lifecycle.health import Asked, Silence
from lifecycle.lock import Lock, is_job
from lifecycle.look import cordon_text, make_look, next_boot, plan_for
from lifecycle.node import Node, Workload, is_unschedulable
from lifecycle.template import NodeTemplate
from nodepool.contract import events as on
from nodepool.contract.events.lifecycle import BLOCKING_MAX, LockState
from nodepool.contract.health import BY_TYPE, cordon_cause
from nodepool.contract.messages import PoolFields, pool_fields
from nodepool.contract.model import NodeAction, NodePhase, RemovalReason
from nodepool.contract.node_failures import NodeFailure
from nodepool.contract.node_states import may_follow
from nodepool.contract.pods import BlockingPod
from nodepool.contract.production import asked_taints

NAMED_MAX = 5  # The maximum number of workloads that a message names.


class NodeFields(PoolFields):
    """The identity of a Node as the fields of a message about it."""

    node: str
    zone: str
    assignment: int


def node_fields(template: NodeTemplate, node: Node) -> NodeFields:
    """Return the identity of a Node as the fields of an event."""
    return {
        **pool_fields(template.key),
        "node": node.name,
        "zone": template.zone,
        "assignment": node.assignment,
    }


def template_changed(template: NodeTemplate) -> on.NodeTemplateChanged:
    """Return the event with what all Nodes have in common, which later events refer to."""
    return on.NodeTemplateChanged(
        **pool_fields(template.key),
        revision=template.revision,
        labels=template.node_labels,
        annotations=template.node_annotations,
        taints=asked_taints(template.node_taints),
    )


def register_node(template: NodeTemplate, node: Node) -> on.CWNodeRegistered:
    """Return that the Node joined its cluster: in production, or with a verification to come."""
    phase = NodePhase.VERIFYING if node.boot.verifies else NodePhase.PRODUCTION
    assert may_follow(node.phase, phase), describe_illegal_move(node, phase)
    return on.CWNodeRegistered(
        **node_fields(template, node),
        **make_look(template, node, phase, action=node.action),
        phase=phase,
        message=f"Node {node.name} is registered",
    )


def update_node(
    template: NodeTemplate,
    node: Node,
    phase: NodePhase,
    removal: RemovalReason | None,
    reserved: str | None = None,
) -> on.NodeUpdated:
    """Return what the Node looks like from now on, in this phase and with this reason to leave.

    reserved: the new reservation; None if it stays.
    """
    assert may_follow(node.phase, phase), describe_illegal_move(node, phase)
    reserved = node.health.reserved if reserved is None else reserved
    action, boot = _find_action(template, node, phase, removal), next_boot(node, phase)
    unschedulable, is_rebooting = is_unschedulable(phase, boot), phase is NodePhase.REBOOTING
    return on.NodeUpdated(
        **node_fields(template, node),
        phase=phase,
        unschedulable=unschedulable,
        cordon=node.cordon.number + (unschedulable and not node.is_unschedulable),
        removal=removal,
        action=action,
        boot=boot,
        reserved=reserved,
        lock=0 if is_rebooting or node.work.lock is None else node.work.lock.number,
        rebooted_for=() if is_rebooting else node.health.rebooted_for,
        **make_look(template, node, phase, removal, action, reserved),
    )


def _find_action(
    template: NodeTemplate, node: Node, phase: NodePhase, removal: RemovalReason | None
) -> NodeAction | None:
    """Return what a Node that stays waits for; while it restarts, the kind of its restart."""
    if removal not in (None, RemovalReason.UNHEALTHY):
        return None
    if phase is NodePhase.VERIFYING and node.is_cordoned:
        return NodeAction.REBOOT if node.boot.number else None
    if phase is NodePhase.VERIFYING or phase is node.phase is NodePhase.REBOOTING:
        return node.action
    return plan_for(template, node).action


def describe_illegal_move(node: Node, phase: NodePhase) -> str:
    """Return what is wrong with a phase that may not follow the phase of the Node."""
    return f"Node {node.name} cannot go from {node.phase} to {phase}"


def registration_failed(
    template: NodeTemplate, node: Node, cause: str
) -> on.CWNodeRegistrationFailed:
    """Return that the Node never joined its cluster."""
    return on.CWNodeRegistrationFailed(
        **node_fields(template, node),
        uid=template.uid,
        message=f"registration of Node {node.name} failed: {cause}",
    )


def cordon_node(template: NodeTemplate, node: Node) -> on.CWNodeCordoned:
    """Return the event of a cordon, with the causes other than the removal of the Node."""
    cause = cordon_text(node, plan_for(template, node))
    return on.CWNodeCordoned(
        **node_fields(template, node),
        cause=cause,
        triage=node.health.needs_triage,
        message=f"Node {node.name} is cordoned: {cause.replace(',', ', ')}",
    )


def uncordon_node(template: NodeTemplate, node: Node) -> on.CWNodeUncordoned:
    """Return the event that the Node may be used again, or is cordoned for its removal only."""
    end = "no longer cordoned" if node.exit.reason is None else "cordoned for its removal only"
    return on.CWNodeUncordoned(**node_fields(template, node), message=f"Node {node.name} is {end}")


def asked_for(template: NodeTemplate, node: Node, asked: Asked) -> on.NodeActionRequested:
    """Return all that commands have asked for."""
    return on.NodeActionRequested(
        **node_fields(template, node),
        cordon=asked.cordon,
        drain=asked.drain,
        reboot=asked.reboot,
        reserved_desired=asked.reserved_desired,
    )


def silent(template: NodeTemplate, node: Node, silence: Silence, until: datetime) -> on.NodeSilent:
    """Return that the Node is silent, and when that makes it unhealthy, if at all."""
    fields, is_wide = node_fields(template, node), silence.is_excused
    return on.NodeSilent(**fields, since=silence.since, unhealthy_at=until, is_widespread=is_wide)


def report_requested(template: NodeTemplate, node: Node, request: int) -> on.NodeReportRequested:
    """Return the question whether the Node is still silent."""
    return on.NodeReportRequested(**node_fields(template, node), request=request)


def lock_changed(
    template: NodeTemplate, node: Node, lock: Lock, state: LockState, message: str
) -> on.NodeLockChanged:
    """Return the state of the lock of the Node."""
    fields = node_fields(template, node)
    return on.NodeLockChanged(
        **fields, lock=state, job=lock.job, number=lock.number, message=message
    )


def reservation_changed(template: NodeTemplate, node: Node) -> on.NodeReservationChanged:
    """Return the event on whether the NodePool can use the Node."""
    return on.NodeReservationChanged(**node_fields(template, node), usable=node.health.is_usable)


def activity_changed(template: NodeTemplate, node: Node) -> on.NodeActivityChanged | None:
    """Return what runs on the Node now; None if that is published already."""
    if node.work.all == node.work.published:
        return None
    event = _activity_of(template, node, node.work.all)
    return None if event == _activity_of(template, node, node.work.published) else event


def _activity_of(
    template: NodeTemplate, node: Node, workloads: tuple[Workload, ...]
) -> on.NodeActivityChanged:
    names = tuple(workload.name for workload in workloads)
    blocking = [workload for workload in workloads if workload.blocks]
    named = sorted(blocking, key=lambda each: (not is_job(each.name), each.since, each.name))
    return on.NodeActivityChanged(
        **node_fields(template, node),
        active=bool(workloads),
        message=f"running: {list_names(names)}" if names else "nothing runs here",
        blocking=tuple(BlockingPod(name=pod.name, since=pod.since) for pod in named[:BLOCKING_MAX]),
        blocking_count=len(blocking),
        grace_s=max((workload.grace_s for workload in workloads), default=0),
    )


def keep_node(template: NodeTemplate, node: Node, why: str) -> on.NodeKept:
    """Return that the Node stays, and that nobody follows the request to delete it."""
    return on.NodeKept(
        **node_fields(template, node),
        request=node.exit.request,
        message=f"Node {node.name} stays: {why}",
    )


def draining(template: NodeTemplate, node: Node) -> on.CWDrainNode:
    """Return that the drain of the Node begins.

    No Pod may block a preemption, the deletion of a NodePool, or a drain that a command forces,
    even if the Node is drained for another reason since that command.
    """
    return on.CWDrainNode(
        **node_fields(template, node),
        force=node.exit.is_forced or node.health.asked.drain == "forced",
        message=f"draining Node {node.name}",
    )


def delete_node(
    template: NodeTemplate, node: Node, *, triage: bool = False, lost: int = 0
) -> on.CWNodeDeleted:
    """Return that the Node is gone.

    triage: whether its machine goes to a technician. lost: the number of Pods that still ran there.
    """
    removal = node.exit.reason
    assert removal is not None, f"nothing removes Node {node.name}"
    health = node.health.without_lingering() if node.restarts else node.health
    # A machine that goes to triage shows this message, so the message names what is broken.
    causes = ["it was preempted"] if removal is RemovalReason.PREEMPTED else []
    causes += [describe_removal(node)] if health.needs_triage else []
    why = f": {'; '.join(causes)}" if causes else ""
    return on.CWNodeDeleted(
        **node_fields(template, node),
        uid=template.uid,
        registered=not node.is_booting,
        triage=triage or health.needs_triage,
        removal=removal,
        lost=lost,
        message=f"Node {node.name} is deleted{why}",
    )


def replace_node(template: NodeTemplate, node: Node, why: str = "") -> on.CWNodeDeleted:
    """Return that the Node is gone because it is unhealthy, or for `why`, and is replaced."""
    return on.CWNodeDeleted(
        **node_fields(template, node),
        uid=template.uid,
        registered=True,
        triage=True,
        removal=RemovalReason.UNHEALTHY,
        message=f"Node {node.name} is deleted: {why or describe_removal(node)}",
    )


def answer_awaited(
    template: NodeTemplate, node: Node, moment: datetime, *, is_final: bool, lock: int = 0
) -> on.AnswerAwaited:
    """Return when the machine is given up unless it answers, or when that time begins."""
    fields = node_fields(template, node)
    return on.AnswerAwaited(**fields, answer_by=moment, is_final=is_final, lock=lock)


def report_unanswered(template: NodeTemplate, node: Node) -> on.CWNodePoolNodesRemoveError:
    """Return that the machine of the Node did not answer in time, and counts as dead."""
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


def list_names(workloads: tuple[str, ...]) -> str:
    """Return the names of the first workloads, and the number of the others."""
    more = len(workloads) - NAMED_MAX
    return ", ".join(workloads[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def describe_removal(node: Node) -> str:
    """Return why an unhealthy Node is deleted, as one clause."""
    if node.boot.number and node.boot.fault:
        return f"{NodeFailure.REBOOT_FAILED.phrase}: {node.boot.fault}"
    if node.boot.passed is False:
        fault = node.boot.verification_fault or "no cause given"
        return f"{NodeFailure.VERIFICATION_FAILED.phrase}: {fault}"
    findings = (
        (cordon_cause(each.type), BY_TYPE[each.type].reason) for each in node.health.findings
    )
    texts = (cause if reason == cause else f"{cause} ({reason})" for cause, reason in findings)
    return ", ".join(texts) or "it is unhealthy"
