"""Types that come in racks: by whole racks, each of one NVLink domain, as Nodes or as racks."""

from collections import Counter
from collections.abc import Mapping

import pytest

from nodepool.contract.commands import MACHINES_MAX
from support.constants import H100, ORG, PREFER_IDLE
from support.harness import Harness
from support.paths import machine_path, org_path, pool_path, zone_path
from support.world_harness import WorldHarness

GB200, EAST = "gb200-4x", "US-EAST-01A"
DOMAIN = "ds.coreweave.com/nvlink.domain"
R1, R2, R3 = (f"NVL-{first:05}-{EAST}" for first in (1, 19, 37))
"""The NVLink domains of the first three racks that are added."""


def given_racks(harness: Harness, racks: int, quota: int = 90) -> None:
    """A cluster with a quota, and so many free racks, each with an NVLink domain of its own."""
    harness.given_cluster(zone=EAST)
    harness.given_quota(quota, GB200, zone=EAST)
    add(harness, {"count": 18 * racks, "inRacks": True})


def add(harness: Harness, content: Mapping[str, object]) -> list[str]:
    """The outcome of a command that adds machines of the type."""
    return harness.outcomes(
        harness.send("AddMachines", zone_path(EAST), {"instanceType": GB200, **content})
    )


def want(harness: Harness, racks: object, pool: str = "train", **spec: object) -> str:
    """Applies a NodePool that has `targetRacks`."""
    content = {
        "metadata": {"name": pool},
        "spec": {"instanceType": GB200, "targetRacks": racks, **spec},
    }
    return harness.send("ApplyNodePool", pool_path(pool), content)


def break_boot(harness: Harness, *machines: str) -> None:
    """Machines fail at their next boot."""
    for machine in machines:
        path = machine_path(f"{EAST}/{harness.machine_name(machine)}")
        harness.send("BreakMachine", path, {"fault": "boot", "cause": "no power"})


def repair(harness: Harness, *machines: str) -> None:
    """Machines return from triage."""
    for machine in machines:
        path = machine_path(f"{EAST}/{harness.machine_name(machine)}")
        harness.send("RepairMachine", path, {})


def run_pod(harness: Harness, node: str) -> None:
    """A Pod begins to run on a Node."""
    path = machine_path(f"{EAST}/{harness.machine_name(node)}")
    harness.send("RunPod", path, {"pod": {"name": "job"}})


def stop_pod(harness: Harness, node: str) -> None:
    """The Pod on a Node ends."""
    path = machine_path(f"{EAST}/{harness.machine_name(node)}")
    harness.send("StopPod", path, {"name": "job"})


def domains(harness: Harness, pool: str = "train") -> dict[str, int]:
    """How many Nodes of each NVLink domain a NodePool has."""
    labels = (harness.node(node)["metadata"]["labels"] for node in harness.nodes(pool))
    return dict(Counter(each[DOMAIN] for each in labels))


def rack_status(harness: Harness, pool: str = "train") -> dict[str, int]:
    """The counts of a NodePool in racks."""
    status = part(harness, "status", pool)["rackStatus"]
    assert isinstance(status, dict)
    return status


def part(harness: Harness, name: str, pool: str = "train") -> Mapping[str, object]:
    """The spec or the status of a NodePool."""
    document = harness.document("nodepools", "/".join(pool_path(pool)))
    assert document is not None
    shown = document[name]
    assert isinstance(shown, Mapping)
    return shown


# A target in racks.


def test_quota_speaks_of_racks_where_the_spec_does(world: WorldHarness) -> None:
    given_racks(world, 2, quota=18)

    want(world, 2)
    over = world.condition("train", "Quota")
    world.send("DeleteQuota", org_path(ORG), {"zone": EAST, "instanceType": GB200})

    assert over == f"False Over: targetRacks 2 (36 Nodes) exceeds quota 18 for {GB200}"
    assert world.condition("train", "Quota") == (
        f"False NotSet: no quota is set for {GB200} in {EAST}, and targetRacks is 2 (36 Nodes)"
    )


def test_a_pool_says_how_many_racks_it_wants_and_gets_them_whole(harness: Harness) -> None:
    given_racks(harness, 3)

    want(harness, 2)

    spec = part(harness, "spec")
    assert (spec["targetRacks"], "targetNodes" in spec) == (2, False)
    assert domains(harness) == {R1: 18, R2: 18}
    assert rack_status(harness) == {"target": 2, "current": 2, "queued": 0}
    assert harness.conditions("train") == {
        "Validated": "Valid",
        "Capacity": "Sufficient",
        "Quota": "Under",
        "AtTarget": "TargetMet",
    }


REFUSED: Mapping[str, tuple[Mapping[str, object], str]] = {
    "both targets": (
        {"targetNodes": 18, "targetRacks": 1},
        "spec.targetRacks: cannot be given beside targetNodes; leave one of the two out",
    ),
    "no target": ({}, "spec.targetNodes: is required"),
    "a negative number of racks": (
        {"targetRacks": -1},
        "spec.targetRacks: input should be greater than or equal to 0",
    ),
    "more racks than a NodePool may want": (
        {"targetRacks": 55_556},
        "spec.targetRacks: input should be less than or equal to 55555",
    ),
    "half a rack": ({"targetRacks": 0.5}, "spec.targetRacks: input should be a valid integer"),
    "racks of a type that comes one by one": (
        {"targetRacks": 1, "instanceType": H100},
        "spec.targetRacks: give targetNodes instead: gd-8xh100ib-i128 does not come in racks",
    ),
    "autoscaling by the rack": (
        {"targetRacks": 1, "autoscaling": True, "minNodes": 0, "maxNodes": 36},
        "spec.autoscaling: must be false: gb200-4x comes in whole racks",
    ),
}


def test_a_wrong_target_in_racks_is_refused_naming_its_field(harness: Harness) -> None:
    given_racks(harness, 1)
    outcomes = {}

    for name, (spec, _) in REFUSED.items():
        content = {"metadata": {"name": "train"}, "spec": {"instanceType": GB200, **spec}}
        command = harness.send("ApplyNodePool", pool_path("train"), content)
        outcomes[name] = harness.outcomes(command)

    assert outcomes == {name: [f"Invalid {expected}"] for name, (_, expected) in REFUSED.items()}
    assert harness.node_pool("train") is None


def test_racks_of_an_unknown_type_are_judged_with_the_type(world: WorldHarness) -> None:
    given_racks(world, 1)

    want(world, 1, instanceType="gb200-5x")

    assert world.conditions("train") == {
        "Validated": "Invalid",
        "AtTarget": "UnderTarget",
        "Stalled": "Invalid",
    }


def test_scaling_to_whole_racks_keeps_the_target_in_racks(harness: Harness) -> None:
    given_racks(harness, 3)
    want(harness, 1)

    command = harness.scale("train", 54)

    assert harness.outcomes(command) == ["configured 2"]
    assert part(harness, "spec")["targetRacks"] == 3
    assert domains(harness) == {R1: 18, R2: 18, R3: 18}


def test_a_target_in_racks_is_not_scaled_to_a_part_of_a_rack(harness: Harness) -> None:
    given_racks(harness, 1)
    want(harness, 1)

    command = harness.scale("train", 20)

    assert harness.outcomes(command) == [
        "Invalid targetNodes: must be a multiple of 18, the Nodes of one rack: "
        "this NodePool has targetRacks"
    ]
    assert rack_status(harness) == {"target": 1, "current": 1, "queued": 0}


def test_the_target_may_change_from_nodes_to_racks_and_back(world: WorldHarness) -> None:
    given_racks(world, 1)
    world.apply("train", 18, GB200)

    in_racks = want(world, 1)
    in_nodes = world.apply("train", 18, GB200)

    assert world.outcomes(in_racks) + world.outcomes(in_nodes) == ["configured 2", "configured 3"]
    assert world.conditions("train")["AtTarget"] == "TargetMet"
    assert domains(world) == {R1: 18}


def test_racks_that_are_granted_and_not_there_are_queued(harness: Harness) -> None:
    given_racks(harness, 1)

    want(harness, 3)

    assert rack_status(harness) == {"target": 3, "current": 1, "queued": 2}
    assert harness.condition("train", "Capacity") == (
        "False NoneAvailable: none of 36 wanted Nodes of gb200-4x can be had in US-EAST-01A now, "
        "in racks of 18"
    )


def test_a_pool_that_is_being_deleted_queues_no_racks(world: WorldHarness) -> None:
    given_racks(world, 1)
    want(world, 3)

    with world.paused("lifecycle"):
        world.delete("train")
        deleting = rack_status(world)

    assert deleting == {"target": 3, "current": 1, "queued": 0}


# Whole racks of one domain.


def test_a_domain_with_fewer_free_machines_than_a_rack_is_not_used(harness: Harness) -> None:
    given_racks(harness, 1)
    for domain in ("a", "b"):
        add(harness, {"count": 17, "labels": {DOMAIN: domain}})

    want(harness, 2)

    assert domains(harness) == {R1: 18}
    assert harness.condition("train", "Capacity") == (
        "False NoneAvailable: none of 18 wanted Nodes of gb200-4x can be had in US-EAST-01A now, "
        "in racks of 18: of 34 free at most 17 share an NVLink domain"
    )


def test_a_lost_node_is_replaced_by_a_machine_of_its_own_rack(harness: Harness) -> None:
    given_racks(harness, 2)
    break_boot(harness, "n3")

    want(harness, 1)

    short = harness.condition("train", "Capacity")
    missing = dict(domains(harness)), rack_status(harness)
    repair(harness, "n3")
    assert missing == ({R1: 17}, {"target": 1, "current": 0, "queued": 1})
    assert short == (
        "False NoneAvailable: none of 1 wanted Nodes of gb200-4x can be had in US-EAST-01A now, "
        f"in racks of 18: NVLink domain {R1} lacks 1 and has 0 free"
    )
    assert domains(harness) == {R1: 18}
    assert rack_status(harness) == {"target": 1, "current": 1, "queued": 0}
    assert harness.conditions("train")["Capacity"] == "Sufficient"


def test_each_rack_that_lacks_a_node_is_queued(world: WorldHarness) -> None:
    # given a NodePool that wants one rack more than there is
    given_racks(world, 2)
    want(world, 3)
    before = rack_status(world)

    # when each of its racks lends a Node to the control plane, and its target falls to these racks
    for node in ("n1", "n19"):
        world.command_node("ReserveNode", "train", node, reservedDesired="control-plane")
    world.run_until_idle()
    three = rack_status(world)
    want(world, 2)

    # then each of them is queued, and a rack that is not there at all is another one
    assert before == {"target": 3, "current": 2, "queued": 1}
    assert three == {"target": 3, "current": 0, "queued": 3}
    assert rack_status(world) == {"target": 2, "current": 0, "queued": 2}


def test_a_rack_that_leaves_is_not_awaited(world: WorldHarness) -> None:
    # given two racks, of which one leaves and waits for the Pod of its last Node
    given_racks(world, 2)
    want(world, 2, lifecycle=PREFER_IDLE)
    for number in range(1, 20):
        run_pod(world, f"n{number}")
    want(world, 1, lifecycle=PREFER_IDLE)

    # when the rack that stays lends idle Nodes to the control plane
    for node in ("n1", "n2", "n3"):
        stop_pod(world, node)
        world.command_node("ReserveNode", "train", node, reservedDesired="control-plane")
    world.run_until_idle()

    assert rack_status(world) == {"target": 1, "current": 0, "queued": 1}


def test_a_rack_gets_its_lost_nodes_back_once_all_of_them_are_there(world: WorldHarness) -> None:
    given_racks(world, 1)
    break_boot(world, "n3", "n4")
    want(world, 1)

    repair(world, "n3")
    first, text = domains(world), world.condition("train", "Capacity")
    repair(world, "n4")

    assert first == {R1: 16}
    assert text.endswith(f"in racks of 18: NVLink domain {R1} lacks 2 and has 1 free")
    assert domains(world) == {R1: 18}


@pytest.mark.parametrize(
    ("domains", "rest"), [(4, "1 more domain lacks some"), (5, "2 more domains lack some")]
)
def test_a_pool_whose_racks_all_lack_machines_names_three_and_counts_the_others(
    harness: Harness, domains: int, rest: str
) -> None:
    given_racks(harness, domains)
    for number in range(domains):
        break_boot(harness, f"n{18 * number + 1}")

    want(harness, domains)

    text = harness.condition("train", "Capacity")
    assert text.endswith(f"NVLink domain {R3} lacks 1 and has 0 free; {rest}")


def test_a_pool_gets_another_rack_while_its_first_rack_lacks_machines(
    world: WorldHarness,
) -> None:
    # given a NodePool that wants a second rack when two machines of its first rack do not boot
    world.given_cluster(zone=EAST)
    world.given_quota(90, GB200, zone=EAST)
    add(world, {"count": 18, "inRacks": True, "bootSeconds": 600})
    break_boot(world, "n1", "n2")
    want(world, 1)
    world.pass_time(minutes=1)
    want(world, 2)
    world.pass_time(minutes=10)

    # when another rack comes
    add(world, {"count": 18, "inRacks": True})

    assert domains(world) == {R1: 16, R2: 18}


def test_a_rack_gets_back_as_many_nodes_as_a_lowered_limit_leaves(world: WorldHarness) -> None:
    # given a NodePool of 17 of the 18 Nodes of its rack, with a limit of 17
    given_racks(world, 1, quota=18)
    break_boot(world, "n1")
    want(world, 1, lifecycle={"disableUnhealthyNodeEviction": False})
    world.given_quota(17, GB200, zone=EAST)
    repair(world, "n1")

    # when it loses a Node
    machine = machine_path(f"{EAST}/{world.machine_name('n3')}")
    world.send("BreakMachine", machine, {"fault": "gpu-lost", "times": 1})
    world.pass_time(minutes=5)

    # then the free machine of its rack takes the place of that Node
    assert domains(world) == {R1: 17}
    assert world.condition("train", "Capacity").startswith("True Sufficient")


def lost_machines(world: WorldHarness) -> list[str]:
    """The machines that the racks of the NodePool `train` lost, as its status names them."""
    lost = part(world, "status").get("lostMachines", [])
    assert isinstance(lost, list)
    return [world.with_machine_numbers(machine["name"]) for machine in lost]


def test_a_pool_names_no_lost_machine_of_a_rack_that_it_has_no_more(world: WorldHarness) -> None:
    # given a rack that lost a machine
    given_racks(world, 1)
    want(world, 1, lifecycle={"disableUnhealthyNodeEviction": False})
    break_node(world, "n1", "gpu-lost")
    lost = lost_machines(world)

    # when the NodePool gives the rack up, and then wants a rack again
    want(world, 0)
    given_up = lost_machines(world)
    add(world, {"count": 18, "inRacks": True})
    want(world, 1)

    assert lost == ["n1"]
    assert given_up == []
    assert (lost_machines(world), domains(world)) == ([], {R2: 18})


def test_a_pool_names_no_lost_machine_of_a_rack_that_left_while_it_booted(
    world: WorldHarness,
) -> None:
    # given a rack that boots, and loses a machine before any Node has joined
    world.given_cluster(zone=EAST)
    world.given_quota(18, GB200, zone=EAST)
    add(world, {"count": 1, "labels": {DOMAIN: "a"}})
    add(world, {"count": 17, "labels": {DOMAIN: "a"}, "bootSeconds": 60})
    break_boot(world, "n1")
    want(world, 1)
    lost = lost_machines(world)

    # when the NodePool gives the rack up
    want(world, 0)
    world.pass_time(minutes=2)

    assert (lost, world.nodes("train")) == (["n1"], [])
    assert lost_machines(world) == []


def test_a_pool_names_no_lost_machine_of_a_rack_that_left_while_another_booted(
    world: WorldHarness,
) -> None:
    # given two racks that boot, of which the first loses a machine
    world.given_cluster(zone=EAST)
    world.given_quota(36, GB200, zone=EAST)
    add(world, {"count": 1, "labels": {DOMAIN: "a"}})
    add(world, {"count": 17, "labels": {DOMAIN: "a"}, "bootSeconds": 60})
    add(world, {"count": 18, "labels": {DOMAIN: "b"}, "bootSeconds": 600})
    break_boot(world, "n1")
    want(world, 2)
    lost = lost_machines(world)

    # when the NodePool gives the first rack up
    want(world, 1)
    given_up = lost_machines(world)
    world.pass_time(minutes=11)

    assert (lost, given_up) == (["n1"], [])
    assert (lost_machines(world), domains(world)) == ([], {"b": 18})


def test_a_pool_names_the_lost_machine_of_a_rack_while_the_control_plane_has_its_last_node(
    world: WorldHarness,
) -> None:
    # given a rack that lost a machine, and of which the control plane has a Node
    given_racks(world, 1)
    want(world, 1, lifecycle={"disableUnhealthyNodeEviction": False})
    break_node(world, "n1", "gpu-lost")
    world.command_node("ReserveNode", "train", "n2", reservedDesired="control-plane")

    # when the NodePool gives all its other Nodes up
    want(world, 0)
    reserved = lost_machines(world), world.nodes("train")
    world.command_node("ReserveNode", "train", "n2", reservedDesired=ORG)

    # then the rack is given up with its last Node, which leaves once it is back
    assert reserved == (["n1"], ["n2"])
    assert (lost_machines(world), world.nodes("train")) == ([], [])


def test_what_a_rack_has_lost_is_not_given_to_another_pool(harness: Harness) -> None:
    given_racks(harness, 1)
    break_boot(harness, "n3")
    want(harness, 1)

    want(harness, 1, "other")
    repair(harness, "n3")

    assert domains(harness) == {R1: 18}
    assert harness.nodes("other") == []


def given_an_incomplete_rack_and_a_lower_priority(
    world: WorldHarness, *, is_reserved: bool = False
) -> None:
    """`train` has 17 Nodes of a rack and wants another rack, for which `other` waits longer.

    is_reserved: whether the control plane has the last Node; if not, its machine is in triage.
    """
    given_racks(world, 1)
    if not is_reserved:
        break_boot(world, "n1")
    want(world, 1, schedulingPriority={"value": 5})
    if is_reserved:
        world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    world.pass_time(minutes=1)
    want(world, 1, "other")
    world.pass_time(minutes=1)
    want(world, 2, schedulingPriority={"value": 5})


@pytest.mark.parametrize("is_reserved", [False, True], ids=["in triage", "reserved"])
def test_a_pool_with_an_incomplete_rack_gets_a_rack_before_a_pool_of_lower_priority(
    world: WorldHarness, *, is_reserved: bool
) -> None:
    given_an_incomplete_rack_and_a_lower_priority(world, is_reserved=is_reserved)

    before = part(world, "status")["queuePosition"]
    add(world, {"count": 18, "inRacks": True})

    assert before == 1
    assert domains(world)[R2] == 18
    assert world.nodes("other") == []


def test_a_pool_whose_racks_are_completed_still_gets_a_rack_before_a_pool_of_lower_priority(
    world: WorldHarness,
) -> None:
    given_an_incomplete_rack_and_a_lower_priority(world)

    # when the machine of the incomplete rack and a rack come at once
    with world.paused("allocator"):
        repair(world, "n1")
        add(world, {"count": 18, "inRacks": True})

    assert domains(world) == {R1: 18, R2: 18}
    assert world.nodes("other") == []


def test_two_pools_never_share_a_rack(harness: Harness) -> None:
    given_racks(harness, 3)

    want(harness, 2)
    want(harness, 2, "other")

    assert (domains(harness), domains(harness, "other")) == ({R1: 18, R2: 18}, {R3: 18})


# Scaling down.


def test_scaling_down_removes_a_whole_rack_the_newest_first(harness: Harness) -> None:
    given_racks(harness, 2)
    want(harness, 1)
    want(harness, 2)
    harness.start_recording()

    want(harness, 1)

    events = harness.events("train")
    assert events[0] == "CWNodePoolRemoveNodes 18"
    assert events[-2:] == ["CWNodePoolNodesRemoved 18 18", "CWNodePoolScaledDown 36 18"]
    assert domains(harness) == {R1: 18}


def test_an_incomplete_rack_leaves_before_a_whole_one(harness: Harness) -> None:
    given_racks(harness, 2)
    break_boot(harness, "n3")
    want(harness, 2)
    harness.start_recording()

    want(harness, 1)

    assert harness.events("train")[0] == "CWNodePoolRemoveNodes 17"
    assert domains(harness) == {R2: 18}
    assert harness.conditions("train")["AtTarget"] == "TargetMet"


def test_a_rack_on_which_nothing_runs_leaves_before_a_newer_one(harness: Harness) -> None:
    given_racks(harness, 2)
    want(harness, 2, lifecycle=PREFER_IDLE)
    run_pod(harness, "n20")

    want(harness, 1, lifecycle=PREFER_IDLE)

    assert domains(harness) == {R2: 18}


def test_idle_only_waits_until_a_whole_rack_is_idle(harness: Harness) -> None:
    given_racks(harness, 2)
    want(harness, 2)
    run_pod(harness, "n5")
    run_pod(harness, "n20")

    want(harness, 1)
    waiting = domains(harness), harness.conditions("train")["AtTarget"]
    stop_pod(harness, "n5")

    assert waiting == ({R1: 18, R2: 18}, "OverTarget")
    assert domains(harness) == {R2: 18}


def test_a_surplus_of_racks_waits_for_no_more_nodes_than_keep_racks_from_leaving(
    world: WorldHarness,
) -> None:
    # given three racks, of which one has one busy Node, and the others have two
    given_racks(world, 3)
    want(world, 3)
    for node in ("n1", "n19", "n20", "n37", "n38"):
        run_pod(world, node)

    # when one rack is wanted, and the Nodes become idle that are in the way
    want(world, 1)
    both = world.condition("train", "AtTarget")
    stop_pod(world, "n1")
    one = world.condition("train", "AtTarget")
    for node in ("n19", "n20"):
        stop_pod(world, node)

    # then the number of the Nodes that are waited for is that of the busy Nodes of two racks
    assert "NodePool has 54 Nodes and wants 18; waits for 3 of 5: " in both
    assert "NodePool has 36 Nodes and wants 18; waits for 2 of 4: " in one
    assert world.conditions("train")["AtTarget"] == "TargetMet"


def test_a_surplus_waits_for_no_rack_that_is_too_large_to_leave(world: WorldHarness) -> None:
    # given a rack that has lost a Node and has two busy Nodes, and a whole one with one busy Node
    given_racks(world, 2)
    cures = {"disableUnhealthyNodeEviction": False}
    want(world, 2, lifecycle=cures)
    break_node(world, "n1", "gpu-lost")
    for node in ("n2", "n3", "n20"):
        run_pod(world, node)

    # when one rack is wanted, and the Nodes become idle that are waited for
    want(world, 1, lifecycle=cures)
    waiting = world.condition("train", "AtTarget")
    for node in ("n2", "n3"):
        stop_pod(world, node)

    # then these were the Nodes of the smaller rack
    assert waiting == over(35, "n2", "n3")
    assert domains(world) == {R2: 18}


def given_a_surplus_while_a_node_boots(world: WorldHarness) -> None:
    """One of two racks is to leave: R1 is idle and boots a Node; R2 lacks one, and n20 works."""
    world.given_cluster(zone=EAST)
    world.given_quota(36, GB200, zone=EAST)
    add(world, {"count": 36, "inRacks": True, "bootSeconds": 1200, "repairSeconds": 0})
    cures = {"disableUnhealthyNodeEviction": False}
    want(world, 2, lifecycle=cures)
    world.pass_time(minutes=30)
    for node in ("n1", "n19"):
        break_node(world, node, "gpu-lost")
    world.pass_time(minutes=1)
    repair(world, "n1")
    run_pod(world, "n20")
    want(world, 1, lifecycle=cures)
    world.pass_time(minutes=1)


def test_a_node_that_boots_counts_for_its_rack_which_is_then_too_large_to_leave(
    world: WorldHarness,
) -> None:
    given_a_surplus_while_a_node_boots(world)

    waiting = world.condition("train", "AtTarget")
    stop_pod(world, "n20")

    assert "NodePool has 34 Nodes and wants 18; waits for n20, active with Pods job" in waiting
    assert domains(world) == {R1: 18}


def given_a_surplus_while_a_part_of_a_rack_is_busy(world: WorldHarness) -> None:
    """One of three racks is wanted: R1 has lost n1 and is busy with n2, and two racks are idle."""
    given_racks(world, 3)
    cures = {"disableUnhealthyNodeEviction": False}
    want(world, 3, lifecycle=cures)
    break_node(world, "n1", "gpu-lost")
    run_pod(world, "n2")
    want(world, 1, lifecycle=cures)


def test_no_more_nodes_leave_than_are_too_many_while_a_part_of_a_rack_is_busy(
    world: WorldHarness,
) -> None:
    given_a_surplus_while_a_part_of_a_rack_is_busy(world)

    # when the busy Node becomes idle later
    waiting = domains(world), world.condition("train", "AtTarget")
    stop_pod(world, "n2")

    # then one whole rack has left at once, and the other one stays
    assert waiting == ({R1: 17, R3: 18}, over(35, "n2"))
    assert world.events("train").count("CWNodePoolRemoveNodes 35") == 1
    assert domains(world) == {R3: 18}


def test_a_surplus_waits_for_the_rack_of_which_the_control_plane_has_a_node(
    world: WorldHarness,
) -> None:
    # given two racks with busy Nodes, and a Node of the first that the control plane has
    given_racks(world, 2)
    want(world, 2)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    for node in ("n2", "n3", "n20"):
        run_pod(world, node)

    want(world, 1)

    assert world.condition("train", "AtTarget") == over(35, "n2", "n3")


def test_a_surplus_without_nvlink_domains_waits_until_a_rack_is_idle(world: WorldHarness) -> None:
    # given two racks of machines without a domain, with twenty busy Nodes
    given_racks(world, 0)
    add(world, {"count": 36})
    want(world, 2)
    for number in range(1, 21):
        run_pod(world, f"n{number}")

    # when one rack is wanted, and two Nodes become idle
    want(world, 1)
    waiting = world.condition("train", "AtTarget")
    for node in ("n1", "n2"):
        stop_pod(world, node)

    # then these were as many as the idle Nodes lack to be a rack
    assert waiting.startswith(
        "False OverTarget: NodePool has 36 Nodes and wants 18; waits for 2 of 20: "
    )
    assert world.conditions("train")["AtTarget"] == "TargetMet"


def over(count: int, *nodes: str) -> str:
    """The condition AtTarget of so many Nodes where one rack is wanted and these are busy."""
    busy = "; ".join(f"{node}, active with Pods job since 2026-01-01T00:00:00Z" for node in nodes)
    return f"False OverTarget: NodePool has {count} Nodes and wants 18; waits for {busy}."


def test_a_target_that_rises_again_spares_a_whole_rack(world: WorldHarness) -> None:
    given_racks(world, 2)
    want(world, 2)
    with world.paused("lifecycle"):
        want(world, 1)
        want(world, 2)

    assert domains(world) == {R1: 18, R2: 18}
    assert world.conditions("train")["AtTarget"] == "TargetMet"


def test_a_rack_with_a_busy_node_stays_whole_once_only_idle_nodes_may_leave(
    world: WorldHarness,
) -> None:
    # given a rack that leaves, and that waits for the Pods of one Node
    given_racks(world, 1)
    want(world, 1, lifecycle=PREFER_IDLE)
    run_pod(world, "n5")
    with world.paused("lifecycle"):
        want(world, 0, lifecycle=PREFER_IDLE)
        world.start_recording()

        # when the strategy changes, so that busy Nodes stay, and the allocator hears of no more
        with world.paused("quota", "capacity"):
            want(world, 0)
            kept = [each for each in world.messages("train") if "NodeRemovalCancelled" in each]

    # then all Nodes of the rack stay with it
    assert sorted(kept) == sorted(f"NodeRemovalCancelled n{number}" for number in range(1, 19))
    assert domains(world) == {R1: 18}


def test_a_node_that_became_active_stays_behind_its_rack_until_it_is_idle(
    world: WorldHarness,
) -> None:
    given_racks(world, 2)
    want(world, 1)
    want(world, 2)
    with world.paused("lifecycle"):
        want(world, 1)
        run_pod(world, "n20")

    behind = domains(world), world.conditions("train")["AtTarget"]
    stop_pod(world, "n20")

    assert behind == ({R1: 18, R2: 1}, "OverTarget")
    assert domains(world) == {R1: 18}
    assert world.conditions("train")["AtTarget"] == "TargetMet"


def given_a_rack_that_leaves_with_pods(world: WorldHarness, lost: int, *pods: str) -> None:
    """One rack is wanted of two: Pods keep `pods` of the second; the first has lost Nodes."""
    cures = {"disableUnhealthyNodeEviction": False, **PREFER_IDLE}
    world.given_cluster(zone=EAST)
    world.given_quota(90, GB200, zone=EAST)
    add(world, {"count": 36, "inRacks": True, "bootSeconds": 300})
    want(world, 2, lifecycle=cures)
    world.pass_time(minutes=5)
    for node in pods:
        run_pod(world, node)
    break_node(world, "n36", "gpu-lost")
    want(world, 1, lifecycle=cures)
    world.pass_time(minutes=5)
    for number in range(lost):
        break_node(world, f"n{number + 1}", "gpu-lost")
    world.start_recording()
    world.pass_time(minutes=60)


def test_no_node_goes_to_a_rack_that_leaves(world: WorldHarness) -> None:
    # given a rack that leaves except for one Node, and a rack that stays and lacks two
    given_a_rack_that_leaves_with_pods(world, 2, "n35")
    waiting, short = domains(world), world.condition("train", "Capacity")
    events = world.events("train")

    # when the machines of the rack that stays are repaired, and the Pod ends
    repair(world, "n1", "n2")
    world.pass_time(minutes=10)
    stop_pod(world, "n35")
    world.pass_time(minutes=10)

    assert (waiting, events) == ({R1: 16, R2: 1}, [])
    assert short == (
        "False NoneAvailable: none of 1 wanted Nodes of gb200-4x can be had in US-EAST-01A now, "
        f"in racks of 18: NVLink domain {R1} lacks 2 and has 0 free"
    )
    assert domains(world) == {R1: 18}


def test_no_node_goes_to_a_rack_that_leaves_though_it_is_the_larger_one(
    world: WorldHarness,
) -> None:
    # given a rack that leaves except for nine Nodes, and a rack that stays and has lost ten
    run = [f"n{number}" for number in range(27, 36)]
    given_a_rack_that_leaves_with_pods(world, 10, *run)

    assert domains(world) == {R1: 8, R2: 9}
    assert world.events("train") == []
    assert world.condition("train", "Capacity").endswith(
        f"in racks of 18: NVLink domain {R1} lacks 10 and has 0 free"
    )


def test_a_rack_that_stays_until_it_is_idle_gets_no_node(world: WorldHarness) -> None:
    # given two racks that have lost Nodes, of which the smaller is to leave once it is idle
    given_racks(world, 2)
    cures = {"disableUnhealthyNodeEviction": False}
    want(world, 2, lifecycle=cures)
    run_pod(world, "n36")
    broken = (*range(1, 3), *range(19, 36))
    for number in broken:
        break_node(world, f"n{number}", "gpu-lost")

    # when one rack is wanted, and a machine of the rack that leaves is repaired
    want(world, 1, lifecycle=cures)
    repair(world, "n19")

    assert domains(world) == {R1: 16, R2: 1}
    assert world.condition("train", "Capacity").endswith(
        f"in racks of 18: NVLink domain {R1} lacks 2 and has 0 free"
    )


# Adding racks.


def test_each_rack_that_is_added_has_a_domain_of_its_own(harness: Harness) -> None:
    given_racks(harness, 1)

    add(harness, {"count": 36, "inRacks": True})
    want(harness, 3)

    assert domains(harness) == {R1: 18, R2: 18, R3: 18}


NO_WHOLE_RACKS: Mapping[str, tuple[Mapping[str, object], str]] = {
    "a part of a rack": (
        {"count": 20},
        "Invalid count: must be a multiple of 18, the machines of one rack",
    ),
    "with a domain": (
        {"count": 18, "labels": {DOMAIN: "a"}},
        f"Invalid labels[{DOMAIN}]: must be left out: with inRacks each rack has one",
    ),
    "not offered": (
        {"count": 18, "instanceType": "gd-1xgh200"},
        "Invalid zone: gd-1xgh200 is not offered in US-EAST-01A",
    ),
    "too many": (
        {"count": 18 * (MACHINES_MAX // 18 + 1)},
        "Invalid count: input should be less than",
    ),
}


def test_machines_that_are_no_whole_racks_are_refused(harness: Harness) -> None:
    for content, expected in NO_WHOLE_RACKS.values():
        outcomes = add(harness, {"inRacks": True, **content})

        assert [outcome[: len(expected)] for outcome in outcomes] == [expected]
    assert harness.documents("machines") == {}


def test_racks_of_a_type_that_comes_one_by_one_are_refused(world: WorldHarness) -> None:
    outcomes = add(world, {"instanceType": H100, "count": 18, "inRacks": True})

    assert outcomes == [f"Invalid inRacks: must be false: {H100} comes one by one"]


# Racks of which too many Nodes are unavailable.


CORDON_REASON = "node.coreweave.cloud/cordonReason"


def cordon_reasons(harness: Harness) -> dict[str, int]:
    """How many Nodes are cordoned for which causes."""
    nodes = [harness.node(node) for node in harness.nodes("train")]
    cordoned = [node for node in nodes if "unschedulable" in node["spec"]]
    return dict(Counter(node["metadata"]["annotations"][CORDON_REASON] for node in cordoned))


def break_node(harness: Harness, node: str, fault: str, times: int = 1) -> None:
    """A Node has a problem; with no times it has it no more."""
    path = machine_path(f"{EAST}/{harness.machine_name(node)}")
    harness.send("BreakMachine", path, {"fault": fault, "times": times})


def test_a_rack_with_more_than_two_unavailable_nodes_is_cordoned_whole(harness: Harness) -> None:
    given_racks(harness, 2)
    want(harness, 2)
    for node in ("n1", "n2"):
        break_node(harness, node, "disk")
    two = cordon_reasons(harness)

    harness.command_node("CordonNode", "train", "n3", reason="maintenance")

    assert two == {"ReadonlyFilesystem": 2}
    assert cordon_reasons(harness) == {
        "ReadonlyFilesystem": 2,
        "maintenance": 1,
        f"RackUnavailable {R1}": 15,
    }


def test_a_rack_is_used_again_once_two_nodes_or_fewer_are_unavailable(harness: Harness) -> None:
    given_racks(harness, 1)
    want(harness, 1)
    for node in ("n1", "n2", "n3"):
        break_node(harness, node, "disk")
    harness.start_recording()

    break_node(harness, "n2", "disk", times=0)

    assert cordon_reasons(harness) == {"ReadonlyFilesystem": 2}
    assert harness.events("train").count("CWNodeUncordoned n2") == 1
    assert len(harness.events("train")) == 16


def test_a_node_that_recovers_in_a_rack_that_is_not_stays_cordoned(world: WorldHarness) -> None:
    given_racks(world, 1)
    want(world, 1)
    for node in ("n1", "n2", "n3", "n4"):
        break_node(world, node, "disk")

    break_node(world, "n1", "disk", times=0)

    assert cordon_reasons(world) == {"ReadonlyFilesystem": 3, f"RackUnavailable {R1}": 15}


def test_machines_in_triage_count_as_unavailable_until_they_are_back(world: WorldHarness) -> None:
    given_racks(world, 1)
    break_boot(world, "n1", "n2", "n3")
    want(world, 1)

    short = cordon_reasons(world)
    repair(world, "n1", "n2", "n3")

    assert short == {f"RackUnavailable {R1}": 15}
    assert domains(world) == {R1: 18}
    assert cordon_reasons(world) == {}


def test_a_node_that_joins_a_rack_that_is_cordoned_is_cordoned_too(world: WorldHarness) -> None:
    world.given_cluster(zone=EAST)
    world.given_quota(18, GB200, zone=EAST)
    add(world, {"count": 3, "labels": {DOMAIN: "a"}})
    add(world, {"count": 15, "labels": {DOMAIN: "a"}, "bootSeconds": 60})
    break_boot(world, "n1", "n2", "n3")
    want(world, 1)

    world.pass_time(minutes=1)

    assert cordon_reasons(world) == {"RackUnavailable a": 15}


def test_work_goes_on_in_a_rack_that_is_cordoned(world: WorldHarness) -> None:
    given_racks(world, 1)
    want(world, 1, lifecycle={"disableUnhealthyNodeEviction": False})
    run_pod(world, "n9")

    for node in ("n1", "n2", "n3"):
        break_node(world, node, "gpu-lost")

    assert cordon_reasons(world) == {f"RackUnavailable {R1}": 15}
    assert world.node_conditions("n9")["CWActive"] == "True WorkloadsRunning"
    assert len(world.nodes("train")) == 15


def test_a_cordon_for_a_rack_is_not_ended_by_command(world: WorldHarness) -> None:
    given_racks(world, 1)
    want(world, 1)
    for node in ("n1", "n2", "n3"):
        break_node(world, node, "disk")

    name = world.machine_name("n9")
    uncordoned = world.command_node("UncordonNode", "train", "n9")
    cordoned = world.command_node("CordonNode", "train", "n9", reason=f"RackUnavailable {R1}")

    assert world.outcomes(uncordoned) == [
        f"Invalid node: {name} is cordoned until this is over: RackUnavailable {R1}"
    ]
    assert world.outcomes(cordoned) == [
        f"Invalid reason: must not be RackUnavailable {R1}, which is said only where it is found"
    ]


def test_machines_without_a_domain_are_no_rack_to_be_cordoned(world: WorldHarness) -> None:
    given_racks(world, 1, quota=0)
    world.given_quota(18, GB200, zone=EAST)
    add(world, {"count": 18})
    world.apply("train", 18, GB200, affinity=no_domain())

    for node in ("n19", "n20", "n21"):
        break_node(world, node, "disk")

    assert cordon_reasons(world) == {"ReadonlyFilesystem": 3}


def no_domain() -> dict[str, object]:
    """The affinity to machines without an NVLink domain."""
    expression = {"key": DOMAIN, "operator": "DoesNotExist"}
    terms = [{"matchExpressions": [expression]}]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"nodeAffinity": {required: {"nodeSelectorTerms": terms}}}


def test_a_reserved_node_returns_to_a_rack_that_is_complete_only_with_it(
    world: WorldHarness,
) -> None:
    # given a rack whose last missing place is that of a Node of the control plane
    given_racks(world, 1)
    want(world, 1, lifecycle={"disableUnhealthyNodeEviction": False})
    world.pass_time(minutes=5)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    world.pass_time(minutes=5)
    for machine in ("n2", "n3", "n4"):
        path = machine_path(f"{EAST}/{world.machine_name(machine)}")
        world.send("BreakMachine", path, {"fault": "gpu-lost", "times": 1})
    world.pass_time(minutes=5)
    repair(world, "n2", "n3", "n4")
    world.pass_time(minutes=60)

    returned = world.command_node("ReserveNode", "train", "n1", reservedDesired=ORG)
    world.pass_time(minutes=60)

    assert world.outcomes(returned) == ["done"]
    assert domains(world) == {R1: 18}
    assert world.condition("train", "AtTarget").startswith("True TargetMet")
