"""What the API server refuses of NodePools: all that the validator does, by the same fields."""

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from flow.test_manifests import ACCEPTED, REFUSED
from kube.declared import RESERVED, Document, applied
from nodepool.contract.catalog import INSTANCE_TYPES
from nodepool.contract.commands import ApplyNodePool
from nodepool.contract.model import API_VERSION, ManifestMetadata, NodePoolSpec
from nodepool.contract.rules import find_fault
from nodepool.contract.well_known import GRANTS_RIGHTS, SET_BY_CONTROL_PLANE, SET_BY_KUBERNETES
from testbed.cluster import Cluster, without_skew
from testbed.plane import A100, H100, node_pool

RACKS = next(each.id for each in INSTANCE_TYPES.values() if each.rack_size)
OTHERWISE: Mapping[str, str] = {
    "no metadata": "metadata.name: Required value",
    "no name": "metadata.name: Required value",
    "another apiVersion": 'no matches for kind "NodePool" in version "v1"',
    "another kind": 'no matches for kind "Node" in version "compute.coreweave.com/v1alpha1"',
}
"""What cannot be said of a field of an object, since it becomes none."""
IN_THESE_WORDS = (
    "no target",
    "a label with a bad value",
    "a label under coreweave.cloud",
    "a label under coreweave.com",
    "autoscaling without bounds",
    "autoscaling without an upper bound",
    "a target below its bounds",
    "a target above its bounds",
    "autoscaling by the rack",
)
"""The cases whose message is the validator's; types and enums are refused in Kubernetes' words."""


def refusal(cluster: Cluster, document: Document) -> str:
    """What kubectl prints about a manifest that is refused; empty for one that is not."""
    done = cluster.run("create", "--dry-run=server", "-f", "-", given=json.dumps(document))
    assert (done.returncode == 0) is not bool(without_skew(done.stderr))
    return without_skew(done.stderr)


def kubernetes_field(field: str) -> str:
    """A field as the API server names it in a message: a rule about keys names the whole map."""
    return re.sub(r"\[[^\]]*[^0-9\]][^\]]*\]$", "", field)


@pytest.mark.parametrize("name", [name for name in REFUSED if "the subject's" not in name])
def test_what_the_validator_refuses_the_api_server_refuses_by_the_same_field(
    declared: Cluster, name: str
) -> None:
    # given a manifest that the validator refuses
    content, expected = REFUSED[name]
    field, _, message = expected.partition(" ")[2].partition(": ")

    # when it is sent to the API server
    refused = refusal(declared, {"apiVersion": API_VERSION, "kind": "NodePool", **content})

    # then it is refused by the same field, and by a rule in the same words
    assert OTHERWISE.get(name, kubernetes_field(field)) in refused
    if name in IN_THESE_WORDS:
        assert re.sub("^value '.*' must", "must", message) in refused


SPECS: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "an instance type that is no label value": (
        {"instanceType": "a b"},
        "spec.instanceType: Invalid value: \"a b\": must be letters, digits, '-', '_' or '.'",
    ),
    "a node label's value that is too long": (
        {"nodeLabels": {"a": "v" * 64}},
        "spec.nodeLabels.a: Too long: may not be more than 63 bytes",
    ),
    "a node label's key whose name is too long": (
        {"nodeLabels": {"a" * 64: ""}},
        f"spec.nodeLabels: Invalid value: key {'a' * 64} must be a name of 1 to 63 letters",
    ),
    "a node label's key whose prefix is too long": (
        {"nodeLabels": {f"{'a' * 254}/b": ""}},
        f"spec.nodeLabels: Invalid value: key {'a' * 254}/b must be a name of 1 to 63 letters",
    ),
    "a node label in a reserved domain itself": (
        {"nodeLabels": {"coreweave.com/x": ""}},
        f"spec.nodeLabels: Forbidden: {RESERVED}",
    ),
    "annotations that are too large": (
        {"nodeAnnotations": {"a": "x" * 262_144}},
        "spec.nodeAnnotations: Invalid value: annotations take more than the 262144 bytes allowed",
    ),
    "annotations that are too large in bytes": (
        {"nodeAnnotations": {"a": "√" * 90_000}},
        "spec.nodeAnnotations: Invalid value: annotations take more than the 262144 bytes allowed",
    ),
    "an annotation's prefix with an underscore": (
        {"nodeAnnotations": {"a_b/c": ""}},
        "spec.nodeAnnotations: Invalid value: key a_b/c must be a name of 1 to 63 letters",
    ),
    "a taint's value": (
        {"nodeTaints": [{"key": "a", "value": "not this", "effect": "NoSchedule"}]},
        'spec.nodeTaints[0].value: Invalid value: "not this": must be letters',
    ),
    "a taint that is managed": (
        {
            "nodeTaints": [
                {"key": "a", "effect": "NoSchedule"},
                {"key": "is_gpu", "value": "x", "effect": "PreferNoSchedule"},
            ]
        },
        "spec.nodeTaints[1]: Forbidden: remove is_gpu:PreferNoSchedule:"
        " the control plane sets it where it belongs",
    ),
    "a cordon": (
        {"nodeTaints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]},
        "spec.nodeTaints[0]: Forbidden: remove node.kubernetes.io/unschedulable:NoSchedule:"
        " the control plane sets it where it belongs",
    ),
    "a taint that Kubernetes sets": (
        {"nodeTaints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]},
        "spec.nodeTaints[0]: Forbidden: remove node.kubernetes.io/unreachable:NoExecute:"
        f" {SET_BY_KUBERNETES}",
    ),
    "a label that Kubernetes sets": (
        {"nodeLabels": {"a": "", "beta.kubernetes.io/os": "linux"}},
        f"spec.nodeLabels: Forbidden: remove beta.kubernetes.io/os: {SET_BY_KUBERNETES}",
    ),
    "a label that the control plane sets": (
        {"nodeLabels": {"a": "", "topology.kubernetes.io/zone": "here"}},
        f"spec.nodeLabels: Forbidden: remove topology.kubernetes.io/zone: {SET_BY_CONTROL_PLANE}",
    ),
    "a label that grants rights": (
        {"nodeLabels": {"a": "", "x.node-restriction.kubernetes.io/trusted": ""}},
        "spec.nodeLabels: Forbidden: remove x.node-restriction.kubernetes.io/trusted:"
        f" {GRANTS_RIGHTS}",
    ),
    "a role": (
        {"nodeLabels": {"a": "", "node-role.kubernetes.io/control-plane": ""}},
        "spec.nodeLabels: Forbidden: remove node-role.kubernetes.io/control-plane:"
        f" {GRANTS_RIGHTS}",
    ),
    "an annotation that Kubernetes sets": (
        {"nodeAnnotations": {"node.alpha.kubernetes.io/ttl": "0"}},
        "spec.nodeAnnotations: Forbidden: remove node.alpha.kubernetes.io/ttl:"
        f" {SET_BY_KUBERNETES}",
    ),
    "annotations that leave no room on a Node": (
        {"nodeAnnotations": {"a": "x" * 196_607}},
        "spec.nodeAnnotations: Invalid value: annotations take more than the 196608 bytes allowed",
    ),
    "bounds that cross": (
        {"autoscaling": True, "minNodes": 3, "maxNodes": 2},
        "spec.targetNodes: Invalid value:"
        " must lie between minNodes 3 and maxNodes 2 while autoscaling is true",
    ),
    "racks of a type that has none": (
        {"targetNodes": None, "targetRacks": 1},
        f"spec.targetRacks: Invalid value: give targetNodes instead: {H100} does not come in racks",
    ),
}


@pytest.mark.parametrize(("fields", "expected"), SPECS.values(), ids=SPECS)
def test_a_spec_is_refused_by_the_validator_and_by_the_api_server(
    declared: Cluster, fields: Mapping[str, Any], expected: str
) -> None:
    # given a spec that the validator refuses
    document = node_pool("train", **fields)
    spec = NodePoolSpec.model_validate(document["spec"])
    command = ApplyNodePool(
        org="acme", cluster="prod", pool="train", metadata=ManifestMetadata(name="train"), spec=spec
    )
    refused = find_fault(command)
    assert refused is not None
    assert expected.startswith(f"{kubernetes_field(refused.field)}")

    # when it is sent to the API server
    # then it is refused there as well
    assert expected in refusal(declared, document)


@pytest.mark.parametrize("spec", ACCEPTED.values(), ids=ACCEPTED)
def test_what_the_validator_accepts_the_api_server_takes(
    declared: Cluster, spec: Mapping[str, Any]
) -> None:
    assert refusal(declared, node_pool("train", **spec)) == ""


def test_annotations_that_leave_room_for_their_names_on_a_node_are_taken(
    declared: Cluster,
) -> None:
    assert refusal(declared, node_pool("train", nodeAnnotations={"a": "x" * 196_606})) == ""


def test_two_targets_are_refused(declared: Cluster) -> None:
    refused = refusal(declared, node_pool("train", instanceType=RACKS, targetRacks=1))

    assert (
        "spec.targetRacks: Invalid value: cannot be given beside targetNodes;"
        " leave one of the two out" in refused
    )


def test_a_name_that_is_too_long_for_a_label_is_refused(declared: Cluster) -> None:
    assert "metadata.name: Too long: may not be more than 63 bytes" in refusal(
        declared, node_pool("a" * 64)
    )


def test_too_many_values_of_an_affinity_are_refused(declared: Cluster) -> None:
    def affinity(count: int) -> Document:
        expression = {"key": "a", "operator": "In", "values": [f"v{n}" for n in range(count)]}
        terms = [{"matchExpressions": [expression]}, {"matchExpressions": [expression]}]
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        return {"nodeAffinity": {required: {"nodeSelectorTerms": terms}}}

    assert refusal(declared, node_pool("train", affinity=affinity(500))) == ""
    assert "has more than the 1000 values allowed" in refusal(
        declared, node_pool("train", affinity=affinity(501))
    )


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (
            {"instanceType": H100},
            {"instanceType": A100},
            f'spec.instanceType: Invalid value: "{A100}": InstanceType cannot be changed',
        ),
        (
            {},
            {"computeClass": "Spot"},
            "spec.computeClass: Invalid value: ComputeClass cannot be changed",
        ),
        (
            {"computeClass": "spot"},
            {"computeClass": None},
            "spec.computeClass: Invalid value: ComputeClass cannot be changed",
        ),
        ({"computeClass": "spot"}, {"computeClass": "Spot"}, ""),
        ({}, {"computeClass": "default"}, ""),
    ],
    ids=["type", "to spot", "from spot", "the other spelling of spot", "the default by its name"],
)
def test_instance_type_and_compute_class_never_change(
    declared: Cluster, before: Mapping[str, Any], after: Mapping[str, Any], expected: str
) -> None:
    with applied(declared, node_pool("immutable", **before)):
        done = declared.run(
            "patch", "nodepool", "immutable", "--type=merge", "-p", json.dumps({"spec": after})
        )

    message = f'The NodePool "immutable" is invalid: {expected}\n' if expected else ""
    assert without_skew(done.stderr) == message
