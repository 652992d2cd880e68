"""What a Node is reserved for: its organisation, the control plane, or nothing while it is away."""

from collections.abc import Mapping
from hashlib import sha256
from random import Random

import pytest

from flow.test_audit import removal_faults
from flow.test_explanations import explained, titles
from flow.test_racks import (
    DOMAIN,
    EAST,
    GB200,
    R1,
    R2,
    R3,
    add,
    break_node,
    domains,
    given_racks,
    part,
    want,
)
from lifecycle.decide import service as lifecycle_service
from lifecycle.options import Options
from nodepool.explanation.remedies import EndWork
from support.constants import PREFER_IDLE
from support.harness import Harness
from support.services import services
from support.simulation.advice import check_advice
from support.world_harness import WorldHarness

STATE, RESERVED = "node.coreweave.cloud/state", "node.coreweave.cloud/reserved"
DESIRED = "node.coreweave.cloud/reserved-desired"


def marks(harness: Harness, node: str) -> dict[str, str]:
    """The labels of a Node that say its state and its reservation."""
    labels = harness.node(node)["metadata"]["labels"]
    return {key: labels[key] for key in (STATE, RESERVED, DESIRED) if key in labels}


def taints(harness: Harness, node: str) -> list[object]:
    """The taints of a Node."""
    listed = harness.node(node)["spec"]["taints"]
    assert isinstance(listed, list)
    return listed


def reservation_advice(world: WorldHarness) -> list[str]:
    """What `explain` advises about Nodes of `train` that are reserved for the control plane."""
    causes = explained(world, "train").causes
    return [text for cause in causes if cause.kind == "Reservation" for text in cause.helps]


def test_the_advice_to_take_a_node_back_says_that_its_work_has_to_end(world: WorldHarness) -> None:
    # given a NodePool of which the control plane uses one Node, and has reserved another
    world.given_data_center(machines=2)
    world.apply("train", 2)
    for node in ("n1", "n2"):
        world.command_node("ReserveNode", "train", node, reservedDesired="control-plane")
    world.run_pod("n1", "system", tolerations=[{"key": RESERVED, "operator": "Exists"}])
    first, second = (world.machine_name(node) for node in ("n1", "n2"))

    # when the advice is followed, in its order
    idle = reservation_advice(world)
    world.command_node("ReserveNode", "train", "n2", reservedDesired="acme")
    used = reservation_advice(world)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="acme")
    pending = world.node_counts("train")
    world.stop_pod("n1", "system")

    # then the idle Node came first, and the other one only counts once its work has ended
    assert idle == [f"reserve {second} for the organisation again"]
    assert used == [
        f"reserve {first} for the organisation again, and end what runs there: the Node is pending "
        "until then"
    ]
    assert pending.current == 1
    assert explained(world, "train").causes == ()


@pytest.mark.parametrize("idle", [False, True], ids=["alone", "beside an idle Node"])
def test_a_node_that_is_to_come_back_does_so_once_its_work_has_ended_as_is_advised(
    world: WorldHarness, idle: bool
) -> None:
    # given Nodes that the control plane uses, of which one with work is reserved again
    world.given_data_center(machines=3)
    world.apply("train", 3)
    for node in ("n1", "n2") if idle else ("n1",):
        world.command_node("ReserveNode", "train", node, reservedDesired="control-plane")
    world.run_pod("n1", "system", tolerations=[{"key": RESERVED, "operator": "Exists"}])
    world.command_node("ReserveNode", "train", "n1", reservedDesired="acme")
    world.pass_time(minutes=60)

    # when the advice is followed
    check_advice(world.world, Random(0), most=100)
    advised = reservation_advice(world)
    before = world.node_counts("train").current
    world.stop_pod("n1", "system")

    # then the Node counts again
    first, second = (world.machine_name(node) for node in ("n1", "n2"))
    assert advised == [
        f"end what runs on {first}: it is then reserved for the organisation again; if nothing runs"
        " there any more, see that the lifecycle service runs",
        *([f"reserve {second} for the organisation again"] if idle else []),
    ]
    assert world.node_counts("train").current == before + 1


def test_no_work_is_to_be_ended_on_a_silent_node_that_is_to_come_back(world: WorldHarness) -> None:
    world.given_data_center(machines=1)
    world.apply("train", 1)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    world.run_pod("n1", "system", tolerations=[{"key": RESERVED, "operator": "Exists"}])
    world.command_node("ReserveNode", "train", "n1", reservedDesired="acme")

    world.break_machines("n1", fault="hang")
    world.pass_time(minutes=10)

    assert reservation_advice(world) == []


@pytest.mark.parametrize("has_work", [False, True], ids=["idle", "at work"])
@pytest.mark.parametrize(
    ("command", "content"),
    [("DrainNode", {}), ("DrainNode", {"reason": "Audit"}), ("CordonNode", {"reason": "Audit"})],
    ids=["drained", "drained for a reason", "cordoned for a reason"],
)
def test_a_cordoned_node_of_the_control_plane_takes_work_again_before_it_comes_back(
    world: WorldHarness, command: str, content: Mapping[str, object], has_work: bool
) -> None:
    # given a Node of the control plane that an operator has cordoned
    world.given_data_center(machines=2)
    world.apply("train", 2)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    if has_work:
        tolerations = [{"key": RESERVED, "operator": "Exists"}]
        world.run_pod("n1", "system", tolerations=tolerations, interruption="blocking")
    world.command_node(command, "train", "n1", **content)
    world.pass_time(minutes=2)

    # when the advice is followed
    check_advice(world.world, Random(0), most=100)
    advised = list(map(world.with_machine_numbers, reservation_advice(world)))
    world.command_node("UncordonNode", "train", "n1")
    world.command_node("ReserveNode", "train", "n1", reservedDesired="acme")
    if has_work:
        world.stop_pod("n1", "system")
    world.pass_time(minutes=1)

    # then the Node counts again
    ends = ", and end what runs there: the Node is pending until then" if has_work else ""
    assert advised == [f"'nodepool uncordon n1', then reserve it for the organisation again{ends}"]
    assert explained(world, "train").causes == ()


def given_a_reserved_node_of_a_closed_rack(world: WorldHarness, *cordoned: str) -> None:
    """The control plane has n1 of a rack that is closed; an operator has cordoned these Nodes."""
    given_racks(world, 1)
    want(world, 1)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    for node in cordoned:
        world.command_node("CordonNode", "train", node, reason="Audit")
    world.pass_time(minutes=2)


@pytest.mark.parametrize("is_cordoned", [False, True], ids=["for others", "itself too"])
def test_a_node_comes_back_to_a_rack_that_is_closed(world: WorldHarness, is_cordoned: bool) -> None:
    own = ["n1"] if is_cordoned else []
    given_a_reserved_node_of_a_closed_rack(world, "n2", "n3", "n4", *own)

    # when the advice is followed
    check_advice(world.world, Random(0), most=100)
    advised = list(map(world.with_machine_numbers, reservation_advice(world)))
    for node in own:
        world.command_node("UncordonNode", "train", node)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="acme")

    # then the Node counts again
    assert advised == [
        "'nodepool uncordon n1', then reserve it for the organisation again"
        if is_cordoned
        else "reserve n1 for the organisation again"
    ]
    (closed,) = explained(world, "train").causes
    assert closed.title == "3 Nodes are cordoned by command"


def test_a_spot_node_is_to_come_back_although_other_spot_node_pools_wait_longer(
    world: WorldHarness,
) -> None:
    # given a spot NodePool that waits behind another one, and whose Node the control plane uses
    world.given_data_center(machines=3)
    world.apply("first", 2, computeClass="spot")
    world.apply("train", 1, computeClass="spot")
    world.scale("first", 4)
    world.command_node("ReserveNode", "train", "n3", reservedDesired="control-plane")
    world.pass_time(minutes=1)

    # when the advice is followed
    check_advice(world.world, Random(0), most=100)
    advised = reservation_advice(world)
    world.command_node("ReserveNode", "train", "n3", reservedDesired="acme")
    world.pass_time(minutes=60)

    # then no Node gives way to the NodePool that waits
    assert advised == [f"reserve {world.machine_name('n3')} for the organisation again"]
    assert explained(world, "train").causes == ()


def given_a_reserved_node_of_a_rack_that_left(world: WorldHarness, *others: str) -> None:
    """Three racks became two and lack a Node; n1, which the control plane has, is of the third."""
    given_racks(world, 3)
    want(world, 3)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    world.pass_time(minutes=5)
    want(world, 2, lifecycle={"disableUnhealthyNodeEviction": False})
    world.pass_time(minutes=5)
    for node in others:
        world.command_node("ReserveNode", "train", node, reservedDesired="control-plane")
    break_node(world, "n20", "gpu-lost")
    world.pass_time(minutes=30)


def test_a_node_of_a_rack_that_has_left_is_not_to_come_back(world: WorldHarness) -> None:
    given_a_reserved_node_of_a_rack_that_left(world)

    advised = reservation_advice(world)

    assert domains(world) == {R1: 1, R2: 17, R3: 18}
    assert titles(explained(world, "train"))[1:] == ["1 Node is reserved for the control plane"]
    assert advised == []


def test_a_node_of_a_rack_that_stays_is_to_come_back(world: WorldHarness) -> None:
    # given reserved Nodes of a rack that has left and of one that stays
    given_a_reserved_node_of_a_rack_that_left(world, "n19")
    before = part(world, "status")["currentNodes"]

    advised = list(map(world.with_machine_numbers, reservation_advice(world)))
    world.command_node("ReserveNode", "train", "n19", reservedDesired="acme")
    world.pass_time(minutes=60)

    assert advised == ["reserve n19 for the organisation again"]
    assert (before, part(world, "status")["currentNodes"]) == (34, 35)


def test_a_node_is_to_come_back_to_a_rack_of_which_another_node_boots(
    world: WorldHarness,
) -> None:
    # given a rack of which one Node boots, and the control plane has another one
    world.given_cluster(zone=EAST)
    world.given_quota(18, GB200, zone=EAST)
    add(world, {"count": 1, "labels": {DOMAIN: "a"}})
    add(world, {"count": 17, "labels": {DOMAIN: "a"}, "bootSeconds": 1200})
    want(world, 1)
    world.pass_time(minutes=1)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")

    advised = list(map(world.with_machine_numbers, reservation_advice(world)))
    check_advice(world.world, Random(0), most=100)

    assert advised == ["reserve n1 for the organisation again"]


def test_a_node_moves_to_the_control_plane_once_nothing_runs_there(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    harness.run_pod("n1")

    harness.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    pending = marks(harness, "n1"), "unschedulable" in harness.node("n1")["spec"]
    harness.stop_pod("n1")

    assert pending == (
        {STATE: "production", RESERVED: "acme", DESIRED: "control-plane"},
        True,
    )
    assert marks(harness, "n1") == {STATE: "production", RESERVED: "control-plane"}
    assert "unschedulable" not in harness.node("n1")["spec"]


def test_a_node_of_the_control_plane_takes_no_pods_of_users(world: WorldHarness) -> None:
    world.given_data_center(machines=1)
    world.apply("train", 1)

    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    taken = taints(world, "n1")
    world.create_pod("train")
    world.command_node("ReserveNode", "train", "n1", reservedDesired="acme")

    value = sha256(b"control-plane").hexdigest()[:10]
    taint = {"key": RESERVED, "value": value, "effect": "NoExecute"}
    assert taint in taken
    assert taint not in taints(world, "n1")
    assert world.pod_changes("train") == ["job Pending", "job Running n1"]


def test_where_production_is_not_tainted_a_node_that_is_back_has_no_taint_either() -> None:
    # given a control plane that does not taint Nodes in production
    world = WorldHarness(
        *(each for each in services() if each.name != "lifecycle"),
        lifecycle_service(Options(reserved_taint=False)),
    )
    world.given_data_center(machines=1)
    world.apply("train", 1)
    before = taints(world, "n1")

    # when a Node moves to the control plane and back
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    taken = taints(world, "n1")
    world.command_node("ReserveNode", "train", "n1", reservedDesired="acme")

    # then it looks as before
    assert len(taken) == len(before) + 1
    assert taints(world, "n1") == before
    assert marks(world, "n1") == {STATE: "production", RESERVED: "acme"}


def test_a_node_that_is_not_in_production_is_reserved_for_its_state(world: WorldHarness) -> None:
    world.given_data_center(boot_s=300)
    world.apply("train", 1)
    world.pass_time(minutes=5)

    world.command_node("RebootNode", "train", "n1")

    away = "production-reboot"
    taint = {
        "key": RESERVED,
        "value": sha256(away.encode()).hexdigest()[:10],
        "effect": "NoExecute",
    }
    assert marks(world, "n1") == {STATE: away, RESERVED: away}
    assert taint in taints(world, "n1")
    world.pass_time(minutes=5)
    assert marks(world, "n1") == {STATE: "production", RESERVED: "acme"}
    assert taint not in taints(world, "n1")


def test_only_a_node_in_production_is_reserved_for_something_else(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    harness.command_node("CordonNode", "train", "n1")

    refused = harness.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    harness.command_node("UncordonNode", "train", "n1")
    done = harness.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")

    (outcome,) = harness.outcomes(refused)
    assert outcome.endswith("is cordoned; it can be reserved in production")
    assert harness.outcomes(done) == ["done"]
    assert marks(harness, "n1")[RESERVED] == "control-plane"


def test_a_node_of_the_control_plane_is_unusable_until_it_is_back(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)

    harness.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    harness.command_node("RebootNode", "train", "n1")
    harness.command_node("ReserveNode", "train", "n1", reservedDesired="acme")

    changes = [line for line in harness.messages("train") if line.startswith("NodeReservation")]
    assert changes == ["NodeReservationChanged n1 False", "NodeReservationChanged n1 True"]


def test_an_explanation_counts_no_node_of_the_control_plane_for_other_organisations(
    world: WorldHarness,
) -> None:
    # given two NodePools of one organisation that have all machines
    world.given_data_center(machines=2)
    world.apply("train", 1)
    world.apply("serve", 1)

    # when the control plane takes one Node of each NodePool
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    world.command_node("ReserveNode", "serve", "n2", reservedDesired="control-plane")

    # then no Node is said to belong to other organisations alone
    shortage = explained(world, "train").causes[0]
    assert shortage.title == "Capacity is NoneAvailable"
    assert [line for line in shortage.details if "hold" in line] == [
        "other organisations or the control plane hold 2"
    ]


def test_a_node_of_the_control_plane_is_replaced_and_counts_again_once_it_is_back(
    world: WorldHarness,
) -> None:
    # given a NodePool whose Node goes to the control plane
    world.given_data_center(machines=2)
    world.apply("train", 1)
    world.start_recording()

    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    replaced = world.events("train")
    world.command_node("ReserveNode", "train", "n1", reservedDesired="acme")

    # then another machine joins, and one Node leaves once the first one counts again
    assert [line for line in replaced if "n2" in line] == [
        "CWNodeAssigned n2",
        "CWNodeRegistered n2",
    ]
    assert "CWNodePoolNodesRemoved 1 1" in world.events("train")
    assert len(world.nodes("train")) == 1


def test_a_node_with_a_problem_is_not_to_be_reserved_again(world: WorldHarness) -> None:
    # given a NodePool whose Node goes to the control plane, and no machine instead
    world.given_data_center(machines=1)
    world.apply("train", 1)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    in_production = reservation_advice(world)

    # when the Node is cordoned for a problem, and for what an operator says
    world.break_machines("n1", fault="disk")
    world.command_node("CordonNode", "train", "n1", reason="Audit")

    # then the command that would be refused is not advised
    name = world.machine_name("n1")
    assert in_production == [f"reserve {name} for the organisation again"]
    assert reservation_advice(world) == []


def test_a_deletion_removes_a_node_of_the_control_plane_too(world: WorldHarness) -> None:
    world.given_data_center(machines=1)
    world.apply("train", 1)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")

    world.delete("train")

    assert world.nodes() == []


def test_a_deletion_counts_a_node_of_the_control_plane_once(world: WorldHarness) -> None:
    # given a NodePool whose only Node is reserved for the control plane, with a Pod on the Node
    world.given_data_center(machines=1)
    world.apply("train", 1)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    world.run_pod("n1", graceS=60, tolerations=[{"key": RESERVED, "operator": "Exists"}])
    world.start_recording()

    world.delete("train")
    world.pass_time(minutes=2)

    totals = [line for line in world.events("train") if line.startswith("CWNodePool")]
    assert totals == [
        "CWNodePoolRemoveNodes 1",
        "CWNodePoolNodesRemoved 1 0",
        "CWNodePoolDeleted",
    ]


def test_a_node_of_the_control_plane_counts_against_no_limit(world: WorldHarness) -> None:
    # given an invalid NodePool whose two Nodes use up the limit, and a NodePool that waits
    world.given_data_center(quota=2)
    world.apply("train", 2)
    world.apply("train", 2, region="US-WEST-04A")
    world.apply("serve", 1)
    before = world.granted_nodes("train"), world.conditions("serve")["Quota"]

    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    away = world.granted_nodes("train"), world.conditions("serve")["Quota"]
    world.command_node("ReserveNode", "train", "n1", reservedDesired="acme")

    # then the Node that is back counts again, also above the limit
    assert before == (2, "Over")
    assert away == (1, "Under")
    assert world.granted_nodes("train") == 2
    assert world.granted_nodes("serve") == 1


def test_quota_forgets_an_invalid_pool_only_without_reserved_nodes(world: WorldHarness) -> None:
    world.given_data_center(quota=1)
    before = world.world.state("quota")
    world.apply("train", 1)
    world.apply("train", 1, region="US-WEST-04A")

    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    away = world.granted_nodes("train")
    world.command_node("ReserveNode", "train", "n1", reservedDesired="acme")
    back = world.granted_nodes("train")
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    world.delete("train")

    assert (away, back) == (0, 1)
    assert world.world.state("quota") == before


def test_a_node_of_the_control_plane_is_no_current_node(world: WorldHarness) -> None:
    # given a NodePool that has all its Nodes, and no further machine
    world.given_data_center(machines=2)
    world.apply("train", 2)

    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    away = world.node_counts("train"), world.conditions("train")["AtTarget"]
    world.command_node("ReserveNode", "train", "n1", reservedDesired="acme")

    assert away == ((2, 0, 1), "UnderTarget")
    assert world.node_counts("train") == (2, 0, 2)
    assert world.conditions("train")["AtTarget"] == "TargetMet"


def test_a_scale_down_keeps_a_node_that_has_become_one_of_the_control_plane(
    world: WorldHarness,
) -> None:
    # given a Node that is reserved before the allocator, which is late, chooses it
    world.given_data_center()
    world.grow("train", 3)
    world.start_recording()

    with world.paused("allocator"):
        world.scale("train", 2)
        world.command_node("ReserveNode", "train", "n3", reservedDesired="control-plane")

    assert world.events("train")[-4:] == [
        "CWNodePoolRemoveNodes 1",
        "CWNodeDeletionRequestSuccess n3",
        "CWNodePoolNodesRemoved 0 2",
        "CWNodePoolScaledDown 3 2",
    ]
    assert world.nodes("train") == ["n1", "n2", "n3"]
    assert world.node_counts("train") == (2, 0, 2)


def test_a_node_that_leaves_while_it_is_of_the_control_plane_is_subtracted_once(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=2)
    world.apply("train", 2, lifecycle={"disableUnhealthyNodeEviction": False})
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")

    world.break_machines("n1", fault="disk")

    assert world.nodes("train") == ["n2"]
    assert world.node_counts("train") == (2, 0, 1)
    assert world.replay_differs() == []


def test_a_node_of_the_control_plane_is_no_room_for_pods_that_wait(world: WorldHarness) -> None:
    # given an autoscaled NodePool whose only Node is idle
    world.given_data_center(machines=3)
    world.apply("train", 1, autoscaling=True, minNodes=0, maxNodes=3)
    world.pass_time(minutes=10)
    world.start_recording()

    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    for pod in ("first", "second"):
        world.create_pod("train", pod, gpus=8)
    world.pass_time(minutes=1)

    # then each Pod gets a Node of its own beside the Node of the control plane
    assert world.node_counts("train") == (2, 0, 2)
    assert [line for line in world.pod_changes("train") if "Running" in line] == [
        "first Running n2",
        "second Running n3",
    ]


def test_a_scale_down_waits_for_no_node_of_the_control_plane(world: WorldHarness) -> None:
    # given a Node of the control plane with a Pod, and two active Nodes
    world.given_data_center(machines=3)
    world.apply("train", 3)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    world.run_pod("n1", tolerations=[{"operator": "Exists"}])
    world.run_pod("n2")
    world.run_pod("n3")

    # when only idle Nodes may leave
    world.scale("train", 1)

    # then the status and the advice are about the two Nodes that count
    message = world.condition("train", "AtTarget")
    assert "has 2 Nodes and wants 1; waits for 1 of 2: n2, active" in message
    assert "; n3, active" in message
    assert "n1" not in message
    removal = explained(world, "train").causes[0]
    assert "waits for 1 of 2" in removal.message
    emptied = [each.action for each in removal.remedies if isinstance(each.action, EndWork)]
    assert [set(action.nodes) for action in emptied] == [
        {world.machine_name("n2"), world.machine_name("n3")}
    ]


def test_a_deletion_counts_nodes_of_the_control_plane_and_nodes_in_progress(
    world: WorldHarness,
) -> None:
    # given a Node of the control plane, a current Node, and a Node that boots
    world.given_data_center(machines=3, boot_s=300)
    world.apply("train", 2)
    world.pass_time(minutes=6)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")

    # when the NodePool is deleted, and nothing has left yet
    with world.paused("allocator"):
        world.delete("train")
        nodes = world.nodes("train")
        removed = world.condition("train", "NodesRemoved")
        at_target = world.condition("train", "AtTarget")

    assert nodes == ["n1", "n2", "n3"]
    assert removed == "False Pending: 3 Nodes are still to be removed."
    assert "3 Nodes are still to be removed" in at_target


def test_a_deletion_counts_the_nodes_of_the_control_plane_that_are_still_there(
    world: WorldHarness,
) -> None:
    # given a Node of the control plane whose machine hangs
    world.given_data_center(machines=1)
    world.apply("train", 1)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    world.break_machines("n1", fault="hang")

    world.delete("train")

    assert world.condition("train", "NodesRemoved") == (
        "False Pending: 1 Node is still to be removed."
    )
    assert "1 Node is still to be removed" in world.condition("train", "AtTarget")


def test_a_node_that_its_reservation_gives_back_is_scaled_down(harness: Harness) -> None:
    # given a NodePool whose reserved Node was replaced
    harness.given_data_center(machines=3)
    harness.apply("train", 2)
    harness.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    harness.start_recording()

    # when the organisation has the Node again
    harness.command_node("ReserveNode", "train", "n1", reservedDesired="acme")

    # then the NodePool has a Node too many, and a whole scale-down is published
    assert harness.node_counts("train") == (2, 0, 2)
    assert harness.event_messages("train", "CWNodePoolScaledDown") == [
        "scaled down from 3 to 2 Nodes"
    ]


@pytest.mark.parametrize(
    ("target", "growth"),
    [
        (4, ["CWNodePoolNodesRemoved 0 4"]),
        (
            5,
            [
                "CWNodeRequestQueued 1",
                "CWNodeAssigned n5",
                "CWNodePoolNodesRemoved 0 5",
                "CWNodeRegistered n5",
            ],
        ),
    ],
)
def test_a_scale_up_that_keeps_a_node_which_its_reservation_gave_back_is_announced(
    world: WorldHarness, target: int, growth: list[str]
) -> None:
    # given a NodePool with a busy Node too many, which its reservation gave back
    world.given_data_center(machines=5)
    world.apply("train", 3, lifecycle=PREFER_IDLE)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    for node in ("n2", "n3", "n4"):
        world.run_pod(node)
    with world.paused("allocator"):
        world.command_node("ReserveNode", "train", "n1", reservedDesired="acme")
        world.run_pod("n1")
    removal = world.condition("train", "AtTarget")
    world.start_recording()

    # when the target rises to the Nodes that it has, or beyond
    world.scale("train", target)

    # then it is scaled up from the last announced target, and the scale-down ends
    assert "has 4 Nodes and wants 3" in removal
    assert world.events("train") == [f"CWNodePoolScaledUp 3 {target}", *growth]
    assert world.nodes("train") == [f"n{number + 1}" for number in range(target)]


def test_a_node_that_is_given_back_is_no_victim_before_a_newer_node(world: WorldHarness) -> None:
    # given a NodePool that got a newer Node for one that the control plane uses
    world.given_data_center(machines=3)
    world.apply("train", 2)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    world.pass_time(minutes=60)

    # when the older Node is given back
    world.command_node("ReserveNode", "train", "n1", reservedDesired="acme")

    # then the newer of the idle Nodes leaves
    assert world.nodes("train") == ["n1", "n2"]


def test_a_node_that_is_lost_after_another_was_given_back_is_not_requested_anew(
    world: WorldHarness,
) -> None:
    # given a NodePool that lent a Node to the control plane, and had one too many as it came back
    world.given_data_center(machines=5)
    world.apply("train", 2, lifecycle={"disableUnhealthyNodeEviction": False})
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    world.command_node("ReserveNode", "train", "n1", reservedDesired="acme")
    world.pass_time(minutes=5)
    world.start_recording()

    # when it loses a Node
    world.break_machines("n1", fault="gpu-lost")
    world.pass_time(minutes=1)

    # then the Node is replaced, and the NodePool asks for no more Nodes than before
    assert world.events("train") == [
        "CWNodeCordoned n1",
        "CWDrainNode n1",
        "CWNodeDeleted n1",
        "CWNodeAssigned n4",
        "CWNodeRegistered n4",
    ]
    assert removal_faults(tuple(world.entries())) == []


def test_a_node_is_not_requested_anew_after_a_raised_target_kept_one_that_was_given_back(
    world: WorldHarness,
) -> None:
    # given a NodePool whose raised target is met by a busy Node that its reservation gave back
    world.given_data_center(machines=6)
    lifecycle = {**PREFER_IDLE, "disableUnhealthyNodeEviction": False}
    world.apply("train", 3, lifecycle=lifecycle)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    for node in ("n2", "n3", "n4"):
        world.run_pod(node)
    with world.paused("allocator"):
        world.command_node("ReserveNode", "train", "n1", reservedDesired="acme")
        world.run_pod("n1")
    world.scale("train", 4)
    world.stop_pod("n2")
    world.start_recording()

    # when it loses a Node
    world.break_machines("n2", fault="gpu-lost")
    world.pass_time(minutes=1)

    # then the Node is replaced, and the NodePool asks for no more Nodes than it had
    assert world.events("train") == [
        "CWNodeCordoned n2",
        "CWDrainNode n2",
        "CWNodeDeleted n2",
        "CWNodeAssigned n5",
        "CWNodeRegistered n5",
    ]
    assert removal_faults(tuple(world.entries())) == []
