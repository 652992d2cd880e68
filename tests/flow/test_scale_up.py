"""A NodePool is created, grows, and shows how many of its Nodes are there."""

from support.harness import Harness
from support.world_harness import WorldHarness


def test_a_new_pool_gets_its_nodes(harness: Harness) -> None:
    harness.given_data_center(machines=10)
    harness.start_recording()

    harness.apply("train", 3)

    assert harness.messages("train") == [
        "CWNodePoolCreated",
        "NodePoolValidated Valid",
        "QuotaChecked Under 3",
        "CapacityChecked Sufficient 10",
        "CWNodeRequestQueued 3",
        "CWNodeAssigned n1",
        "CWNodeAssigned n2",
        "CWNodeAssigned n3",
        "CWNodeRegistered n1",
        "CWNodeRegistered n2",
        "CWNodeRegistered n3",
    ]
    assert harness.node_counts("train") == (3, 0, 3)
    assert list(harness.conditions("train").items()) == [
        ("Validated", "Valid"),
        ("Capacity", "Sufficient"),
        ("Quota", "Under"),
        ("AtTarget", "TargetMet"),
    ]


def test_the_conditions_of_a_healthy_pool_have_the_documented_messages(harness: Harness) -> None:
    harness.given_data_center()

    harness.apply("train", 1)

    assert [harness.condition("train", kind) for kind in harness.conditions("train")] == [
        "True Valid: NodePool configuration is valid.",
        "True Sufficient: Sufficient capacity available for the requested instance type.",
        "True Under: NodePool is within instance type quota.",
        "True TargetMet: NodePool has reached its target node count.",
    ]


def test_a_pool_whose_machines_boot_slowly_shows_them_in_progress(world: WorldHarness) -> None:
    world.given_data_center(boot_s=600)
    world.apply("train", 2)
    early = world.node_counts("train"), world.conditions("train")["AtTarget"]

    world.pass_time(minutes=10)

    assert early == ((2, 2, 0), "UnderTarget")
    assert world.node_counts("train") == (2, 0, 2)
    assert world.conditions("train")["AtTarget"] == "TargetMet"


def test_a_pool_created_with_no_nodes_is_at_its_target(harness: Harness) -> None:
    harness.given_data_center()
    harness.start_recording()

    harness.apply("train", 0)

    assert harness.events("train") == ["CWNodePoolCreated"]
    assert harness.node_counts("train") == (0, 0, 0)
    assert harness.conditions("train") == {
        "Validated": "Valid",
        "Capacity": "Sufficient",
        "Quota": "Under",
        "AtTarget": "TargetMet",
    }


def test_scaling_up_is_reported_before_nodes_are_requested(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    harness.start_recording()

    harness.scale("train", 3)

    assert harness.events("train") == [
        "CWNodePoolScaledUp 1 3",
        "CWNodeRequestQueued 2",
        "CWNodeAssigned n2",
        "CWNodeAssigned n3",
        "CWNodeRegistered n2",
        "CWNodeRegistered n3",
    ]
    assert harness.node_counts("train") == (3, 0, 3)


def test_a_pool_scales_up_from_no_nodes(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 0)
    harness.start_recording()

    harness.scale("train", 1)

    assert harness.events("train") == [
        "CWNodePoolScaledUp 0 1",
        "CWNodeRequestQueued 1",
        "CWNodeAssigned n1",
        "CWNodeRegistered n1",
    ]


def test_a_raise_before_the_first_grant_is_a_scale_up_from_the_target_at_creation(
    harness: Harness,
) -> None:
    # given a NodePool that no limit allows any Node yet
    harness.given_cluster()
    harness.given_machines(10)
    harness.apply("train", 1)
    harness.scale("train", 3)
    harness.start_recording()

    harness.given_quota(10)

    assert harness.events("train") == [
        "CWNodePoolScaledUp 1 3",
        "CWNodeRequestQueued 3",
        "CWNodeAssigned n1",
        "CWNodeAssigned n2",
        "CWNodeAssigned n3",
        "CWNodeRegistered n1",
        "CWNodeRegistered n2",
        "CWNodeRegistered n3",
    ]


def test_a_raise_that_follows_a_lower_target_begins_at_the_lower_target(harness: Harness) -> None:
    # given a NodePool whose target fell before its first grant
    harness.given_data_center(quota=3)
    harness.apply("train", 4)
    harness.start_recording()

    harness.scale("train", 1)
    harness.scale("train", 2)

    said = [line for line in harness.events("train") if line.startswith("CWNodePoolScaled")]
    assert said == ["CWNodePoolScaledDown 4 1", "CWNodePoolScaledUp 1 2"]


def test_nodes_that_are_granted_and_have_no_machine_yet_are_queued(world: WorldHarness) -> None:
    world.given_data_center(machines=2, boot_s=60)

    world.apply("train", 5)
    booting = world.node_counts("train"), world.queued_nodes("train")
    world.given_machines(2)
    joined = world.queued_nodes("train")
    with world.paused("lifecycle"):
        world.delete("train")
        deleting = world.queued_nodes("train")

    assert booting == ((5, 2, 0), 3)
    assert (joined, deleting) == (1, 0)


def test_applying_the_same_manifest_again_changes_nothing(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    harness.start_recording()

    command = harness.apply("train", 1)

    assert harness.outcomes(command) == ["unchanged 1"]
    assert harness.messages("train") == []


def test_only_a_change_of_the_spec_makes_a_new_generation(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)

    labelled = harness.apply("train", 1, metadata={"labels": {"team": "red"}})
    scaled = harness.apply("train", 2, metadata={"labels": {"team": "red"}})

    assert harness.outcomes(labelled) == ["configured 1"]
    assert harness.outcomes(scaled) == ["configured 2"]


def test_no_node_is_queued_above_the_target_before_quota_has_judged_it(world: WorldHarness) -> None:
    # given a NodePool with Nodes, whose target falls while the quota service is away
    world.given_data_center()
    world.apply("train", 4)

    with world.paused("quota"):
        world.scale("train", 1)

        assert world.node_counts("train") == (1, 0, 1)
        assert world.queued_nodes("train") == 0
