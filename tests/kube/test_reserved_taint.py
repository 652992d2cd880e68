"""The taint of Nodes in production: only a cluster whose Pods tolerate the taint gets it."""

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kube.workloads import Workloads
from nodepool.contract.pods import reserved_taint
from testbed.agent import agent_at_work, declare
from testbed.cluster import WITHIN_S, Cluster, missing, start_cluster, wait_until
from testbed.kubelets import Kubelets
from testbed.plane import CLUSTER, H100, ORG, SETTINGS, start_plane

pytestmark = pytest.mark.timeout(600)
TAINT = reserved_taint(ORG)


@pytest.fixture(scope="module")
def tainting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workloads]:
    """A cluster of this module's, whose control plane taints Nodes in production."""
    if reason := missing():
        pytest.skip(reason)
    with ExitStack() as stack:
        cluster = stack.enter_context(start_cluster())
        folder, settings = tmp_path_factory.mktemp("plane"), {"NODEPOOL_RESERVED_TAINT": "on"}
        plane = stack.enter_context(start_plane(folder, settings={**SETTINGS, **settings}))
        plane.stock(H100, 2, 2)
        stack.enter_context(
            Kubelets(plane.url, cluster.folder / "kubelets.kubeconfig", ORG, CLUSTER)
        )
        stack.enter_context(
            agent_at_work(tmp_path_factory.mktemp("agent"), declare(cluster), plane.url)
        )
        workloads = Workloads(cluster, plane)
        yield workloads
        workloads.clean()


def has_taint(workloads: Workloads, node: str) -> bool:
    """Whether a Node of the cluster has the taint of its organisation."""
    found = workloads.node(node)
    assert found is not None
    return any(
        (each["key"], each.get("value"), each["effect"]) == (TAINT.key, TAINT.value, TAINT.effect)
        for each in found["spec"].get("taints", ())
    )


def withheld(workloads: Workloads, node: str) -> list[str]:
    """Why the agent withholds the taint from a Node, as its Events tell it."""
    told = workloads.warnings("Node", node)
    return [each.message for each in told if each.reason == "ReservedTaintWithheld"]


def set_hash(cluster: Cluster, value: str) -> None:
    """Sets the parameter of the policy."""
    patch = json.dumps({"data": {"RESERVED_HASH": value}})
    cluster.kubectl(
        "patch", "configmap", "nodepool-agent", "-n", "kube-system", "--type=merge", "-p", patch
    )


def test_nodes_get_the_taint_once_their_pods_tolerate_it(tainting: Workloads) -> None:
    # given a cluster whose Pods get no toleration, and a Pod on a Node in production
    busy, idle = tainting.nodes("tainted", 2)
    tainting.run("early", busy)

    # then no Node has the taint, and each tells why
    wait_until("it is told", lambda: bool(withheld(tainting, busy)), WITHIN_S)
    assert "RESERVED_HASH" in withheld(tainting, busy)[0]
    assert not has_taint(tainting, busy)

    # when Pods get the toleration
    set_hash(tainting.cluster, TAINT.value)

    # then the Node without Pods has the taint, a new Pod of the organisation runs there, and one of
    # another namespace waits
    wait_until("the idle Node has it", lambda: has_taint(tainting, idle), WITHIN_S)
    tainting.run("late", idle)
    tainting.create("foreign", idle, namespace="hpc-verification")
    tainting.wait_until_unschedulable("foreign", "hpc-verification")
    assert tainting.phase("late") == "Running"

    # and the Pod that does not tolerate the taint runs on, and keeps the taint from its Node
    wait_until("it is told", lambda: len(withheld(tainting, busy)) == 2, WITHIN_S)
    assert "default/early" in withheld(tainting, busy)[1]
    assert tainting.phase("early") == "Running"
    assert not has_taint(tainting, busy)

    # until the Pod has ended
    tainting.kill("early")
    wait_until("the other Node has it", lambda: has_taint(tainting, busy), WITHIN_S)

    # when the parameter is wrong, then the Nodes lose the taint, and new Pods run there
    set_hash(tainting.cluster, "0123456789")
    wait_until("it is gone", lambda: not has_taint(tainting, idle), WITHIN_S)
    tainting.run("later", idle)
