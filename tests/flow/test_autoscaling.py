"""A NodePool with `autoscaling: true` follows the Pods that wait up, and idle Nodes down.

https://docs.coreweave.com/products/cks/nodes/autoscaling describes it; the times are the defaults
of https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md.
"""

import pytest

from nodepool.contract.events import NodePoolAutoscaled
from nodepool.contract.model import API_VERSION, KIND
from nodepool.explanation.documents import facts
from nodepool.explanation.sentence import explain
from support.constants import H100
from support.harness import Harness
from support.paths import pool_path
from support.world_harness import WorldHarness


def given_autoscaled_pool(
    harness: Harness, target: int = 0, *, least: int = 0, on: bool = True, spot: bool = False
) -> None:
    """A data centre with 10 machines, and the NodePool `train` of up to 4 Nodes."""
    harness.given_data_center()
    apply(harness, target, least=least, on=on, spot=spot)


def apply(
    harness: Harness, target: int, *, least: int = 0, on: bool = True, spot: bool = False
) -> None:
    """Applies the NodePool `train`, with or without autoscaling."""
    harness.apply(
        "train",
        target,
        autoscaling=on,
        minNodes=least,
        maxNodes=4,
        computeClass="spot" if spot else "default",
    )


def target(harness: Harness) -> int:
    """The target of the NodePool `train`."""
    pool = harness.node_pool("train")
    assert pool is not None
    return pool["spec"]["targetNodes"]


def reasons(harness: Harness) -> list[str]:
    """Why the target of the NodePool `train` was changed."""
    return [
        envelope.data.message
        for envelope in harness.envelopes_of("train")
        if isinstance(envelope.data, NodePoolAutoscaled)
    ]


def test_a_pool_without_nodes_gets_some_for_pods_that_wait(harness: Harness) -> None:
    given_autoscaled_pool(harness)
    harness.start_recording()

    harness.create_pod("train", "a", gpus=8)
    harness.pass_time(seconds=3)

    assert harness.pod_changes("train") == ["a Pending", "a Running n1"]
    assert target(harness) == 1
    assert reasons(harness) == ["targetNodes from 0 to 1: 1 Pod waits for 1 Node more"]


def test_a_pool_grows_as_far_as_its_pods_need_and_no_further_than_it_may(
    harness: Harness,
) -> None:
    given_autoscaled_pool(harness)

    with harness.sent_together():
        for name in ("a", "b", "c"):
            harness.create_pod("train", name, gpus=4)
    harness.pass_time(seconds=3)
    shared = target(harness)
    with harness.sent_together():
        for name in ("d", "e", "f", "g"):
            harness.create_pod("train", name, gpus=8)
    harness.pass_time(seconds=3)

    assert (shared, target(harness)) == (2, 4)
    waiting = [text.split()[0] for text in harness.pod_changes("train") if "Pending" in text]
    running = [text.split()[0] for text in harness.pod_changes("train") if "Running" in text]
    assert sorted(set(waiting) - set(running)) == ["f", "g"]


def test_a_pool_without_a_target_leaves_it_to_the_autoscaler(harness: Harness) -> None:
    # given a manifest that names no target
    harness.given_data_center()
    apply_without_target(harness, least=1, most=4)
    assert target(harness) == 1

    # when the autoscaler has set one, and the manifest is applied again
    harness.create_pod("train", "a", gpus=8)
    harness.create_pod("train", "b", gpus=8)
    harness.pass_time(seconds=3)
    assert target(harness) == 2
    again = apply_without_target(harness, least=1, most=4)

    # then it stays, and what no longer lies between the bounds goes only as far as they ask
    assert harness.outcomes(again) == ["unchanged 2"]
    assert target(harness) == 2
    apply_without_target(harness, least=3, most=4)
    assert target(harness) == 3


def test_without_an_autoscaler_a_target_is_required(harness: Harness) -> None:
    harness.given_data_center()

    refused = apply_without_target(harness, least=1, most=4, autoscaling=False)

    assert harness.outcomes(refused) == ["Invalid spec.targetNodes: is required"]


def apply_without_target(
    harness: Harness, *, least: int, most: int, autoscaling: bool = True
) -> str:
    """Applies the NodePool `train` without a target."""
    bounds = {"autoscaling": autoscaling, "minNodes": least, "maxNodes": most}
    content = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": "train"},
        "spec": {"instanceType": H100, **bounds},
    }
    return harness.send("ApplyNodePool", pool_path("train"), content)


def test_nodes_that_were_idle_for_ten_minutes_go(world: WorldHarness) -> None:
    given_autoscaled_pool(world)
    for name in ("a", "b"):
        world.create_pod("train", name, gpus=8)
    world.pass_time(minutes=20)
    world.start_recording()

    world.delete_pod("train", "a")
    world.pass_time(minutes=10)
    early = target(world), world.nodes("train")
    world.pass_time(minutes=1)

    assert early == (2, ["n1", "n2"])
    assert (target(world), world.nodes("train")) == (1, ["n2"])
    assert reasons(world) == ["targetNodes from 2 to 1: 1 Node has been idle for 10 minutes"]
    assert "10:30 NodePoolAutoscaled 1" in world.timed_events("train")


def test_no_more_nodes_go_than_were_idle_for_ten_minutes(world: WorldHarness) -> None:
    # The newest of the idle Nodes goes first, whichever of them was idle first.
    given_autoscaled_pool(world)
    for name in ("a", "b"):
        world.create_pod("train", name, gpus=8)
        world.pass_time(minutes=20)

    world.delete_pod("train", "a")
    world.pass_time(minutes=5)
    world.delete_pod("train", "b")
    world.pass_time(minutes=7)
    first = target(world), world.nodes("train")
    world.pass_time(minutes=5)

    assert first == (1, ["n1"])
    assert (target(world), world.nodes("train")) == (0, [])


def test_a_pool_comes_back_to_the_fewest_nodes_that_it_may_have(world: WorldHarness) -> None:
    given_autoscaled_pool(world, 1, least=1)
    for name in ("a", "b", "c"):
        world.create_pod("train", name, gpus=8)
        world.delete_pod("train", name)
    world.pass_time(minutes=60)

    assert (target(world), world.nodes("train")) == (1, ["n1"])


def test_a_target_that_a_user_set_stands_for_ten_minutes(world: WorldHarness) -> None:
    given_autoscaled_pool(world)
    world.scale("train", 3)

    world.pass_time(minutes=9)
    early = target(world)
    world.pass_time(minutes=2)

    assert (early, target(world)) == (3, 0)


def test_a_user_who_changes_the_target_at_the_same_moment_wins(world: WorldHarness) -> None:
    given_autoscaled_pool(world)

    with world.paused("validator"):
        world.scale("train", 2)
        world.create_pod("train", "a", gpus=8)
        world.create_pod("train", "b", gpus=8)
        world.create_pod("train", "c", gpus=8)

    assert target(world) == 2
    world.pass_time(minutes=10)
    assert target(world) == 3


def test_a_user_who_turns_autoscaling_off_is_left_alone(world: WorldHarness) -> None:
    given_autoscaled_pool(world)
    world.create_pod("train", "a", gpus=8)
    apply(world, 1, on=False)
    world.start_recording()

    world.create_pod("train", "b", gpus=8)
    world.delete_pod("train", "a")
    world.pass_time(minutes=60)

    assert (target(world), reasons(world)) == (1, [])


def test_a_pool_that_is_autoscaled_from_now_on_knows_what_waits_and_what_is_idle(
    world: WorldHarness,
) -> None:
    given_autoscaled_pool(world, 2, on=False)
    world.create_pod("train", "a", gpus=8)
    for name in ("b", "c"):
        world.create_pod("train", name, gpus=8)
    world.pass_time(minutes=30)

    apply(world, 2)

    assert (target(world), len(world.nodes("train"))) == (3, 3)


def test_the_autoscaler_asks_for_no_more_than_quota_allows_and_says_what_is_lacking(
    world: WorldHarness,
) -> None:
    # given room for three of the four Nodes that Pods wait for
    given_autoscaled_pool(world)
    world.given_quota(4)
    world.apply("serve", 1)
    world.start_recording()

    # when the Pods wait for an hour
    with world.sent_together():
        for name in ("a", "b", "c", "d"):
            world.create_pod("train", name, gpus=8)
    world.pass_time(minutes=60)

    # then the pool has three Nodes, and is not over its quota
    assert (target(world), world.conditions("train")["Quota"]) == (3, "Under")
    assert world.node_counts("train") == (3, 0, 3)
    assert reasons(world) == [
        "targetNodes from 0 to 3, all that quota 4 allows: 4 Pods wait, and quota lacks 1 Node "
        "for them"
    ]


def test_more_quota_wakes_the_autoscaler(world: WorldHarness) -> None:
    given_autoscaled_pool(world)
    world.given_quota(2)
    world.apply("serve", 1)
    with world.sent_together():
        for name in ("a", "b", "c"):
            world.create_pod("train", name, gpus=8)
    world.pass_time(minutes=1)
    targets = [target(world)]

    world.scale("serve", 0)
    world.pass_time(seconds=3)
    targets.append(target(world))
    world.given_quota(9)
    world.pass_time(seconds=3)
    targets.append(target(world))

    assert targets == [1, 2, 3]
    assert world.node_counts("train") == (3, 0, 3)


def test_two_autoscaled_pools_share_what_quota_allows(world: WorldHarness) -> None:
    given_autoscaled_pool(world)
    world.apply("serve", 0, autoscaling=True, minNodes=0, maxNodes=4)
    world.given_quota(3)

    with world.sent_together():
        for pool in ("train", "serve"):
            for name in ("a", "b"):
                world.create_pod(pool, f"{pool}-{name}", gpus=8)
    world.pass_time(minutes=1)

    assert [world.conditions(pool)["Quota"] for pool in ("train", "serve")] == ["Under", "Under"]
    assert len(world.nodes()) == 3


def test_a_pool_without_a_limit_is_not_made_larger(world: WorldHarness) -> None:
    world.given_cluster()
    world.given_machines(4)
    apply(world, 0)

    world.create_pod("train", "a", gpus=8)
    world.pass_time(minutes=1)
    before = target(world)
    world.given_quota(1)
    world.pass_time(seconds=3)

    assert (before, target(world)) == (0, 1)


def test_a_spot_node_that_is_taken_back_is_replaced_and_not_added(world: WorldHarness) -> None:
    given_autoscaled_pool(world, spot=True)
    world.create_pod("train", "a", gpus=8, interruption="graceful")
    world.preempt("train", "n1")
    world.pass_time(minutes=3)

    world.create_pod("train", "a", gpus=8, interruption="graceful")
    world.pass_time(minutes=1)

    assert (target(world), len(world.nodes("train"))) == (1, 1)
    assert world.pod_changes("train")[-1].startswith("a Running")


def test_the_pool_says_that_its_target_is_the_autoscalers_and_why(harness: Harness) -> None:
    given_autoscaled_pool(harness)

    harness.create_pod("train", "a", gpus=8)
    harness.pass_time(seconds=3)
    pool = harness.node_pool("train")
    harness.scale("train", 2)
    after = harness.node_pool("train")

    assert pool is not None
    assert after is not None
    assert pool["status"]["autoscaled"]["message"] == (
        "targetNodes from 0 to 1: 1 Pod waits for 1 Node more"
    )
    assert "autoscaled" not in after["status"]


def test_why_the_target_was_changed_is_a_fact_of_its_explanation(world: WorldHarness) -> None:
    given_autoscaled_pool(world)

    world.create_pod("train", "a", gpus=8)
    world.pass_time(seconds=3)

    explanation = explain(facts(world.node_pool("train")))
    assert "since the autoscaler changed targetNodes from 0 to 1" in explanation.sentence


def test_an_autoscaler_that_was_away_does_what_is_right_when_it_is_back(
    world: WorldHarness,
) -> None:
    given_autoscaled_pool(world)

    with world.paused("autoscaler"):
        world.create_pod("train", "a", gpus=8)
        world.create_pod("train", "b", gpus=8)
        world.delete_pod("train", "a")
    world.restart("autoscaler")
    world.pass_time(seconds=3)

    assert target(world) == 1


def test_a_pod_that_has_room_on_a_node_adds_none(harness: Harness) -> None:
    given_autoscaled_pool(harness)
    harness.create_pod("train", "a", gpus=4)
    harness.pass_time(seconds=3)
    harness.start_recording()

    harness.create_pod("train", "b", gpus=4)
    harness.pass_time(seconds=3)

    assert harness.pod_changes("train") == ["b Pending", "b Running n1"]
    assert (target(harness), reasons(harness)) == (1, [])


def test_an_autoscaler_that_catches_up_adds_nothing_for_pods_that_are_gone(
    world: WorldHarness,
) -> None:
    given_autoscaled_pool(world)

    with world.paused("autoscaler"):
        world.create_pod("train", "a", gpus=8)
        world.pass_time(minutes=30)
        apply(world, 0, least=0)
        world.delete_pod("train", "a")
    world.pass_time(minutes=5)

    assert (target(world), reasons(world)) == (0, [])


def test_a_node_that_reboots_for_long_is_not_missing(world: WorldHarness) -> None:
    world.given_data_center(boot_s=1_200)
    apply(world, 0)
    world.create_pod("train", "a", gpus=8)
    world.pass_time(minutes=21)
    world.command_node("RebootNode", "train", "n1", force=True)
    world.start_recording()

    world.pass_time(minutes=15)
    during = target(world), world.nodes("train")
    world.pass_time(minutes=20)

    assert during == (1, ["n1"])
    assert reasons(world) == ["targetNodes from 1 to 0: 1 Node has been idle for 10 minutes"]


def test_a_node_that_is_verified_for_long_is_neither_missing_nor_idle(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=0)
    world.given_machines(1, verifySeconds=1_200)
    apply(world, 1)

    world.pass_time(minutes=19)
    during = target(world), world.nodes("train")
    world.pass_time(minutes=12)

    assert during == (1, ["n1"])
    assert (target(world), world.nodes("train")) == (0, [])


def test_a_node_that_boots_for_long_is_not_missing(world: WorldHarness) -> None:
    world.given_data_center(boot_s=1_200)
    apply(world, 1)

    world.pass_time(minutes=19)
    during = target(world), world.node_counts("train")
    world.pass_time(minutes=12)

    assert during == (1, (1, 1, 0))
    assert target(world) == 0


def test_a_node_that_a_command_drains_for_long_is_not_missing(world: WorldHarness) -> None:
    given_autoscaled_pool(world)
    world.create_pod("train", "a", gpus=8)
    world.pass_time(minutes=15)
    world.command_node("DrainNode", "train", "n1")

    world.pass_time(minutes=60)

    assert (target(world), world.nodes("train")) == (1, ["n1"])


def test_a_node_that_is_preempted_is_missing_from_when_it_has_left(world: WorldHarness) -> None:
    # given a spot Node at work, whose Pod needs all the time that it gets
    world.given_data_center(machines=1)
    apply(world, 1, spot=True)
    world.run_pod("n1", interruption="graceful", graceS=600)
    world.pass_time(minutes=15)

    # when it gives way for good
    world.apply("other", 1)
    world.pass_time(minutes=16)
    during = target(world), reasons(world)
    world.pass_time(minutes=2)

    # then it is given up ten minutes after it has left, and not after its warning
    assert during == (1, [])
    assert reasons(world) == [
        "targetNodes from 1 to 0: no Pod waits, and 1 Node has been missing for 10 minutes"
    ]


def test_racks_cannot_be_autoscaled(world: WorldHarness) -> None:
    world.given_cluster(zone="US-EAST-01A")

    id = world.apply("train", 18, "gb200-4x", autoscaling=True, minNodes=0, maxNodes=36)

    assert world.outcomes(id) == [
        "Invalid spec.autoscaling: must be false: gb200-4x comes in whole racks"
    ]


def test_a_target_that_quota_does_not_allow_falls_to_what_pods_need(world: WorldHarness) -> None:
    # given a new NodePool with a target beyond the quota, and a Pod that waits
    world.given_data_center(quota=1)
    apply(world, 2)
    world.create_pod("train", "a", gpus=8)

    # when the Pod has waited for its time
    world.pass_time(minutes=1)

    # then the autoscaler asks for the Node that the Pod needs
    assert target(world) == 1
    assert reasons(world) == [
        "targetNodes from 2 to 1, which quota allows: 1 Pod waits for 1 Node more"
    ]


def test_a_target_that_quota_does_not_allow_falls_to_no_less_than_min_nodes(
    world: WorldHarness,
) -> None:
    world.given_data_center(quota=3)
    world.apply("train", 4, autoscaling=True, minNodes=2, maxNodes=6)
    world.create_pod("train", "a", gpus=8)

    world.pass_time(minutes=1)

    assert len(world.nodes("train")) == 2
    assert reasons(world) == [
        "targetNodes from 4 to 2, which quota allows: 1 Pod waits for 2 Nodes more"
    ]


@pytest.mark.parametrize(
    ("most", "quota", "pods", "reason"),
    [
        (6, 9, 1, "targetNodes from 1 to 4: 1 Pod waits for 1 Node more"),
        (3, 9, 1, "targetNodes from 1 to 3, which is maxNodes: 1 Pod waits, so it keeps 3 Nodes"),
        (
            6,
            2,
            2,
            "targetNodes from 1 to 3, as many as it has and more than quota 2 allows: "
            "2 Pods wait, and quota lacks 2 Nodes for them",
        ),
    ],
)
def test_a_nodepool_with_more_nodes_than_its_target_says_how_many_come(
    world: WorldHarness, most: int, quota: int, pods: int, reason: str
) -> None:
    # given three active Nodes, of which a command wants one
    world.given_data_center(machines=9)
    world.apply("train", 3, autoscaling=True, minNodes=0, maxNodes=most)
    for pod in ("a", "b", "c"):
        world.create_pod("train", pod, gpus=8)
    world.given_quota(quota)
    world.scale("train", 1)

    # when more Pods wait
    for number in range(pods):
        world.create_pod("train", f"more-{number}", gpus=8)
    world.pass_time(minutes=11)

    assert reasons(world) == [reason]


def given_a_pod_where_unhealthy_nodes_are_replaced(world: WorldHarness) -> None:
    """An autoscaled NodePool with a Pod that waits; its unhealthy Nodes are replaced."""
    world.given_data_center(machines=8)
    evicts = {"disableUnhealthyNodeEviction": False}
    world.apply("train", 0, autoscaling=True, minNodes=0, maxNodes=4, lifecycle=evicts)
    world.create_pod("train", "first", gpus=8)


def test_a_pod_that_waits_gets_a_node_beside_one_that_is_unhealthy_and_waits_for_its_own(
    world: WorldHarness,
) -> None:
    # given a Node that is to be replaced, and waits for the Pod that runs there
    given_a_pod_where_unhealthy_nodes_are_replaced(world)
    world.pass_time(minutes=5)
    world.break_machines("n1", fault="gpu-lost")

    # when another Pod waits
    world.create_pod("train", "second", gpus=8)
    world.pass_time(minutes=5)

    assert (target(world), world.nodes("train")) == (2, ["n1", "n2"])


def test_an_idle_node_goes_beside_one_that_is_unhealthy_and_waits_for_its_pod(
    world: WorldHarness,
) -> None:
    # given an idle Node, beside a Node that is to be replaced once its Pod has ended
    given_a_pod_where_unhealthy_nodes_are_replaced(world)
    world.create_pod("train", "second", gpus=8)
    world.pass_time(minutes=20)
    world.break_machines("n1", fault="gpu-lost")
    world.delete_pod("train", "second")

    # when ten minutes have passed
    world.pass_time(minutes=11)

    # then the idle Node is gone, and the other one stays for its Pod and is not replaced
    assert (target(world), world.nodes("train")) == (0, ["n1"])
    assert reasons(world)[1:] == [
        "targetNodes from 2 to 1: 1 Node has been idle for 10 minutes",
        "targetNodes from 1 to 0: 1 Node has been idle for 10 minutes",
    ]


def given_an_idle_node_beside_four_at_work(world: WorldHarness) -> list[str]:
    """A spot NodePool on all machines, with a Node that became idle just now; the Nodes at work."""
    world.given_data_center(machines=5)
    world.apply("train", 0, autoscaling=True, minNodes=0, maxNodes=8, computeClass="spot")
    for number in range(5):
        world.create_pod("train", f"p{number}", gpus=8)
    world.pass_time(minutes=15)
    (idle,) = (line.split()[2] for line in world.pod_changes("train") if "p4 Running" in line)
    world.delete_pod("train", "p4")
    return [node for node in world.nodes("train") if node != idle]


@pytest.mark.parametrize("before", [3.5, 1])
def test_an_idle_node_goes_only_after_those_that_are_missing_or_leave(
    world: WorldHarness, before: float
) -> None:
    # given Nodes at work that are preempted shortly before another Node has been idle for its time
    busy = given_an_idle_node_beside_four_at_work(world)
    world.pass_time(minutes=10 - before)
    for node in busy:
        world.preempt("train", node)

    # when the time of the idle Node is over, and later that of the Nodes that have left
    world.apply("other", 4)
    world.pass_time(minutes=before + 1)
    early = target(world), reasons(world)[1:]
    world.pass_time(minutes=20)

    # then no Node is given up in the place of one that would stay for the lower target
    assert early == (5, [])
    assert (target(world), world.nodes("train")) == (0, [])
    assert reasons(world)[1:] == [
        "targetNodes from 5 to 0: 1 Node has been idle and 4 Nodes have been missing for 10 minutes"
    ]
