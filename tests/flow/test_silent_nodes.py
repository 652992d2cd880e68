"""Nodes whose machines fall silent: how that shows, what repairs them, and what repairs nothing."""

from typing import TYPE_CHECKING, cast

import pytest

from lifecycle.gauges import gauges
from nodepool.contract.documents import text
from nodepool.contract.metrics import SILENT_NODES
from support.constants import CLUSTER, ORG, PREFER_IDLE, ZONE
from support.grown import grown
from support.world_harness import WorldHarness

if TYPE_CHECKING:
    from lifecycle.state import State

EVICTING = {"disableUnhealthyNodeEviction": False}
SILENCES = ("hang", "kubelet")


def ready(world: WorldHarness, *nodes: str) -> list[str]:
    """The status of the condition Ready of each Node, as far as it was reported."""
    return [world.node_conditions(node).get("Ready", "not reported") for node in nodes]


def fall_silent(world: WorldHarness, count: int, first: int = 1) -> None:
    """Lets so many machines hang."""
    world.break_machines(*(f"n{number}" for number in range(first, first + count)), fault="hang")


# A silence shows after 40 seconds, and makes a Node unhealthy five minutes later.


@pytest.mark.parametrize("fault", SILENCES)
def test_a_silent_node_is_not_ready_after_forty_seconds(world: WorldHarness, fault: str) -> None:
    world.given_data_center()
    world.apply("train", 1)

    world.break_machines("n1", fault=fault)
    world.pass_time(seconds=39)
    before = ready(world, "n1")
    world.pass_time(seconds=1)

    assert before == ["not reported"]
    assert ready(world, "n1") == ["Unknown NodeStatusUnknown"]
    assert world.node("n1")["status"]["phase"] == "production"


@pytest.mark.parametrize("fault", SILENCES)
def test_a_silent_node_is_replaced(world: WorldHarness, fault: str) -> None:
    world.given_data_center()
    world.apply("train", 1, lifecycle=EVICTING)
    world.start_recording()

    world.break_machines("n1", fault=fault)
    world.pass_time(minutes=37)

    assert world.timed_events("train") == [
        "5:40 CWNodeCordoned n1",
        "35:41 CWNodePoolNodesRemoveError n1",
        "35:41 CWNodeDeleted n1",
        "35:41 CWNodeAssigned n2",
        "35:41 CWNodeRegistered n2",
    ]


def test_a_silent_node_is_only_reported_where_nothing_is_evicted(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1)
    world.start_recording()

    world.break_machines("n1", fault="hang")
    world.pass_time(minutes=600)

    assert world.timed_events("train") == ["5:40 CWNodeCordoned n1"]
    annotations = world.node("n1")["metadata"]["annotations"]
    assert annotations["node.coreweave.cloud/cordonReason"] == "NotReady"


def test_a_short_silence_repairs_nothing(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1, lifecycle=EVICTING)
    world.start_recording()

    for _ in range(20):
        world.break_machines("n1", fault="hang")
        world.pass_time(minutes=5)
        world.break_machines("n1", fault="hang", times=0)
        world.pass_time(minutes=1)

    assert world.timed_events("train") == []
    assert ready(world, "n1") == ["True KubeletReady"]


def test_nodes_at_rest_send_no_heartbeat_to_the_log(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 9)
    before = len(world.entries())

    world.pass_time(minutes=600)

    assert len(world.entries()) == before


# Half a zone that is silent at once is the problem of the zone.


def test_half_a_zone_that_is_silent_repairs_nothing(world: WorldHarness) -> None:
    world.given_data_center(machines=20)
    world.apply("train", 10, lifecycle=EVICTING)
    world.start_recording()

    fall_silent(world, 6)
    world.pass_time(minutes=600)

    assert world.timed_events("train") == []
    assert ready(world, "n1", "n6") == ["Unknown NodeStatusUnknown"] * 2


def test_the_nodes_of_several_clusters_are_counted_together(world: WorldHarness) -> None:
    world.given_data_center(machines=20)
    world.given_cluster("second")
    world.apply("train", 2, lifecycle=EVICTING)
    world.apply("acme/second/batch", 2, lifecycle=EVICTING)
    world.start_recording()

    fall_silent(world, 3)
    world.pass_time(minutes=600)

    assert world.timed_events("train") == []
    assert world.timed_events("acme/second/batch") == []


def test_fewer_silent_nodes_are_replaced(world: WorldHarness) -> None:
    world.given_data_center(machines=20)
    world.apply("train", 10, lifecycle=EVICTING)
    world.start_recording()

    fall_silent(world, 5)
    world.pass_time(minutes=37)

    assert world.timed_events("train")[:5] == [
        f"5:40 CWNodeCordoned n{number}" for number in range(1, 6)
    ]
    assert world.node_counts("train") == (10, 0, 10)


def test_a_zone_that_answers_again_gives_the_others_five_minutes(world: WorldHarness) -> None:
    world.given_data_center(machines=20)
    world.apply("train", 10, lifecycle=EVICTING)
    fall_silent(world, 8)
    world.pass_time(minutes=60)
    world.start_recording()

    world.break_machines(*(f"n{number}" for number in range(1, 8)), fault="hang", times=0)
    world.pass_time(minutes=6)

    assert world.timed_events("train") == ["5:00 CWNodeCordoned n8"]


def test_a_zone_that_falls_silent_ends_the_repairs_that_have_begun(world: WorldHarness) -> None:
    world.given_data_center(machines=20)
    world.apply("train", 10, lifecycle=EVICTING)
    world.start_recording()
    fall_silent(world, 1)
    world.pass_time(minutes=10)

    fall_silent(world, 8, first=2)
    world.pass_time(minutes=600)

    assert world.timed_events("train") == [
        "5:40 CWNodeCordoned n1",
        "10:40 CWNodeUncordoned n1",
    ]


@pytest.mark.parametrize(("count", "widespread"), [(5, "false"), (6, "true")])
def test_metrics_count_the_silent_nodes_of_each_cluster(
    world: WorldHarness, count: int, widespread: str
) -> None:
    world.given_data_center(machines=20)
    world.apply("train", 10)

    fall_silent(world, count)
    world.pass_time(minutes=1)

    samples = list(grown(gauges(cast("State", world.world.state("lifecycle")))))
    assert samples == [(SILENT_NODES, (ZONE, ORG, CLUSTER, widespread), count)]


# A service at the edge that is away is no silence of its machines.


def test_nothing_is_repaired_while_the_fleet_is_away(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 2, lifecycle=EVICTING)
    world.start_recording()
    world.break_machines("n1", fault="hang")

    with world.paused("fleet"):
        world.pass_time(minutes=600)
        during = ready(world, "n1", "n2")

    assert during == ["not reported"] * 2
    assert world.timed_events("train") == []


@pytest.mark.parametrize(("lowered", "failed"), [(False, 8), (True, 2)])
def test_a_lower_target_ends_the_boots_that_fail_while_the_fleet_is_away(
    world: WorldHarness, *, lowered: bool, failed: int
) -> None:
    world.given_data_center(machines=8)

    # when two Nodes are to boot, and the fleet is away for four times as long as a boot may take
    with world.paused("fleet"):
        world.apply("train", 2)
        world.pass_time(minutes=31)
        if lowered:
            world.scale("train", 0)
        world.pass_time(minutes=3 * 31)

    # then each machine that boots is in triage, two by two, until none is to boot
    machines = world.documents("machines").values()
    states = [text(machine, "status", "state") for machine in machines]
    assert sorted(states) == ["Free"] * (8 - failed) + ["Triage"] * failed


def test_a_silence_is_confirmed_by_the_fleet_before_it_repairs(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1, lifecycle=EVICTING)
    world.break_machines("n1", fault="hang")
    world.pass_time(minutes=1)
    world.start_recording()

    with world.paused("fleet"):
        world.pass_time(minutes=60)
        during = world.timed_events("train")
    world.pass_time(minutes=0)

    assert during == []
    assert world.timed_events("train") == ["60:00 CWNodeCordoned n1"]


def test_an_answer_to_an_earlier_question_confirms_nothing(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1, lifecycle=EVICTING)
    world.break_machines("n1", fault="hang")
    world.pass_time(minutes=1)
    with world.paused("fleet"):
        world.pass_time(minutes=5)
        world.break_machines("n1", fault="hang", times=0)
    world.start_recording()

    world.pass_time(minutes=60)

    assert world.timed_events("train") == []


def test_lifecycle_that_was_away_gives_a_silence_its_whole_time(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1, lifecycle=EVICTING)
    world.start_recording()

    with world.paused("lifecycle"):
        world.break_machines("n1", fault="hang")
        world.pass_time(minutes=60)
    world.restart("lifecycle")
    world.pass_time(minutes=1)

    assert world.timed_events("train")[0] == "60:00 CWNodeCordoned n1"


# A Node that boots, reboots or leaves follows the rules for that.


def test_a_silent_node_that_reboots_has_the_time_of_a_reboot(world: WorldHarness) -> None:
    world.given_data_center(boot_s=1_200)
    world.apply("train", 1, lifecycle=EVICTING)
    world.pass_time(minutes=20)
    world.break_machines("n1", fault="hang")
    world.pass_time(minutes=1)
    world.start_recording()

    world.command_node("RebootNode", "train", "n1", force=True)
    world.pass_time(minutes=60)

    assert world.timed_events("train") == [
        "0:00 CWNodeCordoned n1",
        "20:00 CWNodeUncordoned n1",
    ]


@pytest.mark.parametrize("evicts", [True, False])
def test_a_silent_node_whose_verification_does_not_end_is_replaced_whatever_evicts_nodes(
    world: WorldHarness, *, evicts: bool
) -> None:
    # given a new Node that falls silent while it is verified
    world.given_cluster()
    world.given_quota(10)
    world.given_machines(2, boot_s=60, verifySeconds=600)
    world.start_recording()
    world.apply("train", 1, lifecycle={"disableUnhealthyNodeEviction": not evicts})
    world.pass_time(minutes=2)
    world.break_machines("n1", fault="hang")

    # when the two hours of its verification, which begins after a minute, are over
    world.pass_time(minutes=130)

    # then it has not been in production, and is replaced as if it had not booted
    assert world.timed_events("train")[-3:] == [
        "121:01 CWNodeDeleted n1",
        "121:01 CWNodeAssigned n2",
        "122:01 CWNodeRegistered n2",
    ]


@pytest.mark.parametrize("verify_s", [0, 60])
@pytest.mark.parametrize("fault", SILENCES)
def test_a_node_whose_reboot_ends_its_silence_is_kept(
    world: WorldHarness, fault: str, verify_s: int
) -> None:
    # given a Node that is cordoned because its kubelet is silent
    world.given_cluster()
    world.given_quota(10)
    world.given_machines(2, boot_s=60, verifySeconds=verify_s)
    world.apply("train", 1, lifecycle=EVICTING)
    world.pass_time(minutes=10)
    world.break_machines("n1", fault=fault)
    world.pass_time(minutes=10)
    world.start_recording()

    # when an operator reboots the Node
    world.command_node("RebootNode", "train", "n1", force=True)
    world.pass_time(minutes=60)

    # then it is back in its NodePool once it has booted, and passed its verification
    assert world.timed_events("train") == [f"{1 + verify_s // 60}:00 CWNodeUncordoned n1"]
    assert world.nodes("train") == ["n1"]


def test_a_machine_that_hangs_again_after_its_reboot_is_silent_again(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1)
    world.break_machines("n1", fault="hang")
    world.break_machines("n1", fault="hang")
    world.command_node("RebootNode", "train", "n1", force=True)

    world.pass_time(minutes=10)

    assert ready(world, "n1") == ["Unknown NodeStatusUnknown"]


def test_a_silent_spot_node_is_preempted_by_its_timetable(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("batch", 1, computeClass="spot")
    world.break_machines("n1", fault="hang")
    world.pass_time(minutes=1)
    world.start_recording()

    world.preempt("batch", "n1")
    world.pass_time(minutes=8)

    assert [each for each in world.timed_events("batch") if " n1" in each] == [
        "0:00 PreemptionPending n1",
        "2:00 PreemptionInProgress n1",
        "2:00 CWDrainNode n1",
        "4:40 CWNodeCordoned n1",
        "7:00 CWNodeDeleted n1",
        "7:00 DeletedForPreemption n1",
    ]


# Each wait for a silent Node has an end.


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
        "5:40 CWNodeCordoned n1",
        "30:41 CWNodePoolNodesRemoveError n1",
        "30:41 CWNodeDeleted n1",
        "30:41 CWNodeAssigned n2",
        "30:41 CWNodeRegistered n2",
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

    assert world.timed_events("train")[:3] == [
        "5:40 CWNodeCordoned n1",
        "30:41 CWNodePoolNodesRemoveError n1",
        "30:41 CWNodeDeleted n1",
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
    world.pass_time(minutes=37)

    assert world.timed_events("train")[:3] == [
        "5:40 CWNodeCordoned n1",
        "35:41 CWNodePoolNodesRemoveError n1",
        "35:41 CWNodeDeleted n1",
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
        "5:40 CWNodeCordoned n1",
        "30:01 CWNodePoolNodesRemoveError n1",
        "30:01 CWNodeDeleted n1",
        "30:01 CWNodeAssigned n2",
        "30:01 CWNodeRegistered n2",
    ]


def test_a_pending_reservation_waits_for_the_work_on_a_node_that_falls_silent(
    world: WorldHarness,
) -> None:
    # given a Node that takes nothing new, and is reserved for the control plane after its work
    world.given_data_center()
    world.apply("train", 1)
    world.run_pod("n1")
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    world.pass_time(minutes=10)
    world.start_recording()

    # when its kubelet is silent for hours, and its work ends after that
    world.break_machines("n1", fault="kubelet")
    world.pass_time(minutes=30)
    world.apply("train", 1, nodeLabels={"team": "red"})
    world.pass_time(minutes=120)
    silent = world.timed_events("train")
    world.break_machines("n1", fault="kubelet", times=0)
    pending = world.node("n1")["metadata"]["labels"]["node.coreweave.cloud/reserved"]
    world.stop_pod("n1")

    # then nobody asked for a drain or a reboot, so it is cordoned and reported only
    assert silent == ["5:40 CWNodeCordoned n1", "30:00 CWNodePoolMetadata"]
    assert pending == "acme"
    labels = world.node("n1")["metadata"]["labels"]
    assert labels["node.coreweave.cloud/reserved"] == "control-plane"


def test_a_pending_reservation_does_not_inherit_the_deadline_of_a_replacement(
    world: WorldHarness,
) -> None:
    # given a silent Node with a pending reservation that will be replaced
    world.given_data_center()
    world.apply("train", 1, lifecycle=EVICTING)
    world.run_pod("n1")
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    world.break_machines("n1", fault="kubelet")
    world.pass_time(minutes=10)

    # when its NodePool has no Node replaced any more
    world.apply("train", 1, lifecycle={"disableUnhealthyNodeEviction": True})
    world.pass_time(minutes=120)

    # then it stays
    assert world.nodes("train") == ["n1"]


@pytest.mark.parametrize("command", ["CordonNode", "DrainNode"])
def test_a_drain_that_has_ended_is_no_reason_to_give_up_a_node_that_falls_silent(
    world: WorldHarness, command: str
) -> None:
    # given a Node that a command has drained long ago
    world.given_data_center(machines=20)
    world.apply("train", 10)
    world.command_node(command, "train", "n1")
    world.pass_time(minutes=60)
    world.start_recording()

    # when its whole zone falls silent
    fall_silent(world, 10)
    world.pass_time(minutes=120)
    widespread = world.timed_events("train")

    # then nothing is given up, whatever changes in its NodePool meanwhile
    world.apply("train", 10, nodeLabels={"team": "red"})
    world.pass_time(minutes=120)
    assert widespread == []
    assert [text for text in world.events("train") if text.startswith("CWNodeDeleted")] == []


def test_a_drained_node_that_falls_silent_has_the_time_of_its_silence_and_of_its_answer(
    world: WorldHarness,
) -> None:
    # given a Node that a command has drained long ago
    world.given_data_center(machines=20)
    world.apply("train", 10)
    world.command_node("DrainNode", "train", "n1")
    world.pass_time(minutes=60)
    world.start_recording()

    # when the Node alone falls silent
    fall_silent(world, 1)
    world.pass_time(minutes=120)

    # then its time to answer begins when it is unhealthy
    assert world.timed_events("train")[:3] == [
        "5:40 CWNodeCordoned n1",
        "35:41 CWNodePoolNodesRemoveError n1",
        "35:41 CWNodeDeleted n1",
    ]
