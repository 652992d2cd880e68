"""A NodePool is deleted: its Nodes first, then the NodePool itself."""

import pytest

from support.constants import PREFER_IDLE
from support.harness import Harness
from support.world_harness import WorldHarness


def test_deleting_a_pool_removes_its_nodes_and_then_itself(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 2)
    harness.start_recording()

    command = harness.delete("train")

    assert harness.outcomes(command) == ["deleted 1"]
    published = [line for line in harness.messages("train") if not line.startswith("Quota")]
    assert published == [
        "NodePoolDeleting",
        "GrantAcknowledged 0",
        "CWNodePoolRemoveNodes 2",
        "CWNodeDeletionRequestSuccess n1",
        "CWNodeDeletionRequestSuccess n2",
        "NodeUpdated n1 cordoned",
        "NodeUpdated n2 cordoned",
        "CWDrainNode n1",
        "CWNodeDeleted n1",
        "CWDrainNode n2",
        "CWNodeDeleted n2",
        "CWNodePoolNodesRemoved 2 0",
        "CWNodePoolDeleted",
    ]
    assert harness.node_pool("train") is None
    assert harness.nodes() == []


def test_a_pool_in_deletion_shows_what_is_still_to_be_removed(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 2)
    world.run_pod("n1", graceS=60)

    world.delete("train")
    pending = world.conditions("train"), world.condition("train", "NodesRemoved")
    with world.paused("validator"):
        world.pass_time(minutes=1)
        complete = world.conditions("train")["NodesRemoved"]

    assert pending == (
        {
            "Validated": "Valid",
            "Capacity": "Sufficient",
            "Quota": "Under",
            "AtTarget": "PendingDelete",
            "NodesRemoved": "Pending",
            "Reconciling": "PendingDelete",
        },
        "False Pending: 1 Node is still to be removed;"
        " waits for n1, active since 2026-01-01T00:00:00Z (running: job).",
    )
    assert complete == "Complete"
    assert world.node_pool("train") is None


def test_deleting_a_pool_waits_for_a_blocking_pod_within_its_grace_period(
    world: WorldHarness,
) -> None:
    world.given_data_center()
    world.apply("train", 1)
    world.run_pod("n1", graceS=600)
    world.start_recording()

    world.delete("train")
    world.pass_time(minutes=11)

    assert world.timed_events("train") == [
        "0:00 CWNodePoolRemoveNodes 1",
        "0:00 CWNodeDeletionRequestSuccess n1",
        "0:00 CWDrainNode n1",
        "10:00 CWNodeDeleted n1",
        "10:00 CWNodePoolNodesRemoved 1 0",
        "10:00 CWNodePoolDeleted",
    ]


def test_deleting_a_pool_ends_a_scale_down_that_waits_for_idle_nodes(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    harness.run_pod("n1", interruption="interruptable")
    harness.scale("train", 0)
    harness.start_recording()

    harness.delete("train")

    assert harness.events("train") == [
        "CWNodePoolRemoveNodes 1",
        "CWNodeDeletionRequestSuccess n1",
        "CWDrainNode n1",
        "CWNodeDeleted n1",
        "CWNodePoolNodesRemoved 1 0",
        "CWNodePoolDeleted",
    ]


def test_a_pool_without_nodes_is_deleted_at_once(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 0)
    harness.start_recording()

    harness.delete("train")

    assert harness.events("train") == ["CWNodePoolNodesRemoved 0 0", "CWNodePoolDeleted"]
    assert harness.node_pool("train") is None


def test_deleting_twice_changes_nothing_more(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1)
    world.run_pod("n1")
    world.start_recording()

    first = world.delete("train")
    second = world.delete("train")
    world.pass_time(minutes=1)
    third = world.delete("train")

    assert world.events("train") == [
        "CWNodePoolRemoveNodes 1",
        "CWNodeDeletionRequestSuccess n1",
        "CWDrainNode n1",
        "CWNodeDeleted n1",
        "CWNodePoolNodesRemoved 1 0",
        "CWNodePoolDeleted",
    ]
    assert [world.outcomes(command) for command in (first, second, third)] == [
        ["deleted 1"],
        ["deleted 1"],
        ["NotFound metadata.name: NodePool train does not exist"],
    ]


def test_a_name_can_be_used_again_when_its_pool_is_gone(harness: Harness) -> None:
    harness.given_data_center(machines=2)
    harness.grow("train", 2)
    harness.scale("train", 1)
    harness.delete("train")
    harness.start_recording()

    command = harness.apply("train", 1)

    assert harness.outcomes(command) == ["created 1"]
    assert harness.events("train") == [
        "CWNodePoolCreated",
        "CWNodeRequestQueued 1",
        "CWNodeAssigned n2",
        "CWNodeRegistered n2",
    ]
    assert harness.node_counts("train") == (1, 0, 1)
    assert "NodesRemoved" not in harness.conditions("train")


def test_a_pool_in_deletion_cannot_be_changed(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1)
    world.run_pod("n1")
    world.delete("train")

    applied = world.apply("train", 2)
    scaled = world.scale("train", 2)

    expected = "Conflict metadata.name: NodePool train is being deleted; wait until it is gone"
    assert world.outcomes(applied) == [expected]
    assert world.outcomes(scaled) == [expected]


def test_a_scale_down_under_way_becomes_part_of_the_deletion(world: WorldHarness) -> None:
    # given a scale-down from four Nodes, of which one is gone and one drains
    world.given_data_center()
    world.apply("train", 4, lifecycle=PREFER_IDLE)
    for node in ("n1", "n2", "n3"):
        world.run_pod(node, graceS=60)
    world.scale("train", 2)
    world.start_recording()

    # when the NodePool is deleted
    world.delete("train")
    removals = {world.node_conditions(node)["CWNodeRemoval"] for node in world.nodes("train")}
    world.pass_time(minutes=2)

    # then it has a removal of its own, with one count, and all its Nodes leave for that
    assert removals == {"True PoolDeleted"}
    events = world.events("train")
    assert events[0] == "CWNodePoolRemoveNodes 3"
    assert events[-2:] == ["CWNodePoolNodesRemoved 3 0", "CWNodePoolDeleted"]


@pytest.mark.parametrize("is_active", [False, True])
def test_a_machine_that_never_answers_blocks_no_deletion(
    world: WorldHarness, is_active: bool
) -> None:
    world.given_data_center(machines=2)
    world.apply("train", 2)
    if is_active:
        world.run_pod("n1", graceS=60)
    world.break_machines("n1", fault="hang")

    world.delete("train")
    world.pass_time(minutes=31)

    assert world.node_pool("train") is None
    errors = world.event_messages("train", "CWNodePoolNodesRemoveError")
    assert errors == [
        "Node n1 is deleted: its machine did not answer a cordon in time and goes to triage"
    ]


def test_a_machine_that_hangs_during_the_drain_blocks_no_deletion(world: WorldHarness) -> None:
    world.given_data_center(machines=1)
    world.apply("train", 1)
    world.run_pod("n1", graceS=60)
    world.delete("train")
    world.pass_time(seconds=30)

    world.break_machines("n1", fault="hang")
    world.pass_time(minutes=32)

    assert world.node_pool("train") is None
