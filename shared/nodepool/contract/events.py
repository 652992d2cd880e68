"""Everything that can have happened; each event has one speaker, and the name the seeds give it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator

from nodepool.contract.conditions import Capacity, Quota, Validated
from nodepool.contract.keys import UNNAMED, PoolPath
from nodepool.contract.messages import Event, OfCluster, OfMachine, OfNode, OfOrg, OfPool, Outcome
from nodepool.contract.model import (
    NodePhase,
    NodePoolSpec,
    Pod,
    RemovalReason,
    Taint,
)

Severity = Literal["Normal", "Warning"]
Result = Literal["created", "configured", "unchanged", "deleted", "done"]
"""What a command came to."""
RefusalReason = Literal["Invalid", "Forbidden", "NotFound", "Conflict", "InternalError"]
"""The kind of fault for which a command was refused."""
QUOTED_MAX = 1_000
"""The longest field or sentence of a refusal, in characters."""


class Wake(Event):
    """The clock's only message: the moment that a service named has come."""

    speaker: ClassVar[str] = "clock"

    service: str
    due: datetime

    @property
    def path(self) -> PoolPath:
        return self.service, UNNAMED, UNNAMED


# What became of a command.


def _quoted(text: str) -> str:
    """What a refusal quotes of a command, cut where it would make the refusal a burden itself."""
    return text if len(text) <= QUOTED_MAX else f"{text[:QUOTED_MAX]}…"


class CommandAccepted(Outcome, OfPool):
    """The command changed what it asked for, or found it so; correlated with the command's id."""

    command: str
    result: Result
    generation: int | None = None
    dry_run: bool = False


class CommandRefused(Outcome, OfPool):
    """The command changed nothing; `field` names what to mend, as a manifest writes it."""

    command: str
    reason: RefusalReason
    field: Annotated[str, AfterValidator(_quoted)]
    message: Annotated[str, AfterValidator(_quoted)]


# The validator: NodePool objects, their generations, Validated.


class ClusterRegistered(Event, OfCluster):
    """A cluster is known, and lies in this zone."""

    speaker: ClassVar[str] = "validator"

    zone: str


class NodePoolValidated(Event, OfPool):
    """The NodePool's desired state and the verdict on it; said whenever either changed.

    `fault` says what kind of fault an Invalid one has. `version` is the position of the command
    that changed the object last.
    """

    speaker: ClassVar[str] = "validator"

    uid: str
    zone: str
    generation: int
    version: int
    created: datetime
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    spec: NodePoolSpec
    reason: Validated
    fault: Literal["", "InstanceType", "Zone", "Settings"] = ""
    message: str


class NodePoolDeleting(Event, OfPool):
    """The NodePool is to go: its Nodes first, then itself."""

    speaker: ClassVar[str] = "validator"

    uid: str
    generation: int
    since: datetime


class KubernetesEvent(Event, OfPool):
    """An event of the seeds' tables: a reason users know, a sentence, and the Node if it has one.

    `regarding` names the kinds of object it is about.
    """

    severity: ClassVar[Severity] = "Normal"
    regarding: ClassVar[tuple[str, ...]] = ("NodePool",)
    reason: ClassVar[str]

    message: str
    node: str = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.reason = cls.__dict__.get("reason", cls.__name__)


class CWNodePoolCreated(KubernetesEvent):
    """A Node Pool is created."""

    speaker: ClassVar[str] = "validator"


class CWNodePoolDeleted(KubernetesEvent):
    """A Node Pool is deleted; the object is gone."""

    speaker: ClassVar[str] = "validator"

    uid: str


class CWInvalidInstanceType(KubernetesEvent):
    """A Node Pool contains an invalid instance type."""

    speaker: ClassVar[str] = "validator"
    severity: ClassVar[Severity] = "Warning"


class CWInstanceTypeNotInZone(KubernetesEvent):
    """A Node Pool has an instance type not in its zone."""

    speaker: ClassVar[str] = "validator"
    severity: ClassVar[Severity] = "Warning"


# The quota service: limits, grants, Quota.


class QuotaSet(Event, OfOrg):
    """How many Nodes of a type an organisation may hold in a zone from now on."""

    speaker: ClassVar[str] = "quota"

    zone: str
    instance_type: str
    limit: int
    granted: int


class QuotaChecked(Event, OfPool):
    """How many Nodes the NodePool is granted, and why not more; `used` counts all grants."""

    speaker: ClassVar[str] = "quota"

    generation: int
    reason: Quota
    uid: str
    granted: int
    zone: str
    instance_type: str
    limit: int | None = None
    used: int
    message: str


class QuotaReleased(Event, OfPool):
    """The NodePool gave back what it no longer holds; `granted` is what it keeps."""

    speaker: ClassVar[str] = "quota"

    granted: int
    zone: str
    instance_type: str
    used: int


class CWOverQuota(KubernetesEvent):
    """The quota is insufficient for the Node Pool's targetNodes."""

    speaker: ClassVar[str] = "quota"
    severity: ClassVar[Severity] = "Warning"


class CWNodePoolQuotaCheckFailed(KubernetesEvent):
    """There is an internal error checking the quota."""

    speaker: ClassVar[str] = "quota"
    severity: ClassVar[Severity] = "Warning"


# The capacity service: what could be had, Capacity.


class CapacityChecked(Event, OfPool):
    """Of the Nodes still wanted, how many could be had now; `since` orders those who wait."""

    speaker: ClassVar[str] = "capacity"

    uid: str
    generation: int
    granted: int
    reason: Capacity
    wanted: int
    available: int
    since: datetime
    message: str


class CapacityCheckFailed(Event, OfPool):
    """The capacity check failed: Capacity is InternalError, and `message` says why."""

    speaker: ClassVar[str] = "capacity"

    message: str


class CWInsufficientCapacity(KubernetesEvent):
    """There is not sufficient capacity for a Node Pool."""

    speaker: ClassVar[str] = "capacity"
    severity: ClassVar[Severity] = "Warning"


# The allocator: which machine joins, which Node leaves.


class GrantAcknowledged(Event, OfPool):
    """The allocator works to this smaller grant from here on, and takes no Node beyond it."""

    speaker: ClassVar[str] = "allocator"

    uid: str
    generation: int
    granted: int


class AllocationFailed(Event, OfPool):
    """The allocator could not decide: AtTarget is InternalError, and `message` says why."""

    speaker: ClassVar[str] = "allocator"

    message: str


class NodeRemovalCancelled(Event, OfNode):
    """The NodePool wants this Node after all, unless it is gone already."""

    speaker: ClassVar[str] = "allocator"


class CWNodePoolScaledUp(KubernetesEvent):
    """A Node Pool is scaled up."""

    speaker: ClassVar[str] = "allocator"

    before: int
    after: int


class CWNodeRequestQueued(KubernetesEvent):
    """A request is submitted to add Nodes to a Node Pool; `granted` is what it then has in all."""

    speaker: ClassVar[str] = "allocator"

    count: int
    granted: int


class CWNodeAssigned(OfNode, KubernetesEvent):
    """A Node is assigned to a Node Pool; `assignment` tells this stay from the machine's others."""

    speaker: ClassVar[str] = "allocator"

    uid: str
    instance_type: str
    labels: Mapping[str, str] = {}


class CWNodePoolRemoveNodes(KubernetesEvent):
    """A scale down of a Node Pool is attempted, from a target of `before`."""

    speaker: ClassVar[str] = "allocator"

    count: int
    before: int


class CWNodeDeletionRequestSuccess(OfNode, KubernetesEvent):
    """A request to delete a Node was received; `idleOnly` lets it go if it became active.

    `request` counts the requests for this stay of the machine.
    """

    speaker: ClassVar[str] = "allocator"

    removal: RemovalReason
    idle_only: bool
    request: int = 0


class CWNodePoolNodesRemoved(KubernetesEvent):
    """Nodes are removed from the Node Pool; `remaining` is what it still holds."""

    speaker: ClassVar[str] = "allocator"

    uid: str
    count: int
    remaining: int
    removal: RemovalReason


class CWNodePoolScaledDown(KubernetesEvent):
    """A Node Pool is scaled down."""

    speaker: ClassVar[str] = "allocator"

    before: int
    after: int


class CWNodeDeliverFail(KubernetesEvent):
    """Node allocation fails due to misconfigured Node Pool settings or internal issues."""

    speaker: ClassVar[str] = "allocator"
    severity: ClassVar[Severity] = "Warning"


class CWNodePoolNodesRequestFailed(KubernetesEvent):
    """An error is returned when updating the Node Pool."""

    speaker: ClassVar[str] = "allocator"
    severity: ClassVar[Severity] = "Warning"


# The lifecycle service: where each Node is on its way.


class NodeUpdated(Event, OfNode):
    """A Node as it should now look in its cluster: everything that the control plane owns of it.

    `cordon` counts the cordons of this stay.
    """

    speaker: ClassVar[str] = "lifecycle"

    phase: NodePhase
    unschedulable: bool
    cordon: int = 0
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: tuple[Taint, ...]
    removal: RemovalReason | None = None


class NodeActivityChanged(Event, OfNode):
    """A Node became active or idle (CWActive); `message` names what runs there."""

    speaker: ClassVar[str] = "lifecycle"

    active: bool
    message: str


class NodeKept(Event, OfNode):
    """A Node chosen for removal stays: it became active, or its NodePool wants it again.

    `request` is the request to delete it that is no longer followed.
    """

    speaker: ClassVar[str] = "lifecycle"

    request: int = 0
    message: str


class CWNodeRegistered(OfNode, KubernetesEvent):
    """Node registration succeeds; on the Node and on the NodePool."""

    speaker: ClassVar[str] = "lifecycle"
    regarding: ClassVar[tuple[str, ...]] = ("Node", "NodePool")

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: tuple[Taint, ...]


class CWNodeRegistrationFailed(OfNode, KubernetesEvent):
    """Node registration fails; the message says why. The machine goes to triage."""

    speaker: ClassVar[str] = "lifecycle"
    severity: ClassVar[Severity] = "Warning"
    regarding: ClassVar[tuple[str, ...]] = ("Node",)

    uid: str


class CWRegistrationFailedEvent(KubernetesEvent):
    """The other name that the seed's Node events table gives a failed registration."""

    speaker: ClassVar[str] = "lifecycle"
    severity: ClassVar[Severity] = "Warning"
    regarding: ClassVar[tuple[str, ...]] = ("Node",)


class CWDrainNode(OfNode, KubernetesEvent):
    """A Node is being drained; `force` lets no Pod block it."""

    speaker: ClassVar[str] = "lifecycle"

    force: bool


class CWNodeDeleted(OfNode, KubernetesEvent):
    """A Node has been deleted; its machine is free. `registered` tells one that had joined."""

    speaker: ClassVar[str] = "lifecycle"

    registered: bool
    uid: str


class CWNodePoolMetadata(KubernetesEvent):
    """Metadata is updated for a Node Pool, and its Nodes with it."""

    speaker: ClassVar[str] = "lifecycle"


class CWNodePoolNodesRemoveError(KubernetesEvent):
    """An error occurs during Node removal."""

    speaker: ClassVar[str] = "lifecycle"
    severity: ClassVar[Severity] = "Warning"


# Preemption: taking a spot Node back (seed: Spot Node Pools).


class PreemptionPending(OfNode, KubernetesEvent):
    """The Node is chosen for preemption and cordoned (0:00)."""

    speaker: ClassVar[str] = "preemption"
    severity: ClassVar[Severity] = "Warning"
    regarding: ClassVar[tuple[str, ...]] = ("Node", "NodePool")
    reason: ClassVar[str] = "Preemption pending"

    since: datetime


class PreemptionInProgress(OfNode, KubernetesEvent):
    """The Node's drain begins (2:00)."""

    speaker: ClassVar[str] = "preemption"
    severity: ClassVar[Severity] = "Warning"
    regarding: ClassVar[tuple[str, ...]] = ("Node", "NodePool")
    reason: ClassVar[str] = "Preemption in progress"

    evicted_at: datetime


class PreemptionOverdue(Event, OfNode):
    """The window of seven minutes is over: the Node goes now, drained or not."""

    speaker: ClassVar[str] = "preemption"

    message: str


class DeletedForPreemption(KubernetesEvent):
    """The Node is out of its cluster and NodePool (drained, or 7:00)."""

    speaker: ClassVar[str] = "preemption"
    severity: ClassVar[Severity] = "Warning"
    regarding: ClassVar[tuple[str, ...]] = ("Node", "NodePool")
    reason: ClassVar[str] = "Deleted for preemption"


# The fleet: what the machines report.


class MachineAdded(Event, OfMachine):
    """A machine is there to be had; `labels` are its topology labels."""

    speaker: ClassVar[str] = "fleet"

    instance_type: str
    labels: Mapping[str, str] = {}
    boot_seconds: float = 0


class MachineRepaired(Event, OfMachine):
    """A machine came back from triage and can be had again."""

    speaker: ClassVar[str] = "fleet"


class MachineBooted(Event, OfMachine):
    """The machine booted for this stay and asks to join its cluster."""

    speaker: ClassVar[str] = "fleet"

    assignment: int


class MachineFailed(Event, OfMachine):
    """The machine did not boot or was turned away; `cause` says which and why."""

    speaker: ClassVar[str] = "fleet"

    assignment: int
    cause: str


class NodeObserved(Event, OfMachine):
    """A Node seen from inside, its cordon in force and its Pods; said when either changed.

    `cordon` counts the cordons it has heard of: what it says of one proves nothing of a later one.
    """

    speaker: ClassVar[str] = "fleet"

    assignment: int
    unschedulable: bool
    cordon: int = 0
    pods: tuple[Pod, ...] = ()
