"""What the fleet says: what is observed of machines and of the Nodes that they are."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from nodepool.contract.commands import MachineFault
from nodepool.contract.conditions import ConditionStatus
from nodepool.contract.messages import Event, OfMachine, OfPool
from nodepool.contract.node_states import MachineState
from nodepool.contract.pods import Pod

PodPhase = Literal["Pending", "Running", "Terminating", "Gone"]
"""Where a Pod is: it waits for a Node, runs, is in its grace period, or exists no more."""
PodReason = Literal["", "Completed", "Deleted", "Evicted", "NodeDeleted", "NodePoolDeleted"]
"""Why a Pod ends: its work is done, someone deleted it, its Node is drained or repels it, its Node
or its NodePool is gone; empty while it does not end."""


class MachineAdded(Event, OfMachine):
    """A machine exists and is free.

    instance_type, labels: its type and its topology labels.
    boot_seconds: how long it takes to boot, in seconds, where it is simulated.
    verify_seconds, failures_per_day, repair_seconds, seed: as in the command `AddMachines`.
    """

    speaker: ClassVar[str] = "fleet"

    instance_type: str
    labels: Mapping[str, str] = {}
    boot_seconds: float = 0
    verify_seconds: float = 0
    failures_per_day: float = 0
    repair_seconds: float = 0
    seed: int = 0


class MachineBroken(Event, OfMachine):
    """A simulated machine fails from now on; with no `times`, it works again.

    fault, times, cause: as in the command `BreakMachine`.
    """

    speaker: ClassVar[str] = "fleet"

    fault: MachineFault
    times: int
    cause: str = ""


class MachineStateChanged(Event, OfMachine):
    """A machine outside of any NodePool is in another state.

    state: the new one.
    """

    speaker: ClassVar[str] = "fleet"

    state: MachineState


class MachineRepaired(Event, OfMachine):
    """A machine is back from triage and free."""

    speaker: ClassVar[str] = "fleet"


class MachineBooted(Event, OfMachine):
    """A machine has booted for this assignment, and can join its cluster, or is back in it.

    boot: the number of the reboot in this assignment; 0 for the boot that it began with.
    verifying: whether its verification follows, after which comes a `NodeVerified`.
    """

    speaker: ClassVar[str] = "fleet"

    assignment: int
    boot: int = 0
    verifying: bool = False


class MachineFailed(Event, OfMachine):
    """A machine did not boot for this assignment, or could not join; `cause` says which and why.

    boot: as in `MachineBooted`.
    """

    speaker: ClassVar[str] = "fleet"

    assignment: int
    cause: str
    boot: int = 0


class NodeVerified(Event, OfMachine):
    """The verification of a Node after a boot is over.

    assignment, boot: which boot it was, as in `MachineBooted`.
    passed: whether the Node may go into production.
    cause: why it did not pass.
    """

    speaker: ClassVar[str] = "fleet"

    assignment: int
    boot: int
    passed: bool
    cause: str = ""


class HeartbeatsStopped(Event, OfMachine):
    """A machine that is a Node sends no heartbeat from now on.

    Heartbeats are no messages. A Node that is silent for so many seconds gets Ready=Unknown.

    assignment: the assignment that the machine is in.
    seconds: how long the machine is silent until its Node gets Ready=Unknown.
    """

    speaker: ClassVar[str] = "fleet"

    assignment: int
    seconds: float


class NodeConditionChanged(Event, OfMachine):
    """A condition of a Node, as a node problem detector or the cluster itself reports it, changed.

    assignment: the assignment that it is in.
    type, status, reason, message: those of the condition.
    request: the number of the `NodeReportRequested` that this answers; 0 where it answers no
        request.
    """

    speaker: ClassVar[str] = "fleet"

    assignment: int
    type: Annotated[str, Field(max_length=316)]
    status: ConditionStatus
    reason: str
    message: str
    request: int = 0


class NodeObserved(Event, OfMachine):
    """A Node as it is found in its cluster; said when anything of it changes.

    assignment: the assignment that it is in.
    unschedulable: whether a cordon is in force.
    cordon: the number of the last cordon that it has received; it proves nothing of a later one.
    pods: the Pods that run on it.
    lock: the number of the lock that it has; a Pod that does not tolerate it cannot start any more.
    """

    speaker: ClassVar[str] = "fleet"

    assignment: int
    unschedulable: bool
    cordon: int = 0
    pods: tuple[Pod, ...] = ()
    lock: int = 0


class PodChanged(Event, OfPool):
    """A Pod that `CreatePod` created is in another phase; the first is Pending, the last Gone.

    name: the Pod's, which is free again once the Pod is Gone.
    uid: the NodePool's.
    number: the position in the log of the command that created it: distinguishes it from earlier
        Pods of its name.
    node, zone, assignment: the Node that it is bound to, and which stay of the machine that is;
        without a value while it is Pending, or where it never ran.
    gpus, accelerators: what it asks for.
    grace_s: its grace period in seconds; of a Terminating Pod the one that counts.
    reason, message: why it ends, and one sentence about it.
    spec: the Pod as it was created; said with its first phase only.
    """

    speaker: ClassVar[str] = "fleet"

    name: str
    uid: str
    number: int = 0
    phase: PodPhase
    node: str = ""
    zone: str = ""
    assignment: int = 0
    gpus: int = 0
    accelerators: int = 0
    grace_s: int = 30
    reason: PodReason = ""
    message: str = ""
    spec: Pod | None = None


class MachineUpdateFailed(Event, OfMachine):
    """What a machine has to report could not be published; this is tried again later."""

    speaker: ClassVar[str] = "fleet"

    message: str


class PodUpdateFailed(Event, OfPool):
    """What is to be said of a NodePool's Pods could not be published; this is tried again later."""

    speaker: ClassVar[str] = "fleet"

    message: str
