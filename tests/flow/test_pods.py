"""Pods make Nodes active, and end in their own time when a Node is drained."""

from support.constants import OWN_TAINT, PREFER_IDLE
from support.harness import Harness
from support.world_harness import WorldHarness

GPU = {"key": "is_gpu", "value": "true", "effect": "PreferNoSchedule"}


def test_a_pod_makes_its_node_active_until_it_ends(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)

    harness.run_pod("n1", "job-1")
    harness.run_pod("n1", "job-0")
    active = harness.node_conditions("n1")["CWActive"]
    harness.stop_pod("n1", "job-1")
    harness.stop_pod("n1", "job-0")

    assert active == "True WorkloadsRunning"
    assert harness.node_conditions("n1")["CWActive"] == "False NoWorkloads"


def test_pods_of_daemon_sets_and_verification_leave_a_node_idle(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    harness.run_pod("n1", "agent", daemonSet=True)
    harness.run_pod("n1", "check", verification=True)

    harness.scale("train", 0)

    assert harness.nodes() == []


def test_a_pod_does_not_start_on_a_cordoned_node_or_outside_a_cluster(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1, lifecycle=PREFER_IDLE)
    harness.run_pod("n1")
    harness.scale("train", 0)

    commands = [
        harness.send("RunPod", harness.machine_path(node), {"pod": {"name": "late"}})
        for node in ("n1", "n2", "g000000")
    ]

    assert [harness.outcomes(command) for command in commands] == [
        ["Invalid machine: is cordoned"],
        ["Invalid machine: is not a Node of any cluster"],
        ["Invalid machine: US-EAST-04A/g000000 is not a known machine"],
    ]


def test_a_drain_waits_longest_for_a_blocking_pod(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1, lifecycle=PREFER_IDLE)
    world.run_pod("n1", "quick", interruption="interruptable", graceS=600)
    world.run_pod("n1", "graceful", interruption="graceful", graceS=90)
    world.run_pod("n1", "blocking", graceS=5)
    world.start_recording()

    world.scale("train", 0)
    world.pass_time(minutes=5)
    blocked = world.timed_events("train")
    world.stop_pod("n1", "blocking")

    assert blocked == [
        "0:00 CWNodePoolRemoveNodes 1",
        "0:00 CWNodeDeletionRequestSuccess n1",
        "0:00 CWDrainNode n1",
    ]
    assert world.timed_events("train")[3:] == [
        "5:00 CWNodeDeleted n1",
        "5:00 CWNodePoolNodesRemoved 1 0",
        "5:00 CWNodePoolScaledDown 1 0",
    ]


def test_a_drain_waits_for_a_graceful_pod_up_to_its_grace_period(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1, lifecycle=PREFER_IDLE)
    world.run_pod("n1", interruption="graceful", graceS=90)
    world.start_recording()

    world.scale("train", 0)
    world.pass_time(minutes=2)

    assert world.timed_events("train")[2:4] == ["0:00 CWDrainNode n1", "1:30 CWNodeDeleted n1"]


def test_grace_periods_count_from_a_drain_that_lifecycle_begins_late(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1, lifecycle=PREFER_IDLE)
    world.run_pod("n1", "first", graceS=7200)
    world.run_pod("n1", "second", graceS=7200)
    world.scale("train", 0)
    world.start_recording()

    with world.paused("lifecycle"):
        world.delete("train")
        world.pass_time(minutes=10)
        world.stop_pod("n1", "first")
        world.pass_time(minutes=140)
    world.pass_time(minutes=130)

    assert world.timed_events("train")[-4:] == [
        "0:00 CWDrainNode n1",
        "270:00 CWNodeDeleted n1",
        "270:00 CWNodePoolNodesRemoved 1 0",
        "270:00 CWNodePoolDeleted",
    ]


def test_a_drain_ends_when_a_graceful_pod_ends_early(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1, lifecycle=PREFER_IDLE)
    world.run_pod("n1", interruption="graceful", graceS=90)
    world.start_recording()

    world.scale("train", 0)
    world.pass_time(seconds=10)
    world.stop_pod("n1")

    assert world.timed_events("train")[2:4] == ["0:00 CWDrainNode n1", "0:10 CWNodeDeleted n1"]


def test_an_interruptable_pod_does_not_delay_a_drain(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1, lifecycle=PREFER_IDLE)
    harness.run_pod("n1", interruption="interruptable", graceS=600)

    harness.scale("train", 0)

    assert harness.nodes() == []


def test_a_node_whose_removal_is_cancelled_may_run_pods_again(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1, lifecycle=PREFER_IDLE)
    harness.run_pod("n1")
    harness.scale("train", 0)

    harness.scale("train", 1)
    harness.run_pod("n1", "next")

    assert harness.node_conditions("n1") == {
        "CWRegistered": "True Registered",
        "CWActive": "True WorkloadsRunning",
        "CWNodeRemoval": "False NotPending",
    }
    assert harness.node("n1")["spec"] == {"taints": [GPU, OWN_TAINT]}


def test_a_new_pod_cannot_be_terminating_already(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1)
    world.run_pod("n1", terminating=True, graceS=60)

    world.delete("train")
    world.pass_time(minutes=2)

    assert world.node_pool("train") is None
