"""Commands that are refused because of what exists already, or does not exist."""

import pytest

from support.constants import A100, CLUSTER, H100, ORG, ZONE
from support.harness import Harness
from support.manifests import TRAIN, manifest


def test_the_instance_type_of_a_pool_cannot_be_changed(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)

    command = harness.apply("train", 1, A100)

    assert harness.outcomes(command) == [
        "Invalid spec.instanceType: InstanceType cannot be changed"
    ]


def test_the_compute_class_of_a_pool_cannot_be_changed(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)

    command = harness.apply("train", 1, computeClass="spot")

    assert harness.outcomes(command) == [
        "Invalid spec.computeClass: ComputeClass cannot be changed"
    ]


def test_an_unknown_cluster_is_refused(harness: Harness) -> None:
    applied = harness.apply("train", 1)
    scaled = harness.scale("train", 1)
    deleted = harness.delete("train")

    expected = "NotFound cluster: acme/prod is not a known cluster; register it first"
    assert [harness.outcomes(command) for command in (applied, scaled, deleted)] == [[expected]] * 3


def test_a_pool_that_does_not_exist_is_neither_scaled_nor_deleted(harness: Harness) -> None:
    harness.given_data_center()

    scaled = harness.scale("train", 1)
    deleted = harness.delete("train")

    expected = "NotFound metadata.name: NodePool train does not exist"
    assert [harness.outcomes(command) for command in (scaled, deleted)] == [[expected]] * 2


def test_a_negative_target_of_a_scale_is_refused(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)

    command = harness.scale("train", -1)

    assert harness.outcomes(command) == [
        "Invalid targetNodes: input should be greater than or equal to 0"
    ]


def test_a_scale_beyond_the_bounds_of_autoscaling_is_refused(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1, autoscaling=True, minNodes=1, maxNodes=2)

    command = harness.scale("train", 3)

    assert harness.outcomes(command) == [
        "Invalid spec.targetNodes: must lie between minNodes 1 and maxNodes 2 "
        "while autoscaling is true"
    ]


def test_a_change_based_on_an_old_version_is_refused(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    read = harness.node_pool("train")
    assert read is not None
    harness.scale("train", 2)

    command = harness.send("ApplyNodePool", TRAIN, read)

    assert harness.outcomes(command)[0].startswith("Conflict metadata.resourceVersion: ")
    assert harness.node_counts("train") == (2, 0, 2)


def test_a_change_based_on_the_current_version_is_accepted(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    read = harness.node_pool("train")
    assert read is not None

    command = harness.send(
        "ApplyNodePool", TRAIN, {**read, "spec": manifest(targetNodes=2)["spec"]}
    )

    assert harness.outcomes(command) == ["configured 2"]


def test_a_change_based_on_an_earlier_pool_of_that_name_is_refused(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    read = harness.node_pool("train")
    assert read is not None
    harness.delete("train")
    harness.apply("train", 1)

    command = harness.send("ApplyNodePool", TRAIN, read)

    assert harness.outcomes(command)[0].startswith("Conflict metadata.uid: is of another NodePool")


@pytest.mark.parametrize("command", ["ScaleNodePool", "DeleteNodePool"])
def test_a_stale_resource_version_is_refused_by_every_command(
    harness: Harness, command: str
) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    harness.scale("train", 2)
    content = {"resourceVersion": "1"} | ({"targetNodes": 3} if "Scale" in command else {})

    command = harness.send(command, TRAIN, content)

    assert harness.outcomes(command)[0].startswith("Conflict resourceVersion: 1 is stale")
    assert harness.node_counts("train") == (2, 0, 2)


def test_a_malformed_resource_version_is_refused(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)

    commands = [
        harness.apply("train", 1, metadata={"resourceVersion": version})
        for version in ("new", "-1", "", "9" * 5_000)
    ]

    expected = "Invalid metadata.resourceVersion: must be a resourceVersion as it was read"
    assert [harness.outcomes(command) for command in commands] == [[expected]] * 4


def test_a_dry_run_has_an_outcome_and_changes_nothing(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    harness.start_recording()

    command = harness.send("ApplyNodePool", TRAIN, {**manifest(targetNodes=3), "dryRun": True})

    assert harness.outcomes(command) == ["configured 2"]
    assert harness.messages("train") == []
    assert harness.node_counts("train") == (1, 0, 1)


def test_a_cluster_cannot_move(harness: Harness) -> None:
    harness.given_cluster()
    path = (ORG, CLUSTER, "_")

    again = harness.send("RegisterCluster", path, {"zone": ZONE})
    moved = harness.send("RegisterCluster", path, {"zone": "US-WEST-04A"})
    nowhere = harness.send("RegisterCluster", path, {"zone": "MOON-01A"})

    assert [harness.outcomes(command) for command in (again, moved, nowhere)] == [
        ["unchanged"],
        ["Conflict zone: the cluster lies in US-EAST-04A and cannot move"],
        ["Invalid zone: MOON-01A is not a known zone"],
    ]


def test_a_wrong_quota_is_refused_naming_its_field(harness: Harness) -> None:
    content = {"zone": ZONE, "instanceType": H100, "limit": 1}

    commands = [
        harness.send("SetQuota", (ORG, "_", "_"), {**content, **wrong})
        for wrong in (
            {"zone": "MOON-01A"},
            {"instanceType": "gd-9xh100"},
            {"limit": -1},
            {"limits": 1},
        )
    ]

    assert [harness.outcomes(command) for command in commands] == [
        ["Invalid zone: MOON-01A is not a known zone"],
        [f"Invalid instanceType: gd-9xh100 is not a known instance type; did you mean {H100}?"],
        ["Invalid limit: input should be greater than or equal to 0"],
        ["Invalid limits: is not a known field; did you mean limit?"],
    ]


def test_a_name_that_no_label_value_can_hold_is_refused(harness: Harness) -> None:
    harness.given_data_center()
    longest = "a" * 63

    taken = harness.apply(longest, 0)
    refused = harness.apply(f"{longest}a", 0)

    assert harness.outcomes(taken) == ["created 1"]
    assert harness.outcomes(refused) == [
        "Invalid metadata.name: name has 64 characters, more than the 63 allowed; it becomes the"
        " value of a label of each Node (Kubernetes: Labels and Selectors)"
    ]


def test_a_pool_that_exists_is_not_created_once_more(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)

    command = harness.send("ApplyNodePool", TRAIN, {**manifest(targetNodes=5), "createOnly": True})

    assert harness.outcomes(command) == ["Conflict metadata.name: NodePool train exists already"]
