"""A Node that takes no work is told, and what is advised opens it, whatever else happens to it."""

from random import Random

import pytest

from flow.test_advice_on_nodes import helps
from flow.test_advice_on_racks import THREE, given_rack, told_cordons
from flow.test_racks import cordon_reasons
from support.simulation.advice import check_advice
from support.world_harness import WorldHarness


@pytest.mark.parametrize("fault", ["hang", "kubelet"])
def test_a_node_whose_machine_has_yet_to_answer_its_reservation_is_told_at_once(
    world: WorldHarness, fault: str
) -> None:
    # given a Node that has just fallen silent, which nobody knows yet
    world.given_data_center(4)
    world.apply("train", 2)
    world.break_machines("n1", fault=fault)

    # when it is to be reserved for the control plane
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    at_once = told_cordons(world)
    check_advice(world.world, Random(0), most=9)
    world.pass_time(seconds=1)

    # then that its machine has not answered is told before and after its time to answer is known
    title = "1 Node has not answered a cordon yet"
    assert at_once == [(title, "wait until it has answered")]
    assert [(cordon[0], len(cordon)) for cordon in told_cordons(world)] == [(title, 2)]


def test_a_node_that_reboots_is_not_to_be_uncordoned_to_open_its_rack(
    world: WorldHarness,
) -> None:
    # given a rack that commands have closed, of which a cordoned Node begins to reboot
    given_rack(world, bootSeconds=120)
    for node in THREE:
        world.command_node("CordonNode", "train", node)
    world.command_node("RebootNode", "train", "n1")

    # when the advice is followed
    (_, *_, advised), _ = told_cordons(world)
    check_advice(world.world, Random(0), most=9)
    world.command_node("UncordonNode", "train", "n2")

    # then the rack takes work during the reboot
    assert advised == "'nodepool uncordon n2' opens it to work again"
    assert cordon_reasons(world) == {"AdminCordon": 2}


@pytest.mark.parametrize("stays", [True, False], ids=["reserved", "gone"])
def test_a_surplus_node_that_is_to_be_reserved_is_not_said_to_leave_once_it_is_idle(
    world: WorldHarness, *, stays: bool
) -> None:
    # given two Nodes at work, of which one is too many and one waits for its reservation
    world.given_data_center(machines=2)
    world.apply("train", 2)
    for node in ("n1", "n2"):
        world.run_pod(node)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    world.scale("train", 1)
    ((advised, _),) = helps(world)
    check_advice(world.world, Random(0), most=9)

    # when the work on a Node ends, as is advised
    node = "n1" if stays else "n2"
    world.command_node("CordonNode", "train", "n2")
    world.stop_pod(node)
    world.pass_time(minutes=1)

    assert advised == (
        "cordon one of its active Nodes and end the work there: it leaves, or is reserved for the "
        "control plane, once it is idle"
    )
    assert world.node_counts("train").current == 1
    assert len(world.documents("nodes")) == (2 if stays else 1)
