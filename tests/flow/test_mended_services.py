"""A service that fails on one input and is mended does later what it did not do at first."""

import pytest

from support.constants import A100, H100, PREFER_IDLE
from support.failing import given_broken, given_failing
from support.world_harness import WorldHarness


def test_a_machine_whose_boot_could_not_be_processed_joins_a_minute_later() -> None:
    world = given_failing("lifecycle", "MachineBooted")
    world.given_data_center()

    world.apply("train", 1)
    before = world.node_counts("train")
    world.pass_time(minutes=1)

    assert (before, world.node_counts("train")) == ((1, 1, 0), (1, 0, 1))


def test_a_node_whose_idleness_could_not_be_published_still_leaves() -> None:
    # given a scale-down that waits for its only Node, and fails on the report that it is idle
    world = given_failing("lifecycle", "NodeObserved", 2)
    world.given_data_center()
    world.apply("train", 1)
    world.run_pod("n1")
    world.scale("train", 0)

    world.stop_pod("n1")
    before = world.node_counts("train")
    world.pass_time(minutes=1)

    assert (before, world.node_counts("train")) == ((0, 0, 1), (0, 0, 0))


def test_a_node_whose_removal_could_not_be_cancelled_at_once_is_kept() -> None:
    world = given_failing("lifecycle", "NodeRemovalCancelled")
    world.given_data_center()
    world.apply("train", 1, lifecycle=PREFER_IDLE)
    world.run_pod("n1")
    world.scale("train", 0)

    world.scale("train", 1)
    world.pass_time(minutes=1)
    world.stop_pod("n1")

    assert world.nodes("train") == ["n1"]
    assert world.node_conditions("n1")["CWNodeRemoval"].startswith("False")


def test_a_drain_that_could_not_be_forced_at_once_ends_after_all() -> None:
    # given a drain that a Pod blocks, and a deletion of the NodePool that fails on it
    world = given_failing("lifecycle", "CWNodeDeletionRequestSuccess", 2)
    world.given_data_center()
    world.apply("train", 1, lifecycle=PREFER_IDLE)
    world.run_pod("n1", graceS=30)
    world.scale("train", 0)

    world.delete("train")
    world.pass_time(minutes=2)

    assert world.node_pool("train") is None


def test_a_preempted_node_that_hangs_goes_although_its_end_failed_at_first() -> None:
    world = given_failing("lifecycle", "Wake")
    world.given_data_center()
    world.apply("cheap", 1, computeClass="spot")
    world.break_machines("n1", fault="hang")

    world.preempt("cheap", "n1")
    world.pass_time(minutes=8)

    assert world.nodes("cheap") == ["n2"]


@pytest.mark.parametrize("number", [1, 2])
def test_a_preemption_goes_on_although_one_of_its_stages_failed(number: int) -> None:
    world = given_failing("preemption", "Wake", number)
    world.given_data_center()
    world.apply("cheap", 1, computeClass="spot")
    world.run_pod("n1", graceS=900)
    world.start_recording()

    world.preempt("cheap", "n1")
    world.pass_time(minutes=10)

    assert [event for event in world.events("cheap") if event.endswith("n1")] == [
        "PreemptionPending n1",
        "PreemptionInProgress n1",
        "CWDrainNode n1",
        "CWNodeDeleted n1",
        "DeletedForPreemption n1",
    ]


def test_the_end_of_a_preemption_is_said_although_its_machine_is_used_again() -> None:
    world = given_failing("preemption", "CWNodeDeleted")
    world.given_data_center(machines=1)
    world.apply("cheap", 1, computeClass="spot")
    world.preempt("cheap", "n1")
    world.start_recording()

    world.pass_time(minutes=3)
    world.delete("cheap")

    assert [event for event in world.events("cheap") if event.startswith("DeletedFor")] == [
        "DeletedForPreemption n1"
    ]
    assert world.node_pool("cheap") is None


def test_a_deletion_that_could_not_be_ended_at_once_ends_a_minute_later() -> None:
    world = given_failing("validator", "CWNodePoolNodesRemoved")
    world.given_data_center()
    world.apply("train", 1)

    world.delete("train")
    before = world.conditions("train")["NodesRemoved"]
    world.pass_time(minutes=1)

    assert before == "InternalError"
    assert world.node_pool("train") is None


def test_a_machine_that_failed_is_reported_although_the_report_failed_at_first() -> None:
    world = given_failing("allocator", "CWNodeRegistrationFailed")
    world.given_data_center(machines=2)
    world.break_machines("n1", fault="boot")

    world.apply("train", 1)
    world.pass_time(minutes=1)

    assert [event for event in world.events("train") if "DeliverFail" in event] == [
        "CWNodeDeliverFail n1"
    ]


def test_a_machine_that_failed_is_not_reported_once_the_pool_is_deleted() -> None:
    # given a machine that did not register, which the allocator could not report
    broken: set[tuple[str, str]] = set()
    world = given_broken("allocator", broken)
    world.given_data_center(machines=2)
    world.break_machines("n1", fault="silence")
    world.apply("train", 1)
    broken.add(("allocator", "acme/prod/train"))
    world.pass_time(minutes=31)
    # when the NodePool is deleted, and the allocator is mended
    world.delete("train")
    broken.clear()
    world.pass_time(minutes=30)

    assert "CWNodeRegistrationFailed n1" in world.events("train")
    assert "CWNodeDeliverFail n1" not in world.events("train")
    assert world.node_pool("train") is None


def test_a_limit_is_given_back_although_the_name_of_its_pool_is_used_for_another_type() -> None:
    # given a NodePool that quota cannot release, while another one waits for that limit
    broken: set[tuple[str, str]] = set()
    world = given_broken("quota", broken)
    world.given_data_center(machines=6, quota=2)
    world.given_machines(3, A100)
    world.given_quota(2, A100)
    world.apply("train", 2)
    world.apply("late", 2)
    broken.add(("quota", "acme/prod/train"))
    world.delete("train")
    # and a new one of the same name, for which another limit counts
    world.apply("train", 2, A100)
    # and a quota service that is mended
    broken.clear()
    world.pass_time(minutes=30)

    assert world.node_counts("late") == (2, 0, 2)
    assert world.node_counts("train") == (2, 0, 2)
    assert used(world) == {A100: 2, H100: 2}
    world.delete("late")
    world.delete("train")
    assert used(world) == {A100: 0, H100: 0}
    assert world.replay_differs() == []


def used(world: WorldHarness) -> dict[str, int]:
    """How many Nodes of each instance type count against its limit."""
    return {
        str(item["instanceType"]): int(str(item["used"]))
        for item in world.documents("quotas").values()
    }


def test_a_machine_that_could_not_report_its_boot_joins_a_minute_later() -> None:
    world = given_failing("fleet", "Wake")
    world.given_data_center(boot_s=60)

    world.apply("train", 1)
    world.pass_time(minutes=1)
    before = world.node_counts("train")
    world.pass_time(minutes=1)

    assert (before, world.node_counts("train")) == ((1, 1, 0), (1, 0, 1))


def test_a_pod_that_could_not_be_placed_runs_a_minute_later() -> None:
    world = given_failing("fleet", "Wake", 2)
    world.given_data_center()
    world.apply("train", 1)

    world.create_pod("train")
    before = world.pod_changes("train")
    world.pass_time(minutes=1)

    assert before == ["job Pending"]
    assert world.pod_changes("train") == ["job Pending", "job Running n1"]


@pytest.mark.parametrize("input", ["NodeUpdated", "CWDrainNode"])
def test_a_node_that_could_not_answer_a_cordon_or_a_drain_does_so_a_minute_later(
    input: str,
) -> None:
    world = given_failing("fleet", input)
    world.given_data_center()
    world.apply("train", 1, lifecycle=PREFER_IDLE)
    world.run_pod("n1", interruption="interruptable")

    world.scale("train", 0)
    before = world.node_counts("train")
    world.pass_time(minutes=1)

    assert (before, world.node_counts("train")) == ((0, 0, 1), (0, 0, 0))


def test_a_node_that_is_kept_before_its_cordon_shows_no_removal() -> None:
    # given a scale-down on which lifecycle fails until a version with other labels takes it back
    broken: set[tuple[str, str]] = set()
    world = given_broken("lifecycle", broken)
    world.given_data_center()
    world.apply("train", 1, lifecycle=PREFER_IDLE)
    broken.add(("lifecycle", "acme/prod/train"))
    world.scale("train", 0)
    world.apply("train", 1, lifecycle=PREFER_IDLE, nodeLabels={"team": "ml"})

    # when lifecycle works again, and the Node gets its labels before it is kept
    broken.clear()
    world.pass_time(minutes=15)

    assert world.nodes("train") == ["n1"]
    assert world.node_conditions("n1")["CWNodeRemoval"].startswith("False")
