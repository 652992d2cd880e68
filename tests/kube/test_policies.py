"""What users may not do, and what the cluster adds to their Pods and namespaces."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import yaml

from kube.cluster import Cluster, Document, wait_until
from kube.declared import ACCOUNT, AGENT, RESERVED, by_user, pod
from kube.manifests import ROOT, rendered
from nodepool.contract.pods import reserved_taint

DRY = ("create", "--dry-run=server", "-f", "-")
CPU = {"key": "is_cpu_compute", "operator": "Exists", "effect": "NoSchedule"}
CONTROL_PLANE = ("hpc-verification", "kube-system", "node-problem-detector")
OF_USERS = (
    "qos.coreweave.cloud/interruptable",
    "qos.coreweave.com/graceful-interruptible",
    "qos.coreweave.cloud/graceful-interruptible",
    "cks.coreweave.cloud/system-critical",
)
RESERVED_KEYS = (
    "foo.coreweave.cloud/bar",
    "foo.coreweave.com/bar",
    "coreweave.cloud/bar",
    "coreweave.com/bar",
    "a.b.coreweave.cloud/bar",
    "node.coreweave.cloud/state",
    "qos.coreweave.com/interruptable",
)
ALLOWED_KEYS = ("team", "example.com/team", "mycoreweave.cloud/x", "coreweave.cloud.example.com/x")
INVALID_KEYS = ("FOO.coreweave.cloud/bar", "foo.CoreWeave.com/bar", "foo.coreweave.cloud./bar")
"""Spellings that are no label key at all."""


def labelled(kind: str, labels: Mapping[str, str]) -> Document:
    """An object of a kind with labels."""
    if kind == "Pod":
        return pod("labelled", labels)
    metadata = {"name": "labelled", "labels": labels}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}


# Reserved labels.


@pytest.mark.parametrize("kind", ["Pod", "Node", "Namespace"])
@pytest.mark.parametrize("key", RESERVED_KEYS)
def test_a_user_cannot_create_what_has_a_reserved_label(
    declared: Cluster, kind: str, key: str
) -> None:
    code, printed = by_user(declared, *DRY, given=labelled(kind, {key: "true"}))

    assert code == 1
    assert printed.endswith(f"denied request: {RESERVED}\n")


@pytest.mark.parametrize("kind", ["Pod", "Node", "Namespace"])
@pytest.mark.parametrize("key", INVALID_KEYS)
def test_another_spelling_of_a_reserved_domain_is_no_label(
    declared: Cluster, kind: str, key: str
) -> None:
    code, printed = by_user(declared, *DRY, given=labelled(kind, {key: "true"}))

    assert code == 1
    assert f'metadata.labels: Invalid value: "{key}"' in printed


@pytest.mark.parametrize("kind", ["Pod", "Node", "Namespace"])
@pytest.mark.parametrize("key", ALLOWED_KEYS)
def test_a_user_can_create_what_has_another_label(declared: Cluster, kind: str, key: str) -> None:
    code, printed = by_user(declared, *DRY, given=labelled(kind, {key: "true"}))

    assert (code, printed.split(" ", 1)[1]) == (0, "created (server dry run)\n")


@pytest.mark.parametrize("key", OF_USERS)
def test_the_labels_that_are_documented_for_pods_are_allowed(declared: Cluster, key: str) -> None:
    code, _ = by_user(declared, *DRY, given=pod("labelled", {key: "true"}))

    assert code == 0


def test_a_label_for_pods_is_none_for_nodes_but_for_the_permitted_one(declared: Cluster) -> None:
    codes = [by_user(declared, *DRY, given=labelled("Node", {key: "true"}))[0] for key in OF_USERS]

    assert codes == [1, 1, 1, 0]


@pytest.fixture
def node(declared: Cluster) -> Iterator[str]:
    """A Node with a reserved label."""
    name = "policies-node"
    metadata = {"name": name, "labels": {"node.coreweave.cloud/state": "production"}}
    given = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
    declared.kubectl("create", "-f", "-", given=json.dumps(given))
    yield name
    declared.kubectl("delete", "node", name)


@pytest.mark.parametrize(
    "label",
    [
        "node.coreweave.cloud/state=triage",
        "node.coreweave.cloud/state-",
        "node.coreweave.cloud/reserved=mine",
    ],
    ids=["changed", "removed", "added"],
)
def test_a_user_cannot_change_a_reserved_label_of_a_node(
    declared: Cluster, node: str, label: str
) -> None:
    code, printed = by_user(declared, "label", "--overwrite", "node", node, label)

    assert code == 1
    assert RESERVED in printed


def test_a_user_cannot_change_a_reserved_label_by_way_of_status(
    declared: Cluster, node: str
) -> None:
    patch = json.dumps({"metadata": {"labels": {"node.coreweave.cloud/state": "triage"}}})

    code, printed = by_user(
        declared, "patch", "node", node, "--subresource=status", "--type=merge", "-p", patch
    )

    assert code == 1
    assert RESERVED in printed


def test_a_node_with_reserved_labels_can_be_changed_otherwise(declared: Cluster, node: str) -> None:
    codes = [
        by_user(declared, *arguments)[0]
        for arguments in (
            ("label", "node", node, "team=red"),
            ("label", "--overwrite", "node", node, "node.coreweave.cloud/state=production"),
            ("cordon", node),
            ("taint", "node", node, "team=red:NoSchedule"),
        )
    ]

    assert codes == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "identity",
    [
        ("--as", ACCOUNT, "--as-group", "system:serviceaccounts:kube-system"),
        ("--as", "system:node:policies-node", "--as-group", "system:nodes"),
        ("--as", "root", "--as-group", "system:masters"),
    ],
    ids=["the agent", "a kubelet", "who can do everything"],
)
def test_the_control_plane_sets_reserved_labels(
    declared: Cluster, node: str, identity: Sequence[str]
) -> None:
    done = declared.run(
        "label", "--overwrite", "node", node, "node.coreweave.cloud/state=triage", *identity
    )

    # Of a kubelet, Kubernetes itself has a say about labels; no policy has.
    assert "ValidatingAdmissionPolicy" not in done.stderr
    if identity[1] != "system:node:policies-node":
        assert done.returncode == 0, done.stderr


POD_TEMPLATE = {"spec": {"containers": [{"name": "only", "image": "none"}]}}


def workload(kind: str, labels: Mapping[str, str]) -> Document:
    """A workload whose Pods have labels."""
    template: dict[str, Any] = {"metadata": {"labels": {"app": "x", **labels}}, **POD_TEMPLATE}
    selector: Mapping[str, Any] = {"matchLabels": {"app": "x"}}
    ending = {"metadata": template["metadata"], "spec": {**POD_TEMPLATE["spec"]}}
    ending["spec"]["restartPolicy"] = "Never"
    found: Mapping[str, tuple[str, Mapping[str, Any]]] = {
        "Deployment": ("apps/v1", {"spec": {"selector": selector, "template": template}}),
        "ReplicaSet": ("apps/v1", {"spec": {"selector": selector, "template": template}}),
        "DaemonSet": ("apps/v1", {"spec": {"selector": selector, "template": template}}),
        "StatefulSet": (
            "apps/v1",
            {"spec": {"selector": selector, "template": template, "serviceName": "x"}},
        ),
        "Job": ("batch/v1", {"spec": {"template": ending}}),
        "CronJob": (
            "batch/v1",
            {"spec": {"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": ending}}}},
        ),
        "ReplicationController": ("v1", {"spec": {"template": template}}),
        "PodTemplate": ("v1", {"template": template}),
    }
    version, body = found[kind]
    metadata = {"name": "templated", "namespace": "default"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **body}


KINDS = (
    *("Deployment", "ReplicaSet", "DaemonSet", "StatefulSet", "Job", "CronJob"),
    *("ReplicationController", "PodTemplate"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_template_has_no_reserved_label_that_its_pods_may_not_have(
    declared: Cluster, kind: str
) -> None:
    refused, printed = by_user(declared, *DRY, given=workload(kind, {RESERVED_KEYS[0]: "true"}))
    allowed, _ = by_user(declared, *DRY, given=workload(kind, dict.fromkeys(OF_USERS, "true")))

    assert (refused, allowed) == (1, 0)
    assert printed.endswith(f"denied request: {RESERVED}\n")


def test_a_template_that_has_a_reserved_label_already_can_be_changed_otherwise(
    declared: Cluster,
) -> None:
    # given a Deployment of the control plane's
    given = workload("Deployment", {RESERVED_KEYS[0]: "true"})
    declared.kubectl("create", "-f", "-", given=json.dumps(given))
    try:
        # when a user scales it, and adds another such label to its template
        scaled, _ = by_user(
            declared,
            *("patch", "deployment", "templated", "--type=merge", "-p", '{"spec":{"replicas":0}}'),
        )
        labels = {"spec": {"template": {"metadata": {"labels": {RESERVED_KEYS[1]: "true"}}}}}
        added, printed = by_user(
            declared,
            *("patch", "deployment", "templated", "--type=merge", "-p", json.dumps(labels)),
        )
    finally:
        declared.kubectl("delete", "deployment", "templated")

    # then only the second is refused
    assert (scaled, added) == (0, 1)
    assert RESERVED in printed


# Namespaces.


def test_the_documented_command_prints_the_namespaces_of_the_control_plane(
    declared: Cluster,
) -> None:
    printed = declared.kubectl(
        "get", "namespaces", "--selector=ns.coreweave.cloud/org=control-plane"
    )

    lines = [line.split() for line in printed.splitlines()]
    assert [line[:2] for line in lines] == [
        ["NAME", "STATUS"],
        *([name, "Active"] for name in CONTROL_PLANE),
    ]
    assert lines[0][2:] == ["AGE"]


@pytest.mark.parametrize("name", CONTROL_PLANE)
@pytest.mark.parametrize(
    "arguments",
    [
        ("delete", "namespace", "--dry-run=server"),
        ("label", "--dry-run=server", "--overwrite", "namespace", "team=red"),
        ("label", "--dry-run=server", "namespace", "ns.coreweave.cloud/org-"),
        ("label", "--dry-run=server", "--overwrite", "namespace", "ns.coreweave.cloud/org=acme"),
        ("annotate", "--dry-run=server", "namespace", "note=mine"),
    ],
    ids=["deleted", "labelled", "given free", "taken over", "annotated"],
)
def test_a_user_cannot_change_a_namespace_of_the_control_plane(
    declared: Cluster, name: str, arguments: Sequence[str]
) -> None:
    at = arguments.index("namespace") + 1

    code, printed = by_user(declared, *arguments[:at], name, *arguments[at:])

    # Kubernetes itself keeps the first of them from being deleted.
    by_kubernetes = (name, arguments[0]) == ("kube-system", "delete")
    message = "may not be deleted" if by_kubernetes else "users cannot change or delete it"
    assert code == 1
    assert message in printed


def test_a_namespace_of_the_control_plane_can_be_applied_as_it_is(declared: Cluster) -> None:
    given = next(
        item
        for item in rendered(AGENT).of_kind("Namespace")
        if item["metadata"]["name"] == "hpc-verification"
    )
    declared.kubectl(
        "apply", "--server-side", "--force-conflicts", "-f", "-", given=json.dumps(given)
    )

    code, printed = by_user(
        declared, "apply", "--server-side", "--force-conflicts", "-f", "-", given=given
    )

    assert (code, printed) == (0, "namespace/hpc-verification serverside-applied\n")


def test_users_have_full_control_of_their_own_namespaces(declared: Cluster) -> None:
    # given a namespace that a user creates
    name = "of-a-user"
    org = ("get", "namespace", name, "-o", r"jsonpath={.metadata.labels.ns\.coreweave\.cloud/org}")
    codes = [by_user(declared, "create", "namespace", name)[0]]

    # then it carries the organisation's ID
    assert declared.kubectl(*org) == "acme"

    # and the user changes and deletes it, but for that label
    codes.append(by_user(declared, "label", "namespace", name, "team=red")[0])
    for value in ("=control-plane", "=other"):
        code, printed = by_user(
            declared, "label", "--overwrite", "namespace", name, f"ns.coreweave.cloud/org{value}"
        )
        assert code == 1
        assert "The label ns.coreweave.cloud/org" in printed
    codes.append(by_user(declared, "label", "namespace", name, "ns.coreweave.cloud/org-")[0])
    assert declared.kubectl(*org) == "acme"
    codes.append(by_user(declared, "delete", "namespace", name)[0])
    assert codes == [0, 0, 0, 0]


def test_a_user_cannot_make_a_namespace_of_the_control_plane(declared: Cluster) -> None:
    given = labelled("Namespace", {"ns.coreweave.cloud/org": "control-plane"})

    code, printed = by_user(declared, *DRY, given=given)

    assert code == 1
    assert "The label ns.coreweave.cloud/org" in printed


def test_the_control_plane_can_change_its_own_namespaces(declared: Cluster) -> None:
    given = labelled("Namespace", {"ns.coreweave.cloud/org": "control-plane"})
    declared.kubectl(*DRY, given=json.dumps(given))

    printed = declared.kubectl("label", "--dry-run=server", "namespace", CONTROL_PLANE[0], "a=b")

    assert printed == f"namespace/{CONTROL_PLANE[0]} labeled (server dry run)\n"


# Tolerations.


def resources(kind: str, **amounts: str) -> Document:
    names = {"gpu": "nvidia.com/gpu", "accelerator": "sunk.coreweave.com/accelerator", "cpu": "cpu"}
    found = {names[name]: amount for name, amount in amounts.items()}
    # A GPU that is requested is limited to the same amount.
    return {
        "resources": {"requests": found, "limits": found} if kind == "requests" else {kind: found}
    }


def only(**more: object) -> Document:
    return {"name": "only", "image": "none", **more}


WITHOUT_GPU: Mapping[str, Mapping[str, Any]] = {
    "no resources": {},
    "processors": {"containers": [only(**resources("requests", cpu="1"))]},
    "none of them": {"containers": [only(**resources("limits", gpu="0"))]},
    "tolerations of another kind": {"tolerations": [{"key": "team", "operator": "Exists"}]},
    "a toleration of another effect": {"tolerations": [{**CPU, "effect": "NoExecute"}]},
    "a toleration of one value": {"tolerations": [{**CPU, "operator": "Equal", "value": "x"}]},
}
WITH_GPU: Mapping[str, Mapping[str, Any]] = {
    "a limit": {"containers": [only(**resources("limits", gpu="1"))]},
    "a request": {"containers": [only(**resources("requests", gpu="8"))]},
    "the other name": {"containers": [only(**resources("limits", accelerator="1"))]},
    "the second container": {
        "containers": [only(), {**only(**resources("limits", gpu="1")), "name": "b"}]
    },
    "an init container": {
        "initContainers": [{**only(**resources("limits", gpu="1")), "name": "b"}]
    },
}


def tolerations(cluster: Cluster, spec: Mapping[str, Any], namespace: str = "default") -> Any:
    """The tolerations that a user's new Pod gets, but those of every Pod."""
    given = {**pod("tolerating"), "metadata": {"name": "tolerating", "namespace": namespace}}
    given["spec"] = {**pod("x")["spec"], **spec}  # type: ignore[dict-item]
    code, printed = by_user(cluster, *DRY, "-o", "json", given=given)
    assert code == 0, printed
    found = json.loads(printed)["spec"]["tolerations"]
    return [item for item in found if not item["key"].startswith("node.kubernetes.io/")]


@pytest.mark.parametrize("spec", WITHOUT_GPU.values(), ids=WITHOUT_GPU)
def test_a_pod_without_gpus_tolerates_nodes_without_gpus(
    declared: Cluster, spec: Mapping[str, Any]
) -> None:
    assert tolerations(declared, spec) == [*spec.get("tolerations", ()), CPU]


@pytest.mark.parametrize("spec", WITH_GPU.values(), ids=WITH_GPU)
def test_a_pod_with_gpus_does_not(declared: Cluster, spec: Mapping[str, Any]) -> None:
    assert tolerations(declared, spec) == []


@pytest.mark.parametrize("given", [CPU, {"key": "is_cpu_compute", "operator": "Exists"}])
def test_a_toleration_that_is_there_is_not_added_again(
    declared: Cluster, given: Mapping[str, str]
) -> None:
    assert tolerations(declared, {"tolerations": [given]}) == [given]


HASH = reserved_taint("acme").value


@pytest.fixture(scope="module")
def with_reserved_taint(declared: Cluster) -> Iterator[Cluster]:
    """The cluster with the setting of the services that taints Nodes in production as well."""

    def set_hash(value: str | None) -> None:
        patch = json.dumps({"data": {"RESERVED_HASH": value}})
        declared.kubectl(
            "patch", "configmap", "nodepool-agent", "-n", "kube-system", "--type=merge", "-p", patch
        )
        wait_until(
            "the policy knows of it",
            lambda: (len(tolerations(declared, {})) == 2) is (value is not None),
            30,
        )

    set_hash(HASH)
    yield declared
    set_hash(None)


def test_where_production_is_tainted_pods_of_the_organisation_tolerate_it(
    with_reserved_taint: Cluster,
) -> None:
    reserved = {"key": "node.coreweave.cloud/reserved", "operator": "Equal", "value": HASH}

    plain = tolerations(with_reserved_taint, {})
    on_gpus = tolerations(with_reserved_taint, WITH_GPU["a limit"])
    already = tolerations(with_reserved_taint, {"tolerations": [reserved]})
    of_the_control_plane = tolerations(with_reserved_taint, {}, "hpc-verification")

    assert [item for item in plain if item != CPU] == [reserved]
    assert on_gpus == [reserved]
    assert already == [reserved, CPU]
    assert of_the_control_plane == [CPU]


# The policies themselves.


def test_every_policy_exempts_the_same_and_is_bound(declared: Cluster) -> None:
    text = (ROOT / AGENT / "validating.yaml").read_text(encoding="utf-8")
    documents = [*yaml.safe_load_all(text)]
    policies = [item for item in documents if item["kind"] == "ValidatingAdmissionPolicy"]
    bindings = [item for item in documents if item["kind"].endswith("Binding")]

    exempt = {json.dumps(item["spec"]["matchConditions"]) for item in policies}

    assert len(exempt) == 1
    assert [item["spec"]["policyName"] for item in bindings] == [
        item["metadata"]["name"] for item in policies
    ]
    assert all(item["spec"]["validationActions"] == ["Deny"] for item in bindings)


def test_the_api_server_has_no_doubts_about_an_expression(declared: Cluster) -> None:
    def doubts() -> Sequence[object]:
        found = declared.objects("validatingadmissionpolicies")
        return [item["status"].get("typeChecking") for item in found]

    wait_until("each expression was checked", lambda: None not in doubts(), 30)

    assert doubts() == [{}] * 4
