"""The observations of the driver of `metal`, from the inventory and from the controllers.

The driver runs in the process of `metal`, so only the user of `metal` may say these events. It has
three duties that no message shows:

* Only the process that has stored a `PowerRequested` sends this request, at most once, and never
  once it is overdue. No other process ever sends it, whatever became of the first one.
* The driver reads each declared machine again and again, and says a reading that differs from the
  last one in the log, `settled` and `check` included.
* After a declaration and after a silence it says the first reading even if nothing has changed.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from nodepool.contract.grammar import LABEL_LIMIT
from nodepool.contract.health import NodeFault
from nodepool.contract.messages import Event, OfRealMachine
from nodepool.contract.real_machines import (
    SENTENCES_MAX,
    WIPE_MINUTES_MAX,
    Number,
    Power,
    Sentence,
)


class MachineDeclared(Event, OfRealMachine):
    """The inventory has this machine, from now on or with other content.

    instance_type, labels: its type and its topology labels.
    wipes: whether it is wiped after each stay; the value with which it was added counts.
    wipe_minutes: how long its next wipe may take.
    digest: changes whenever its controller or its expected hardware is declared otherwise; what was
        read before says nothing of the machine that is declared now.
    serial: the serial number that it has to show; empty in the events of earlier releases.
    """

    speaker: ClassVar[str] = "redfish"

    instance_type: str
    labels: Mapping[str, str] = {}
    wipes: bool = True
    wipe_minutes: Annotated[int, Field(ge=1, le=WIPE_MINUTES_MAX)] = 60
    digest: Annotated[str, Field(max_length=128)]
    serial: Annotated[str, Field(max_length=LABEL_LIMIT)] = ""


class MachineUndeclared(Event, OfRealMachine):
    """The inventory does not have this machine any more."""

    speaker: ClassVar[str] = "redfish"


class ControllerReported(Event, OfRealMachine):
    """A reading of the controller that differs from the last one.

    digest: the digest of the declaration with which the machine was read.
    settled: the number of the last power request of which the driver knew, when the reading began,
        that it was answered or overdue, and so was every request before it.
    check: the number of the last check that was requested when the reading began; then it has all
        parts.
    power: the power state.
    runs: whether a system runs on the machine. Of a controller that does not tell how far a boot
        is, whether the machine is on. False if the machine shows another serial number, or none
        since it was powered on.
    stranger: why this is not the declared machine; empty if it is. A stranger is never touched.
    unfit: other reasons why it must not be in production.
    faults: each problem that it has as a Node, with its evidence; empty if `runs` is false because
        of the serial number. A problem that an entry of the log shows lasts until the machine is
        powered on again.
    """

    speaker: ClassVar[str] = "redfish"

    digest: Annotated[str, Field(max_length=128)]
    settled: Number = 0
    check: Number = 0
    power: Power
    runs: bool = False
    stranger: Sentence = ""
    unfit: Annotated[tuple[Sentence, ...], Field(max_length=SENTENCES_MAX)] = ()
    faults: Mapping[NodeFault, Sentence] = {}


class ControllerSilent(Event, OfRealMachine):
    """The controller does not answer any more; the next reading ends the silence."""

    speaker: ClassVar[str] = "redfish"

    cause: Sentence


class PowerAnswered(Event, OfRealMachine):
    """What became of a power request, said by the process that has sent it.

    outcome: with `done` the controller has accepted it, and a later reading shows its effect. With
        `refused` it was not carried out and will not be. With `unknown` it may have been carried
        out, or may still be.
    """

    speaker: ClassVar[str] = "redfish"

    number: Number
    outcome: Literal["done", "refused", "unknown"]
    cause: Sentence = ""


class WipeEnded(Event, OfRealMachine):
    """The wipe that a machine has booted says how it ended. wipe: as in `PowerRequested`."""

    speaker: ClassVar[str] = "redfish"

    wipe: Number
    passed: bool
    cause: Sentence = ""
