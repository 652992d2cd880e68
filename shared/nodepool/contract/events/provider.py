"""What every provider of machines says: what it observes of machines and of their Nodes.

`nodepool.contract.providers` says what a provider hears, and the rules for what it says.
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from nodepool.contract.conditions import ConditionStatus
from nodepool.contract.messages import ProviderEvent
from nodepool.contract.node_states import MachineState
from nodepool.contract.pods import Pod


class MachineAdded(ProviderEvent):
    """A machine exists, and is free unless it has to be wiped first.

    instance_type, labels: its type and its topology labels.
    boot_seconds: how long it takes to boot, in seconds, where it is simulated.
    verify_seconds, failures_per_day, repair_seconds, seed: as in the command `AddMachines`.
    wipes: whether its provider wipes it after each stay; then it is free once it has been wiped.
    wipe_seconds: how long a wipe takes, in seconds, where it is simulated.
    unwiped: whether it has to be wiped before its first stay; then it is free after `MachineWiped`.
    """

    instance_type: str
    labels: Mapping[str, str] = {}
    boot_seconds: float = 0
    verify_seconds: float = 0
    failures_per_day: float = 0
    repair_seconds: float = 0
    seed: int = 0
    wipes: bool = False
    wipe_seconds: float = 0
    unwiped: bool = False


class MachineStateChanged(ProviderEvent):
    """A machine outside of any NodePool is in another state.

    state: the new state. With `zap-fail` its wipe has failed; with `triage` it was free. Both put
        it out of service.
    cause: why it is out of service, as one sentence.
    assignment: with `triage`, the assignment of its last stay; 0 if it had none.
    """

    state: MachineState
    cause: str = ""
    assignment: int = 0


class MachineRepaired(ProviderEvent):
    """A machine is back from triage and free, or has to be wiped before it is free."""


class MachineWiped(ProviderEvent):
    """Nothing is left on a machine of what its last stay, or anything before, has stored there.

    assignment: the assignment of this stay; 0 if the machine is wiped before its first stay.
    """

    assignment: int


class MachineBooted(ProviderEvent):
    """A machine has booted for this assignment, and can join its cluster, or is back in it.

    boot: the number of the reboot in this assignment; 0 for the boot that it began with.
    verifying: whether its verification follows, after which comes a `NodeVerified`.
    """

    assignment: int
    boot: int = 0
    verifying: bool = False


class MachineFailed(ProviderEvent):
    """A machine did not boot for this assignment, or could not join; `cause` says which and why.

    boot: as in `MachineBooted`.
    """

    assignment: int
    cause: str
    boot: int = 0


class NodeVerified(ProviderEvent):
    """The verification of a Node after a boot is over.

    assignment, boot: which boot it was, as in `MachineBooted`.
    passed: whether the Node may go into production.
    cause: why it did not pass.
    """

    assignment: int
    boot: int
    passed: bool
    cause: str = ""


class NodeConditionChanged(ProviderEvent):
    """A condition of a Node, as a node problem detector or the cluster itself reports it, changed.

    assignment: the assignment that it is in.
    type, status, reason, message: those of the condition.
    request: the number of the `NodeReportRequested` that this answers; 0 where it answers no
        request.
    """

    assignment: int
    type: Annotated[str, Field(max_length=316)]
    status: ConditionStatus
    reason: str
    message: str
    request: int = 0


class NodeObserved(ProviderEvent):
    """A Node as it is found in its cluster; said when anything of it changes.

    assignment: the assignment that it is in.
    unschedulable: whether a cordon is in force.
    cordon: the number of the last cordon that it has received; it proves nothing of a later one.
    pods: the Pods that run on it.
    lock: the number of the lock that it has; a Pod that does not tolerate it cannot start any more.
    """

    assignment: int
    unschedulable: bool
    cordon: int = 0
    pods: tuple[Pod, ...] = ()
    lock: int = 0


class MachineUpdateFailed(ProviderEvent):
    """What a machine has to report could not be published; this is tried again later."""

    message: str
