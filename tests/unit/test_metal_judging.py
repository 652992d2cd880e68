"""What readings of real machines mean: differences from the inventory, problems, and reasons."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metal import documents
from metal.inventory.comparing import compare, find_same_serials
from metal.inventory.model import Expected, Gpus
from metal.judging import Judgement, fault_of, judge
from metal.reading import LOG_START, Health, LogEntry, Position, Processor, Reading, Trip
from nodepool.contract.health import CAUSES
from nodepool.contract.keys import machine_key
from nodepool.contract.real_machines import Power

EXPECTED = Expected(
    serial="SN1",
    memory_gib=2048,
    gpus=Gpus(count=2, model="H100", firmware_version="96.00"),
    macs=("00:5C:52:31:3A:01",),
    bios_version="2.1",
    controller_version="1.12",
)
GPUS = tuple(
    Processor(f"GPU_{n}", "GPU", "NVIDIA H100 80GB HBM3", Health.OK, "96.00") for n in (1, 2)
)
CPU = Processor("CPU_1", "CPU", "Xeon", Health.OK)
WELL = Reading(
    power=Power.ON,
    health=Health.OK,
    serial="sn1",
    bios_version="2.1",
    controller_version="1.12",
    memory_gib=2048.0,
    memory_health=Health.OK,
    processors=(CPU, *GPUS),
    macs=("00:5c:52:31:3a:01", "00:5c:52:31:3a:02"),
    trips=(),
    log=(),
)
NOTHING = Judgement({}, ())
BAD_MEMORY = "a part of the memory has failed"
FAILED = "the controller says that the machine has failed, and not what of it"


def entry(message: str, severity: Health = Health.CRITICAL) -> LogEntry:
    """An entry of a log."""
    return LogEntry(Position(datetime(2026, 11, 29, tzinfo=UTC)), severity, message)


def test_the_expected_machine_has_no_differences_and_no_problems() -> None:
    assert compare(EXPECTED, WELL) == ()
    assert judge(WELL, EXPECTED) == NOTHING


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (
            {"memory_gib": 1792.5},
            "the machine has 1792.5 GiB of memory, and 2048 are expected",
        ),
        ({"bios_version": "2.0"}, "the BIOS has version 2.0, and 2.1 is expected"),
        (
            {"bios_version": ""},
            "the controller tells no version of the BIOS, and 2.1 is expected",
        ),
        (
            {"controller_version": "1.11"},
            "the firmware of the controller has version 1.11, and 1.12 is expected",
        ),
        (
            {"controller_version": ""},
            "the controller tells no version of its firmware, and 1.12 is expected",
        ),
        (
            {"processors": (GPUS[0], replace(GPUS[1], firmware_version="95.00"))},
            "the firmware of the GPU GPU_2 is 95.00, and 96.00 is expected",
        ),
        (
            {"processors": (GPUS[0], replace(GPUS[1], firmware_version=""))},
            "the firmware of the GPU GPU_2 is of no known version, and 96.00 is expected",
        ),
        ({"memory_gib": None}, "the controller tells no memory, and 2048 GiB are expected"),
        ({"processors": (CPU, GPUS[0])}, "the machine has 1 GPUs, and 2 are expected"),
        (
            {"processors": (GPUS[0], replace(GPUS[1], model="A100"))},
            "the GPU GPU_2 is A100, and H100 is expected",
        ),
        (
            {"processors": (GPUS[0], replace(GPUS[1], model=""))},
            "the GPU GPU_2 is of no known model, and H100 is expected",
        ),
        ({"macs": ()}, "no network interface has the expected MAC address 00:5c:52:31:3a:01"),
    ],
)
def test_a_difference_is_told_in_a_sentence_and_keeps_the_machine_out(
    found: dict[str, object], sentence: str
) -> None:
    reading = replace(WELL, **found)  # type: ignore[arg-type]

    assert compare(EXPECTED, reading) == (sentence,)
    assert judge(reading, EXPECTED).unfit == (sentence,)


def test_a_machine_without_power_is_compared_by_what_its_controller_can_know() -> None:
    off = replace(WELL, power=Power.OFF, memory_gib=0.0, processors=())

    assert compare(EXPECTED, off) == ()
    assert compare(EXPECTED, replace(off, bios_version="")) == ()
    assert compare(EXPECTED, replace(off, bios_version="2.0")) != ()
    assert compare(EXPECTED, replace(off, controller_version="1.11")) != ()


def test_any_version_will_do_if_none_is_given() -> None:
    gpus = Gpus(count=2, model="H100")
    update = {"bios_version": "", "controller_version": "", "gpus": gpus}
    expected = EXPECTED.model_copy(update=update)
    bare = tuple(replace(each, firmware_version="") for each in GPUS)

    assert compare(expected, WELL) == ()
    untold = replace(WELL, bios_version="", controller_version="", processors=(CPU, *bare))
    assert compare(expected, untold) == ()


def test_parts_that_were_not_asked_for_are_not_compared() -> None:
    short = replace(WELL, processors=None, macs=None, controller_version=None)

    assert compare(EXPECTED, short) == ()


def test_machines_with_the_same_serial_number_are_named_to_each_other() -> None:
    keys = [machine_key("zone", name) for name in ("m1", "m2", "m3", "m4")]
    serials = ("SN1", "sn1", "SN3", "")

    found = find_same_serials(
        {key: replace(WELL, serial=serial) for key, serial in zip(keys, serials, strict=True)}
    )

    assert found == {
        keys[0]: "SN1 is the serial number of zone/m2 too",
        keys[1]: "sn1 is the serial number of zone/m1 too",
    }


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("NVRM: Xid (PCI:0000:18:00): 79, pid=1234, GPU has fallen off the bus.", "gpu-lost"),
        ("GPU 3 reported XID 74", "nvlink"),
        ("Xid error 95: uncontained ECC error", "xid"),
        ("Xid 119", "xid"),
        ("Xid 13: graphics engine exception of a program", None),
        ("Fan 3 is slow", None),
        ("Oxidation 79", None),
    ],
)
def test_an_entry_of_the_log_is_the_problem_that_its_xid_stands_for(
    message: str, fault: str | None
) -> None:
    assert fault_of(entry(message)) == fault
    assert fault is None or fault in CAUSES


def test_an_entry_that_says_that_all_is_well_is_no_problem() -> None:
    cleared = entry("Xid 79 has been cleared", Health.OK)

    assert fault_of(cleared) is None


@pytest.mark.parametrize(
    ("found", "unfit"),
    [
        ({"memory_health": Health.CRITICAL}, [BAD_MEMORY]),
        (
            {"trips": (Trip("CPU Temp", 99.0, 95.0),)},
            ["the sensor CPU Temp reads 99 °C, and 95 °C are critical"],
        ),
        (
            {"processors": (replace(CPU, health=Health.CRITICAL), *GPUS)},
            ["the CPU CPU_1 has failed"],
        ),
        (
            {"health": Health.CRITICAL},
            [FAILED],
        ),
        (
            {"health": Health.CRITICAL, "memory_health": Health.CRITICAL},
            [BAD_MEMORY],
        ),
        ({"health": Health.WARNING, "memory_health": Health.WARNING}, []),
        ({"health": Health.UNKNOWN}, []),
    ],
)
def test_a_failed_part_keeps_the_machine_out_and_is_named(
    found: dict[str, object], unfit: list[str]
) -> None:
    judgement = judge(replace(WELL, **found), EXPECTED)  # type: ignore[arg-type]

    assert list(judgement.unfit) == unfit
    assert judgement.faults == {}


def test_a_failed_gpu_and_a_missing_one_are_problems_that_a_technician_cures() -> None:
    failed = replace(GPUS[0], health=Health.CRITICAL)

    broken = judge(replace(WELL, processors=(failed, GPUS[1])), EXPECTED)
    missing = judge(replace(WELL, processors=(GPUS[0],)), EXPECTED)

    assert broken.faults == {"gpu-lost": "its controller says that the GPU GPU_1 has failed"}
    assert broken.unfit == ("the GPU GPU_1 has failed",)
    assert missing.faults == {"gpu-lost": "its controller sees 1 GPUs of 2"}


def test_the_gpus_of_a_machine_that_is_off_are_not_missing() -> None:
    assert judge(replace(WELL, power=Power.OFF, processors=()), EXPECTED) == NOTHING


def test_heat_is_told_with_what_the_sensor_reads() -> None:
    trips = (Trip("Inlet", 51.5, 50.0), Trip("GPU", 90.0), Trip("CPU"))

    assert judge(replace(WELL, trips=trips)).unfit == (
        "the sensor Inlet reads 51.5 °C, and 50 °C are critical",
        "the sensor GPU reads 90 °C",
        "the sensor CPU is too hot",
    )


# Documents of controllers, whatever they hold.

NAMES = st.sampled_from(
    [
        "@odata.id",
        "Actions",
        "Boot",
        "BootSourceOverrideEnabled",
        "Created",
        "Health",
        "Id",
        "MACAddress",
        "Message",
        "PowerState",
        "ReadingCelsius",
        "SerialNumber",
        "Status",
        "Temperatures",
        "UpperThresholdFatal",
    ]
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["On", "OK", "Critical", "2026-11-29T00:00:00Z", "00:5c:52:31:3a:01"])
)
ANYTHING = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner), max_leaves=30
)
DOCUMENTS = st.dictionaries(NAMES, ANYTHING)


@given(DOCUMENTS)
def test_any_document_is_read_as_something(document: documents.Document) -> None:
    documents.power(document)
    documents.boot_override(document)
    documents.processors([document])
    documents.macs([document])
    documents.trips([document])
    documents.log_entries([document], LOG_START, 5)
    documents.error_message(document)
    for name in document:
        shown = documents.text(document, name)
        assert len(shown) <= documents.TEXT_MAX
        assert not shown or shown.isprintable()
        documents.health(document, name)
        documents.number(document, name)


@given(st.text() | st.sampled_from(["//evil.example/", "https://evil.example/", "/a b", "/ok"]))
def test_a_link_leads_to_the_same_server_or_nowhere(path: str) -> None:
    found = documents.link({"@odata.id": path})

    assert not found or (found.startswith("/") and not found.startswith("//"))


def test_entries_of_the_same_second_are_all_kept_in_their_order() -> None:
    created = "2026-11-29T12:00:00+00:00"
    listed = [
        {"Id": name, "Created": created, "Message": name}
        for name in ("1700_10", "1700_9", "1700", "last")
    ]

    entries = documents.log_entries(listed, LOG_START, 10)

    assert [each.message for each in entries] == ["last", "1700_9", "1700_10", "1700"]
    above = documents.log_entries(listed, entries[1].position, 10)
    assert above == entries[2:]
    assert documents.log_entries(listed, LOG_START, 1) == entries[3:]


@pytest.mark.parametrize("created", ["", "yesterday", "0001-01-01T00:00:00+14:00", "2026-13-01"])
def test_an_entry_without_a_moment_comes_first(created: str) -> None:
    entries = documents.log_entries([{"Id": "7", "Created": created}], LOG_START, 10)

    assert [each.position for each in entries] == [Position(LOG_START.moment, 7, "7")]


def test_a_list_that_is_too_long_is_looked_at_up_to_its_bound() -> None:
    critical = {"Name": "inlet", "Status": {"Health": "Critical"}}
    endless = {
        "Temperatures": [critical] * 60_000,
        "error": {"@Message.ExtendedInfo": [*[{}] * 60_000, {"Message": "no"}]},
    }

    assert len(documents.trips([endless])) == documents.PARTS_MAX
    assert documents.error_message(endless) == ""
