"""More Nodes leave, or machines are returned, than one decision holds: all of them are counted."""

import pytest

from support.world_harness import WorldHarness

# A machine that is busy with other work may take several times as long as an idle one.
pytestmark = pytest.mark.timeout(600)


def is_preempted(world: WorldHarness) -> bool:
    """Whether any Node of the NodePool `cheap` has to give way."""
    return any(line.startswith("PreemptionPending") for line in world.events("cheap"))


@pytest.mark.parametrize("compute_class", ["default", "spot"])
def test_all_nodes_of_a_large_pool_that_goes_away_count(
    world: WorldHarness, compute_class: str
) -> None:
    # given more Nodes than one decision can let go
    world.given_data_center(machines=1_001, quota=3_000)
    world.apply("cheap", 1, computeClass="spot")
    world.apply("old", 1_000, computeClass=compute_class)
    world.start_recording()

    with world.paused("allocator"):
        world.delete("old")
        world.apply("train", 1_000)

    assert not is_preempted(world)
    assert len(world.nodes("train")) == 1_000


@pytest.mark.parametrize("compute_class", ["default", "spot"])
def test_all_nodes_that_a_large_pool_has_too_many_count(
    world: WorldHarness, compute_class: str
) -> None:
    world.given_data_center(machines=1_001, quota=3_000)
    world.apply("cheap", 1, computeClass="spot")
    world.apply("old", 1_000, computeClass=compute_class)
    world.start_recording()

    with world.paused("allocator"):
        world.scale("old", 0)
        world.apply("train", 1_000)

    assert not is_preempted(world)
    assert len(world.nodes("train")) == 1_000


def test_machines_that_are_still_to_be_returned_spare_spot_nodes(world: WorldHarness) -> None:
    # given more machines than one decision can return
    world.given_data_center(machines=1_001, quota=3_000)
    world.apply("cheap", 1, computeClass="spot")
    world.reclaim(1_000)
    world.start_recording()

    with world.paused("allocator"):
        world.give_back(1_000)
        world.apply("train", 1_000)

    assert not is_preempted(world)
    assert len(world.nodes("train")) == 1_000
