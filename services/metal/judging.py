"""What a reading means: problems of the Node, and reasons to keep its machine out of production.

What an Xid stands for is published at https://docs.nvidia.com/deploy/xid-errors/.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from metal.inventory.comparing import compare
from metal.inventory.model import Expected
from metal.reading import Health, LogEntry, Reading, Trip
from nodepool.contract.health import NodeFault
from nodepool.contract.real_machines import Power


class Reason(StrEnum):
    """Why a machine must not be in production, in one word.

    MISMATCH: it is not the machine that the inventory expects.
    GPU, PROCESSOR, MEMORY: a part of it has failed.
    TEMPERATURE: a sensor is as hot as it must not be.
    HEALTH: its controller says that something has failed, and does not say what.
    """

    MISMATCH = "Mismatch"
    GPU = "Gpu"
    PROCESSOR = "Processor"
    MEMORY = "Memory"
    TEMPERATURE = "Temperature"
    HEALTH = "Health"


@dataclass(frozen=True, slots=True)
class Unfit:
    """One reason to keep a machine out of production, with a sentence that names the evidence."""

    reason: Reason
    sentence: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a reading means.

    faults: each problem of the machine as a Node, with its evidence. A problem that an entry of the
        log reports is in the reading that has the entry, and in no later one.
    unfit: why the machine must not be in production; empty if it may be.
    """

    faults: Mapping[NodeFault, str]
    unfit: tuple[Unfit, ...]


LOG_EVIDENCE: Final = "the log of its controller says:"
"""The beginning of the evidence, if an entry of the log shows a problem."""
NVLINK_XID: Final = 74
LOST_XID: Final = 79
OTHER_XIDS: Final = frozenset({48, 64, 94, 95, 119, 120, 140})
"""Errors of memory and firmware of a GPU that a reset of the GPU cures."""
_XID: Final = re.compile(
    r"\bxid\b(?:\s*\([^)]{0,40}\))?[^0-9(]{0,40}([0-9]{1,3})\b", re.ASCII | re.IGNORECASE
)
"""Matches as the driver writes it, `Xid (PCI:0000:18:00): 79`, and as people do."""


def judge(reading: Reading, expected: Expected | None = None) -> Judgement:
    """Return what a reading means for a machine, which is compared if its hardware is given.

    A machine that is on and has not yet booted may seem to lack its GPUs, so the judgement counts
    once it has.
    """
    faults: dict[NodeFault, str] = {}
    for fault, evidence in _faults(reading, expected):
        faults.setdefault(fault, evidence)
    differences = compare(expected, reading) if expected else ()
    mismatches = tuple(Unfit(Reason.MISMATCH, each) for each in differences)
    return Judgement(faults, (*mismatches, *_failures(reading)))


def _faults(reading: Reading, expected: Expected | None) -> Iterator[tuple[NodeFault, str]]:
    for entry in reading.log or ():
        if fault := fault_of(entry):
            yield fault, f"{LOG_EVIDENCE} {entry.message}"
    gpus = reading.gpus
    if gpus is None or reading.power is not Power.ON:
        return
    for gpu in gpus:
        if gpu.health is Health.CRITICAL:
            yield "gpu-lost", f"its controller says that the GPU {gpu.name} has failed"
    wanted = expected.gpus.count if expected and expected.gpus else 0
    if len(gpus) < wanted:
        yield "gpu-lost", f"its controller sees {len(gpus)} GPUs of {wanted}"


def fault_of(entry: LogEntry) -> NodeFault | None:
    """Return the problem that an entry of a log reports; None if it reports none."""
    found = _XID.search(entry.message)
    if found is None or entry.severity is Health.OK:
        return None
    xid = int(found[1])
    if xid == NVLINK_XID:
        return "nvlink"
    if xid == LOST_XID:
        return "gpu-lost"
    return "xid" if xid in OTHER_XIDS else None


def _failures(reading: Reading) -> Sequence[Unfit]:
    found = [
        Unfit(
            Reason.GPU if each.kind == "GPU" else Reason.PROCESSOR,
            f"the {each.kind} {each.name} has failed",
        )
        for each in reading.processors or ()
        if each.health is Health.CRITICAL
    ]
    if reading.memory_health is Health.CRITICAL:
        found.append(Unfit(Reason.MEMORY, "a part of the memory has failed"))
    found += [Unfit(Reason.TEMPERATURE, _heat(each)) for each in reading.trips or ()]
    if not found and reading.health is Health.CRITICAL:
        sentence = "the controller says that the machine has failed, and not what of it"
        found.append(Unfit(Reason.HEALTH, sentence))
    return found


def _heat(trip: Trip) -> str:
    if trip.celsius is None:
        return f"the sensor {trip.sensor} is too hot"
    limit = "" if trip.limit is None else f", and {trip.limit:g} °C are critical"
    return f"the sensor {trip.sensor} reads {trip.celsius:g} °C{limit}"
