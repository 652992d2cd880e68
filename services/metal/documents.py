"""Values of a reading from the documents of a controller, whatever these hold.

The fields are those of the schemas ComputerSystem, Processor, EthernetInterface, Thermal, Manager
and LogEntry of https://redfish.dmtf.org/schemas/v1/. A controller may send anything, so each
function here takes any document: what is missing, of another type or too long is left out.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from metal.reading import LOG_START, BootOverride, Health, LogEntry, Position, Processor, Trip
from nodepool.contract.real_machines import Power

Document = Mapping[str, object]
"""An object as decoded from JSON."""
TEXT_MAX: Final = 256
"""The length at which a text of a controller is cut."""
PATH_MAX: Final = 1_024
URI_MAX: Final = 4_096
PARTS_MAX: Final = 8_192
"""More parts than any reading accepts, so that a list that was cut is known to be too long."""
_PATH: Final = re.compile(r"/(?!/)[!-~]*", re.ASCII)
_NUMBERS: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_MAC: Final = re.compile(r"[0-9A-F]{2}(?:[:-]?[0-9A-F]{2}){5}", re.ASCII | re.IGNORECASE)
_FROM_UNKNOWN_TO_WORST: Final = (Health.UNKNOWN, Health.OK, Health.WARNING, Health.CRITICAL)
_HEALTHS: Final = {each.value: each for each in Health}
_POWERS: Final = {each.value: each for each in Power}
_UNSET: Final = frozenset({"", "None", "null"})


def at(document: object, *path: str) -> object:
    """Return the value at a path of fields; None if there is none."""
    for name in path:
        if not isinstance(document, Mapping):
            return None
        document = document.get(name)
    return document


def part(document: object, *path: str) -> Document:
    """Return the object at a path; an empty object if there is anything else."""
    value = at(document, *path)
    return value if isinstance(value, Mapping) else {}


def parts(document: object, *path: str) -> Sequence[Document]:
    """Return the objects in the list at a path, of its first `PARTS_MAX`.

    An answer has room for a million objects; looking at each would delay all machines by seconds.
    """
    value = at(document, *path)
    listed = value[:PARTS_MAX] if isinstance(value, list) else []
    return [each for each in listed if isinstance(each, Mapping)]


def text(document: object, *path: str, most: int = TEXT_MAX) -> str:
    """Return the text at a path as one line of at most `most` characters; empty if none."""
    value = at(document, *path)
    if not isinstance(value, str):
        return ""
    kept = "".join(char if char.isprintable() else " " for char in value[: 4 * most])
    return " ".join(kept.split())[:most]


def number(document: object, *path: str) -> float | None:
    """Return the finite number at a path; None if there is none."""
    value = at(document, *path)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def link(document: object, *path: str) -> str:
    """Return the path that a reference leads to; empty if it leads to another server, or nowhere.

    A request to another server would hand it the credential.
    """
    value = at(document, *path, "@odata.id")
    if not isinstance(value, str) or len(value) > PATH_MAX or not _PATH.fullmatch(value):
        return ""
    return value


def health(document: object, *path: str) -> Health:
    """Return the health in the `Status` at a path: the worst of what it says."""
    status = part(document, *path, "Status")
    told = (text(status, name) for name in ("Health", "HealthRollup", "HealthRollUp"))
    found = [_as_health(value) for value in told]
    return max(found, key=_FROM_UNKNOWN_TO_WORST.index)


def _as_health(value: str) -> Health:
    return _HEALTHS.get(value, Health.UNKNOWN)


def power(system: Document) -> Power:
    """Return the power state of a machine."""
    return _POWERS.get(text(system, "PowerState"), Power.UNKNOWN)


def boot_progress(system: Document) -> str:
    """Return how far the boot of a machine is; empty if the controller does not tell it."""
    state = text(system, "BootProgress", "LastState")
    return "" if state in ("None", "OEM") else state


def boot_override(system: Document) -> BootOverride | None:
    """Return what the next boot is set to; None if the controller has no such setting."""
    boot = part(system, "Boot")
    enabled = text(boot, "BootSourceOverrideEnabled")
    if not enabled:
        return None
    uri = text(boot, "HttpBootUri", most=URI_MAX)
    return BootOverride(
        target=text(boot, "BootSourceOverrideTarget"),
        enabled=enabled,
        mode=text(boot, "BootSourceOverrideMode"),
        uri="" if uri in _UNSET else uri,
    )


def is_present(document: Document) -> bool:
    """Return whether a part is in the machine; an empty slot is a part too, and says `Absent`."""
    return text(document, "Status", "State") != "Absent"


def processors(documents: Iterable[Document]) -> tuple[Processor, ...]:
    """Return the processors and accelerators that are in the machine."""
    return tuple(
        Processor(
            name=text(each, "Id") or text(each, "Name"),
            kind=text(each, "ProcessorType") or "CPU",
            model=text(each, "Model") or text(each, "Name"),
            health=health(each),
            firmware_version=text(each, "FirmwareVersion"),
        )
        for each in documents
        if is_present(each)
    )


def macs(documents: Iterable[Document]) -> tuple[str, ...]:
    """Return the MAC addresses of network interfaces, each once, in order."""
    found = {
        plain
        for each in documents
        for name in ("PermanentMACAddress", "MACAddress")
        if (plain := plain_mac(text(each, name)))
    }
    return tuple(sorted(found))


def plain_mac(value: str) -> str:
    """Return a MAC address as `00:5c:52:31:3a:9c`; empty if it is none."""
    if not _MAC.fullmatch(value):
        return ""
    digits = re.sub("[:-]", "", value).lower()
    return ":".join(digits[start : start + 2] for start in range(0, 12, 2))


def trips(thermals: Iterable[Document]) -> tuple[Trip, ...]:
    """Return the sensors that are at a critical temperature."""
    found = (
        _trip(each)
        for thermal in thermals
        for each in parts(thermal, "Temperatures")
        if text(each, "Status", "State") not in ("Absent", "Disabled")
    )
    return tuple(each for each in found if each is not None)


def _trip(sensor: Document) -> Trip | None:
    celsius = number(sensor, "ReadingCelsius")
    limits = (number(sensor, f"UpperThreshold{name}") for name in ("Critical", "Fatal"))
    limit = min((each for each in limits if each is not None), default=None)
    is_hot = celsius is not None and limit is not None and celsius >= limit
    if not is_hot and health(sensor) is not Health.CRITICAL:
        return None
    return Trip(text(sensor, "Name") or text(sensor, "MemberId"), celsius, limit)


def log_entries(documents: Iterable[Document], above: Position, most: int) -> tuple[LogEntry, ...]:
    """Return the newest entries above a position, at most so many, oldest first."""
    found = (_log_entry(each) for each in documents)
    newer = sorted((each for each in found if each.position > above), key=lambda e: e.position)
    return tuple(newer[-most:]) if most > 0 else ()


def _log_entry(document: Document) -> LogEntry:
    name = text(document, "Id")
    digits = _NUMBERS.findall(name)
    return LogEntry(
        position=Position(
            _moment(text(document, "Created")), int(digits[-1]) if digits else 0, name
        ),
        severity=_as_health(text(document, "Severity")),
        message=text(document, "Message"),
    )


def _moment(value: str) -> datetime:
    """Return the moment of an entry; the earliest one for an entry without a moment."""
    try:
        moment = datetime.fromisoformat(value)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return LOG_START.moment


def error_message(document: object) -> str:
    """Return what a controller says about an error, as one line; empty if it says nothing."""
    told = [text(each, "Message") for each in parts(document, "error", "@Message.ExtendedInfo")]
    return next((each for each in told if each), "") or text(document, "error", "message")
