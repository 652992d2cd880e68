"""What a reading means: problems of the Node, and reasons to keep its machine out of production.

What an Xid stands for is published at https://docs.nvidia.com/deploy/xid-errors/.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from metal.inventory.comparing import compare
from metal.inventory.model import Expected
from metal.reading import Health, LogEntry, Reading, Trip
from nodepool.contract.health import NodeFault
from nodepool.contract.real_machines import Power


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a reading means.

    faults: each problem of the machine as a Node, with its evidence; without those in its log.
    unfit: why the machine must not be in production, each as one sentence; empty if it may be.
    """

    faults: Mapping[NodeFault, str]
    unfit: tuple[str, ...]


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
    return Judgement(faults, (*differences, *_failures(reading)))


def _faults(reading: Reading, expected: Expected | None) -> Iterator[tuple[NodeFault, str]]:
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


def _failures(reading: Reading) -> Sequence[str]:
    found = [
        f"the {each.kind} {each.name} has failed"
        for each in reading.processors or ()
        if each.health is Health.CRITICAL
    ]
    if reading.memory_health is Health.CRITICAL:
        found.append("a part of the memory has failed")
    found += [_heat(each) for each in reading.trips or ()]
    if not found and reading.health is Health.CRITICAL:
        found.append("the controller says that the machine has failed, and not what of it")
    return found


def _heat(trip: Trip) -> str:
    if trip.celsius is None:
        return f"the sensor {trip.sensor} is too hot"
    limit = "" if trip.limit is None else f", and {trip.limit:g} °C are critical"
    return f"the sensor {trip.sensor} reads {trip.celsius:g} °C{limit}"
