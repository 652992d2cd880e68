"""A thousand Nodes, or hundreds of NodePools: all are served, in commits of bounded size."""

from collections import Counter

from nodepool.engine.bounds import OUTPUTS_MAX
from support.world_harness import WorldHarness


def largest_output(world: WorldHarness) -> int:
    """How many messages the input with the most outputs had."""
    processed = Counter((envelope.source, envelope.causeposition) for envelope in world.envelopes())
    return max(processed.values())


def event_counts(world: WorldHarness, pool: str) -> Counter[str]:
    """How often each Kubernetes event was recorded, by name."""
    return Counter(line.split()[0] for line in world.events(pool))


def test_a_pool_of_a_thousand_nodes_is_filled_shrunk_and_deleted(world: WorldHarness) -> None:
    world.given_data_center(machines=1_000, quota=1_000)
    world.start_recording()

    world.apply("train", 1_000)
    up = world.node_counts("train"), event_counts(world, "train")
    world.start_recording()
    world.scale("train", 10)
    down = world.node_counts("train"), event_counts(world, "train")
    world.start_recording()
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
    assert world.node_pool("train") is None
    assert world.nodes() == []
    assert event_counts(world, "train") == {
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
    assert largest_output(world) <= OUTPUTS_MAX


def test_new_metadata_reaches_a_thousand_nodes(world: WorldHarness) -> None:
    world.given_data_center(machines=1_000, quota=1_000)
    world.apply("train", 1_000)
    world.start_recording()

    world.apply("train", 1_000, nodeLabels={"team": "red"})

    updated = Counter(line.split()[0] for line in world.messages("train"))
    assert updated["NodeUpdated"] == 1_000
    assert updated["CWNodePoolMetadata"] == 1
    assert largest_output(world) <= OUTPUTS_MAX


def test_a_thousand_silent_machines_are_given_up_together(world: WorldHarness) -> None:
    world.given_data_center(machines=1_000, quota=1_000, boot_s=7_200)
    world.apply("train", 1_000)

    world.pass_time(minutes=31)

    assert world.node_counts("train") == (1_000, 0, 0)
    assert world.conditions("train")["Capacity"] == "NoneAvailable"
    assert largest_output(world) <= OUTPUTS_MAX


def test_hundreds_of_pools_wait_for_one_quota_and_are_all_served(world: WorldHarness) -> None:
    world.given_data_center(machines=500, quota=0)
    with world.sent_together():
        for number in range(500):
            world.apply(f"p{number}", 1)

    world.given_quota(500)

    at_target = [world.conditions(f"p{number}")["AtTarget"] for number in range(500)]
    assert Counter(at_target) == {"TargetMet": 500}
    assert largest_output(world) <= OUTPUTS_MAX
