"""Which labels users may not set on Pods, Nodes, namespaces and the templates of workloads."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from kube.declared import ACCOUNT, DRY, RESERVED, by_user, labelled, pod
from testbed.cluster import Cluster, Document

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
    name = "g0a1b2c"
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
        ("--as", "system:node:g0a1b2c", "--as-group", "system:nodes"),
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
    if identity[1] != "system:node:g0a1b2c":
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
