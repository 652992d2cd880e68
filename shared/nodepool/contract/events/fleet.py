"""What only the fleet says, because its machines are simulated: their faults and their Pods."""

from typing import ClassVar, Literal

from nodepool.contract.commands import MachineFault
from nodepool.contract.messages import Event, OfMachine, OfPool
from nodepool.contract.pods import Pod

PodPhase = Literal["Pending", "Running", "Terminating", "Gone"]
"""Where a Pod is: it waits for a Node, runs, is in its grace period, or exists no more."""
PodReason = Literal["", "Completed", "Deleted", "Evicted", "NodeDeleted", "NodePoolDeleted"]
"""Why a Pod ends: its work is done, someone deleted it, its Node is drained or repels it, its Node
or its NodePool is gone; empty while it does not end."""


class MachineBroken(Event, OfMachine):
    """A simulated machine fails from now on; with no `times`, it works again.

    fault, times, cause: as in the command `BreakMachine`.
    """

    speaker: ClassVar[str] = "fleet"

    fault: MachineFault
    times: int
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


class PodUpdateFailed(Event, OfPool):
    """What is to be said of a NodePool's Pods could not be published; this is tried again later."""

    speaker: ClassVar[str] = "fleet"

    message: str
