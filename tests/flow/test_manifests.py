"""Which manifests are refused, naming the field at fault, and which are accepted."""

from collections.abc import Mapping
from typing import Any

import pytest

from contracts.crd_status import MESSAGE_MAX, PROFILE_MAX
from nodepool.contract.affinity import EXPRESSIONS_MAX, TERMS_MAX
from nodepool.contract.documents import field
from support.constants import H100, ZONE
from support.harness import Harness
from support.manifests import TRAIN, manifest, rack_affinity
from support.world_harness import WorldHarness

GB200 = "gb200-4x"


RESERVED = "Namespaces `*.coreweave.cloud` or `*.coreweave.com` are not allowed."


REFUSED: Mapping[str, tuple[Mapping[str, Any], str]] = {
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
        "Invalid spec.targetNode: is not a known field; did you mean targetNodes?",
    ),
    "a misspelt field that is required": (
        {**manifest(), "spec": {"instanceType": H100, "targetNode": 1}},
        "Invalid spec.targetNode: is not a known field; did you mean targetNodes?",
    ),
    "a misspelt field in a list": (
        manifest(nodeTaints=[{"key": "a", "efect": "NoSchedule"}]),
        "Invalid spec.nodeTaints[0].efect: is not a known field; did you mean effect?",
    ),
    "an unknown field that is like no other": (
        manifest(banana=1),
        "Invalid spec.banana: is not a known field",
    ),
    "an unknown field further in": (
        manifest(lifecycle={"scaleDown": "IdleOnly"}),
        "Invalid spec.lifecycle.scaleDown: is not a known field; did you mean scaleDownStrategy?",
    ),
    "an unknown field beside the spec": (
        {**manifest(), "spek": {}},
        "Invalid spek: is not a known field; did you mean spec?",
    ),
    "an unknown strategy": (
        manifest(lifecycle={"scaleDownStrategy": "Idle"}),
        "Invalid spec.lifecycle.scaleDownStrategy: input should be 'IdleOnly' or 'PreferIdle'",
    ),
    "an unknown release train": (
        manifest(image={"releaseTrain": "edge"}),
        "Invalid spec.image.releaseTrain: input should be 'stable' or 'latest'",
    ),
    "an image name that is too long": (
        manifest(image={"name": "x" * 1025}),
        "Invalid spec.image.name: has 1025 characters, more than the 1024 allowed",
    ),
    "a kernel that is too long": (
        manifest(image={"kernel": "x" * 1025}),
        "Invalid spec.image.kernel: has 1025 characters, more than the 1024 allowed",
    ),
    "a region that is too long": (
        manifest(region="x" * 1025),
        "Invalid spec.region: has 1025 characters, more than the 1024 allowed",
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


def list_outcomes(harness: Harness) -> dict[str, list[str]]:
    """Apply each wrong manifest; return the outcomes by what is wrong."""
    sent = {
        name: harness.send("ApplyNodePool", TRAIN, content)
        for name, (content, _) in REFUSED.items()
    }
    return {name: harness.outcomes(command) for name, command in sent.items()}


def test_a_wrong_manifest_is_refused_naming_its_field(harness: Harness) -> None:
    harness.given_data_center()

    outcomes = list_outcomes(harness)

    assert outcomes == {name: [expected] for name, (_, expected) in REFUSED.items()}
    assert harness.messages("train") == []
    assert harness.node_pool("train") is None


def test_a_wrong_manifest_does_not_change_the_pool(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 2)
    before = world.node_pool("train")

    outcomes = list_outcomes(world)

    assert outcomes == {name: [expected] for name, (_, expected) in REFUSED.items()}
    assert world.node_pool("train") == before


ACCEPTED: Mapping[str, Mapping[str, Any]] = {
    "the label that is allowed": {"nodeLabels": {"cks.coreweave.cloud/system-critical": "true"}},
    "Spot with a capital": {"computeClass": "Spot"},
    "bounds without autoscaling": {"minNodes": 9, "maxNodes": 0},
    "autoscaling within its bounds": {"autoscaling": True, "minNodes": 1, "maxNodes": 1},
    "the zone as region": {"region": ZONE},
    "an image": {"image": {"kernel": "6.8", "name": "ncore", "releaseTrain": "latest"}},
    "the longest texts of an image": {"image": {"kernel": "x" * 1024, "name": "x" * 1024}},
    "taints": {"nodeTaints": [{"key": "a", "value": "b", "effect": "NoExecute"}]},
}


def test_a_manifest_is_accepted_with(harness: Harness) -> None:
    harness.given_data_center()

    sent = {name: harness.apply(pool_of(name), 1, **spec) for name, spec in ACCEPTED.items()}

    outcomes = {name: harness.outcomes(command) for name, command in sent.items()}
    assert outcomes == {name: ["created 1"] for name in ACCEPTED}
    counts = {name: harness.node_counts(pool_of(name)) for name in ACCEPTED}
    assert counts == dict.fromkeys(ACCEPTED, (1, 0, 1))


def pool_of(name: str) -> str:
    """Return the name of the NodePool with this accepted manifest."""
    return name.lower().replace(" ", "-")


def longest_affinity() -> dict[str, object]:
    """Return an affinity with the most comparisons of long labels, which no machine meets."""
    requirement = {"key": f"{'a' * 63}.io/{'b' * 63}", "operator": "In", "values": ["c" * 63]}
    term = {"matchExpressions": [requirement] * EXPRESSIONS_MAX}
    terms = {"nodeSelectorTerms": [term] * TERMS_MAX}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(
            {"image": {"kernel": "x" * 1024, "name": "x" * 1024, "releaseTrain": "latest"}},
            id="the longest image",
        ),
        pytest.param({"region": "x" * 1024}, id="the longest region"),
        pytest.param({"affinity": longest_affinity()}, id="the longest affinity"),
    ],
)
def test_the_definition_for_kubernetes_takes_the_status_of(
    world: WorldHarness, spec: Mapping[str, Any]
) -> None:
    world.given_data_center()

    command = world.apply("train", 1, **spec)

    assert world.outcomes(command) == ["created 1"]
    pool = world.node_pool("train")
    assert pool is not None
    messages = [condition["message"] for condition in pool["status"]["conditions"]]
    assert max(map(len, messages)) <= MESSAGE_MAX
    assert len(str(field(pool, "status", "nodeProfile"))) <= PROFILE_MAX


@pytest.mark.parametrize("affinity", [rack_affinity("r7"), {}, {"nodeAffinity": {}}])
def test_a_node_pool_as_it_was_read_can_be_applied_again(
    harness: Harness, affinity: Mapping[str, object]
) -> None:
    harness.given_data_center()
    harness.apply(
        "train",
        1,
        computeClass="Spot",
        affinity=affinity,
        image={},
        nodeLabels={"team": "red"},
    )
    read = harness.node_pool("train")
    assert read is not None

    command = harness.send("ApplyNodePool", TRAIN, read)

    assert harness.outcomes(command) == ["unchanged 1"]


def test_a_bad_name_is_refused(harness: Harness) -> None:
    harness.given_data_center()

    command = harness.apply("Train_1", 1)

    assert harness.outcomes(command) == [
        "Invalid metadata.name: name 'Train_1' must be lower case letters, digits, '-' or '.', "
        "with a letter or digit at both ends of every part (RFC 1123 subdomain)"
    ]


def test_a_name_may_have_dots(harness: Harness) -> None:
    harness.given_data_center()

    command = harness.apply("train.v1", 1)

    assert harness.outcomes(command) == ["created 1"]
    assert harness.node_counts("train.v1") == (1, 0, 1)
