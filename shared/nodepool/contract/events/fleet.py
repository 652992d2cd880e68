"""What the fleet says: what is observed of machines and of the Nodes that they are."""

from collections.abc import Mapping
from typing import ClassVar

from nodepool.contract.commands import MachineFault
from nodepool.contract.messages import Event, OfMachine
from nodepool.contract.model import Pod


class MachineAdded(Event, OfMachine):
    """A machine exists and is free.

    instance_type, labels: its type and its topology labels.
    boot_seconds: how long it takes to boot, in seconds, where it is simulated.
    """

    speaker: ClassVar[str] = "fleet"

    instance_type: str
    labels: Mapping[str, str] = {}
    boot_seconds: float = 0


class MachineBroken(Event, OfMachine):
    """A simulated machine fails from now on; with no `times`, it works again.

    fault, times, cause: as in the command `BreakMachine`.
    """

    speaker: ClassVar[str] = "fleet"

    fault: MachineFault
    times: int
    cause: str = ""


class MachineRepaired(Event, OfMachine):
    """A machine is back from triage and free."""

    speaker: ClassVar[str] = "fleet"


class MachineBooted(Event, OfMachine):
    """A machine has booted for this assignment, and can join its cluster."""

    speaker: ClassVar[str] = "fleet"

    assignment: int


class MachineFailed(Event, OfMachine):
    """A machine did not boot for this assignment, or could not join; `cause` says which and why."""

    speaker: ClassVar[str] = "fleet"

    assignment: int
    cause: str


class NodeObserved(Event, OfMachine):
    """A Node as it is found in its cluster; said when anything of it changes.

    assignment: the assignment that it is in.
    unschedulable: whether a cordon is in force.
    cordon: the number of the last cordon that it has received; it proves nothing of a later one.
    pods: the Pods that run on it.
    """

    speaker: ClassVar[str] = "fleet"

    assignment: int
    unschedulable: bool
    cordon: int = 0
    pods: tuple[Pod, ...] = ()
