"""What users may do with namespaces of their own, and may not with those of the control plane."""

import json
from collections.abc import Sequence

import pytest

from kube.declared import AGENT, DRY, by_user, labelled
from kube.manifests import rendered
from testbed.cluster import Cluster

CONTROL_PLANE = ("hpc-verification", "kube-system", "node-problem-detector")


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
    refusals = {
        "control-plane": "marks namespaces of the control plane; users cannot add it.",
        "other": "of a namespace of users is acme, and no other.",
    }
    for value, refusal in refusals.items():
        label = f"ns.coreweave.cloud/org={value}"
        code, printed = by_user(declared, "label", "--overwrite", "namespace", name, label)
        assert code == 1
        assert refusal in printed
    codes.append(by_user(declared, "label", "namespace", name, "ns.coreweave.cloud/org-")[0])
    assert declared.kubectl(*org) == "acme"
    codes.append(by_user(declared, "delete", "namespace", name)[0])
    assert codes == [0, 0, 0, 0]


def test_a_user_cannot_make_a_namespace_of_the_control_plane(declared: Cluster) -> None:
    given = labelled("Namespace", {"ns.coreweave.cloud/org": "control-plane"})

    code, printed = by_user(declared, *DRY, given=given)

    assert code == 1
    assert "users cannot add it" in printed


def test_the_control_plane_can_change_its_own_namespaces(declared: Cluster) -> None:
    given = labelled("Namespace", {"ns.coreweave.cloud/org": "control-plane"})
    declared.kubectl(*DRY, given=json.dumps(given))

    printed = declared.kubectl("label", "--dry-run=server", "namespace", CONTROL_PLANE[0], "a=b")

    assert printed == f"namespace/{CONTROL_PLANE[0]} labeled (server dry run)\n"
