"""A thousand Nodes: up, down and deleted, a bounded number of things said at a time."""

from collections import Counter

from nodepool.service import OUTPUTS_MAX
from support.stage import WorldStage


def largest_decision(world: WorldStage) -> int:
    """The most messages that any one input was processed with."""
    processed = Counter((envelope.source, envelope.causeposition) for envelope in world.envelopes())
    return max(processed.values())


def names(world: WorldStage, pool: str) -> Counter[str]:
    return Counter(line.split()[0] for line in world.events(pool))


def test_a_pool_of_a_thousand_nodes_comes_and_goes(world: WorldStage) -> None:
    world.given_house(machines=1_000, quota=1_000)
    world.listen()

    world.apply("train", 1_000)
    up = world.counts("train"), names(world, "train")
    world.listen()
    world.scale("train", 10)
    down = world.counts("train"), names(world, "train")
    world.listen()
    world.scale("train", 1_000)
    world.delete("train")

    assert up == (
        (1_000, 0, 1_000),
        {
            "CWNodePoolCreated": 1,
            "CWNodeRequestQueued": 1,
            "CWNodeAssigned": 1_000,
            "CWNodeRegistered": 1_000,
        },
    )
    assert down == (
        (10, 0, 10),
        {
            "CWNodePoolRemoveNodes": 1,
            "CWNodeDeletionRequestSuccess": 990,
            "CWDrainNode": 990,
            "CWNodeDeleted": 990,
            "CWNodePoolNodesRemoved": 1,
            "CWNodePoolScaledDown": 1,
        },
    )
    assert world.shown("train") is None
    assert world.nodes() == []
    assert names(world, "train") == {
        "CWNodePoolScaledUp": 1,
        "CWNodeRequestQueued": 1,
        "CWNodeAssigned": 990,
        "CWNodeRegistered": 990,
        "CWNodePoolRemoveNodes": 1,
        "CWNodeDeletionRequestSuccess": 1_000,
        "CWDrainNode": 1_000,
        "CWNodeDeleted": 1_000,
        "CWNodePoolNodesRemoved": 1,
        "CWNodePoolDeleted": 1,
    }
    assert largest_decision(world) <= OUTPUTS_MAX


def test_new_metadata_reaches_a_thousand_nodes(world: WorldStage) -> None:
    world.given_house(machines=1_000, quota=1_000)
    world.apply("train", 1_000)
    world.listen()

    world.apply("train", 1_000, nodeLabels={"team": "red"})

    updated = Counter(line.split()[0] for line in world.story("train"))
    assert updated["NodeUpdated"] == 1_000
    assert updated["CWNodePoolMetadata"] == 1
    assert largest_decision(world) <= OUTPUTS_MAX


def test_a_thousand_silent_machines_are_given_up_together(world: WorldStage) -> None:
    world.given_house(machines=1_000, quota=1_000, boot_s=7_200)
    world.apply("train", 1_000)

    world.pass_time(minutes=31)

    assert world.counts("train") == (1_000, 0, 0)
    assert world.conditions("train")["Capacity"] == "NoneAvailable"
    assert largest_decision(world) <= OUTPUTS_MAX


def test_hundreds_of_pools_wait_for_one_quota_and_are_all_served(world: WorldStage) -> None:
    world.given_house(machines=500, quota=0)
    with world.together():
        for number in range(500):
            world.apply(f"p{number}", 1)

    world.given_quota(500)

    at_target = [world.conditions(f"p{number}")["AtTarget"] for number in range(500)]
    assert Counter(at_target) == {"TargetMet": 500}
    assert largest_decision(world) <= OUTPUTS_MAX
