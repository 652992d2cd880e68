"""The agent between all services and a cluster in memory, killed before each of its actions."""

from collections.abc import Mapping

import pytest

from support.agent_world import AgentWorld

BUDGET = "Cannot evict pod as it would violate the pod's disruption budget db."
SOFT = {"qos.coreweave.cloud__interruptable": "true"}
GRACEFUL = {"qos.coreweave.com__graceful-interruptible": "true"}
NO_MARKS = {"mine": "1"}
ACTIONS_MAX = 60
"""The most actions of an agent that is not killed."""


def with_nodes(kill_before: int = 0) -> tuple[AgentWorld, str]:
    """A NodePool with two Nodes in production, and the name of the first; a foreign Node too."""
    world = AgentWorld(kill_before)
    world.cluster.add_node("foreign", labels=dict(NO_MARKS))
    world.given_data_center(machines=2)
    world.apply("train", 2)
    world.settle()
    world.pass_time(minutes=5)
    world.settle()
    return world, sorted(name for name in world.cluster.nodes if name != "foreign")[0]


def shown(world: AgentWorld, name: str) -> tuple[str, bool, list[str]]:
    """The phase of a Node on the bus, whether its object is cordoned, and its Pods."""
    document = world.document("nodes", f"acme/prod/{name}")
    assert document is not None
    status = document["status"]
    assert isinstance(status, Mapping)
    found = world.cluster.node(name)
    assert found is not None
    return status["phase"], found.unschedulable, sorted(world.cluster.pods)


def test_machines_that_have_booted_become_nodes_in_production() -> None:
    world, name = with_nodes()

    assert shown(world, name) == ("production", False, [])
    found = world.cluster.node(name)
    assert found is not None
    assert found.labels["compute.coreweave.com/node-pool"] == "train"
    assert [taint.key for taint in found.taints] == ["is_gpu"]


def test_a_cordon_by_hand_is_a_cordon_of_the_bus_and_so_is_its_end() -> None:
    world, name = with_nodes()

    world.cluster.nodes[name]["spec"]["unschedulable"] = True
    world.settle()
    assert shown(world, name) == ("cordoned", True, [])

    del world.cluster.nodes[name]["spec"]["unschedulable"]
    world.settle()
    assert shown(world, name) == ("production", False, [])


def drained(kill_before: int = 0) -> AgentWorld:
    """A Node is drained past a budget that blocks at first; then the NodePool is deleted."""
    # given a Node with a Pod of each kind
    world, name = with_nodes(kill_before)
    daemon = world.cluster.add_pod("daemon", name)
    daemon["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "controller": True}]
    world.cluster.add_pod("soft", name, **SOFT)
    world.cluster.add_pod("guarded", name, **GRACEFUL)
    world.cluster.budgets["default/guarded"] = BUDGET
    world.settle()

    # when it is drained, its Pod is named that the budget keeps, and told
    world.send("DrainNode", ("acme", "prod", "train"), {"node": name})
    world.settle()
    world.end_grace()
    assert shown(world, name) == ("draining", True, ["default/daemon", "default/guarded"])
    assert world.document("nodes", f"acme/prod/{name}")["status"]["blockingPodCount"] == 1  # type: ignore[index]
    assert {tell.reason for tell in world.cluster.told.values()} == {"EvictionBlocked"}

    # and it is drained once the budget allows it
    world.cluster.budgets.clear()
    world.settle()
    world.end_grace()
    assert shown(world, name) == ("cordoned", True, ["default/daemon"])

    # and an uncordon by hand brings it back
    del world.cluster.nodes[name]["spec"]["unschedulable"]
    world.settle()
    assert shown(world, name) == ("production", False, ["default/daemon"])

    # and all Nodes go with their NodePool, whatever runs there
    world.cluster.add_pod("stubborn", name)
    world.cluster.hanging.add("default/stubborn")
    world.settle()
    world.delete("train")
    world.settle()
    world.cluster.hanging.clear()
    world.end_grace()
    world.pass_time(minutes=40)
    world.settle()
    return world


def test_a_drain_waits_for_a_budget_and_a_deletion_for_nothing() -> None:
    world = drained()

    assert world.done <= ACTIONS_MAX
    assert sorted(world.cluster.nodes) == ["foreign"]
    assert world.cluster.nodes["foreign"]["metadata"]["labels"] == NO_MARKS
    assert world.cluster.pods == {}
    assert world.node_pool("train") is None


@pytest.mark.parametrize("kill_before", range(1, ACTIONS_MAX + 1))
def test_an_agent_that_is_killed_anywhere_brings_it_to_the_same_end(kill_before: int) -> None:
    world = drained(kill_before)

    assert sorted(world.cluster.nodes) == ["foreign"]
    assert world.cluster.nodes["foreign"]["metadata"]["labels"] == NO_MARKS
    assert world.cluster.pods == {}
    assert world.node_pool("train") is None
    assert world.replay_differs() == []
