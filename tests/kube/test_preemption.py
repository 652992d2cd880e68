"""A preemption in a real cluster: what Nodes and Pods show, and what ends them.

No container runs here: no preStop hook, and no process that gets SIGTERM. A kubelet does both to a
Pod that is deleted with a grace period: that each Pod is, and how long it is awaited, stands here.
That a program gets SIGTERM is shown by `tests/flow/test_run.py`.
"""

import re
from collections.abc import Mapping
from typing import Any

from kube.workloads import IGNORES_SIGTERM, Workloads
from nodepool.contract.commands import PreemptNode
from nodepool.contract.commands_spot import AcknowledgePreemption
from testbed.cluster import WITHIN_S, wait_until
from testbed.plane import A100, NODE_POOL, ZONE

SPOT: Mapping[str, Any] = {"computeClass": "spot"}
PENDING = "qos.coreweave.cloud/pending-preemption"
EVICTED_AT = "qos.coreweave.cloud/evicted-at"
LONELY = "gd-8xl40-i128"
"""An instance type that no other test has machines of."""


def label(workloads: Workloads, node: str, key: str) -> str:
    """A label of a Node in the cluster; empty where it has none."""
    found = workloads.node(node)
    labels = found["metadata"]["labels"] if found else {}
    return str(labels.get(key, ""))


def reasons(workloads: Workloads, node: str) -> list[str]:
    """What the Warnings about a Node are called, in the order of their times."""
    return [each.reason for each in workloads.warnings("Node", node)]


def test_a_preempted_node_is_cordoned_and_labelled_and_its_pods_run_on(
    workloads: Workloads,
) -> None:
    # given a spot Node with a Pod
    (node,) = workloads.nodes("preempted-warned", 1, A100, **SPOT)
    workloads.run("goes-on", node)

    # when it is preempted
    workloads.send(PreemptNode, "preempted-warned", node=node)

    # then it says so at once, and takes nothing new
    wait_until("it is labelled", lambda: label(workloads, node, PENDING) == "true", WITHIN_S)
    told = rf"Preemption pending +Node/{node}"
    is_told = lambda: re.search(told, documented_watch(workloads)) is not None  # noqa: E731
    wait_until("it is told", is_told, WITHIN_S)
    assert reasons(workloads, node) == ["Preemption pending"]
    found = workloads.node(node)
    assert found is not None
    assert found["spec"]["unschedulable"] is True
    workloads.create("comes-late", node)
    workloads.wait_until_unschedulable("comes-late")

    # and what runs there runs on
    assert workloads.phase("goes-on") == "Running"
    assert not workloads.is_terminating("goes-on")
    assert label(workloads, node, EVICTED_AT) == ""

    # until it is given back, or its time is over
    workloads.send(AcknowledgePreemption, "preempted-warned", node=node)
    workloads.wait_until_gone(node)


def documented_watch(workloads: Workloads) -> str:
    """What the documented command prints of the Warnings of a cluster, without waiting for more."""
    return workloads.cluster.kubectl("events", "--types=Warning")


def test_an_acknowledged_preemption_ends_each_pod_in_its_own_grace_period(
    workloads: Workloads,
) -> None:
    # given a spot Node with Pods that would block any other drain, one of them with a budget
    (node,) = workloads.nodes("preempted-drained", 1, A100, **SPOT)
    hook = {"preStop": {"exec": {"command": ["checkpoint"]}}}
    workloads.run(
        "checkpoints",
        node,
        annotations=IGNORES_SIGTERM,
        container={"lifecycle": hook},
        terminationGracePeriodSeconds=12,
    )
    workloads.run("plain", node, annotations={"kubelets/shutdown": "9s"})
    workloads.budget("keeps-plain", "plain", available=1)
    workloads.send(PreemptNode, "preempted-drained", node=node)
    wait_until("it is told", lambda: "Preemption pending" in reasons(workloads, node), WITHIN_S)

    # when the Node is given back before its time
    workloads.send(AcknowledgePreemption, "preempted-drained", node=node)

    # then each Pod is deleted with its own grace period, in which its kubelet runs its hook
    grace_s, ends = workloads.wait_until_terminating("checkpoints")
    found = workloads.pod("checkpoints")
    assert grace_s == 12
    assert found is not None
    assert found["spec"]["containers"][0]["lifecycle"] == hook
    assert workloads.wait_until_terminating("plain")[0] == 30
    assert label(workloads, node, EVICTED_AT) != ""

    # and the Node goes once the last of them has ended, which is told to the end
    assert workloads.wait_until_gone(node) >= ends
    wait_until(
        "all of it is told",
        lambda: (
            sorted(reasons(workloads, node))
            == ["Deleted for preemption", "Preemption in progress", "Preemption pending"]
        ),
        WITHIN_S,
    )
    assert workloads.pod("plain") is None


def test_pods_of_a_spot_pool_that_was_preempted_wait_until_it_has_a_node_again(
    workloads: Workloads,
) -> None:
    # given a spot pool with the only machine of its type, on which a Deployment has its Pod
    pool, plane = "preempted-empty", workloads.plane
    plane.stock(LONELY, 1, 1)
    (node,) = workloads.nodes(pool, 1, LONELY, **SPOT)
    workloads.apply(deployment(pool))
    rollout = ("rollout", "status", "deployment/survives", "--timeout=60s")
    workloads.cluster.kubectl(*rollout)

    # when the machine is taken away
    plane.do(lambda client: client.capacity.reclaim(ZONE, LONELY, 1))
    try:
        wait_until("it is told", lambda: "Preemption pending" in reasons(workloads, node), WITHIN_S)
        workloads.send(AcknowledgePreemption, pool, node=node)
        workloads.wait_until_gone(node)

        # then the pool has no Node, and the next Pod waits
        wait_until("a Pod waits", lambda: phases(workloads) == {"Pending"}, WITHIN_S)
        assert workloads.found(pool) == []
    finally:
        plane.do(lambda client: client.capacity.give_back(ZONE, LONELY, 1))

    # and it runs once there is capacity again
    try:
        workloads.cluster.kubectl(*rollout)
        assert workloads.found(pool) == [node]
    finally:
        workloads.cluster.kubectl("delete", "deployment", "survives")


def deployment(pool: str) -> Mapping[str, Any]:
    """A Deployment of one Pod, which runs on the Nodes of a NodePool only."""
    only = {"name": "only", "image": "none"}
    spec = {"nodeSelector": {NODE_POOL: pool}, "containers": [only]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "survives", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "survives"}},
            "template": {"metadata": {"labels": {"app": "survives"}}, "spec": spec},
        },
    }


def phases(workloads: Workloads) -> set[str]:
    """The phases of the Pods of the Deployment."""
    pods = workloads.cluster.objects("pods", selector="app=survives")
    return {pod["status"]["phase"] for pod in pods}
