"""The simulation finds promises of advice that are wrong on purpose: it follows the advice."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from flow import test_promises as stories
from flow.test_racks import DOMAIN, EAST, GB200, add, break_node, want
from nodepool.explanation import node_causes, node_remedies, outlook, reservation_remedies
from nodepool.explanation.promises import Promise
from support.audit.facts import Violation
from support.constants import CLUSTER, ORG, PREFER_IDLE, RACK
from support.failing import given_broken
from support.manifests import rack_affinity
from support.simulation.advice import check_advice, check_trial, trials
from support.world_harness import WorldHarness


def given_a_surplus_at_work(world: WorldHarness) -> None:
    """A scale-down waits for the Pods of n1, and n2 is unhealthy."""
    world.given_data_center(machines=3)
    world.apply("train", 2, lifecycle={**stories.UNCURED, **PREFER_IDLE})
    for node in ("n1", "n2"):
        world.run_pod(node)
    world.scale("train", 1)
    world.pass_time(minutes=1)
    world.break_machines("n2", fault="kernel-deadlock")
    world.pass_time(minutes=2)


def given_a_full_domain(world: WorldHarness) -> None:
    """All machines of an NVLink domain are Nodes of two racks, and one of them needs triage."""
    world.given_cluster(zone=EAST)
    world.given_quota(90, GB200, zone=EAST)
    add(world, {"count": 36, "labels": {DOMAIN: "d1"}})
    want(world, 2, lifecycle=stories.UNCURED)
    break_node(world, "n1", "gpu-lost")


def given_a_scarce_quota(world: WorldHarness) -> None:
    """A NodePool is to be replaced a Node, and gets no more than two of its three Nodes."""
    world.given_data_center(machines=4, quota=2)
    world.apply("train", 2, lifecycle=stories.UNCURED)
    world.apply("train", 3, lifecycle=stories.UNCURED)
    world.break_machines("n1", fault="gpu-lost")
    world.pass_time(minutes=2)


def foretell_always(promise: Promise) -> Callable[..., Promise]:
    """Say the same of each Node."""
    return lambda *_, **__: promise


@pytest.mark.parametrize(
    ("given", "promise"),
    [
        (given_a_surplus_at_work, Promise.CURED),
        (given_a_full_domain, Promise.CURED_OR_REPLACED),
        (given_a_full_domain, Promise.REPLACED),
        (given_a_full_domain, Promise.ENOUGH),
        (given_a_scarce_quota, Promise.ENOUGH),
        (given_a_scarce_quota, Promise.CURED),
    ],
)
def test_a_wrong_promise_about_a_node_is_found(
    given: Callable[[WorldHarness], None], promise: Promise, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = WorldHarness()
    given(world)
    check_advice(world.world, Random(0), most=stories.ALL)

    monkeypatch.setattr(node_remedies, "foretell", foretell_always(promise))

    found = [each for each in trials(world.world) if each.remedy.promise is promise]
    with pytest.raises(Violation, match=f"that is not so: {promise.name}"):
        check_trial(world.world, found[0])


@pytest.mark.parametrize(
    "wait",
    [stories.wait_while_invalid, stories.wait_while_over_quota, stories.wait_behind_an_operator],
)
def test_a_node_that_comes_back_and_gives_way_at_once_is_found(
    wait: Callable[[WorldHarness], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = WorldHarness()
    wait(world)
    world.pass_time(minutes=30)
    check_advice(world.world, Random(0), most=stories.ALL)

    monkeypatch.setattr(reservation_remedies, "stays_usable", lambda _: True)

    with pytest.raises(Violation, match="for the organisation again; that is not so: COUNTED"):
        check_advice(world.world, Random(0), most=stories.ALL)


@pytest.mark.parametrize(
    ("spec", "then"),
    [
        ({}, Promise.REFILLED),
        ({"affinity": rack_affinity("r1")}, Promise.REFILLED_IF_FITTING),
    ],
    ids=["any machine", "a machine that satisfies the affinity"],
)
def test_a_nodepool_that_does_not_refill_by_itself_is_found(
    spec: dict[str, Any], then: Promise, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a spot NodePool that quota cannot decide about, and that loses a Node
    broken: set[tuple[str, str]] = set()
    world = given_broken("quota", broken)
    world.given_cluster()
    world.given_quota(9)
    world.given_machines(4, labels={RACK: "r1"})
    world.apply("train", 2, computeClass="spot", **spec)
    broken.add(("quota", f"{ORG}/{CLUSTER}/train"))
    world.apply("train", 2, computeClass="spot", schedulingPriority={"value": 3}, **spec)
    world.preempt("train", "n1")
    world.pass_time(minutes=1)

    # when it is overlooked that a check has failed
    monkeypatch.setattr(node_causes, "gets_none", lambda _: "")

    (trial,) = [each for each in trials(world.world) if each.remedy.promise is then]
    with pytest.raises(Violation, match=rf"that is not so: {then.name}\n"):
        check_trial(world.world, trial)


@pytest.mark.parametrize("has_affinity", [False, True])
def test_a_nodepool_that_its_autoscaler_does_not_refill_is_found(
    monkeypatch: pytest.MonkeyPatch, *, has_affinity: bool
) -> None:
    # given an autoscaled spot NodePool whose only machine goes to another NodePool
    world = WorldHarness()
    spec = {"affinity": rack_affinity("r1")} if has_affinity else {}
    stories.given_autoscaled_pool(world, 0, computeClass="spot", **spec)
    world.apply("other", 1)
    world.pass_time(minutes=1)
    check_advice(world.world, Random(0), most=stories.ALL)

    # when it is overlooked that its autoscaler may give up the Node
    monkeypatch.setattr(node_causes, "promise_missing", lambda _, promise: promise)

    with pytest.raises(Violation, match="that is not so: REFILLED"):
        check_advice(world.world, Random(0), most=stories.ALL)


def test_a_node_that_is_not_lacked_until_a_machine_is_free_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given an autoscaled NodePool whose Node has to be replaced, and no other machine
    world = WorldHarness()
    stories.given_autoscaled_pool(world, 0, lifecycle=stories.UNCURED)
    world.break_machines("n1", fault="gpu-lost")
    world.pass_time(minutes=2)
    check_advice(world.world, Random(0), most=stories.ALL)

    # when it is overlooked that its autoscaler may give up the Node
    monkeypatch.setattr(outlook, "promise_missing", lambda _, promise: promise)

    with pytest.raises(Violation, match="that is not so: LACKS_OR_SPOT\n"):
        check_advice(world.world, Random(0), most=stories.ALL)
