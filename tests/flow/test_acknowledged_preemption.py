"""Acknowledging a preemption: the drain begins at once, and the Node goes when it is drained."""

import pytest

from support.harness import Harness
from support.services import NAMES
from support.world_harness import WorldHarness

DRAINED_AT_ONCE = [
    "0:30 PreemptionInProgress n1",
    "0:30 CWDrainNode n1",
    "0:40 CWNodeDeleted n1",
    "0:40 DeletedForPreemption n1",
]


def given_preempted(world: Harness, **pod: object) -> None:
    """A spot Node with a Pod, whose preemption has begun; recording starts."""
    world.given_data_center(machines=1)
    world.apply("cheap", 1, computeClass="spot")
    world.run_pod("n1", "job", **pod)
    world.start_recording()
    world.preempt("cheap", "n1")


def test_the_drain_begins_at_once_and_the_node_goes_when_drained(world: WorldHarness) -> None:
    given_preempted(world, graceS=10)
    world.pass_time(seconds=30)

    command = world.acknowledge("cheap", "n1")
    world.pass_time(minutes=8)

    assert world.outcomes(command) == ["done"]
    assert world.timed_events("cheap")[1:5] == DRAINED_AT_ONCE


def test_a_node_that_is_empty_goes_at_once(harness: Harness) -> None:
    given_preempted(harness)
    harness.stop_pod("n1")

    harness.acknowledge("cheap", "n1")

    # then the NodePool takes the machine again, whichever service hears of the deletion first
    events = harness.events("cheap")[:6]
    assert events[:4] == [
        "PreemptionPending n1",
        "PreemptionInProgress n1",
        "CWDrainNode n1",
        "CWNodeDeleted n1",
    ]
    assert sorted(events[4:]) == ["CWNodeAssigned n1", "DeletedForPreemption n1"]


def test_the_label_names_the_moment_at_which_the_drain_began(world: WorldHarness) -> None:
    given_preempted(world, graceS=60)
    world.pass_time(seconds=30)

    world.acknowledge("cheap", "n1")

    labels = world.node("n1")["metadata"]["labels"]
    moment = int(world.recording_since.timestamp()) + 30
    assert labels["qos.coreweave.cloud/evicted-at"] == str(moment)


def test_a_long_grace_period_is_still_cut_at_seven_minutes(world: WorldHarness) -> None:
    given_preempted(world, graceS=3600)
    world.pass_time(seconds=30)

    world.acknowledge("cheap", "n1")
    world.pass_time(minutes=8)

    assert world.timed_events("cheap")[1:5] == [
        "0:30 PreemptionInProgress n1",
        "0:30 CWDrainNode n1",
        "7:00 CWNodeDeleted n1",
        "7:00 DeletedForPreemption n1",
    ]


def test_a_second_acknowledgement_changes_nothing(world: WorldHarness) -> None:
    given_preempted(world, graceS=240)
    world.acknowledge("cheap", "n1")
    before = world.timed_events("cheap")

    again = world.acknowledge("cheap", "n1")

    assert world.outcomes(again) == ["unchanged"]
    assert world.timed_events("cheap") == before


def test_an_acknowledgement_during_the_drain_changes_nothing(world: WorldHarness) -> None:
    given_preempted(world, graceS=240)
    world.pass_time(minutes=3)

    late = world.acknowledge("cheap", "n1")

    assert world.outcomes(late) == ["unchanged"]


def test_a_node_that_is_not_preempted_cannot_be_acknowledged(world: WorldHarness) -> None:
    world.given_data_center(machines=2)
    world.apply("cheap", 1, computeClass="spot")
    world.apply("train", 1)

    commands = [world.acknowledge("cheap", "n1"), world.acknowledge("train", "n2")]

    name = world.machine_name
    assert [world.outcomes(command) for command in commands] == [
        [f"NotFound node: {name('n1')} is no Node of NodePool cheap that is being preempted"],
        [f"NotFound node: {name('n2')} is no Node of NodePool train that is being preempted"],
    ]


def test_a_node_that_has_left_cannot_be_acknowledged(world: WorldHarness) -> None:
    given_preempted(world, graceS=0)
    world.pass_time(minutes=8)

    command = world.acknowledge("cheap", "n1")

    assert world.outcomes(command)[0].startswith("NotFound node:")


def test_a_node_without_a_timetable_has_nothing_to_shorten(world: WorldHarness) -> None:
    # given a Node that leaves with its NodePool, and is preempted
    world.given_data_center(machines=1)
    world.apply("cheap", 1, computeClass="spot")
    world.run_pod("n1", graceS=60)
    world.delete("cheap")
    world.preempt("cheap", "n1")

    command = world.acknowledge("cheap", "n1")

    assert world.outcomes(command) == ["unchanged"]


@pytest.mark.parametrize("name", NAMES)
def test_a_restart_after_it_changes_nothing(world: WorldHarness, name: str) -> None:
    given_preempted(world, graceS=10)
    world.pass_time(seconds=30)
    world.acknowledge("cheap", "n1")

    world.restart(name)
    world.pass_time(minutes=8)

    assert world.timed_events("cheap")[1:5] == DRAINED_AT_ONCE


def test_an_acknowledgement_while_the_service_is_away_counts_when_it_is_back(
    world: WorldHarness,
) -> None:
    given_preempted(world, graceS=10)

    with world.paused("preemption"):
        world.acknowledge("cheap", "n1")
        world.pass_time(seconds=30)
    world.pass_time(seconds=11)

    assert "DeletedForPreemption n1" in world.events("cheap")


def test_a_node_that_gives_way_goes_earlier_when_it_is_acknowledged(world: WorldHarness) -> None:
    world.given_data_center(machines=1)
    world.apply("cheap", 1, computeClass="spot")
    world.run_pod("n1", graceS=5)
    world.start_recording()
    world.apply("train", 1)
    world.pass_time(seconds=20)

    world.acknowledge("cheap", "n1")
    world.pass_time(seconds=10)

    assert "0:25 CWNodeAssigned n1" in world.timed_events("train")
