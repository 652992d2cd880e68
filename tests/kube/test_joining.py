"""Nodes that join: what each costs, and what befalls a Node before it is ready."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from kube.audit import AuditLog
from kube.node_pools import joined, manifest, name_for
from testbed.agent import USER, Agent
from testbed.cluster import WITHIN_S, Cluster, wait_until
from testbed.kubelets import FOREVER_S, LEASES, OTHERS, STARTUP, Kubelets
from testbed.plane import A100, H100, NODE_POOL, Plane

NODES = 4
NONE = json.dumps({"spec": {"targetNodes": 0}})


@pytest.fixture
def pool(
    cluster: Cluster, kubelets: Kubelets, agent: Agent, request: pytest.FixtureRequest
) -> Iterator[str]:
    """A NodePool whose only Node never gets a kubelet, unless a test plays it."""
    assert agent.is_leading()
    name = name_for(request)
    kubelets.never.add(A100)
    cluster.kubectl("apply", "-f", "-", given=manifest(name, instanceType=A100))
    yield name
    cluster.kubectl("delete", "nodepool", name, "--ignore-not-found", "--timeout=60s")
    kubelets.never.discard(A100)


@pytest.fixture
def node(cluster: Cluster, plane: Plane, pool: str) -> Iterator[str]:
    """The name of its Node, which is registered and not ready."""
    wait_until("it has a Node", lambda: bool(plane.nodes(pool)), WITHIN_S)
    (name,) = plane.nodes(pool)
    # kwok leaves a Node alone while somebody else holds its Lease.
    held = {"holderIdentity": OTHERS, "leaseDurationSeconds": FOREVER_S}
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASES},
        "spec": {**held, "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")},
    }
    # An earlier stay of the machine may have left its Lease.
    forget_lease(cluster, name)
    cluster.kubectl("create", "-f", "-", given=json.dumps(lease))
    register(cluster, name)
    yield name
    forget_lease(cluster, name)


def forget_lease(cluster: Cluster, name: str) -> None:
    """Deletes the Lease of a Node, if there is one."""
    cluster.kubectl("delete", "lease", name, "-n", LEASES, "--ignore-not-found")


def register(cluster: Cluster, name: str) -> None:
    """Makes a Node as its kubelet does."""
    taint = {"key": STARTUP.key, "value": STARTUP.value, "effect": STARTUP.effect}
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
    document = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": [taint]},
    }
    cluster.kubectl("create", "-f", "-", given=json.dumps(document))


def get_ready(cluster: Cluster, name: str) -> None:
    """Lets kwok play the kubelet, which is ready at once."""
    released = json.dumps({"spec": {"holderIdentity": None}})
    cluster.kubectl("patch", "lease", name, "-n", LEASES, "--type=merge", "-p", released)


def is_cordoned(plane: Plane, name: str) -> bool:
    """Whether a Node is cordoned on the bus."""
    spec = (plane.node(name) or {}).get("spec")
    return isinstance(spec, dict) and bool(spec.get("unschedulable"))


def test_a_node_that_joins_costs_one_patch_one_status_and_one_event(
    cluster: Cluster, plane: Plane, kubelets: Kubelets, agent: Agent
) -> None:
    # given Nodes that join at the same time
    assert kubelets.never == set()
    assert agent.is_leading()
    audit = AuditLog(cluster.folder)
    cluster.kubectl("apply", "-f", "-", given=manifest("costs", NODES, instanceType=H100))
    wait_until("it has its Nodes", lambda: len(plane.nodes("costs")) == NODES, WITHIN_S)
    nodes = [joined(cluster, name) for name in plane.nodes("costs")]

    # when all their events are recorded
    def recorded() -> Counter[tuple[str, str]]:
        shown: Counter[tuple[str, str]] = Counter()
        for each in cluster.objects("events", "default"):
            about = each["involvedObject"]
            if about["name"] in ("costs", *nodes) and each["reason"].startswith("CWNode"):
                shown[about["kind"], each["reason"]] += each["count"]
        return shown

    registered = ("Node", "CWNodeRegistered"), ("NodePool", "CWNodeRegistered")
    every = {**dict.fromkeys(registered, NODES), ("NodePool", "CWNodeAssigned"): NODES}
    wait_until("all are recorded", lambda: every.items() <= recorded().items(), WITHIN_S)

    # then no Node was written more often than it must be
    written = [each for each in audit.requests(USER) if each.verb == "patch" and each.code == 200]
    counts = Counter((each.name, each.resource) for each in written if each.name in nodes)
    assert counts == {(name, kind): 1 for name in nodes for kind in ("nodes", "nodes/status")}
    cluster.kubectl("delete", "nodepool", "costs", "--timeout=60s")


def test_a_node_that_leaves_before_it_is_ready_goes_at_once(
    cluster: Cluster, plane: Plane, pool: str, node: str
) -> None:
    cluster.kubectl("patch", "nodepool", pool, "--type=merge", "-p", NONE)

    wait_until("the bus has no Node", lambda: plane.node(node) is None, WITHIN_S)
    gone = lambda: cluster.run("get", "node", node).returncode == 1  # noqa: E731
    wait_until("nor has the cluster", gone, WITHIN_S)


def test_a_node_that_is_made_again_before_it_is_ready_joins(
    cluster: Cluster, plane: Plane, pool: str, node: str
) -> None:
    cluster.kubectl("delete", "node", node)
    register(cluster, node)
    get_ready(cluster, node)

    joined(cluster, node)
    labels = json.loads(cluster.kubectl("get", "node", node, "-o", "json"))["metadata"]["labels"]
    assert labels[NODE_POOL] == pool
    assert list(plane.nodes(pool)) == [node]


def test_a_node_that_is_cordoned_before_it_is_ready_stays_so_over_a_new_agent(
    cluster: Cluster, plane: Plane, agent: Agent, pool: str, node: str
) -> None:
    # given a Node that somebody cordons, and that becomes ready while no agent is there
    cluster.kubectl("cordon", node)
    agent.kill()
    get_ready(cluster, node)
    cluster.kubectl("wait", f"node/{node}", "--for=condition=Ready", "--timeout=60s")

    # when there is one again
    agent.start()
    agent.wait_until_ready()

    # then the Node joins, and is cordoned on both sides
    joined(cluster, node)
    wait_until("the bus knows it", lambda: is_cordoned(plane, node), WITHIN_S)
    path = "jsonpath={.spec.unschedulable}"
    assert cluster.kubectl("get", "node", node, "-o", path) == "true"
    assert cluster.kubectl("uncordon", node) == f"node/{node} uncordoned\n"
    wait_until("the bus knows it", lambda: not is_cordoned(plane, node), WITHIN_S)
