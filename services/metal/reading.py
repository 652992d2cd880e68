"""What a controller says of its machine at one moment."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from nodepool.contract.real_machines import Power


class Health(StrEnum):
    """The health of a machine or a part of it; UNKNOWN if the controller does not tell it."""

    OK = "OK"
    WARNING = "Warning"
    CRITICAL = "Critical"
    UNKNOWN = "Unknown"


class BootTarget(StrEnum):
    """What a machine boots from once; https://uefi.org describes the boot over HTTP."""

    UEFI_HTTP = "UefiHttp"
    PXE = "Pxe"


class ResetType(StrEnum):
    """What a reset does to the power of a machine."""

    ON = "On"
    FORCE_OFF = "ForceOff"
    GRACEFUL_SHUTDOWN = "GracefulShutdown"


class Part(StrEnum):
    """A part of a reading that takes requests of its own."""

    PROCESSORS = "processors"
    NETWORK = "network"
    THERMAL = "thermal"
    LOG = "log"
    CONTROLLER = "controller"


ALL_PARTS: Final = frozenset(Part)


@dataclass(frozen=True, slots=True)
class BootOverride:
    """What the next boot is set to.

    target: what it boots from, such as `UefiHttp`; `None` or empty if nothing is set.
    enabled: `Once`, `Continuous` or `Disabled`.
    mode: `UEFI` or `Legacy`; empty if the controller does not tell it.
    uri: the address that a boot over HTTP loads; empty if none is set.
    """

    target: str
    enabled: str
    mode: str = ""
    uri: str = ""

    @property
    def is_of_network(self) -> bool:
        """Whether the next boot alone loads an image from the network, as this service sets it."""
        return self.enabled == "Once" and self.target in {each.value for each in BootTarget}


@dataclass(frozen=True, slots=True)
class Processor:
    """A processor or an accelerator.

    name: its name in the machine, such as `GPU_SXM_1`.
    kind: `CPU`, `GPU` or another type of Redfish.
    model, health: of this part.
    firmware_version: of this part; empty if the controller does not tell it.
    """

    name: str
    kind: str
    model: str
    health: Health
    firmware_version: str = ""


@dataclass(frozen=True, slots=True)
class Trip:
    """A sensor that is as hot as its machine must not be.

    celsius, limit: what it reads, and from where on that is critical; None if it is not told.
    """

    sensor: str
    celsius: float | None = None
    limit: float | None = None


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in the log of a controller.

    moment: of the entry there.
    number, name: the last number in the name of the entry, and its name. Several entries have the
        same moment, since controllers count in seconds.
    """

    moment: datetime
    number: int = 0
    name: str = ""


LOG_START: Final = Position(datetime.min.replace(tzinfo=UTC))
"""The position below each entry of a log."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """An entry of the log that a controller keeps of its machine."""

    position: Position
    severity: Health
    message: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What a controller says of its machine.

    health: the worst health of all parts.
    progress: how far the boot is, such as `OSRunning`; empty if the controller does not tell it.
    serial, model, bios_version: of the machine; empty if the controller does not tell them.
    memory_gib, memory_health: of all memory; None if the size is not told.
    boot: the boot override as found; None if the controller has none.
    controller_version: of the firmware of the controller; empty if it does not tell it, None if it
        was not asked for.
    processors, macs, trips, log: the parts of the machine; None if the part was not asked for, or
        the controller does not have it. `log` holds the newest entries above the position that was
        asked for, oldest first.
    unread: a sentence for each part that the controller has and that could not be read.
    """

    power: Power
    health: Health
    progress: str = ""
    serial: str = ""
    model: str = ""
    bios_version: str = ""
    memory_gib: float | None = None
    memory_health: Health = Health.UNKNOWN
    boot: BootOverride | None = None
    controller_version: str | None = None
    processors: tuple[Processor, ...] | None = None
    macs: tuple[str, ...] | None = None
    trips: tuple[Trip, ...] | None = None
    log: tuple[LogEntry, ...] | None = None
    unread: tuple[str, ...] = ()

    @property
    def runs(self) -> bool:
        """Whether a system runs; whether it is on, if the controller does not tell more."""
        return self.power is Power.ON and self.progress in ("", "OSRunning")

    @property
    def gpus(self) -> tuple[Processor, ...] | None:
        """The GPUs; None if the processors are not known."""
        if self.processors is None:
            return None
        return tuple(each for each in self.processors if each.kind == "GPU")
