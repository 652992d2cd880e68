"""What the allocator says: which machine joins a NodePool, and which Node leaves it."""

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar, Literal

from nodepool.contract.events.kubernetes import KubernetesEvent, Severity
from nodepool.contract.messages import Event, OfMachine, OfNode, OfPool, OfZone
from nodepool.contract.model import ComputeClass, RemovalReason

PreemptionCause = Literal["Reclaimed", "DefaultPoolShort"]
"""Why a spot Node is taken back: for an operator, or for a `default` NodePool that is short."""


class GrantAcknowledged(Event, OfPool):
    """The allocator adds no Node beyond this smaller grant any more.

    generation: the newest generation of the NodePool that the allocator knows.
    granted: how many Nodes the NodePool may have.
    number: the number of that grant, the newest that the allocator knows.
    final: whether no grant is used any more, whatever was granted: the NodePool is being deleted.
    """

    speaker: ClassVar[str] = "allocator"

    uid: str
    generation: int
    granted: int
    number: int = 0
    final: bool = False


class AllocationFailed(Event, OfPool):
    """The Nodes of a NodePool could not be decided on: AtTarget is InternalError.

    During a deletion NodesRemoved is InternalError instead.

    uid: the NodePool's.
    """

    speaker: ClassVar[str] = "allocator"

    message: str
    uid: str


class AllocationRecovered(Event, OfPool):
    """The Nodes of a NodePool could be decided on again after an `AllocationFailed`.

    uid: the NodePool's.
    """

    speaker: ClassVar[str] = "allocator"

    uid: str


class NodeRemovalCancelled(Event, OfNode):
    """The NodePool wants to keep this Node after all; too late where it is gone already."""

    speaker: ClassVar[str] = "allocator"


class CWNodePoolScaledUp(KubernetesEvent):
    """The target of a NodePool rose from `before` to `after` Nodes."""

    speaker: ClassVar[str] = "allocator"

    before: int
    after: int


class CWNodeRequestQueued(KubernetesEvent):
    """A NodePool requests `count` Nodes more, which makes `granted` in all."""

    speaker: ClassVar[str] = "allocator"

    count: int
    granted: int


class CWNodeAssigned(OfNode, KubernetesEvent):
    """A machine is assigned to a NodePool and becomes its Node.

    uid: the NodePool's.
    instance_type, labels: the machine's type and its topology labels.
    compute_class: the NodePool's.
    since: when the wait began that the machine ends; a boot that fails goes on with this wait.
    owner: the NodePool of the same organisation whose position the machine fills; empty for its own
        position; None in events of older releases, which do not say it.
    exchanged: since when the owner waits instead; None for its own position.
    """

    speaker: ClassVar[str] = "allocator"

    uid: str
    instance_type: str
    labels: Mapping[str, str] = {}
    compute_class: ComputeClass = ComputeClass.DEFAULT
    since: datetime | None = None
    owner: str | None = None
    exchanged: datetime | None = None


class CWNodePoolRemoveNodes(KubernetesEvent):
    """A NodePool begins to remove `count` Nodes, from a target of `before`."""

    speaker: ClassVar[str] = "allocator"

    count: int
    before: int


class CWNodeDeletionRequestSuccess(OfNode, KubernetesEvent):
    """A Node is to be deleted.

    removal: why.
    idle_only: whether the Node stays if it became active in the meantime.
    request: counts the requests to delete it in this assignment.
    """

    speaker: ClassVar[str] = "allocator"

    removal: RemovalReason
    idle_only: bool
    request: int = 0


class CWNodePoolNodesRemoved(KubernetesEvent):
    """A removal of Nodes is complete.

    uid: the NodePool's.
    count: how many Nodes were removed; 0 if all surplus Nodes left for other reasons, or if the
        NodePool wants them again.
    remaining: how many Nodes the NodePool still has.
    removal: why the Nodes were removed.
    """

    speaker: ClassVar[str] = "allocator"

    uid: str
    count: int
    remaining: int
    removal: RemovalReason


class CWNodePoolScaledDown(KubernetesEvent):
    """A NodePool was scaled down from a target of `before` to one of `after` Nodes."""

    speaker: ClassVar[str] = "allocator"

    before: int
    after: int


class CWNodeDeliverFail(KubernetesEvent):
    """Nodes cannot be delivered: a `Settings` fault of the spec, or a machine that did not join."""

    speaker: ClassVar[str] = "allocator"
    severity: ClassVar[Severity] = "Warning"


class CWNodePoolNodesRequestFailed(KubernetesEvent):
    """The Nodes of a NodePool could not be requested for an internal error.

    In a cluster, an Event with this reason also says that a change of an object is not taken.
    """

    speaker: ClassVar[str] = "allocator"
    severity: ClassVar[Severity] = "Warning"


class CapacityReclaimed(Event, OfZone):
    """So many machines of a type are to be held back in a zone from now on; 0 for none."""

    speaker: ClassVar[str] = "allocator"

    instance_type: str
    count: int


class CapacityReclaimFailed(Event, OfZone):
    """The machines that are to be held back could not be chosen; this is tried again later."""

    speaker: ClassVar[str] = "allocator"

    instance_type: str
    message: str


class MachineReclaimed(Event, OfMachine):
    """A free machine is held back: no NodePool is given it."""

    speaker: ClassVar[str] = "allocator"

    instance_type: str


class MachineReturned(Event, OfMachine):
    """A machine that was held back is free again."""

    speaker: ClassVar[str] = "allocator"

    instance_type: str


class NodePreemptionRequested(Event, OfNode):
    """A spot Node is to be taken back, as if `PreemptNode` had been sent.

    While the preemption service is down, the request waits. If nothing needs the machine any more,
    `NodePreemptionWithdrawn` takes it back.

    cause: why.
    beneficiary: the NodePool that is short, where it is of the same organisation; its key, such as
        `acme/prod/train`. Of another one nothing is said.
    """

    speaker: ClassVar[str] = "allocator"

    cause: PreemptionCause
    beneficiary: str = ""


class NodePreemptionWithdrawn(Event, OfNode):
    """Nothing needs the machine of this Node any more: `NodePreemptionRequested` is taken back.

    The log decides. If the preemption has begun, this changes nothing; if the preemption service
    begins the preemption before it has read this, the preemption goes on.
    """

    speaker: ClassVar[str] = "allocator"
