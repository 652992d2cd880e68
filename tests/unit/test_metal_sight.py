"""What is said of a machine after its readings, complete and short ones."""

import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal

import pytest
from immutables import Map

from metal.declaring import RACK, build_declaration, is_declared, read_declaration
from metal.host.twins import Twins
from metal.inventory.inventory import KnownMachine, Place
from metal.inventory.model import Expected, Gpus, Reference
from metal.machine import Machine, Request, Seen
from metal.observing import observe
from metal.reading import Health, LogEntry, Position, Processor, Reading
from metal.sight import NO_FAULTS, Sight, build_report, has_moved, is_news, recall_faults, see
from nodepool.contract.events import ControllerReported, PowerAnswered
from nodepool.contract.grammar import TEXT_LIMIT
from nodepool.contract.health import NodeFault
from nodepool.contract.keys import machine_key
from nodepool.contract.real_machines import SENTENCES_MAX, Power
from support.constants import H100, ZONE

PLACE = Place("https://10.0.0.1", Reference(file="/bmc"), fingerprint="ab" * 32)
KNOWN = KnownMachine(
    ZONE, "m1", H100, "r1", 3, PLACE, Expected(serial="SN1", memory_gib=64, gpus=Gpus(count=1))
)
ON = Reading(
    Power.ON,
    Health.OK,
    serial="SN1",
    memory_gib=64,
    processors=(Processor("GPU_1", "GPU", "H100", Health.OK),),
    log=(),
)
SHORT = replace(ON, processors=None, log=None)
OFF = replace(ON, power=Power.OFF)
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def entry(number: int, message: str = "Xid (PCI:0000:18:00): 79") -> LogEntry:
    """An entry of the log of a controller."""
    return LogEntry(Position(MOMENT, number, str(number)), Health.CRITICAL, message)


def report(sight: Sight, twin: str = "", *, was_running: bool = False) -> ControllerReported:
    """What is said after readings."""
    return build_report(
        KNOWN, sight, digest="d", settled=2, check=1, twin=twin, was_running=was_running
    )


def wholly(
    sight: Sight | None, reading: Reading, recalled: Map[NodeFault, str] = NO_FAULTS
) -> Sight:
    """What is known after a reading of all parts."""
    return see(sight, reading, recalled, is_complete=True)


def briefly(sight: Sight, reading: Reading) -> Sight:
    """What is known after a reading without the parts."""
    return see(sight, reading, is_complete=False)


def test_a_short_reading_keeps_what_the_last_complete_one_has_shown() -> None:
    lost = replace(ON, processors=())

    sight = briefly(wholly(None, lost), SHORT)

    assert report(sight).faults == {"gpu-lost": "its controller sees 0 GPUs of 1"}


@pytest.mark.parametrize("unread", [(), ("its log could not be read",)])
def test_a_complete_reading_counts_without_a_log_too(unread: tuple[str, ...]) -> None:
    healthy = wholly(None, replace(ON, log=None))

    sight = wholly(healthy, replace(ON, log=None, processors=(), unread=unread))

    assert report(sight).faults == {"gpu-lost": "its controller sees 0 GPUs of 1"}
    assert sight.reading.unread == unread


def test_a_short_reading_of_a_machine_that_has_moved_keeps_nothing() -> None:
    sight = briefly(
        wholly(None, replace(ON, processors=())), replace(SHORT, progress="OSBootStarted")
    )

    assert has_moved(wholly(None, ON), replace(SHORT, progress="OSBootStarted"))
    assert sight.reading.processors is None


def test_a_machine_that_boots_is_not_compared_until_its_system_runs() -> None:
    bare = replace(ON, memory_gib=None, processors=())

    booting = report(wholly(None, replace(bare, progress="MemoryInitializationStarted")))
    runs = report(wholly(None, replace(bare, progress="OSRunning")))

    assert (booting.runs, booting.unfit, booting.faults) == (False, (), {})
    assert (runs.runs, len(runs.unfit), [*runs.faults]) == (True, 2, ["gpu-lost"])


def test_entries_of_the_log_count_from_the_first_reading_on_and_until_the_power_is_off() -> None:
    begun = wholly(None, replace(ON, log=(entry(1),)))
    shown = wholly(begun, replace(ON, log=(entry(2),)))
    later = wholly(briefly(shown, SHORT), replace(ON, log=()))
    off = wholly(later, replace(OFF, log=(entry(3),)))
    again = wholly(off, replace(ON, log=()))

    assert report(begun).faults == {}
    assert "79" in report(shown).faults["gpu-lost"]
    assert report(later).faults == report(shown).faults
    assert (off.above, report(again).faults) == (entry(3).position, {})


def test_a_process_that_takes_over_knows_what_entries_of_the_log_have_shown() -> None:
    evidence = "the log of its controller says: Xid 79"
    faults = NO_FAULTS.set("gpu-lost", evidence).set("nvlink", "its controller sees it")
    machine = Machine(seen=Seen(0, 0, Power.ON, True, "", (), faults))

    sight = wholly(None, ON, recall_faults(machine))

    assert report(sight).faults == {"gpu-lost": evidence}


@pytest.mark.parametrize("reading", [ON, OFF], ids=["on", "off"])
def test_a_machine_that_does_not_show_its_own_serial_number_is_a_stranger(reading: Reading) -> None:
    same = report(wholly(None, replace(reading, serial="sn1")))
    other = report(wholly(None, replace(reading, serial="SN9")))
    none = report(wholly(None, replace(reading, serial="")))
    twin = report(wholly(None, reading), twin="SN1 is the serial number of another too")

    assert (same.stranger, same.unfit) == ("", ())
    assert other.stranger == "the serial number is SN9, and SN1 is expected"
    assert none.stranger == "its controller shows no serial number, and SN1 is expected"
    assert (other.unfit, none.unfit) == ((), ())
    assert twin.stranger == "SN1 is the serial number of another too"


def test_only_the_machine_that_is_declared_is_said_to_run_and_to_have_problems() -> None:
    lost = replace(ON, processors=())

    other = report(wholly(None, replace(lost, serial="SN9")))
    nameless = report(wholly(None, replace(lost, serial="")))
    twin = report(wholly(None, lost), twin="SN1 is the serial number of another too")

    assert (other.power, other.runs, other.faults) == (Power.ON, False, {})
    assert (nameless.power, nameless.runs, nameless.faults) == (Power.ON, False, {})
    # A Node goes on while another machine shows the serial number of its machine.
    assert (twin.runs, [*twin.faults]) == (True, ["gpu-lost"])


def test_a_machine_that_ran_runs_on_while_its_controller_shows_no_serial_number() -> None:
    nameless = replace(ON, serial="")

    restarting = report(wholly(None, nameless), was_running=True)
    off = report(wholly(None, replace(OFF, serial="")), was_running=True)
    other = report(wholly(None, replace(ON, serial="SN9")), was_running=True)

    assert (restarting.runs, restarting.stranger) == (
        True,
        "its controller shows no serial number, and SN1 is expected",
    )
    assert (off.runs, other.runs) == (False, False)


def test_reasons_are_bounded() -> None:
    gpus = tuple(Processor(f"G{n}" + "x" * 2_000, "GPU", "", Health.CRITICAL) for n in range(40))

    unfit = report(wholly(None, replace(ON, processors=gpus))).unfit

    assert len(unfit) == SENTENCES_MAX
    assert max(map(len, unfit)) <= TEXT_LIMIT


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (Machine(), True),
        (Machine(seen=Seen(2, 1, Power.ON, True, "", (), Map())), False),
        (Machine(seen=Seen(1, 1, Power.ON, True, "", (), Map())), True),
        (Machine(seen=Seen(2, 0, Power.ON, True, "", (), Map())), True),
        (Machine(seen=Seen(2, 1, Power.OFF, True, "", (), Map())), True),
        (Machine(seen=Seen(2, 1, Power.ON, True, "", (), Map()), silence="gone"), True),
    ],
)
def test_a_reading_is_news_if_the_log_has_another_one(machine: Machine, expected: bool) -> None:
    assert is_news(machine, report(wholly(None, ON))) is expected


def test_a_request_is_settled_once_it_is_answered_or_overdue() -> None:
    open_, answered = Request(3, "on", MOMENT), Request(3, "on", MOMENT, is_answered=True)

    settled = [Machine(number=3, request=each).settled for each in (open_, answered, None)]

    assert settled == [2, 3, 3]


@pytest.mark.parametrize(
    ("outcome", "settled", "is_open"),
    [("done", 3, True), ("unknown", 3, True), ("refused", 3, False)],
)
def test_each_answer_settles_a_request_and_only_a_refusal_ends_it(
    outcome: Literal["done", "refused", "unknown"], settled: int, is_open: bool
) -> None:
    machine = Machine(number=3, request=Request(3, "on", MOMENT))
    answer = PowerAnswered(zone=ZONE, machine="m1", number=3, outcome=outcome)

    after = observe(machine, answer, MOMENT, has_agent=False)

    assert (after.settled, after.request is not None) == (settled, is_open)


def test_the_answer_to_an_earlier_request_settles_nothing() -> None:
    machine = Machine(number=3, request=Request(3, "on", MOMENT))
    answer = PowerAnswered(zone=ZONE, machine="m1", number=2, outcome="done")

    assert observe(machine, answer, MOMENT, has_agent=False).settled == 2


def test_a_machine_is_declared_again_only_if_its_declaration_changes() -> None:
    event = build_declaration(KNOWN)
    declared = read_declaration(event)

    assert event.labels[RACK] == "r1"
    assert is_declared(declared, event)
    assert not is_declared(None, event)
    for other in (
        replace(KNOWN, wipes=False),
        replace(KNOWN, wipe_minutes=30),
        replace(KNOWN, rack="r2"),
        replace(KNOWN, place=replace(PLACE, system="2")),
        replace(KNOWN, place=replace(PLACE, credentials=Reference(file="/other"))),
        replace(KNOWN, expected=Expected(serial="SN2", memory_gib=64)),
        replace(KNOWN, expected=KNOWN.expected.model_copy(update={"bios_version": "2.1"})),
    ):
        assert not is_declared(declared, build_declaration(other))


def test_a_controller_that_shows_another_serial_number_each_time_takes_no_more_memory() -> None:
    twins, others = Twins(), Twins()
    key, other = machine_key(ZONE, "m1"), machine_key(ZONE, "m2")
    others.note(key, ON)
    tracemalloc.start()
    try:
        for number in range(2_000):
            twins.note(key, replace(ON, serial=f"SN{number}"))
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 50_000

    # Twins are still known, and forgotten.
    assert {*others.note(other, ON)} == {key}
    assert others.find(key)
    assert {*others.note(other, replace(ON, serial="SN2"))} == {key}
    assert not others.find(key)


def test_a_twin_of_an_earlier_process_counts_until_it_was_read_again_or_is_not_declared() -> None:
    # given a machine that the log has as kept out, because another one shows its serial number
    key, other = machine_key(ZONE, "m1"), machine_key(ZONE, "m2")
    before = Twins()
    before.note(key, ON)
    before.note(other, ON)
    recalled = before.find(key)

    # when a new process has read this machine only
    twins = Twins()
    twins.note(key, ON)

    # then the other machine is its twin until it shows another serial number, or has left
    assert twins.find(key, recalled, {key, other}) == recalled
    assert not twins.find(key, recalled, {key})
    assert not twins.find(key, "the serial number is SN2, and SN1 is expected", {key, other})
    twins.note(other, replace(ON, serial="SN2"))
    assert not twins.find(key, recalled, {key, other})


def test_a_twin_of_an_earlier_serial_number_does_not_count() -> None:
    key, other = machine_key(ZONE, "m1"), machine_key(ZONE, "m2")
    before, twins = Twins(), Twins()
    before.note(key, ON)
    before.note(other, ON)
    recalled = before.find(key)

    twins.note(key, replace(ON, serial="SN2"))

    assert not twins.find(key, recalled, {key, other})
