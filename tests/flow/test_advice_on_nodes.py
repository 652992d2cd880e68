"""What is advised about unhealthy Nodes is what becomes of them if the advice is followed."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from random import Random

import pytest

from flow.test_explanations import AWAITED, explained, titles
from flow.test_racks import (
    DOMAIN,
    EAST,
    GB200,
    R1,
    R2,
    add,
    break_boot,
    break_node,
    cordon_reasons,
    domains,
    given_a_surplus_while_a_node_boots,
    given_racks,
    repair,
    run_pod,
    stop_pod,
    want,
)
from lifecycle.decide import service as lifecycle_service
from lifecycle.options import Options
from nodepool.contract.documents import field
from nodepool.explanation.remedies import DrainNode, Wait
from support.constants import CLUSTER, PREFER_IDLE, RACK
from support.manifests import rack_affinity
from support.paths import pool_path
from support.services import services
from support.simulation.advice import check_advice
from support.world_harness import WorldHarness

LEAVES = "it then leaves, and train has enough Nodes without it"
LOCK = "sunk.coreweave.com/lock"


def helps(world: WorldHarness, pool: str = "train") -> list[tuple[str, ...]]:
    """All that would help against each cause, with the numbers of the machines."""
    causes = explained(world, pool, is_now=True).causes
    return [tuple(map(world.with_machine_numbers, cause.helps)) for cause in causes]


@pytest.mark.parametrize("org", ["acme", "umbrella"])
def test_a_node_that_no_free_machine_replaces_is_replaced_by_a_spot_node_as_is_said(
    world: WorldHarness, org: str
) -> None:
    # given an unhealthy Node at work, and the machines of spot Nodes
    world.given_data_center(machines=4)
    world.given_cluster("other", org)
    world.given_quota(4, org=org)
    world.apply("train", 2)
    world.apply(f"{org}/other/cheap", 2, computeClass="spot")
    world.run_pod("n1")
    world.break_machines("n1", fault="gpu-lost")
    world.pass_time(minutes=12)

    # when it is drained
    advised = [text for texts in helps(world) for text in texts]
    world.command_node("DrainNode", "train", "n1", force=True)
    world.pass_time(minutes=10)

    # then a spot Node has given way for it
    assert any("or until a spot Node gives way" in text for text in advised)
    assert explained(world, "train").causes == ()
    assert world.node_counts(f"{org}/other/cheap").current == 1


@pytest.mark.parametrize(
    ("machines", "target", "then", "left"),
    [
        (3, 2, "it is then cured or replaced", 2),
        (
            2,
            2,
            "no machine is free for it, so train lacks the Node until one is freed, "
            "repaired or added, or until a spot Node gives way",
            1,
        ),
        (3, 1, LEAVES, 1),
    ],
)
def test_a_drained_node_is_said_to_be_replaced_only_if_a_machine_is_free_for_it(
    world: WorldHarness, machines: int, target: int, then: str, left: int
) -> None:
    # given an unhealthy Node, which stays since both Nodes are at work
    world.given_data_center(machines)
    world.apply("train", 2)
    for node in ("n1", "n2"):
        world.run_pod(node)
    world.scale("train", target)
    world.break_machines("n1", fault="gpu-lost")
    before = helps(world)[-1]

    # when the advice is followed
    world.command_node("DrainNode", "train", "n1", force=True)
    world.pass_time(minutes=1)

    assert before == (f"'nodepool drain n1 --force' ends what runs there; {then}",)
    assert field(world.node_pool("train"), "status", "currentNodes") == left


@pytest.mark.parametrize(
    ("target", "machines", "then"),
    [
        (3, 4, "other Nodes that leave may get the free machines, so train may lack the Node"),
        (4, 4, "no machine is free for it, so train lacks the Node until"),
    ],
)
def test_a_drained_node_is_not_said_to_be_replaced_by_what_another_node_that_leaves_needs(
    world: WorldHarness, target: int, machines: int, then: str
) -> None:
    # given a Node that is drained for triage, another unhealthy one, and machines for one of them
    given_two_unhealthy_nodes(world, target, machines)

    # when the second one is drained too
    advised = helps(world)[-1][0]
    world.command_node("DrainNode", "train", "n2")
    world.pass_time(minutes=30)

    # then its NodePool lacks it, as was said
    assert then in advised
    assert world.node_counts("train").current == 2


def test_more_machines_are_said_to_be_needed_if_a_silent_node_is_lost_meanwhile(
    world: WorldHarness,
) -> None:
    # given a NodePool that lacks a Node, and of which a silent one waits for its reboot
    world.given_data_center(machines=4)
    world.apply("train", 4, lifecycle={"disableUnhealthyNodeEviction": True})
    world.break_machines("n1", fault="gpu-lost")
    world.break_machines("n2", fault="kubelet")
    world.pass_time(minutes=12)
    world.command_node("DrainNode", "train", "n1")
    world.command_node("RebootNode", "train", "n2")
    world.pass_time(minutes=1)

    # when the advice is followed, and the silent Node is lost
    advised = helps(world)[0]
    check_advice(world.world, Random(0), most=9)
    world.repair_machines("n1")
    back = world.node_counts("train").current
    world.pass_time(minutes=40)

    more = "; more are needed if a Node that does not answer is lost"
    assert advised == (
        f"repair 1 of 1 machine out of service{more}",
        f"add 1 machine of the type to the zone{more}",
        "scale train to 3, what it has",
    )
    assert (back, world.node_counts("train").current) == (4, 3)


@pytest.mark.parametrize("org", ["acme", "umbrella"])
@pytest.mark.parametrize("is_asked_first", [True, False])
def test_a_spot_node_that_does_not_answer_is_not_said_to_bring_its_machine(
    world: WorldHarness, org: str, *, is_asked_first: bool
) -> None:
    # given a spot Node that falls silent before it is asked to give way, or after that
    world.given_data_center(machines=3)
    world.given_cluster("other", org)
    world.given_quota(5, org=org)
    world.apply(f"{org}/other/cheap", 1, computeClass="spot")
    world.apply("train", 2)
    steps: list[Callable[[], object]] = [
        lambda: world.scale("train", 4),
        lambda: world.break_machines("n1", fault="hang", times=9),
    ]
    for step in steps if is_asked_first else reversed(steps):
        before = helps(world)
        step()
        world.pass_time(minutes=1)

    # when it is given up
    silent = helps(world)
    check_advice(world.world, Random(0), most=9)
    world.pass_time(minutes=5)
    given_up = helps(world)

    # then its machine is counted on with a warning at first, and not at all from then on
    one, two = (f"add {count} of the type to the zone" for count in ("1 machine", "2 machines"))
    loss, keep = "; more are needed if a Node that does not answer is lost", "scale train to 2"
    assert before == [(AWAITED, one, f"{keep}, what it has")] * is_asked_first
    assert silent == [(AWAITED + loss, one + loss, f"{keep}, what it has")]
    assert given_up == [(two, f"{keep}, what it has")]


def test_a_free_machine_is_not_denied_since_another_node_leaves_later(world: WorldHarness) -> None:
    # given a Node that does not answer and is drained, an unhealthy one, and a machine for one
    world.given_data_center(machines=4)
    world.apply("train", 3, lifecycle={"disableUnhealthyNodeEviction": True})
    world.break_machines("n1", fault="hang")
    world.pass_time(minutes=15)
    world.command_node("DrainNode", "train", "n1")
    world.break_machines("n2", fault="gpu-lost")
    world.pass_time(minutes=1)

    # when the second one is drained
    check_advice(world.world, Random(0), most=100)
    advised = helps(world)[-1]
    world.command_node("DrainNode", "train", "n2")
    world.pass_time(minutes=1)

    # then the machine takes its place at once, and its NodePool lacks the first one later
    assert world.nodes("train") == ["n1", "n3", "n4"]
    assert advised == (
        "'nodepool drain n2' ends what runs there; other Nodes that leave "
        "may get the free machines, so train may lack the Node until another one is free",
    )


def given_two_unhealthy_nodes(world: WorldHarness, target: int, machines: int) -> None:
    """Of so many Nodes two have lost a GPU, and the first one leaves; then three are wanted."""
    world.given_data_center(machines=machines)
    world.apply("train", target)
    for number in range(1, target + 1):
        world.run_pod(f"n{number}", interruption="graceful", graceS=300)
    world.break_machines("n1", "n2", fault="gpu-lost")
    world.pass_time(minutes=1)
    world.command_node("DrainNode", "train", "n1")
    world.scale("train", 3)
    world.pass_time(minutes=1)


def test_a_silent_node_that_is_too_many_leaves_before_another_silent_one_is_drained(
    world: WorldHarness,
) -> None:
    # given four Nodes, two of which do not answer, and a target of three
    world.given_data_center(machines=6)
    world.apply("train", 4)
    world.break_machines("n1", "n2", fault="hang")
    world.pass_time(minutes=12)
    world.scale("train", 3)
    world.pass_time(minutes=1)

    # when the advice is followed
    advised = helps(world)[-1][0]
    world.pass_time(minutes=60)

    # then the Node that was too many has left, and the other one is to be drained
    assert advised in (
        "wait until n1 has left: it does not answer, and would stay if n2 left first",
        "wait until n2 has left: it does not answer, and would stay if n1 left first",
    )
    assert world.node_counts("train").current == 3
    assert helps(world)[-1][0].endswith("it is then replaced")


def test_a_drained_node_with_an_affinity_is_not_said_to_be_replaced_by_any_machine(
    world: WorldHarness,
) -> None:
    # given free machines that do not satisfy the node affinity
    world.given_cluster()
    world.given_quota(9)
    world.given_machines(1, labels={RACK: "r1"})
    world.given_machines(5, labels={RACK: "r2"})
    world.apply("train", 1, affinity=rack_affinity("r1"))
    world.break_machines("n1", fault="gpu-lost")
    (health,) = explained(world, "train").causes

    world.command_node("DrainNode", "train", "n1")
    world.pass_time(minutes=1)

    then = "it is then replaced if a free machine satisfies the node affinity"
    node = world.machine_name("n1")
    assert health.helps == (f"'nodepool drain {node}' ends what runs there; {then}",)
    assert [remedy.action for remedy in health.remedies] == [DrainNode(node)]
    assert titles(explained(world, "train")) == ["Capacity is NoneAvailableNodeAffinity"]


CURED = {"disableUnhealthyNodeEviction": False}


def gone_at(time: str) -> str:
    """The advice to wait until this time of the first day, when n1 is given up."""
    return (
        "wait: n1 does not answer; a machine that does not answer is treated as dead at "
        f"2026-01-01T{time}Z, and its Node is deleted"
    )


def dead_at(time: str) -> str:
    """The advice to wait until this time for n1, whose removal may be cancelled until then."""
    return f"{gone_at(time)} unless it may stay by then"


SHORT_OR_WIDE = (
    "wait: n1 does not answer; unless it is drained, no Node is repaired before its silence has "
    "lasted some minutes, or while at least 3 Nodes of its zone or its cluster are silent, from "
    "55% of them until fewer than 50%"
)


def test_a_node_that_does_not_answer_is_waited_for_and_no_pod_is_to_be_ended_there(
    world: WorldHarness,
) -> None:
    # given an active Node whose machine dies
    world.given_data_center(6)
    world.apply("train", 2, lifecycle=CURED)
    world.run_pod("n1")
    world.break_machines("n1", fault="hang")
    world.pass_time(minutes=3)
    just_silent = helps(world)
    world.pass_time(minutes=7)

    # when its silence has lasted, and for as long as is said
    leaving = helps(world)
    world.pass_time(minutes=30)

    assert just_silent == [(SHORT_OR_WIDE,)]
    assert leaving == [(dead_at("00:35:41"),)]
    assert titles(explained(world, "train")) == []


def test_two_silent_nodes_are_repaired_though_they_are_all_of_their_cluster(
    world: WorldHarness,
) -> None:
    # given a cluster whose two Nodes both fall silent
    world.given_data_center(6)
    world.apply("train", 2, lifecycle=CURED)
    world.break_machines("n1", "n2", fault="hang")
    world.pass_time(minutes=3)
    just_silent = helps(world)

    # when their silence has lasted
    world.pass_time(minutes=40)

    # then they are replaced, as is said of fewer than three
    assert just_silent == [(SHORT_OR_WIDE,)]
    assert world.nodes("train") == ["n3", "n4"]


def test_an_idle_node_that_leaves_and_does_not_answer_is_named_as_such(
    world: WorldHarness,
) -> None:
    # given a NodePool with too many Nodes, of which the machine of an idle Node has died
    world.given_data_center(6)
    world.apply("train", 2, lifecycle={"scaleDownStrategy": "PreferIdle"})
    world.run_pod("n2")
    world.break_machines("n1", fault="hang")

    # when both are to leave
    world.scale("train", 0)
    world.pass_time(minutes=10)
    surplus = world.condition("train", "AtTarget")

    # and when the NodePool is deleted instead
    world.delete("train")
    world.pass_time(minutes=5)
    deleted = world.condition("train", "AtTarget"), world.condition("train", "NodesRemoved")

    # then the Node that does not answer is named each time
    assert surplus == (
        "False OverTarget: NodePool has 2 Nodes and wants 0; waits for"
        " n2, active with Pods job since 2026-01-01T00:00:00Z; n1, which does not answer."
    )
    left = "1 Node is still to be removed; waits for n1, which does not answer."
    assert deleted == (
        f"False PendingDelete: NodePool is being deleted, {left}",
        f"False Pending: {left}",
    )


def test_a_surplus_node_that_does_not_answer_is_named_as_such(world: WorldHarness) -> None:
    # given a NodePool with too many Nodes, each at work
    world.given_data_center(6)
    world.apply("train", 2, lifecycle={"scaleDownStrategy": "PreferIdle"})
    for node in ("n1", "n2"):
        world.run_pod(node)
    world.scale("train", 1)
    busy = world.condition("train", "AtTarget")

    # when the machine of the Node dies that leaves
    world.break_machines("n1", fault="hang")
    world.pass_time(minutes=10)
    silent = world.condition("train", "AtTarget"), helps(world)
    world.pass_time(minutes=30)

    over = "False OverTarget: NodePool has 2 Nodes and wants 1"
    assert busy == f"{over}; waits for n1, active with Pods job since 2026-01-01T00:00:00Z."
    assert silent == (
        f"{over}; waits for n1, which does not answer.",
        [(dead_at("00:30:41"), "scale train to 2, what it has")],
    )
    assert titles(explained(world, "train")) == []


def test_a_node_that_has_not_answered_its_drain_is_not_said_to_be_drained(
    world: WorldHarness,
) -> None:
    # given a Node whose drain its machine does not answer, which is not known to be silent yet
    world.given_data_center(4)
    world.apply("train", 2)
    world.break_machines("n1", fault="hang")
    world.command_node("DrainNode", "train", "n1")
    world.pass_time(seconds=1)

    # when nothing is done
    early, advised = titles(explained(world, "train", is_now=True)), helps(world)
    world.pass_time(minutes=31)

    assert early == ["1 Node has not answered a cordon yet"]
    assert advised == [(dead_at("00:30:01"),)]
    assert "n1" not in world.nodes("train")


def test_nodes_that_do_not_answer_are_given_up_by_a_drain_where_no_node_is_replaced_without(
    world: WorldHarness,
) -> None:
    world.given_data_center(6)
    world.apply("train", 2)
    world.run_pod("n1")
    world.break_machines("n1", fault="hang")
    world.pass_time(minutes=10)
    stays = helps(world)

    world.command_node("DrainNode", "train", "n1")
    world.pass_time(minutes=31)

    given_up = (
        "'nodepool drain n1' gives it up: it does not answer, and is treated as dead once its time "
        "to answer is over; it is then replaced"
    )
    assert stays == [(given_up,)]
    assert "n1" not in world.nodes("train")


def test_a_node_that_does_not_answer_is_waited_for_as_long_as_a_setting_says() -> None:
    # given a machine that hangs, and two hours for it to answer
    lifecycle = lifecycle_service(Options(answer_within=timedelta(minutes=120)))
    world = WorldHarness(*(lifecycle if each.name == "lifecycle" else each for each in services()))
    world.given_data_center(4)
    world.apply("train", 3)
    world.break_machines("n1", fault="hang")
    world.pass_time(minutes=10)

    # when its Node is drained
    world.command_node("DrainNode", "train", "n1")
    advised = []
    for minutes in (1, 60, 58):
        world.pass_time(minutes=minutes)
        advised.append(helps(world))
    world.pass_time(minutes=2)

    # then the end of that time is named all along, and no service is blamed
    assert advised == [[(dead_at("02:10:01"),)]] * 3
    assert explained(world, "train", is_now=True).causes == ()
    assert "n1" not in world.nodes("train")


@pytest.mark.parametrize("hanging", [1, 3])
def test_a_silent_node_that_is_to_reboot_is_said_to_be_deleted_also_where_none_is_repaired(
    world: WorldHarness, hanging: int
) -> None:
    # given a silent Node, alone or beside most Nodes of its zone, and no replacement of its own
    world.given_data_center(4)
    world.apply("train", 4)
    world.break_machines(*(f"n{number + 1}" for number in range(hanging)), fault="hang")
    world.pass_time(minutes=10)

    # when a command asks for its reboot
    world.command_node("RebootNode", "train", "n1")
    world.pass_time(minutes=2)
    (health,) = explained(world, "train").causes
    world.pass_time(minutes=29)

    # then the moment at which it is given up was said
    said = [text for text in map(world.with_machine_numbers, health.helps) if "n1 " in text]
    assert said == [dead_at("00:40:01")]
    assert "n1" not in world.nodes("train")


def test_a_deletion_says_until_when_it_waits_for_a_node_that_does_not_answer(
    world: WorldHarness,
) -> None:
    # given two Nodes, of which one does not answer
    world.given_data_center(2)
    world.apply("train", 2)
    world.break_machines("n1", fault="hang")
    world.pass_time(minutes=1)

    # when their NodePool is deleted
    world.delete("train")
    world.pass_time(minutes=1)
    (deletion,) = explained(world, "train", is_now=True).causes
    world.pass_time(minutes=29)
    before = world.node_pool("train")
    world.pass_time(minutes=1)

    # then it is gone soon after that Node is given up
    assert list(map(world.with_machine_numbers, deletion.helps)) == [gone_at("00:31:01")]
    assert before is not None
    assert world.node_pool("train") is None


def test_a_spot_node_is_not_to_be_reserved_again_for_who_loses_a_silent_node(
    world: WorldHarness,
) -> None:
    # given a spot NodePool that waits, and has a Node that the control plane uses
    world.given_data_center(machines=2)
    world.apply("cheap", 1, computeClass="spot")
    world.apply("train", 1, lifecycle={"disableUnhealthyNodeEviction": False})
    world.command_node("ReserveNode", "cheap", "n1", reservedDesired="control-plane")
    before = helps(world, "cheap")[-1]

    # when a Node of another NodePool is silent, and then to be replaced by a spot Node
    world.break_machines("n2", fault="hang", times=9)
    world.pass_time(minutes=1)
    check_advice(world.world, Random(0), most=9)
    silent = helps(world, "cheap")[-1]
    world.pass_time(minutes=5)
    check_advice(world.world, Random(0), most=9)

    # then the Node is not to be reserved for the organisation again
    assert before == ("reserve n1 for the organisation again",)
    assert silent == (
        "wait: a Node of prod/train does not answer; if it is lost, a spot Node gives way",
    )
    assert helps(world, "cheap")[-1] == ()


def test_a_spot_node_may_be_reserved_again_beside_a_silent_node_that_is_not_replaced(
    world: WorldHarness,
) -> None:
    # given a spot NodePool that waits, and has a Node that the control plane uses
    world.given_data_center(machines=3)
    world.apply("cheap", 1, computeClass="spot")
    world.apply("train", 2, lifecycle={"disableUnhealthyNodeEviction": False})
    world.command_node("ReserveNode", "cheap", "n1", reservedDesired="control-plane")
    # and another NodePool that is to shrink once one of its Nodes is idle
    for node in ("n2", "n3"):
        world.run_pod(node)
    world.scale("train", 1)

    # when a Node of that NodePool is silent
    world.break_machines("n2", fault="hang", times=9)
    world.pass_time(minutes=1)
    check_advice(world.world, Random(0), most=9)

    # then its loss would take nothing from the spot NodePool
    assert helps(world, "cheap")[-1] == ("reserve n1 for the organisation again",)


def test_nobody_waits_for_a_silent_node_where_no_node_can_be_reserved_again(
    world: WorldHarness,
) -> None:
    # given a spot NodePool that waits, and whose only Node is lent and does not answer
    world.given_data_center(machines=2)
    world.apply("cheap", 1, computeClass="spot")
    world.apply("train", 1, lifecycle={"disableUnhealthyNodeEviction": False})
    world.command_node("ReserveNode", "cheap", "n1", reservedDesired="control-plane")
    world.break_machines("n1", fault="hang", times=9)
    world.pass_time(minutes=1)
    before = helps(world, "cheap")[-1]

    # when a Node of another NodePool does not answer either
    world.break_machines("n2", fault="hang", times=9)
    world.pass_time(minutes=1)

    # then there is nothing to wait for
    assert before == helps(world, "cheap")[-1] == ()


def test_a_silent_node_is_not_to_be_reserved_again(world: WorldHarness) -> None:
    # given a Node that is reserved for the control plane, and whose machine does not answer
    world.given_data_center(4, quota=4)
    world.apply("train", 4)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    world.break_machines("n1", fault="hang")
    world.pass_time(minutes=2)

    causes = {cause.kind: cause.helps for cause in explained(world, "train").causes}

    # then nothing is advised for the reservation, which would make the machine owe an answer
    assert causes["Reservation"] == ()


@pytest.mark.parametrize("begins", ["command", "fault"])
def test_a_healthy_node_that_reboots_is_told_until_it_takes_work_again(
    world: WorldHarness, begins: str
) -> None:
    # given a Node that reboots and is verified, as a command asks or because it was unhealthy
    world.given_cluster()
    world.given_quota(2)
    world.given_machines(2, boot_s=120, verifySeconds=300)
    world.apply("train", 2, lifecycle=CURED)
    world.pass_time(minutes=10)
    if begins == "command":
        world.command_node("RebootNode", "train", "n1")
    else:
        world.break_machines("n1", fault="kernel-deadlock")
    told = []

    # when time passes
    for minutes in (1, 3, 4):
        world.pass_time(minutes=minutes)
        check_advice(world.world, Random(0), most=9)
        told.append((titles(explained(world, "train", is_now=True)), helps(world)))

    # then it is waited for as long as it takes no work
    wait = [("wait until it has rebooted: a Node is verified after its reboot",)]
    is_told = (["1 Node is being rebooted or verified"], wait)
    first = is_told if begins == "command" else (["1 Node is unhealthy"], wait)
    assert told == [first, is_told, ([], [])]


@pytest.mark.parametrize("fault", ["hang", "kubelet"])
def test_an_idle_node_is_told_from_the_command_to_reboot_it_on_though_it_does_not_answer(
    world: WorldHarness, fault: str
) -> None:
    # given a Node whose machine has just fallen silent
    world.given_data_center(2)
    world.apply("train", 2)
    world.pass_time(minutes=10)
    world.break_machines("n1", fault=fault)

    # when a command asks for its reboot
    world.command_node("RebootNode", "train", "n1")
    check_advice(world.world, Random(0), most=9)
    at_once = helps(world)
    world.pass_time(seconds=3)

    assert at_once == [("wait until it has rebooted: a Node is verified after its reboot",)]
    assert helps(world) == [(dead_at("00:40:01"),)]


@pytest.mark.parametrize("phase", ["reboot", "verification"])
def test_the_lifecycle_service_is_named_if_it_does_not_end_the_restart_of_a_node(
    world: WorldHarness, phase: str
) -> None:
    # given a Node that restarts
    world.given_cluster()
    world.given_quota(2)
    world.given_machines(2, boot_s=120, verifySeconds=300)
    world.apply("train", 2)
    world.pass_time(minutes=10)
    world.command_node("RebootNode", "train", "n1")
    world.pass_time(minutes=1 if phase == "reboot" else 4)

    # when the service does not answer any more
    with world.paused("lifecycle"):
        early = helps(world)
        world.pass_time(minutes=180)
        late = helps(world)
    world.pass_time(minutes=6)

    assert early == [("wait until it has rebooted: a Node is verified after its reboot",)]
    assert [text.split(":")[0] for (text,) in late] == ["see that the lifecycle service runs"]
    assert helps(world) == []


def test_a_silent_node_is_to_be_drained_after_its_reboot_only_if_it_is_still_silent(
    world: WorldHarness,
) -> None:
    # given a silent Node that a command reboots
    world.given_data_center(2, boot_s=120)
    world.apply("train", 1)
    world.pass_time(minutes=10)
    world.break_machines("n1", fault="hang")
    world.pass_time(minutes=10)
    world.command_node("RebootNode", "train", "n1", force=True)
    world.pass_time(minutes=1)

    # when it has rebooted
    advised = helps(world)
    world.pass_time(minutes=5)

    # then it is well, and is not to be drained
    assert advised == [("wait until it has rebooted, then drain it if NotReady has not ended",)]
    assert helps(world) == []
    assert world.nodes("train") == ["n1"]


def test_a_node_that_reboots_is_to_be_drained_then_if_its_problem_has_not_ended(
    world: WorldHarness,
) -> None:
    world.given_data_center(2, boot_s=300)
    world.apply("train", 2)
    world.pass_time(minutes=10)
    world.break_machines("n1", fault="gpu-lost")
    world.command_node("RebootNode", "train", "n1")
    world.pass_time(minutes=1)

    assert helps(world) == [
        ("wait until it has rebooted, then drain it if GPUMissing has not ended",)
    ]


@pytest.mark.parametrize("cures", [True, False])
def test_while_most_nodes_are_silent_none_is_said_to_be_repaired_or_is_to_be_drained(
    world: WorldHarness, cures: bool
) -> None:
    # given a NodePool most of whose Nodes have fallen silent at once
    world.given_data_center(10)
    world.apply("train", 5, lifecycle={"disableUnhealthyNodeEviction": not cures})
    world.break_machines("n1", "n2", "n3", fault="hang")
    world.pass_time(minutes=120)

    (health,) = explained(world, "train", is_now=True).causes

    assert health.title == "3 Nodes are unhealthy"
    (remedy,) = health.remedies
    first = health.message.partition(":")[0]
    assert remedy.text == SHORT_OR_WIDE.replace("n1", first)
    assert remedy.action == Wait()


def test_while_half_of_the_nodes_are_still_silent_only_a_drain_gives_a_node_up(
    world: WorldHarness,
) -> None:
    # given a NodePool most of whose Nodes fell silent, until one of them answered again
    world.given_data_center(12)
    world.apply("train", 8, lifecycle={"disableUnhealthyNodeEviction": False})
    nodes = [f"n{number}" for number in range(1, 6)]
    world.break_machines(*nodes, fault="hang")
    world.pass_time(minutes=10)
    world.break_machines("n5", fault="hang", times=0)
    world.pass_time(minutes=60)

    # when the Node of the advice is drained
    (health,) = explained(world, "train", is_now=True).causes
    node = health.message.partition(":")[0]
    world.command_node("DrainNode", "train", node)
    world.pass_time(minutes=40)

    # then it is given up, and the silence of the others is no longer widespread
    assert health.title == "4 Nodes are unhealthy"
    assert health.helps == (SHORT_OR_WIDE.replace("n1", node),)
    assert node not in world.nodes("train")
    assert not any("at least 3 Nodes" in text for texts in helps(world) for text in texts)


def test_a_slurm_job_is_not_called_a_pod(world: WorldHarness) -> None:
    # given a Node at work for a Slurm job, and another one for a Pod too
    world.given_data_center()
    world.apply("train", 2, lifecycle={"scaleDownStrategy": "PreferIdle"})
    for node in ("n1", "n2"):
        world.lock("train", node)
    world.pass_time(minutes=1)
    world.run_pod("n2", "job", tolerations=[{"key": LOCK, "operator": "Exists"}])

    world.scale("train", 0)

    job = "Slurm job 42 since 2026-01-01T00:00:00Z"
    assert world.condition("train", "AtTarget") == (
        f"False OverTarget: NodePool has 2 Nodes and wants 0; waits for n1, active with {job}; "
        f"n2, active with Pods job since 2026-01-01T00:01:00Z, {job}."
    )
    assert helps(world)[0][0] == "end the work that blocks on n1, n2"


@pytest.mark.parametrize(("fault", "verb"), [("xid", "reboot"), ("gpu-lost", "drain")])
def test_a_slurm_job_is_named_beside_many_pods_that_began_before_it(
    world: WorldHarness, fault: str, verb: str
) -> None:
    # given a Node with more Pods that block than are named, and a job that began after them
    world.given_data_center(machines=3)
    world.apply("train", 1, lifecycle={"disableUnhealthyNodeEviction": True})
    for number in range(6):
        world.run_pod("n1", f"pod-{number}", tolerations=[{"operator": "Exists"}])
    world.pass_time(minutes=1)
    world.lock("train", "n1")

    world.break_machines("n1", fault=fault)
    world.pass_time(minutes=1)

    # then its advice lets the job end before the command
    check_advice(world.world, Random(0), most=100)
    assert helps(world)[-1] == (f"end the Slurm job on n1, then 'nodepool {verb} n1 --force'",)


def test_an_unhealthy_node_that_is_too_many_is_not_said_to_be_cured(world: WorldHarness) -> None:
    # given two Nodes at work, of which one is too many, and one has a problem that a reboot cures;
    # in a Kubernetes cluster its Pods would outlast the reboot
    world.given_data_center(machines=2)
    world.apply("train", 2)
    for node in ("n1", "n2"):
        world.run_pod(node)
    world.scale("train", 1)
    world.break_machines("n1", fault="xid")
    before = helps(world)[-1]

    # when the advice is followed
    world.command_node("DrainNode", "train", "n1", force=True)
    world.pass_time(minutes=30)

    assert before == (f"'nodepool drain n1 --force' ends what runs there; {LEAVES}",)
    assert world.nodes("train") == ["n2"]


def test_an_unhealthy_node_that_is_too_many_leaves_once_its_slurm_job_has_ended(
    world: WorldHarness,
) -> None:
    # given two Nodes with Slurm jobs, of which one is too many, and one is unhealthy
    world.given_data_center(machines=2)
    world.apply("train", 2)
    for node in ("n1", "n2"):
        world.lock("train", node)
    world.scale("train", 1)
    world.break_machines("n1", fault="xid")
    before = helps(world)[-1]

    # when the advice is followed
    world.unlock("train", "n1")
    world.pass_time(minutes=30)

    assert before == (f"end the Slurm job on n1; {LEAVES}",)
    assert world.nodes("train") == ["n2"]


@pytest.mark.parametrize(
    ("node", "verb", "then"),
    [("n1", "drain", LEAVES), ("n19", "reboot", "it is then cured")],
    ids=["alone", "with another"],
)
def test_an_unhealthy_node_of_a_rack_leaves_only_if_no_other_node_of_its_rack_is_at_work(
    world: WorldHarness, node: str, verb: str, then: str
) -> None:
    # given two racks of which one is too many; one has a Node at work, and the other has two
    given_racks(world, 2)
    want(world, 2)
    for busy in ("n1", "n19", "n20"):
        run_pod(world, busy)
    want(world, 1)
    break_node(world, node, "xid")
    before = helps(world)[-1]

    # when the advice is followed
    command = f"{verb.title()}Node"
    world.send(command, pool_path("train"), {"node": world.machine_name(node), "force": True})
    world.pass_time(minutes=60)

    assert before == (f"'nodepool {verb} {node} --force' ends what runs there; {then}",)
    assert domains(world) == ({R2: 18} if then == LEAVES else {R1: 18, R2: 18})


def test_machines_for_what_is_served_before_are_a_bound_where_it_may_want_others(
    world: WorldHarness,
) -> None:
    # given two NodePools that wait for machines of different racks
    world.given_cluster()
    world.given_quota(20)
    for rack in ("r1", "r2"):
        world.given_machines(1, labels={RACK: rack})
    world.apply("before", 3, affinity=rack_affinity("r1"))
    world.apply("train", 3, affinity=rack_affinity("r2"))

    (capacity,) = explained(world, "train").causes
    world.given_machines(2, labels={RACK: "r2"})

    assert f"{CLUSTER}/before waits for machines of the same type" in capacity.details
    assert capacity.helps == (
        "add 4 machines that satisfy the node affinity to the zone, up to 2 of them for what is "
        "served before it",
        "scale train to 1, what it has",
    )
    assert titles(explained(world, "train")) == []


def test_nodes_that_boot_are_awaited_in_the_target_that_a_nodepool_may_keep(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=2, boot_s=60)

    world.apply("train", 3)

    assert helps(world)[0][-1] == "scale train to 2, what it has and awaits"


def test_pods_are_to_end_where_all_surplus_nodes_were_chosen_before_the_spec_was_invalid(
    world: WorldHarness,
) -> None:
    # given Nodes that are to leave and wait for their Pods, and then a spec that is not valid
    world.given_data_center(machines=3)
    prefers = {"scaleDownStrategy": "PreferIdle"}
    world.apply("train", 3, lifecycle=prefers)
    for node in ("n1", "n2", "n3"):
        world.run_pod(node)
    world.scale("train", 1)
    world.pass_time(minutes=1)
    world.apply("train", 1, lifecycle=prefers, region="XX")

    # when the advice is followed
    advised = helps(world)[-1]
    for node in ("n1", "n2"):
        world.stop_pod(node)
    world.pass_time(minutes=5)

    # then the Nodes are gone, though the spec is still not valid
    assert advised[0] == "end the Pods that block on n1, n2"
    assert world.condition("train", "Validated").startswith("False Invalid")
    assert field(world.node_pool("train"), "status", "currentNodes") == 1


def given_partly_chosen(world: WorldHarness) -> None:
    """A NodePool at work, 3 Nodes too many, of which 2 were chosen before its spec was invalid."""
    world.given_data_center(machines=4)
    world.apply("train", 4, lifecycle=PREFER_IDLE)
    for node in ("n1", "n2", "n3", "n4"):
        world.run_pod(node)
    world.scale("train", 2)
    world.pass_time(minutes=1)
    world.apply("train", 1, lifecycle=PREFER_IDLE, region="XX")
    world.pass_time(minutes=1)


CHANGE = "change the spec as the condition Validated says"


def test_pods_are_to_end_and_the_spec_is_to_change_where_only_a_part_of_the_surplus_was_chosen(
    world: WorldHarness,
) -> None:
    given_partly_chosen(world)

    # when the advice is followed, step by step
    check_advice(world.world, Random(0), most=100)
    advised = helps(world)[-1]
    for node in ("n1", "n2"):
        world.stop_pod(node)
    world.pass_time(minutes=5)
    left = world.nodes("train"), helps(world)[-1]
    world.apply("train", 1, lifecycle=PREFER_IDLE)
    world.stop_pod("n3")
    world.pass_time(minutes=5)

    # then the chosen Nodes left first, and the last one once the spec was valid
    assert advised == ("end the Pods that block on n1, n2", CHANGE)
    assert left == (["n3", "n4"], (CHANGE,))
    assert world.nodes("train") == ["n4"]


def test_a_chosen_node_that_does_not_answer_is_waited_for_before_the_spec_is_to_change(
    world: WorldHarness,
) -> None:
    given_partly_chosen(world)
    world.stop_pod("n2")

    # when the machine of the Node that is left of the chosen ones dies
    world.break_machines("n1", fault="hang")
    world.pass_time(minutes=10)
    advised = helps(world)[-1]
    world.pass_time(minutes=30)

    assert advised == (dead_at("00:32:41"), CHANGE)
    assert world.nodes("train") == ["n3", "n4"]


def test_a_target_is_not_advised_that_costs_a_part_of_a_rack(world: WorldHarness) -> None:
    # given as many Nodes as a rack has, which are of two racks
    given_racks(world, 2)
    want(world, 2, lifecycle={"disableUnhealthyNodeEviction": False})
    for number in (1, *range(20, 37)):
        break_node(world, f"n{number}", "gpu-lost")

    advised = [text for texts in helps(world) for text in texts]

    assert domains(world) == {R1: 17, R2: 1}
    assert [text for text in advised if text.startswith("scale")] == []


def test_the_work_that_keeps_a_rack_is_to_end_also_while_a_node_of_another_one_boots(
    world: WorldHarness,
) -> None:
    given_a_surplus_while_a_node_boots(world)

    advised = helps(world)
    check_advice(world.world, Random(0), most=100)

    assert advised == [(f"cordon the active Node of NVLink domain {R2} and end the work there",)]


def test_a_rack_of_which_a_node_boots_is_a_target_that_a_nodepool_may_keep(
    world: WorldHarness,
) -> None:
    # given one rack, of which one Node has joined, where two racks are wanted
    world.given_cluster(zone=EAST)
    world.given_quota(36, GB200, zone=EAST)
    add(world, {"count": 1, "labels": {DOMAIN: "a"}})
    add(world, {"count": 17, "labels": {DOMAIN: "a"}, "bootSeconds": 1200})
    want(world, 2)
    world.pass_time(minutes=1)

    assert helps(world)[0][-1] == "scale train to 1 rack (18 Nodes), what it has and awaits"


BLOCKED: Mapping[str, Callable[[WorldHarness], object]] = {
    "over quota": lambda world: world.given_quota(16, GB200, zone=EAST),
    "invalid": lambda world: want(world, 1, region="US-WEST-04A"),
}
"""What keeps repaired machines from their NodePool."""


@pytest.mark.parametrize("block", BLOCKED.values(), ids=BLOCKED)
def test_nodes_of_a_rack_count_as_lost_though_their_machines_are_repaired(
    world: WorldHarness, block: Callable[[WorldHarness], object]
) -> None:
    # given a rack that lost two machines, which cannot return, and two Nodes that were drained
    given_a_rack_with_repaired_machines(world, 2, block)
    for node in ("n3", "n4"):
        world.command_node("DrainNode", "train", node)
    world.pass_time(minutes=30)

    # when the advice is followed
    down = explained(world, "train").causes[1]
    for node in ("n3", "n4"):
        world.command_node("UncordonNode", "train", node)
    world.pass_time(minutes=30)

    assert list(map(world.with_machine_numbers, down.details)) == [
        f"{NO_WORK}: n3, n4; 2 went to triage and have not been replaced"
    ]
    assert list(map(world.with_machine_numbers, down.helps)) == [
        "'nodepool uncordon n3 n4' opens their rack to work again"
    ]
    assert cordon_reasons(world) == {}


def test_a_rack_that_lacks_too_many_nodes_to_be_opened_says_how_many(world: WorldHarness) -> None:
    # given a rack that lost three machines, which cannot return, and a Node that was drained
    given_a_rack_with_repaired_machines(world, 3, BLOCKED["invalid"])
    world.command_node("DrainNode", "train", "n4")
    world.pass_time(minutes=30)

    down = explained(world, "train").causes[1]

    assert down.kind == "Cordon"
    assert list(map(world.with_machine_numbers, (*down.details, *down.helps))) == [
        f"{NO_WORK}: n4; 3 went to triage and have not been replaced",
        f"wait: NVLink domain {R1} takes work again once 2 of its unavailable Nodes are cured, "
        "replaced, uncordoned or reserved",
    ]


def test_nodes_that_left_a_rack_in_a_scale_down_do_not_count_as_lost(world: WorldHarness) -> None:
    given_a_rack_that_a_scale_down_left_in_part(world)
    for node in ("n3", "n4", "n5"):
        world.command_node("DrainNode", "train", node)
    world.pass_time(minutes=30)

    # when the advice is followed
    (down,) = [each for each in explained(world, "train").causes if each.kind == "Cordon"]
    check_advice(world.world, Random(0), most=100)
    world.command_node("UncordonNode", "train", "n5")
    world.pass_time(minutes=1)

    assert list(map(world.with_machine_numbers, (*down.details, *down.helps))) == [
        f"{NO_WORK}: n5, n3, n4",
        "'nodepool uncordon n5' opens it to work again",
    ]
    assert cordon_reasons(world) == {"AdminDrain": 2}


def test_the_first_verification_of_a_node_does_not_close_its_rack(world: WorldHarness) -> None:
    # given a rack of which all Nodes but three, which were drained, are verified after their boot
    world.given_cluster(zone=EAST)
    world.given_quota(18, GB200, zone=EAST)
    add(world, {"count": 3, "labels": {DOMAIN: "a"}})
    add(world, {"count": 15, "labels": {DOMAIN: "a"}, "verifySeconds": 3600})
    want(world, 1)
    for node in ("n1", "n2", "n3"):
        world.command_node("DrainNode", "train", node)
    world.pass_time(minutes=2)

    (down,) = [each for each in explained(world, "train").causes if each.kind == "Cordon"]
    check_advice(world.world, Random(0), most=100)

    assert list(map(world.with_machine_numbers, down.helps)) == [
        "'nodepool uncordon n1' opens it to work again"
    ]


def given_a_rack_that_a_scale_down_left_in_part(world: WorldHarness) -> None:
    """A NodePool of one rack has five Nodes left, as the control plane has two of the others."""
    given_racks(world, 1)
    want(world, 1, lifecycle=PREFER_IDLE)
    for node in ("n3", "n4", "n5", "n6", "n7"):
        run_pod(world, node)
    for node in ("n1", "n2"):
        world.command_node("ReserveNode", "train", node, reservedDesired="control-plane")
    want(world, 0, lifecycle=PREFER_IDLE)
    world.pass_time(minutes=1)
    want(world, 1, lifecycle=PREFER_IDLE)
    world.pass_time(minutes=1)
    for node in ("n3", "n4", "n5", "n6", "n7"):
        stop_pod(world, node)


def given_a_rack_with_repaired_machines(
    world: WorldHarness, count: int, block: Callable[[WorldHarness], object]
) -> None:
    """A NodePool of one rack lost machines, which are free again and cannot return to it."""
    machines = [f"n{number + 1}" for number in range(count)]
    given_racks(world, 1)
    break_boot(world, *machines)
    want(world, 1)
    block(world)
    repair(world, *machines)
    world.pass_time(minutes=5)


NO_WORK = f"no work begins on NVLink domain {R1} while more than 2 of its Nodes are unavailable"


@pytest.mark.parametrize("fault", ["hang", "kubelet"])
@pytest.mark.parametrize("is_evicted", [False, True])
def test_a_node_that_falls_silent_in_its_first_verification_is_deleted_at_its_time(
    world: WorldHarness, fault: str, is_evicted: bool
) -> None:
    # given a Node that is being verified, and was never rebooted
    world.given_cluster()
    world.given_quota(2)
    world.given_machines(2, verifySeconds=600)
    world.apply("train", 1, lifecycle={"disableUnhealthyNodeEviction": not is_evicted})
    world.pass_time(minutes=1)

    # when its machine does not answer any more
    world.break_machines("n1", fault=fault)
    world.pass_time(minutes=3)

    # then no reboot is said to follow, and the Node is deleted at the time that is said
    (advice,) = helps(world)[-1]
    assert advice.startswith("wait: n1 does not answer; a machine that does not answer is treated")
    assert "at 20" in advice
    check_advice(world.world, Random(0), most=9)
    world.pass_time(minutes=130)
    assert world.nodes("train") == ["n2"]
