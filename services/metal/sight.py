"""What all readings of a machine since this process began show together, and the report of that.

A short reading has no parts; the parts of the last complete reading count until the machine changes
its power state or its boot goes on.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from immutables import Map

from metal.inventory.inventory import KnownMachine
from metal.judging import LOG_EVIDENCE, fault_of, judge
from metal.machine import Machine
from metal.reading import LOG_START, LogEntry, Position, Reading
from nodepool.contract.events import ControllerReported
from nodepool.contract.grammar import TEXT_LIMIT
from nodepool.contract.health import NodeFault
from nodepool.contract.real_machines import SENTENCES_MAX, Power

NO_FAULTS: Final[Map[NodeFault, str]] = Map()


@dataclass(frozen=True, slots=True)
class Sight:
    """The last reading of a machine, with the parts of the last complete one.

    above: the newest entry of its log that was read; None before the first log.
    logged: the problems that entries of the log have shown since it was powered on.
    """

    reading: Reading
    above: Position | None = None
    logged: Map[NodeFault, str] = NO_FAULTS


def recall_faults(machine: Machine) -> Map[NodeFault, str]:
    """Return the problems that entries of the log have shown to an earlier process."""
    seen = machine.seen
    faults = seen.faults.items() if seen is not None else ()
    return Map({fault: text for fault, text in faults if text.startswith(LOG_EVIDENCE)})


def has_moved(sight: Sight | None, reading: Reading) -> bool:
    """Return whether power or boot have changed, so that the parts read before do not count."""
    if sight is None:
        return True
    last = sight.reading
    return (last.power, last.progress) != (reading.power, reading.progress)


def see(
    sight: Sight | None,
    reading: Reading,
    recalled: Map[NodeFault, str] = NO_FAULTS,
    *,
    is_complete: bool,
) -> Sight:
    """Return what is known of a machine after a reading.

    is_complete: whether all parts were read. A controller may have no log, or may not show it.
    recalled: the problems that the log has shown to an earlier process. The entries of the first
        reading do not count, because they may be older than the last power-on of the machine.
    """
    known = sight or Sight(reading, logged=recalled)
    if not is_complete and not has_moved(sight, reading):
        last = known.reading
        reading = replace(
            reading,
            controller_version=last.controller_version,
            processors=last.processors,
            macs=last.macs,
            trips=last.trips,
            unread=last.unread,
        )
    entries = reading.log or ()
    newest = max((each.position for each in entries), default=known.above or LOG_START)
    above = newest if reading.log is not None else known.above
    logged = known.logged
    if reading.power is Power.OFF:
        logged = NO_FAULTS
    elif known.above is not None:
        logged = _log_faults(logged, entries)
    return Sight(replace(reading, log=None), above, logged)


def _log_faults(logged: Map[NodeFault, str], entries: tuple[LogEntry, ...]) -> Map[NodeFault, str]:
    for entry in entries:
        fault = fault_of(entry)
        if fault is not None and fault not in logged:
            logged = logged.set(fault, f"{LOG_EVIDENCE} {entry.message}")
    return logged


def find_stranger(known: KnownMachine, reading: Reading) -> str:
    """Return why this is not the declared machine; empty if it is.

    A machine whose controller shows no serial number may be any machine.
    """
    expected = known.expected.serial
    if not reading.serial:
        return f"its controller shows no serial number, and {expected} is expected"
    if reading.serial.casefold() != expected.casefold():
        return f"the serial number is {reading.serial}, and {expected} is expected"
    return ""


def _speaks_for_node(reading: Reading, stranger: str, *, was_running: bool) -> bool:
    """Return whether what a machine shows is said of its Node.

    What a machine with another serial number shows is not. What a machine that ran shows is, even
    if its controller shows no serial number, as some controllers do while they restart.

    stranger: why this is not the declared machine; empty if it is, even if it has a twin.
    """
    return not stranger or (was_running and not reading.serial)


def build_report(  # noqa: PLR0913  # It names what a report is made from.
    known: KnownMachine,
    sight: Sight,
    *,
    digest: str,
    settled: int,
    check: int,
    twin: str = "",
    was_running: bool = False,
    is_unreadable: bool = False,
) -> ControllerReported:
    """Return the report about a machine after its readings.

    A machine that boots may seem to lack memory and GPUs, so these are compared once its system
    runs. A machine that does not speak for its Node is said neither to run nor to have problems.

    twin: why it shares its serial number with another machine; empty if it does not.
    was_running: whether the last report said that the machine ran.
    is_unreadable: whether the parts that could not be read are a reason against the machine.
    """
    reading = sight.reading
    is_booting = reading.power is Power.ON and not reading.runs
    judged = replace(reading, power=Power.UNKNOWN) if is_booting else reading
    judgement, stranger = judge(judged, known.expected), find_stranger(known, reading)
    is_itself = _speaks_for_node(reading, stranger, was_running=was_running)
    unfit = [each[:TEXT_LIMIT] for each in judgement.unfit]
    unfit += [each[:TEXT_LIMIT] for each in reading.unread if is_unreadable]
    faults = {**judgement.faults, **sight.logged} if is_itself else {}
    return ControllerReported(
        zone=known.zone,
        machine=known.name,
        digest=digest,
        settled=settled,
        check=check,
        power=reading.power,
        runs=reading.runs and is_itself,
        stranger=(stranger or twin)[:TEXT_LIMIT],
        unfit=tuple(unfit[:SENTENCES_MAX]),
        faults={fault: text[:TEXT_LIMIT] for fault, text in faults.items()},
    )


def without_secrets(report: ControllerReported, hide: Callable[[str], str]) -> ControllerReported:
    """Return a report without the secrets that a controller shows as numbers or names of parts."""
    return report.model_copy(
        update={
            "stranger": hide(report.stranger)[:TEXT_LIMIT],
            "unfit": tuple(hide(each)[:TEXT_LIMIT] for each in report.unfit),
            "faults": {fault: hide(text)[:TEXT_LIMIT] for fault, text in report.faults.items()},
        }
    )


def is_news(machine: Machine, report: ControllerReported) -> bool:
    """Return whether a report differs from the last one that the log has of a machine."""
    seen = machine.seen
    if seen is None or machine.silence:
        return True
    known = (seen.settled, seen.check, seen.power, seen.runs, seen.stranger, seen.unfit)
    said = (report.settled, report.check, report.power, report.runs, report.stranger, report.unfit)
    return known != said or dict(seen.faults) != dict(report.faults)
