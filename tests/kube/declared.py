"""What the tests of deploy/kubernetes/agent have in common."""

import json
from collections.abc import Mapping

from kube.cluster import Cluster
from nodepool.contract.model import API_VERSION

AGENT = "deploy/kubernetes/agent"
ACCOUNT = "system:serviceaccount:kube-system:nodepool-agent"
RESERVED = "Namespaces `*.coreweave.cloud` or `*.coreweave.com` are not allowed."

Document = Mapping[str, object]


def node_pool(name: str, **spec: object) -> Document:
    """A NodePool as a manifest has it."""
    return {
        "apiVersion": API_VERSION,
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"instanceType": "gd-8xh100ib-i128", "targetNodes": 1, **spec},
    }


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
    cluster.kubectl("wait", "--for=delete", f"nodepool/{name}", "--timeout=20s")


def without_skew(text: str) -> str:
    """The lines of kubectl without its warning that it is older than the cluster."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if "WARNING: version difference" not in line)


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
