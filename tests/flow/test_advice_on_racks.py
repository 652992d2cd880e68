"""What is advised to a NodePool that lacks racks is what gives it as many Nodes the soonest.

A rack on which no work begins is told, with what opens it.
"""

from random import Random

import pytest

from flow.test_explanations import explained, titles
from flow.test_racks import (
    DOMAIN,
    EAST,
    GB200,
    R1,
    R2,
    add,
    cordon_reasons,
    domains,
    repair,
    run_pod,
    stop_pod,
    want,
)
from support.constants import RACK
from support.harness import Harness
from support.manifests import rack_affinity
from support.paths import machine_path, zone_path
from support.simulation.advice import check_advice
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


@pytest.mark.parametrize("cures", [True, False], ids=["by itself", "for its reboot"])
@pytest.mark.parametrize("is_repaired", [True, False], ids=["a repair", "a new machine"])
def test_a_rack_is_said_to_need_more_machines_if_a_silent_node_is_lost_meanwhile(
    world: WorldHarness, *, is_repaired: bool, cures: bool
) -> None:
    # given a rack that lacks a Node, and of which another one is silent, which is given up
    spec: dict[str, object] = {"lifecycle": {"disableUnhealthyNodeEviction": not cures}}
    spec |= {} if is_repaired else {"affinity": rack_affinity("r1")}
    given_rack(world, labels={RACK: "r1"})
    want(world, 1, "train", **spec)
    for node, fault in (("n1", "gpu-lost"), ("n2", "kubelet")):
        path = machine_path(f"{EAST}/{world.machine_name(node)}")
        world.send("BreakMachine", path, {"fault": fault})
        world.pass_time(minutes=1)
    if not cures:
        world.command_node("DrainNode", "train", "n1")
        world.command_node("RebootNode", "train", "n2")
        world.pass_time(minutes=1)

    # when the advice is followed, and the silent Node is lost
    advised = capacity_helps(world)
    check_advice(world.world, Random(0), most=9)
    if is_repaired:
        repair(world, "n1")
    else:
        add(world, {"count": 1, "labels": {DOMAIN: R1, RACK: "r1"}})
    back = domains(world)
    world.pass_time(minutes=40)

    change = f"repair machine n1 of NVLink domain {R1}"
    if not is_repaired:
        change = (
            f"add 1 machine of NVLink domain {R1} that satisfies the node affinity to the zone: no "
            "other completes its rack"
        )
    assert advised == [f"{change}; more are needed if a Node that does not answer is lost"]
    assert (back, domains(world)) == ({R1: 18}, {R1: 17})


def test_a_rack_without_a_domain_is_completed_by_a_machine_without_one(
    world: WorldHarness,
) -> None:
    # given two racks whose machines have no NVLink domain, and a Node that the control plane uses
    world.given_cluster(zone=EAST)
    world.given_quota(54, GB200, zone=EAST)
    add(world, {"count": 36})
    want(world, 2)
    world.pass_time(minutes=5)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")

    # when the advice is followed
    advised = capacity_helps(world)
    check_advice(world.world, Random(0), most=9)
    add(world, {"count": 1})

    assert advised == ["add 1 machine of no NVLink domain to the zone: no other completes its rack"]
    assert titles(explained(world, "train")) == []


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


NO_WORK = f"no work begins on NVLink domain {R1} while more than 2 of its Nodes are unavailable"
THREE = ("n1", "n2", "n3")


def told_cordons(world: WorldHarness) -> list[tuple[str, ...]]:
    """The titles, the details and the advice about cordoned Nodes."""
    causes = [each for each in explained(world, "train").causes if each.kind == "Cordon"]
    texts = ((each.title, *each.details, *each.helps) for each in causes)
    return [tuple(map(world.with_machine_numbers, each)) for each in texts]


@pytest.mark.parametrize("commands", [("CordonNode",), ("CordonNode", "DrainNode"), ("DrainNode",)])
@pytest.mark.parametrize("reason", ["", "new fans"])
def test_a_rack_that_commands_have_closed_is_told_and_opens_as_is_advised(
    world: WorldHarness, commands: tuple[str, ...], reason: str
) -> None:
    # given three Nodes of a rack that commands keep from work
    given_rack(world)
    given = {"reason": reason} if reason else {}
    for command in commands:
        for node in THREE:
            world.command_node(command, "train", node, **given)

    # when the advice is followed
    told, is_closed = told_cordons(world), cordon_reasons(world)
    check_advice(world.world, Random(0), most=9)
    world.command_node("UncordonNode", "train", "n1")

    assert is_closed[f"RackUnavailable {R1}"] == 15
    assert told == [
        (
            "3 Nodes are cordoned by command",
            f"{NO_WORK}: n1, n2, n3",
            "'nodepool uncordon n1' opens it to work again",
        )
    ]
    assert sum(cordon_reasons(world).values()) == 2


def test_a_rack_is_told_to_be_closed_also_where_work_goes_on_on_its_cordoned_nodes(
    world: WorldHarness,
) -> None:
    given_rack(world)
    for node in THREE:
        run_pod(world, node)
        world.command_node("CordonNode", "train", node)

    check_advice(world.world, Random(0), most=9)

    assert told_cordons(world) == [
        (
            "15 Nodes are cordoned for others of the same rack",
            f"{NO_WORK}: n1, n2, n3",
            "'nodepool uncordon n1' opens it to work again",
        )
    ]


def test_a_rack_waits_for_the_work_that_keeps_its_nodes_from_being_reserved(
    world: WorldHarness,
) -> None:
    # given a rack of which three Nodes are to be reserved once their work has ended
    given_rack(world)
    for node in THREE:
        run_pod(world, node)
        world.command_node("ReserveNode", "train", node, reservedDesired="control-plane")

    # when the work on a Node ends, as is advised
    told, is_closed = told_cordons(world), cordon_reasons(world)
    check_advice(world.world, Random(0), most=9)
    stop_pod(world, "n1")
    world.pass_time(minutes=1)

    assert is_closed[f"RackUnavailable {R1}"] == 15
    assert told == [
        (
            "15 Nodes are cordoned for others of the same rack",
            f"{NO_WORK}: n1, n2, n3",
            "end what runs on n1: its reservation waits for that, and so does the rack",
        )
    ]
    assert cordon_reasons(world) == {"ReservationPending": 2}


@pytest.mark.parametrize("has_fault", [False, True], ids=["cordoned", "unhealthy"])
def test_a_rack_does_not_wait_for_work_on_a_node_that_is_unavailable_all_the_same(
    world: WorldHarness, *, has_fault: bool
) -> None:
    # given three Nodes that are to be reserved, of which one has another cause of its own
    given_rack(world)
    want(world, 1)
    for node in THREE:
        run_pod(world, node)
        world.command_node("ReserveNode", "train", node, reservedDesired="control-plane")
    if has_fault:
        break_for_good(world, "n1", fault="gpu-lost")
    else:
        world.command_node("CordonNode", "train", "n1", reason="new fans")
    world.pass_time(minutes=1)

    # when the work on another Node ends, as is advised
    ((_, _, advised),) = told_cordons(world)
    check_advice(world.world, Random(0), most=9)
    is_closed = cordon_reasons(world)
    stop_pod(world, "n2")
    world.pass_time(minutes=1)

    other = "GPUMissing" if has_fault else "new fans"
    assert advised == "end what runs on n2: its reservation waits for that, and so does the rack"
    assert is_closed[f"RackUnavailable {R1}"] == 15
    assert cordon_reasons(world) == {f"{other},ReservationPending": 1, "ReservationPending": 1}


def test_a_rack_is_waited_for_where_each_reserved_node_has_a_further_cause(
    world: WorldHarness,
) -> None:
    given_rack(world)
    for node in THREE:
        run_pod(world, node)
        world.command_node("ReserveNode", "train", node, reservedDesired="control-plane")
        world.command_node("CordonNode", "train", node, reason="new fans")

    check_advice(world.world, Random(0), most=9)

    assert told_cordons(world) == [
        (
            "15 Nodes are cordoned for others of the same rack",
            f"{NO_WORK}: n1, n2, n3",
            f"wait: NVLink domain {R1} takes work again once 1 of its unavailable Nodes is cured, "
            "replaced, uncordoned or reserved",
        )
    ]


@pytest.mark.parametrize("is_cured", [False, True], ids=["unhealthy", "in triage"])
def test_a_rack_that_its_unhealthy_nodes_close_is_told_besides_what_cures_them(
    world: WorldHarness, *, is_cured: bool
) -> None:
    given_rack(world)
    want(world, 1, lifecycle={"disableUnhealthyNodeEviction": not is_cured})
    break_for_good(world, *THREE, fault="gpu-lost")
    world.pass_time(minutes=5)

    check_advice(world.world, Random(0), most=9)
    (told,) = told_cordons(world)

    who = "; 3 went to triage and have not been replaced" if is_cured else ": n1, n2, n3"
    assert told == (
        "15 Nodes are cordoned for others of the same rack",
        f"{NO_WORK}{who}",
        f"wait: NVLink domain {R1} takes work again once 1 of its unavailable Nodes is cured, "
        "replaced, uncordoned or reserved",
    )


def test_a_node_that_waits_for_its_reboot_does_not_close_its_rack(world: WorldHarness) -> None:
    # given two Nodes of a rack that are drained, and a third that reboots once its work has ended
    given_rack(world)
    path = machine_path(f"{EAST}/{world.machine_name('n3')}")
    pod = {"name": "slow", "graceS": 1_800, "interruption": "graceful"}
    world.send("RunPod", path, {"pod": pod})
    for node in ("n1", "n2"):
        world.command_node("DrainNode", "train", node)
    world.command_node("RebootNode", "train", "n3")

    # then work begins on the rack, and nothing else is told
    check_advice(world.world, Random(0), most=9)
    assert cordon_reasons(world) == {"AdminDrain": 2, "AdminReboot": 1}
    assert told_cordons(world) == [
        ("2 Nodes are cordoned by command", "'nodepool uncordon n1' opens it to work again")
    ]


def test_a_rack_that_opens_while_a_node_reboots_is_not_said_to_be_closed_until_it_has_rebooted(
    world: WorldHarness,
) -> None:
    # given a rack that commands have closed, of which another Node reboots
    given_rack(world, bootSeconds=120)
    for node in THREE:
        world.command_node("CordonNode", "train", node)
    world.command_node("RebootNode", "train", "n4")
    world.pass_time(seconds=5)

    # when the rack opens
    told = []
    for node in THREE:
        world.command_node("UncordonNode", "train", node)
        check_advice(world.world, Random(0), most=9)
        told.append(told_cordons(world))
    shown = cordon_reasons(world)
    world.pass_time(minutes=5)

    # then only the reboot is waited for
    reboots = (
        "1 Node is being rebooted or verified",
        "wait until it has rebooted: a Node is verified after its reboot",
    )
    assert told == [
        [
            (
                "2 Nodes are cordoned by command",
                f"{NO_WORK}: n2, n3, n4",
                "'nodepool uncordon n2' opens it to work again",
            ),
            reboots,
        ],
        [
            ("1 Node is cordoned by command", "'nodepool uncordon n3' opens it to work again"),
            reboots,
        ],
        [reboots],
    ]
    assert shown == {f"RackUnavailable {R1}": 1}
    assert told_cordons(world) == []
    assert cordon_reasons(world) == {}


def test_a_node_that_takes_work_while_it_is_verified_does_not_close_its_rack(
    world: WorldHarness,
) -> None:
    # given two new Nodes of a rack that are verified for long, which commands drain with two others
    world.given_cluster(zone=EAST)
    world.given_quota(54, GB200, zone=EAST)
    add(world, {"count": 18, "inRacks": True, "verifySeconds": 300})
    want(world, 1)
    world.pass_time(minutes=1)
    for node in ("n1", "n2"):
        path = machine_path(f"{EAST}/{world.machine_name(node)}")
        world.send("BreakMachine", path, {"fault": "hang", "times": 1})
    world.pass_time(minutes=20)
    for node in ("n1", "n2", "n3", "n4"):
        world.command_node("DrainNode", "train", node)

    # when the advice is followed
    told, drained = told_cordons(world), cordon_reasons(world)
    check_advice(world.world, Random(0), most=9)
    world.command_node("UncordonNode", "train", "n3")

    assert drained == {"AdminDrain": 2}
    assert told == [
        ("2 Nodes are cordoned by command", "'nodepool uncordon n3' opens it to work again")
    ]
    assert cordon_reasons(world) == {"AdminDrain": 1}
