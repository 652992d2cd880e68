"""What is advised against a shortage gives back what it says, and takes nothing else."""

from random import Random

import pytest

from flow.test_explanations import explained, titles
from flow.test_racks import given_racks, run_pod, want
from support.constants import CLUSTER, H100, ORG, ZONE
from support.simulation.advice import check_advice
from support.world_harness import WorldHarness

SILENT = "a Node that does not answer leaves first, and counts until it is treated as dead"
COUNTED = "each of its Nodes counts until it is idle and has left"
CURES = {"disableUnhealthyNodeEviction": False}


def helps(world: WorldHarness, pool: str = "new") -> tuple[str, ...]:
    """What would help against the first cause; each change is tried, and does help."""
    check_advice(world.world, Random(0), most=100)
    return explained(world, pool).causes[0].helps


def given_peers(world: WorldHarness, target: int, **lifecycle: object) -> None:
    """Two NodePools that share a quota of 6, and a third that wants 2 Nodes of the quota."""
    world.given_data_center(machines=8, quota=6)
    world.apply("train", target, lifecycle=lifecycle)
    world.apply("dev", 6 - target)
    world.apply("new", 2)


@pytest.mark.parametrize("strategy", ["IdleOnly", "PreferIdle"])
def test_an_idle_nodepool_is_to_give_quota_back_before_a_larger_nodepool_at_work(
    world: WorldHarness, strategy: str
) -> None:
    # given a NodePool at work, whose Pods block, and a smaller NodePool with idle Nodes
    given_peers(world, 4, scaleDownStrategy=strategy)
    for node in world.nodes("train"):
        world.run_pod(node)

    # when the advice is followed
    advised = helps(world)
    world.scale("dev", 0)
    world.pass_time(minutes=1)

    # then the third NodePool has its Nodes at once
    assert advised[-1] == f"scale {CLUSTER}/dev down to 0"
    assert titles(explained(world, "new")) == []


def test_pods_that_may_end_keep_no_quota_of_a_nodepool_that_prefers_idle_nodes(
    world: WorldHarness,
) -> None:
    given_peers(world, 4, scaleDownStrategy="PreferIdle")
    for node in world.nodes("train"):
        world.run_pod(node, interruption="interruptable")

    assert helps(world)[-1] == f"scale {CLUSTER}/train down to 2"


def test_a_node_that_waits_for_its_pods_leaves_in_the_place_of_an_idle_node(
    world: WorldHarness,
) -> None:
    # given a NodePool with idle Nodes, of which an unhealthy Node at work is to leave
    given_peers(world, 4, **CURES)
    world.run_pod("n1")
    world.break_machines("n1", fault="gpu-lost")
    world.pass_time(minutes=3)

    # then the other NodePool is to give quota back
    assert helps(world)[-1] == f"scale {CLUSTER}/dev down to 0"


def test_a_nodepool_at_work_gives_quota_back_once_its_nodes_are_idle(world: WorldHarness) -> None:
    # given a NodePool that waits for the quota of two others at work
    given_peers(world, 4)
    for node in (*world.nodes("train"), *world.nodes("dev")):
        world.run_pod(node)

    # when the larger is scaled down, and its work ends later
    advised = helps(world)
    world.scale("train", 2)
    world.pass_time(minutes=60)
    waits = explained(world, "new").causes[0]
    for node in world.nodes("train"):
        world.stop_pod(node)
        world.pass_time(minutes=1)

    # then all of this was said
    assert advised[-1] == f"scale {CLUSTER}/train down to 2: {COUNTED}"
    assert waits.details[-1] == f"{CLUSTER}/train has 2 Nodes more than it keeps: {COUNTED}"
    assert titles(explained(world, "new")) == []


def test_a_nodepool_whose_node_does_not_answer_gives_quota_back_only_if_no_other_can(
    world: WorldHarness,
) -> None:
    # given a NodePool with a Node that does not answer, and another NodePool with idle Nodes
    world.given_data_center(machines=8, quota=5)
    world.apply("ill", 3)
    world.apply("well", 2)
    world.break_machines("n1", fault="hang")
    world.pass_time(minutes=10)
    world.apply("new", 1)
    both = helps(world)[-1]

    # when only the first is left to give quota back
    world.delete("well")
    world.apply("new", 3)
    alone = helps(world)[-1]
    world.scale("ill", 2)
    world.pass_time(minutes=10)
    waits = explained(world, "new").causes[0]
    world.pass_time(minutes=25)

    # then the delay was said
    assert both == f"scale {CLUSTER}/well down to 1"
    assert alone == f"scale {CLUSTER}/ill down to 2: {SILENT}"
    assert waits.details[-1] == f"{CLUSTER}/ill has 1 Node more than it keeps: {SILENT}"
    assert titles(explained(world, "new")) == []


def test_a_first_limit_has_room_for_what_an_autoscaler_may_want_and_for_who_then_fits(
    world: WorldHarness,
) -> None:
    # given an autoscaled NodePool without a quota, beside one that wants a Node more
    world.given_cluster()
    world.given_machines(12)
    world.apply("large", 6)
    world.apply("new", 5, autoscaling=True, minNodes=1, maxNodes=6)

    # when the advised limit is set
    (advised, *_) = helps(world)
    world.given_quota(12)
    world.pass_time(minutes=1)

    # then the NodePool has its Nodes, though the other one is served first
    assert advised == (
        f"set the quota of {H100} in {ZONE} to 12, or more: its autoscaler may want up to 6 Nodes, "
        "up to 6 of them for what may be served before new"
    )
    assert len(world.nodes("new")) == 5


def test_the_nodes_of_a_nodepool_in_another_cluster_keep_quota_too(world: WorldHarness) -> None:
    world.given_data_center(machines=8, quota=6)
    world.given_cluster("west")
    world.apply("acme/west/train", 4)
    for node in world.nodes("acme/west/train"):
        world.run_pod(node)
    world.apply("train", 2)
    world.apply("new", 2)

    assert helps(world)[-1] == f"scale {CLUSTER}/train down to 0"


def test_a_rack_at_work_keeps_quota_where_another_nodepool_has_an_idle_rack(
    world: WorldHarness,
) -> None:
    # given a NodePool with a Pod on each of its two racks, and a NodePool with one idle rack
    given_racks(world, 4, quota=54)
    want(world, 2)
    want(world, 1, "dev")
    run_pod(world, "n1")
    run_pod(world, "n19")
    want(world, 1, "new")

    assert helps(world)[-1] == f"scale {CLUSTER}/dev down to 0"


def given_unhealthy(world: WorldHarness, machines: int, quota: int, *, at_work: bool) -> None:
    """A NodePool with an unhealthy Node, which it cannot replace."""
    world.given_data_center(machines=machines, quota=quota)
    world.apply("train", 4, lifecycle=CURES)
    if at_work:
        world.run_pod("n1")
    world.break_machines("n1", fault="gpu-lost")
    world.pass_time(minutes=3)


def test_a_node_that_is_to_leave_counts_in_the_target_that_quota_allows(
    world: WorldHarness,
) -> None:
    # given a NodePool with all Nodes of its quota, of which an unhealthy Node waits for its Pod
    given_unhealthy(world, machines=6, quota=4, at_work=True)
    world.scale("train", 6)

    # when the advice is followed, and the Pod ends
    advised = helps(world, "train")
    world.scale("train", 4)
    at_target = world.condition("train", "AtTarget")
    world.stop_pod("n1")
    world.pass_time(minutes=5)

    # then the NodePool keeps what it has, and the Node is replaced
    assert advised[-1] == "scale train to 4, what it has"
    assert at_target.startswith("True TargetMet")
    assert titles(explained(world, "train")) == []
    assert len(world.nodes("train")) == 4


def test_a_node_that_pods_keep_counts_in_the_target_that_machines_allow(
    world: WorldHarness,
) -> None:
    given_unhealthy(world, machines=3, quota=9, at_work=True)

    advised = helps(world, "train")
    world.scale("train", 3)

    assert advised[-1] == "scale train to 3, what it has"
    assert world.condition("train", "AtTarget").startswith("True TargetMet")


def test_a_node_that_leaves_soon_does_not_count_in_the_target_that_machines_allow(
    world: WorldHarness,
) -> None:
    # given a spot NodePool that lacks a Node, and loses another to a default NodePool
    world.given_data_center(machines=3)
    world.apply("train", 4, computeClass="spot")
    world.apply("other", 1)

    # when the advice is followed
    advised = helps(world, "train")
    world.scale("train", 2)
    world.pass_time(minutes=10)

    # then the NodePool has what was left to it
    assert advised[-1] == "scale train to 2, what it keeps"
    assert world.condition("train", "AtTarget").startswith("True TargetMet")


def given_many(world: WorldHarness, **lifecycle: object) -> list[str]:
    """Four NodePools with 2 Nodes at work each, which is all quota, and one that lacks a Node."""
    world.given_data_center(machines=10, quota=8)
    pools = ["a", "b", "c", "d"]
    for pool in pools:
        world.apply(pool, 2, lifecycle=lifecycle)
    for node in range(1, 9):
        world.run_pod(f"n{node}", interruption="graceful", graceS=600)
    world.apply("new", 1)
    return pools


@pytest.mark.parametrize("strategy", ["IdleOnly", "PreferIdle"])
def test_quota_that_a_nodepool_gives_back_is_not_taken_from_another_too(
    world: WorldHarness, strategy: str
) -> None:
    # given a NodePool that waits for quota, and a NodePool that was scaled down for that
    given_many(world, scaleDownStrategy=strategy)
    world.scale("a", 1)
    world.pass_time(minutes=1)

    # then that NodePool is waited for, and no other is to be scaled down
    assert helps(world) == (
        "raise the quota of gd-8xh100ib-i128 in US-EAST-04A to 9",
        f"wait: {CLUSTER}/a gives back 1 Node; a Node counts until it has left",
    )


def test_quota_comes_from_another_nodepool_if_what_is_given_back_is_not_enough(
    world: WorldHarness,
) -> None:
    # given a NodePool that lacks 2 Nodes, of which another NodePool gives back one
    given_many(world)
    world.scale("a", 1)
    world.scale("new", 2)
    world.pass_time(minutes=1)

    # when the advice is followed, and the work there ends
    advised = helps(world)
    world.scale("b", 1)
    waits = helps(world)
    for node in range(1, 5):
        world.stop_pod(f"n{node}")
    world.pass_time(minutes=5)

    # then that was enough
    assert advised[-1] == f"scale {CLUSTER}/a down to 0: {COUNTED}"
    assert waits[-1] == (
        f"wait: {CLUSTER}/a, {CLUSTER}/b give back 2 Nodes; a Node counts until it has left"
    )
    assert titles(explained(world, "new")) == []


def given_returning(world: WorldHarness, idle: int) -> None:
    """A NodePool that lacks 3 Nodes, another with idle Nodes, and a third that gives back a Node.

    That Node counts until its Pod has ended.
    """
    world.given_data_center(machines=12, quota=idle + 3)
    world.apply("idle", idle)
    world.apply("busy", 2)
    for node in world.nodes("busy"):
        world.run_pod(node)
    world.scale("busy", 1)
    world.apply("new", 4)
    world.pass_time(minutes=1)


def test_idle_nodes_are_to_give_quota_back_at_once_without_a_node_that_work_keeps(
    world: WorldHarness,
) -> None:
    given_returning(world, idle=5)

    # when the advice is followed, and no Pod ends
    advised = helps(world)
    world.scale("idle", 2)
    world.pass_time(minutes=1)

    # then the NodePool has its Nodes
    assert advised[-1] == f"scale {CLUSTER}/idle down to 2"
    assert titles(explained(world, "new")) == []


def test_a_node_that_work_keeps_is_waited_for_where_idle_nodes_are_not_enough(
    world: WorldHarness,
) -> None:
    given_returning(world, idle=2)

    # when the advice is followed, and the Pod ends later
    advised = helps(world)
    world.scale("idle", 0)
    world.pass_time(minutes=60)
    waits = titles(explained(world, "new"))
    for node in world.nodes("busy"):
        world.stop_pod(node)
    world.pass_time(minutes=1)

    # then the NodePool has its Nodes only then, as was said
    assert advised[-1] == (
        f"scale {CLUSTER}/idle down to 0; also wait: {CLUSTER}/busy gives back 1 Node; "
        "a Node counts until it has left"
    )
    assert waits == ["Quota is Over"]
    assert titles(explained(world, "new")) == []


def test_the_quota_of_a_nodepool_that_is_being_deleted_is_waited_for(
    world: WorldHarness,
) -> None:
    # given a NodePool that is being deleted, whose Pods have ten minutes, and a smaller one
    world.given_data_center(machines=10, quota=8)
    world.apply("train", 4)
    world.apply("dev", 4)
    for node in world.nodes("train"):
        world.run_pod(node, interruption="graceful", graceS=600)
    world.delete("train")
    world.pass_time(seconds=5)
    world.apply("new", 4)

    # when nothing is done
    advised, details = helps(world), explained(world, "new").causes[0].details
    world.pass_time(minutes=12)

    # then its quota is enough, as was said
    assert advised[1:] == (
        f"wait: {CLUSTER}/train gives back 4 Nodes; a Node counts until it has left",
    )
    assert details[-1] == (
        f"{CLUSTER}/train is being deleted and has 4 Nodes: a Node counts until it has left"
    )
    assert titles(explained(world, "new")) == []


def test_no_quota_is_asked_for_what_does_not_fit_into_it(world: WorldHarness) -> None:
    # given a spot NodePool that lacks a Node, and a NodePool that waits longer for two
    given_waiting(world, 2)
    world.apply("cheap", 3, computeClass="spot")

    # when the advice is followed
    advised = helps(world, "cheap")
    world.given_quota(3)
    world.pass_time(minutes=20)

    # then the other NodePool is granted none, and preempts no Node
    assert advised[0] == f"raise the quota of {H100} in {ZONE} to 3"
    assert world.nodes("cheap") == ["n1", "n2"]


def test_more_quota_for_a_spot_nodepool_may_cost_it_nodes(world: WorldHarness) -> None:
    # given a spot NodePool that lacks a Node, and a NodePool that waits longer for one
    given_waiting(world, 1)
    world.apply("cheap", 3, computeClass="spot")

    # when the advice is followed
    advised = helps(world, "cheap")
    world.given_quota(4)
    world.pass_time(minutes=20)

    # then the other NodePool preempts a Node, as the advice says
    assert advised[0] == (
        f"raise the quota of {H100} in {ZONE} to 4, up to 1 of them for what may be served before "
        f"cheap; {CLUSTER}/train may then preempt Nodes of cheap"
    )
    assert world.nodes("cheap") == ["n2"]


@pytest.mark.parametrize("lacks", [3, 4])
def test_a_spot_nodepool_gives_up_no_quota_for_which_another_would_preempt_it(
    world: WorldHarness, lacks: int
) -> None:
    # given a spot NodePool that lacks three of five Nodes, and a NodePool that waits for quota
    given_waiting(world, lacks, quota=5)

    # then it is to keep what it has only where the other NodePool does not fit then
    keeps = "scale cheap to 2, what it has"
    assert (keeps in helps(world, "cheap")) is (lacks > 3)


@pytest.mark.parametrize(("quota", "kept"), [(3, None), (7, 1)])
def test_a_spot_nodepool_gives_up_no_quota_into_which_an_autoscaler_may_grow(
    world: WorldHarness, quota: int, kept: int | None
) -> None:
    # given a spot NodePool that lacks a machine, and an autoscaler of another one, with a Pod
    world.given_data_center(machines=2, quota=quota)
    world.given_cluster("lab")
    world.apply("cheap", 3, computeClass="spot")
    world.apply(f"{ORG}/lab/grows", 0, autoscaling=True, minNodes=0, maxNodes=4)
    world.create_pod(f"{ORG}/lab/grows", "p", gpus=8)
    world.pass_time(minutes=20)

    # then it is to keep what it has only where the quota has room for all that may be wanted
    advised = [each for each in helps(world, "cheap") if each.startswith("scale")]
    assert advised == ([] if kept is None else [f"scale cheap to {kept}, what it has"])


def given_waiting(world: WorldHarness, lacks: int, quota: int = 2) -> None:
    """Two machines of a spot NodePool that has the whole quota, for which another waits."""
    world.given_data_center(machines=2, quota=quota)
    world.apply("cheap", quota, computeClass="spot")
    world.apply("train", lacks)
