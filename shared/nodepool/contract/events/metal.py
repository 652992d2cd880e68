"""The events that only `metal` says: its decisions about real machines."""

from typing import ClassVar, Literal

from nodepool.contract.messages import Event, OfRealMachine
from nodepool.contract.real_machines import (
    BootFrom,
    MachineCondition,
    Number,
    PowerAction,
    Purpose,
)


class PowerRequested(Event, OfRealMachine):
    """The intention to change the power of a machine; its request is sent later, at most once.

    number: counts the requests to this machine.
    within_s: how long the effect may take, in seconds; after that the request is overdue.
    boot_from: what the machine boots from once, with `on`.
    org, cluster: the cluster that the machine boots for.
    assignment, boot: the boot that it belongs to; both 0 outside of a stay.
    wish: the number of the operator's wish that it follows; 0 if it follows none.
    wipe: the number of the wipe that it is for; 0 if it is for none.
    reason: why it is made, as one sentence.
    """

    speaker: ClassVar[str] = "metal"

    number: Number
    action: PowerAction
    within_s: float
    boot_from: BootFrom = ""
    org: str = ""
    cluster: str = ""
    assignment: int = 0
    boot: int = 0
    wish: int = 0
    wipe: int = 0
    reason: str


class PowerOverdue(Event, OfRealMachine):
    """The effect of a request was not observed in time; what a new reading shows counts now."""

    speaker: ClassVar[str] = "metal"

    number: Number


class MachineCheckRequested(Event, OfRealMachine):
    """A complete reading is needed; any driver makes it. number: counts the checks."""

    speaker: ClassVar[str] = "metal"

    number: Number
    purpose: Purpose
    within_s: float


class MachinePowerWished(Event, OfRealMachine):
    """An operator wants this power state of a machine out of service. wish: counts the wishes."""

    speaker: ClassVar[str] = "metal"

    power: Literal["on", "off", "reset"]
    wish: Number


class MachineMaintenanceChanged(Event, OfRealMachine):
    """People begin or end work on a machine; meanwhile nothing else touches it."""

    speaker: ClassVar[str] = "metal"

    maintenance: bool
    reason: str = ""


class MachineConditionChanged(Event, OfRealMachine):
    """A problem of a machine began, ended, or has another message.

    status: whether the machine has the problem.
    message: what is wrong, as one sentence; empty at the end.
    """

    speaker: ClassVar[str] = "metal"

    type: MachineCondition
    status: bool
    message: str = ""
