"""Nodes whose machines fall silent while something is awaited of them; each wait has an end."""

from support.constants import PREFER_IDLE
from support.world_harness import WorldHarness

EVICTING = {"disableUnhealthyNodeEviction": False}


def test_a_node_that_falls_silent_while_a_pod_blocks_its_drain_is_replaced(
    world: WorldHarness,
) -> None:
    world.given_data_center()
    world.apply("train", 1, lifecycle=EVICTING)
    world.run_pod("n1")
    world.break_machines("n1", fault="disk")
    world.pass_time(minutes=120)
    world.start_recording()

    world.break_machines("n1", fault="kubelet")
    world.pass_time(minutes=31)

    assert world.timed_events("train") == [
        "0:00 CWNodeCordoned n1",
        "30:01 CWNodePoolNodesRemoveError n1",
        "30:01 CWNodeDeleted n1",
        "30:01 CWNodeAssigned n2",
        "30:01 CWNodeRegistered n2",
    ]


def test_a_node_that_falls_silent_while_a_pod_blocks_its_scale_down_is_given_up(
    world: WorldHarness,
) -> None:
    world.given_data_center()
    world.apply("train", 1, lifecycle=PREFER_IDLE)
    world.run_pod("n1")
    world.scale("train", 0)
    world.pass_time(minutes=120)
    world.start_recording()

    world.break_machines("n1", fault="kubelet")
    world.pass_time(minutes=31)

    assert world.timed_events("train")[:2] == [
        "30:01 CWNodePoolNodesRemoveError n1",
        "30:01 CWNodeDeleted n1",
    ]
    assert world.nodes("train") == []


def test_a_node_that_reports_again_in_time_is_waited_for_as_before(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1, lifecycle=PREFER_IDLE)
    world.run_pod("n1")
    world.scale("train", 0)
    world.break_machines("n1", fault="kubelet")
    world.pass_time(minutes=29)

    world.break_machines("n1", fault="kubelet", times=0)
    world.pass_time(minutes=120)
    waiting = world.nodes("train")
    world.stop_pod("n1")

    assert waiting == ["n1"]
    assert world.nodes("train") == []


def test_an_idle_node_that_is_cordoned_and_silent_is_not_taken_for_drained(
    world: WorldHarness,
) -> None:
    world.given_data_center()
    world.apply("train", 1, lifecycle=EVICTING)
    world.command_node("CordonNode", "train", "n1", reason="maintenance")
    world.pass_time(minutes=5)
    world.start_recording()

    world.break_machines("n1", fault="kubelet")
    world.pass_time(minutes=31)

    assert world.timed_events("train")[:3] == [
        "0:00 CWNodeCordoned n1",
        "30:01 CWNodePoolNodesRemoveError n1",
        "30:01 CWNodeDeleted n1",
    ]


def test_a_reservation_that_waits_for_a_machine_that_hangs_ends_with_the_node(
    world: WorldHarness,
) -> None:
    world.given_data_center()
    world.apply("train", 1)
    world.break_machines("n1", fault="hang")
    world.start_recording()

    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    world.pass_time(minutes=31)

    assert world.timed_events("train") == [
        "0:00 CWNodeCordoned n1",
        "30:01 CWNodePoolNodesRemoveError n1",
        "30:01 CWNodeDeleted n1",
        "30:01 CWNodeAssigned n2",
        "30:01 CWNodeRegistered n2",
    ]
