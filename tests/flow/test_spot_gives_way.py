"""Spot Nodes give way: to `default` NodePools that are short, just as many as are needed."""

import pytest

from nodepool.contract.events import NodePreemptionRequested
from support.constants import A100, H100, PREFER_IDLE, RACK, ZONE
from support.harness import Harness
from support.services import NAMES
from support.simulation.bounded import bounded
from support.world_harness import WorldHarness


def given_spot(world: Harness, nodes: int = 3, machines: int = 0) -> None:
    """A spot NodePool of so many Nodes in a data center of so many machines; recording starts."""
    world.given_data_center(machines=machines or nodes)
    world.grow("cheap", nodes, computeClass="spot")
    world.start_recording()


def preempted(world: Harness, pool: str = "cheap") -> list[str]:
    """The Nodes of a NodePool of which the preemption was announced since recording started."""
    return [
        line.removeprefix("PreemptionPending ")
        for line in world.events(pool)
        if line.startswith("PreemptionPending")
    ]


def test_as_many_spot_nodes_are_preempted_as_a_default_pool_lacks(world: WorldHarness) -> None:
    given_spot(world, 3, machines=4)

    world.apply("train", 3)
    world.pass_time(minutes=8)

    assert preempted(world) == ["n3", "n2"]
    assert world.nodes("train") == ["n2", "n3", "n4"]
    assert world.node_counts("cheap") == (3, 0, 1)


def test_the_timetable_of_a_node_that_gives_way_is_the_documented_one(world: WorldHarness) -> None:
    given_spot(world, 1)
    world.run_pod("n1", graceS=3600)

    world.apply("train", 1)
    world.pass_time(minutes=8)

    assert world.timed_events("cheap")[:5] == [
        "0:00 PreemptionPending n1",
        "2:00 PreemptionInProgress n1",
        "2:00 CWDrainNode n1",
        "7:00 CWNodeDeleted n1",
        "7:00 DeletedForPreemption n1",
    ]
    assert "7:00 CWNodeAssigned n1" in world.timed_events("train")


def test_idle_nodes_go_before_active_ones_and_newer_ones_first(world: WorldHarness) -> None:
    given_spot(world, 4)
    world.run_pod("n4")

    world.apply("train", 2)

    assert preempted(world) == ["n3", "n2"]


def test_nodes_of_the_pool_with_the_lowest_priority_go_first(world: WorldHarness) -> None:
    # given an idle Node of a NodePool that matters more, and an active one of another
    world.given_data_center(machines=2)
    world.apply("dear", 1, computeClass="spot", schedulingPriority={"value": 5})
    world.apply("cheap", 1, computeClass="spot", schedulingPriority={"value": -5})
    world.run_pod("n2")
    world.start_recording()

    world.apply("train", 1)

    assert preempted(world, "dear") == []
    assert preempted(world, "cheap") == ["n2"]


def given_a_newer_node_with_a_priority(world: WorldHarness) -> None:
    """An organisation gives the newer of two spot Nodes a high priority; recording starts."""
    world.given_data_center(machines=2)
    world.given_cluster("main", org="beta")
    world.given_quota(10, org="beta")
    world.apply("cheap", 1, computeClass="spot")
    world.apply("beta/main/dear", 1, computeClass="spot", schedulingPriority={"value": 5})
    world.start_recording()


def test_a_priority_moves_no_preemption_to_another_organisation(world: WorldHarness) -> None:
    given_a_newer_node_with_a_priority(world)

    world.apply("train", 1)

    assert preempted(world, "cheap") == []
    assert preempted(world, "beta/main/dear") == ["n2"]


def when_two_pools_are_short_at_once(world: WorldHarness) -> None:
    """Two NodePools wait for Nodes that leave and are kept; only the second has an affinity."""
    world.given_machines(2, labels={RACK: "r1"})
    world.apply("kept", 2, lifecycle=PREFER_IDLE)
    for node in world.nodes("kept"):
        world.run_pod(node, interruption="graceful", graceS=300)
    world.scale("kept", 0)
    world.apply("any", 1)
    world.apply("picky", 1, affinity=affinity_to_rack("r1"))
    world.start_recording()
    world.scale("kept", 2)


def test_a_node_that_a_priority_spares_gives_way_to_another_pool_at_once(
    world: WorldHarness,
) -> None:
    # given a newer spot Node with a higher priority, which alone fits one of two NodePools
    world.given_cluster()
    world.given_quota(100)
    world.given_machines(1, labels={RACK: "r2"})
    world.apply("cheap", 1, computeClass="spot")
    world.given_machines(1, labels={RACK: "r1"})
    world.apply("dear", 1, computeClass="spot", schedulingPriority={"value": 5})

    when_two_pools_are_short_at_once(world)

    assert world.timed_events("cheap")[:1] == ["0:00 PreemptionPending n1"]
    assert world.timed_events("dear")[:1] == ["0:00 PreemptionPending n2"]


def test_a_node_that_a_priority_spares_takes_the_place_of_the_node_that_goes(
    world: WorldHarness,
) -> None:
    # given two organisations with Nodes that fit; the newest Node has a high priority
    world.given_cluster()
    world.given_cluster("main", org="beta")
    world.given_quota(100)
    world.given_quota(10, org="beta")
    world.given_machines(3, labels={RACK: "r1"})
    world.apply("cheap", 1, computeClass="spot")
    world.apply("beta/main/other", 1, computeClass="spot")
    world.apply("dear", 1, computeClass="spot", schedulingPriority={"value": 5})

    when_two_pools_are_short_at_once(world)

    # then each organisation gives up one Node, as the order of all their Nodes says
    assert preempted(world, "cheap") == ["n1"]
    assert preempted(world, "beta/main/other") == ["n2"]
    assert preempted(world, "dear") == []


def test_several_pools_at_once_are_served_in_the_order_in_which_they_wait(
    world: WorldHarness,
) -> None:
    given_spot(world, 2)

    with world.sent_together():
        world.apply("first", 1)
        world.apply("second", 1)
        world.apply("urgent", 1, schedulingPriority={"value": 9})
    world.pass_time(minutes=8)

    assert preempted(world) == ["n2", "n1"]
    assert len(world.nodes("urgent")) == 1
    assert len(world.nodes("first")) == 1
    assert world.nodes("second") == []


def test_a_node_that_is_preempted_already_counts(world: WorldHarness) -> None:
    given_spot(world, 3)
    world.preempt("cheap", "n1")

    world.apply("train", 1)

    assert preempted(world) == ["n1"]


def test_a_node_that_leaves_a_default_pool_counts(world: WorldHarness) -> None:
    # given a Node that still drains
    world.given_data_center(machines=2)
    world.apply("cheap", 1, computeClass="spot")
    world.apply("old", 1)
    world.run_pod("n2", interruption="graceful", graceS=60)
    world.delete("old")
    world.start_recording()

    world.apply("train", 1)
    world.pass_time(minutes=2)

    assert preempted(world) == []
    assert world.nodes("train") == ["n2"]


def test_a_spot_node_whose_removal_waits_for_a_pod_goes_first(world: WorldHarness) -> None:
    # given a scale-down that a Pod blocks
    world.given_data_center(machines=2)
    world.grow("cheap", 2, computeClass="spot", lifecycle=PREFER_IDLE)
    world.run_pod("n1", graceS=60)
    world.run_pod("n2", graceS=60)
    world.scale("cheap", 1)
    world.start_recording()

    world.apply("train", 1)
    world.pass_time(minutes=3)

    # then no other Node has to go, and the Pod is warned before it is ended
    assert world.nodes("cheap") == ["n1"]
    assert world.nodes("train") == ["n2"]
    assert world.timed_events("cheap")[:5] == [
        "0:00 PreemptionPending n2",
        "2:00 PreemptionInProgress n2",
        "2:00 CWDrainNode n2",
        "3:00 CWNodeDeleted n2",
        "3:00 DeletedForPreemption n2",
    ]


def test_a_booting_spot_node_gives_way_at_once(world: WorldHarness) -> None:
    world.given_data_center(machines=1, boot_s=600)
    world.apply("cheap", 1, computeClass="spot")
    world.start_recording()

    world.apply("train", 1)

    assert world.timed_events("cheap")[0] == "0:00 CWNodeDeleted n1"
    assert "0:00 CWNodeAssigned n1" in world.timed_events("train")


def test_only_nodes_that_fit_the_affinity_give_way(world: WorldHarness) -> None:
    # given one Node in the rack that is wanted, and a newer one elsewhere
    world.given_data_center(machines=0)
    world.given_machines(1, labels={RACK: "r1"})
    world.given_machines(1, labels={RACK: "r2"})
    world.apply("cheap", 2, computeClass="spot")
    world.start_recording()

    world.apply("train", 2, affinity=affinity_to_rack("r1"))
    world.pass_time(minutes=8)

    assert preempted(world) == ["n1"]
    assert world.nodes("train") == ["n1"]
    assert world.nodes("cheap") == ["n2"]


def affinity_to_rack(rack: str) -> dict[str, object]:
    """A node affinity that only machines of this rack satisfy."""
    expression = {"key": RACK, "operator": "In", "values": [rack]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def test_spot_nodes_of_another_type_or_zone_stay(world: WorldHarness) -> None:
    given_spot(world, 1)
    world.given_quota(5, A100)

    world.apply("train", 1, A100)

    assert preempted(world) == []


def test_a_spot_pool_that_is_short_takes_nothing_from_another(world: WorldHarness) -> None:
    given_spot(world, 1)

    world.apply("other", 1, computeClass="spot", schedulingPriority={"value": 9})

    assert preempted(world) == []


def test_a_pool_beyond_its_quota_takes_only_what_it_is_granted(world: WorldHarness) -> None:
    world.given_data_center(machines=3, quota=4)
    world.grow("cheap", 3, computeClass="spot")
    world.start_recording()

    world.apply("train", 1)
    world.scale("train", 3)
    world.pass_time(minutes=8)

    assert preempted(world) == ["n3"]
    assert world.nodes("train") == ["n3"]


def test_spot_nodes_of_another_organisation_give_way_too(world: WorldHarness) -> None:
    given_spot(world, 1)
    world.given_cluster("edge", org="globex")
    world.given_quota(1, org="globex")

    world.apply("globex/edge/train", 1)
    world.pass_time(minutes=8)

    # then they are not told for whom
    asked = [envelope.data for envelope in world.envelopes_of("cheap")]
    told = [each.beneficiary for each in asked if isinstance(each, NodePreemptionRequested)]
    assert world.nodes("globex/edge/train") == ["n1"]
    assert told == [""]


def test_a_preemption_that_has_begun_goes_on_when_the_pool_wants_less(world: WorldHarness) -> None:
    given_spot(world, 2)
    world.apply("train", 2)
    world.pass_time(minutes=1)

    world.scale("train", 1)
    world.pass_time(minutes=8)

    # then the spot NodePool refills by itself
    assert len(world.nodes("train")) == 1
    assert world.node_counts("cheap") == (2, 0, 1)


def test_a_machine_that_fails_is_made_up_for_by_another(world: WorldHarness) -> None:
    given_spot(world, 2)
    world.break_machines("n2", fault="boot")

    world.apply("train", 1)
    world.pass_time(minutes=20)

    assert preempted(world) == ["n2", "n1"]
    assert world.nodes("train") == ["n1"]


def test_a_node_whose_machine_goes_to_triage_does_not_give_way(world: WorldHarness) -> None:
    # given the newest Node, which would go first, with a fault that a technician has to see to
    given_spot(world, 2)
    world.break_machines("n2", fault="gpu-lost")

    world.apply("train", 1)
    world.pass_time(minutes=8)

    assert preempted(world) == ["n1"]
    assert world.nodes("train") == ["n1"]
    assert world.nodes("cheap") == ["n2"]


def test_a_node_that_a_reboot_did_not_cure_does_not_give_way(world: WorldHarness) -> None:
    # given a problem that a reboot cures, and that comes back
    given_spot(world, 2)
    world.break_machines("n2", fault="xid")
    world.command_node("RebootNode", "cheap", "n2")
    world.pass_time(minutes=20)
    world.break_machines("n2", fault="xid")

    world.apply("train", 1)

    assert preempted(world) == ["n1"]


def test_a_node_whose_machine_is_well_again_gives_way(world: WorldHarness) -> None:
    given_spot(world, 1)
    world.break_machines("n1", fault="gpu-lost")
    world.apply("train", 1)
    before = preempted(world)

    world.break_machines("n1", fault="gpu-lost", times=0)

    assert (before, preempted(world)) == ([], ["n1"])


def test_a_sick_node_that_leaves_is_not_counted(world: WorldHarness) -> None:
    # given a Node of a deleted NodePool that drains and whose machine will go to triage
    world.given_data_center(machines=2)
    world.apply("cheap", 1, computeClass="spot")
    world.apply("old", 1)
    world.run_pod("n2", graceS=60)
    world.break_machines("n2", fault="gpu-lost")
    world.delete("old")
    world.start_recording()

    world.apply("train", 1)

    assert preempted(world) == ["n1"]


def test_a_node_that_takes_longer_to_leave_than_a_preemption_is_not_waited_for(
    world: WorldHarness,
) -> None:
    # given a Node of a deleted NodePool with a Pod that may take an hour to end
    world.given_data_center(machines=2)
    world.apply("cheap", 1, computeClass="spot")
    world.apply("old", 1)
    world.run_pod("n2", interruption="graceful", graceS=3_600)
    world.delete("old")
    world.start_recording()

    world.apply("train", 1)
    world.pass_time(minutes=8)

    assert preempted(world) == ["n1"]
    assert world.nodes("train") == ["n1"]


@pytest.mark.parametrize("end", ["deletion", "scale-down"])
def test_a_node_whose_long_drain_is_almost_over_is_waited_for(
    world: WorldHarness, end: str
) -> None:
    # given a Node that has drained for four of the ten minutes that its Pod may take
    world.given_data_center(machines=2)
    world.apply("cheap", 1, computeClass="spot")
    world.apply("old", 1, computeClass="spot", lifecycle=PREFER_IDLE)
    world.run_pod("n2", interruption="graceful", graceS=600)
    world.start_recording()
    if end == "deletion":
        world.delete("old")
    else:
        world.scale("old", 0)
    world.pass_time(minutes=4)

    world.apply("train", 1)
    world.pass_time(minutes=7)

    # then no Node is preempted: the machine comes within seven minutes
    assert preempted(world) == preempted(world, "old") == []
    assert "10:00 CWNodeAssigned n2" in world.timed_events("train")


def test_a_long_drain_that_goes_on_with_the_deletion_of_its_pool_is_waited_for(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=2)
    world.apply("cheap", 1, computeClass="spot")
    world.apply("old", 1, lifecycle=PREFER_IDLE)
    world.run_pod("n2", interruption="graceful", graceS=600)
    world.start_recording()
    world.scale("old", 0)
    world.pass_time(minutes=5)
    world.apply("train", 1)

    world.delete("old")
    world.pass_time(minutes=7)

    assert preempted(world) == []
    assert "10:00 CWNodeAssigned n2" in world.timed_events("train")


def test_a_long_drain_that_begins_again_without_blocking_pods_is_not_waited_for(
    world: WorldHarness,
) -> None:
    # given a scale-down that a Pod blocks, which has its whole grace period from the deletion on
    world.given_data_center(machines=2)
    world.apply("cheap", 1, computeClass="spot")
    world.apply("old", 1, lifecycle=PREFER_IDLE)
    world.run_pod("n2", graceS=600)
    world.scale("old", 0)
    world.pass_time(minutes=9)
    world.delete("old")
    world.start_recording()

    world.apply("train", 1)

    assert preempted(world) == ["n1"]


@pytest.mark.parametrize("first", ["preempted", "deleted"])
def test_a_preempted_node_of_a_deleted_pool_is_waited_for(world: WorldHarness, first: str) -> None:
    # given a Node that is preempted and whose NodePool is deleted, with a Pod that takes an hour
    world.given_data_center(machines=2)
    world.apply("cheap", 1, computeClass="spot")
    world.apply("old", 1, computeClass="spot")
    world.run_pod("n2", interruption="graceful", graceS=3_600)
    if first == "preempted":
        world.preempt("old", "n2")
        world.delete("old")
    else:
        world.delete("old")
        world.preempt("old", "n2")
    world.start_recording()

    world.apply("train", 1)
    world.pass_time(minutes=8)

    # then no other Node has to go: it leaves at seven minutes at the latest
    assert preempted(world) == []
    assert world.nodes("train") == ["n2"]


def test_a_node_that_takes_long_to_leave_with_its_spot_pool_gives_way(world: WorldHarness) -> None:
    # given a Node of a deleted spot NodePool with a Pod that may take an hour to end
    given_spot(world, 1)
    world.run_pod("n1", interruption="graceful", graceS=3_600)
    world.delete("cheap")

    world.apply("train", 1)
    world.pass_time(minutes=8)

    # then the Node leaves after seven minutes, and without a warning
    assert "7:00 CWNodeDeleted n1" in world.timed_events("cheap")
    assert preempted(world) == []
    assert world.nodes("train") == ["n1"]


def test_each_node_is_asked_to_leave_with_its_spot_pool_before_it_gives_way(
    world: WorldHarness,
) -> None:
    # given a spot NodePool whose deletion is more than one decision can hold
    given_spot(world, 6)
    for node in world.nodes("cheap"):
        world.run_pod(node, interruption="graceful", graceS=3_600)
    world.start_recording()

    # when another NodePool is short while the Nodes are asked to leave
    with bounded(4), world.paused("allocator"):
        world.delete("cheap")
        world.apply("train", 6)
    world.pass_time(minutes=8)

    asked, requested = "CWNodeDeletionRequestSuccess ", "NodePreemptionRequested "
    messages = [line for line in world.messages("cheap") if line.startswith((asked, requested))]
    assert all(
        messages.index(f"{asked}{node}") < messages.index(f"{requested}{node}")
        for node in world.nodes("train")
    )
    assert preempted(world) == []
    assert len(world.nodes("train")) == 6


def test_a_deletion_of_the_pool_that_gives_way_preempts_no_further_node(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=2)
    world.apply("cheap", 1, computeClass="spot")
    world.apply("old", 1, computeClass="spot")
    for node in ("n1", "n2"):
        world.run_pod(node, interruption="graceful", graceS=3_600)
    world.start_recording()
    world.apply("train", 1)
    world.pass_time(minutes=1)

    world.delete("old")
    world.pass_time(minutes=7)

    assert preempted(world, "old") == ["n2"]
    assert preempted(world) == []
    assert world.nodes("train") == ["n2"]


def test_a_pod_that_is_not_awaited_does_not_make_a_node_late(world: WorldHarness) -> None:
    world.given_data_center(machines=2)
    world.apply("cheap", 1, computeClass="spot")
    world.apply("old", 1)
    world.run_pod("n2", interruption="interruptable", graceS=3_600)
    world.run_pod("n2", "slow", interruption="graceful", graceS=60)
    world.delete("old")
    world.start_recording()

    world.apply("train", 1)

    assert preempted(world) == []


def test_a_spot_node_that_takes_long_to_leave_goes_first(world: WorldHarness) -> None:
    # given a scale-down for which a Pod may take an hour to end
    world.given_data_center(machines=2)
    world.grow("cheap", 2, computeClass="spot", lifecycle=PREFER_IDLE)
    world.run_pod("n1", interruption="graceful", graceS=3_600)
    world.run_pod("n2", interruption="graceful", graceS=3_600)
    world.scale("cheap", 1)
    world.start_recording()

    world.apply("train", 1)
    world.pass_time(minutes=8)

    assert world.nodes("cheap") == ["n1"]
    assert world.nodes("train") == ["n2"]


def test_active_nodes_that_a_pool_has_too_many_do_not_count(world: WorldHarness) -> None:
    world.given_data_center(machines=2)
    world.apply("cheap", 1, computeClass="spot")
    world.apply("old", 1)
    world.run_pod("n2")
    world.scale("old", 0)
    world.start_recording()

    world.apply("train", 1)

    assert preempted(world) == ["n1"]


def given_busy_spot(world: Harness) -> None:
    """Two spot Nodes that leave as late as they may."""
    given_spot(world, 2)
    for node in ("n1", "n2"):
        world.run_pod(node, graceS=3_600)


@pytest.mark.parametrize("service", ["quota", "capacity"])
def test_what_comes_free_while_a_pool_is_checked_is_kept_for_it(
    world: WorldHarness, service: str
) -> None:
    given_busy_spot(world)
    world.apply("train", 1)
    world.pass_time(minutes=6)

    # when it is edited, and the Node that gives way goes before the new generation is checked
    with world.paused(service):
        world.apply("train", 1, nodeLabels={"team": "red"})
        world.pass_time(minutes=2)
        in_between = world.nodes("cheap"), world.nodes("train")
    world.pass_time(minutes=8)

    assert in_between == (["n1"], [])
    assert preempted(world) == ["n2"]
    assert world.nodes("train") == ["n2"]


def test_what_was_kept_for_a_pool_goes_to_spot_where_it_wants_no_more(world: WorldHarness) -> None:
    given_busy_spot(world)
    world.apply("train", 1)
    world.pass_time(minutes=6)

    with world.paused("capacity"):
        world.apply("train", 0)
        world.pass_time(minutes=2)
    world.pass_time(minutes=1)

    assert world.nodes("cheap") == ["n1", "n2"]


@pytest.mark.parametrize("end", ["deleted", "invalid"])
def test_what_was_kept_for_a_pool_goes_to_spot_where_it_gets_no_more(
    world: WorldHarness, end: str
) -> None:
    given_busy_spot(world)
    world.apply("train", 1)
    world.pass_time(minutes=6)

    with world.paused("capacity"):
        world.apply("train", 1, nodeLabels={"team": "red"})
        world.pass_time(minutes=2)
        if end == "deleted":
            world.delete("train")
        else:
            world.apply("train", 1, region="US-WEST-01A")
    world.pass_time(minutes=1)

    assert world.nodes("cheap") == ["n1", "n2"]


def test_pools_with_an_affinity_are_given_first_what_comes_back(world: WorldHarness) -> None:
    # given two Nodes that leave, the first of which alone fits the affinity of the second NodePool
    world.given_data_center(machines=0)
    world.given_machines(1, labels={RACK: "r1"})
    world.given_machines(1, labels={RACK: "r2"})
    world.given_machines(1, labels={RACK: "r1"})
    world.apply("old", 2)
    world.apply("cheap", 1, computeClass="spot")
    for node in ("n1", "n2"):
        world.run_pod(node, interruption="graceful", graceS=60)
    world.delete("old")
    world.start_recording()

    with world.sent_together():
        world.apply("any", 1, schedulingPriority={"value": 9})
        world.apply("picky", 1, affinity=affinity_to_rack("r1"))

    assert preempted(world) == []


def test_what_comes_back_counts_for_the_pool_that_gets_it(world: WorldHarness) -> None:
    # given a machine that comes back and fits both NodePools that wait, and a spot Node that does
    # not fit the affinity of the second NodePool
    world.given_cluster()
    world.given_quota(10)
    world.given_machines(1, labels={RACK: "r2"})
    world.apply("cheap", 1, computeClass="spot")
    world.given_machines(1, labels={RACK: "r1"})
    world.apply("old", 1)
    world.run_pod("n2", interruption="graceful", graceS=60)
    world.delete("old")
    world.start_recording()

    # when both NodePools are short at once
    with world.paused("allocator"):
        world.apply("any", 1)
        world.apply("picky", 1, affinity=affinity_to_rack("r1"))
    world.pass_time(minutes=8)

    # then no Node gives way: its machine would be for no NodePool
    assert preempted(world) == []
    assert world.nodes("any") == ["n2"]
    assert world.nodes("picky") == []


@pytest.mark.parametrize("is_for_operator", [False, True])
def test_a_free_machine_that_another_gets_leaves_a_pool_what_comes_back(
    world: WorldHarness, is_for_operator: bool
) -> None:
    # given three spot Nodes, the oldest of which alone fits the affinity of a NodePool
    world.given_cluster()
    world.given_quota(100)
    world.given_machines(1, labels={RACK: "r1"})
    world.given_machines(2, labels={RACK: "r2"})
    world.apply("cheap", 3, computeClass="spot")
    world.start_recording()

    # when this Node gives way to another NodePool or an operator, and a second Node to `last`
    if is_for_operator:
        world.reclaim(1)
    else:
        world.apply("first", 1)
    world.pass_time(seconds=1)
    world.apply("picky", 1, affinity=affinity_to_rack("r1"))
    world.apply("last", 1)
    world.pass_time(minutes=8)

    # then no third Node gives way once the first machine is free
    assert preempted(world) == ["n1", "n2"]
    assert world.nodes("last") == ["n2"]
    assert (world.nodes("picky"), world.nodes("cheap")) == ([], ["n3"])


def test_capacity_says_how_many_spot_nodes_are_preempted_for_it(world: WorldHarness) -> None:
    given_spot(world, 3)

    world.apply("train", 2)
    during = world.condition("train", "Capacity")
    world.pass_time(minutes=8)
    world.apply("more", 5)

    assert during == (
        f"False NoneAvailable: none of 2 wanted Nodes of {H100} can be had in {ZONE} now; "
        "2 spot Nodes are being preempted for it"
    )
    assert world.condition("more", "Capacity") == (
        f"False NoneAvailable: none of 5 wanted Nodes of {H100} can be had in {ZONE} now; "
        "1 spot Node is being preempted for it"
    )
    assert world.conditions("train")["Capacity"] == "Sufficient"


def test_capacity_counts_all_spot_nodes_that_give_way_to_waits_of_different_starts(
    world: WorldHarness,
) -> None:
    # given a NodePool for which a spot Node gives way
    world.given_data_center(machines=3)
    world.apply("train", 1, lifecycle={"disableUnhealthyNodeEviction": False})
    world.grow("cheap", 2, computeClass="spot")
    world.scale("train", 2)
    first = world.condition("train", "Capacity")

    # when it loses a Node, so that another spot Node gives way
    world.pass_time(minutes=1)
    world.break_machines("n1", fault="gpu-lost")

    assert first.endswith("; 1 spot Node is being preempted for it")
    assert world.condition("train", "Capacity") == (
        f"False NoneAvailable: none of 2 wanted Nodes of {H100} can be had in {ZONE} now; "
        "2 spot Nodes are being preempted for it"
    )


def test_a_pool_for_which_more_machines_come_than_it_lacks_needs_no_machine(
    world: WorldHarness,
) -> None:
    # given two spot Nodes that give way to a NodePool
    given_spot(world, 2)
    world.run_pod("n1", graceS=1000)
    world.run_pod("n2", graceS=1000)
    world.apply("train", 2)

    # when a machine comes otherwise
    world.given_machines(1)
    node_pool = world.node_pool("train")

    # then one spot Node is left that comes for nobody, and no count is below 0
    assert node_pool is not None
    assert node_pool["status"]["awaitedSpotNodes"] == 1
    assert "machinesNeeded" not in node_pool["status"]


@pytest.mark.parametrize("is_reclaimed_first", [False, True])
def test_capacity_promises_a_spot_node_that_an_operator_gets_once_it_is_returned(
    world: WorldHarness, *, is_reclaimed_first: bool
) -> None:
    # given a spot Node that an operator reclaims, and a NodePool that is short
    given_spot(world, 1)
    if is_reclaimed_first:
        world.reclaim(1)
    world.apply("train", 1)
    if not is_reclaimed_first:
        world.reclaim(1)

    # when the operator returns the machine
    before = world.condition("train", "Capacity")
    world.give_back(1)
    after = world.condition("train", "Capacity")

    # then the NodePool is promised the Node only from then on
    none = f"False NoneAvailable: none of 1 wanted Nodes of {H100} can be had in {ZONE} now"
    assert before == none
    assert after == f"{none}; 1 spot Node is being preempted for it"


def test_capacity_promises_an_operator_the_spot_node_before_a_pool_with_an_affinity(
    world: WorldHarness,
) -> None:
    world.given_cluster()
    world.given_quota(10)
    world.given_machines(1, labels={RACK: "r1"})
    world.apply("cheap", 1, computeClass="spot")
    world.reclaim(1)

    world.apply("train", 1, affinity=affinity_to_rack("r1"))

    assert world.condition("train", "Capacity") == (
        f"False NoneAvailable: none of 1 wanted Nodes of {H100} can be had in {ZONE} now"
    )


def test_capacity_promises_a_pool_only_spot_nodes_that_its_affinity_accepts(
    world: WorldHarness,
) -> None:
    # given two NodePools of which only one could have the spot Node
    world.given_cluster()
    world.given_quota(10)
    world.given_machines(1, labels={RACK: "r1"})
    world.apply("cheap", 1, computeClass="spot")
    world.apply("other", 1, affinity=affinity_to_rack("r2"))

    world.apply("train", 1, affinity=affinity_to_rack("r1"))

    none = f"False NoneAvailable: none of 1 wanted Nodes of {H100} can be had in {ZONE} now"
    assert world.condition("other", "Capacity") == none
    assert world.condition("train", "Capacity") == f"{none}; 1 spot Node is being preempted for it"


def test_a_spot_pool_at_zero_lives_on_and_refills(world: WorldHarness) -> None:
    given_spot(world, 2)
    world.apply("train", 2)
    world.pass_time(minutes=8)
    empty = world.node_counts("cheap"), world.conditions("cheap")["Validated"]

    world.scale("train", 0)
    world.pass_time(minutes=1)

    assert empty == ((2, 0, 0), "Valid")
    assert world.node_counts("cheap") == (2, 0, 2)


@pytest.mark.parametrize("name", NAMES)
def test_a_restart_of_any_service_preempts_no_further_node(world: WorldHarness, name: str) -> None:
    given_spot(world, 3)
    world.run_pod("n3", graceS=240)
    world.run_pod("n2", graceS=240)
    world.apply("train", 2)
    world.restart(name)
    world.pass_time(minutes=3)

    world.restart(name)
    world.pass_time(minutes=8)

    assert sorted(preempted(world)) == ["n1", "n3"]
    assert world.nodes("train") == ["n1", "n3"]


@pytest.mark.parametrize("name", ["allocator", "preemption", "lifecycle"])
def test_a_service_that_is_late_preempts_no_further_node(world: WorldHarness, name: str) -> None:
    given_spot(world, 3)

    with world.paused(name):
        world.apply("train", 1)
        world.pass_time(minutes=1)
        world.scale("train", 2)
    world.pass_time(minutes=8)

    assert sorted(preempted(world)) == ["n2", "n3"]
    assert world.nodes("train") == ["n2", "n3"]


def test_a_default_pool_takes_a_spot_node_on_a_real_server(harness: Harness) -> None:
    given_spot(harness, 2)

    harness.apply("train", 1)

    assert preempted(harness) == ["n2"]
    assert harness.node_conditions("n2")["CWNodeRemoval"] == "True Preempted"


def test_a_spot_node_whose_machine_goes_to_triage_is_promised_to_no_pool(
    world: WorldHarness,
) -> None:
    # given a spot pool with two Nodes, of which the first has to give way
    world.given_data_center(machines=2)
    world.apply("cheap", 2, computeClass="spot", lifecycle={"disableUnhealthyNodeEviction": False})
    world.run_pod("n1")
    world.run_pod("n2")

    # when its machine breaks before its preemption begins, and a second pool comes
    with world.paused("preemption"):
        world.apply("train", 1)
        world.break_machines("n1", fault="gpu-lost")
        world.pass_time(seconds=10)
    world.apply("serve", 1)

    # then the other Node gives way to the first pool, and none to the second
    wanted = "False NoneAvailable: none of 1 wanted Nodes of gd-8xh100ib-i128 can be had in"
    promise = f"{wanted} US-EAST-04A now; 1 spot Node is being preempted for it"
    assert world.condition("train", "Capacity") == promise
    assert world.condition("serve", "Capacity") == f"{wanted} US-EAST-04A now"
