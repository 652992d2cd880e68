"""The agent between all services and a cluster in memory, killed before each of its actions."""

import json
from collections.abc import Mapping

import pytest

from agent.actions import Patch
from agent.nodes.record import read_record
from nodepool.contract.log import LogId
from nodepool.contract.model import RESERVED
from nodepool.contract.pods import reserved_taint
from nodepool.contract.well_known import MANAGED
from support.agent_world import AgentWorld
from support.constants import ORG

BUDGET = "Cannot evict pod as it would violate the pod's disruption budget db."
SOFT = {"qos.coreweave.cloud__interruptable": "true"}
GRACEFUL = {"qos.coreweave.com__graceful-interruptible": "true"}
NO_MARKS = {"mine": "1"}
ACTIONS_MAX = 70
"""The most actions of an agent that is not killed."""


def reservations(world: AgentWorld, name: str) -> list[str]:
    """Return the values of the reservation taints that a Node of the cluster has."""
    found = world.cluster.node(name)
    assert found is not None
    return [taint.value for taint in found.taints if taint.key == RESERVED]


def with_nodes(kill_before: int = 0, compute_class: str = "default") -> tuple[AgentWorld, str]:
    """A NodePool with two Nodes in production, and the name of the first; a foreign Node too."""
    world = AgentWorld(kill_before)
    world.cluster.add_node("foreign", labels=dict(NO_MARKS))
    world.given_data_center(machines=2)
    world.apply("train", 2, computeClass=compute_class)
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
    assert [taint.key for taint in found.taints] == ["is_gpu", RESERVED]
    assert reservations(world, name) == [reserved_taint(ORG).value]


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
    assert {tell.reason for tell in world.cluster.recorded.values()} == {"EvictionBlocked"}

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


def test_a_drain_that_does_not_wait_for_a_grace_period_ends_once() -> None:
    # given a Node with a Pod that may be interrupted
    world, name = with_nodes()
    world.cluster.add_pod("soft", name, **SOFT)
    world.settle()

    # when it is drained, and its Pod takes its time
    world.send("DrainNode", ("acme", "prod", "train"), {"node": name})
    world.settle()

    # then the drain is over, and stays so once the Pod has ended
    assert shown(world, name) == ("cordoned", True, ["default/soft"])
    world.end_grace()
    assert shown(world, name) == ("cordoned", True, [])


# What the API server refuses.


def sets_labels(patch: Patch) -> bool:
    """Whether a patch changes labels."""
    metadata = patch.patch.get("metadata")
    return isinstance(metadata, Mapping) and "labels" in metadata


def test_a_node_whose_labels_are_refused_is_cordoned_and_drained_all_the_same() -> None:
    # given a Node with a Pod, and a label for it that the API server refuses
    world, name = with_nodes()
    world.cluster.add_pod("soft", name, **SOFT)
    world.cluster.refuses = sets_labels
    world.apply("train", 2, nodeLabels={"team": "research"})
    world.settle()

    # when it is drained
    world.send("DrainNode", ("acme", "prod", "train"), {"node": name})
    world.settle()
    world.end_grace()

    # then it is, and has its label once it may
    assert shown(world, name) == ("cordoned", True, [])
    found = world.cluster.node(name)
    assert found is not None
    assert "team" not in found.labels
    world.cluster.refuses = lambda _patch: False
    world.settle()
    found = world.cluster.node(name)
    assert found is not None
    assert (found.labels["team"], found.unschedulable) == ("research", True)


def test_pods_of_a_preempted_node_that_takes_no_patch_end_when_they_are_to() -> None:
    # given a spot Node with a Pod, of which the API server refuses any change
    world, name = with_nodes(compute_class="spot")
    world.cluster.add_pod("work", name)
    world.settle()
    world.cluster.refuses = lambda _patch: True

    # when it is preempted, and its Pods are to end
    world.send("PreemptNode", ("acme", "prod", "train"), {"node": name})
    world.settle()
    assert list(world.cluster.pods) == ["default/work"]
    world.pass_time(minutes=2, seconds=20)
    world.settle()

    # then they do, in their own grace period
    pod = world.cluster.pods["default/work"]
    assert "deletionTimestamp" in pod["metadata"]
    assert "deletionGracePeriodSeconds" not in pod["metadata"]


# What is merely absent, or merely late.


def uids(world: AgentWorld) -> dict[str, str]:
    """The uid of each Node object by its name."""
    return {name: node["metadata"]["uid"] for name, node in world.cluster.nodes.items()}


def test_a_read_model_that_is_emptied_and_built_anew_costs_nothing() -> None:
    # given Nodes at work
    world, name = with_nodes()
    world.cluster.add_pod("work", name)
    world.settle()
    before = uids(world)

    # when the read model shows none of them, and shows them again
    world.shows_nodes = False
    world.settle()
    lost = uids(world)
    world.shows_nodes = True
    world.settle()

    # then nothing has happened to them
    assert lost == uids(world) == before
    assert shown(world, name) == ("production", False, ["default/work"])


def test_a_stay_that_ends_while_the_read_model_is_empty_ends_in_the_cluster() -> None:
    world, _ = with_nodes()
    world.shows_nodes = False

    world.delete("train")
    world.shows_nodes = True
    world.settle()
    world.shows_nodes = False
    world.settle()

    assert sorted(world.cluster.nodes) == ["foreign"]


@pytest.mark.parametrize("shows_nodes", [True, False], ids=["as they are", "of an empty bus"])
def test_nodes_of_another_log_stay_with_their_pods(*, shows_nodes: bool) -> None:
    # given Nodes at work
    world, name = with_nodes()
    world.cluster.add_pod("work", name)
    world.settle()
    before = uids(world)

    # when the agent reads another log, as after a move of the bus
    world.log_id, world.shows_nodes = LogId("another log"), shows_nodes
    world.forget()
    world.settle()

    # then each stays, and is that of the other log where that has it
    assert uids(world) == before
    assert sorted(world.cluster.pods) == ["default/work"]
    found = world.cluster.node(name)
    assert found is not None
    state = read_record(found)
    assert state is not None
    assert state.log == ("another log" if shows_nodes else "log")


def test_a_log_that_is_restored_from_a_backup_keeps_the_nodes_that_it_has() -> None:
    # given a Node whose object knows of a later stay than the log, and Pods at work
    world, name = with_nodes()
    world.cluster.add_pod("work", name)
    world.settle()
    before = uids(world)
    annotations = world.cluster.nodes[name]["metadata"]["annotations"]
    kept = json.loads(annotations[MANAGED])
    annotations[MANAGED] = json.dumps({**kept, "assignment": 999, "version": 999_999})

    # when it is compared
    world.forget()
    world.settle()

    # then it is adopted
    assert uids(world) == before
    assert json.loads(annotations[MANAGED]) == kept | {
        "version": json.loads(annotations[MANAGED])["version"]
    }
    assert shown(world, name) == ("production", False, ["default/work"])


def test_a_pod_that_is_bound_after_a_cordon_is_not_lost() -> None:
    # given idle Nodes, and a scheduler that does not know of a cordon yet
    world, _ = with_nodes()
    is_bound = False

    def bind(node: str) -> None:
        nonlocal is_bound
        if not is_bound:
            world.cluster.add_pod("late", node)
            is_bound = True

    world.cluster.before_list = bind

    # when its NodePool is scaled down to Nodes that are idle
    world.apply("train", 0, lifecycle={"scaleDownStrategy": "IdleOnly"})
    world.settle()

    # then the Node stays on which the Pod is, and the other one goes
    late = world.cluster.pods["default/late"]["spec"]["nodeName"]
    assert is_bound
    assert sorted(world.cluster.nodes) == sorted(["foreign", late])
    assert shown(world, late)[0] == "production"


@pytest.mark.parametrize(
    ("minutes", "phase"), [(4.9, "production"), (5, "cordoned"), (600, "cordoned")]
)
def test_a_node_whose_kubelet_is_silent_is_cordoned_once_that_lasts(
    minutes: float, phase: str
) -> None:
    world, name = with_nodes()

    world.cluster.nodes[name]["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    world.settle()
    world.pass_time(minutes=minutes)
    world.settle()
    silent = shown(world, name)[0]
    world.cluster.nodes[name]["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    world.settle()

    assert (silent, shown(world, name)[0]) == (phase, "production")


def test_a_silence_is_no_reason_to_repair_while_the_agent_is_away() -> None:
    # given a Node that is silent, which the agent has reported
    world, name = with_nodes()
    world.cluster.nodes[name]["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    world.settle()

    # when the agent is away, and another one comes
    world.pass_time(minutes=60)
    during = shown(world, name)[0]
    world.forget()
    world.settle()

    # then the Node is cordoned only once the silence is confirmed
    assert (during, shown(world, name)[0]) == ("production", "cordoned")


def test_a_node_that_was_deleted_by_hand_is_back_as_it_was() -> None:
    world, name = with_nodes()
    labels = world.cluster.nodes[name]["metadata"]["labels"]
    labels["theirs"] = "1"
    world.settle()
    before = dict(labels)

    del world.cluster.nodes[name]
    world.settle()

    found = world.cluster.node(name)
    assert found is not None
    assert before.items() <= found.labels.items()
    assert reservations(world, name) == [reserved_taint(ORG).value, "booting"]
    world.cluster.nodes[name]["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
    world.settle()
    assert reservations(world, name) == [reserved_taint(ORG).value]
    assert shown(world, name)[0] == "production"
