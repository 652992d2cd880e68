"""What the lifecycle service says: where each Node is between its assignment and its deletion."""

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar, Literal

from nodepool.contract.events.kubernetes import KubernetesEvent, Severity
from nodepool.contract.messages import Event, OfNode, OfPool
from nodepool.contract.model import NodeAction, NodePhase, RemovalReason, Taint
from nodepool.contract.pods import BlockingPod
from nodepool.contract.reboots import RebootedFor

BLOCKING_MAX = 5
"""How many Pods and Slurm jobs that delay a drain an event names."""
LockState = Literal["pending", "locked", "released"]
"""A lock that a Slurm job waits for, one that it has, and one that is over."""


class NodeTemplateChanged(Event, OfPool):
    """What a NodePool asks for on each of its Nodes, where that is too much to be said of each.

    It comes before the first event about a Node that names it.

    revision: its number, higher than that of any before it.
    labels, annotations, taints: those that each Node has beside its own, which win.
    """

    speaker: ClassVar[str] = "lifecycle"

    revision: int
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: tuple[Taint, ...]


class NodeUpdated(Event, OfNode):
    """A Node as it should look in its cluster: all that the control plane owns of it.

    phase: where it is between its assignment and its deletion.
    unschedulable: whether it is cordoned.
    cordon: counts the cordons in this assignment.
    labels, annotations, taints: those of the Node object.
    removal: why it is to leave; None for a Node that stays.
    template: the revision of the `NodeTemplateChanged` that adds to these; 0 for no template.
    action: what a Node that stays waits for, or what is done to it; None for nothing.
    boot: how often it was rebooted in this assignment; in phase rebooting, this one included.
    reserved: what it is reserved for where that is not its organisation.
    lock: the number of the lock that a Slurm job has on it, or waits for; 0 without one.
    rebooted_for: the types of problems that it was rebooted for, sorted; none while it reboots.
    """

    speaker: ClassVar[str] = "lifecycle"

    phase: NodePhase
    unschedulable: bool
    cordon: int = 0
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: tuple[Taint, ...]
    removal: RemovalReason | None = None
    template: int = 0
    action: NodeAction | None = None
    boot: int = 0
    reserved: str = ""
    lock: int = 0
    rebooted_for: tuple[RebootedFor, ...] = ()


class NodeReservationChanged(Event, OfNode):
    """A Node is reserved for the control plane, or for its organisation again.

    It follows the `NodeUpdated` that carries the label. A Node is usable from its assignment on.

    usable: whether the Node counts as one of its NodePool's, as room for Pods, and against quota.
    """

    speaker: ClassVar[str] = "lifecycle"

    usable: bool


class NodeLockChanged(Event, OfNode):
    """The lock of a Node is in another state, or `LockNode` was sent for it once more.

    lock: pending while Pods that do not tolerate it are evicted, then locked; in the end released.
    job: the id of the Slurm job.
    number: the position in the log of the command that took it; distinguishes it from other locks.
    message: one sentence on why.
    """

    speaker: ClassVar[str] = "lifecycle"

    lock: LockState
    job: str
    number: int
    message: str


class NodeActionRequested(Event, OfNode):
    """All that commands have asked for a Node and that is not done yet.

    cordon: why it is to be cordoned; empty where it is not.
    drain: how it is to be drained: once nothing blocks that, or whatever runs there.
    reboot: how it is to be rebooted, in the same way.
    reserved_desired: what it is to be reserved for; empty for what it is.
    """

    speaker: ClassVar[str] = "lifecycle"

    cordon: str = ""
    drain: Literal["", "safe", "forced"] = ""
    reboot: Literal["", "safe", "forced"] = ""
    reserved_desired: str = ""


class NodeActivityChanged(Event, OfNode):
    """What runs on a Node changed: whether it is active (its condition CWActive), or its Pods.

    active: whether workloads run on it.
    message: names them.
    blocking: what a drain for a scale-down waits for: a Slurm job, then the Pods that have been
        there longest; at most `BLOCKING_MAX` in all.
    blocking_count: how many Pods and Slurm jobs it waits for.
    grace_s: how long a drain awaits the Pods that run there, in seconds, once it has begun.
    """

    speaker: ClassVar[str] = "lifecycle"

    active: bool
    message: str
    blocking: tuple[BlockingPod, ...] = ()
    blocking_count: int = 0
    grace_s: int = 0


class AnswerAwaited(Event, OfNode):
    """A machine has not answered a cordon, a drain or a lock yet.

    answer_by: when the machine is given up unless it answers; if not final, when its time begins.
    is_final: False while it is not certain that the machine could hear of the request; another
        AnswerAwaited then follows at `answer_by`.
    lock: the number of the lock that the machine is to answer; 0 for a cordon or a drain.
    """

    speaker: ClassVar[str] = "lifecycle"

    answer_by: datetime
    is_final: bool = True
    lock: int = 0


class NodeAnswered(Event, OfNode):
    """A machine owes no answer any more: the `answer_by` of the last AnswerAwaited is void."""

    speaker: ClassVar[str] = "lifecycle"


class NodeKept(Event, OfNode):
    """A Node that was to be deleted stays: it became active, or its NodePool wants to keep it.

    request: the number of the request to delete it that is not carried out.
    message: why it stays.
    """

    speaker: ClassVar[str] = "lifecycle"

    request: int = 0
    message: str


class CWNodeRegistered(OfNode, KubernetesEvent):
    """A Node has joined its cluster, with these labels, annotations and taints.

    template: as in `NodeUpdated`.
    phase: production, or verifying where its verification follows.
    """

    speaker: ClassVar[str] = "lifecycle"
    regarding: ClassVar[tuple[str, ...]] = ("Node", "NodePool")

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: tuple[Taint, ...]
    template: int = 0
    phase: NodePhase = NodePhase.PRODUCTION


class CWNodeRegistrationFailed(OfNode, KubernetesEvent):
    """A Node could not join its cluster; its machine goes to triage. `uid` is the NodePool's."""

    speaker: ClassVar[str] = "lifecycle"
    severity: ClassVar[Severity] = "Warning"
    regarding: ClassVar[tuple[str, ...]] = ("Node",)

    uid: str


class CWRegistrationFailedEvent(KubernetesEvent):
    """The name under which the product's Node events list a failed registration.

    It is said beside `CWNodeRegistrationFailed` where a setting asks for it. See
    https://docs.coreweave.com/products/cks/reference/node-pool.
    """

    speaker: ClassVar[str] = "lifecycle"
    severity: ClassVar[Severity] = "Warning"
    regarding: ClassVar[tuple[str, ...]] = ("Node",)


class CWDrainNode(OfNode, KubernetesEvent):
    """A Node is being drained; with `force`, no Pod can delay it."""

    speaker: ClassVar[str] = "lifecycle"

    force: bool


class CWNodeCordoned(OfNode, KubernetesEvent):
    """Nothing new is scheduled on a Node, for causes other than its removal.

    cause: its causes, with commas between, as in `node.coreweave.cloud/cordonReason`.
    triage: whether its machine goes to triage when the Node leaves, whatever it leaves for.
    """

    speaker: ClassVar[str] = "lifecycle"
    regarding: ClassVar[tuple[str, ...]] = ("Node", "NodePool")

    cause: str
    triage: bool = False


class CWNodeUncordoned(OfNode, KubernetesEvent):
    """A Node is no longer cordoned, or is cordoned for its removal only."""

    speaker: ClassVar[str] = "lifecycle"
    regarding: ClassVar[tuple[str, ...]] = ("Node", "NodePool")


class CWNodeDeleted(OfNode, KubernetesEvent):
    """A Node is deleted, and its machine is free or goes to triage.

    registered: whether the Node had joined its cluster.
    uid: the NodePool's.
    triage: whether the machine goes to triage, because it did not answer.
    removal: why the Node left.
    lost: how many Pods still ran on it when the time of its preemption was over.
    """

    speaker: ClassVar[str] = "lifecycle"

    registered: bool
    uid: str
    triage: bool = False
    removal: RemovalReason
    lost: int = 0


class CWNodePoolMetadata(KubernetesEvent):
    """The labels, annotations or taints of a NodePool's Nodes are updated."""

    speaker: ClassVar[str] = "lifecycle"


class CWNodePoolNodesRemoveError(KubernetesEvent):
    """A Node could not be removed: for an internal error, or because its machine did not answer.

    In the second case it is deleted all the same, right after this.

    uid: the NodePool's.
    """

    speaker: ClassVar[str] = "lifecycle"
    severity: ClassVar[Severity] = "Warning"

    uid: str


class NodeUpdateFailed(Event, OfPool):
    """The Nodes of a NodePool could not be updated or removed: AtTarget is InternalError.

    During a deletion NodesRemoved is InternalError instead. This is tried again later.

    uid: the NodePool's; empty in earlier releases.
    """

    speaker: ClassVar[str] = "lifecycle"

    message: str
    uid: str = ""


class NodeRemovalRecovered(Event, OfPool):
    """No update or removal of a Node of this NodePool fails for an internal error any more.

    uid: the NodePool's.
    """

    speaker: ClassVar[str] = "lifecycle"

    uid: str
