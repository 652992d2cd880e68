"""What the decisions about real machines, their driver and their operators say to each other.

The driver reads the inventory and talks to the controllers; it says what it finds as `redfish`. It
publishes nothing else, and only the user of `metal` may publish on its subjects. The driver has
three duties that no message shows:

* Only the process that has stored a `PowerRequested` sends this request, at most once, and never
  once it is overdue. No other process ever sends it, whatever became of the first one.
* The driver reads each declared machine again and again, and says a reading that differs from the
  last one in the log, `settled` and `check` included.
* After a declaration and after a silence it says the first reading even if nothing has changed.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from metal.reading import Power
from nodepool.contract.grammar import TEXT_LIMIT
from nodepool.contract.health import NodeFault
from nodepool.contract.messages import Command, Event, OfMachine

SENTENCES_MAX: Final = 16
"""How many reasons a reading names at most."""
Sentence = Annotated[str, Field(max_length=TEXT_LIMIT)]
Number = Annotated[int, Field(ge=0)]
PowerAction = Literal["shutdown", "off", "on"]
"""What a request does to the power of a machine; `shutdown` asks its system first."""
BootFrom = Literal["", "cluster", "wipe"]
"""What a machine boots from once: as it is set up, the profile for its cluster, or for wiping."""
Purpose = Literal["", "look", "verify", "return"]
"""Why a machine is checked: to see it, to verify its Node, or to bring it back into service."""
MachineCondition = Literal["ControllerSilent", "OtherMachine", "OtherType", "Unfit", "PowerStuck"]
"""A problem of a machine, whether or not it is a Node.

ControllerSilent: its controller does not answer.
OtherMachine: the machine at the address is not the declared one.
OtherType: it is declared as another type than it was added with.
Unfit: something has failed, or differs from the inventory.
PowerStuck: requests have not brought it into the desired power state.
"""


class Observation(Event, OfMachine):
    """What the driver has found."""

    speaker: ClassVar[str] = "redfish"


class MachineDeclared(Observation):
    """The inventory has this machine, from now on or with other content.

    instance_type, labels: its type and its topology labels.
    wipes: whether it is wiped after each stay; what it was added with counts.
    digest: changes whenever its controller or its expected hardware is declared otherwise; what was
        read before says nothing of the machine that is declared now.
    """

    instance_type: str
    labels: Mapping[str, str] = {}
    wipes: bool = True
    digest: Annotated[str, Field(max_length=128)]


class MachineUndeclared(Observation):
    """The inventory does not have this machine any more."""


class ControllerReported(Observation):
    """A reading of the controller that differs from the last one.

    digest: that of the declaration with which it was read.
    settled: the number of the last power request of which the driver knew, when the reading began,
        that it was answered or overdue, and so was every request before it.
    check: the number of the last check that was requested when the reading began; then it has all
        parts.
    power: the power state.
    runs: whether a system runs on the machine. Of a controller that does not tell how far a boot
        is, whether the machine is on.
    stranger: why this is not the declared machine; empty if it is. A stranger is never touched.
    unfit: why it must not be in production, apart from that.
    faults: each problem that it has as a Node, with its evidence. A problem that an entry of the
        log shows lasts until the machine is powered on again.
    """

    digest: Annotated[str, Field(max_length=128)]
    settled: Number = 0
    check: Number = 0
    power: Power
    runs: bool = False
    stranger: Sentence = ""
    unfit: Annotated[tuple[Sentence, ...], Field(max_length=SENTENCES_MAX)] = ()
    faults: Mapping[NodeFault, Sentence] = {}


class ControllerSilent(Observation):
    """The controller has stopped to answer; its next reading ends the silence."""

    cause: Sentence


class PowerAnswered(Observation):
    """What became of a power request, said by the process that has sent it.

    outcome: with `done` the controller has accepted it, and a later reading shows its effect. With
        `refused` it was not carried out and will not be. With `unknown` it may have been carried
        out, or may still be.
    """

    number: Number
    outcome: Literal["done", "refused", "unknown"]
    cause: Sentence = ""


class WipeEnded(Observation):
    """The wipe that a machine has booted says how it ended. wipe: as in `PowerRequested`."""

    wipe: Number
    passed: bool
    cause: Sentence = ""


class OfMetal(Event, OfMachine):
    """A decision about a real machine."""

    speaker: ClassVar[str] = "metal"


class PowerRequested(OfMetal):
    """The intention to change the power of a machine; the request follows it, at most once.

    number: counts the requests to this machine.
    within_s: how long its effect may take, in seconds; after that it is overdue.
    boot_from: what the machine boots from once, with `on`.
    org, cluster: the cluster that it boots for.
    assignment, boot: the boot that it belongs to; both 0 outside of a stay.
    wish: the number of the operator's wish that it follows; 0 if it follows none.
    wipe: the number of the wipe that it is for; 0 if it is for none.
    reason: why, as one sentence.
    """

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


class PowerOverdue(OfMetal):
    """The effect of a request was not observed in time; what a new reading shows counts now."""

    number: Number


class MachineCheckRequested(OfMetal):
    """A complete reading is needed; any driver makes it. number: counts the checks."""

    number: Number
    purpose: Purpose
    within_s: float


class MachinePowerWished(OfMetal):
    """An operator wants this power state of a machine out of service. wish: counts the wishes."""

    power: Literal["on", "off", "reset"]
    wish: Number


class MachineMaintenanceChanged(OfMetal):
    """People work on a machine from now on, so that nothing else touches it, or no longer."""

    maintenance: bool
    reason: str = ""


class MachineConditionChanged(OfMetal):
    """A problem of a machine began, ended, or says something else.

    status: whether there is the problem.
    message: what is wrong, as one sentence; empty at the end.
    """

    type: MachineCondition
    status: bool
    message: str = ""


class SetMachinePower(Command, OfMachine):
    """Powers a machine on or off, or resets it; only out of service or in maintenance."""

    power: Literal["on", "off", "reset"]


class MaintainMachine(Command, OfMachine):
    """Takes a machine into maintenance, or out of it.

    In maintenance only `SetMachinePower` changes its power, and it boots for no NodePool.
    """

    maintenance: bool = True
    reason: Sentence = ""


class VerifyMachine(Command, OfMachine):
    """Reads a machine completely; one out of service comes back if nothing is wrong with it."""
