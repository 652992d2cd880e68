"""What is refused at once and names the field, and what is stored and judged Invalid."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from flow.test_stories_capacity import rack
from nodepool.contract.events import CommandRefused
from support.stage import A100, CLUSTER, H100, ORG, ZONE, Stage, WorldStage

TRAIN = (ORG, CLUSTER, "train")
GB200, GH200 = "gb200-4x", "gd-1xgh200"
RESERVED = "Namespaces `*.coreweave.cloud` or `*.coreweave.com` are not allowed."


def manifest(
    metadata: Mapping[str, object] | None = None, **spec: object
) -> dict[str, dict[str, object]]:
    """A manifest that is fine but for what is named here; None leaves a field of the spec out."""
    fields = {"instanceType": H100, "targetNodes": 1, **spec}
    kept = {name: value for name, value in fields.items() if value is not None}
    return {"metadata": {"name": "train", **(metadata or {})}, "spec": kept}


REFUSED = {
    "no instance type": (manifest(instanceType=None), "Invalid spec.instanceType: is required"),
    "no target": (manifest(targetNodes=None), "Invalid spec.targetNodes: is required"),
    "no spec": ({"metadata": {"name": "train"}}, "Invalid spec: is required"),
    "no metadata": (
        {"spec": {"instanceType": H100, "targetNodes": 1}},
        "Invalid metadata: is required",
    ),
    "no name": (
        {**manifest(), "metadata": {}},
        "Invalid metadata.name: is required",
    ),
    "a negative target": (
        manifest(targetNodes=-1),
        "Invalid spec.targetNodes: input should be greater than or equal to 0",
    ),
    "a negative bound": (
        manifest(minNodes=-1),
        "Invalid spec.minNodes: input should be greater than or equal to 0",
    ),
    "a target that is text": (
        manifest(targetNodes="3"),
        "Invalid spec.targetNodes: input should be a valid integer",
    ),
    "a target that is a fraction": (
        manifest(targetNodes=1.5),
        "Invalid spec.targetNodes: input should be a valid integer",
    ),
    "a target that is a truth value": (
        manifest(targetNodes=True),
        "Invalid spec.targetNodes: input should be a valid integer",
    ),
    "autoscaling that is text": (
        manifest(autoscaling="true"),
        "Invalid spec.autoscaling: input should be a valid boolean",
    ),
    "an empty instance type": (
        manifest(instanceType=""),
        "Invalid spec.instanceType: string should have at least 1 character",
    ),
    "labels that are a list": (
        manifest(nodeLabels=["a"]),
        "Invalid spec.nodeLabels: input should be an object",
    ),
    "a label that is a number": (
        manifest(nodeLabels={"a": 1}),
        "Invalid spec.nodeLabels.a: input should be a valid string",
    ),
    "an unknown field": (
        manifest(targetNode=1),
        "Invalid spec.targetNode: is not a known field",
    ),
    "an unknown field further in": (
        manifest(lifecycle={"scaleDown": "IdleOnly"}),
        "Invalid spec.lifecycle.scaleDown: is not a known field",
    ),
    "an unknown field beside the spec": (
        {**manifest(), "spek": {}},
        "Invalid spek: is not a known field",
    ),
    "an unknown strategy": (
        manifest(lifecycle={"scaleDownStrategy": "Idle"}),
        "Invalid spec.lifecycle.scaleDownStrategy: input should be 'IdleOnly' or 'PreferIdle'",
    ),
    "an unknown release train": (
        manifest(image={"releaseTrain": "edge"}),
        "Invalid spec.image.releaseTrain: input should be 'stable' or 'latest'",
    ),
    "an unknown compute class": (
        manifest(computeClass="SPOT"),
        "Invalid spec.computeClass: input should be 'default' or 'spot'",
    ),
    "a priority beyond int32": (
        manifest(schedulingPriority={"value": 2**31}),
        "Invalid spec.schedulingPriority.value: input should be less than or equal to 2147483647",
    ),
    "another apiVersion": (
        {**manifest(), "apiVersion": "v1"},
        "Invalid apiVersion: input should be 'compute.coreweave.com/v1alpha1'",
    ),
    "another kind": (
        {**manifest(), "kind": "Node"},
        "Invalid kind: input should be 'NodePool'",
    ),
    "another name than the subject's": (
        manifest({"name": "other"}),
        "Invalid metadata.name: is 'other', but the subject names 'train'",
    ),
    "a label with a bad key": (
        manifest(nodeLabels={"a b": "c"}),
        "Invalid spec.nodeLabels[a b]: key name 'a b' must be letters, digits, '-', '_' or '.', "
        "with a letter or digit at both ends (Kubernetes: Labels and Selectors)",
    ),
    "a label with a bad value": (
        manifest(nodeLabels={"team": "a b"}),
        "Invalid spec.nodeLabels[team]: value 'a b' must be letters, digits, '-', '_' or '.', "
        "with a letter or digit at both ends (Kubernetes: Labels and Selectors)",
    ),
    "a label of the pool itself with a bad value": (
        manifest({"labels": {"team": "-"}}),
        "Invalid metadata.labels[team]: value '-' must be letters, digits, '-', '_' or '.', "
        "with a letter or digit at both ends (Kubernetes: Labels and Selectors)",
    ),
    "an annotation with a bad key": (
        manifest(nodeAnnotations={"a/b/c": "d"}),
        "Invalid spec.nodeAnnotations[a/b/c]: key has more than one '/'; it must be a name, "
        "optionally after a DNS prefix and one '/' (Kubernetes: Labels and Selectors)",
    ),
    "a taint with a bad key": (
        manifest(nodeTaints=[{"key": "", "effect": "NoSchedule"}]),
        "Invalid spec.nodeTaints[0].key: key name is empty; "
        "it must be letters, digits, '-', '_' or '.', with a letter or digit at both ends "
        "(Kubernetes: Labels and Selectors)",
    ),
    "a taint with an unknown effect": (
        manifest(nodeTaints=[{"key": "a", "effect": "Never"}]),
        "Invalid spec.nodeTaints[0].effect: effect 'Never' must be one of "
        "NoSchedule, PreferNoSchedule, NoExecute (Kubernetes: Taints and Tolerations)",
    ),
    "a taint without an effect": (
        manifest(nodeTaints=[{"key": "a"}]),
        "Invalid spec.nodeTaints[0].effect: is required",
    ),
    "the same taint twice": (
        manifest(nodeTaints=[{"key": "a", "effect": "NoExecute"}] * 2),
        "Invalid spec.nodeTaints[1]: repeats the key a with the effect NoExecute",
    ),
    "a label under coreweave.cloud": (
        manifest(nodeLabels={"node.coreweave.cloud/state": "mine"}),
        f"Forbidden spec.nodeLabels[node.coreweave.cloud/state]: {RESERVED}",
    ),
    "a label under coreweave.com": (
        manifest(nodeLabels={"compute.coreweave.com/x": "mine"}),
        f"Forbidden spec.nodeLabels[compute.coreweave.com/x]: {RESERVED}",
    ),
    "autoscaling without bounds": (
        manifest(autoscaling=True),
        "Invalid spec.minNodes: is required while autoscaling is true",
    ),
    "autoscaling without an upper bound": (
        manifest(autoscaling=True, minNodes=0),
        "Invalid spec.maxNodes: is required while autoscaling is true",
    ),
    "a target below its bounds": (
        manifest(autoscaling=True, minNodes=2, maxNodes=4),
        "Invalid spec.targetNodes: must lie between minNodes 2 and maxNodes 4 "
        "while autoscaling is true",
    ),
    "a target above its bounds": (
        manifest(autoscaling=True, minNodes=2, maxNodes=4, targetNodes=5),
        "Invalid spec.targetNodes: must lie between minNodes 2 and maxNodes 4 "
        "while autoscaling is true",
    ),
    "autoscaling by the rack": (
        manifest(instanceType=GB200, autoscaling=True, minNodes=0, maxNodes=18),
        "Invalid spec.autoscaling: must be false: gb200-4x comes in whole racks",
    ),
    "an affinity by fields": (
        manifest(
            affinity={
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchFields": []}]
                    }
                }
            }
        ),
        "Invalid spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
        ".nodeSelectorTerms[0].matchFields: "
        "matchFields is not supported, only matchExpressions is",
    ),
}


@pytest.mark.parametrize(("content", "told"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_manifest_is_refused_and_names_its_field(
    stage: Stage, content: Mapping[str, object], told: str
) -> None:
    stage.given_house()

    asked = stage.ask("ApplyNodePool", TRAIN, content)

    assert stage.outcomes(asked) == [told]
    assert stage.story("train") == []
    assert stage.shown("train") is None


@pytest.mark.parametrize(("content", "told"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_manifest_leaves_the_pool_that_is_there_alone(
    world: WorldStage, content: Mapping[str, object], told: str
) -> None:
    world.given_house()
    world.apply("train", 2)
    before = world.shown("train")

    asked = world.ask("ApplyNodePool", TRAIN, content)

    assert world.outcomes(asked) == [told]
    assert world.shown("train") == before


FINE = {
    "the one label that is allowed": {
        "nodeLabels": {"cks.coreweave.cloud/system-critical": "true"}
    },
    "Spot with a capital": {"computeClass": "Spot"},
    "bounds without autoscaling": {"minNodes": 9, "maxNodes": 0},
    "autoscaling within its bounds": {"autoscaling": True, "minNodes": 1, "maxNodes": 1},
    "the zone as region": {"region": ZONE},
    "an image": {"image": {"kernel": "6.8", "name": "ncore", "releaseTrain": "latest"}},
    "taints": {"nodeTaints": [{"key": "a", "value": "b", "effect": "NoExecute"}]},
}


@pytest.mark.parametrize("spec", FINE.values(), ids=FINE)
def test_a_manifest_may_say(stage: Stage, spec: Mapping[str, Any]) -> None:
    stage.given_house()

    asked = stage.apply("train", 1, **spec)

    assert stage.outcomes(asked) == ["created 1"]
    assert stage.counts("train") == (1, 0, 1)


def test_a_manifest_as_it_was_read_can_be_applied_again(stage: Stage) -> None:
    stage.given_house()
    stage.apply(
        "train", 1, computeClass="Spot", affinity=rack("r7"), image={}, nodeLabels={"team": "red"}
    )
    read = stage.shown("train")
    assert read is not None

    asked = stage.ask("ApplyNodePool", TRAIN, read)

    assert stage.outcomes(asked) == ["unchanged 1"]


INVALID = {
    "an unknown instance type": (
        "gd-9xh100",
        {},
        "CWInvalidInstanceType",
        "instance type gd-9xh100 is not a known instance type",
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


@pytest.mark.parametrize(("kind", "spec", "event", "told"), INVALID.values(), ids=INVALID)
def test_what_can_never_be_delivered_is_stored_and_called_invalid(
    stage: Stage, kind: str, spec: Mapping[str, Any], event: str, told: str
) -> None:
    stage.given_house()
    stage.listen()

    asked = stage.apply("train", 1, kind, **spec)

    assert stage.outcomes(asked) == ["created 1"]
    assert stage.story("train") == ["CWNodePoolCreated", "NodePoolValidated Invalid", event]
    assert stage.condition("train", "Validated") == f"False Invalid: {told}"
    assert stage.messages("train", event)[0].endswith(told)
    assert stage.counts("train") == (1, 0, 0)


def test_a_rack_type_comes_in_whole_racks(stage: Stage) -> None:
    stage.given_cluster(zone="US-EAST-01A")
    stage.given_quota(36, GB200, zone="US-EAST-01A")
    stage.given_machines(18, GB200, zone="US-EAST-01A")
    stage.apply("train", 17, GB200)
    broken = stage.condition("train", "Validated")

    stage.scale("train", 18)

    assert broken == (
        "False Invalid: targetNodes 17 is not a multiple of 18, the Nodes of one rack of gb200-4x"
    )
    assert stage.conditions("train")["Validated"] == "Valid"
    assert stage.counts("train") == (18, 0, 18)


def test_a_pool_that_becomes_invalid_keeps_its_nodes_and_gets_no_more(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 2)
    stage.listen()

    stage.apply("train", 4, region="US-WEST-04A")

    assert stage.events("train") == ["CWInstanceTypeNotInZone"]
    assert stage.conditions("train")["Validated"] == "Invalid"
    assert stage.nodes("train") == ["n1", "n2"]


def test_a_pool_that_becomes_invalid_loses_no_node_either(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 2)
    stage.listen()

    stage.apply("train", 1, region="US-WEST-04A")

    assert stage.nodes("train") == ["n1", "n2"]


def test_a_pool_that_is_mended_gets_its_nodes(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 2, region="US-WEST-04A")
    stage.listen()

    stage.apply("train", 2)

    assert stage.conditions("train")["Validated"] == "Valid"
    assert stage.counts("train") == (2, 0, 2)


def test_an_invalid_pool_complains_once(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 2, region="US-WEST-04A")
    stage.listen()

    stage.scale("train", 3)

    assert stage.events("train") == []


def test_a_pool_with_a_wrong_affinity_can_be_mended(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1, affinity=rack("a b"))
    broken = stage.conditions("train")

    stage.apply("train", 1, affinity={})

    assert broken["Validated"] == "Invalid"
    assert stage.nodes("train") == ["n1"]


def test_the_instance_type_of_a_pool_cannot_be_changed(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1)

    asked = stage.apply("train", 1, A100)

    assert stage.outcomes(asked) == ["Invalid spec.instanceType: InstanceType cannot be changed"]


def test_the_compute_class_of_a_pool_cannot_be_changed(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1)

    asked = stage.apply("train", 1, computeClass="spot")

    assert stage.outcomes(asked) == ["Invalid spec.computeClass: ComputeClass cannot be changed"]


def test_a_bad_name_is_refused(stage: Stage) -> None:
    stage.given_house()

    asked = stage.apply("Train_1", 1)

    assert stage.outcomes(asked) == [
        "Invalid metadata.name: name 'Train_1' must be lower case letters, digits, '-' or '.', "
        "with a letter or digit at both ends of every part (RFC 1123 subdomain)"
    ]


def test_a_name_may_have_dots(stage: Stage) -> None:
    stage.given_house()

    asked = stage.apply("train.v1", 1)

    assert stage.outcomes(asked) == ["created 1"]
    assert stage.counts("train.v1") == (1, 0, 1)


def test_an_unknown_cluster_is_refused(stage: Stage) -> None:
    applied = stage.apply("train", 1)
    scaled = stage.scale("train", 1)
    deleted = stage.delete("train")

    told = "NotFound cluster: acme/prod is not a known cluster; register it first"
    assert [stage.outcomes(asked) for asked in (applied, scaled, deleted)] == [[told]] * 3


def test_a_pool_that_does_not_exist_is_neither_scaled_nor_deleted(stage: Stage) -> None:
    stage.given_house()

    scaled = stage.scale("train", 1)
    deleted = stage.delete("train")

    told = "NotFound metadata.name: NodePool train does not exist"
    assert [stage.outcomes(asked) for asked in (scaled, deleted)] == [[told]] * 2


def test_a_negative_target_of_a_scale_is_refused(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1)

    asked = stage.scale("train", -1)

    assert stage.outcomes(asked) == [
        "Invalid targetNodes: input should be greater than or equal to 0"
    ]


def test_a_scale_beyond_the_bounds_of_autoscaling_is_refused(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1, autoscaling=True, minNodes=1, maxNodes=2)

    asked = stage.scale("train", 3)

    assert stage.outcomes(asked) == [
        "Invalid spec.targetNodes: must lie between minNodes 1 and maxNodes 2 "
        "while autoscaling is true"
    ]


def test_a_change_meant_for_an_older_state_of_the_pool_is_refused(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1)
    read = stage.shown("train")
    assert read is not None
    stage.scale("train", 2)

    asked = stage.ask("ApplyNodePool", TRAIN, read)

    assert stage.outcomes(asked)[0].startswith("Conflict metadata.resourceVersion: ")
    assert stage.counts("train") == (2, 0, 2)


def test_a_change_meant_for_the_state_that_is_there_is_taken(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1)
    read = stage.shown("train")
    assert read is not None

    asked = stage.ask("ApplyNodePool", TRAIN, {**read, "spec": manifest(targetNodes=2)["spec"]})

    assert stage.outcomes(asked) == ["configured 2"]


def test_a_change_meant_for_an_earlier_pool_of_that_name_is_refused(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1)
    read = stage.shown("train")
    assert read is not None
    stage.delete("train")
    stage.apply("train", 1)

    asked = stage.ask("ApplyNodePool", TRAIN, read)

    assert stage.outcomes(asked)[0].startswith("Conflict metadata.uid: is of another NodePool")


@pytest.mark.parametrize("command", ["ScaleNodePool", "DeleteNodePool"])
def test_a_stale_resource_version_is_refused_with_every_command(stage: Stage, command: str) -> None:
    stage.given_house()
    stage.apply("train", 1)
    stage.scale("train", 2)
    content = {"resourceVersion": "1"} | ({"targetNodes": 3} if "Scale" in command else {})

    asked = stage.ask(command, TRAIN, content)

    assert stage.outcomes(asked)[0].startswith("Conflict resourceVersion: 1 is stale")
    assert stage.counts("train") == (2, 0, 2)


def test_a_resource_version_that_is_none_is_refused(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1)

    asked = [
        stage.apply("train", 1, metadata={"resourceVersion": version})
        for version in ("new", "-1", "", "9" * 5_000)
    ]

    told = "Invalid metadata.resourceVersion: must be a resourceVersion as it was read"
    assert [stage.outcomes(one) for one in asked] == [[told]] * 4


def test_a_dry_run_tells_what_would_be_and_changes_nothing(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1)
    stage.listen()

    asked = stage.ask("ApplyNodePool", TRAIN, {**manifest(targetNodes=3), "dryRun": True})

    assert stage.outcomes(asked) == ["configured 2"]
    assert stage.story("train") == []
    assert stage.counts("train") == (1, 0, 1)


def test_a_cluster_cannot_move(stage: Stage) -> None:
    stage.given_cluster()
    path = (ORG, CLUSTER, "_")

    again = stage.ask("RegisterCluster", path, {"zone": ZONE})
    moved = stage.ask("RegisterCluster", path, {"zone": "US-WEST-04A"})
    nowhere = stage.ask("RegisterCluster", path, {"zone": "MOON-01A"})

    assert [stage.outcomes(asked) for asked in (again, moved, nowhere)] == [
        ["unchanged"],
        ["Conflict zone: the cluster lies in US-EAST-04A and cannot move"],
        ["Invalid zone: MOON-01A is not a known zone"],
    ]


def test_a_quota_of_something_unknown_is_refused(stage: Stage) -> None:
    content = {"zone": ZONE, "instanceType": H100, "limit": 1}

    asked = [
        stage.ask("SetQuota", (ORG, "_", "_"), {**content, **wrong})
        for wrong in ({"zone": "MOON-01A"}, {"instanceType": "gd-9x"}, {"limit": -1}, {"limits": 1})
    ]

    assert [stage.outcomes(one) for one in asked] == [
        ["Invalid zone: MOON-01A is not known"],
        ["Invalid instanceType: gd-9x is not known"],
        ["Invalid limit: input should be greater than or equal to 0"],
        ["Invalid limits: is not a known field"],
    ]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"targetNodes: 3", "Invalid : the content is not JSON: "),
        (b"", "Invalid : the content is not JSON: "),
        (b"[]", "Invalid : the content is not a JSON object"),
        (b"3", "Invalid : the content is not a JSON object"),
        (b'{"specversion": "1.0", "data": 3}', "Invalid : input should be an object"),
        (b"\xff\xfe", "Invalid : the content is not JSON: "),
    ],
)
def test_what_is_no_json_object_is_refused(stage: Stage, content: bytes, told: str) -> None:
    stage.given_house()

    stage.publish("np.cmd.acme.prod.train.ApplyNodePool", content, "odd")

    (outcome,) = stage.outcomes("odd")
    assert outcome.startswith(told)
    assert stage.dead_letters() == ["validator: ApplyNodePool"]


def test_a_bare_json_command_works_without_an_envelope(stage: Stage) -> None:
    stage.given_house()

    stage.publish("np.cmd.acme.prod.train.ApplyNodePool", json.dumps(manifest()).encode())

    assert stage.counts("train") == (1, 0, 1)


def test_a_bare_scale_works_without_an_envelope(stage: Stage) -> None:
    stage.given_house()
    stage.apply("train", 1)

    stage.publish("np.cmd.acme.prod.train.ScaleNodePool", b'{"targetNodes": 2}')

    assert stage.counts("train") == (2, 0, 2)


def test_content_that_reaches_beyond_its_subject_is_refused(stage: Stage) -> None:
    stage.given_house()
    stage.given_cluster("prod", org="umbrella")
    content = {**manifest(), "org": "umbrella"}

    asked = stage.ask("ApplyNodePool", TRAIN, content)

    assert stage.outcomes(asked) == ["Invalid org: differs from the subject it was sent on"]
    assert stage.shown("train") is None
    assert stage.shown("umbrella/prod/train") is None


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"specversion": "1.0", "id": "x" * 300, "data": {}}, "the id has 300 characters"),
        ({"specversion": "1.0", "id": "x" * 600_000, "data": {}}, "the command has 600"),
        ({"targetNodes": 1, "z" * 5_000: 1}, "is not a known field"),
    ],
    ids=["long id", "more than is taken", "long name"],
)
def test_a_command_of_any_size_is_refused_by_a_message_that_fits_the_bus(
    content: dict[str, object], told: str
) -> None:
    # given a house
    stage = WorldStage()
    stage.given_house()

    # when a command is larger than it should be
    before = len(stage.world.log.entries)
    stage.world.publish("np.cmd.acme.prod.train.ScaleNodePool", json.dumps(content).encode())
    stage.world.run_until_idle()

    # then it is refused, and nothing that is said of it is large
    said = stage.world.log.entries[before + 1 :]
    refusals = [one for one in stage.world.messages(CommandRefused) if told in str(one)]
    assert len(refusals) == 1
    assert max(len(entry.content) for entry in said) < 16_384
