"""What kubectl does with NodePools, column for column, and what the API server refuses."""

import json
import os
import re
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flow.test_manifests import ACCEPTED, REFUSED
from kube.cluster import Cluster
from kube.declared import RESERVED, Document, delete, node_pool, without_skew
from nodepool.contract.catalog import INSTANCE_TYPES
from nodepool.contract.commands import ApplyNodePool
from nodepool.contract.model import API_VERSION, FINALIZER, ManifestMetadata, NodePoolSpec
from validator.rules import malformed

H100 = "gd-8xh100ib-i128"
A100 = "gd-8xa100-i128"
RACKS = next(each.id for each in INSTANCE_TYPES.values() if each.rack_size)
SINCE = "2025-05-30T17:36:00Z"
HEALTHY: Sequence[tuple[str, str, str]] = (
    ("Validated", "Valid", "NodePool configuration is valid."),
    ("Capacity", "Sufficient", "Sufficient capacity available for the requested instance type."),
    ("Quota", "Under", "NodePool is within instance type quota."),
    ("AtTarget", "TargetMet", "NodePool has reached its target node count."),
)


def refusal(cluster: Cluster, document: Document) -> str:
    """What kubectl prints about a manifest that is refused; empty for one that is not."""
    done = cluster.run("create", "--dry-run=server", "-f", "-", given=json.dumps(document))
    assert (done.returncode == 0) is not bool(without_skew(done.stderr))
    return without_skew(done.stderr)


@contextmanager
def applied(cluster: Cluster, document: Document) -> Iterator[None]:
    """A NodePool that is there inside the context."""
    cluster.kubectl("apply", "-f", "-", given=json.dumps(document))
    try:
        yield
    finally:
        metadata = document["metadata"]
        assert isinstance(metadata, dict)
        delete(cluster, str(metadata["name"]))


def set_status(cluster: Cluster, name: str, **status: object) -> None:
    patch = json.dumps({"status": status})
    cluster.kubectl("patch", "nodepool", name, "--subresource=status", "--type=merge", "-p", patch)


def conditions(*given: tuple[str, str, str]) -> Sequence[Document]:
    return [
        {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": SINCE,
        }
        for kind, reason, message in given
    ]


# What is refused: by the validator, and here.

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
    refused = malformed(command)
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


# What kubectl prints.


def test_get_prints_the_documented_columns(declared: Cluster) -> None:
    with applied(declared, node_pool("columns", instanceType=A100)):
        set_status(
            declared, "columns", conditions=conditions(*HEALTHY), currentNodes=1, inProgress=0
        )
        short = declared.kubectl("get", "nodepools", "columns").splitlines()
        wide = declared.kubectl("get", "nodepools", "columns", "-o", "wide").splitlines()

    assert re.split(r" {2,}", short[0].strip()) == [
        *("NAME", "INSTANCE TYPE", "TARGET", "INPROGRESS", "CURRENT"),
        *("VALIDATED", "CAPACITY", "QUOTA", "AGE"),
    ]
    assert short[1].split()[:-1] == ["columns", A100, "1", "0", "1", "Valid", "Sufficient", "Under"]
    assert re.split(r" {2,}", wide[0].strip()) == [
        *("NAME", "INSTANCE TYPE", "TARGET", "INPROGRESS", "CURRENT"),
        *("VALIDATED", "CAPACITY", "QUOTA"),
        *("ALLOCATEDNODES", "ALLOCATED", "ALLOCATEDREASON", "ACCEPTED", "AGE"),
    ]
    assert wide[1].split()[:-1] == short[1].split()[:-1], "what is deprecated is left empty"


def test_the_deprecated_conditions_are_shown_with_wide_where_there_are_some(
    declared: Cluster,
) -> None:
    given = conditions(("Allocated", "Complete", "x"), ("Accepted", "Accepted", "x"))
    with applied(declared, node_pool("deprecated")):
        set_status(declared, "deprecated", conditions=given, allocatedNodes=3)
        wide = declared.kubectl("get", "np", "deprecated", "-o", "wide", "--no-headers")

    assert wide.split()[:-1] == ["deprecated", H100, "1", "3", "True", "Complete", "Accepted"]


DESCRIBED = """\
Name:         described
Namespace:    
Labels:       <none>
Annotations:  <none>
API Version:  compute.coreweave.com/v1alpha1
Kind:         NodePool
Metadata:
  Creation Timestamp:  *
  Generation:          1
  Resource Version:    *
  UID:                 *
Spec:
  Autoscaling:    false
  Instance Type:  gd-8xa100-i128
  Lifecycle:
    Disable Unhealthy Node Eviction:  true
    Scale Down Strategy:              IdleOnly
  Target Nodes:                       1
Status:
  Conditions:
    Last Transition Time:  2025-05-30T17:36:00Z
    Message:               NodePool configuration is valid.
    Reason:                Valid
    Status:                True
    Type:                  Validated
    Last Transition Time:  2025-05-30T17:36:00Z
    Message:               Sufficient capacity available for the requested instance type.
    Reason:                Sufficient
    Status:                True
    Type:                  Capacity
    Last Transition Time:  2025-05-30T17:36:00Z
    Message:               NodePool is within instance type quota.
    Reason:                Under
    Status:                True
    Type:                  Quota
    Last Transition Time:  2025-05-30T17:36:00Z
    Message:               NodePool has reached its target node count.
    Reason:                TargetMet
    Status:                True
    Type:                  AtTarget
  Current Nodes:           1
  In Progress:             0
Events:                    <none>
"""  # noqa: W291


def test_describe_prints_what_is_documented(declared: Cluster) -> None:
    declared.kubectl(
        "create", "-f", "-", given=json.dumps(node_pool("described", instanceType=A100))
    )
    set_status(declared, "described", conditions=conditions(*HEALTHY), currentNodes=1, inProgress=0)

    described = declared.kubectl("describe", "nodepools", "described")

    delete(declared, "described")
    fields = r"(?m)^(  (?:Creation Timestamp|Resource Version|UID): +).*$"
    # The finalizer with which its deletion waits for its Nodes is not documented.
    described = described.replace(f"  Finalizers:\n    {FINALIZER}\n", "")
    shown = re.sub(fields, r"\1*", described)
    # kubectl aligns the lines before and after it apart.
    assert re.sub(":  +", ": ", shown) == re.sub(":  +", ": ", DESCRIBED)


def test_explain_documents_each_field_of_a_spec(declared: Cluster) -> None:
    properties = NodePoolSpec.model_json_schema(by_alias=True)["properties"]

    explained = declared.kubectl("explain", "nodepools.spec")

    found = re.findall(r"(?m)^  (\w+)\t<(.*)>.*\n(?:  enum: .*\n)?    (\S.*)", explained)
    assert sorted(name for name, _, _ in found) == sorted(properties)
    deeper = declared.kubectl("explain", "np.spec.lifecycle.scaleDownStrategy")
    assert "Which Nodes may be removed when the NodePool shrinks." in deeper
    assert "ENUM:\n    IdleOnly\n    PreferIdle\n" in deeper


def test_a_node_pool_goes_by_its_names_and_its_category(declared: Cluster) -> None:
    with applied(declared, node_pool("named")):
        names = [
            declared.kubectl("get", kind, "named", "-o", "name")
            for kind in ("nodepool", "nodepools", "np", "nodepools.compute.coreweave.com")
        ]
        assert "nodepool.compute.coreweave.com/named" in declared.kubectl(
            "get", "coreweave", "-o", "name"
        )

    assert {*names} == {"nodepool.compute.coreweave.com/named\n"}


# What kubectl changes.


def test_the_same_manifest_applied_again_changes_nothing(declared: Cluster) -> None:
    taint = {"key": "team", "effect": "NoSchedule"}
    whole = node_pool("again", nodeTaints=[taint], nodeLabels={"team": "red"}, image={})
    given = json.dumps(whole)
    with applied(declared, whole):
        version = ("get", "np", "again", "-o", "jsonpath={.metadata.resourceVersion}")
        before = declared.kubectl(*version)
        printed = declared.kubectl("apply", "-f", "-", given=given)
        difference = declared.run("diff", "-f", "-", given=given)
        after = declared.kubectl(*version)

    assert printed == "nodepool.compute.coreweave.com/again unchanged\n"
    assert (difference.returncode, difference.stdout) == (0, "")
    assert before == after


def test_two_appliers_own_fields_and_taints_of_their_own(declared: Cluster) -> None:
    # given a NodePool that one applies
    ours = {"key": "ours", "effect": "NoSchedule"}
    theirs = {"key": "theirs", "effect": "NoSchedule"}
    apply = ("apply", "--server-side", "-f", "-")
    document = node_pool("shared", nodeTaints=[ours])
    declared.kubectl(*apply, "--field-manager=ours", given=json.dumps(document))

    # when another one applies a taint of its own
    spec = {"instanceType": H100, "nodeTaints": [theirs]}
    declared.kubectl(
        *apply, "--field-manager=theirs", given=json.dumps({**node_pool("shared"), "spec": spec})
    )

    # then both are there, and a field of the other one is a conflict
    taints = "jsonpath={.spec.nodeTaints[*].key}"
    assert declared.kubectl("get", "np", "shared", "-o", taints) == "ours theirs"
    conflict = declared.run(
        *apply, "--field-manager=theirs", given=json.dumps(node_pool("shared", targetNodes=9))
    )
    assert 'conflict with "ours": .spec.targetNodes' in conflict.stderr

    # and applied again, nothing changes
    version = ("get", "np", "shared", "-o", "jsonpath={.metadata.resourceVersion}")
    before = declared.kubectl(*version)
    declared.kubectl(*apply, "--field-manager=ours", given=json.dumps(document))
    assert declared.kubectl(*version) == before
    delete(declared, "shared")


def test_scale_sets_the_target_and_reads_the_current_nodes(declared: Cluster) -> None:
    with applied(declared, node_pool("scaled")):
        set_status(declared, "scaled", currentNodes=1)
        printed = declared.kubectl("scale", "nodepool", "scaled", "--replicas=3")
        scale = json.loads(
            declared.kubectl("get", "np", "scaled", "--subresource=scale", "-o", "json")
        )
        target = declared.kubectl("get", "np", "scaled", "-o", "jsonpath={.spec.targetNodes}")

    assert printed == "nodepool.compute.coreweave.com/scaled scaled\n"
    assert (scale["spec"]["replicas"], scale["status"]["replicas"], target) == (3, 1, "3")


def test_a_dry_run_changes_nothing(declared: Cluster) -> None:
    given = json.dumps(node_pool("dry"))

    printed = declared.kubectl("apply", "--dry-run=server", "-f", "-", given=given)

    assert printed == "nodepool.compute.coreweave.com/dry created (server dry run)\n"
    assert declared.kubectl("get", "np", "dry", "--ignore-not-found") == ""


def test_a_status_changes_no_spec_and_a_spec_no_status(declared: Cluster) -> None:
    with applied(declared, node_pool("divided")):
        patch = json.dumps({"spec": {"targetNodes": 2}, "status": {"currentNodes": 7}})
        merge = ("--type=merge", "-p", patch)
        declared.kubectl("patch", "np", "divided", *merge)
        declared.kubectl("patch", "np", "divided", "--subresource=status", *merge)
        declared.kubectl(
            "patch", "np", "divided", "--type=merge", "-p", '{"status":{"currentNodes":9}}'
        )
        found = json.loads(declared.kubectl("get", "np", "divided", "-o", "json"))

    assert found["spec"]["targetNodes"] == 2
    assert found["status"] == {"currentNodes": 7}
    assert found["metadata"]["generation"] == 2


def edited(cluster: Cluster, folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """`kubectl edit` of a NodePool `edited`, with a sed script for an editor.

    What the editor is shown goes to the file `shown`.
    """
    editor = folder / "editor"
    editor.write_text(f'#!/bin/sh\ncp "$1" {folder}/shown\nexec sed -i "{script}" "$1"\n')
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    command = ["kubectl", "--kubeconfig", str(cluster.kubeconfig), "edit", "nodepool", "edited"]
    # A change that is refused is kept in a temporary file.
    environment = {**os.environ, "KUBE_EDITOR": str(editor), "TMPDIR": str(folder)}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_edit_saves_what_is_right_and_tells_what_is_wrong(
    declared: Cluster, tmp_path: Path
) -> None:
    with applied(declared, node_pool("edited")):
        saved = edited(declared, tmp_path, "s/targetNodes: 1/targetNodes: 4/")
        target = declared.kubectl("get", "np", "edited", "-o", "jsonpath={.spec.targetNodes}")
        refused = edited(declared, tmp_path, f"s/instanceType: .*/instanceType: {A100}/")

    assert (saved.stdout, target) == ("nodepool.compute.coreweave.com/edited edited\n", "4")
    assert refused.returncode == 1
    assert "Edit cancelled, no valid changes were saved." in refused.stderr
    shown = (tmp_path / "shown").read_text()
    assert (
        f'# * spec.instanceType: Invalid value: "{A100}": InstanceType cannot be changed' in shown
    )


def test_wait_returns_once_a_condition_holds(declared: Cluster) -> None:
    with applied(declared, node_pool("awaited")):
        absent = declared.run("wait", "--for=condition=AtTarget", "np/awaited", "--timeout=0s")
        set_status(declared, "awaited", conditions=conditions(*HEALTHY))
        printed = declared.kubectl("wait", "--for=condition=AtTarget", "np/awaited", "--timeout=9s")

    assert absent.returncode == 1
    assert printed == "nodepool.compute.coreweave.com/awaited condition met\n"


def test_watch_prints_a_line_for_each_change(declared: Cluster) -> None:
    with applied(declared, node_pool("watched")):
        columns = "custom-columns=T:.spec.targetNodes,C:.status.currentNodes"
        with declared.watching("np", "watched", "--no-headers", "-o", columns) as seen:
            declared.kubectl("scale", "np", "watched", "--replicas=2")
            set_status(declared, "watched", currentNodes=2)
            declared.kubectl("wait", "np/watched", "--for=jsonpath={.status.currentNodes}=2")

    assert [line.split() for line in seen] == [["1", "<none>"], ["2", "<none>"], ["2", "2"]]
