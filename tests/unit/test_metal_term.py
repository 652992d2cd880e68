"""When the driver of real machines reads a machine completely again, and what that counts for."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from metal.host.term import Polled
from metal.inventory.inventory import KnownMachine, Place
from metal.inventory.model import Expected, Gpus, Reference
from metal.machine import Check, Declared, Machine, Stay
from metal.nodes import verify
from metal.observing import observe
from metal.reading import Health, Reading
from metal.sight import Sight, build_report
from nodepool.contract.events import MachineCheckRequested, NodeVerified
from nodepool.contract.keys import machine_key, pool_key
from nodepool.contract.real_machines import Power, Purpose
from support.constants import CLUSTER, H100, ORG, ZONE

KEY = machine_key(ZONE, "m1")
DUE = datetime(2026, 1, 1, tzinfo=UTC)
SOON = DUE - timedelta(seconds=1)
KNOWN = KnownMachine(
    ZONE,
    "m1",
    H100,
    "r1",
    3,
    Place("https://10.0.0.1", Reference(file="/bmc")),
    Expected(serial="SN1", memory_gib=64, gpus=Gpus(count=0)),
)
WHOLE = Reading(Power.ON, Health.OK, serial="SN1", memory_gib=64, processors=(), log=())
UNREAD = replace(WHOLE, processors=None, unread=("GET /Processors was answered with 500",))


def a_machine_to_check(purpose: Purpose = "verify") -> Machine:
    """A machine whose second check waits for its reading; it is a Node if that is verified."""
    stay = Stay(1, pool_key(ORG, CLUSTER, "train"), DUE, joined=True, verification="checked")
    return Machine(
        declared=Declared(H100, {}, wipes=False, wipe_minutes=60, digest="d"),
        added_type=H100,
        stay=stay if purpose == "verify" else None,
        checks=2,
        check=Check(2, purpose, DUE),
    )


def read(polled: Polled, machine: Machine, reading: Reading, now: datetime) -> Machine:
    """The machine after a complete reading that began when its last check was known."""
    polled.note_check(machine, machine.checks, now, is_whole=not reading.unread)
    report = build_report(
        KNOWN,
        Sight(reading),
        digest="d",
        settled=0,
        check=polled.check,
        is_unreadable=polled.is_unreadable,
    )
    return observe(machine, report, now, has_agent=False)


def verified(machine: Machine, now: datetime) -> list[NodeVerified | MachineCheckRequested]:
    """What is said of the verification of a machine."""
    assert machine.stay is not None
    return [*verify(KEY, machine, machine.stay, now)]


def result(cause: str) -> NodeVerified:
    """The end of a verification, which has passed without a cause."""
    passed = not cause
    return NodeVerified(zone=ZONE, machine="m1", assignment=1, boot=0, passed=passed, cause=cause)


def test_a_machine_is_verified_by_a_reading_of_all_its_parts() -> None:
    machine = read(Polled(), a_machine_to_check(), WHOLE, SOON)

    assert verified(machine, SOON) == [result("")]


def test_a_machine_of_which_a_part_cannot_be_read_is_not_said_to_be_verified() -> None:
    # given a check that may still wait, and a part that cannot be read
    polled = Polled()
    machine = read(polled, a_machine_to_check(), UNREAD, SOON)
    assert verified(machine, SOON) == []

    # when the check is due
    machine = read(polled, machine, UNREAD, DUE)

    # then the Node has not passed, and the part is named
    assert verified(machine, DUE) == [result("GET /Processors was answered with 500")]


def test_a_part_that_can_be_read_after_all_is_no_reason_against_a_machine() -> None:
    # given a machine whose check was due before a part could be read
    polled = Polled()
    machine = read(polled, a_machine_to_check("return"), UNREAD, DUE)
    assert machine.seen is not None
    assert machine.seen.unfit == UNREAD.unread

    # when it can be read
    machine = read(polled, machine, WHOLE, DUE)

    # then nothing is wrong with the machine
    assert machine.seen is not None
    assert machine.seen.unfit == ()


@pytest.mark.parametrize("purpose", ["verify", "return"])
def test_a_part_that_cannot_be_read_is_a_reason_until_it_was_read(purpose: Purpose) -> None:
    polled = Polled()

    machine = read(polled, a_machine_to_check(purpose), UNREAD, DUE)
    machine = read(polled, replace(machine, check=None), UNREAD, DUE)

    assert machine.seen is not None
    assert machine.seen.unfit == UNREAD.unread


def test_a_look_at_a_machine_ends_in_time_and_says_nothing_against_it() -> None:
    polled = Polled()
    machine = read(polled, a_machine_to_check("look"), UNREAD, SOON)
    assert machine.check is not None

    machine = read(polled, machine, UNREAD, DUE)

    assert machine.check is None
    assert machine.seen is not None
    assert machine.seen.unfit == ()


def test_a_reading_that_began_before_a_check_does_not_count_for_it() -> None:
    polled, machine = Polled(), a_machine_to_check()

    polled.note_check(machine, 1, SOON, is_whole=True)

    assert polled.check == 1


def test_a_reading_without_a_part_takes_back_no_check_that_an_earlier_process_has_read() -> None:
    machine = read(Polled(), replace(a_machine_to_check("return"), checks=1), WHOLE, SOON)
    assert machine.seen is not None
    assert machine.seen.check == 1

    machine = read(Polled(), replace(machine, checks=2), UNREAD, SOON)

    assert machine.seen is not None
    assert machine.seen.check == 1


def test_machines_that_were_first_read_together_are_not_read_completely_together_again() -> None:
    one, other = Polled(), Polled()

    one.note_complete(1_000.0, age_s=20.0)
    other.note_complete(1_000.0, age_s=290.0)

    assert (one.complete_at, other.complete_at) == (980.0, 710.0)


def test_each_later_complete_reading_counts_from_its_moment() -> None:
    polled = Polled()
    polled.note_complete(1_000.0, age_s=290.0)

    polled.note_complete(1_010.0, age_s=20.0)

    assert polled.complete_at == 1_010.0


def test_the_first_reading_of_another_controller_counts_as_a_first_one() -> None:
    polled = Polled()
    polled.note_complete(1_000.0, age_s=0.0)
    polled.forget()

    polled.note_complete(1_100.0, age_s=150.0)

    assert polled.complete_at == 950.0
