"""How the agent ends the Pods of a Node that is drained."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from agent.actions import Action, Delete, Drain, Evict, Patch, Place, RecordEvent
from agent.nodes.drains import drain_node
from agent.nodes.missing import NodeView, missing_for_node
from agent.nodes.objects import WantedNode
from nodepool.contract.log import LogId
from nodepool.contract.model import NodePhase
from nodepool.contract.pods import PodClass
from support.memory_cluster import MemoryCluster

NOW = datetime(2026, 1, 1, tzinfo=UTC)
INTERRUPTABLE = {"qos.coreweave.cloud__interruptable": "true"}
GRACEFUL = {"qos.coreweave.com__graceful-interruptible": "true"}
BUDGET = "Cannot evict pod as it would violate the pod's disruption budget db."


def draining(drain: Drain) -> WantedNode:
    """A Node that is cordoned and drained."""
    return WantedNode(
        name="n1",
        zone="z",
        pool="p",
        assignment=7,
        version="9",
        phase=NodePhase.DRAINING,
        registered=True,
        unschedulable=True,
        cordon=2,
        drain=drain,
    )


@pytest.fixture
def cluster() -> MemoryCluster:
    """A Node with a Pod of each kind."""
    cluster = MemoryCluster()
    cluster.add_node("n1", uid="node-uid")["spec"]["unschedulable"] = True
    cluster.add_pod("blocking", "n1")
    cluster.add_pod("graceful", "n1", **GRACEFUL)
    cluster.add_pod("soft", "n1", **INTERRUPTABLE)
    owners = [{"kind": "DaemonSet", "controller": True}]
    cluster.add_pod("daemon", "n1", **INTERRUPTABLE)["metadata"]["ownerReferences"] = owners
    mirror = {"kubernetes.io/config.mirror": "x"}
    cluster.add_pod("static", "n1", **GRACEFUL)["metadata"]["annotations"] = mirror
    cluster.add_pod("done", "n1", **GRACEFUL)["status"]["phase"] = "Succeeded"
    cluster.add_pod("elsewhere", "n2", **INTERRUPTABLE)
    return cluster


def drain(cluster: MemoryCluster, how: Drain) -> list[Action]:
    found = cluster.node("n1")
    assert found is not None
    return list(drain_node(draining(how), found, cluster.pods_of("n1"), NOW))


def uid(cluster: MemoryCluster, name: str) -> str:
    found: str = cluster.pods[f"default/{name}"]["metadata"]["uid"]
    return found


def test_a_safe_drain_evicts_what_may_be_interrupted(cluster: MemoryCluster) -> None:
    assert drain(cluster, "safe") == [
        Evict("default", "graceful", uid(cluster, "graceful")),
        Evict("default", "soft", uid(cluster, "soft")),
    ]


def test_a_pod_of_kube_system_is_deleted_since_the_agent_may_evict_none_there(
    cluster: MemoryCluster,
) -> None:
    cluster.pods = {"default/graceful": cluster.pods["default/graceful"]}
    cluster.pods["default/graceful"]["metadata"]["namespace"] = "kube-system"

    assert drain(cluster, "safe") == [
        Delete("Pod", "graceful", uid(cluster, "graceful"), "kube-system")
    ]
    assert drain(cluster, "") == []


def test_a_forced_drain_deletes_all_but_daemon_sets_with_their_own_grace(
    cluster: MemoryCluster,
) -> None:
    cluster.budgets["default/graceful"] = BUDGET

    assert drain(cluster, "forced") == [
        Delete("Pod", name, uid(cluster, name), "default")
        for name in ("blocking", "graceful", "soft")
    ]


def test_a_node_that_is_not_drained_keeps_its_pods(cluster: MemoryCluster) -> None:
    assert drain(cluster, "") == []


@pytest.mark.parametrize("how", ["safe", "forced"])
def test_a_pod_that_terminates_is_not_ended_again(cluster: MemoryCluster, how: Drain) -> None:
    for action in drain(cluster, how):
        cluster.carry_out(action)

    assert drain(cluster, how) == []


def test_a_budget_that_blocks_is_told_of_the_node_and_the_pod(cluster: MemoryCluster) -> None:
    # given a graceful Pod whose budget refuses its eviction
    cluster.budgets["default/graceful"] = BUDGET
    for action in drain(cluster, "safe"):
        cluster.carry_out(action)

    # when the drain goes on
    actions = drain(cluster, "safe")

    # then it is tried again, and told of both under a key of this drain
    pod = uid(cluster, "graceful")
    text = f"Node n1 cannot evict Pod default/graceful: {BUDGET}"
    key = f"node-uid.7.drain.2.{pod}"
    assert actions == [
        Evict("default", "graceful", pod),
        RecordEvent("Node", "n1", "node-uid", "Warning", "EvictionBlocked", text, key, NOW),
        RecordEvent(
            "Pod",
            "graceful",
            pod,
            "Warning",
            "EvictionBlocked",
            text,
            key,
            NOW,
            namespace="default",
        ),
    ]


def test_pods_end_only_once_no_other_can_begin(cluster: MemoryCluster) -> None:
    # given a Node that is to be drained and is not cordoned yet
    cluster.nodes["n1"]["spec"]["unschedulable"] = False
    place, log = Place("acme", "prod", "z"), LogId("log")

    def step() -> list[Action]:
        view = NodeView(draining("safe"), cluster.node("n1"), cluster.pods_of("n1"))
        actions = missing_for_node(view, place, log, NOW)
        return [each for each in actions if isinstance(each, Patch | Evict)]

    # when it is compared
    first = step()
    for action in first:
        cluster.carry_out(action)

    # then it is cordoned first, and drained at the next comparison
    assert [type(each) for each in first] == [Patch]
    assert [type(each) for each in step()] == [Evict, Evict]


def test_a_pod_of_a_budget_blocks_only_as_long_as_its_node_is_drained_safely() -> None:
    cluster = MemoryCluster()
    cluster.add_node("n1")["spec"]["unschedulable"] = True
    cluster.add_pod("graceful", "n1", **GRACEFUL)
    cluster.refused["default/graceful"] = BUDGET
    place, log = Place("acme", "prod", "z"), LogId("log")

    classes = []
    for how in ("safe", "forced", ""):
        wanted = replace(draining(""), drain=how)
        view = NodeView(wanted, cluster.node("n1"), cluster.pods_of("n1"))
        for action in missing_for_node(view, place, log, NOW)[:1]:
            cluster.carry_out(action)
        classes.append(cluster.last_report("n1").pods[0].interruption)

    assert classes == [PodClass.BLOCKING, PodClass.GRACEFUL, PodClass.GRACEFUL]
