"""What an advice promises about a Node is so after the advice was followed."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from flow.test_advice_on_nodes import LEAVES, helps
from flow.test_explanations import explained, titles
from flow.test_racks import DOMAIN, EAST, GB200, add, break_node, want
from flow.test_reservations import reservation_advice
from nodepool.explanation.promises import Promise, words
from support.constants import CLUSTER, ORG, PREFER_IDLE, RACK
from support.failing import given_broken
from support.manifests import rack_affinity
from support.simulation.advice import check_advice
from support.world_harness import WorldHarness

ALL = 100
"""More changes than are ever advised for one NodePool."""
UNCURED = {"disableUnhealthyNodeEviction": True}
MALFORMED = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": DOMAIN, "operator": "Bad", "values": ["r1"]}]}
            ]
        }
    }
}
"""A node affinity that makes a spec invalid."""


def health_advice(world: WorldHarness) -> tuple[str, ...]:
    """What is advised about the unhealthy Nodes of `train`, and follow all that is advised."""
    check_advice(world.world, Random(0), most=ALL)
    return helps(world)[titles(explained(world, "train")).index("1 Node is unhealthy")]


@pytest.mark.parametrize(
    ("spare", "then"), [(0, Promise.RACK_LACKS), (1, Promise.CURED_OR_REPLACED)]
)
def test_a_rack_beside_another_one_of_its_domain_is_completed_only_by_a_free_machine(
    world: WorldHarness, spare: int, then: Promise
) -> None:
    # given two racks in one NVLink domain, with or without a machine more
    world.given_cluster(zone=EAST)
    world.given_quota(90, GB200, zone=EAST)
    add(world, {"count": 36 + spare, "labels": {DOMAIN: "d1"}})
    want(world, 2, lifecycle=UNCURED)

    # when a Node of them has to be replaced
    break_node(world, "n1", "gpu-lost")

    assert health_advice(world) == (
        f"'nodepool drain n1' ends what runs there; {words(then, 'train')}",
    )


def test_nothing_is_said_to_follow_in_a_rack_that_gets_as_many_nodes_as_the_quota_allows(
    world: WorldHarness,
) -> None:
    # given a rack that has lost two Nodes, a quota that allows no more, and a free machine
    world.given_cluster(zone=EAST)
    world.given_quota(18, GB200, zone=EAST)
    add(world, {"count": 18, "labels": {DOMAIN: "d1"}})
    want(world, 1, lifecycle={"disableUnhealthyNodeEviction": False})
    for node in ("n1", "n2"):
        break_node(world, node, "gpu-lost")
    world.given_quota(5, GB200, zone=EAST)
    add(world, {"count": 1, "labels": {DOMAIN: "d1"}})
    want(world, 1, lifecycle=UNCURED)

    # when another Node has to be replaced
    break_node(world, "n3", "gpu-lost")

    assert health_advice(world) == ("'nodepool drain n3' ends what runs there",)


@pytest.mark.parametrize("fault", ["kernel-deadlock", "gpu-lost"])
@pytest.mark.parametrize("is_silent", [False, True], ids=["answers", "silent"])
def test_a_node_that_would_leave_in_the_place_of_one_that_is_too_many_is_not_said_to_be_cured(
    world: WorldHarness, fault: str, is_silent: bool
) -> None:
    # given a scale-down that waits for the Pods of n1
    world.given_data_center(machines=3)
    world.apply("train", 2, lifecycle={**UNCURED, **PREFER_IDLE})
    for node in ("n1", "n2"):
        world.run_pod(node)
    world.scale("train", 1)
    world.pass_time(minutes=1)
    if is_silent:
        world.break_machines("n1", fault="hang")
        world.pass_time(minutes=1)

    # when n2 is unhealthy
    world.break_machines("n2", fault=fault)
    world.pass_time(minutes=2)

    if is_silent:
        then = "wait until n1 has left: it does not answer, and would stay if n2 left first"
    else:
        then = f"'nodepool drain n2 --force' ends what runs there; {LEAVES}"
    assert health_advice(world) == (then,)


def test_nothing_is_said_to_follow_where_either_of_two_nodes_may_leave(
    world: WorldHarness,
) -> None:
    # given a scale-down that waits for a Pod of n1 that ends by itself, sooner or later
    world.given_data_center(machines=3)
    world.apply("train", 2, lifecycle={**UNCURED, **PREFER_IDLE})
    world.run_pod("n1", interruption="graceful", graceS=600)
    world.run_pod("n2")
    world.scale("train", 1)
    world.pass_time(minutes=1)

    world.break_machines("n2", fault="kernel-deadlock")
    world.pass_time(minutes=1)

    assert health_advice(world) == ("'nodepool reboot n2 --force' ends what runs there",)


def given_a_reserved_spot_node(world: WorldHarness, machines: int, target: int) -> None:
    """A spot NodePool, of which the control plane has n1."""
    world.given_data_center(machines)
    world.apply("train", target, computeClass="spot", lifecycle=UNCURED)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    world.pass_time(minutes=5)


def wait_while_invalid(world: WorldHarness) -> None:
    given_a_reserved_spot_node(world, 2, 1)
    world.apply("train", 3, computeClass="spot", affinity=MALFORMED)
    world.apply("other", 2)


def wait_while_over_quota(world: WorldHarness) -> None:
    given_a_reserved_spot_node(world, 2, 2)
    world.apply("train", 4, computeClass="spot", lifecycle=UNCURED)
    for quota in (1, 3):
        world.given_quota(quota)
    world.apply("other", 2)


def wait_behind_an_operator(world: WorldHarness) -> None:
    given_a_reserved_spot_node(world, 3, 3)
    world.reclaim(2)
    world.pass_time(minutes=1)
    world.break_machines("n3", fault="hang")
    world.pass_time(minutes=30)


@pytest.mark.parametrize(
    "wait", [wait_while_invalid, wait_while_over_quota, wait_behind_an_operator]
)
def test_a_spot_node_is_not_to_come_back_where_somebody_else_may_be_served_before(
    world: WorldHarness, wait: Callable[[WorldHarness], None]
) -> None:
    wait(world)
    world.pass_time(minutes=30)

    check_advice(world.world, Random(0), most=ALL)

    assert "Reservation" in {cause.kind for cause in explained(world, "train").causes}
    assert reservation_advice(world) == []


def test_a_node_that_quota_does_not_replace_is_not_said_to_be_one_too_many(
    world: WorldHarness,
) -> None:
    # given a NodePool that quota keeps at one Node, and a second one that the control plane has
    world.given_data_center(machines=4, quota=1)
    world.apply("train", 1, lifecycle=UNCURED)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    world.pass_time(minutes=5)
    world.apply("train", 4, lifecycle=UNCURED)

    world.break_machines("n1", fault="gpu-lost")
    world.pass_time(minutes=2)

    then = words(Promise.NOT_GRANTED, "train")
    assert health_advice(world) == (f"'nodepool drain n1' ends what runs there; {then}",)


@pytest.mark.parametrize(
    ("service", "cause"),
    [
        ("quota", "no Node is replaced while Quota is InternalError"),
        ("allocator", "no Node is sure to be replaced while AtTarget is InternalError"),
    ],
)
def test_no_node_is_to_be_drained_while_a_check_has_failed(service: str, cause: str) -> None:
    # given a NodePool whose new version a service cannot decide about
    broken: set[tuple[str, str]] = set()
    world = given_broken(service, broken)
    world.given_data_center(machines=4)
    world.apply("train", 2, lifecycle=UNCURED)
    broken.add((service, f"{ORG}/{CLUSTER}/train"))
    world.apply("train", 2, lifecycle=UNCURED, schedulingPriority={"value": 3})

    # when a Node of it has to be replaced
    world.break_machines("n1", fault="gpu-lost")
    world.pass_time(minutes=2)

    assert (f"wait: {cause}",) in helps(world)


def test_a_nodepool_with_an_affinity_is_not_said_to_refill_with_any_machine(
    world: WorldHarness,
) -> None:
    # given a spot NodePool with the only machine that satisfies its node affinity
    world.given_cluster()
    world.given_quota(9)
    world.given_machines(1, labels={RACK: "r1"})
    world.given_machines(2, labels={RACK: "r2"})
    world.apply("train", 1, computeClass="spot", affinity=rack_affinity("r1"))

    # when its Node is preempted for another NodePool
    world.apply("other", 1, affinity=rack_affinity("r1"))
    world.pass_time(minutes=1)
    check_advice(world.world, Random(0), most=ALL)

    which = "machines that satisfy the node affinity"
    assert (f"wait: the NodePool refills by itself when {which} are free",) in helps(world)


def given_autoscaled_pool(world: WorldHarness, least: int, **spec: Any) -> None:
    """An autoscaled NodePool with work on its only Node, and no other machine."""
    world.given_cluster()
    world.given_quota(9)
    world.given_machines(1, labels={RACK: "r1"})
    world.apply("train", 1, autoscaling=True, minNodes=least, maxNodes=3, **spec)
    world.run_pod("n1", interruption="graceful")
    world.pass_time(minutes=15)


@pytest.mark.parametrize(
    ("least", "spec", "then"),
    [
        (1, {}, Promise.REFILLED),
        (0, {}, Promise.REFILLED_FOR_PODS),
        (0, {"affinity": rack_affinity("r1")}, Promise.REFILLED_FOR_PODS_IF_FITTING),
    ],
)
def test_an_autoscaled_nodepool_refills_above_its_minimum_if_pods_wait(
    world: WorldHarness, least: int, spec: dict[str, object], then: Promise
) -> None:
    # given an autoscaled spot NodePool with no other machine
    given_autoscaled_pool(world, least, computeClass="spot", **spec)

    # when its Node is preempted for another NodePool
    world.apply("other", 1)
    world.pass_time(minutes=1)
    check_advice(world.world, Random(0), most=ALL)

    # then it is not said to refill after its autoscaler has given the Node up
    assert (f"wait: {words(then, 'train')}",) in helps(world)
    world.pass_time(minutes=30)
    pool = world.node_pool("train")
    assert pool is not None
    assert pool["spec"]["targetNodes"] == least


@pytest.mark.parametrize(
    ("least", "then"),
    [(1, Promise.LACKS_OR_SPOT), (0, Promise.LACKS_OR_SPOT_OR_LOWERED)],
)
def test_a_node_is_lacked_until_the_autoscaler_gives_it_up(
    world: WorldHarness, least: int, then: Promise
) -> None:
    # given an autoscaled NodePool with no other machine
    given_autoscaled_pool(world, least, lifecycle=UNCURED)

    # when its Node has to be replaced
    world.break_machines("n1", fault="gpu-lost")
    world.pass_time(minutes=2)

    ends = "'nodepool drain n1' ends what runs there"
    assert health_advice(world) == (f"{ends}; {words(then, 'train')}",)


def test_a_nodepool_whose_quota_check_failed_is_not_said_to_refill_by_itself() -> None:
    # given a spot NodePool whose new version quota cannot decide about
    broken: set[tuple[str, str]] = set()
    world = given_broken("quota", broken)
    world.given_data_center(machines=4)
    world.apply("train", 2, computeClass="spot")
    broken.add(("quota", f"{ORG}/{CLUSTER}/train"))
    world.apply("train", 2, computeClass="spot", schedulingPriority={"value": 3})

    # when one of its Nodes is preempted
    world.preempt("train", "n1")
    world.pass_time(minutes=1)

    assert helps(world)[0] == ("wait until it is gone",)


@pytest.mark.parametrize("service", ["quota", "allocator"])
def test_quota_is_not_to_be_given_back_by_a_nodepool_that_a_service_fails_on(service: str) -> None:
    # given a NodePool that takes the quota, and on which a service fails
    broken: set[tuple[str, str]] = set()
    world = given_broken(service, broken)
    world.given_data_center(machines=9, quota=4)
    world.apply("other", 3)
    broken.add((service, f"{ORG}/{CLUSTER}/other"))
    world.apply("other", 3, schedulingPriority={"value": 2})

    world.apply("train", 3)
    world.pass_time(minutes=1)

    assert helps(world)[0] == (
        "raise the quota of gd-8xh100ib-i128 in US-EAST-04A to 6",
        "scale train to 1, which fits",
    )
