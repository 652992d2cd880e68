"""What somebody can do who has stolen the token of the agent: nothing but what the agent does."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from kube.declared import Document
from testbed.cluster import WITHIN_S, Cluster, wait_until, without_skew

OURS, FOREIGN = "g0a0a02", "foreign-node"
IDLE = {"type": "CWActive", "status": "False", "reason": "Idle", "message": "idle"}
UNREADY = {"type": "Ready", "status": "False", "reason": "Stolen", "message": "stolen"}
ADDRESS = {"type": "InternalIP", "address": "10.9.9.9"}
PORT = {"kubeletEndpoint": {"Port": 10_250}}
STATUS = ("apply", "--server-side", "--force-conflicts", "--subresource=status", "-f", "-")


def node(name: str, **fields: object) -> Document:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, **fields}


def pod(name: str, on: str) -> Document:
    containers = [{"name": "only", "image": "none"}]
    tolerations = [{"operator": "Exists"}]
    metadata = {"name": name, "namespace": "kube-system"}
    spec = {"nodeName": on, "containers": containers, "tolerations": tolerations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.fixture(scope="module")
def stolen(declared: Cluster, account: Path) -> Iterator[Path]:
    """The kubeconfig with the token, beside a Node of the control plane and one of others."""
    objects = [node(OURS), node(FOREIGN), pod("system-ours", OURS), pod("system-foreign", FOREIGN)]
    for each in objects:
        declared.kubectl("create", "-f", "-", given=json.dumps(each))
    wait_until(
        "the policy is heeded",
        lambda: "of the control plane" in cordoned(declared, account),
        WITHIN_S,
    )
    yield account
    declared.run("delete", "node", OURS, FOREIGN)
    declared.run("delete", "pod", "-n", "kube-system", "--force", "system-ours", "system-foreign")


def sent(
    cluster: Cluster, account: Path, arguments: Sequence[str], given: Document | None
) -> CompletedProcess[str]:
    """One request with the token."""
    text = None if given is None else json.dumps(given)
    return cluster.run(*arguments, given=text, kubeconfig=account)


def cordoned(cluster: Cluster, account: Path) -> str:
    return cluster.run("cordon", FOREIGN, "--dry-run=server", kubeconfig=account).stderr


ALLOWED: Mapping[str, tuple[tuple[str, ...], Document | None]] = {
    "a cordon": (("cordon", OURS), None),
    "a taint": (("taint", "node", OURS, "sunk.coreweave.com/lock=true:NoExecute"), None),
    "a condition of the control plane": (STATUS, node(OURS, status={"conditions": [IDLE]})),
    "a Node of a machine": (("create", "-f", "-"), node("g0a0a03")),
    "the deletion of a Node of a machine": (("delete", "node", "g0a0a03"), None),
    "the deletion of a Pod on a machine": (
        ("delete", "pod", "-n", "kube-system", "system-ours", "--wait=false"),
        None,
    ),
}
REFUSED: Mapping[str, tuple[tuple[str, ...], Document | None]] = {
    "an address": (STATUS, node(OURS, status={"addresses": [ADDRESS]})),
    "a port": (STATUS, node(OURS, status={"daemonEndpoints": PORT})),
    "a capacity": (STATUS, node(OURS, status={"capacity": {"cpu": "1"}})),
    "a condition of the kubelet": (STATUS, node(OURS, status={"conditions": [UNREADY]})),
    "a condition of a foreign Node": (STATUS, node(FOREIGN, status={"conditions": [IDLE]})),
    "a taint of a foreign Node": (("taint", "node", FOREIGN, "a=b:NoSchedule"), None),
    "the deletion of a foreign Node": (("delete", "node", FOREIGN), None),
    "a foreign Node": (("create", "-f", "-"), node("another-foreign-node")),
    "a Node with an address": (
        ("create", "-f", "-"),
        node("g0a0a04", status={"addresses": [ADDRESS]}),
    ),
    "the deletion of a foreign Pod": (
        ("delete", "pod", "-n", "kube-system", "system-foreign"),
        None,
    ),
    "the eviction of a Pod of kube-system": (
        (
            "create",
            "--raw",
            "/api/v1/namespaces/kube-system/pods/system-foreign/eviction",
            "-f",
            "-",
        ),
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "system-foreign", "namespace": "kube-system"},
        },
    ),
    "another Lease": (
        ("create", "-f", "-"),
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "kube-scheduler", "namespace": "kube-system"},
        },
    ),
}


@pytest.mark.parametrize("what", ALLOWED)
def test_the_agent_can_do_its_work(declared: Cluster, stolen: Path, what: str) -> None:
    done = sent(declared, stolen, *ALLOWED[what])

    assert (done.returncode, without_skew(done.stderr)) == (0, "")


@pytest.mark.parametrize("what", REFUSED)
def test_its_token_is_of_no_use_for_anything_else(
    declared: Cluster, stolen: Path, what: str
) -> None:
    done = sent(declared, stolen, *REFUSED[what])

    assert done.returncode != 0
    assert "ValidatingAdmissionPolicy 'nodepool-agent'" in done.stderr
