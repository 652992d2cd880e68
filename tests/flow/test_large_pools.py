"""Two thousand Nodes in one NodePool: no service says more at once than one commit can hold."""

from collections import Counter
from collections.abc import Iterator

import pytest

from nodepool.engine.step import OUTPUTS_MAX
from support.constants import PREFER_IDLE
from support.world_harness import WorldHarness

NODES = 2_000


@pytest.fixture
def world() -> Iterator[WorldHarness]:
    """Services that, whatever a story does, stay within the bound and lose nothing."""
    stage = WorldHarness()
    yield stage
    outputs = Counter((envelope.source, envelope.causeposition) for envelope in stage.envelopes())
    assert max(outputs.values()) <= OUTPUTS_MAX
    assert stage.dead_letters() == []
    assert stage.replay_differs() == []


def names(world: WorldHarness, pool: str) -> Counter[str]:
    """How often each event of a NodePool was published since the story began."""
    return Counter(line.split()[0] for line in world.messages(pool))


def test_validator_says_one_verdict_however_many_nodes_a_change_concerns(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=NODES, quota=NODES)
    world.apply("train", NODES)
    world.start_recording()

    world.scale("train", 0)

    assert names(world, "train")["NodePoolValidated"] == 1
    assert world.node_counts("train") == (0, 0, 0)


def test_fleet_boots_two_thousand_machines_that_are_due_at_the_same_moment(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=NODES, quota=NODES, boot_s=60)
    world.apply("train", NODES)
    assert world.node_counts("train") == (NODES, NODES, 0)

    world.pass_time(seconds=61)

    assert world.node_counts("train") == (NODES, 0, NODES)


def test_allocator_takes_back_two_thousand_removals_at_once(world: WorldHarness) -> None:
    world.given_data_center(machines=NODES, quota=NODES)
    world.apply("train", NODES, lifecycle=PREFER_IDLE)
    world.start_recording()

    with world.paused("lifecycle"):
        world.scale("train", 0)
        requested = names(world, "train")["CWNodeDeletionRequestSuccess"]
        world.scale("train", NODES)
        cancelled = names(world, "train")["NodeRemovalCancelled"]

    assert (requested, cancelled) == (NODES, NODES)
    assert world.node_counts("train") == (NODES, 0, NODES)
    assert world.conditions("train")["AtTarget"] == "TargetMet"
    assert names(world, "train")["CWNodeDeleted"] == 0


def test_allocator_empties_a_deleted_pool_whose_scale_down_is_under_way(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=NODES, quota=NODES)
    world.apply("train", NODES, lifecycle=PREFER_IDLE)
    world.start_recording()

    with world.sent_together():
        world.scale("train", 50)
        world.delete("train")

    assert world.node_pool("train") is None
    assert names(world, "train")["CWNodeDeleted"] == NODES
    assert world.document("capacity", "US-EAST-04A/gd-8xh100ib-i128") == {
        "kind": "Capacity",
        "zone": "US-EAST-04A",
        "instanceType": "gd-8xh100ib-i128",
        "free": NODES,
        "assigned": 0,
        "triage": 0,
        "resourceVersion": str(
            (world.document("capacity", "US-EAST-04A/gd-8xh100ib-i128") or {})["resourceVersion"]
        ),
    }


def test_quota_and_capacity_tell_a_thousand_waiting_pools_when_two_thousand_nodes_go(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=NODES, quota=NODES)
    world.apply("train", NODES)
    waiting = [f"small-{number}" for number in range(NODES // 2)]
    with world.sent_together():
        for pool in waiting:
            world.apply(pool, 2)
    assert {world.conditions(pool)["Quota"] for pool in waiting} == {"Over"}

    world.delete("train")

    assert {world.conditions(pool)["Quota"] for pool in waiting} == {"Under"}
    assert {world.conditions(pool)["Capacity"] for pool in waiting} == {"Sufficient"}
    assert {world.node_counts(pool) for pool in waiting} == {(2, 0, 2)}


def test_capacity_warns_a_thousand_pools_for_which_two_thousand_nodes_leave_nothing(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=NODES, quota=3 * NODES)
    waiting = [f"small-{number}" for number in range(NODES // 2)]
    with world.paused("allocator"):
        with world.sent_together():
            for pool in waiting:
                world.apply(pool, 2)
        assert {world.conditions(pool)["Capacity"] for pool in waiting} == {"Sufficient"}

        world.apply("train", NODES, schedulingPriority={"value": 9})

        assert {world.conditions(pool)["Capacity"] for pool in waiting} == {"NoneAvailable"}
        assert all(names(world, pool)["CWInsufficientCapacity"] == 1 for pool in waiting)


def test_lifecycle_brings_new_labels_to_two_thousand_nodes(world: WorldHarness) -> None:
    world.given_data_center(machines=NODES, quota=NODES)
    world.apply("train", NODES)
    world.start_recording()

    world.apply("train", NODES, nodeLabels={"team": "blue"})

    published = names(world, "train")
    assert (published["NodeUpdated"], published["CWNodePoolMetadata"]) == (NODES, 1)
    labels = {str(document["metadata"]) for document in world.documents("nodes").values()}
    assert all("'team': 'blue'" in text for text in labels)


def test_preemption_keeps_its_timetable_for_two_thousand_nodes_at_once(world: WorldHarness) -> None:
    world.given_data_center(machines=NODES, quota=NODES)
    world.apply("cheap", NODES, computeClass="spot")
    world.start_recording()

    with world.sent_together():
        for node in world.nodes("cheap"):
            world.preempt("cheap", node)
    world.pass_time(minutes=2, seconds=1)

    times = {
        line.split()[0] for line in world.timed_events("cheap") if "PreemptionInProgress" in line
    }
    published = names(world, "cheap")
    assert (published["PreemptionPending"], published["DeletedForPreemption"]) == (NODES, NODES)
    assert times == {"2:00"}


def test_aggregator_counts_two_thousand_nodes(world: WorldHarness) -> None:
    world.given_data_center(machines=NODES, quota=NODES)

    world.apply("train", NODES)

    assert len(world.nodes("train")) == NODES
    assert world.conditions("train") == {
        "Validated": "Valid",
        "Capacity": "Sufficient",
        "Quota": "Under",
        "AtTarget": "TargetMet",
    }
