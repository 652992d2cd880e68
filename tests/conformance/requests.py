"""What services say of a Node, as a provider hears it."""

from typing import TypedDict

from nodepool.contract.events import (
    ClusterRegistered,
    CWDrainNode,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    NodeReportRequested,
    NodeUpdated,
)
from nodepool.contract.model import NodeAction, NodePhase, RemovalReason
from support.constants import H100, ZONE

ORG, CLUSTER, POOL = "acme", "prod", "train"


class OfNode(TypedDict):
    """The identity of a Node as the fields of a message about it."""

    org: str
    cluster: str
    pool: str
    node: str
    zone: str
    assignment: int


def of_node(stay: CWNodeAssigned) -> OfNode:
    """The identity of the Node of a stay."""
    return {
        "org": stay.org,
        "cluster": stay.cluster,
        "pool": stay.pool,
        "node": stay.node,
        "zone": stay.zone,
        "assignment": stay.assignment,
    }


def stay_of(machine: str, assignment: int = 1) -> CWNodeAssigned:
    """A stay of a machine in a NodePool."""
    return CWNodeAssigned(
        org=ORG,
        cluster=CLUSTER,
        pool=POOL,
        node=machine,
        zone=ZONE,
        assignment=assignment,
        uid="u",
        instance_type=H100,
        message="assigned",
    )


def connected(cluster: str, zone: str) -> ClusterRegistered:
    """An agent connects a cluster to Kubernetes."""
    return ClusterRegistered(org=ORG, cluster=cluster, zone=zone, kubernetes=True)


def registered(stay: CWNodeAssigned, phase: NodePhase = NodePhase.PRODUCTION) -> CWNodeRegistered:
    """A Node has joined its cluster; with the phase verifying, its verification follows."""
    return CWNodeRegistered(
        **of_node(stay), labels={}, annotations={}, taints=(), phase=phase, message="registered"
    )


def not_registered(stay: CWNodeAssigned) -> CWNodeRegistrationFailed:
    """A Node did not join its cluster in time, or its machine failed."""
    return CWNodeRegistrationFailed(**of_node(stay), uid="u", message="not registered")


def updated(
    stay: CWNodeAssigned,
    phase: NodePhase,
    *,
    cordon: int = 0,
    boot: int = 0,
    lock: int = 0,
    forced: bool = False,
) -> NodeUpdated:
    """A Node is in a phase; `cordon` counts its cordons, `boot` its reboots.

    A reboot is a cordon, too; if it is forced, the power is reset.
    """
    is_rebooted = phase is NodePhase.VERIFYING and boot > 0
    return NodeUpdated(
        **of_node(stay),
        phase=phase,
        unschedulable=is_rebooted or phase not in (NodePhase.PRODUCTION, NodePhase.VERIFYING),
        cordon=cordon or boot,
        labels={},
        annotations={},
        taints=(),
        action=_reboot(forced=forced) if phase is NodePhase.REBOOTING else None,
        boot=boot,
        lock=lock,
    )


def _reboot(*, forced: bool) -> NodeAction:
    return NodeAction.POWERRESET if forced else NodeAction.REBOOT


def drained(stay: CWNodeAssigned, *, force: bool = False) -> CWDrainNode:
    """A Node is being drained."""
    return CWDrainNode(**of_node(stay), force=force, message="draining")


def asked(stay: CWNodeAssigned, request: int) -> NodeReportRequested:
    """The provider has to report whether the Node is silent."""
    return NodeReportRequested(**of_node(stay), request=request)


def deleted(stay: CWNodeAssigned, *, triage: bool = False) -> CWNodeDeleted:
    """A Node is deleted, and its machine is free, or goes to triage."""
    return CWNodeDeleted(
        **of_node(stay),
        registered=True,
        uid="u",
        triage=triage,
        removal=RemovalReason.UNHEALTHY if triage else RemovalReason.SCALE_DOWN,
        message="deleted",
    )
