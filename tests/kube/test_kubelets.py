"""The kubelets of the test bed: Nodes come, fall silent and go as their machines do on the bus."""

import json
from collections.abc import Iterator, Sequence

import pytest

from testbed.cluster import WITHIN_S, Cluster, Document, wait_until
from testbed.kubelets import STARTUP, Kubelets
from testbed.plane import CPU, H100, ORG, ZONE, Plane, start_plane

CLUSTER = "bare"
"""A cluster without an agent, so that kubelets alone act on its Nodes."""


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A control plane with machines of two types for this cluster."""
    with start_plane(tmp_path_factory.mktemp("plane"), CLUSTER, kubernetes=False) as plane:
        plane.stock(H100, count=5, quota=5)
        plane.stock(CPU, count=2, quota=2)
        yield plane


@pytest.fixture(scope="module")
def kubelets(cluster: Cluster, bus: Plane) -> Iterator[Kubelets]:
    """The kubelets of its machines."""
    connection = cluster.folder / "kubelets.kubeconfig"
    with Kubelets(bus.url, connection, ORG, CLUSTER) as kubelets:
        yield kubelets
    left = bus.do(lambda client: client.nodes.list())
    cluster.kubectl("delete", "node", "--ignore-not-found", *(each.key for each in left))


def names(bus: Plane, pool: str) -> Sequence[str]:
    """The Nodes of a NodePool on the bus."""
    return sorted(bus.nodes(pool))


def node(cluster: Cluster, name: str) -> Document:
    found: Document = json.loads(cluster.kubectl("get", "node", name, "-o", "json"))
    return found


def is_ready(cluster: Cluster, name: str) -> str:
    """The status of the condition Ready of a Node; empty where it is not there."""
    path = 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
    return cluster.run("get", "node", name, "-o", path).stdout


def test_a_machine_that_has_booted_is_a_node_with_what_it_has(
    cluster: Cluster, bus: Plane, kubelets: Kubelets
) -> None:
    bus.apply("bed-one", instanceType=H100, targetNodes=1)
    bus.wait("bed-one")

    (name,) = names(bus, "bed-one")
    wait_until("its Node is Ready", lambda: is_ready(cluster, name) == "True", WITHIN_S)
    found = node(cluster, name)
    has = {"nvidia.com/gpu": "8", "sunk.coreweave.com/accelerator": "8", "pods": "110"}
    assert found["status"]["capacity"].items() >= has.items()
    # The controllers of Kubernetes add older names of the same.
    assert {key for key in found["metadata"]["labels"] if not key.startswith("beta.")} == {
        "kubernetes.io/arch",
        "kubernetes.io/hostname",
        "kubernetes.io/os",
    }
    taint = {"key": STARTUP.key, "value": STARTUP.value, "effect": STARTUP.effect}
    assert taint in found["spec"]["taints"]


def test_a_node_that_is_created_anew_by_hand_has_its_kubelet_again(
    cluster: Cluster, bus: Plane, kubelets: Kubelets
) -> None:
    bus.apply("bed-anew", instanceType=H100, targetNodes=1)
    bus.wait("bed-anew")
    (name,) = names(bus, "bed-anew")
    wait_until("its Node is Ready", lambda: is_ready(cluster, name) == "True", WITHIN_S)

    cluster.kubectl("delete", "node", name)
    bare = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    cluster.kubectl("create", "-f", "-", given=json.dumps(bare))

    wait_until("it is Ready", lambda: is_ready(cluster, name) == "True", WITHIN_S)
    has = {"cpu": "128", "nvidia.com/gpu": "8"}
    wait_until(
        "it has what its machine has",
        lambda: node(cluster, name)["status"]["capacity"].items() >= has.items(),
        WITHIN_S,
    )


def test_a_kubelet_falls_silent_and_is_heard_again(
    cluster: Cluster, bus: Plane, kubelets: Kubelets
) -> None:
    bus.apply("bed-silent", instanceType=H100, targetNodes=1)
    bus.wait("bed-silent")
    (name,) = names(bus, "bed-silent")
    wait_until("its Node is Ready", lambda: is_ready(cluster, name) == "True", WITHIN_S)

    bus.do(lambda client: client.fleet.break_machine(ZONE, name, "hang"))
    wait_until("that is Unknown", lambda: is_ready(cluster, name) == "Unknown", WITHIN_S)

    bus.do(lambda client: client.fleet.break_machine(ZONE, name, "hang", times=0))
    wait_until("it is Ready", lambda: is_ready(cluster, name) == "True", WITHIN_S)


def test_the_kubelet_of_a_machine_never_comes_where_a_test_says_so(
    cluster: Cluster, bus: Plane, kubelets: Kubelets
) -> None:
    kubelets.never.add(CPU)
    bus.apply("bed-never", instanceType=CPU, targetNodes=1)
    bus.wait("bed-never")
    (name,) = names(bus, "bed-never")
    # Another that came later is there.
    bus.apply("bed-later", instanceType=H100, targetNodes=1)
    bus.wait("bed-later")
    (later,) = names(bus, "bed-later")
    wait_until("that is Ready", lambda: is_ready(cluster, later) == "True", WITHIN_S)

    assert cluster.run("get", "node", name).returncode == 1


def test_a_machine_that_has_left_does_not_come_back(
    cluster: Cluster, bus: Plane, kubelets: Kubelets
) -> None:
    kubelets.never.discard(CPU)
    bus.apply("bed-left", instanceType=CPU, targetNodes=1)
    bus.wait("bed-left")
    (name,) = names(bus, "bed-left")
    wait_until("its Node is Ready", lambda: is_ready(cluster, name) == "True", WITHIN_S)

    bus.do(lambda client: client.nodepools.delete("bed-left"))
    wait_until("it is gone on the bus", lambda: bus.node(name) is None, WITHIN_S)
    cluster.kubectl("delete", "node", name)

    # Another that came later is there.
    bus.apply("bed-next", instanceType=H100, targetNodes=1)
    bus.wait("bed-next")
    (later,) = names(bus, "bed-next")
    wait_until("that is Ready", lambda: is_ready(cluster, later) == "True", WITHIN_S)
    assert cluster.run("get", "node", name).returncode == 1
