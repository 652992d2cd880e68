"""What a Node looks like in its cluster: its phase, and its labels, annotations and taints."""

from collections.abc import Mapping
from typing import TypedDict

from lifecycle.health import Plan, cordon_text, plan
from lifecycle.lock import Lock, lock_annotations, lock_taints
from lifecycle.node import Node, is_unschedulable
from lifecycle.template import (
    NodeTemplate,
    Standing,
    labels,
    managed_labels,
    managed_taints,
    taints,
)
from nodepool.contract.events import NodeUpdated
from nodepool.contract.messages import PoolFields, pool_fields
from nodepool.contract.model import NodeAction, NodePhase, RemovalReason, Taint
from nodepool.contract.node_states import MachineState, may_follow
from nodepool.contract.production import PRODUCTION
from nodepool.contract.well_known import CORDON_REASON


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


def node_fields(template: NodeTemplate, node: Node) -> NodeFields:
    """The identity of a Node as the fields of an event."""
    return {
        **pool_fields(template.key),
        "node": node.name,
        "zone": template.zone,
        "assignment": node.assignment,
    }


def planned(template: NodeTemplate, node: Node) -> Plan:
    """What is to become of a Node as far as its health and commands go."""
    return plan(node.health, evicts=template.evicts_unhealthy)


def updated(
    template: NodeTemplate,
    node: Node,
    phase: NodePhase,
    removal: RemovalReason | None,
    reserved: str | None = None,
) -> NodeUpdated:
    """The Node as it should look from now on, in this phase and with this reason to leave.

    `reserved` is given where it changes.
    """
    assert may_follow(node.phase, phase), illegal(node, phase)
    health = node.health
    reserved = health.reserved if reserved is None else reserved
    action = _action(template, node, phase, removal)
    boot = health.boot + (phase is NodePhase.REBOOTING and node.phase is not phase)
    unschedulable = is_unschedulable(phase, boot)
    marks, annotations = {}, {}
    if removal is RemovalReason.PREEMPTED:
        marks["qos.coreweave.cloud/pending-preemption"] = "true"
    if node.evicted_at is not None:
        marks["qos.coreweave.cloud/evicted-at"] = str(int(node.evicted_at.timestamp()))
    if action is not None and action is not NodeAction.DRAIN and not _is_outside(phase):
        marks["node.coreweave.cloud/pending-state"] = action.value
    if unschedulable and is_cordoned_for_itself(template, node):
        annotations[CORDON_REASON] = cordon_text(health, planned(template, node))
    lock = None if phase is NodePhase.REBOOTING else node.lock
    standing = standing_of(node, phase, action, reserved)
    return NodeUpdated(
        **node_fields(template, node),
        phase=phase,
        unschedulable=unschedulable,
        cordon=node.cordon + (unschedulable and not node.unschedulable),
        removal=removal,
        action=action,
        boot=boot,
        reserved=reserved,
        lock=lock.number if lock is not None else 0,
        **look_of(template, node, marks, annotations, standing, lock),
    )


def is_cordoned_for_itself(template: NodeTemplate, node: Node) -> bool:
    """Whether a cordon has a cause of its own beside the reason for which the Node leaves."""
    return bool(node.health.cordoned_for) or not planned(template, node).is_nothing


def _action(
    template: NodeTemplate, node: Node, phase: NodePhase, removal: RemovalReason | None
) -> NodeAction | None:
    """What a Node that stays waits for; while it restarts, how it does so."""
    if removal not in (None, RemovalReason.UNHEALTHY):
        return None
    if phase is NodePhase.VERIFYING:
        return node.health.action
    action = planned(template, node).action
    if phase is NodePhase.REBOOTING and node.phase is phase:
        return node.health.action
    return action


def _is_outside(phase: NodePhase) -> bool:
    return phase in (NodePhase.VERIFYING, NodePhase.REBOOTING)


def standing_of(node: Node, phase: NodePhase, action: NodeAction | None, reserved: str) -> Standing:
    """What a Node is in this phase; one that is new is tested, one that was rebooted is not."""
    boot = node.health.boot + (phase is NodePhase.REBOOTING and node.phase is not phase)
    state = PRODUCTION
    if _is_outside(phase):
        state = action.value if boot and action is not None else MachineState.TEST.value
    desired = node.health.asked.reserved_desired
    return Standing(
        state=state,
        reserved=reserved,
        reserved_desired=desired if desired != reserved else "",
        unschedulable=is_unschedulable(phase, boot),
    )


def illegal(node: Node, phase: NodePhase) -> str:
    """What is wrong with a phase that may not follow that of the Node."""
    return f"Node {node.name} cannot go from {node.phase} to {phase}"


def look_of(
    template: NodeTemplate,
    node: Node,
    marks: Mapping[str, str],
    annotations: Mapping[str, str],
    standing: Standing,
    lock: Lock | None = None,
) -> Look:
    """What the Node looks like: whole, or beside a template that is too large for each event."""
    revision = template.revision if template.is_large else 0
    labels_of = managed_labels if revision else labels
    taints_of = managed_taints if revision else taints
    own = {} if revision else template.node_annotations
    return Look(
        labels={**labels_of(template, node.name, node.topology, standing), **marks},
        annotations={**own, **annotations, **lock_annotations(lock)},
        taints=(*taints_of(template, standing), *lock_taints(lock)),
        template=revision,
    )
