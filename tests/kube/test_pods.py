"""Pods of a real cluster: which make a Node active, and how a Node that leaves ends them."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from kube.workloads import (
    GRACEFUL,
    IGNORES_SIGTERM,
    INTERRUPTABLE,
    Told,
    Workloads,
)
from nodepool.contract.commands import DrainNode, UncordonNode
from testbed.cluster import WITHIN_S, wait_until
from testbed.components import CONTROLLER_MANAGER
from testbed.paused import pause_process

PREFER_IDLE: Mapping[str, Any] = {"lifecycle": {"scaleDownStrategy": "PreferIdle"}}
LABEL = "kubernetes.io/hostname"
OVER = "False OverTarget: NodePool has 1 Node and wants 0;"


# What makes a Node active.


def test_a_node_is_active_because_of_the_pods_of_users_and_names_them(workloads: Workloads) -> None:
    # given a Node with Pods that do not count: of a DaemonSet, of a file of its kubelet, of the
    # verification, and one that has ended
    (node,) = workloads.nodes("pods-active", 1)
    workloads.cluster.kubectl("apply", "-f", "-", given=json.dumps(daemon_set(node)))
    mirror = {"kubernetes.io/config.mirror": "d1", "kubernetes.io/config.source": "file"}
    workloads.cluster.kubectl("create", "-f", "-", given=json.dumps(static_pod(node, mirror)))
    workloads.run("verifying", node, namespace="hpc-verification")
    workloads.cluster.kubectl("apply", "-f", "-", given=json.dumps(job(node)))
    wait = ("--for=condition=Complete", "job/ends", "--timeout=60s")
    workloads.cluster.kubectl("wait", *wait)
    workloads.cluster.kubectl("rollout", "status", "daemonset/on-each", "--timeout=60s")

    # when a Pod of a user runs there
    workloads.run("counts", node)

    # then it alone makes the Node active, until it ends
    try:
        workloads.wait_for_condition(node, "CWActive", "True: running: default/counts")
        workloads.delete("counts")
        workloads.wait_for_condition(node, "CWActive", "False: nothing runs here")
    finally:
        workloads.cluster.kubectl("delete", "daemonset/on-each", "job/ends")


def daemon_set(node: str) -> Mapping[str, object]:
    """A DaemonSet for one Node."""
    labels = {"app": "on-each"}
    spec = {"nodeSelector": {LABEL: node}, "containers": [{"name": "only", "image": "none"}]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "on-each", "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def static_pod(node: str, annotations: Mapping[str, str]) -> Mapping[str, object]:
    """The image of a Pod that a kubelet has from a file, which the kubelet creates."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "static", "namespace": "default", "annotations": annotations},
        "spec": {"nodeName": node, "containers": [{"name": "only", "image": "none"}]},
    }


def job(node: str) -> Mapping[str, object]:
    """A Job whose Pod ends by itself."""
    spec = {"nodeSelector": {LABEL: node}, "containers": [{"name": "only", "image": "none"}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "ends", "namespace": "default"},
        "spec": {"template": {"spec": {**spec, "restartPolicy": "Never"}}},
    }


# Scale-down.


def test_a_scale_down_does_not_await_the_grace_period_of_an_interruptable_pod(
    workloads: Workloads,
) -> None:
    (node,) = workloads.nodes("pods-interruptable", 1, **PREFER_IDLE)
    ignores = {"annotations": IGNORES_SIGTERM, "terminationGracePeriodSeconds": 600}
    workloads.run("inference", node, labels=INTERRUPTABLE, **ignores)

    workloads.scale("pods-interruptable", 0)

    workloads.wait_until_gone(node)


def test_a_scale_down_awaits_a_graceful_pod_that_ignores_sigterm_to_its_end(
    workloads: Workloads,
) -> None:
    (node,) = workloads.nodes("pods-graceful", 1, **PREFER_IDLE)
    ignores = {"annotations": IGNORES_SIGTERM, "terminationGracePeriodSeconds": 12}
    workloads.run("serving", node, labels=GRACEFUL, **ignores)

    workloads.scale("pods-graceful", 0)

    grace_s, ends = workloads.wait_until_terminating("serving")
    assert grace_s == 12
    assert workloads.is_drained(node)
    assert workloads.wait_until_gone(node) >= ends


def test_a_scale_down_awaits_a_pod_without_a_label_and_names_it(workloads: Workloads) -> None:
    (node,) = workloads.nodes("pods-blocking", 1, **PREFER_IDLE)
    workloads.run("training", node)
    workloads.wait_for_condition(node, "CWActive", "True: running: default/training")

    workloads.scale("pods-blocking", 0)

    workloads.wait_for_verdict(
        "pods-blocking",
        "AtTarget",
        rf"{OVER} waits for {node}, active with Pods default/training since \S+Z\.",
    )
    assert not workloads.is_terminating("training")
    workloads.delete("training")
    workloads.wait_until_gone(node)


def test_idle_only_lets_an_interruptable_pod_run_and_takes_the_idle_node(
    workloads: Workloads,
) -> None:
    busy, idle = workloads.nodes("pods-idle-only", 2)
    workloads.run("long-lived", busy, labels=INTERRUPTABLE)
    workloads.wait_for_condition(busy, "CWActive", "True: running: default/long-lived")

    workloads.scale("pods-idle-only", 0)

    workloads.wait_until_gone(idle)
    workloads.wait_for_verdict(
        "pods-idle-only",
        "AtTarget",
        rf"{OVER} waits for {busy}, active since \S+Z \(.*default/long-lived.*\)\.",
    )
    assert not workloads.is_terminating("long-lived")
    workloads.delete("long-lived")
    workloads.wait_until_gone(busy)


# Budgets.


def test_a_budget_blocks_a_scale_down_until_it_allows_it(workloads: Workloads) -> None:
    # given a Pod that may be interrupted, and a budget that wants it to run
    (node,) = workloads.nodes("pods-budget", 1, **PREFER_IDLE)
    workloads.run("guarded", node, labels=INTERRUPTABLE)
    workloads.budget("guards", "guarded", available=1)

    # when its Node is to leave
    workloads.scale("pods-budget", 0)

    # then the Node and the Pod say which budget blocks, and the NodePool names the Pod
    refusal = (
        "Cannot evict pod as it would violate the pod's disruption budget."
        " The disruption budget guards needs 1 healthy pods and has 1 currently"
    )
    blocked = Told("EvictionBlocked", f"Node {node} cannot evict Pod default/guarded: {refusal}")
    wait_until("the Pod says so", lambda: told(workloads, "Pod", "guarded") == [blocked], WITHIN_S)
    wait_until("and the Node", lambda: told(workloads, "Node", node) == [blocked], WITHIN_S)
    workloads.wait_for_verdict(
        "pods-budget",
        "AtTarget",
        rf"{OVER} waits for {node}, active with Pods default/guarded since \S+Z\.",
    )
    assert not workloads.is_terminating("guarded")

    # when the budget allows it, the drain goes on by itself
    workloads.budget("guards", "guarded", available=0)
    workloads.wait_until_gone(node)


def told(workloads: Workloads, kind: str, name: str) -> list[Told]:
    """The Warnings about an object that speak of a drain that cannot go on."""
    return [each for each in workloads.warnings(kind, name) if each.reason == "EvictionBlocked"]


def test_two_budgets_for_one_pod_block_a_drain_and_are_told(workloads: Workloads) -> None:
    (node,) = workloads.nodes("pods-two-budgets", 1)
    workloads.run("twice", node, labels=GRACEFUL)
    workloads.run("beside", node, labels=GRACEFUL)
    workloads.budget("first", "twice", available=0)
    workloads.budget("second", "twice", available=0)

    workloads.send(DrainNode, "pods-two-budgets", node=node)

    # The API server evicts no Pod with two budgets, even where both allow it.
    wait_until("it is told", lambda: bool(told(workloads, "Pod", "twice")), WITHIN_S)
    ((_, message),) = told(workloads, "Pod", "twice")
    assert "This pod has more than one PodDisruptionBudget" in message
    # It does not keep other Pods from being evicted.
    workloads.wait_until_ended("beside")
    assert not workloads.is_terminating("twice")

    workloads.cluster.kubectl("delete", "poddisruptionbudget", "second")
    workloads.wait_until_ended("twice")


# Maintenance.


def test_a_drain_for_maintenance_ends_what_may_be_interrupted_and_awaits_the_rest(
    workloads: Workloads,
) -> None:
    (node,) = workloads.nodes("pods-maintenance", 1)
    workloads.run("cache", node, labels=INTERRUPTABLE)
    workloads.run("queue", node, labels=GRACEFUL)
    workloads.run("database", node)

    workloads.send(DrainNode, "pods-maintenance", node=node)

    workloads.wait_until_ended("cache")
    workloads.wait_until_ended("queue")
    workloads.wait_for_condition(node, "CWActive", "True: running: default/database")
    assert not workloads.is_terminating("database")
    # Nothing new is scheduled there meanwhile.
    workloads.create("late", node)
    workloads.wait_until_unschedulable("late")

    # Forced, the drain ends it too; then the Node takes Pods again.
    workloads.send(DrainNode, "pods-maintenance", node=node, force=True)
    workloads.wait_until_ended("database")
    workloads.wait_for_condition(node, "CWActive", "False: nothing runs here")
    workloads.send(UncordonNode, "pods-maintenance", node=node)
    assert workloads.wait_until_running("late") == node


def test_a_pod_of_a_namespace_that_is_being_deleted_is_deleted_in_a_drain(
    workloads: Workloads,
) -> None:
    # given a namespace whose deletion has begun, and whose Pods still run: nobody ends them
    (node,) = workloads.nodes("pods-namespace", 1)
    workloads.cluster.kubectl("create", "namespace", "going")
    wait_until("it has its account", lambda: has_account(workloads, "going"), WITHIN_S)
    workloads.run("resident", node, namespace="going", labels=GRACEFUL)
    workloads.run("neighbour", node, labels=GRACEFUL)
    with pause_process(workloads.cluster.parts[CONTROLLER_MANAGER].pid):
        workloads.cluster.kubectl("delete", "namespace", "going", "--wait=false")

        # when its Node is drained
        workloads.send(DrainNode, "pods-namespace", node=node)

        # then it ends although nothing can be created there, an eviction neither
        workloads.wait_until_ended("resident", "going")
        workloads.wait_until_ended("neighbour")


def has_account(workloads: Workloads, namespace: str) -> bool:
    """Whether Pods can be created in a namespace."""
    return workloads.cluster.run("get", "sa", "default", "-n", namespace).returncode == 0


# Finalizers.


@pytest.mark.parametrize("leaves", ["pool is deleted", "target is zero"])
def test_a_finalizer_that_hangs_delays_no_node(workloads: Workloads, leaves: str) -> None:
    pool = f"pods-{leaves.replace(' ', '-')}"
    name = f"hangs-where-{leaves.replace(' ', '-')}"
    (node,) = workloads.nodes(pool, 1, **PREFER_IDLE)
    workloads.run(name, node, labels=GRACEFUL, finalizers=["example.com/hangs"])

    if leaves == "target is zero":
        workloads.scale(pool, 0)
    else:
        workloads.cluster.kubectl("delete", "nodepool", pool, "--wait=false")

    workloads.wait_until_gone(node)
    found = workloads.pod(name)
    assert found is not None
    assert found["metadata"]["finalizers"] == ["example.com/hangs"]
