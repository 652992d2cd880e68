"""NodePools that are stored and cannot be delivered: Invalid, and why."""

from collections.abc import Mapping
from typing import Any

import pytest

from support.constants import H100, PREFER_IDLE
from support.harness import Harness
from support.manifests import rack_affinity
from support.world_harness import WorldHarness

GB200, GH200 = "gb200-4x", "gd-1xgh200"


INVALID: Mapping[str, tuple[str, Mapping[str, Any], str, str]] = {
    "an unknown instance type": (
        "gd-9xh100",
        {},
        "CWInvalidInstanceType",
        "instance type gd-9xh100 is not a known instance type; did you mean gd-8xh100ib-i128?",
    ),
    "a type that is not offered in the zone": (
        "b200-8x",
        {},
        "CWInstanceTypeNotInZone",
        "instance type b200-8x is not offered in zone US-EAST-04A",
    ),
    "another region than the cluster's": (
        H100,
        {"region": "US-WEST-04A"},
        "CWInstanceTypeNotInZone",
        "region US-WEST-04A is not the cluster's zone US-EAST-04A",
    ),
    "spot on a superchip": (
        GH200,
        {"computeClass": "spot"},
        "CWNodeDeliverFail",
        "computeClass spot is not offered for the Superchip instance type gd-1xgh200",
    ),
    "an affinity to what no machine has": (
        H100,
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {
                                        "key": "kubernetes.io/arch",
                                        "operator": "In",
                                        "values": ["arm64"],
                                    }
                                ]
                            }
                        ]
                    }
                }
            }
        },
        "CWNodeDeliverFail",
        "nodeSelectorTerms[0]: key 'kubernetes.io/arch' is always 'amd64', never In [arm64]",
    ),
    "an affinity with an unknown operator": (
        H100,
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "a", "operator": "Is", "values": ["b"]}]}
                        ]
                    }
                }
            }
        },
        "CWNodeDeliverFail",
        "nodeSelectorTerms[0].matchExpressions[0], key 'a': "
        "operator 'Is' is not one of In, NotIn, Exists, DoesNotExist, Gt, Lt",
    ),
}


def test_a_pool_that_can_never_be_delivered_is_stored_as_invalid(harness: Harness) -> None:
    harness.given_data_center()
    harness.start_recording()
    for name, (kind, spec, event, expected) in INVALID.items():
        pool = name.replace(" ", "-").replace("'", "")

        command = harness.apply(pool, 1, kind, **spec)

        assert harness.outcomes(command) == ["created 1"]
        messages = harness.messages(pool)
        assert messages == ["CWNodePoolCreated", "NodePoolValidated Invalid", event]
        assert harness.condition(pool, "Validated") == f"False Invalid: {expected}"
        assert harness.event_messages(pool, event)[0].endswith(expected)
        assert harness.node_counts(pool) == (1, 0, 0)


def test_a_rack_scale_type_is_delivered_in_whole_racks(harness: Harness) -> None:
    harness.given_cluster(zone="US-EAST-01A")
    harness.given_quota(36, GB200, zone="US-EAST-01A")
    harness.given_machines(18, GB200, zone="US-EAST-01A")
    harness.apply("train", 17, GB200)
    broken = harness.condition("train", "Validated")

    harness.scale("train", 18)

    assert broken == (
        "False Invalid: targetNodes 17 is not a multiple of 18, the Nodes of one rack of gb200-4x"
    )
    assert harness.conditions("train")["Validated"] == "Valid"
    assert harness.node_counts("train") == (18, 0, 18)


def test_a_pool_that_becomes_invalid_keeps_its_nodes_and_gets_no_more(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 2)
    harness.start_recording()

    harness.apply("train", 4, region="US-WEST-04A")

    assert harness.events("train") == ["CWInstanceTypeNotInZone"]
    assert harness.conditions("train")["Validated"] == "Invalid"
    assert harness.nodes("train") == ["n1", "n2"]


def test_a_pool_that_becomes_invalid_loses_no_node_either(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 2)
    harness.start_recording()

    harness.apply("train", 1, region="US-WEST-04A")

    assert harness.nodes("train") == ["n1", "n2"]


def test_typos_leave_nothing_but_their_own_objects(world: WorldHarness) -> None:
    world.given_data_center()
    capacity, documents = world.world.state("capacity"), world.documents("capacity")
    validator = world.world.state("validator")

    for number in range(60):
        world.apply(f"typo-{number}", 1, f"gd-{number}.x_h100")

    assert world.world.state("capacity") == capacity
    assert world.documents("capacity") == documents
    assert len(world.documents("nodepools")) == 60

    for number in range(60):
        world.delete(f"typo-{number}")

    assert world.documents("nodepools") == {}
    assert world.world.state("validator") == validator


def test_an_instance_type_that_is_no_label_value_is_refused(harness: Harness) -> None:
    harness.given_data_center()

    commands = [harness.apply("train", 1, kind) for kind in ("a b", "a/b", "-a", "ä")]

    outcomes = [harness.outcomes(command)[0] for command in commands]
    assert [outcome.split(": ")[0] for outcome in outcomes] == ["Invalid spec.instanceType"] * 4
    assert harness.documents("nodepools") == {}


def test_a_pool_that_could_not_be_validated_gets_its_nodes_a_minute_later(
    world: WorldHarness,
) -> None:
    world.given_data_center()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("validator.objects.verdict", None)
        world.apply("train", 2)
        failed = world.conditions("train")["Validated"]

    world.pass_time(minutes=1)

    assert failed == "InternalError"
    assert world.conditions("train")["Validated"] == "Valid"
    assert world.node_counts("train") == (2, 0, 2)


def test_an_invalid_pool_that_is_corrected_gets_its_nodes(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 2, region="US-WEST-04A")
    harness.start_recording()

    harness.apply("train", 2)

    assert harness.conditions("train")["Validated"] == "Valid"
    assert harness.node_counts("train") == (2, 0, 2)


def test_an_invalid_pool_keeps_the_nodes_of_a_scale_down_that_its_target_takes_back(
    world: WorldHarness,
) -> None:
    # given a NodePool with two victims that wait for their Pods
    world.given_data_center(machines=3)
    world.apply("train", 3, lifecycle=PREFER_IDLE)
    for node in ("n1", "n2", "n3"):
        world.run_pod(node)
    world.scale("train", 1)

    # when its target rises again in a spec with a fault, and the Pods end
    world.apply("train", 3, lifecycle=PREFER_IDLE, affinity=rack_affinity("a b"))
    for node in ("n1", "n2", "n3"):
        world.stop_pod(node)
    world.pass_time(minutes=5)

    assert world.conditions("train")["Validated"] == "Invalid"
    assert world.nodes("train") == ["n1", "n2", "n3"]


def test_an_invalid_pool_is_reported_once(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 2, region="US-WEST-04A")
    harness.start_recording()

    harness.scale("train", 3)

    assert harness.events("train") == []


def test_a_pool_with_a_wrong_affinity_can_be_corrected(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1, affinity=rack_affinity("a b"))
    broken = harness.conditions("train")

    harness.apply("train", 1, affinity={})

    assert broken["Validated"] == "Invalid"
    assert harness.nodes("train") == ["n1"]
