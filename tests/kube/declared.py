"""What the tests of deploy/kubernetes/agent have in common."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from nodepool.contract import conditions as contract
from testbed.cluster import Cluster, without_skew

DRY = ("create", "--dry-run=server", "-f", "-")
"""How kubectl has something checked that is not created."""
AGENT = "deploy/kubernetes/agent"
ACCOUNT = "system:serviceaccount:kube-system:nodepool-agent"
RESERVED = "Namespaces `*.coreweave.cloud` or `*.coreweave.com` are not allowed."
SINCE = "2025-05-30T17:36:00Z"
HEALTHY: Sequence[tuple[str, str, str]] = [
    (type(reason).__name__, str(reason), message) for reason, message in contract.HEALTHY.items()
]
"""The conditions of a NodePool that has all it wants, each as `conditions` takes it."""

Document = Mapping[str, object]


def by_user(cluster: Cluster, *arguments: str, given: object = None) -> tuple[int, str]:
    """The exit code of kubectl for a user, and all that it printed but warnings of its version."""
    text = None if given is None else json.dumps(given)
    done = cluster.run(*arguments, given=text, kubeconfig=cluster.user_kubeconfig)
    return done.returncode, done.stdout + without_skew(done.stderr)


def delete(cluster: Cluster, name: str) -> None:
    """Deletes a NodePool where no agent runs, which would let go of its finalizer."""
    cluster.kubectl("delete", "nodepool", name, "--ignore-not-found", "--wait=false")
    released = '{"metadata":{"finalizers":null}}'
    cluster.run("patch", "nodepool", name, "--type=merge", "-p", released)
    cluster.kubectl("wait", "--for=delete", f"nodepool/{name}", "--timeout=60s")


@contextmanager
def applied(cluster: Cluster, document: Document, verb: str = "apply") -> Iterator[None]:
    """A NodePool that is there inside the context, by `kubectl apply` or `kubectl create`."""
    cluster.kubectl(verb, "-f", "-", given=json.dumps(document))
    try:
        yield
    finally:
        metadata = document["metadata"]
        assert isinstance(metadata, dict)
        delete(cluster, str(metadata["name"]))


def set_status(cluster: Cluster, name: str, **status: object) -> None:
    """Sets fields of the status of a NodePool."""
    patch = json.dumps({"status": status})
    cluster.kubectl("patch", "nodepool", name, "--subresource=status", "--type=merge", "-p", patch)


def conditions(*given: tuple[str, str, str]) -> Sequence[Document]:
    """Conditions that are True, each given by its type, its reason and its message."""
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


def pod(name: str, labels: Mapping[str, str] | None = None, **spec: object) -> Document:
    """A Pod of one container."""
    only = {"name": "only", "image": "none"}
    metadata = {"name": name, "namespace": "default", "labels": labels or {}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [only], **spec},
    }


def labelled(kind: str, labels: Mapping[str, str]) -> Document:
    """An object of a kind with labels."""
    if kind == "Pod":
        return pod("labelled", labels)
    metadata = {"name": "labelled", "labels": labels}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}


def policies_work(cluster: Cluster) -> bool:
    """Whether every policy is heeded: the last of each kind, as they are applied in this order."""
    label = {"probe.coreweave.cloud/x": "true"}
    code, _ = by_user(cluster, "create", "--dry-run=server", "-f", "-", given=pod("probe", label))
    template = {
        "metadata": {"labels": {"app": "x", **label}},
        "spec": {"containers": [{"name": "only", "image": "none"}], "restartPolicy": "Never"},
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "probe", "namespace": "default"},
        "spec": {"template": template},
    }
    of_template, _ = by_user(cluster, "create", "--dry-run=server", "-f", "-", given=job)
    deleted, _ = by_user(cluster, "delete", "--dry-run=server", "namespace", "hpc-verification")
    if not (code and of_template and deleted):
        return False
    made = cluster.run(
        "create", "--dry-run=server", "-o", "json", "-f", "-", given=json.dumps(pod("probe"))
    )
    space = cluster.run("create", "namespace", "probe", "--dry-run=server", "-o", "json")
    return "is_cpu_compute" in made.stdout and "ns.coreweave.cloud/org" in space.stdout
