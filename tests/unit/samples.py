"""A sample of every message class: the values to which the lines of `golden.jsonl` decode.

A new class, or a new form of an old one, is added at the end; what is there never changes.
"""

from datetime import UTC, datetime
from typing import TypeVar

from nodepool.contract.affinity import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from nodepool.contract.availability import Availability, CapacitySelection, ZoneAvailability
from nodepool.contract.commands import (
    AddMachines,
    ApplyNodePool,
    BreakMachine,
    CreatePod,
    DeleteNodePool,
    DeletePod,
    DeleteQuota,
    FindCapacity,
    PreemptNode,
    RegisterCluster,
    RepairMachine,
    RunPod,
    ScaleNodePool,
    SetQuota,
    StopPod,
)
from nodepool.contract.conditions import Capacity, Quota, Validated
from nodepool.contract.events import (
    AllocationFailed,
    AllocationRecovered,
    AnswerAwaited,
    CapacityChecked,
    CapacityCheckFailed,
    CapacityFound,
    ClusterRegistered,
    CommandAccepted,
    CommandRefused,
    CWDrainNode,
    CWInstanceTypeNotInZone,
    CWInsufficientCapacity,
    CWInvalidInstanceType,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodeDeletionRequestSuccess,
    CWNodeDeliverFail,
    CWNodePoolCreated,
    CWNodePoolDeleted,
    CWNodePoolMetadata,
    CWNodePoolNodesRemoved,
    CWNodePoolNodesRemoveError,
    CWNodePoolNodesRequestFailed,
    CWNodePoolQuotaCheckFailed,
    CWNodePoolRemoveNodes,
    CWNodePoolScaledDown,
    CWNodePoolScaledUp,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    CWNodeRequestQueued,
    CWOverQuota,
    CWRegistrationFailedEvent,
    DeletedForPreemption,
    GrantAcknowledged,
    MachineAdded,
    MachineBooted,
    MachineBroken,
    MachineFailed,
    MachineRepaired,
    NodeActivityChanged,
    NodeKept,
    NodeObserved,
    NodePoolDeleting,
    NodePoolUpdateFailed,
    NodePoolValidated,
    NodePreempted,
    NodeRemovalCancelled,
    NodeRemovalRecovered,
    NodeTemplateChanged,
    NodeUpdated,
    NodeUpdateFailed,
    PodChanged,
    PreemptionFailed,
    PreemptionInProgress,
    PreemptionOverdue,
    PreemptionPending,
    QuotaChecked,
    QuotaCheckFailed,
    QuotaDeleted,
    QuotaReleased,
    QuotaSet,
    Wake,
)
from nodepool.contract.messages import Message, PoolFields
from nodepool.contract.model import (
    ComputeClass,
    Image,
    Lifecycle,
    ManifestMetadata,
    NodePhase,
    NodePoolSpec,
    ReleaseTrain,
    RemovalReason,
    ScaleDownStrategy,
    SchedulingPriority,
    Taint,
)
from nodepool.contract.pods import BlockingPod, Pod, PodClass, Toleration

M = TypeVar("M", bound=Message)
Expression = tuple[str, str, tuple[str, ...]]
"""A match expression: key, operator and values."""


def affinity_to(*terms: list[Expression]) -> Affinity:
    """A node affinity of these terms, one of which must hold."""
    selector_terms = (
        NodeSelectorTerm(
            match_expressions=tuple(
                NodeSelectorRequirement(key=key, operator=operator, values=values)
                for key, operator, values in term
            )
        )
        for term in terms
    )
    return Affinity(
        node_affinity=NodeAffinity(
            required_during_scheduling_ignored_during_execution=NodeSelector(
                node_selector_terms=tuple(selector_terms)
            )
        )
    )


ZONE, MACHINE, UID = "US-EAST-02A", "g3779b1", "0b7c3b52-6f0e-5a9e-9a37-6f1f1d0f7a11"
KIND = "gd-8xh100ib-i128"
OF: PoolFields = {"org": "acme", "cluster": "prod", "pool": "train.v1"}
NOON = datetime(2026, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)
RACK = {"ib.coreweave.cloud/leafgroup": "l-7"}
LABELS = {"node.coreweave.cloud/state": "production", "team": "ml"}
TAINTS = (
    Taint(key="dedicated", value="ml", effect="NoSchedule"),
    Taint(key="x", effect="NoExecute"),
)
FULL = NodePoolSpec(
    instance_type=KIND,
    target_nodes=3,
    min_nodes=1,
    max_nodes=9,
    autoscaling=True,
    lifecycle=Lifecycle(
        disable_unhealthy_node_eviction=False, scale_down_strategy=ScaleDownStrategy.PREFER_IDLE
    ),
    node_labels={"team": "ml"},
    node_annotations={"example.com/owner": "Zoë"},
    node_taints=TAINTS,
    image=Image(kernel="6.5", name="ncore-image", release_train=ReleaseTrain.LATEST),
    compute_class=ComputeClass.SPOT,
    region=ZONE,
    affinity=affinity_to(
        [
            ("ib.coreweave.cloud/leafgroup", "In", ("l-7",)),
            ("node.coreweave.cloud/rack", "Exists", ()),
        ]
    ),
    scheduling_priority=SchedulingPriority(value=-5),
)
PLAIN = NodePoolSpec(instance_type=KIND, target_nodes=0)
POD = Pod(name="train-0", interruption=PodClass.GRACEFUL, grace_s=90)

SAMPLES: tuple[Message, ...] = (
    RegisterCluster(org="acme", cluster="prod", zone=ZONE),
    ApplyNodePool(
        **OF,
        metadata=ManifestMetadata(
            name="train.v1",
            labels={"app": "train"},
            annotations={"note": "by hand"},
            resource_version="41",
            uid=UID,
            generation=2,
            creation_timestamp="2026-01-01T12:00:00Z",
            finalizers=("compute.coreweave.com/node-pool",),
        ),
        spec=FULL,
        dry_run=True,
    ),
    ScaleNodePool(**OF, target_nodes=12, resource_version="41", dry_run=True),
    DeleteNodePool(**OF, resource_version="41", dry_run=True),
    SetQuota(org="acme", zone=ZONE, instance_type=KIND, limit=8),
    PreemptNode(**OF, node=MACHINE),
    AddMachines(zone=ZONE, instance_type=KIND, count=5, labels=RACK, boot_seconds=90.5),
    RepairMachine(zone=ZONE, machine=MACHINE),
    BreakMachine(zone=ZONE, machine=MACHINE, fault="boot", times=2, cause="no link"),
    RunPod(zone=ZONE, machine=MACHINE, pod=POD),
    StopPod(zone=ZONE, machine=MACHINE, name="train-0"),
    Wake(service="preemption", due=NOON),
    CommandAccepted(**OF, command="ApplyNodePool", result="configured", generation=2, dry_run=True),
    CommandRefused(
        **OF,
        command="ApplyNodePool",
        reason="Invalid",
        field="spec.targetNodes",
        message="is required",
    ),
    ClusterRegistered(org="acme", cluster="prod", zone=ZONE),
    NodePoolValidated(
        **OF,
        uid=UID,
        zone=ZONE,
        generation=2,
        version=41,
        created=NOON,
        labels={"app": "train"},
        annotations={"note": "by hand"},
        spec=FULL,
        reason=Validated.INVALID,
        fault="Zone",
        message="instance type gd-8xh100ib-i128 is not offered in zone US-EAST-02A",
    ),
    NodePoolDeleting(**OF, uid=UID, generation=2, since=NOON),
    CWNodePoolCreated(**OF, message="NodePool train.v1 is created"),
    CWNodePoolDeleted(**OF, uid=UID, message="NodePool train.v1 is deleted"),
    CWInvalidInstanceType(**OF, message="instance type x is not a known instance type"),
    CWInstanceTypeNotInZone(**OF, message="instance type x is not offered in zone y"),
    QuotaSet(org="acme", zone=ZONE, instance_type=KIND, limit=8, granted=6),
    QuotaChecked(
        **OF,
        generation=2,
        reason=Quota.OVER,
        uid=UID,
        granted=3,
        zone=ZONE,
        instance_type=KIND,
        limit=8,
        used=6,
        message="targetNodes 12 exceeds quota 8 for gd-8xh100ib-i128 (6 used by 2 other pools)",
    ),
    QuotaReleased(**OF, granted=1, zone=ZONE, instance_type=KIND, used=4),
    CWOverQuota(**OF, message="targetNodes 12 exceeds quota 8"),
    CWNodePoolQuotaCheckFailed(**OF, message="internal error while checking quota: KeyError"),
    CapacityChecked(
        **OF,
        uid=UID,
        generation=2,
        granted=3,
        reason=Capacity.PARTIAL_NODE_AFFINITY,
        wanted=3,
        available=1,
        since=NOON,
        message="1 of 3 wanted Nodes can be had",
    ),
    CapacityCheckFailed(**OF, message="internal error while checking capacity: KeyError"),
    CWInsufficientCapacity(**OF, message="none of 3 wanted Nodes can be had"),
    GrantAcknowledged(**OF, uid=UID, generation=2, granted=1),
    AllocationFailed(**OF, message="internal error while allocating Nodes: KeyError"),
    NodeRemovalCancelled(**OF, zone=ZONE, node=MACHINE, assignment=7),
    CWNodePoolScaledUp(**OF, before=1, after=3, message="scaled up from 1 to 3 Nodes"),
    CWNodeRequestQueued(**OF, count=2, granted=3, message="requested 2 Nodes"),
    CWNodeAssigned(
        **OF,
        node=MACHINE,
        zone=ZONE,
        uid=UID,
        instance_type=KIND,
        assignment=7,
        labels=RACK,
        message="Node g3779b1 is assigned to NodePool train.v1",
    ),
    CWNodePoolRemoveNodes(**OF, count=2, before=3, message="removing 2 Nodes (IdleOnly)"),
    CWNodeDeletionRequestSuccess(
        **OF,
        node=MACHINE,
        zone=ZONE,
        assignment=7,
        removal=RemovalReason.SCALE_DOWN,
        idle_only=True,
        message="deletion of Node g3779b1 requested",
    ),
    CWNodePoolNodesRemoved(
        **OF,
        uid=UID,
        count=2,
        remaining=1,
        removal=RemovalReason.POOL_DELETED,
        message="2 Nodes removed, 1 remain",
    ),
    CWNodePoolScaledDown(**OF, before=3, after=1, message="scaled down from 3 to 1 Nodes"),
    CWNodeDeliverFail(**OF, node=MACHINE, message="not delivered: no link"),
    CWNodePoolNodesRequestFailed(**OF, message="internal error while allocating Nodes: KeyError"),
    NodeUpdated(
        **OF,
        zone=ZONE,
        node=MACHINE,
        assignment=7,
        phase=NodePhase.DRAINING,
        unschedulable=True,
        labels=LABELS,
        annotations={"example.com/owner": "Zoë"},
        taints=TAINTS,
        removal=RemovalReason.PREEMPTED,
    ),
    NodeActivityChanged(
        **OF, zone=ZONE, node=MACHINE, assignment=7, active=True, message="running: train-0"
    ),
    NodeKept(**OF, zone=ZONE, node=MACHINE, assignment=7, message="Node g3779b1 stays"),
    CWNodeRegistered(
        **OF,
        node=MACHINE,
        zone=ZONE,
        assignment=7,
        labels=LABELS,
        annotations={},
        taints=TAINTS,
        message="Node g3779b1 is registered",
    ),
    CWNodeRegistrationFailed(
        **OF, node=MACHINE, uid=UID, zone=ZONE, assignment=7, message="it did not join"
    ),
    CWRegistrationFailedEvent(**OF, node=MACHINE, message="it did not join"),
    CWDrainNode(
        **OF, node=MACHINE, zone=ZONE, assignment=7, force=True, message="draining Node g3779b1"
    ),
    CWNodeDeleted(
        **OF,
        node=MACHINE,
        registered=True,
        uid=UID,
        zone=ZONE,
        assignment=7,
        message="Node g3779b1 is deleted",
    ),
    CWNodePoolMetadata(**OF, message="metadata of NodePool train.v1 is updated"),
    CWNodePoolNodesRemoveError(**OF, message="internal error while removing a Node: KeyError"),
    PreemptionPending(
        **OF,
        node=MACHINE,
        zone=ZONE,
        assignment=7,
        since=NOON,
        message="Reason: Preemption pending. Node g3779b1 is cordoned",
    ),
    PreemptionInProgress(
        **OF,
        node=MACHINE,
        zone=ZONE,
        assignment=7,
        evicted_at=NOON,
        message="Reason: Preemption in progress. Node g3779b1 is being drained",
    ),
    PreemptionOverdue(**OF, zone=ZONE, node=MACHINE, assignment=7, message="it did not drain"),
    DeletedForPreemption(
        **OF, node=MACHINE, message="Reason: Deleted for preemption. Node g3779b1 left"
    ),
    MachineAdded(zone=ZONE, machine=MACHINE, instance_type=KIND, labels=RACK, boot_seconds=90.5),
    MachineRepaired(zone=ZONE, machine=MACHINE),
    MachineBooted(zone=ZONE, machine=MACHINE, assignment=7),
    MachineFailed(zone=ZONE, machine=MACHINE, assignment=7, cause="the machine did not boot"),
    NodeObserved(
        zone=ZONE,
        machine=MACHINE,
        assignment=7,
        unschedulable=True,
        pods=(POD, Pod(name="ds-1", daemon_set=True, terminating=True)),
    ),
    NodePoolValidated(
        **OF,
        uid=UID,
        zone=ZONE,
        generation=1,
        version=40,
        created=NOON,
        spec=PLAIN,
        reason=Validated.VALID,
        message="NodePool configuration is valid.",
    ),
    QuotaChecked(
        **OF,
        generation=1,
        reason=Quota.NOT_SET,
        uid=UID,
        granted=0,
        zone=ZONE,
        instance_type=KIND,
        limit=None,
        used=0,
        message="no quota is set",
    ),
    CWNodeDeletionRequestSuccess(
        **OF,
        node=MACHINE,
        zone=ZONE,
        assignment=7,
        removal=RemovalReason.SCALE_DOWN,
        idle_only=True,
        request=2,
        message="deletion of Node g3779b1 requested",
    ),
    NodeKept(**OF, zone=ZONE, node=MACHINE, assignment=7, request=2, message="Node g3779b1 stays"),
    NodeUpdated(
        **OF,
        zone=ZONE,
        node=MACHINE,
        assignment=7,
        phase=NodePhase.CORDONED,
        unschedulable=True,
        cordon=2,
        labels=LABELS,
        annotations={},
        taints=TAINTS,
    ),
    NodeObserved(zone=ZONE, machine=MACHINE, assignment=7, unschedulable=True, cordon=2),
    DeleteQuota(org="acme", zone=ZONE, instance_type=KIND),
    QuotaDeleted(org="acme", zone=ZONE, instance_type=KIND, granted=6),
    BreakMachine(zone=ZONE, machine=MACHINE, fault="hang", cause="no link"),
    MachineBroken(zone=ZONE, machine=MACHINE, fault="hang", times=2, cause="no link"),
    AllocationRecovered(**OF),
    CWNodeAssigned(
        **OF,
        node=MACHINE,
        zone=ZONE,
        uid=UID,
        instance_type=KIND,
        assignment=7,
        labels=RACK,
        compute_class=ComputeClass.SPOT,
        message="Node g3779b1 is assigned to NodePool train.v1",
    ),
    NodeRemovalRecovered(**OF),
    NodePreempted(**OF, zone=ZONE, node=MACHINE, assignment=7),
    NodeActivityChanged(
        **OF,
        zone=ZONE,
        node=MACHINE,
        assignment=7,
        active=True,
        message="running: train-0",
        blocking=(BlockingPod(name="train-0", since=NOON),),
        blocking_count=1,
    ),
    CWNodeDeleted(
        **OF,
        node=MACHINE,
        registered=True,
        uid=UID,
        zone=ZONE,
        assignment=7,
        triage=True,
        removal=RemovalReason.SCALE_DOWN,
        message="Node g3779b1 is deleted",
    ),
    ApplyNodePool(
        **OF,
        metadata=ManifestMetadata(name="train.v1"),
        spec=NodePoolSpec(instance_type=KIND, target_nodes=2),
        create_only=True,
    ),
    QuotaCheckFailed(**OF, message="internal error while checking quota: KeyError"),
    NodeUpdateFailed(**OF, message="internal error while updating a Node: KeyError"),
    AnswerAwaited(**OF, zone=ZONE, node=MACHINE, assignment=7, answer_by=NOON),
    AnswerAwaited(**OF, zone=ZONE, node=MACHINE, assignment=7, answer_by=NOON, is_final=False),
    QuotaChecked(
        **OF,
        generation=2,
        reason=Quota.OVER,
        uid=UID,
        granted=1,
        zone=ZONE,
        instance_type=KIND,
        limit=4,
        used=4,
        message="targetNodes 3 exceeds quota 4",
        number=2,
    ),
    GrantAcknowledged(**OF, uid=UID, generation=2, granted=1, number=2),
    GrantAcknowledged(**OF, uid=UID, generation=2, granted=0, number=2, final=True),
    NodePoolUpdateFailed(**OF, message="internal error while updating the NodePool: KeyError"),
    PreemptionFailed(
        **OF,
        zone=ZONE,
        node=MACHINE,
        assignment=7,
        message="internal error during a preemption: KeyError",
    ),
    NodeTemplateChanged(
        **OF,
        revision=3,
        labels={"team": "red"},
        annotations={"note": "by hand"},
        taints=(Taint(key="team", value="red", effect="NoSchedule"),),
    ),
    NodeUpdated(
        **OF,
        zone=ZONE,
        node=MACHINE,
        assignment=7,
        phase=NodePhase.PRODUCTION,
        unschedulable=False,
        labels={"kubernetes.io/arch": "amd64"},
        annotations={},
        taints=(),
        template=3,
    ),
    CWNodeRegistered(
        **OF,
        zone=ZONE,
        node=MACHINE,
        assignment=7,
        labels={"kubernetes.io/arch": "amd64"},
        annotations={},
        taints=(),
        template=3,
        message="Node g3779b1 is registered",
    ),
    FindCapacity(
        org="acme",
        selections=(
            CapacitySelection(instance_type=KIND, count=16),
            CapacitySelection(instance_type="cd-gp-i64-erapids", count=4),
        ),
    ),
    CapacityFound(
        org="acme",
        selections=(CapacitySelection(instance_type=KIND, count=16),),
        zones=(
            ZoneAvailability(
                zone=ZONE,
                availability=Availability.LIMITED,
                has_cluster=True,
                tags=(Availability.LIMITED,),
            ),
            ZoneAvailability(
                zone="EU-SOUTH-04A",
                availability=Availability.SKU_UNAVAILABLE,
                has_cluster=False,
                tags=(Availability.SKU_UNAVAILABLE,),
            ),
        ),
    ),
    CreatePod(
        **OF,
        pod=Pod(
            name="worker-0",
            interruption=PodClass.GRACEFUL,
            grace_s=60,
            gpus=8,
            accelerators=8,
            tolerations=(
                Toleration(key="sunk.coreweave.com/lock", value="true", effect="NoExecute"),
                Toleration(operator="Exists"),
            ),
        ),
    ),
    DeletePod(**OF, name="worker-0", grace_s=0),
    PodChanged(
        **OF,
        name="worker-0",
        uid=UID,
        number=41,
        phase="Pending",
        gpus=8,
        accelerators=8,
        grace_s=60,
        spec=Pod(name="worker-0", grace_s=60, gpus=8, accelerators=8),
    ),
    PodChanged(
        **OF,
        name="worker-0",
        uid=UID,
        number=41,
        phase="Terminating",
        node=MACHINE,
        zone=ZONE,
        assignment=7,
        gpus=8,
        accelerators=8,
        grace_s=60,
        reason="Evicted",
        message="its Node is drained, or has a taint that it does not tolerate",
    ),
)


def sample(kind: type[M], **fields: object) -> M:
    """The first sample of this class, with these fields instead of its own."""
    message = next(message for message in SAMPLES if isinstance(message, kind))
    return kind(**{**dict(message), **fields})
