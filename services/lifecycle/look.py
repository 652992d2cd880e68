"""What a Node looks like in its cluster: its labels, annotations and taints."""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypedDict

from lifecycle.health import Plan, make_plan
from lifecycle.lock import lock_annotations, lock_taints
from lifecycle.node import Node, is_unschedulable
from lifecycle.template import NodeTemplate
from nodepool.contract.catalog import INSTANCE_TYPES, ZONES
from nodepool.contract.cordons import CORDON_REASON
from nodepool.contract.keys import pool_path
from nodepool.contract.model import CORDON, RESERVED, NodeAction, NodePhase, RemovalReason, Taint
from nodepool.contract.node_failures import ADMIN_REBOOT
from nodepool.contract.node_states import MachineState
from nodepool.contract.pods import reserved_taint
from nodepool.contract.production import (
    PRODUCTION,
    asked_taints,
    kind_taint,
    production_labels,
)


class Standing(NamedTuple):
    """The status of a Node in its cluster, which determines its managed labels and taints.

    state: the value of its label `node.coreweave.cloud/state`.
    reserved: the user for whom the Node is reserved in production; empty for its organisation.
    reserved_desired: the next reservation; empty if the reservation stays.
    unschedulable: whether no new work may begin on the Node.
    """

    state: str = PRODUCTION
    reserved: str = ""
    reserved_desired: str = ""
    unschedulable: bool = False


IN_PRODUCTION: Final = Standing()
"""The standing of a Node that takes new work."""


class Look(TypedDict):
    """The labels, annotations and taints of a Node in its cluster, as the fields of an event."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: tuple[Taint, ...]
    template: int


def plan_for(template: NodeTemplate, node: Node) -> Plan:
    """Return what happens to a Node because of its health and of commands.

    Nothing is done to a Node that leaves for another reason, whatever a command had asked for.
    """
    plan = make_plan(node.health, evicts=template.evicts_unhealthy)
    return plan if node.exit.is_for_health else plan._replace(action=None, forced=False)


def make_look(
    template: NodeTemplate,
    node: Node,
    phase: NodePhase,
    removal: RemovalReason | None = None,
    action: NodeAction | None = None,
    reserved: str = "",
) -> Look:
    """Return the look of a Node in this phase, with this removal, action and reservation."""
    standing = find_standing(node, phase, action, reserved)
    lock = None if phase is NodePhase.REBOOTING else node.work.lock
    revision = template.revision if template.is_large else 0
    labels = make_managed_labels if revision else make_labels
    taints = make_managed_taints if revision else make_taints
    annotations = {} if revision else dict(template.node_annotations)
    plan = plan_for(template, node)
    if standing.unschedulable and (node.cordon.causes or not plan.is_nothing):
        annotations[CORDON_REASON] = cordon_text(node, plan)
    marks = _make_marks(node, phase, removal, action)
    return Look(
        labels={**labels(template, node.name, node.topology, standing), **marks},
        annotations={**annotations, **lock_annotations(lock)},
        taints=(*taints(template, standing), *lock_taints(lock)),
        template=revision,
    )


def _make_marks(
    node: Node, phase: NodePhase, removal: RemovalReason | None, action: NodeAction | None
) -> dict[str, str]:
    marks = {}
    if removal is RemovalReason.PREEMPTED:
        marks["qos.coreweave.cloud/pending-preemption"] = "true"
    if node.exit.evicted_at is not None:
        marks["qos.coreweave.cloud/evicted-at"] = str(int(node.exit.evicted_at.timestamp()))
    if action not in (None, NodeAction.DRAIN) and not _is_outside(phase):
        marks["node.coreweave.cloud/pending-state"] = str(action)
    return marks


def cordon_text(node: Node, plan: Plan) -> str:
    """Return the causes of a cordon as `node.coreweave.cloud/cordonReason` lists them."""
    if plan.causes:
        return ",".join(plan.causes)
    return ADMIN_REBOOT if plan.reboots else node.cordon.causes or ADMIN_REBOOT


def is_cordon_new(node: Node, plan: Plan) -> bool:
    """Return whether the last `CWNodeCordoned` names other causes, or differs about triage."""
    last = node.cordon.causes, node.cordon.is_for_triage
    return (cordon_text(node, plan), node.health.needs_triage) != last


def find_standing(
    node: Node, phase: NodePhase, action: NodeAction | None, reserved: str
) -> Standing:
    """Return what a Node is in this phase.

    A new Node outside production is tested; a rebooted Node shows its action instead.
    """
    reboots = next_boot(node, phase)
    state = PRODUCTION
    if _is_outside(phase):
        state = MachineState.TEST.value if action is None else action.value
    desired = node.health.asked.reserved_desired
    return Standing(
        state=state,
        reserved=reserved,
        reserved_desired=desired if desired != reserved else "",
        unschedulable=is_unschedulable(phase, reboots),
    )


def next_boot(node: Node, phase: NodePhase) -> int:
    """Return the number of the boot of a Node that enters, or stays in, this phase."""
    return node.boot.number + (phase is NodePhase.REBOOTING and node.phase is not phase)


def _is_outside(phase: NodePhase) -> bool:
    return phase in (NodePhase.VERIFYING, NodePhase.REBOOTING)


def make_labels(
    template: NodeTemplate,
    node: str,
    topology: Mapping[str, str],
    standing: Standing = IN_PRODUCTION,
) -> dict[str, str]:
    """Return the labels of a Node; managed labels override the labels of the NodePool."""
    return {**template.node_labels, **make_managed_labels(template, node, topology, standing)}


def make_managed_labels(
    template: NodeTemplate,
    node: str,
    topology: Mapping[str, str],
    standing: Standing = IN_PRODUCTION,
) -> dict[str, str]:
    """Return the labels of a Node that the control plane sets."""
    managed = {
        **production_labels(
            template.key,
            template.uid,
            INSTANCE_TYPES[template.instance_type],
            ZONES[template.zone],
            template.compute_class,
        ),
        **topology,
        "kubernetes.io/hostname": node,
        "node.coreweave.cloud/state": standing.state,
        RESERVED: _find_reserved(template, standing),
    }
    if standing.reserved_desired:
        managed[f"{RESERVED}-desired"] = standing.reserved_desired
    return managed


def _find_reserved(template: NodeTemplate, standing: Standing) -> str:
    """Return the user for whom a Node is reserved; outside production, the state of the Node."""
    if standing.state != PRODUCTION:
        return standing.state
    return standing.reserved or pool_path(template.key)[0]


def make_managed_taints(
    template: NodeTemplate, standing: Standing = IN_PRODUCTION
) -> tuple[Taint, ...]:
    """Return the taints of a Node that come before the taints of its NodePool.

    The taint of its kind, the taint of a reservation other than its organisation, and the taint of
    a cordon.
    """
    managed = [kind_taint(INSTANCE_TYPES[template.instance_type])]
    reserved = _find_reserved(template, standing)
    if standing.state != PRODUCTION or reserved != pool_path(template.key)[0]:
        managed.append(reserved_taint(reserved))
    if standing.unschedulable:
        managed.append(CORDON)
    return tuple(managed)


def make_taints(template: NodeTemplate, standing: Standing = IN_PRODUCTION) -> tuple[Taint, ...]:
    """Return the taints of a Node: the managed taints, then the taints of its NodePool."""
    return (*make_managed_taints(template, standing), *asked_taints(template.node_taints))
