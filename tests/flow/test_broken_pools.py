"""A NodePool on which a decision fails, whatever the cause, keeps nothing from the others."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from support.world_harness import WorldHarness

if TYPE_CHECKING:
    from collections.abc import Callable

BROKEN = "acme/prod/broken"
OTHER = "umbrella/lab/other"


def given_two_pools_that_wait() -> WorldHarness:
    """A NodePool with one Node of three, and one of another organisation that waits behind it."""
    world = WorldHarness()
    world.given_data_center(machines=1)
    world.given_cluster("lab", org="umbrella")
    world.given_quota(100, org="umbrella")
    world.apply(BROKEN, 3)
    world.apply(OTHER, 2)
    return world


def break_decision(patch: pytest.MonkeyPatch, function: str) -> None:
    """Let a function fail whenever it is called for the NodePool that is broken."""
    module, _, name = function.rpartition(".")
    before: Callable[..., Any] = getattr(import_module(module), name)

    def fail(*args: Any, **kwargs: Any) -> Any:
        if any(getattr(each, "key", "") == BROKEN for each in args):
            raise LookupError("broken")
        return before(*args, **kwargs)

    patch.setattr(function, fail)


@pytest.mark.parametrize("function", ["allocator.grow.announce_growth", "allocator.grow.Part"])
def test_a_pool_that_cannot_be_given_machines_keeps_none_from_others(
    monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    # given a bug that the machines for one NodePool bring up
    world = given_two_pools_that_wait()
    world.start_recording()

    # when machines come, and the bug is mended an hour later
    with monkeypatch.context() as patch:
        break_decision(patch, function)
        world.given_machines(3)
        failed = [world.node_counts(OTHER), world.node_counts(BROKEN)]
        condition = world.condition(BROKEN, "AtTarget")
        world.pass_time(minutes=60)
    world.pass_time(minutes=15)

    # then the other NodePool has its Nodes at once, and people are told once
    assert failed == [(2, 0, 2), (3, 0, 1)]
    text = "internal error while allocating Nodes: LookupError: broken"
    assert condition == f"Unknown InternalError: {text}"
    assert world.event_messages(BROKEN, "CWNodePoolNodesRequestFailed") == [text]
    assert world.node_counts(BROKEN) == (3, 0, 2)
    assert world.conditions(BROKEN)["AtTarget"] == "UnderTarget"
    assert world.replay_differs() == []


@pytest.mark.parametrize("function", ["capacity.decide.verdict", "capacity.supply.reason_of"])
def test_a_pool_whose_capacity_cannot_be_checked_stops_no_other_check(
    monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    # given a bug that the capacity of one NodePool brings up
    world = given_two_pools_that_wait()

    # when both want more machines than there are, and the bug is mended an hour later
    with monkeypatch.context() as patch:
        break_decision(patch, function)
        world.given_machines(1)
        world.scale(OTHER, 4)
        world.given_machines(1)
        failed = world.condition(BROKEN, "Capacity")
        other = world.condition(OTHER, "Capacity")
        world.pass_time(minutes=60)
    world.pass_time(minutes=15)

    # then the verdict on the other NodePool has the numbers of now
    assert failed == (
        "Unknown InternalError: internal error while checking capacity: LookupError: broken"
    )
    assert other == (
        "False NoneAvailable: none of 3 wanted Nodes of gd-8xh100ib-i128 "
        "can be had in US-EAST-04A now"
    )
    assert world.conditions(BROKEN)["Capacity"] == "NoneAvailable"
    assert world.replay_differs() == []


def test_a_pool_whose_quota_cannot_be_checked_keeps_no_machine_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given a bug that the check of a new version brings up
    world = given_two_pools_that_wait()

    # when machines come, and the bug is mended an hour later
    with monkeypatch.context() as patch:
        break_decision(patch, "quota.checks.verdict")
        world.apply(BROKEN, 3, nodeLabels={"team": "red"})
        world.given_machines(2)
        failed = [world.node_counts(OTHER), world.node_counts(BROKEN)]
        world.pass_time(minutes=60)
    world.pass_time(minutes=15)
    world.given_machines(2)

    # then the other NodePool has its Nodes at once
    assert failed == [(2, 0, 2), (3, 0, 1)]
    assert world.node_counts(BROKEN) == (3, 0, 3)
    assert world.replay_differs() == []


def test_a_pool_that_cannot_be_autoscaled_keeps_no_room_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given two autoscaled NodePools under one limit, whose Pods need a Node each
    world = WorldHarness()
    world.given_data_center(quota=0)
    autoscaled: dict[str, Any] = {"autoscaling": True, "minNodes": 0, "maxNodes": 5}
    for pool in (BROKEN, "acme/prod/other"):
        world.apply(pool, 0, **autoscaled)
        world.create_pod(pool, gpus=8)
    world.pass_time(minutes=1)

    # when the limit is raised, with a bug that the target of one of them brings up
    with monkeypatch.context() as patch:
        break_decision(patch, "autoscaler.decide.advice")
        world.given_quota(2)
        world.pass_time(minutes=1)
        failed = [world.node_counts(pool) for pool in ("acme/prod/other", BROKEN)]
    world.pass_time(minutes=15)

    assert failed == [(1, 0, 1), (0, 0, 0)]
    assert world.node_counts(BROKEN) == (1, 0, 1)
    assert world.replay_differs() == []
