"""What the agent may do in a cluster: what it needs, and nothing else."""

import json
import re
from collections.abc import Iterator, Sequence

import pytest

from kube.declared import ACCOUNT, AGENT
from kube.manifests import rendered
from testbed.cluster import Cluster, without_skew
from testbed.plane import node_pool

DEFINITION = "customresourcedefinitions.apiextensions.k8s.io/nodepools.compute.coreweave.com"
TOLERATION = "admissionregistration.k8s.io/nodepool-reserved-toleration"
NEEDED = (
    *(("", f"{verb} nodepools") for verb in ("get", "list", "watch", "create", "patch")),
    ("", "delete nodepools"),
    *(("", f"{verb} nodepools/status") for verb in ("get", "patch")),
    ("", f"get {DEFINITION}"),
    ("", "get namespaces/kube-system"),
    *(("", f"{verb} nodes") for verb in ("get", "list", "watch", "create", "patch", "delete")),
    ("", "patch nodes/status"),
    *(("any", f"{verb} pods") for verb in ("get", "list", "watch", "delete")),
    ("any", "create pods/eviction"),
    ("any", "create events"),
    ("kube-system", "create leases"),
    *(("kube-system", f"{verb} leases/nodepool-agent") for verb in ("get", "update")),
    ("", f"get mutatingadmissionpolicies.{TOLERATION}"),
    ("", f"get mutatingadmissionpolicybindings.{TOLERATION}"),
    ("kube-system", "get configmaps/nodepool-agent"),
)
NOT_GRANTED = (
    ("", "update nodepools"),
    ("", "update nodepools/status"),
    ("", "update nodepools/finalizers"),
    ("kube-system", "patch leases/nodepool-agent"),
    ("", "update nodes"),
    ("", "deletecollection nodes"),
    ("", "deletecollection nodepools"),
    ("", "get nodes/proxy"),
    ("any", "create pods"),
    ("any", "update pods"),
    ("any", "patch pods"),
    ("any", "deletecollection pods"),
    ("any", "create pods/exec"),
    ("any", "get pods/log"),
    ("any", "create pods/binding"),
    ("kube-system", "get secrets"),
    ("kube-system", "list secrets"),
    ("kube-system", "get configmaps"),
    ("", f"patch mutatingadmissionpolicies.{TOLERATION}"),
    ("kube-system", "create serviceaccounts/token"),
    ("any", "patch events"),
    ("default", "delete events"),
    ("default", "list events"),
    ("default", "create leases"),
    ("kube-system", "get leases/kube-scheduler"),
    ("kube-system", "update leases/kube-scheduler"),
    ("kube-system", "delete leases/nodepool-agent"),
    ("", "get namespaces"),
    ("", "get namespaces/default"),
    ("", "list namespaces"),
    ("", "patch namespaces/kube-system"),
    ("", "list customresourcedefinitions.apiextensions.k8s.io"),
    ("", "get customresourcedefinitions.apiextensions.k8s.io/others.example.com"),
    ("", f"patch {DEFINITION}"),
    ("", "patch customresourcedefinitions.apiextensions.k8s.io"),
    ("", "update validatingadmissionpolicies.admissionregistration.k8s.io"),
    ("", "escalate clusterroles.rbac.authorization.k8s.io"),
    ("", "bind clusterroles.rbac.authorization.k8s.io"),
    ("", "create clusterrolebindings.rbac.authorization.k8s.io"),
    ("", "impersonate users"),
)


def is_allowed(cluster: Cluster, namespace: str, request: str) -> bool:
    """Whether the agent may do it; `any` is each namespace."""
    verb, _, resource = request.partition(" ")
    kind, slash, more = resource.partition("/")
    names = ("configmaps", "customresourcedefinitions", "leases", "mutating", "namespaces")
    is_named = kind.startswith(names)
    what = [kind, f"--subresource={more}"] if slash and not is_named else [resource]
    where = {"": [], "any": ["--all-namespaces"]}.get(namespace, ["--namespace", namespace])
    done = cluster.run("auth", "can-i", verb, *what, *where, "--as", ACCOUNT)
    assert done.stdout in ("yes\n", "no\n"), done.stderr
    return done.stdout == "yes\n"


@pytest.mark.parametrize(("namespace", "request_"), NEEDED)
def test_the_agent_may_do_what_it_needs(declared: Cluster, namespace: str, request_: str) -> None:
    assert is_allowed(declared, namespace, request_)


@pytest.mark.parametrize(("namespace", "request_"), NOT_GRANTED)
def test_the_agent_may_do_nothing_else(declared: Cluster, namespace: str, request_: str) -> None:
    assert not is_allowed(declared, namespace, request_)


def granted() -> Iterator[tuple[str, str, str]]:
    """Each group, resource and verb in a role of the agent."""
    for role in rendered(AGENT).of_kind("Role", "ClusterRole"):
        if role["metadata"]["name"] != "nodepool-agent":
            continue
        for rule in role["rules"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    (group,) = rule["apiGroups"]
                    yield group, resource, verb


def test_all_that_is_granted_is_in_the_list_of_what_it_needs() -> None:
    names = re.compile("/(nodepool-agent|kube-system)$")
    needed = {names.sub("", request) for _, request in NEEDED}
    needed = {request.split(".")[0] if "." in request else request for request in needed}

    assert {f"{verb} {resource}" for _, resource, verb in granted()} == needed


def as_agent(cluster: Cluster, *arguments: str, given: object = None) -> tuple[int, str]:
    """The exit code of kubectl for the agent, and what it printed."""
    text = None if given is None else json.dumps(given)
    groups = ("system:serviceaccounts", "system:serviceaccounts:kube-system")
    identity = ["--as", ACCOUNT, *(f"--as-group={group}" for group in groups)]
    done = cluster.run(*arguments, *identity, given=text)
    return done.returncode, done.stdout + without_skew(done.stderr)


def test_the_agent_keeps_a_node_pool_its_status_and_its_finalizer(declared: Cluster) -> None:
    name = "of-the-agent"
    whole = {
        **node_pool(name),
        "metadata": {"name": name, "finalizers": ["compute.coreweave.com/x"]},
    }
    target = '{"spec":{"targetNodes":2}}'
    current = '{"status":{"currentNodes":1}}'
    free = '{"metadata":{"finalizers":null}}'
    merge = ("nodepool", name, "--type=merge", "-p")

    codes = [
        as_agent(declared, *arguments, given=given)[0]
        for arguments, given in (
            (("create", "-f", "-"), whole),
            (("patch", *merge, target), None),
            (("patch", *merge, current, "--subresource=status"), None),
            (("delete", "nodepool", name, "--wait=false"), None),
            (("patch", *merge, free), None),
        )
    ]

    assert codes == [0] * 5
    assert declared.kubectl("get", "nodepool", name, "--ignore-not-found") == ""


def test_the_agent_keeps_a_node_with_reserved_labels(declared: Cluster) -> None:
    name = "g0a0a01"
    labels = {"node.coreweave.cloud/state": "production", "node.coreweave.cloud/reserved": "acme"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    condition = {"type": "CWActive", "status": "False", "reason": "Idle", "message": "idle"}
    status = {**node, "metadata": {"name": name}, "status": {"conditions": [condition]}}
    # `kubectl patch` would read the status first, which the agent has no need of.
    apply = ("apply", "--server-side", "--subresource=status", "-f", "-")

    codes = [
        as_agent(declared, *arguments, given=given)[0]
        for arguments, given in (
            (("create", "-f", "-"), node),
            (("cordon", name), None),
            (("taint", "node", name, "sunk.coreweave.com/lock=true:NoExecute"), None),
            (apply, status),
            (("delete", "node", name), None),
        )
    ]

    assert codes == [0] * 5


REFUSED: Sequence[tuple[Sequence[str], object]] = (
    (("get", "secrets", "-n", "kube-system"), None),
    (("get", "configmap", "extension-apiserver-authentication", "-n", "kube-system"), None),
    (("delete", "lease", "nodepool-agent", "-n", "kube-system"), None),
    (("delete", "namespace", "default", "--dry-run=server"), None),
    (("delete", "clusterrole", "nodepool-agent", "--dry-run=server"), None),
    (
        ("create", "-f", "-"),
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "x", "namespace": "default"},
            "spec": {"containers": [{"name": "only", "image": "none"}]},
        },
    ),
)


@pytest.mark.parametrize(("arguments", "given"), REFUSED, ids=lambda each: str(each)[:40])
def test_what_is_not_granted_is_forbidden(
    declared: Cluster, arguments: Sequence[str], given: object
) -> None:
    code, printed = as_agent(declared, *arguments, given=given)

    assert code == 1
    assert "is forbidden: User" in printed


@pytest.mark.parametrize(
    ("role", "requests"),
    [
        (
            "view",
            {"get nodepools": True, "patch nodepools": False, "patch nodepools/status": False},
        ),
        ("edit", {"get nodepools": True, "patch nodepools": True, "patch nodepools/status": False}),
        ("admin", {"get nodepools": True, "delete nodepools": True, "patch nodepools/scale": True}),
    ],
)
def test_the_roles_of_the_cluster_have_node_pools_with_them(
    declared: Cluster, role: str, requests: dict[str, bool]
) -> None:
    user = f"a-{role}"
    declared.kubectl(
        "create", "clusterrolebinding", user, f"--clusterrole={role}", f"--user={user}"
    )
    try:
        found = {}
        for request in requests:
            verb, _, resource = request.partition(" ")
            kind, slash, more = resource.partition("/")
            what = [kind, f"--subresource={more}"] if slash else [kind]
            done = declared.run("auth", "can-i", verb, *what, "--as", user)
            found[request] = done.stdout == "yes\n"
    finally:
        declared.kubectl("delete", "clusterrolebinding", user)

    assert found == requests
