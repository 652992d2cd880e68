"""Capacity: how many machines a NodePool can have, and which NodePool is served first."""

import pytest

from flow.test_fleet_metrics import shown
from nodepool.contract import metrics
from nodepool.contract.events import CWNodeAssigned
from nodepool.contract.invariants import RULES
from support.audit.auditor import violations
from support.constants import RACK
from support.failing import Failing
from support.harness import Harness
from support.manifests import label_affinity, rack_affinity
from support.services import NAMES
from support.world_harness import WorldHarness

EVICTING = {"disableUnhealthyNodeEviction": False}


def test_a_pool_gets_as_many_nodes_as_there_are_machines(world: WorldHarness) -> None:
    world.given_data_center(machines=2)
    world.start_recording()

    world.apply("train", 3)

    assert world.events("train") == [
        "CWNodePoolCreated",
        "CWInsufficientCapacity",
        "CWNodeRequestQueued 3",
        "CWNodeAssigned n1",
        "CWNodeAssigned n2",
        "CWNodeRegistered n1",
        "CWNodeRegistered n2",
        "CWInsufficientCapacity",
    ]
    assert world.event_messages("train", "CWInsufficientCapacity") == [
        "2 of 3 wanted Nodes of gd-8xh100ib-i128 can be had in US-EAST-04A now",
        "none of 1 wanted Nodes of gd-8xh100ib-i128 can be had in US-EAST-04A now",
    ]
    assert world.node_counts("train") == (3, 0, 2)
    assert world.conditions("train")["AtTarget"] == "UnderTarget"


def test_capacity_is_partial_while_there_are_too_few_machines(world: WorldHarness) -> None:
    world.given_data_center(machines=2)

    with world.paused("allocator"):
        world.apply("train", 3)
        partial = world.condition("train", "Capacity")

    assert partial == (
        "False Partial: 2 of 3 wanted Nodes of gd-8xh100ib-i128 can be had in US-EAST-04A now"
    )
    assert world.condition("train", "Capacity") == (
        "False NoneAvailable: "
        "none of 1 wanted Nodes of gd-8xh100ib-i128 can be had in US-EAST-04A now"
    )


def test_a_pool_without_any_machine_waits_until_some_arrive(harness: Harness) -> None:
    harness.given_data_center(machines=0)
    harness.start_recording()
    harness.apply("train", 2)
    before = harness.events("train"), harness.conditions("train")["Capacity"]
    harness.start_recording()

    harness.given_machines(3)

    assert before == (
        ["CWNodePoolCreated", "CWInsufficientCapacity", "CWNodeRequestQueued 2"],
        "NoneAvailable",
    )
    assert harness.events("train") == [
        "CWNodeAssigned n1",
        "CWNodeAssigned n2",
        "CWNodeRegistered n1",
        "CWNodeRegistered n2",
    ]
    assert harness.conditions("train")["Capacity"] == "Sufficient"
    assert harness.conditions("train")["AtTarget"] == "TargetMet"


def test_missing_capacity_is_reported_once(harness: Harness) -> None:
    harness.given_data_center(machines=0)
    harness.apply("train", 2)
    harness.start_recording()

    harness.apply("train", 2, metadata={"labels": {"team": "red"}})

    assert harness.events("train") == ["CWNodePoolMetadata"]


def test_a_nodepool_that_loses_more_nodes_than_it_was_warned_of_is_warned_again(
    world: WorldHarness,
) -> None:
    # given a NodePool that has all machines there are
    world.given_data_center(machines=4)
    world.apply("train", 4, lifecycle=EVICTING)
    world.start_recording()

    # when it loses three Nodes one after another
    for node in ("n1", "n2", "n3"):
        world.break_machines(node, fault="gpu-lost")
        world.pass_time(minutes=5)

    # then each loss is said
    assert world.event_messages("train", "CWInsufficientCapacity") == [
        f"none of {count} wanted Nodes of gd-8xh100ib-i128 can be had in US-EAST-04A now"
        for count in (1, 2, 3)
    ]


def test_a_machine_that_comes_and_goes_again_and_again_is_warned_of_once(
    world: WorldHarness,
) -> None:
    # given a NodePool that has one of the three Nodes that it wants
    world.given_data_center(machines=1)
    world.apply("train", 3, lifecycle=EVICTING)
    world.start_recording()

    # when its machine breaks and is repaired, again and again
    for _ in range(3):
        world.break_machines("n1", fault="gpu-lost")
        world.pass_time(minutes=5)
        world.repair_machines("n1")
        world.pass_time(minutes=5)

    # then it is warned once that it lacks all three; it was warned of the rest when it was created
    assert world.event_messages("train", "CWInsufficientCapacity") == [
        "none of 3 wanted Nodes of gd-8xh100ib-i128 can be had in US-EAST-04A now"
    ]


def test_a_machine_that_is_taken_out_before_a_late_allocator_gives_it_away_is_a_node(
    world: WorldHarness,
) -> None:
    # given a machine that is taken out of service before the allocator gives it away
    world.given_data_center(machines=1)
    with world.paused("allocator"):
        world.apply("train", 1)
        world.take_out("n1", "it does not answer")

    # when it boots all the same, then everybody counts the Node
    assert world.node_counts("train") == (1, 0, 1)
    assert world.conditions("train")["AtTarget"] == "TargetMet"
    node = {"org": "acme", "cluster": "prod", "nodePool": "train", "node": world.machine_name("n1")}
    assert world.machine_status("n1") == {"state": "Assigned", **node}
    assert ("triage", "TakenOut") not in shown(world, metrics.MACHINES)

    # and the stays that follow
    world.scale("train", 0)
    assert world.machine_status("n1") == {"state": "Free"}
    world.scale("train", 1)
    assert world.conditions("train")["AtTarget"] == "TargetMet"
    assert world.replay_differs() == []


@pytest.mark.parametrize("late", NAMES)
def test_what_a_late_service_has_not_read_breaks_no_rule(world: WorldHarness, late: str) -> None:
    # given machines that boot, fail, are held back, and change hands while a service is away
    world.given_data_center(machines=4)
    world.apply("cheap", 2, computeClass="spot")
    with world.paused(late):
        world.apply("train", 2)
        world.take_out("n3", "it does not answer")
        world.reclaim(1)
        world.preempt("cheap", "n1")
        world.scale("train", 3)
        world.take_out("n4", "it has no power")
        world.scale("cheap", 1)
        world.break_machines("n2", fault="boot")

    # when it is back, and all is wanted again
    world.put_back("n3")
    world.delete("cheap")
    world.give_back(1)
    world.pass_time(minutes=40)

    # then no event breaks a rule, and each Node is counted
    broken = [text for text in violations(world.entries()) if any(rule in text for rule in RULES)]
    assert broken == []
    assert world.node_counts("train").current == len(world.nodes("train"))
    assert world.replay_differs() == []


def test_a_machine_that_its_provider_takes_out_goes_to_no_pool_until_it_is_repaired(
    world: WorldHarness,
) -> None:
    # given two free machines, of which one is taken out of service
    world.given_data_center(machines=2)
    world.take_out("n1", "it has no power")

    # when both are wanted
    world.apply("train", 2)

    # then one is there, and the other one is shown with its cause
    assert world.nodes("train") == ["n2"]
    assert world.conditions("train")["Capacity"] == "NoneAvailable"
    assert world.machine_status("n1") == {"state": "Triage", "cause": "it has no power"}

    # when it is repaired
    world.put_back("n1")

    # then it goes to the NodePool that waits
    assert world.conditions("train")["AtTarget"] == "TargetMet"
    assert world.replay_differs() == []


def test_new_machines_go_to_the_pool_that_has_waited_longest(harness: Harness) -> None:
    harness.given_data_center(machines=0)
    harness.apply("train", 2)
    harness.apply("serve", 2)

    harness.given_machines(3)

    assert harness.nodes("train") == ["n1", "n2"]
    assert harness.nodes("serve") == ["n3"]
    assert harness.conditions("serve")["Capacity"] == "NoneAvailable"


def test_default_pools_are_served_before_spot_pools(harness: Harness) -> None:
    harness.given_data_center(machines=0)
    harness.apply("cheap", 1, computeClass="spot")
    harness.apply("train", 1)

    harness.given_machines(1)

    assert harness.nodes("train") == ["n1"]
    assert harness.nodes("cheap") == []


@pytest.mark.parametrize("compute_class", ["default", "spot"])
def test_a_pool_keeps_its_place_while_a_change_of_its_labels_is_checked(
    world: WorldHarness, compute_class: str
) -> None:
    given_two_organisations(world)
    world.apply("first", 1, computeClass=compute_class)
    world.apply("beta/main/second", 1, computeClass=compute_class)

    with world.paused("quota"):
        world.apply("first", 1, computeClass=compute_class, nodeLabels={"team": "red"})
        world.given_machines(1)

    assert world.nodes("first") == ["n1"]
    assert world.nodes("beta/main/second") == []


def test_a_higher_priority_is_served_before_a_longer_wait(harness: Harness) -> None:
    harness.given_data_center(machines=0)
    harness.apply("low", 1, schedulingPriority={"value": -5})
    harness.apply("plain", 1)
    harness.apply("high", 1, schedulingPriority={"value": 5})

    harness.given_machines(2)

    assert harness.nodes("high") == ["n1"]
    assert harness.nodes("plain") == ["n2"]
    assert harness.nodes("low") == []


def given_two_organisations(world: Harness) -> None:
    """Two organisations in a zone without machines, each with a limit of 10 Nodes."""
    world.given_data_center(machines=0, quota=10)
    world.given_cluster("main", org="beta")
    world.given_quota(10, org="beta")


def test_a_priority_moves_no_pool_of_another_organisation(harness: Harness) -> None:
    # given that two organisations wait, and the one that waits longer adds an urgent pool
    given_two_organisations(harness)
    harness.apply("low", 1)
    harness.apply("beta/main/plain", 1)
    harness.apply("high", 1, schedulingPriority={"value": 5})

    served = []
    for _ in range(3):
        harness.given_machines(1)
        pools = ("high", "low", "beta/main/plain")
        served.append([pool for pool in pools if harness.nodes(pool)])

    # then the urgent pool takes the position of the other pool, which takes the last one
    assert served == [
        ["high"],
        ["high", "beta/main/plain"],
        ["high", "low", "beta/main/plain"],
    ]


def test_a_replacement_does_not_overtake_a_pool_that_waits(world: WorldHarness) -> None:
    # given an old pool with a Node, and a newer pool that has waited for an hour
    world.given_data_center(machines=1)
    world.apply("old", 1, lifecycle={"disableUnhealthyNodeEviction": False})
    world.apply("train", 1)
    world.pass_time(minutes=60)

    # when the Node of the old pool is lost, and then a machine comes
    world.break_machines("n1", fault="gpu-lost")
    world.pass_time(minutes=1)
    lost = world.nodes("old")
    world.given_machines(1)

    assert lost == []
    assert world.nodes("train") == ["n2"]


def test_a_pool_that_grows_again_waits_from_its_new_grant_and_not_from_its_scale_down(
    world: WorldHarness,
) -> None:
    # given a pool whose surplus Nodes left before the other pool began to wait for Nodes
    world.given_data_center(machines=6)
    world.apply("train", 3)
    world.apply("serve", 3, lifecycle={"disableUnhealthyNodeEviction": False})
    with world.paused("quota"):
        world.scale("train", 1)
        world.break_machines("n4", "n5", "n6", fault="gpu-lost")

        # when the pool grows again, and then a machine comes
        world.scale("train", 3)
    waiting = world.nodes("train"), world.nodes("serve")
    world.given_machines(1)

    assert waiting == (["n3"], ["n1", "n2"])
    assert world.nodes("train") == ["n3"]
    assert world.nodes("serve") == ["n1", "n2", "n7"]


def test_a_machine_that_never_joins_does_not_change_the_position_of_its_pool(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=0)
    world.apply("first", 1)
    world.apply("second", 1)
    with world.paused("allocator"):
        world.given_machines(1)
        world.break_machines("n1", fault="boot")
    world.pass_time(minutes=31)

    world.given_machines(1)

    assert world.nodes("first") == ["n2"]
    assert world.nodes("second") == []


def test_a_pool_that_waits_keeps_its_place_when_its_labels_change(harness: Harness) -> None:
    harness.given_data_center(machines=0)
    harness.apply("train", 1)
    harness.apply("serve", 1)
    harness.apply("train", 1, nodeLabels={"team": "red"})

    harness.given_machines(1)

    assert harness.nodes("train") == ["n1"]
    assert harness.nodes("serve") == []


def test_an_affinity_takes_only_machines_that_satisfy_it(harness: Harness) -> None:
    harness.given_data_center(machines=2)
    harness.given_machines(2, labels={RACK: "r7"})
    harness.start_recording()

    harness.apply("train", 2, affinity=rack_affinity("r7"))

    assert harness.nodes("train") == ["n3", "n4"]
    assert harness.conditions("train")["Capacity"] == "Sufficient"


def test_an_affinity_can_make_capacity_partial(world: WorldHarness) -> None:
    world.given_data_center(machines=2)
    world.given_machines(1, labels={RACK: "r7"})

    with world.paused("allocator"):
        world.apply("train", 2, affinity=rack_affinity("r7"))
        partial = world.condition("train", "Capacity")

    assert partial == (
        "False PartialNodeAffinity: 1 of 2 wanted Nodes of gd-8xh100ib-i128 "
        "that satisfy the node affinity can be had in US-EAST-04A now"
    )
    assert world.nodes("train") == ["n3"]
    assert world.conditions("train")["Capacity"] == "NoneAvailableNodeAffinity"


def test_an_affinity_that_no_free_machine_satisfies_leaves_no_capacity(harness: Harness) -> None:
    harness.given_data_center(machines=2)
    harness.start_recording()

    harness.apply("train", 1, affinity=rack_affinity("r7"))

    assert harness.condition("train", "Capacity") == (
        "False NoneAvailableNodeAffinity: none of 1 wanted Nodes of gd-8xh100ib-i128 "
        "that satisfy the node affinity can be had in US-EAST-04A now"
    )
    assert harness.events("train") == [
        "CWNodePoolCreated",
        "CWInsufficientCapacity",
        "CWNodeRequestQueued 1",
    ]


def test_a_pool_that_waits_for_its_affinity_does_not_block_others(harness: Harness) -> None:
    harness.given_data_center(machines=1)
    harness.apply("train", 1, affinity=rack_affinity("r7"))

    harness.apply("serve", 1)

    assert harness.nodes("serve") == ["n1"]
    assert harness.conditions("train")["Capacity"] == "NoneAvailable"


def test_a_new_machine_that_satisfies_the_affinity_is_taken(harness: Harness) -> None:
    harness.given_data_center(machines=1)
    harness.apply("train", 1, affinity=rack_affinity("r7"))

    harness.given_machines(1, labels={RACK: "r7"})

    assert harness.nodes("train") == ["n2"]
    assert harness.conditions("train")["AtTarget"] == "TargetMet"


def test_a_pool_without_its_affinity_takes_any_machine(harness: Harness) -> None:
    harness.given_data_center(machines=1)
    harness.apply("train", 1, affinity=rack_affinity("r7"))

    harness.apply("train", 1)

    assert harness.nodes("train") == ["n1"]
    assert harness.conditions("train")["Capacity"] == "Sufficient"


def test_the_capacity_of_a_zone_does_not_depend_on_another_zone(harness: Harness) -> None:
    harness.given_data_center(machines=1)
    harness.given_cluster("west", zone="US-WEST-04A")
    harness.given_quota(9, zone="US-WEST-04A")
    harness.given_machines(1, zone="US-WEST-04A")

    harness.apply("train", 1)
    harness.apply("acme/west/train", 2)

    assert harness.conditions("train")["Capacity"] == "Sufficient"
    assert harness.conditions("acme/west/train")["Capacity"] == "NoneAvailable"
    assert harness.nodes() == ["n1", "n2"]


def test_a_pool_that_is_being_deleted_keeps_no_machine_from_another(world: WorldHarness) -> None:
    # given a NodePool that is deleted before its quota was checked
    world.given_data_center(machines=2)
    with world.paused("quota"):
        world.apply("first", 2)
        world.delete("first")
    world.start_recording()

    # when another one wants the machines
    world.apply("second", 2)

    # then it is told of no shortage, and the first of nothing at all
    assert "CWInsufficientCapacity" not in world.events("second")
    assert world.node_counts("second") == (2, 0, 2)
    assert "CWInsufficientCapacity" not in world.events("first")


def test_the_message_names_the_nodes_that_are_missing_now(world: WorldHarness) -> None:
    # given a NodePool that has two of three Nodes
    world.given_data_center(machines=2)
    world.apply("train", 3)

    # when it wants two more
    before = world.condition("train", "Capacity")
    world.scale("train", 5)

    # then the message counts those as well
    wanted = "wanted Nodes of gd-8xh100ib-i128 can be had in US-EAST-04A now"
    assert before == f"False NoneAvailable: none of 1 {wanted}"
    assert world.condition("train", "Capacity") == f"False NoneAvailable: none of 3 {wanted}"
    assert world.condition("train", "AtTarget") == (
        "False UnderTarget: NodePool has 2 of 5 Nodes; Capacity is NoneAvailable: "
        f"none of 3 {wanted}."
    )


def test_machines_and_clusters_are_listed(harness: Harness) -> None:
    harness.given_data_center(machines=2)
    harness.apply("train", 1)

    machines = harness.documents("machines").values()
    clusters = harness.documents("clusters")

    assert sorted(str(machine["status"]) for machine in machines) == sorted(
        [
            str({"state": "Free"}),
            str(
                {
                    "state": "Assigned",
                    "org": "acme",
                    "cluster": "prod",
                    "nodePool": "train",
                    "node": harness.machine_name("n1"),
                }
            ),
        ]
    )
    assert {key: cluster["spec"] for key, cluster in clusters.items()} == {
        "acme/prod": {"org": "acme", "zone": "US-EAST-04A"}
    }


def test_machines_that_come_together_are_assigned_in_the_order_of_the_positions(
    world: WorldHarness,
) -> None:
    # given a pool whose first Node fails to boot after it was scaled up, and one that came between
    world.given_data_center(machines=1, boot_s=600)
    world.given_cluster("main", org="beta")
    world.given_quota(10, org="beta")
    world.break_machines("n1", fault="boot")
    world.apply("train", 1)
    world.apply("beta/main/other", 1)
    world.scale("train", 2)
    world.pass_time(minutes=11)

    # when as many machines come as all of them lack
    world.given_machines(3)

    assigned = [
        message.pool
        for message in world.world.messages(CWNodeAssigned)
        if isinstance(message, CWNodeAssigned)
    ]
    assert assigned == ["train", "train", "other", "train"]


def test_a_pool_keeps_its_place_if_a_node_from_before_its_lower_target_does_not_boot(
    world: WorldHarness,
) -> None:
    # given a pool that has one Node more than its new target, and one behind it in the queue
    world.given_data_center(machines=2, boot_s=60)
    world.given_cluster("main", org="beta")
    world.given_quota(10, org="beta")
    world.break_machines("n2", fault="boot")
    with world.paused("allocator"):
        world.apply("train", 2)
        world.apply("beta/main/other", 2)
        world.scale("train", 1)

    # when its surplus Node leaves, and the other one does not boot
    world.pass_time(minutes=2)
    places = place(world, "train"), place(world, "beta/main/other")
    world.given_machines(1)

    # then it has the place that it had, and gets the next machine
    assert world.nodes("beta/main/other") == ["n1"]
    assert places == (1, 2)
    assert world.nodes("train") == ["n3"]


def test_a_pool_behind_one_that_is_checked_again_is_promised_no_machine_of_it(
    world: WorldHarness,
) -> None:
    # given two pools that wait for one Node each
    world.given_data_center(machines=0)
    world.apply("train", 1)
    world.apply("serve", 1)
    world.start_recording()

    # when `train` changes, and a machine comes before the quota of `train` is checked again
    with world.paused("quota"):
        world.apply("train", 1, nodeLabels={"team": "red"})
        world.given_machines(1)
        reason = world.conditions("serve")["Capacity"]

    # then the machine is kept for `train`, and `serve` hears of no machine
    assert reason == "NoneAvailable"
    assert world.nodes("train") == ["n1"]
    assert "CWInsufficientCapacity" not in world.events("serve")


def test_a_pool_whose_quota_cannot_be_checked_keeps_no_machine_from_the_next() -> None:
    # given two pools that wait
    world = Failing("quota", "NodePoolValidated", 3).world()
    world.given_data_center(machines=0)
    world.apply("train", 1)
    world.apply("serve", 1)

    # when the quota of a new version of `train` cannot be checked, and a machine comes
    world.apply("train", 1, nodeLabels={"team": "red"})
    quota, places = (
        world.conditions("train")["Quota"],
        (place(world, "train"), place(world, "serve")),
    )
    world.given_machines(1)

    # then `serve` is first in the queue, hears of the machine and gets it
    assert (quota, places) == ("InternalError", (0, 1))
    assert world.nodes("serve") == ["n1"]
    assert world.conditions("serve")["Capacity"] == "Sufficient"


def test_a_pool_that_is_not_served_has_no_place_in_the_queue(world: WorldHarness) -> None:
    # given two pools that wait
    world.given_data_center(machines=0)
    world.apply("train", 1)
    world.apply("serve", 1)
    before = place(world, "train"), place(world, "serve")

    # when `train` becomes invalid, and valid again
    world.apply("train", 1, affinity=label_affinity("no/such-label", "red"))
    invalid = place(world, "train"), place(world, "serve")
    world.apply("train", 1)

    # then it has no place in between, and the last place afterwards
    assert world.conditions("train")["Validated"] == "Valid"
    assert (before, invalid) == ((1, 2), (0, 1))
    assert (place(world, "train"), place(world, "serve")) == (2, 1)


def test_a_pool_that_loses_a_node_while_it_is_invalid_waits_once_it_is_valid(
    world: WorldHarness,
) -> None:
    # given a NodePool that loses its Node while it is invalid, and a NodePool that waits since then
    lifecycle = {"disableUnhealthyNodeEviction": False}
    world.given_data_center(machines=1)
    world.apply("train", 1, lifecycle=lifecycle)
    affinity = label_affinity("no/such-label", "red")
    world.apply("train", 1, lifecycle=lifecycle, affinity=affinity)
    world.break_machines("n1", fault="gpu-lost")
    lost = world.nodes("train"), place(world, "train")
    world.apply("serve", 1)

    # when it becomes valid, and a machine comes
    world.apply("train", 1, lifecycle=lifecycle)
    places = place(world, "train"), place(world, "serve")
    world.given_machines(1)

    assert lost == ([], 0)
    assert places == (2, 1)
    assert (world.nodes("train"), world.nodes("serve")) == ([], ["n2"])


def test_a_pool_keeps_its_place_while_it_cannot_be_validated(world: WorldHarness) -> None:
    world.given_data_center(machines=0)
    world.apply("train", 1)
    world.apply("serve", 1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("validator.objects.verdict", None)
        world.apply("train", 1, nodeLabels={"team": "red"})
        failed = world.conditions("train")["Validated"], place(world, "train")
    world.pass_time(minutes=1)

    assert failed == ("InternalError", 0)
    assert (place(world, "train"), place(world, "serve")) == (1, 2)


def test_a_pool_whose_capacity_cannot_be_checked_has_no_place_in_the_queue(
    world: WorldHarness,
) -> None:
    # given a pool that waits
    world.given_data_center(machines=0)
    world.apply("train", 1)

    # when its capacity cannot be checked, and can be again after a minute
    world.publish("np.evt.quota.acme.prod.train.QuotaChecked", b"{}")
    failed = world.conditions("train")["Capacity"], place(world, "train")
    world.pass_time(minutes=1)

    # then it has no place in between
    assert failed == ("InternalError", 0)
    assert (world.conditions("train")["Capacity"], place(world, "train")) == ("NoneAvailable", 1)


def test_a_small_change_of_a_position_is_shown_a_minute_later(world: WorldHarness) -> None:
    # given a NodePool that waits behind 30 Nodes of another organisation
    given_two_organisations(world)
    world.given_quota(99, org="beta")
    world.apply("beta/main/first", 30)
    world.apply("late", 1)

    # when one of these Nodes is no longer wanted, and shortly after that another
    world.scale("beta/main/first", 29)
    world.pass_time(seconds=50)
    world.scale("beta/main/first", 28)
    soon = waiting_of(world, "late")
    world.pass_time(seconds=10)

    # then the numbers are right a minute after the first change
    assert soon == (31, 31)
    assert waiting_of(world, "late") == (29, 29)


def test_small_changes_of_positions_are_shown_at_most_once_a_minute(world: WorldHarness) -> None:
    # given a NodePool that waits behind 90 Nodes
    given_two_organisations(world)
    world.given_quota(99, org="beta")
    world.apply("beta/main/first", 90)
    world.apply("late", 1)
    subject = "np.evt.capacity.acme.prod.late.CapacityChecked"
    before = sum(entry.subject == subject for entry in world.entries())

    # when every 23 seconds another of these Nodes is no longer wanted, for one and a half minutes
    for target in range(89, 84, -1):
        world.scale("beta/main/first", target)
        world.pass_time(seconds=23)
    world.pass_time(minutes=60)

    # then two verdicts follow, and the last one is right
    assert sum(entry.subject == subject for entry in world.entries()) - before == 2
    assert waiting_of(world, "late") == (86, 86)


def waiting_of(world: WorldHarness, pool: str) -> tuple[int, int]:
    """Return the position of a NodePool, and how many machines it needs."""
    node_pool = world.node_pool(pool)
    assert node_pool is not None
    return node_pool["status"].get("queuePosition", 0), node_pool["status"].get("machinesNeeded", 0)


def place(world: WorldHarness, pool: str) -> int:
    """Return the position of a NodePool in the queue for machines; 0 without a position."""
    node_pool = world.node_pool(pool)
    assert node_pool is not None
    return node_pool["status"].get("queuePosition", 0)


def test_an_old_capacity_message_is_not_repeated_for_another_number_of_nodes(
    world: WorldHarness,
) -> None:
    # given a NodePool that lacks two Nodes, and a capacity service that is away
    world.given_data_center(machines=2)
    world.apply("train", 4, lifecycle={"disableUnhealthyNodeEviction": False})
    with world.paused("capacity"):
        # when it loses a Node
        world.break_machines("n1", fault="gpu-lost")
        world.pass_time(minutes=1)
        message = world.condition("train", "AtTarget")

    assert message == "False UnderTarget: NodePool has 1 of 4 Nodes."


def test_a_boot_that_fails_goes_on_with_the_wait_in_which_its_machine_was_assigned(
    world: WorldHarness,
) -> None:
    # given a NodePool whose grant is taken and given again while the allocator is away, so that its
    # machine is assigned after that, and one of another organisation that waits since in between
    given_two_organisations(world)
    with world.paused("allocator"):
        world.given_machines(1, boot_s=60)
        world.break_machines("n1", fault="boot")
        world.apply("train", 1)
        world.pass_time(minutes=1)
        world.given_quota(0)
        world.apply("beta/main/other", 1)
        world.pass_time(minutes=1)
        world.given_quota(10)
    assert world.nodes("train") == ["n1"]

    # when the machine does not boot, and another machine comes
    world.pass_time(minutes=31)
    waits = place(world, "train"), place(world, "beta/main/other")
    world.given_machines(1)

    # then capacity and the allocator agree on who waits longer
    assert waits == (1, 2)
    assert world.nodes("train") == ["n2"]


def test_a_place_that_was_given_up_to_a_priority_stays_given_up(world: WorldHarness) -> None:
    # given a NodePool that waits, and later one of another organisation
    given_two_organisations(world)
    world.apply("first", 2)
    world.apply("beta/main/other", 2)

    # when the allocator is away, two machines come, for which a NodePool with a priority comes
    # first, and this NodePool gets another target and no priority before its Nodes are assigned
    with world.paused("allocator"):
        world.given_machines(2)
        world.apply("urgent", 3, schedulingPriority={"value": 100})
        world.apply("urgent", 5)
    urgent = world.nodes("urgent")
    places = place(world, "beta/main/other"), place(world, "first"), place(world, "urgent")
    world.given_machines(1)

    # then capacity and the allocator agree that the place of the first NodePool is used
    assert urgent == ["n1", "n2"]
    assert places == (1, 3, 5)
    assert world.nodes("beta/main/other") == ["n3"]
    assert world.conditions("first")["Capacity"] == "NoneAvailable"


@pytest.mark.parametrize("loss", ["a machine that fails", "a reservation"])
def test_a_wait_that_goes_on_at_a_loss_keeps_its_start_for_a_late_allocator_too(
    world: WorldHarness, loss: str
) -> None:
    # given a NodePool that lacks one Node, for which a machine is free, and later one of another
    # organisation, while the allocator is away
    given_two_organisations(world)
    world.given_machines(4)
    world.apply("first", 3)
    with world.paused("allocator"):
        world.apply("first", 4)
        world.apply("beta/main/other", 1)

        # when the first loses a Node before the allocator has assigned the machine
        if loss == "a reservation":
            world.command_node("ReserveNode", "first", "n1", reservedDesired="control-plane")
        else:
            world.break_machines("n1", fault="gpu-lost")
            world.command_node("DrainNode", "first", "n1", force=True)
        world.pass_time(minutes=1)
    places = place(world, "beta/main/other"), place(world, "first")
    world.given_machines(1)

    # then it waits as long as it has waited when it lost the Node, and is served first
    assert places == (2, 1)
    assert "n5" in world.nodes("first")
