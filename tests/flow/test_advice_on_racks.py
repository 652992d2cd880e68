"""What is advised to a NodePool that lacks racks is what gives it as many Nodes the soonest."""

import pytest

from flow.test_explanations import explained, titles
from flow.test_racks import EAST, GB200, R1, R2, add, domains, repair, want
from support.harness import Harness
from support.paths import machine_path, zone_path
from support.world_harness import WorldHarness

CURES = {"disableUnhealthyNodeEviction": False}
WHOLE_RACK = "add 18 machines of the type to the zone, in whole racks"


def given_rack(harness: Harness, racks: int = 1, **machines: object) -> None:
    """A NodePool with the first of so many racks, which cures its Nodes."""
    harness.given_cluster(zone=EAST)
    harness.given_quota(54, GB200, zone=EAST)
    add(harness, {"count": 18 * racks, "inRacks": True, **machines})
    want(harness, 1, lifecycle=CURES)
    harness.pass_time(minutes=5)


def break_for_good(harness: Harness, *machines: str, fault: str) -> None:
    """Machines have a fault that comes back after each reboot."""
    for machine in machines:
        path = machine_path(f"{EAST}/{harness.machine_name(machine)}")
        harness.send("BreakMachine", path, {"fault": fault, "times": 9, "cause": ""})


def capacity_helps(world: WorldHarness) -> list[str]:
    """What is advised against the lack of machines, with the numbers of the machines."""
    causes = explained(world, "train", is_now=True).causes
    found = [help for cause in causes if cause.kind == "Capacity" for help in cause.helps]
    return [world.with_machine_numbers(each) for each in found]


@pytest.mark.parametrize("last", ["is silent", "ends a Pod"])
def test_a_free_rack_comes_by_itself_once_the_last_node_of_a_failed_rack_is_gone(
    world: WorldHarness, last: str
) -> None:
    # given a rack that has failed, but for a Node that takes long to leave, and a free rack
    given_rack(world, racks=2)
    if last == "is silent":
        break_for_good(world, "n1", fault="kubelet")
        world.pass_time(minutes=15)
    else:
        pod = {"name": "slow", "graceS": 1_800, "interruption": "graceful"}
        path = machine_path(f"{EAST}/{world.machine_name('n1')}")
        world.send("RunPod", path, {"pod": pod})
        break_for_good(world, "n1", fault="gpu-lost")
    break_for_good(world, *(f"n{number}" for number in range(2, 19)), fault="gpu-lost")
    world.pass_time(minutes=5)

    # when nothing is done
    before, advised = domains(world), capacity_helps(world)
    world.pass_time(minutes=40)

    assert before == {R1: 1}
    assert advised == [
        "wait until its unhealthy Nodes are gone: 18 machines are free in whole racks"
    ]
    assert domains(world) == {R2: 18}
    assert titles(explained(world, "train")) == []


def test_a_rack_that_is_missing_is_advised_before_a_machine_that_will_be(
    world: WorldHarness,
) -> None:
    # given one of two racks, of which a Node does not answer
    given_rack(world)
    want(world, 2, lifecycle=CURES)
    break_for_good(world, "n1", fault="kubelet")
    world.pass_time(minutes=10)

    advised = capacity_helps(world)
    add(world, {"count": 18, "inRacks": True})

    assert advised == [
        WHOLE_RACK,
        f"add 1 machine of NVLink domain {R1} to the zone: no other completes its rack once its "
        "unhealthy Nodes are gone",
    ]
    assert domains(world) == {R1: 18, R2: 18}


def test_a_rack_that_is_being_wiped_is_waited_for(world: WorldHarness) -> None:
    given_rack(world, wipeSeconds=600)
    world.delete("train")
    world.pass_time(minutes=1)
    want(world, 1)

    advised = capacity_helps(world)
    world.pass_time(minutes=15)

    assert advised == ["wait: 18 machines in whole racks are being wiped"]
    assert domains(world) == {R1: 18}


def test_a_rack_is_to_be_added_to_those_that_are_being_wiped_where_they_are_not_enough(
    world: WorldHarness,
) -> None:
    given_rack(world, wipeSeconds=600)
    world.delete("train")
    world.pass_time(minutes=1)
    want(world, 2)

    advised = capacity_helps(world)
    add(world, {"count": 18, "inRacks": True})
    world.pass_time(minutes=15)

    assert advised == [f"{WHOLE_RACK}; 18 more are being wiped"]
    assert domains(world) == {R1: 18, R2: 18}


def test_a_rack_that_an_operator_holds_back_is_to_be_returned(world: WorldHarness) -> None:
    # given a rack that is reclaimed
    given_rack(world)
    add(world, {"count": 18, "inRacks": True})
    rack = {"instanceType": GB200, "count": 18}
    world.send("ReclaimCapacity", zone_path(EAST), rack)
    want(world, 2)

    # when it is returned
    advised = capacity_helps(world)
    world.send("ReturnCapacity", zone_path(EAST), rack)

    assert advised[:2] == ["return 18 of 18 reclaimed machines", WHOLE_RACK]
    assert domains(world) == {R1: 18, R2: 18}


def test_a_rack_that_is_held_back_with_a_machine_out_of_service_is_not_to_be_returned(
    world: WorldHarness,
) -> None:
    # given a rack that is reclaimed, of which a machine goes out of service
    given_rack(world)
    add(world, {"count": 18, "inRacks": True})
    rack = {"instanceType": GB200, "count": 18}
    world.send("ReclaimCapacity", zone_path(EAST), rack)
    world.take_out("n19", "it is in maintenance: new fan", zone=EAST)

    want(world, 2)

    assert capacity_helps(world)[0] == WHOLE_RACK


def test_a_machine_is_to_be_repaired_where_a_wipe_brings_the_others_of_its_rack(
    world: WorldHarness,
) -> None:
    # given a rack that lacks a machine that is being wiped, and one in triage
    given_rack(world, wipeSeconds=1_200)
    for node in ("n1", "n2"):
        path = machine_path(f"{EAST}/{world.machine_name(node)}")
        world.send("BreakMachine", path, {"fault": "gpu-lost"})
    world.pass_time(minutes=5)
    repair(world, "n1")

    # when the advice is followed
    capacity = explained(world, "train").causes[0]
    advised = capacity_helps(world)
    repair(world, "n2")
    world.pass_time(minutes=25)

    assert advised == [f"repair machine n2 of NVLink domain {R1}"]
    assert (
        f"NVLink domain {R1} lacks 2 Nodes; 0 of its machines are free, 1 being wiped and 1 out of "
        "service"
    ) in capacity.details
    assert domains(world) == {R1: 18}
