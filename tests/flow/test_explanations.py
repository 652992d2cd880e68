"""Why a NodePool does not have what it wants, from the read model of a whole control plane."""

import json
from datetime import timedelta

import pytest

from flow.test_racks import (
    DOMAIN,
    EAST,
    GB200,
    R1,
    R2,
    R3,
    add,
    break_boot,
    break_node,
    domains,
    given_racks,
    repair,
    want,
)
from nodepool.contract.documents import field
from nodepool.contract.events import NodePoolValidated
from nodepool.explanation.remedies import (
    AddMachines,
    EndWork,
    RebootNode,
    RepairMachines,
    ScalePeer,
    ScaleTo,
    SetLimit,
    StartService,
    UncordonNodes,
    Unreserve,
    Wait,
)
from nodepool.explanation.sentence import Explanation, explain
from support.constants import CLUSTER, H100, INJECTED, ORG, RACK, ZONE
from support.explaining import READ, facts_of
from support.failing import Failing, given_broken, given_failing
from support.harness import Harness
from support.manifests import rack_affinity
from support.paths import machine_path, org_path
from support.services import NAMES
from support.world_harness import WorldHarness

RESERVED = "node.coreweave.cloud/reserved"
GPU_LOST = {"fault": "gpu-lost"}
AWAITED = (
    "wait: 1 spot Node is being preempted for it, which takes at most 7 minutes, and longer with a "
    "wipe"
)


def explained(harness: Harness, pool: str, *, is_now: bool = False) -> Explanation:
    """The explanation of a NodePool from all that the read model has; with the present if asked."""
    now = harness.world.log.clock if is_now and isinstance(harness, WorldHarness) else None
    buckets = {bucket: harness.documents(bucket) for bucket in READ}
    return explain(facts_of(buckets, pool if "/" in pool else f"{ORG}/{CLUSTER}/{pool}", now))


def titles(explanation: Explanation) -> list[str]:
    """The causes in their order."""
    return [cause.title for cause in explanation.causes]


def test_the_quota_that_an_explanation_asks_for_is_enough_and_one_less_is_not(
    harness: Harness,
) -> None:
    # given a NodePool that wants more than is left of the quota
    harness.given_data_center(machines=20, quota=8)
    harness.apply("other", 5)
    harness.apply("train", 6)

    # when its quota is raised to less than what helps, and to that
    before = explained(harness, "train")
    harness.given_quota(10)
    one_less = explained(harness, "train")
    harness.given_quota(11)

    # then only that helps
    assert titles(before) == ["Quota is Over"]
    assert before.causes[0].details == (
        "the quota is 3 Nodes too small",
        "train reserves 0",
        f"other NodePools reserve 5: {CLUSTER}/other 5",
    )
    assert before.causes[0].helps == (
        f"raise the quota of {H100} in {ZONE} to 11",
        "scale train to 3, which fits",
        f"scale {CLUSTER}/other down to 2",
    )
    assert one_less.causes[0].helps[0] == f"raise the quota of {H100} in {ZONE} to 11"
    assert titles(explained(harness, "train")) == []


def test_the_target_that_an_explanation_offers_fits(world: WorldHarness) -> None:
    world.given_data_center(machines=20, quota=8)
    world.apply("other", 5)
    world.apply("train", 6)
    assert "scale train to 3, which fits" in explained(world, "train").causes[0].helps

    world.scale("train", 3)

    assert titles(explained(world, "train")) == []


def test_the_machines_that_an_explanation_asks_for_are_enough(harness: Harness) -> None:
    harness.given_data_center(machines=5)
    harness.apply("other", 3)
    harness.apply("train", 6)
    before = explained(harness, "train")

    harness.given_machines(4)

    assert titles(before) == ["Capacity is NoneAvailable"]
    assert before.causes[0].details == (
        "train has position 1 of what waits: it is served next",
        f"of {H100} in {ZONE} 0 are free, 5 are assigned and 0 are out of service",
        f"other NodePools hold 3: {CLUSTER}/other 3",
    )
    assert before.causes[0].helps[0] == "add 4 machines of the type to the zone"
    assert titles(explained(harness, "train")) == []


def test_machines_are_asked_for_in_a_zone_that_never_had_one_of_the_type(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=0)
    world.apply("train", 2)

    (capacity,) = explained(world, "train").causes
    world.given_machines(2)

    assert capacity.helps == ("add 2 machines of the type to the zone",)
    assert titles(explained(world, "train")) == []


def test_who_waits_for_spot_nodes_is_asked_for_no_machines(world: WorldHarness) -> None:
    # given a NodePool for which one spot Node leaves, and one for which that is not enough
    world.given_data_center(machines=2)
    world.apply("cheap", 2, computeClass="spot")
    world.apply("train", 1)
    enough = explained(world, "train")
    world.apply("more", 2)

    assert enough.causes[0].helps == (AWAITED,)
    assert explained(world, "more").causes[0].helps == (
        AWAITED,
        "add 1 machine of the type to the zone",
    )


def test_an_operator_who_reclaims_machines_is_served_before_the_first_that_waits(
    world: WorldHarness,
) -> None:
    # given a NodePool that waits, while an operator reclaims machines at work
    world.given_data_center(machines=2)
    world.apply("cheap", 2, computeClass="spot")
    world.run_pod("n1")
    world.run_pod("n2")

    world.reclaim(2)
    world.apply("more", 1)
    world.pass_time(minutes=1)

    assert explained(world, "more").causes[0].details[:3] == (
        "more has position 1 of what waits, after an operator who reclaims machines",
        f"of {H100} in {ZONE} 0 are free, 2 are assigned and 0 are out of service",
        "the next 2 that become free go to an operator who reclaims them",
    )


def test_a_machine_that_a_technician_debugs_is_out_of_service_and_not_in_triage(
    world: WorldHarness,
) -> None:
    world.given_cluster()
    world.given_quota(1)
    world.given_machines(1, repairSeconds=3600)
    world.apply("train", 1, lifecycle={"disableUnhealthyNodeEviction": False})

    world.break_machines("n1", fault="gpu-lost")
    world.pass_time(minutes=40)

    cause, name = explained(world, "train").causes[0], world.machine_name("n1")
    (machine,) = world.documents("machines").values()
    assert field(machine, "status", "state") == "Debug"
    assert cause.details[1:] == (
        f"of {H100} in {ZONE} 0 are free, 0 are assigned and 1 is out of service",
        f"machine {name} is out of service: Node {name} is deleted: GPUMissing",
    )
    assert cause.helps[0] == "repair 1 of 1 machine out of service"


def test_a_machine_is_asked_for_in_place_of_a_spot_node_that_gives_way(
    world: WorldHarness,
) -> None:
    # given a NodePool that lacks a Node and loses another one to a NodePool before it
    world.given_data_center(machines=3)
    world.apply("cheap", 4, computeClass="spot")
    world.apply("train", 1)

    # when as many machines are added as are advised, less one, and then that one
    helps = explained(world, "cheap").causes[0].helps
    world.given_machines(1)
    one_less = explained(world, "cheap")
    world.given_machines(1)
    world.pass_time(minutes=8)

    # then these are enough, also after the Node has given way
    assert helps[0] == (
        "add 2 machines of the type to the zone, up to 1 of them for what is served before it"
    )
    assert one_less.causes[0].helps[0] == "add 1 machine of the type to the zone"
    assert titles(explained(world, "cheap")) == []
    assert world.node_counts("cheap").current == 4


@pytest.mark.parametrize("compute_class", ["default", "spot"])
@pytest.mark.parametrize("fault", ["gpu-lost", "hang"])
def test_a_machine_is_asked_for_in_place_of_a_node_that_leaves_for_triage(
    world: WorldHarness, compute_class: str, fault: str
) -> None:
    # given a NodePool that lacks a Node, and another Node of it that is about to be replaced
    world.given_data_center(machines=3)
    world.apply(
        "train", 4, lifecycle={"disableUnhealthyNodeEviction": False}, computeClass=compute_class
    )
    world.run_pod("n1", interruption="graceful", graceS=600)
    world.break_machines("n1", fault=fault)
    world.pass_time(minutes=8)

    # when as many machines are added as are advised, less one, and then that one
    helps = explained(world, "train").causes[0].helps
    world.given_machines(1)
    world.pass_time(minutes=40)
    one_less = titles(explained(world, "train"))
    world.given_machines(1)

    # then these are enough, also after the Node has left
    assert helps == ("add 2 machines of the type to the zone", "scale train to 2, what it keeps")
    assert one_less == ["Capacity is NoneAvailable"]
    assert titles(explained(world, "train")) == []
    assert world.node_counts("train").current == 4


def test_the_loss_of_an_unhealthy_node_waits_behind_what_waits_already(
    world: WorldHarness,
) -> None:
    # given a NodePool that lacks a Node and loses another one to triage, and a NodePool behind it
    world.given_data_center(machines=3)
    world.apply("train", 4, lifecycle={"disableUnhealthyNodeEviction": False})
    world.apply("later", 2)
    world.run_pod("n1", interruption="graceful", graceS=600)
    world.break_machines("n1", fault="gpu-lost")
    world.pass_time(minutes=3)

    # when as many machines are added as are advised
    helps = explained(world, "train").causes[0].helps
    world.given_machines(4)
    world.pass_time(minutes=20)

    # then it has all Nodes after the other NodePool has all
    assert helps[0] == (
        "add 4 machines of the type to the zone, up to 2 of them for what is served before it"
    )
    assert [world.node_counts(pool).current for pool in ("train", "later")] == [4, 2]


@pytest.mark.parametrize("priority", [0, 5], ids=["equal", "higher"])
def test_the_loss_of_a_nodepool_may_come_before_that_of_one_that_waits(
    world: WorldHarness, priority: int
) -> None:
    # given a spot NodePool with all its Nodes and one at work that lacks two; each loses a Node
    world.given_data_center(machines=3, quota=9)
    world.given_cluster("west", "umbrella")
    world.given_quota(9, org="umbrella")
    world.apply("first", 2, computeClass="spot", schedulingPriority={"value": priority})
    world.apply("second", 3, computeClass="spot")
    world.pass_time(minutes=1)
    for node in ("n1", "n3"):
        world.run_pod(node)
    world.apply("umbrella/west/train", 2)
    world.pass_time(seconds=1)

    # when as many machines are added as are advised, less one, and then that one
    helps = explained(world, "second").causes[0].helps
    world.given_machines(3)
    world.pass_time(minutes=10)
    one_less = titles(explained(world, "second"))
    world.given_machines(1)

    # then these are enough, also for the Node that the other NodePool takes first
    assert helps[0] == (
        "add 4 machines of the type to the zone, up to 2 of them for what is served before it"
    )
    assert one_less == ["Capacity is NoneAvailable"]
    assert titles(explained(world, "second")) == []


def test_a_nodepool_that_gets_all_at_once_waits_for_no_loss_of_another(
    world: WorldHarness,
) -> None:
    # given a NodePool that loses a Node to triage, and one with a lower priority that waits
    world.given_data_center(machines=2)
    evicted = {"disableUnhealthyNodeEviction": False}
    world.apply("first", 2, lifecycle=evicted, schedulingPriority={"value": 5})
    world.apply("second", 1)
    world.run_pod("n1", interruption="graceful", graceS=600)
    world.break_machines("n1", fault="gpu-lost")
    world.pass_time(minutes=3)

    # when as many machines are added as are advised
    helps = explained(world, "second").causes[0].helps
    world.given_machines(1)
    world.pass_time(minutes=20)

    # then it has its Node, and the other NodePool waits for the machine that it lost
    assert helps == ("add 1 machine of the type to the zone",)
    assert [world.node_counts(pool).current for pool in ("first", "second")] == [1, 1]


@pytest.mark.parametrize(
    ("broken", "advised"),
    [
        ("n5", [f"add 2 machines of NVLink domain {R1} to the zone: no other completes its rack"]),
        (
            "n25",
            [
                f"repair machine n25 of NVLink domain {R2}",
                f"add 1 machine of NVLink domain {R1} to the zone: no other completes its rack "
                "once its unhealthy Nodes are gone",
            ],
        ),
    ],
    ids=["in the same rack", "in another rack"],
)
def test_a_rack_is_to_be_completed_also_for_a_node_that_leaves_for_triage(
    world: WorldHarness, broken: str, advised: list[str]
) -> None:
    # given a NodePool in racks that lacks a Node, and another Node that is about to be replaced
    given_racks(world, 2)
    want(world, 2, lifecycle={"disableUnhealthyNodeEviction": False})
    world.pass_time(minutes=1)
    break_node(world, broken, "gpu-lost")
    world.pass_time(minutes=5)
    pod = {"name": "job", "interruption": "graceful", "graceS": 900}
    world.send("RunPod", machine_path(f"{EAST}/{world.machine_name('n1')}"), {"pod": pod})
    break_node(world, "n1", "gpu-lost")
    world.pass_time(minutes=3)

    # when the advice is followed
    helps = explained(world, "train").causes[0].helps
    if broken == "n25":
        repair(world, "n25")
    add(world, {"count": 3 - len(advised), "labels": {DOMAIN: R1}})
    world.pass_time(minutes=30)

    # then all racks are whole after the Node has left
    assert [world.with_machine_numbers(each) for each in helps] == advised
    assert domains(world) == {R1: 18, R2: 18}


@pytest.mark.parametrize("labels", [{}, {DOMAIN: "X"}], ids=["without", "in one"])
def test_a_rack_is_to_be_completed_after_another_one_of_its_nvlink_domain(
    world: WorldHarness, labels: dict[str, str]
) -> None:
    # given two NodePools with Nodes of one domain, of which the second lost two Nodes first
    given_two_racks_of_one_domain(world, labels)

    # when the advice is followed
    (remedy,) = explained(world, "train").causes[0].remedies
    repair(world, "n1", "n2", "n19", "n20")
    world.pass_time(minutes=30)

    # then the machines are enough for both
    of = "NVLink domain X" if labels else "no NVLink domain"
    assert world.with_machine_numbers(remedy.text) == (
        f"repair machines n19, n1, n20, n2 of {of}, up to 2 of them for what is served before it"
    )
    assert isinstance(remedy.action, RepairMachines)
    assert remedy.action.count == 4
    assert explained(world, "train").causes == ()


def given_two_racks_of_one_domain(world: WorldHarness, labels: dict[str, str]) -> None:
    """Two NodePools lack two Nodes each of a domain; `train`, the first, is served last."""
    given_racks(world, 0)
    add(world, {"count": 36, "labels": labels})
    for pool in ("train", "other"):
        want(world, 1, pool, lifecycle={"disableUnhealthyNodeEviction": False})
        world.pass_time(minutes=5)
    for nodes in (("n19", "n20"), ("n1", "n2")):
        for node in nodes:
            break_node(world, node, "gpu-lost")
        world.pass_time(minutes=5)


def test_no_machine_is_asked_for_in_place_of_a_node_that_pods_keep(world: WorldHarness) -> None:
    # given a NodePool that lacks a Node, and an unhealthy Node with a Pod that blocks its drain
    world.given_data_center(machines=3)
    world.apply("train", 4, lifecycle={"disableUnhealthyNodeEviction": False})
    world.run_pod("n1", "work")
    world.break_machines("n1", fault="gpu-lost")
    world.pass_time(minutes=3)

    # when the Pod ends, and the Node leaves
    blocked = explained(world, "train").causes[0].helps[0]
    world.stop_pod("n1", "work")
    world.pass_time(minutes=1)

    # then a machine is asked for in its place from then on
    assert blocked == "add 1 machine of the type to the zone"
    assert explained(world, "train").causes[0].helps[0] == "add 2 machines of the type to the zone"


def test_a_machine_is_asked_for_in_place_of_a_spot_node_that_breaks_as_it_gives_way(
    world: WorldHarness,
) -> None:
    # given a spot NodePool that lacks a Node, and another Node that breaks while it is preempted
    world.given_data_center(machines=3)
    world.apply("cheap", 4, computeClass="spot")
    world.pass_time(minutes=1)
    world.apply("train", 1)
    world.pass_time(seconds=5)
    world.break_machines("n1", fault="gpu-lost")
    world.pass_time(minutes=1)

    # when as many machines are added as are advised, less one, and then that one
    helps = explained(world, "cheap").causes[0].helps
    world.given_machines(2)
    world.pass_time(minutes=10)
    one_less = titles(explained(world, "cheap"))
    world.given_machines(1)

    # then these are enough, also after both Nodes have left
    assert helps[0] == (
        "add 3 machines of the type to the zone, up to 2 of them for what is served before it"
    )
    assert one_less == ["Capacity is NoneAvailable"]
    assert titles(explained(world, "cheap")) == []


@pytest.mark.parametrize("rack", ["r1", "r2"])
def test_a_machine_is_asked_for_where_an_operator_leaves_one_that_does_not_fit(
    world: WorldHarness, rack: str
) -> None:
    # given a spot Node that gives way to an operator, and a NodePool with a node affinity
    world.given_cluster()
    world.given_quota(20)
    for each in ("r1", "r2"):
        world.given_machines(1, labels={RACK: each})
    world.apply("other", 1, affinity=rack_affinity("r2"))
    world.apply("cheap", 1, computeClass="spot")
    world.pass_time(minutes=1)
    world.reclaim(1)
    world.apply("train", 1, affinity=rack_affinity(rack))

    # when as many machines are added as are advised
    helps = explained(world, "train").causes[0].helps
    count = {"r1": 1, "r2": 2}[rack]
    world.given_machines(count, labels={RACK: rack})
    world.pass_time(minutes=8)

    # then the operator takes the first of them, and leaves the machine of the spot Node
    text = {
        "r1": "add 1 machine that satisfies the node affinity to the zone",
        "r2": "add 2 machines that satisfy the node affinity to the zone, up to 1 of them for what "
        "is served before it",
    }
    assert helps == (text[rack],)
    assert world.node_counts("train").current == 1


def test_the_machine_of_a_spot_node_that_gives_way_to_nobody_is_not_asked_for(
    world: WorldHarness,
) -> None:
    # given a spot NodePool that lacks two Nodes, and a preemption that nobody needs any more
    world.given_data_center(machines=3)
    world.apply("cheap", 3, computeClass="spot")
    world.pass_time(minutes=1)
    world.apply("first", 2, computeClass="spot", schedulingPriority={"value": 5})
    world.apply("train", 1)
    world.pass_time(seconds=20)
    world.scale("train", 0)

    # when as many machines are added as are advised
    helps = explained(world, "first").causes[0].helps
    world.given_machines(1)
    world.pass_time(minutes=8)

    # then it has all Nodes
    assert helps[0] == "add 1 machine of the type to the zone"
    assert world.node_counts("first").current == 2


def test_no_machine_is_asked_for_that_an_operator_gets_of_a_spot_node(world: WorldHarness) -> None:
    # given a spot Node that gives way to an operator, and a NodePool that waits
    world.given_data_center(machines=3)
    world.apply("cheap", 1, computeClass="spot")
    world.apply("train", 2)
    world.reclaim(1)
    world.apply("more", 1)

    # when as many machines are added as are advised
    helps = explained(world, "more").causes[0].helps
    world.given_machines(1)
    world.pass_time(minutes=8)

    assert helps == (
        "return 1 of 1 reclaimed machine",
        "add 1 machine of the type to the zone",
    )
    assert world.node_counts("more").current == 1


def test_only_held_back_machines_in_service_are_to_be_returned(world: WorldHarness) -> None:
    # given two machines that are held back, of which one goes out of service
    world.given_data_center(machines=2)
    world.reclaim(2)
    world.take_out("n1", "it is in maintenance: new fan")
    world.apply("train", 2)

    # when a NodePool wants as many, and then one
    (both,) = explained(world, "train").causes
    world.scale("train", 1)
    (one,) = explained(world, "train").causes
    world.give_back(1)

    # then the return of one helps
    assert "2 more are reclaimed by an operator, 1 of them out of service" in both.details
    assert both.helps == ("add 2 machines of the type to the zone",)
    assert one.helps[0] == "return 1 of 2 reclaimed machines"
    assert world.node_counts("train").current == 1


def test_a_node_that_an_operator_gets_is_lost_behind_what_waits_already(
    world: WorldHarness,
) -> None:
    # given a spot NodePool that lacks a Node and loses one to an operator, and one behind it
    world.given_data_center(machines=2)
    world.apply("cheap", 2, computeClass="spot")
    world.reclaim(1)
    world.apply("cheap", 3, computeClass="spot")
    world.apply("later", 1, computeClass="spot")

    # when as many machines are added as are advised
    helps = explained(world, "cheap").causes[0].helps
    world.given_machines(3)
    world.pass_time(minutes=8)

    assert helps[0] == (
        "add 3 machines of the type to the zone, up to 2 of them for what is served before it"
    )
    assert [world.node_counts(pool).current for pool in ("cheap", "later")] == [3, 1]


@pytest.mark.parametrize("later", [1, 3], ids=["one Node", "more Nodes than it loses"])
def test_the_loss_of_a_node_waits_behind_what_waits_already(
    world: WorldHarness, later: int
) -> None:
    # given a spot NodePool that lacks a Node and loses another one, and a NodePool behind it
    world.given_data_center(machines=1)
    for pool, target in (("cheap", 2), ("later", later)):
        world.apply(pool, target, computeClass="spot")
        world.pass_time(minutes=1)
    world.apply("train", 1)

    # when as many machines are added as are advised
    (capacity,) = (each for each in explained(world, "cheap").causes if each.kind == "Capacity")
    world.given_machines(later + 2)
    world.pass_time(minutes=10)

    # then it has all Nodes when the other NodePool has taken the machine of its lost Node
    assert capacity.helps[0] == (
        f"add {later + 2} machines of the type to the zone, "
        f"up to {later + 1} of them for what is served before it"
    )
    assert [world.node_counts(pool).current for pool in ("cheap", "later", "train")] == [
        2,
        later,
        1,
    ]


def test_the_machine_of_a_node_that_is_preempted_by_command_is_awaited(
    world: WorldHarness,
) -> None:
    # given a spot Node that a command preempts for nobody
    world.given_data_center(machines=1)
    world.apply("cheap", 1, computeClass="spot")
    world.pass_time(minutes=1)
    world.preempt("cheap", "n1")

    # when a NodePool that is served before it waits
    world.apply("train", 1)
    helps = explained(world, "train").causes[0].helps
    world.pass_time(minutes=8)

    # then it gets the machine of that Node
    assert helps == (AWAITED,)
    assert world.node_counts("train").current == 1


def test_the_loss_of_a_node_that_is_preempted_by_command_waits_behind_what_waits_already(
    world: WorldHarness,
) -> None:
    # given a spot NodePool that lacks a Node and loses one by command, and a NodePool behind it
    world.given_data_center(machines=2)
    world.apply("cheap", 3, computeClass="spot")
    world.pass_time(minutes=1)
    world.apply("later", 1, computeClass="spot")
    world.preempt("cheap", "n1")

    # when as many machines are added as are advised
    helps = explained(world, "cheap").causes[0].helps
    world.given_machines(2)
    world.pass_time(minutes=8)

    # then it has all Nodes, and the machine of the lost Node went to the NodePool behind it
    assert helps[0] == (
        "add 2 machines of the type to the zone, up to 1 of them for what is served before it"
    )
    assert [world.node_counts(pool).current for pool in ("cheap", "later")] == [3, 1]


def test_the_loss_of_a_node_comes_after_machines_that_come_for_nobody(
    world: WorldHarness,
) -> None:
    # given a spot NodePool that lacks a Node, one behind it, and one that loses a Node by command
    world.given_data_center(machines=3)
    world.apply("other", 1, computeClass="spot")
    world.pass_time(minutes=1)
    world.apply("cheap", 3, computeClass="spot")
    world.pass_time(minutes=1)
    world.apply("later", 1, computeClass="spot")
    world.preempt("other", "n1")

    # and it loses one by command a little later
    world.pass_time(minutes=1)
    world.preempt("cheap", "n2")

    # when as many machines are added as are advised
    helps = explained(world, "cheap").causes[0].helps
    world.given_machines(2)
    world.pass_time(minutes=8)

    # then it has all Nodes, though the machine that came first had filled it before its loss
    assert helps[0] == (
        "add 2 machines of the type to the zone, up to 1 of them for what is served before it"
    )
    assert [world.node_counts(pool).current for pool in ("other", "cheap", "later")] == [1, 3, 1]


def test_the_loss_of_a_node_comes_after_that_of_another_nodepool_at_the_same_time(
    world: WorldHarness,
) -> None:
    # given a spot NodePool at work that lacks a Node, and one with an idle Node
    world.given_data_center(machines=2)
    for pool in ("cheap", "idle"):
        world.apply(pool, 1, computeClass="spot")
        world.pass_time(minutes=1)
    world.run_pod("n1")
    world.scale("cheap", 2)

    # when both lose a Node, and as many machines are added as are advised
    world.apply("train", 2)
    (capacity,) = (each for each in explained(world, "cheap").causes if each.kind == "Capacity")
    world.given_machines(3)
    world.pass_time(minutes=8)

    # then it has all Nodes, though the idle Node has left first, and waits before its lost Node
    assert capacity.helps[0] == (
        "add 3 machines of the type to the zone, up to 2 of them for what is served before it"
    )
    counts = [world.node_counts(pool).current for pool in ("cheap", "idle", "train")]
    assert counts == [2, 1, 2]


def test_a_lower_target_gives_back_enough_for_what_the_autoscaler_takes_first(
    world: WorldHarness,
) -> None:
    # given a NodePool that waits for quota, and another whose autoscaler needs two more Nodes
    world.given_data_center(machines=20, quota=10)
    world.apply("other", 8)
    world.apply("auto", 2, autoscaling=True, minNodes=0, maxNodes=4)
    for number in range(4):
        world.create_pod("auto", f"pod-{number}", gpus=8)
    world.pass_time(seconds=10)
    for node in range(1, 9):
        world.run_pod(f"n{node}", "work")
    world.apply("train", 3)

    # when the advice to lower the target is followed, and Nodes leave one after another
    advised = explained(world, "train").causes[0].remedies[-1]
    world.scale("other", 3)
    for node in range(1, 9):
        world.stop_pod(f"n{node}", "work")
        world.pass_time(seconds=10)

    # then that was enough for the Nodes of both
    assert advised.action == ScalePeer(f"{CLUSTER}/other", 3, waits=True)
    assert world.node_counts("auto").current == 4
    assert titles(explained(world, "train")) == []


def test_quota_without_room_for_the_autoscaler_is_named(world: WorldHarness) -> None:
    # given an autoscaled NodePool that has all Nodes of its quota
    world.given_data_center(machines=5, quota=2)
    world.apply("train", 2, autoscaling=True, minNodes=0, maxNodes=4)

    # when Pods wait for more Nodes
    for number in range(4):
        world.create_pod("train", f"pod-{number}", gpus=8)
    world.pass_time(seconds=10)

    # then the explanation says why the autoscaler raises no target, until there is room
    assert explained(world, "train").sentence.endswith(
        "and has them; nothing blocks it; quota 2 has no room for a higher target, which the"
        " autoscaler may raise up to 4."
    )
    world.given_quota(3)
    world.pass_time(seconds=10)
    assert world.node_counts("train").current == 3
    world.given_quota(9)
    world.pass_time(seconds=10)
    assert explained(world, "train").sentence.endswith("and has them; nothing blocks it.")


def test_a_quota_that_was_never_set_is_named(world: WorldHarness) -> None:
    world.given_cluster()
    world.given_machines(2)

    world.apply("train", 2)

    assert explained(world, "train").causes[0].helps == (f"set the quota of {H100} in {ZONE} to 2",)


@pytest.mark.parametrize(("most", "wanted"), [(1, "1 Node"), (3, "3 Nodes")])
def test_a_quota_that_was_never_set_is_asked_for_with_room_for_the_autoscaler(
    world: WorldHarness, most: int, wanted: str
) -> None:
    # given an autoscaled NodePool without Nodes, for which a Pod waits
    world.given_cluster()
    world.given_machines(4)
    world.apply("train", 0, autoscaling=True, minNodes=0, maxNodes=most)
    world.create_pod("train", gpus=8)
    world.pass_time(minutes=1)

    # when the advice is followed
    (remedy,) = explained(world, "train").causes[0].remedies
    world.given_quota(1)
    world.pass_time(minutes=1)

    assert remedy.action == SetLimit(1)
    assert remedy.text == (
        f"set the quota of {H100} in {ZONE} to 1, or more: its autoscaler may want up to {wanted}"
    )
    assert world.node_counts("train").current == 1


def test_without_a_limit_a_nodepool_lacks_no_quota_up_to_its_grant(world: WorldHarness) -> None:
    # given a NodePool with all its Nodes, whose limit is deleted
    world.given_data_center(machines=3)
    world.apply("train", 3, lifecycle={"disableUnhealthyNodeEviction": False})
    world.send("DeleteQuota", org_path(ORG), {"zone": ZONE, "instanceType": H100})
    at_target = titles(explained(world, "train"))

    # when it loses a Node, gets another Node, and shrinks
    world.break_machines("n1", fault="gpu-lost")
    world.pass_time(minutes=3)
    lost, message = titles(explained(world, "train")), world.condition("train", "AtTarget")
    world.given_machines(1, boot_s=600)
    booting = titles(explained(world, "train"))
    world.pass_time(minutes=11)
    for node in ("n2", "n3", "n4"):
        world.run_pod(node)
    world.scale("train", 2)
    shrinking = titles(explained(world, "train"))
    world.stop_pod("n2")

    # then only a target above its Nodes asks for quota
    assert [at_target, lost, booting] == [[], ["Capacity is NoneAvailable"], ["1 is in progress"]]
    assert message == (
        "False UnderTarget: NodePool has 2 of 3 Nodes; Capacity is NoneAvailable: "
        f"none of 1 wanted Nodes of {H100} can be had in {ZONE} now."
    )
    assert shrinking == ["it has 1 Node too many"]
    assert titles(explained(world, "train")) == []
    world.scale("train", 3)
    assert titles(explained(world, "train")) == ["Quota is NotSet"]


def test_a_lack_of_a_limit_keeps_no_lost_node_from_a_nodepool(world: WorldHarness) -> None:
    # given a NodePool whose limit falls below its grant, and that loses a Node
    world.given_data_center(machines=4)
    world.apply("train", 4, lifecycle={"disableUnhealthyNodeEviction": False})
    world.given_quota(0)
    world.break_machines("n1", fault="gpu-lost")
    world.pass_time(minutes=3)

    # when its limit is deleted, and then a machine comes
    world.send("DeleteQuota", org_path(ORG), {"zone": ZONE, "instanceType": H100})
    quota, message = (world.condition("train", kind) for kind in ("Quota", "AtTarget"))
    unset = titles(explained(world, "train"))
    world.given_machines(1)

    # then only the machine was missing, though no quota is set
    assert quota == f"False NotSet: no quota is set for {H100} in {ZONE}, and targetNodes is 4"
    assert unset == ["Capacity is NoneAvailable"]
    assert message == (
        "False UnderTarget: NodePool has 3 of 4 Nodes; Capacity is NoneAvailable: "
        f"none of 1 wanted Nodes of {H100} can be had in {ZONE} now."
    )
    assert world.node_counts("train").current == 4


def test_a_nodepool_below_its_grant_waits_for_no_quota_of_others(world: WorldHarness) -> None:
    # given a NodePool that has no limit, and lacks a Node that is granted
    world.given_data_center(machines=5)
    world.apply("train", 4, lifecycle={"disableUnhealthyNodeEviction": False})
    world.apply("other", 1)
    world.given_quota(0)
    world.break_machines("n1", fault="gpu-lost")
    world.pass_time(minutes=3)
    world.send("DeleteQuota", org_path(ORG), {"zone": ZONE, "instanceType": H100})

    # when another NodePool wants more
    world.scale("other", 2)

    assert world.conditions("train")["Quota"] == "NotSet"
    assert explained(world, "other").causes[0].details == (
        "the quota is 6 Nodes too small",
        "other reserves 1",
        f"other NodePools reserve 4: {CLUSTER}/train 4",
    )


def test_a_nodepool_that_shrinks_without_a_limit_waits_for_no_quota(world: WorldHarness) -> None:
    # given a NodePool that waits for quota, and another NodePool with too many Nodes
    world.given_data_center(machines=3)
    world.apply("train", 2)
    world.run_pod("n1")
    world.run_pod("n2")
    world.send("DeleteQuota", org_path(ORG), {"zone": ZONE, "instanceType": H100})
    world.scale("train", 1)
    world.apply("other", 1)

    assert explained(world, "other").causes[0].details == (
        "the quota is 3 Nodes too small",
        "other reserves 0",
        f"other NodePools reserve 2: {CLUSTER}/train 2",
    )


def test_quota_that_a_nodepool_has_given_up_itself_is_nobody_elses(world: WorldHarness) -> None:
    # given a NodePool that lacks machines, whose limit falls to what it has without the allocator
    world.given_data_center(machines=3)
    world.apply("train", 5)
    with world.paused("allocator"):
        world.given_quota(3)
        cause = explained(world, "train").causes[0]

        # when the limit is raised as is advised
        world.given_quota(5)

    assert cause.details == ("the quota is 2 Nodes too small", "train reserves 3")
    assert [remedy.action for remedy in cause.remedies] == [Wait(), SetLimit(5), ScaleTo(3)]
    assert world.conditions("train")["Quota"] == "Under"


def test_no_higher_limit_is_asked_for_where_quota_that_is_given_up_is_enough(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=9, quota=4)
    world.apply("old", 4)
    world.apply("train", 3)
    with world.paused("quota"):
        world.delete("old")
        (cause,) = explained(world, "train").causes

    assert cause.details == ("train reserves 0",)
    assert [remedy.action for remedy in cause.remedies] == [Wait()]


def test_a_cause_is_not_older_than_its_reason(world: WorldHarness) -> None:
    # given a NodePool that had no quota for an hour, and has too little now
    world.given_cluster()
    world.given_machines(4)
    world.apply("train", 3)
    world.pass_time(minutes=60)

    world.given_quota(2)

    # then the time is that of the status, which the reason has not changed
    explanation = explained(world, "train")
    assert "; Quota is Over, False since 2026-01-01T00:00:00Z: targetNodes 3" in (
        explanation.sentence
    )
    assert titles(explanation) == ["Quota is Over"]


def test_an_invalid_nodepool_has_no_other_cause(world: WorldHarness) -> None:
    world.given_data_center()

    world.apply("train", 2, "gd-8xh100")

    explanation = explained(world, "train")
    assert titles(explanation) == ["Validated is Invalid"]
    assert explanation.causes[0].helps == (
        "delete train and create it again with another instanceType:"
        " instanceType cannot be changed",
    )


@pytest.mark.parametrize(("machines", "quota"), [(2, 10), (8, 3)])
def test_a_nodepool_that_could_not_be_validated_again_has_no_older_cause(
    world: WorldHarness, monkeypatch: pytest.MonkeyPatch, machines: int, quota: int
) -> None:
    # given a NodePool that lacks machines, or quota, and is then unchanged but for its metadata
    world.given_data_center(machines, quota=quota)
    world.apply("train", 4)
    monkeypatch.setattr("validator.objects.verdict", None)
    world.apply("train", 4, metadata={"labels": {"team": "red"}})

    # when what it lacked comes while the validator still fails
    world.given_machines(2)
    world.given_quota(20)
    world.pass_time(minutes=30)

    # then its older verdicts are no causes, since nothing is checked before its spec
    explanation = explained(world, "train", is_now=True)
    assert titles(explanation) == ["Validated is InternalError"]
    current = world.node_counts("train").current
    assert world.condition("train", "AtTarget") == (
        f"False UnderTarget: NodePool has {current} of 4 Nodes; {explanation.causes[0].clause}."
    )


def test_nodes_that_boot_are_named_until_they_have_joined(world: WorldHarness) -> None:
    world.given_data_center(boot_s=60)
    world.apply("train", 2)

    booting = explained(world, "train")
    world.pass_time(seconds=60)

    assert titles(booting) == ["2 are in progress"]
    assert booting.causes[0].since is not None
    assert titles(explained(world, "train")) == []


def test_nodes_that_never_join_name_the_service_that_would_replace_them(
    world: WorldHarness,
) -> None:
    world.given_data_center()
    with world.paused("lifecycle"):
        world.apply("train", 2)
        world.pass_time(minutes=30)
        in_time = explained(world, "train", is_now=True)
        world.pass_time(minutes=1)
        late = explained(world, "train", is_now=True)

    assert in_time.causes[0].helps == ("wait until they join the cluster",)
    assert titles(late) == ["2 are in progress"]
    assert [remedy.action for remedy in late.causes[0].remedies] == [StartService("lifecycle")]


def test_a_removal_that_waits_names_the_pods_as_the_condition_does(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1, lifecycle={"scaleDownStrategy": "PreferIdle"})
    world.run_pod("n1", "job")
    world.scale("train", 0)

    cause = explained(world, "train").causes[0]
    condition = world.condition("train", "AtTarget")

    assert cause.title == "it has 1 Node too many"
    assert cause.helps == (
        f"end the Pods that block on {world.machine_name('n1')}",
        "scale train to 1, what it has",
    )
    assert cause.message.startswith("waits for ")
    assert condition.endswith(f"; {world.with_machine_numbers(cause.message)}.")


def test_a_surplus_waits_for_no_node_of_the_control_plane(world: WorldHarness) -> None:
    # given a NodePool with two active Nodes, and an idle Node that the control plane has
    world.given_data_center()
    world.apply("train", 2)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    world.run_pod("n2")
    world.run_pod("n3")
    world.scale("train", 1)

    # when the control plane uses its Node
    idle = explained(world, "train").causes[0]
    world.run_pod("n1", "system", tolerations=[{"key": RESERVED, "operator": "Exists"}])
    used = explained(world, "train").causes[0]

    # then neither the explanation nor the condition waits for that Node
    names = tuple(world.machine_name(node) for node in ("n2", "n3"))
    assert idle.remedies[0].action == EndWork(names, 1)
    assert used == idle
    assert world.machine_name("n1") not in used.message
    condition = world.condition("train", "AtTarget")
    assert condition.endswith(f"; {world.with_machine_numbers(used.message)}.")


def test_a_node_of_the_control_plane_that_leaves_is_no_part_of_what_a_nodepool_has(
    world: WorldHarness,
) -> None:
    # given a Node of the control plane that breaks, and leaves once its Pod has ended
    world.given_data_center(quota=2)
    world.apply("train", 2, lifecycle={"disableUnhealthyNodeEviction": False})
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    world.run_pod("n1", "system", tolerations=[{"key": RESERVED, "operator": "Exists"}])
    world.break_machines("n1", fault="gpu-lost")
    world.pass_time(minutes=1)

    # when the NodePool wants more than its quota
    world.scale("train", 3)

    # then it is offered the target that it has
    (quota,) = (cause for cause in explained(world, "train").causes if cause.kind == "Quota")
    assert quota.remedies[1].action == ScaleTo(2)


def test_a_deletion_that_waits_names_the_pods_as_the_condition_does(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1)
    world.run_pod("n1", "job")
    world.delete("train")

    explanation = explained(world, "train")

    assert titles(explanation) == ["it is being deleted"]
    message = world.with_machine_numbers(explanation.causes[0].message)
    assert world.condition("train", "NodesRemoved") == f"False Pending: {message}."
    assert "active since" in message


def test_a_preemption_is_named_with_its_node(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("batch", 1, computeClass="spot")

    world.preempt("batch", "n1")

    causes = explained(world, "batch").causes
    assert [(cause.kind, cause.title) for cause in causes] == [
        ("Preemption", "1 Node is being preempted")
    ]


def test_a_preemption_begins_when_its_node_is_preempted_though_it_was_leaving_before(
    world: WorldHarness,
) -> None:
    # given a spot Node that waits for a Pod to leave
    world.given_data_center()
    world.apply("batch", 1, computeClass="spot", lifecycle={"scaleDownStrategy": "PreferIdle"})
    world.run_pod("n1", graceS=600)
    world.scale("batch", 0)
    world.pass_time(minutes=20)

    # when it is preempted
    began = world.world.log.clock
    world.preempt("batch", "n1")
    world.pass_time(minutes=1)

    # then no service is late
    (preemption,) = explained(world, "batch", is_now=True).causes
    assert preemption.since is not None
    assert abs(preemption.since - began) < timedelta(seconds=1)
    assert preemption.helps == ("wait until it is gone",)


def test_a_preemption_counts_from_its_warning_though_its_node_is_marked_later(
    world: WorldHarness,
) -> None:
    # given an active spot Node that is preempted while the lifecycle service is away
    world.given_data_center()
    world.apply("batch", 1, computeClass="spot")
    world.run_pod("n1", graceS=900)
    began = world.world.log.clock
    with world.paused("lifecycle"):
        world.preempt("batch", "n1")
        world.pass_time(minutes=4)

    # when the lifecycle service has marked it
    (preemption,) = explained(world, "batch", is_now=True).causes

    # then its time counts from the warning
    assert preemption.since is not None
    assert abs(preemption.since - began) < timedelta(seconds=1)


def test_a_node_of_the_control_plane_is_named_while_it_is_rebooted(world: WorldHarness) -> None:
    world.given_data_center(machines=1)
    world.apply("train", 1)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")

    world.command_node("RebootNode", "train", "n1")

    assert "1 Node is reserved for the control plane" in titles(explained(world, "train"))


def test_no_pod_of_a_preempted_node_blocks_a_surplus(world: WorldHarness) -> None:
    # given a spot NodePool with three active Nodes, of which one is being preempted
    world.given_data_center(machines=3)
    world.apply("batch", 3, computeClass="spot")
    for node in ("n1", "n2", "n3"):
        world.run_pod(node)
    world.preempt("batch", "n1")
    refills = explained(world, "batch").causes

    # when another Node is too many as well
    world.scale("batch", 1)
    removal, preemption = explained(world, "batch").causes

    # then that waits for an idle Node, and nothing refills the NodePool
    staying = tuple(world.machine_name(node) for node in ("n2", "n3"))
    assert removal.remedies[0].action == EndWork(staying, 1)
    assert refills[0].helps == ("wait: the NodePool refills by itself when machines are free",)
    assert preemption.helps == ("wait until it is gone",)


def test_an_unhealthy_node_that_waits_to_be_cured_is_named(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1)
    before = explained(world, "train").causes

    world.break_machines("n1", fault="gpu-lost")
    broken = explained(world, "train").causes
    world.command_node("DrainNode", "train", "n1")
    world.pass_time(minutes=1)

    assert [(cause.kind, cause.title) for cause in broken] == [("Health", "1 Node is unhealthy")]
    assert broken[0].message == f"{world.machine_name('n1')}: GPUMissing"
    assert before == explained(world, "train").causes == ()


def test_a_node_that_a_reboot_cures_is_back_in_production_when_the_advice_is_followed(
    world: WorldHarness,
) -> None:
    # given a Node at work with a problem that a reboot cures
    world.given_data_center(machines=2, boot_s=300)
    world.apply("train", 2)
    world.pass_time(minutes=10)
    world.run_pod("n1")
    world.break_machines("n1", fault="xid")
    world.pass_time(minutes=1)

    # when the advice is followed
    (advised,) = explained(world, "train").causes[0].remedies
    world.command_node("RebootNode", "train", "n1", force=True)
    world.pass_time(minutes=2)
    rebooting = explained(world, "train").causes[0]
    world.pass_time(minutes=10)

    # then nothing is advised during the reboot, and nothing keeps the Node back after that
    assert advised.action == RebootNode(world.machine_name("n1"), force=True)
    assert [remedy.action for remedy in rebooting.remedies] == [Wait()]
    assert explained(world, "train").causes == ()


@pytest.mark.parametrize(
    ("earlier", "minutes", "command"),
    [
        ("", 5, "reboot"),  # The reboot was for no problem.
        ("nvlink", 5, "reboot"),  # The reboot was for another problem.
        ("xid", 5, "drain"),
        ("xid", 70, "reboot"),  # An hour later, it is a problem of its own.
    ],
)
def test_a_node_is_rebooted_again_unless_its_problem_came_back_soon(
    world: WorldHarness, earlier: str, minutes: int, command: str
) -> None:
    # given a Node that was rebooted, and has a problem that a reboot cures
    world.given_data_center(machines=3)
    world.apply("train", 2)
    if earlier:
        world.break_machines("n1", fault=earlier)
    world.command_node("RebootNode", "train", "n1")
    world.pass_time(minutes=minutes)
    world.run_pod("n1")
    world.break_machines("n1", fault="xid")
    world.pass_time(minutes=1)

    # when the advice is followed
    help_ = explained(world, "train").causes[0].helps[0]
    name = {"reboot": "RebootNode", "drain": "DrainNode"}[command]
    world.command_node(name, "train", "n1", force=True)
    world.pass_time(minutes=60)

    assert help_.startswith(f"'nodepool {command} {world.machine_name('n1')} --force'")
    assert explained(world, "train").causes == ()


@pytest.mark.parametrize("late", [0, 5])
def test_a_problem_that_begins_with_the_boot_of_a_reboot_has_not_come_back(
    world: WorldHarness, late: int
) -> None:
    # given a Node whose next boot brings a problem that a reboot cures, and that is rebooted
    world.given_machines(2, verifySeconds=60)
    world.given_cluster()
    world.given_quota(10)
    world.apply("train", 1)
    world.pass_time(minutes=5)
    world.break_machines("n1", fault="hang")
    world.break_machines("n1", fault="nvlink")
    world.command_node("RebootNode", "train", "n1", force=True)
    if late:  # The service that ends the reboot hears of the boot and of the problem later.
        with world.paused("lifecycle"):
            world.pass_time(minutes=late)
    world.pass_time(minutes=8)

    # when the advice is followed
    cause = explained(world, "train").causes[0]
    world.command_node("RebootNode", "train", "n1")
    world.pass_time(minutes=60)

    assert cause.remedies[0].action == RebootNode(world.machine_name("n1"))
    assert explained(world, "train").causes == ()


def test_a_node_that_stays_cordoned_after_a_drain_is_named_until_it_is_uncordoned(
    world: WorldHarness,
) -> None:
    # given a healthy Node and a Node that has rebooted since, which commands have drained
    world.given_data_center(machines=2)
    world.apply("train", 2)
    world.break_machines("n1", fault="xid")
    world.command_node("DrainNode", "train", "n1")
    world.command_node("DrainNode", "train", "n2")
    world.pass_time(minutes=60)

    # when the advice is followed
    both = explained(world, "train").causes
    for node in ("n1", "n2"):
        world.command_node("UncordonNode", "train", node)

    assert [(cause.kind, cause.title) for cause in both] == [
        ("Cordon", "2 Nodes are cordoned by command")
    ]
    assert isinstance(both[0].remedies[0].action, UncordonNodes)
    assert explained(world, "train").causes == ()


def test_enough_nodes_of_a_rack_are_to_be_uncordoned_for_work_to_begin_there(
    world: WorldHarness,
) -> None:
    # given a rack of which four Nodes were drained, and no work begins on the others
    given_racks(world, 1)
    want(world, 1)
    for node in ("n1", "n2", "n3", "n4"):
        world.command_node("DrainNode", "train", node)
    world.pass_time(minutes=10)

    # when the advice is followed
    (down,) = explained(world, "train").causes
    names = [world.machine_name("n1"), world.machine_name("n2")]
    for name in names:
        world.command_node("UncordonNode", "train", name)
    world.pass_time(minutes=10)

    # then the rack is open, and a further Node takes work again by itself
    (up,) = explained(world, "train").causes
    shown = world.documents("nodes").values()
    assert list(map(world.with_machine_numbers, down.details)) == [
        f"no work begins on NVLink domain {R1} while more than 2 of its Nodes are unavailable: "
        "n1, n2, n3, n4"
    ]
    assert down.helps == (f"'nodepool uncordon {' '.join(names)}' opens their rack to work again",)
    assert sum(field(each, "spec", "unschedulable") is True for each in shown) == 2
    assert up.details == ()
    assert up.helps == (f"'nodepool uncordon {world.machine_name('n3')}' opens it to work again",)


def test_machines_in_triage_count_where_drained_nodes_of_their_rack_are_to_be_uncordoned(
    world: WorldHarness,
) -> None:
    # given a rack that lost a Node, which quota does not let it replace, and three drained Nodes
    given_racks(world, 1, quota=18)
    want(world, 1, lifecycle={"disableUnhealthyNodeEviction": False})
    world.send("BreakMachine", machine_path(f"{EAST}/{world.machine_name('n1')}"), GPU_LOST)
    world.pass_time(minutes=5)
    world.given_quota(17, GB200, zone=EAST)
    for node in ("n2", "n3", "n4"):
        world.command_node("DrainNode", "train", node)
    world.pass_time(minutes=10)

    # when the advice is followed
    _, cordon = explained(world, "train").causes
    names = tuple(world.machine_name(node) for node in ("n2", "n3"))
    for name in names:
        world.command_node("UncordonNode", "train", name)
    world.pass_time(minutes=10)

    # then work begins on the rack, except for the last drained Node
    assert world.conditions("train")["Capacity"] == "Sufficient"
    assert cordon.remedies[0].action == UncordonNodes(names)
    shown = world.documents("nodes").values()
    assert sum(field(each, "spec", "unschedulable") is True for each in shown) == 1


def test_a_rack_that_is_unavailable_for_other_causes_is_not_to_be_uncordoned(
    world: WorldHarness,
) -> None:
    # given a rack of which three Nodes are unhealthy, and another Node was drained
    given_racks(world, 1)
    want(world, 1)
    for node in ("n1", "n2", "n3"):
        path = machine_path(f"{EAST}/{world.machine_name(node)}")
        world.send("BreakMachine", path, GPU_LOST)
    world.command_node("DrainNode", "train", "n4")
    world.pass_time(minutes=10)

    health, cordon = explained(world, "train").causes

    assert (health.kind, cordon.kind) == ("Health", "Cordon")
    assert cordon.helps == (
        f"wait: NVLink domain {R1} takes work again once 2 of its unavailable Nodes are cured, "
        "replaced, uncordoned or reserved",
    )


def test_no_node_is_to_be_drained_that_its_invalid_nodepool_would_lose(world: WorldHarness) -> None:
    # given an Invalid NodePool with a Node that a reboot cures, and then a Node for a technician
    world.given_data_center(machines=5)
    world.apply("train", 3)
    world.apply("train", 3, region="US-WEST-04")
    world.break_machines("n1", fault="xid")
    world.pass_time(minutes=2)
    curable = explained(world, "train").causes
    world.command_node("RebootNode", "train", "n1")
    world.break_machines("n2", fault="gpu-lost")
    world.pass_time(minutes=60)

    # when the advice is followed
    (_, health) = explained(world, "train").causes
    world.apply("train", 3)
    valid = explained(world, "train").causes[0]
    world.command_node("DrainNode", "train", "n2")
    world.pass_time(minutes=10)

    assert curable[1].remedies[0].action == RebootNode(world.machine_name("n1"))
    assert health.helps == (
        "change the spec as the condition Validated says: until then no Node is replaced",
    )
    assert valid.helps[0].startswith(f"'nodepool drain {world.machine_name('n2')}'")
    assert explained(world, "train").causes == ()


def test_no_work_is_to_end_that_keeps_a_node_which_its_invalid_nodepool_would_lose(
    world: WorldHarness,
) -> None:
    # given a NodePool that evicts unhealthy Nodes, and has one for a technician when it is Invalid
    world.given_data_center(machines=5)
    evicts = {"disableUnhealthyNodeEviction": False}
    world.apply("train", 2, lifecycle=evicts)
    world.run_pod("n1")
    world.pass_time(minutes=1)
    world.apply("train", 2, lifecycle=evicts, region="US-WEST-04")
    world.break_machines("n1", fault="gpu-lost")
    world.pass_time(minutes=10)

    # when the advice is followed
    (_, removal) = explained(world, "train").causes
    world.apply("train", 2, lifecycle=evicts)
    (valid,) = explained(world, "train").causes
    world.stop_pod("n1")
    world.pass_time(minutes=10)

    assert (removal.kind, removal.helps) == (
        "Removal",
        ("change the spec as the condition Validated says: until then no Node is replaced",),
    )
    assert valid.helps == (f"end the Pods that block on {world.machine_name('n1')}",)
    assert explained(world, "train").causes == ()


def test_work_is_to_end_on_a_node_that_is_too_many_and_not_on_one_that_would_be_missed(
    world: WorldHarness,
) -> None:
    # given an Invalid NodePool with a Node at work that is too many, and one for a technician
    world.given_data_center(machines=5)
    spec = {"disableUnhealthyNodeEviction": False, "scaleDownStrategy": "PreferIdle"}
    world.apply("train", 3, lifecycle=spec)
    for name in ("n1", "n2", "n3"):
        world.run_pod(name)
    world.pass_time(minutes=1)
    world.scale("train", 2)
    world.apply("train", 2, lifecycle=spec, region="US-WEST-04")
    world.break_machines("n2", fault="gpu-lost")
    world.pass_time(minutes=10)

    # when the first advice is followed
    (_, removal) = explained(world, "train").causes
    world.stop_pod("n1")
    world.pass_time(minutes=10)

    # then the other advice is left, and the Node that would be missed is still there
    first, kept = removal.helps
    assert first == f"end the Pods that block on {world.machine_name('n1')}"
    assert kept == (
        "change the spec as the condition Validated says: until then no Node is replaced"
    )
    assert explained(world, "train").causes[1].helps == (kept,)
    assert len(world.nodes("train")) == 2


def test_a_node_of_a_rack_is_not_said_to_be_replaced_by_another_rack(world: WorldHarness) -> None:
    # given a rack with a Node for a technician, and a free rack
    given_racks(world, 2)
    want(world, 1)
    world.send("BreakMachine", machine_path(f"{EAST}/{world.machine_name('n1')}"), GPU_LOST)
    world.pass_time(minutes=2)

    # when the advice is followed
    (health,) = explained(world, "train").causes
    world.command_node("DrainNode", "train", "n1")
    world.pass_time(minutes=10)

    name = world.machine_name("n1")
    assert health.helps == (
        f"'nodepool drain {name}' ends what runs there; its rack lacks it until its machine is"
        " repaired",
    )
    (capacity,) = explained(world, "train").causes
    assert capacity.helps == (f"repair machine {name} of NVLink domain {R1}",)


def test_a_reserved_node_that_another_nodepool_would_get_is_not_taken_back(
    world: WorldHarness,
) -> None:
    # given a spot NodePool with a reserved Node, before and after a NodePool is short of machines
    world.given_data_center(machines=2)
    world.apply("cheap", 2, computeClass="spot")
    world.command_node("ReserveNode", "cheap", "n1", reservedDesired="control-plane")
    before = reservation(explained(world, "cheap"))
    world.apply("train", 3)
    world.pass_time(minutes=20)

    assert before == (Unreserve(world.machine_name("n1")),)
    assert reservation(explained(world, "cheap")) == ()


def reservation(explanation: Explanation) -> tuple[object, ...]:
    """What is advised about the Nodes that are reserved for the control plane."""
    (cause,) = (cause for cause in explanation.causes if cause.kind == "Reservation")
    return tuple(remedy.action for remedy in cause.remedies)


def test_a_silent_node_is_named_as_its_cordon_names_it(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1)

    world.break_machines("n1", fault="kubelet")
    world.pass_time(seconds=40)

    (cause,) = explained(world, "train").causes
    assert cause.message == f"{world.machine_name('n1')}: NotReady"


def test_every_proof_is_a_message_in_the_log_that_says_so(world: WorldHarness) -> None:
    world.given_data_center(machines=2, quota=3)
    world.apply("other", 1)
    world.apply("train", 2)
    world.scale("train", 9)

    proofs = [proof for cause in explained(world, "train").causes for proof in cause.proofs]
    types = {each.position: each.subject.rpartition(".")[2] for each in world.entries()}

    assert [(proof.about, types[proof.position]) for proof in proofs] == [
        ("condition Quota", "QuotaChecked"),
        (f"quota {ZONE}.{H100}", "QuotaChecked"),
        (f"nodepool {CLUSTER}/other", "CWNodeRegistered"),
        ("condition Capacity", "CapacityChecked"),
        (f"capacity {ZONE}.{H100}", "CWNodeAssigned"),
        (f"nodepool {CLUSTER}/other", "CWNodeRegistered"),
    ]


def test_at_target_repeats_the_causes_that_block(world: WorldHarness) -> None:
    world.given_data_center(machines=2, quota=3)
    world.apply("train", 3)
    world.scale("train", 9)

    causes = explained(world, "train").causes
    message = world.condition("train", "AtTarget")

    assert [cause.kind for cause in causes] == ["Quota", "Capacity"]
    assert message == (
        f"False UnderTarget: NodePool has 2 of 9 Nodes; {causes[0].clause}; {causes[1].clause}."
    )


def test_an_explanation_is_json(world: WorldHarness) -> None:
    world.given_data_center(machines=1)
    world.apply("train", 2)

    document = explained(world, "train").document()

    assert json.loads(json.dumps(document)) == document


def test_a_broken_rack_asks_for_the_machines_of_its_own_domain(world: WorldHarness) -> None:
    # given a rack of which three machines went to triage
    given_racks(world, 1)
    want(world, 1, lifecycle={"disableUnhealthyNodeEviction": False})
    broken = sorted(world.documents("machines"))[:3]
    for key in broken:
        world.send("BreakMachine", machine_path(key), {"fault": "gpu-lost"})
    world.pass_time(minutes=5)

    # when the advice is followed
    before = explained(world, "train")
    for key in broken:
        world.send("RepairMachine", machine_path(key), {})

    # then no whole rack was asked for, a part of one was no target, and the rack is complete again
    names = tuple(key.partition("/")[2] for key in broken)
    (capacity,) = (cause for cause in before.causes if cause.kind == "Capacity")
    assert [remedy.action for remedy in capacity.remedies] == [RepairMachines(3, names)]
    assert f"NVLink domain {R1} lacks 3 Nodes; 0 of its machines are free and 3 out of service" in (
        capacity.details
    )
    assert titles(explained(world, "train")) == []


def given_a_part_of_a_rack(world: WorldHarness, *lost: str) -> None:
    """A rack that lost two Nodes while its quota was lowered to 17 Nodes, and these since then."""
    given_racks(world, 1, quota=18)
    want(world, 1, lifecycle={"disableUnhealthyNodeEviction": False})
    for node in ("n1", "n2"):
        break_node(world, node, "gpu-lost")
    world.pass_time(minutes=5)
    world.given_quota(17, GB200, zone=EAST)
    for node in lost:
        break_node(world, node, "gpu-lost")
    world.pass_time(minutes=5)


def test_as_many_machines_of_a_rack_are_asked_for_as_quota_leaves_room_for(
    world: WorldHarness,
) -> None:
    # given 15 of the 16 Nodes of a rack that quota allows
    given_a_part_of_a_rack(world, "n3")

    # when the advice is followed
    _, capacity, closed = explained(world, "train").causes
    before = domains(world)
    repair(world, "n1")
    world.pass_time(minutes=5)

    # then quota, and not the target, keeps the rack from being whole
    assert "its quota leaves room for 1 Node, which completes none of its racks" in capacity.details
    assert capacity.remedies[0].action == RepairMachines(1, (world.machine_name("n1"),))
    assert closed.title == "15 Nodes are cordoned for others of the same rack"
    assert (before, domains(world)) == ({R1: 15}, {R1: 16})


def test_no_machines_are_asked_for_where_quota_leaves_no_room_for_a_rack(
    world: WorldHarness,
) -> None:
    # given a NodePool without Nodes, of which quota allows less than a rack
    given_a_part_of_a_rack(world, *(f"n{number}" for number in range(3, 19)))

    # when a whole rack is added
    _, capacity = explained(world, "train").causes
    add(world, {"count": 18, "inRacks": True})

    # then it is of no use
    assert capacity.remedies == ()
    assert domains(world) == {}


def test_a_rack_of_which_the_control_plane_has_a_node_asks_for_a_machine_of_its_domain(
    world: WorldHarness,
) -> None:
    given_racks(world, 1)
    want(world, 1)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")

    causes = explained(world, "train").causes
    (capacity,) = (cause for cause in causes if cause.kind == "Capacity")
    add(world, {"count": 1, "labels": {DOMAIN: R1}})

    assert [remedy.action for remedy in capacity.remedies] == [AddMachines(1, R1)]
    assert titles(explained(world, "train")) == []


def test_racks_that_are_missing_are_asked_for_as_a_whole(world: WorldHarness) -> None:
    given_racks(world, 2)
    want(world, 1)
    want(world, 3, "more")

    (capacity,) = explained(world, "more").causes

    assert capacity.helps == (
        "add 36 machines of the type to the zone, in whole racks",
        "scale more to 1 rack (18 Nodes), what it has",
    )


def given_a_rack_that_lacks_a_machine(world: WorldHarness, racks: int, pool: str) -> None:
    """So many racks, and a NodePool that has the first of them without a machine in triage."""
    given_racks(world, racks)
    want(world, 1, pool, lifecycle={"disableUnhealthyNodeEviction": False})
    break_node(world, "n1", "gpu-lost")
    world.pass_time(minutes=5)


def capacity_helps(world: WorldHarness, pool: str = "train") -> tuple[str, ...]:
    """What is advised for a NodePool that lacks machines, with the numbers of machines."""
    (capacity,) = (each for each in explained(world, pool).causes if each.kind == "Capacity")
    return tuple(world.with_machine_numbers(each) for each in capacity.helps)


def test_one_rack_is_enough_where_a_nodepool_before_only_completes_its_own(
    world: WorldHarness,
) -> None:
    given_a_rack_that_lacks_a_machine(world, 1, "other")
    want(world, 1)

    helps = capacity_helps(world)
    add(world, {"count": 18, "inRacks": True})

    assert helps == ("add 18 machines of the type to the zone, in whole racks",)
    assert domains(world) == {R2: 18}
    assert titles(explained(world, "train")) == []


def test_a_rack_is_to_be_repaired_where_a_nodepool_before_only_completes_its_own(
    world: WorldHarness,
) -> None:
    # given a free rack of which a machine is in triage
    given_a_rack_that_lacks_a_machine(world, 2, "other")
    break_boot(world, "n19")
    want(world, 1)
    want(world, 0)
    want(world, 1)

    helps = capacity_helps(world)
    repair(world, "n19")

    assert helps == (
        f"repair machine n19 of NVLink domain {R2}",
        "add 18 machines of the type to the zone, in whole racks",
    )
    assert domains(world) == {R2: 18}
    assert titles(explained(world, "train")) == []


def test_whole_racks_are_asked_for_besides_the_machine_that_a_rack_lacks(
    world: WorldHarness,
) -> None:
    given_a_rack_that_lacks_a_machine(world, 1, "train")
    want(world, 3, lifecycle={"disableUnhealthyNodeEviction": False})

    helps = capacity_helps(world)
    repair(world, "n1")
    add(world, {"count": 36, "inRacks": True})

    assert helps == (
        f"repair machine n1 of NVLink domain {R1}",
        "add 36 machines of the type to the zone, in whole racks",
    )
    assert domains(world) == {R1: 18, R2: 18, R3: 18}
    assert titles(explained(world, "train")) == []


def test_a_nodepool_with_a_part_of_a_rack_is_to_be_scaled_to_whole_racks(
    world: WorldHarness,
) -> None:
    # given a rack that lacks a Node, and a quota that was lowered since, which another rack exceeds
    given_racks(world, 4, quota=72)
    want(world, 3, "large", lifecycle={"disableUnhealthyNodeEviction": False})
    world.send("BreakMachine", machine_path(f"{EAST}/{world.machine_name('n1')}"), GPU_LOST)
    world.pass_time(minutes=5)
    world.given_quota(54, GB200, zone=EAST)
    want(world, 1)

    # when the advice to lower the target of the other is followed
    advised = explained(world, "train").causes[0].remedies[-1]
    outcomes = world.outcomes(world.scale("large", 36))

    # then it is whole racks, and was enough
    assert advised.action == ScalePeer(f"{CLUSTER}/large", 36)
    assert advised.text == f"scale {CLUSTER}/large down to 2 racks (36 Nodes)"
    assert outcomes == ["configured 2"]
    assert titles(explained(world, "train")) == []


def test_the_machines_for_what_is_served_before_are_asked_for_as_well(world: WorldHarness) -> None:
    # given a NodePool of another organisation that waits for four machines, and one for two
    world.given_data_center(machines=1)
    world.given_cluster("west", "umbrella")
    world.given_quota(10, org="umbrella")
    world.apply("umbrella/west/theirs", 5)
    world.apply("train", 2)

    # when as many are added as are advised, less one, and then that one
    cause = explained(world, "train").causes[0]
    world.given_machines(5)
    one_less = titles(explained(world, "train"))
    world.given_machines(1)

    # then these are enough, and nothing names the other organisation
    assert cause.helps == (
        "add 6 machines of the type to the zone, up to 4 of them for what is served before it",
    )
    assert cause.details[0] == "train has position 5 of what waits: 4 Nodes wait before it"
    assert "umbrella" not in json.dumps(explained(world, "train").document())
    assert one_less == ["Capacity is NoneAvailable"] or one_less == ["Capacity is Partial"]
    assert titles(explained(world, "train")) == []


def test_the_quota_for_what_may_be_served_before_is_asked_for_as_well(world: WorldHarness) -> None:
    world.given_data_center(machines=20, quota=2)
    world.apply("first", 3)
    world.apply("train", 4)

    (cause,) = explained(world, "train").causes
    world.given_quota(7)

    assert cause.helps[0] == (
        f"raise the quota of {H100} in {ZONE} to 7, up to 3 of them for what may be served before "
        "train"
    )
    assert titles(explained(world, "train")) == []


@pytest.mark.parametrize(
    ("service", "shown"),
    [
        ("quota", "; Quota still shows Under, of an older version"),
        ("capacity", "; Capacity still shows Sufficient, of an older version"),
    ],
)
def test_a_service_that_does_not_answer_is_named_since_the_change(
    world: WorldHarness, service: str, shown: str
) -> None:
    world.given_data_center()
    world.apply("train", 1)
    with world.paused(service):
        world.pass_time(minutes=10)
        world.scale("train", 2)
        changed = world.world.log.clock
        at_once = titles(explained(world, "train", is_now=True))
        world.pass_time(minutes=3)
        silent = explained(world, "train", is_now=True)

    assert at_once == [f"{service.title()} is not determined yet"]
    assert titles(silent) == [f"the {service} service does not answer"]
    (cause,) = silent.causes
    assert cause.message == f"it has not checked version 2 of the spec{shown}"
    assert cause.since is not None
    assert abs(cause.since - changed) < timedelta(seconds=1)
    assert cause.remedies[0].action == StartService(service)
    assert titles(explained(world, "train", is_now=True)) == []


def test_no_service_is_blamed_for_a_deletion_that_it_could_not_end_and_tries_again() -> None:
    # given a deletion whose last Node is gone, and that the validator could not end at first
    world = given_failing("validator", "CWNodePoolNodesRemoved")
    world.given_data_center()
    world.apply("train", 1)
    world.delete("train")

    world.pass_time(seconds=30)
    failed = explained(world, "train", is_now=True)
    world.pass_time(seconds=30)

    assert titles(failed) == ["NodesRemoved is InternalError", "it is being deleted"]
    assert [cause.message for cause in failed.causes] == [
        f"internal error while updating the NodePool: RuntimeError: {INJECTED}",
        "0 Nodes are still to be removed",
    ]
    assert [cause.helps for cause in failed.causes] == [
        ("wait: it is tried again after 1, 5 and 15 minutes, then every 15",),
        ("wait until it is gone: no Pod blocks a deletion",),
    ]
    assert world.node_pool("train") is None


@pytest.mark.parametrize("service", [name for name in NAMES if name != "aggregator"])
def test_a_deletion_ends_or_shows_the_error_of_the_service_that_fails_on_it(service: str) -> None:
    # given a NodePool with a Pod, and a service that fails on its deletion
    broken: set[tuple[str, str]] = set()
    world = given_broken(service, broken)
    world.given_data_center()
    world.apply("train", 2)
    world.run_pod("n1", graceS=20)
    with world.paused("quota" if service == "validator" else service):
        world.delete("train")
        broken.add((service, "acme/prod/train"))

    world.pass_time(minutes=62)

    # then no service is blamed for being silent
    if service in ("allocator", "lifecycle", "validator"):
        assert world.conditions("train")["NodesRemoved"] == "InternalError"
        remedies = (each.remedies for each in explained(world, "train", is_now=True).causes)
        assert {remedy.action for each in remedies for remedy in each} == {Wait()}
    else:
        assert world.node_pool("train") is None


def test_the_services_are_named_that_assign_no_nodes_whatever_else_is_wrong(
    world: WorldHarness,
) -> None:
    # given a Node with a problem, and one Node more that is wanted while the allocator is away
    world.given_data_center(machines=4)
    world.apply("train", 2)
    world.break_machines("n1", fault="xid")
    with world.paused("allocator"):
        world.scale("train", 3)
        world.pass_time(minutes=1)
        silent = explained(world, "train", is_now=True)

    both = [StartService("allocator"), StartService("capacity")]
    assert [remedy.action for remedy in silent.causes[0].remedies] == both
    assert titles(silent)[1:] == ["1 Node is unhealthy"]
    assert titles(explained(world, "train", is_now=True)) == ["1 Node is unhealthy"]


def test_the_services_are_named_that_assign_no_nodes_of_those_that_can_be_had(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=0)
    world.apply("train", 4)
    world.pass_time(minutes=60)
    with world.paused("allocator"):
        world.given_machines(2)
        at_once = explained(world, "train", is_now=True)
        world.pass_time(minutes=1)
        silent = explained(world, "train", is_now=True)

    assert titles(at_once) == ["Capacity is Partial"]
    assert titles(silent) == [
        "the allocator or the capacity service does not answer",
        "Capacity is Partial",
    ]


def test_no_service_is_blamed_for_a_removal_that_was_not_due_before(world: WorldHarness) -> None:
    # given a surplus of active Nodes, of which a Node becomes idle now
    world.given_data_center(machines=3)
    world.apply("train", 2)
    world.run_pod("n1")
    world.run_pod("n2")
    world.scale("train", 1)
    world.pass_time(minutes=60)
    with world.paused("allocator"):
        world.stop_pod("n1")
        at_once = explained(world, "train", is_now=True)
        world.pass_time(minutes=1)
        silent = explained(world, "train", is_now=True)

    assert titles(at_once) == ["it has 1 Node too many"]
    assert titles(silent) == ["the allocator or the lifecycle service does not answer"]


def test_a_surplus_begins_with_the_target(world: WorldHarness) -> None:
    # given a NodePool that was short for hours, and has too many Nodes now
    world.given_data_center(machines=3)
    world.apply("train", 5)
    world.pass_time(minutes=180)
    for node in ("n1", "n2", "n3"):
        world.run_pod(node)

    world.scale("train", 1)

    (surplus,) = explained(world, "train").causes
    assert surplus.since is not None
    assert abs(surplus.since - world.world.log.clock) < timedelta(seconds=1)


def test_a_surplus_is_as_old_as_the_target_whatever_else_of_the_spec_changes(
    world: WorldHarness,
) -> None:
    # given a NodePool that has had too many Nodes for an hour, and another number for half an hour
    world.given_data_center(machines=3)
    world.apply("train", 3)
    for node in ("n1", "n2", "n3"):
        world.run_pod(node)
    world.scale("train", 1)
    world.pass_time(minutes=30)
    world.scale("train", 2)
    changed = world.world.log.clock
    world.pass_time(minutes=30)

    world.apply("train", 2, nodeLabels={"team": "red"})

    (surplus,) = explained(world, "train").causes
    assert surplus.title == "it has 1 Node too many"
    assert surplus.since is not None
    assert abs(surplus.since - changed) < timedelta(seconds=1)


def test_a_check_is_due_once_the_check_before_it_has_decided(world: WorldHarness) -> None:
    # given a version of a NodePool that quota judges after half an hour, and capacity does not
    world.given_data_center(machines=3)
    world.apply("train", 1)
    with world.paused("capacity"):
        with world.paused("quota"):
            world.apply("train", 1, nodeLabels={"team": "red"})
            world.pass_time(minutes=30)
            first = explained(world, "train", is_now=True)
        judged = world.world.log.clock
        at_once = explained(world, "train", is_now=True)
        world.pass_time(minutes=1)
        silent = explained(world, "train", is_now=True)

    # then each service is blamed for its own silence only
    assert [remedy.action for remedy in first.causes[0].remedies] == [StartService("quota")]
    assert titles(at_once) == []
    assert [remedy.action for remedy in silent.causes[0].remedies] == [StartService("capacity")]
    assert silent.causes[0].since is not None
    assert abs(silent.causes[0].since - judged) < timedelta(seconds=1)


def test_a_check_is_due_once_an_earlier_check_has_recovered() -> None:
    # given a version of a NodePool whose quota could not be checked for half an hour
    broken: set[tuple[str, str]] = set()
    world = given_broken("quota", broken)
    world.given_data_center()
    world.apply("train", 1)
    broken.add(("quota", f"{ORG}/{CLUSTER}/train"))
    world.scale("train", 3)
    world.pass_time(minutes=30)

    with world.paused("capacity"):
        broken.clear()
        world.given_quota(50)
        recovered = titles(explained(world, "train", is_now=True))
        world.pass_time(minutes=1)
        silent = titles(explained(world, "train", is_now=True))

    assert recovered == ["Capacity is not determined yet"]
    assert silent == ["the capacity service does not answer"]


def test_no_service_is_blamed_for_a_check_that_is_not_due(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("new", 2, "gd-8xh100")
    world.apply("train", 1)

    world.apply("train", 1, region="US-WEST-04")
    world.pass_time(minutes=1)

    assert titles(explained(world, "new", is_now=True)) == ["Validated is Invalid"]
    assert titles(explained(world, "train", is_now=True)) == ["Validated is Invalid"]


def test_capacity_is_not_blamed_while_a_nodepool_cannot_be_validated(
    world: WorldHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a NodePool that lacks machines, whose metadata change could not be validated
    world.given_data_center(machines=2, quota=4)
    world.apply("train", 4)
    monkeypatch.setattr("validator.objects.verdict", None)
    world.apply("train", 4, metadata={"labels": {"team": "red"}})

    # when its grant shrinks to the Nodes that it has
    world.given_quota(1)
    world.pass_time(minutes=1)

    assert titles(explained(world, "train", is_now=True)) == ["Validated is InternalError"]


def test_capacity_is_not_blamed_while_quota_cannot_be_checked() -> None:
    failing = Failing("quota", NodePoolValidated.__name__, 2)
    world = failing.world()
    world.given_data_center()
    world.apply("train", 1)

    world.scale("train", 3)
    world.pass_time(seconds=30)
    failed = titles(explained(world, "train", is_now=True))
    world.pass_time(minutes=1)

    assert failed == ["Quota is InternalError"]
    assert titles(explained(world, "train", is_now=True)) == []


def test_no_machine_is_asked_for_where_capacity_does_not_say_that_they_have_come(
    world: WorldHarness,
) -> None:
    # given a NodePool that lacks a machine, and a capacity service that is away
    world.given_data_center(machines=1)
    world.apply("train", 2)
    with world.paused("capacity"):
        # when the machine comes
        world.given_machines(1)
        at_once = titles(explained(world, "train", is_now=True))
        world.pass_time(minutes=1)
        silent = explained(world, "train", is_now=True)

    # then only the service is named, once it is late
    assert at_once == []
    assert titles(silent) == ["the capacity service does not answer"]
    assert [remedy.action for remedy in silent.causes[0].remedies] == [StartService("capacity")]
    assert titles(explained(world, "train", is_now=True)) == []


def test_an_old_number_of_missing_machines_is_told_as_such(world: WorldHarness) -> None:
    # given a NodePool that lacks four machines, and a capacity service that is away
    world.given_quota(10)
    world.given_cluster()
    world.apply("train", 4)
    with world.paused("capacity"):
        # when two of the machines come
        world.given_machines(2)
        world.pass_time(minutes=5)
        silent = explained(world, "train", is_now=True)

    # then nobody asks for four machines, nor for two on behalf of others
    assert titles(silent) == ["the capacity service does not answer"]
    assert silent.causes[0].message == "Capacity still says that machines are missing for 4 Nodes"
    assert explained(world, "train", is_now=True).causes[0].helps[0] == (
        "add 2 machines of the type to the zone"
    )


@pytest.mark.parametrize("service", ["allocator", "capacity"])
def test_the_services_are_named_of_which_one_assigns_no_nodes_or_says_that_none_are_free(
    world: WorldHarness, service: str
) -> None:
    # given a service that is away, and machines that only an allocator that is there assigns
    world.given_data_center(machines=2 if service == "allocator" else 0, quota=1)
    world.apply("train", 2)
    with world.paused(service):
        # when there is quota
        world.given_quota(2)
        world.pass_time(minutes=1)
        silent = explained(world, "train", is_now=True)

    # then the conditions do not show which of both services is away
    both = [StartService("allocator"), StartService("capacity")]
    assert titles(silent) == ["the allocator or the capacity service does not answer"]
    assert [remedy.action for remedy in silent.causes[0].remedies] == both
    assert not any("does not answer" in title for title in titles(explained(world, "train")))


@pytest.mark.parametrize("service", ["allocator", "lifecycle"])
def test_the_services_are_named_of_which_one_begins_no_removal(
    world: WorldHarness, service: str
) -> None:
    world.given_data_center()
    world.apply("train", 3)
    world.apply("old", 1)
    with world.paused(service):
        world.scale("train", 1)
        world.delete("old")
        world.pass_time(minutes=1)
        silent, deleted = (explained(world, pool, is_now=True) for pool in ("train", "old"))

    both = [StartService("allocator"), StartService("lifecycle")]
    assert titles(silent) == ["the allocator or the lifecycle service does not answer"]
    assert silent.causes[0].message == "the removal of 2 Nodes has not begun"
    assert [remedy.action for remedy in silent.causes[0].remedies] == both
    assert [remedy.action for remedy in deleted.causes[0].remedies] == both
    assert titles(explained(world, "train", is_now=True)) == []


def test_no_allocator_is_blamed_for_a_node_that_stays_until_it_is_idle(
    world: WorldHarness,
) -> None:
    world.given_data_center()
    world.apply("train", 2)
    world.run_pod("n1")
    world.run_pod("n2")

    world.scale("train", 1)
    world.pass_time(minutes=1)

    assert titles(explained(world, "train", is_now=True)) == ["it has 1 Node too many"]


def test_an_invalid_nodepool_is_not_told_to_wait_for_a_check(world: WorldHarness) -> None:
    world.given_data_center(quota=1)
    world.apply("train", 2)

    world.apply("train", 2, region="US-WEST-04")

    assert titles(explained(world, "train")) == ["Validated is Invalid"]


@pytest.mark.parametrize("service", ["allocator", "lifecycle"])
@pytest.mark.parametrize("joined", [0, 2])
def test_surplus_nodes_that_boot_wait_for_the_services_that_remove_them(
    world: WorldHarness, service: str, joined: int
) -> None:
    # given a NodePool with Nodes that boot, and a service that is away
    world.given_data_center(machines=joined)
    world.given_machines(5 - joined, boot_s=1200)
    world.apply("train", 5)
    with world.paused(service):
        # when the target falls to less than it has
        world.scale("train", 2)
        world.pass_time(minutes=1)
        silent = explained(world, "train", is_now=True)

    # then both services that remove Nodes are named, and only Nodes that stay are awaited
    assert silent.causes[0].title == "the allocator or the lifecycle service does not answer"
    assert silent.causes[0].message == "the removal of 3 Nodes has not begun"
    awaited = ["5 are in progress, 3 too many"] if joined == 0 else []
    assert titles(silent)[1:] == awaited


def test_a_drain_that_stops_half_way_names_the_service_once_every_grace_period_is_over(
    world: WorldHarness,
) -> None:
    # given a drain during which the lifecycle service goes away
    world.given_data_center()
    world.apply("train", 1)
    world.run_pod("n1")
    world.delete("train")
    with world.paused("lifecycle"):
        world.pass_time(minutes=24 * 60)
        early = explained(world, "train", is_now=True)
        world.pass_time(minutes=120)
        late = explained(world, "train", is_now=True)

    assert [remedy.action for remedy in early.causes[0].remedies] == [Wait()]
    assert [remedy.action for remedy in late.causes[0].remedies] == [StartService("lifecycle")]


def test_no_service_is_blamed_while_pods_have_their_grace_period_after_a_long_block(
    world: WorldHarness,
) -> None:
    # given three NodePools, each with a Node whose Pod has blocked its removal for 26 hours
    world.given_data_center(machines=3)
    evicts = {"disableUnhealthyNodeEviction": False}
    for name in ("ended", "deleted", "unhealthy"):
        world.apply(name, 1, lifecycle={"scaleDownStrategy": "PreferIdle", **evicts})
        world.create_pod(name, "job", gpus=8, graceS=1800)
    world.pass_time(minutes=1)
    world.scale("ended", 0)
    world.scale("deleted", 0)
    world.break_machines("n3", fault="gpu-lost")
    world.pass_time(minutes=26 * 60)
    blocked = [explained(world, name, is_now=True) for name in ("ended", "deleted", "unhealthy")]

    # when the advice is followed, and when a NodePool is deleted
    world.delete_pod("ended", "job", graceS=1800)
    world.delete("deleted")
    world.delete_pod("unhealthy", "job", graceS=1800)
    world.pass_time(seconds=5)
    leaving = [explained(world, name, is_now=True) for name in ("ended", "deleted", "unhealthy")]
    with world.paused("lifecycle"):
        world.pass_time(minutes=26 * 60)
        silent = [explained(world, name, is_now=True) for name in ("ended", "deleted", "unhealthy")]

    # then the service is blamed once each grace period is over
    for each in blocked:
        assert isinstance(each.causes[0].remedies[0].action, EndWork)
    for each in leaving:
        assert isinstance(each.causes[0].remedies[0].action, Wait)
    for each in silent:
        assert [remedy.action for remedy in each.causes[0].remedies] == [StartService("lifecycle")]


def test_quota_that_nodepools_have_given_up_names_the_services_that_release_quota(
    world: WorldHarness,
) -> None:
    # given a NodePool over its quota, and a quota service that does not hear of a deletion
    world.given_data_center(machines=9, quota=4)
    world.apply("old", 4)
    world.apply("train", 3)
    with world.paused("quota"):
        world.delete("old")
        early = explained(world, "train", is_now=True)
        world.pass_time(minutes=1)
        late = explained(world, "train", is_now=True)

    # then the services are named as soon as the release is late, in the place of a wait
    assert titles(early)[0] == titles(late)[1] == "Quota is Over"
    assert titles(late)[0] == "the allocator or the quota service does not answer"
    given_up = "NodePools have given up 4 Nodes that the quota still counts"
    assert late.causes[0].message == given_up
    assert not any("wait" in text for cause in late.causes for text in cause.helps)
    assert early.causes[0].helps[0] == (
        "wait a moment and ask again: NodePools have given up 4 Nodes that the quota still counts; "
        "if that lasts, see that the allocator and the quota service run: 'nodepool doctor' says "
        "what is wrong with them"
    )
    assert world.conditions("train")["AtTarget"] == "TargetMet"


@pytest.mark.parametrize("service", ["allocator", "lifecycle"])
def test_removals_that_do_not_begin_name_the_services_although_a_node_leaves_already(
    world: WorldHarness, service: str
) -> None:
    # given a NodePool of which one busy Node drains
    world.given_data_center(machines=4)
    world.apply("train", 4, lifecycle={"scaleDownStrategy": "PreferIdle"})
    for node in ("n1", "n2", "n3", "n4"):
        world.run_pod(node)
    world.scale("train", 3)
    with world.paused(service):
        # when its target falls further
        world.scale("train", 1)
        world.pass_time(minutes=20)
        silent = explained(world, "train", is_now=True)

    assert titles(silent)[0] == "the allocator or the lifecycle service does not answer"
    assert silent.causes[0].message == "the removal of 2 Nodes has not begun"


@pytest.mark.parametrize("name", ["allocator", "lifecycle"])
def test_a_service_that_cannot_decide_on_a_surplus_is_tried_again_and_not_blamed(name: str) -> None:
    # given a service that runs, and cannot decide on one NodePool
    broken: set[tuple[str, str]] = set()
    world = given_broken(name, broken)
    world.given_data_center()
    world.apply("train", 4)
    broken.add((name, f"{ORG}/{CLUSTER}/train"))

    # when Nodes are to leave
    world.scale("train", 1)
    world.pass_time(seconds=30)
    early = explained(world, "train", is_now=True)
    world.pass_time(minutes=40)
    late = explained(world, "train", is_now=True)
    world.delete("train")
    world.pass_time(minutes=80)
    deleted = explained(world, "train", is_now=True)

    # then the failure is the cause, and nothing is said to be removed
    assert titles(early) == titles(late) == ["AtTarget is InternalError"]
    assert [remedy.action for remedy in late.causes[0].remedies] == [Wait()]
    assert INJECTED in late.sentence
    assert titles(deleted) == ["NodesRemoved is InternalError", "it is being deleted"]
    assert [remedy.action for cause in deleted.causes for remedy in cause.remedies] == [Wait()] * 2


def test_a_spot_node_that_does_not_give_way_in_time_is_told_with_who_is_to_end_it(
    world: WorldHarness,
) -> None:
    # given a NodePool for which a spot Node is to give way, which is warned and marked
    world.given_data_center(machines=2)
    world.apply("cheap", 2, computeClass="spot")
    begun = world.world.log.clock
    world.apply("train", 1)
    with world.paused("lifecycle"):
        world.pass_time(minutes=7)
        early = explained(world, "train", is_now=True)
        world.pass_time(minutes=1)
        late = explained(world, "train", is_now=True)
    world.pass_time(minutes=10)

    # then it is waited for, and after seven minutes the services are named
    assert (titles(early), early.causes[0].helps) == (["Capacity is NoneAvailable"], (AWAITED,))
    assert titles(late) == [
        "the preemption or the lifecycle service does not answer",
        "Capacity is NoneAvailable",
    ]
    assert late.causes[0].message == (
        "1 spot Node is to give way, which takes at most 7 minutes, and is still there"
    )
    assert late.causes[0].since is not None
    assert abs(late.causes[0].since - begun) < timedelta(seconds=2)
    assert AWAITED not in late.causes[1].helps
    assert explained(world, "train", is_now=True).causes == ()


def test_no_service_is_named_while_a_later_spot_node_gives_way_in_time(
    world: WorldHarness,
) -> None:
    # given a NodePool for which a spot Node gives way slowly, and an operator served before it
    given_slow_spot_nodes(world, 3)
    world.apply("train", 1)
    world.pass_time(minutes=5)
    world.reclaim(1)

    # when the first Node has gone to the operator, and seven minutes have passed since the first
    world.pass_time(minutes=2, seconds=30)
    waiting = explained(world, "train", is_now=True)
    world.pass_time(minutes=4, seconds=20)
    last = explained(world, "train", is_now=True)
    world.pass_time(minutes=2)

    # then the second Node is waited for, which leaves in time
    for each in (waiting, last):
        assert (titles(each), each.causes[0].helps[0]) == (["Capacity is NoneAvailable"], AWAITED)
    assert explained(world, "train", is_now=True).causes == ()


def test_no_service_is_named_while_a_preemption_runs_that_began_late(world: WorldHarness) -> None:
    # given a NodePool for which a spot Node gives way slowly, after ten minutes without warning
    given_slow_spot_nodes(world, 2)
    with world.paused("preemption"):
        world.apply("train", 1)
        world.pass_time(minutes=10)
        away = explained(world, "train", is_now=True)

    world.pass_time(minutes=6, seconds=50)
    back = explained(world, "train", is_now=True)
    world.pass_time(minutes=2)

    # then the timetable counts from the warning
    assert titles(away)[0] == "the preemption service does not answer"
    assert titles(back) == ["Capacity is NoneAvailable"]
    assert explained(world, "train", is_now=True).causes == ()


def test_no_preemption_is_blamed_for_what_a_pool_does_not_lack(world: WorldHarness) -> None:
    # given a NodePool for which a spot Node gives way, while nobody says that there is enough
    given_slow_spot_nodes(world, 2)
    world.apply("train", 1)
    world.pass_time(minutes=1)
    with world.paused("capacity"):
        world.pass_time(minutes=14)
        found = explained(world, "train", is_now=True)

    # then only that is told
    assert world.node_counts("train").current == 1
    assert titles(found) == ["the capacity service does not answer"]


def given_slow_spot_nodes(world: WorldHarness, count: int) -> None:
    """A NodePool of spot Nodes, each with a Pod that a preemption waits for until seven minutes."""
    world.given_data_center(machines=count)
    world.apply("cheap", count, computeClass="spot")
    for number in range(1, count + 1):
        world.run_pod(f"n{number}", interruption="blocking", graceS=600)


def test_the_allocator_is_named_if_it_asks_no_spot_node_to_give_way(world: WorldHarness) -> None:
    # given a NodePool for which a spot Node has to give way, while the allocator does not answer
    world.given_data_center(machines=2)
    world.apply("cheap", 2, computeClass="spot")
    with world.paused("allocator"):
        world.apply("train", 1)
        early = explained(world, "train", is_now=True)
        world.pass_time(minutes=1)
        late = explained(world, "train", is_now=True)

    assert titles(early) == ["Capacity is NoneAvailable"]
    assert titles(late) == [
        "the allocator or the capacity service does not answer",
        "Capacity is NoneAvailable",
    ]
    assert late.causes[0].message == "no spot Node is asked to give way"


def test_no_service_is_named_for_a_spot_node_whose_pool_leaves(world: WorldHarness) -> None:
    # given a NodePool that gets the machine of a Node that leaves, and spot Nodes that stay
    world.given_data_center(machines=3)
    world.apply("cheap", 2, computeClass="spot")
    world.apply("old", 1)
    world.run_pod("n3", interruption="graceful", graceS=300)
    world.delete("old")

    world.apply("train", 1)
    world.pass_time(minutes=1)
    waiting = titles(explained(world, "train", is_now=True))

    assert waiting == ["Capacity is NoneAvailable"]
