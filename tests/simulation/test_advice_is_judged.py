"""Advice is not blamed for a fault of a machine that nobody could know of when it was given."""

from collections.abc import Callable
from random import Random
from typing import get_args

import pytest

from flow.test_promises import ALL, UNCURED
from nodepool.contract.commands import MachineFault
from support.constants import PREFER_IDLE
from support.simulation.advice import check_advice
from support.world_harness import WorldHarness


def given_a_node_to_be_rebooted(world: WorldHarness, fault: str) -> None:
    """A reboot would cure n1, whose machine has a further fault in store."""
    world.given_machines(3, verifySeconds=60, wipeSeconds=60)
    world.apply("train", 2, lifecycle=UNCURED)
    world.pass_time(minutes=5)
    world.break_machines("n1", fault="kernel-deadlock")
    # A fault of a Node that runs shows at once the first time.
    world.break_machines("n1", fault=fault, times=2)
    world.pass_time(minutes=2)


def given_a_node_that_boots(world: WorldHarness, fault: str) -> None:
    """The boot of n1 is under way, and will show the fault."""
    world.given_machines(3, boot_s=300, verifySeconds=60, wipeSeconds=60)
    world.break_machines("n1", fault=fault, times=2)
    world.apply("train", 2, lifecycle=UNCURED)
    world.pass_time(minutes=1)


def given_a_node_to_be_replaced(world: WorldHarness, fault: str) -> None:
    """The machine that would replace n1 has a fault in store."""
    world.given_machines(3, verifySeconds=60, wipeSeconds=60)
    world.apply("train", 2, lifecycle=UNCURED)
    world.pass_time(minutes=5)
    world.break_machines("n1", fault="gpu-lost")
    world.break_machines("n3", fault=fault, times=2)
    world.pass_time(minutes=2)


@pytest.mark.parametrize(
    "given", [given_a_node_to_be_rebooted, given_a_node_that_boots, given_a_node_to_be_replaced]
)
@pytest.mark.parametrize("fault", get_args(MachineFault))
def test_advice_is_not_blamed_for_a_fault_that_a_machine_has_in_store(
    fault: str, given: Callable[[WorldHarness, str], None]
) -> None:
    world = WorldHarness()
    world.given_cluster()
    world.given_quota(9)
    given(world, fault)

    check_advice(world.world, Random(0), most=ALL)


def test_advice_is_not_blamed_where_half_a_zone_falls_silent_after_it_was_given() -> None:
    # given a silent Node that is to leave, and two of another NodePool that have just gone silent
    world = WorldHarness()
    world.given_cluster()
    world.given_quota(9)
    world.given_machines(4)
    world.apply("train", 1, lifecycle={"disableUnhealthyNodeEviction": False})
    world.apply("serve", 3)
    world.pass_time(minutes=5)
    world.break_machines("n1", fault="hang")
    world.pass_time(minutes=5, seconds=20)
    world.break_machines("n2", "n3", fault="hang")
    world.pass_time(seconds=25)

    # when the advice to wait for its deletion is tried
    # then nobody is blamed that the zone has a problem by then
    check_advice(world.world, Random(0), most=ALL)


def test_advice_is_not_blamed_for_an_unhealthy_node_that_stays_where_another_one_has_left() -> None:
    # given three Nodes at work, of which one too many is unhealthy, and another one too
    world = WorldHarness()
    world.given_cluster()
    world.given_quota(9)
    world.given_machines(3)
    world.apply("train", 3, lifecycle={**UNCURED, **PREFER_IDLE})
    world.pass_time(minutes=5)
    for node in ("n1", "n2", "n3"):
        world.run_pod(node)
    world.scale("train", 2)
    world.pass_time(minutes=1)
    world.break_machines("n1", "n2", fault="gpu-lost")
    world.pass_time(minutes=2)

    # when the advice to drain the Node that stays is tried
    # then nobody is blamed that the other one stays in its place
    check_advice(world.world, Random(0), most=ALL)


def test_advice_is_not_blamed_for_a_spot_node_that_gives_way_to_who_loses_a_silent_node() -> None:
    # given a spot NodePool that waits, and has a Node that the control plane uses
    world = WorldHarness()
    world.given_data_center(machines=2)
    world.apply("cheap", 1, computeClass="spot")
    world.apply("train", 1, lifecycle={"disableUnhealthyNodeEviction": False})
    world.command_node("ReserveNode", "cheap", "n1", reservedDesired="control-plane")

    # when a Node of another NodePool has just fallen silent, which nobody knows yet
    world.break_machines("n2", fault="hang", times=9)

    # then the advice to reserve its Node again is not blamed for what follows from that
    check_advice(world.world, Random(0), most=ALL)


def test_advice_is_not_blamed_where_a_silent_spot_node_is_lost_as_was_said() -> None:
    # given a silent spot Node that gives way to a NodePool, and another NodePool that waits
    world = WorldHarness()
    world.given_data_center(machines=2)
    world.apply("cheap", 1, computeClass="spot")
    world.apply("first", 1)
    world.scale("first", 2)
    world.apply("second", 1)
    world.break_machines("n1", fault="hang", times=9)

    # when its silence is known, then the machine that is added goes to the first NodePool
    world.pass_time(minutes=1)
    check_advice(world.world, Random(0), most=ALL)
