"""Where the scheduler of a real cluster places Pods, and which Nodes they have to leave.

What the admission policies add to Pods is shown by `test_policies_tolerations.py`.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from kube.workloads import IGNORES_SIGTERM, Workloads
from nodepool.client import TimedOut
from nodepool.contract.commands import RebootNode, ReserveNode
from nodepool.contract.model import LOCK_TAINT, RESERVED
from nodepool.contract.pods import reserved_taint
from testbed.cluster import WITHIN_S, Document, wait_until
from testbed.plane import CPU, ORG

SLOW_TO_BOOT = "gd-8xl40s-i128"
"""An instance type that no other test has machines of."""
BOOT_S = 10.0
"""Long enough for the taint of a Node that boots to be seen by all whom it concerns."""
CONTROL_PLANE = reserved_taint("control-plane")
LOCK = "sunk.coreweave.com/lock"
ON_CONTROL_PLANE = {"key": RESERVED, "value": CONTROL_PLANE.value, "operator": "Equal"}
"""What Pods of the control plane tolerate."""
GPU = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
LOCKED = {"key": LOCK, "operator": "Equal", "value": "true"}
"""What Pods tolerate that may stay while a Slurm job runs."""
UNTOLERATED = "node(s) had untolerated taint(s)"
"""What the scheduler says where a taint keeps a Pod from a Node."""


def label(workloads: Workloads, node: str, key: str) -> str:
    """A label of a Node in the cluster; empty where it has none."""
    found = workloads.node(node)
    return str(found["metadata"]["labels"].get(key, "")) if found else ""


def taints(workloads: Workloads, node: str, key: str) -> list[tuple[str, str]]:
    """Value and effect of the taints of a Node that have this key."""
    found = workloads.node(node)
    listed = found["spec"].get("taints", ()) if found else ()
    return [(each.get("value", ""), each["effect"]) for each in listed if each["key"] == key]


def why_it_waits(workloads: Workloads, name: str, reason: str) -> str:
    """What the scheduler says of a Pod that fits on no Node, once it gives this reason.

    It says it anew when Nodes have changed.
    """

    def said() -> str:
        listed = conditions(workloads, name)
        return "".join(
            each.get("message", "") for each in listed if each.get("reason") == "Unschedulable"
        )

    wait_until(f"{name} waits since {reason}", lambda: reason in said(), WITHIN_S)
    return said()


def conditions(workloads: Workloads, name: str) -> list[Document]:
    """The conditions of a Pod."""
    found = workloads.pod(name)
    return list(found["status"].get("conditions", ())) if found else []


# CPU and GPU Nodes.


def test_a_pod_without_gpus_is_on_a_gpu_node_only_where_there_is_no_cpu_node(
    workloads: Workloads,
) -> None:
    # given a NodePool of GPUs, for a team that has no other
    team = {"team": "scheduling"}
    (gpu_node,) = workloads.nodes("sched-gpu", 1, nodeLabels=team)
    workloads.create("needs-any", nodeSelector=team)
    assert workloads.wait_until_running("needs-any") == gpu_node

    # when the team has one of CPUs as well
    (cpu_node,) = workloads.nodes("sched-cpu", 1, CPU, nodeLabels=team)

    # then the next Pod without GPUs is there, and one with GPUs is not
    workloads.create("needs-no-gpu", nodeSelector=team)
    assert workloads.wait_until_running("needs-no-gpu") == cpu_node
    workloads.create("needs-gpu", nodeSelector=team, container=GPU)
    assert workloads.wait_until_running("needs-gpu") == gpu_node
    workloads.create("misplaced", cpu_node, container=GPU)
    why_it_waits(workloads, "misplaced", UNTOLERATED)


# Taints of a NodePool.


def test_a_pod_waits_for_a_node_whose_taints_it_tolerates(workloads: Workloads) -> None:
    # given Pods for a NodePool that is not there yet
    pool = {"compute.coreweave.com/node-pool": "sched-dedicated"}
    taint = {"key": "dedicated", "value": "research", "effect": "NoSchedule"}
    tolerates = {"key": "dedicated", "operator": "Equal", "value": "research"}
    workloads.create("welcome", nodeSelector=pool, tolerations=[tolerates])
    workloads.create("stranger", nodeSelector=pool)
    workloads.wait_until_unschedulable("welcome")

    # when it comes, with a taint
    (node,) = workloads.nodes("sched-dedicated", 1, nodeTaints=[taint])

    # then only the Pod that tolerates it runs there
    assert workloads.wait_until_running("welcome") == node
    why_it_waits(workloads, "stranger", UNTOLERATED)


# Reservations.


def test_a_pending_node_takes_no_pods_and_moves_to_the_control_plane_once_nothing_runs_there(
    workloads: Workloads,
) -> None:
    # given a Node of the organisation with a Pod
    (node,) = workloads.nodes("sched-pending", 1)
    workloads.run("finishes", node)
    assert label(workloads, node, RESERVED) == ORG
    workloads.wait_for_condition(node, "CWActive", "True: .*")

    # when it is to be the control plane's
    workloads.send(ReserveNode, "sched-pending", node=node, reserved_desired="control-plane")

    # then it is pending while the Pod runs: nothing new comes
    wanted = lambda: label(workloads, node, f"{RESERVED}-desired") == "control-plane"  # noqa: E731
    wait_until("it is pending", wanted, WITHIN_S)
    assert label(workloads, node, RESERVED) == ORG
    workloads.create("of-a-user", node, tolerations=[{"key": "team", "operator": "Exists"}])
    why_it_waits(workloads, "of-a-user", "were unschedulable")
    assert not workloads.is_terminating("finishes")

    # and after that takes Pods of the control plane, and none of users
    workloads.delete("finishes")
    moved = lambda: label(workloads, node, RESERVED) == "control-plane"  # noqa: E731
    wait_until("it is moved", moved, WITHIN_S)
    assert taints(workloads, node, RESERVED) == [(CONTROL_PLANE.value, CONTROL_PLANE.effect)]
    tolerations = [ON_CONTROL_PLANE]
    workloads.run("checks", node, namespace="hpc-verification", tolerations=tolerations)
    workloads.create("of-another", node)
    assert "unschedulable" not in why_it_waits(workloads, "of-another", UNTOLERATED)
    assert workloads.phase("of-a-user") == "Pending"


def test_a_node_that_leaves_production_is_left_by_what_does_not_tolerate_that(
    workloads: Workloads,
) -> None:
    # given a Node with two Pods, one of which tolerates every state of a Node
    workloads.plane.stock(SLOW_TO_BOOT, 1, 1, boot_s=BOOT_S)
    (node,) = workloads.nodes("sched-reboot", 1, SLOW_TO_BOOT)
    everywhere = {"key": RESERVED, "operator": "Exists"}
    # The real Pod would end with its machine; this one shows who wants it to end.
    lasting = {"annotations": IGNORES_SIGTERM, "terminationGracePeriodSeconds": 600}
    workloads.run("ordinary", node, **lasting)
    workloads.run("tolerant", node, tolerations=[everywhere])

    # when its machine is reset
    workloads.send(RebootNode, "sched-reboot", node=node, force=True)

    # then Kubernetes evicts the other
    workloads.wait_until_terminating("ordinary")
    assert is_evicted_by_taint(workloads, "ordinary")
    assert not workloads.is_terminating("tolerant")

    # and the taint is gone once the Node is back in production
    back = lambda: label(workloads, node, "node.coreweave.cloud/state") == "production"  # noqa: E731
    wait_until("the taint is gone", lambda: not taints(workloads, node, RESERVED), WITHIN_S)
    wait_until("it is back", back, WITHIN_S)


def is_evicted_by_taint(workloads: Workloads, name: str) -> bool:
    """Whether Kubernetes itself ends a Pod because of a taint."""
    return any(
        (each["type"], each.get("reason")) == ("DisruptionTarget", "DeletionByTaintManager")
        for each in conditions(workloads, name)
    )


# Slurm.


def test_a_lock_is_pending_until_the_last_pod_that_does_not_tolerate_it_is_gone(
    workloads: Workloads,
) -> None:
    # given a Node with a Pod that does not tolerate the lock, and two that do
    pool = "sched-lock"
    (node,) = workloads.nodes(pool, 1)
    lasting = {"annotations": IGNORES_SIGTERM, "terminationGracePeriodSeconds": 600}
    workloads.run("intruder", node, **lasting)
    workloads.run("slurmd", node, tolerations=[LOCKED])
    workloads.apply(daemon_set(node))
    workloads.cluster.kubectl("rollout", "status", "daemonset/monitors", "--timeout=60s")
    try:
        # when the prolog of a job takes the lock
        with pytest.raises(TimedOut):
            take_lock(workloads, pool, node, 2)

        # then it is pending while Kubernetes evicts the one
        wait_until("it is pending", lambda: lock(workloads, node) == "pending", WITHIN_S)
        assert taints(workloads, node, LOCK) == [(LOCK_TAINT.value, LOCK_TAINT.effect)]
        evicted = lambda: is_evicted_by_taint(workloads, "intruder")  # noqa: E731
        wait_until("Kubernetes evicts it", evicted, WITHIN_S)

        # and the job begins once it is gone; the others stay
        workloads.kill("intruder")
        take_lock(workloads, pool, node, WITHIN_S)
        wait_until("it is locked", lambda: lock(workloads, node) == "locked", WITHIN_S)
        staying = workloads.cluster.objects("pods", selector="app in (slurmd, monitors)")
        assert [pod["metadata"].get("deletionTimestamp") for pod in staying] == [None, None]

        # and its epilog releases the Node
        workloads.plane.do(lambda client: client.nodes.unlock(pool, node, "job-7"))
        wait_until("the taint is gone", lambda: not taints(workloads, node, LOCK), WITHIN_S)
        wait_until("the annotation, too", lambda: lock(workloads, node) == "", WITHIN_S)
    finally:
        workloads.cluster.kubectl("delete", "daemonset", "monitors")


def take_lock(workloads: Workloads, pool: str, node: str, within_s: float) -> None:
    """Does what the prolog of a Slurm job does; raises TimedOut while the lock is pending."""
    workloads.plane.do(lambda client: client.nodes.lock(pool, node, "job-7", timeout_s=within_s))


def lock(workloads: Workloads, node: str) -> str:
    """The state of the lock of a Node, as its annotation says it."""
    found = workloads.node(node)
    return str(found["metadata"]["annotations"].get(LOCK, "")) if found else ""


def daemon_set(node: str) -> Mapping[str, Any]:
    """A DaemonSet for one Node that tolerates what the documentation lists."""
    labels = {"app": "monitors"}
    tolerations = [
        LOCKED,
        {"key": "is_cpu_compute", "operator": "Exists"},
        {"key": "is_gpu", "operator": "Exists"},
        {"key": RESERVED, "operator": "Equal", "value": reserved_taint(ORG).value},
    ]
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "tolerations": tolerations,
        "containers": [{"name": "only", "image": "none"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "monitors", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


# The order of a scale-down of Pods.


def test_pods_are_scaled_down_in_the_order_that_their_users_set(workloads: Workloads) -> None:
    # given a ReplicaSet of three Pods, of which the user wants to lose a certain one first
    (node,) = workloads.nodes("sched-order", 1)
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "containers": [{"name": "only", "image": "none"}],
    }
    workloads.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": "ordered", "namespace": "default"},
            "spec": {
                "replicas": 3,
                "selector": {"matchLabels": {"app": "ordered"}},
                "template": {"metadata": {"labels": {"app": "ordered"}}, "spec": spec},
            },
        }
    )
    ready = ("--for=jsonpath={.status.readyReplicas}=3", "replicaset/ordered", "--timeout=60s")
    try:
        workloads.cluster.kubectl("wait", *ready)
        names = pods_of(workloads, "ordered")
        # The newest would go first otherwise; names are in no order of age.
        for cost, name in enumerate(names):
            cost_of = f"controller.kubernetes.io/pod-deletion-cost={cost}"
            workloads.cluster.kubectl("annotate", "pod", name, cost_of)

        # when it is scaled down step by step
        left = []
        for replicas in (2, 1):
            workloads.cluster.kubectl("scale", "rs", "ordered", f"--replicas={replicas}")
            is_done = lambda n=replicas: len(pods_of(workloads, "ordered")) == n  # noqa: E731
            wait_until(f"{replicas} are left", is_done, WITHIN_S)
            left.append(pods_of(workloads, "ordered"))
    finally:
        workloads.cluster.kubectl("delete", "replicaset", "ordered")

    # then those of the lowest cost went first
    assert left == [names[1:], names[2:]]


def pods_of(workloads: Workloads, app: str) -> list[str]:
    """The names of the Pods of an app."""
    found = workloads.cluster.objects("pods", selector=f"app={app}")
    return sorted(pod["metadata"]["name"] for pod in found)
