"""A NodePool shrinks: which Nodes leave, in what order, and which may stay after all."""

import re
from contextlib import ExitStack

from support.constants import PREFER_IDLE
from support.harness import Harness
from support.world_harness import WorldHarness


def test_scaling_down_removes_the_newest_idle_nodes(harness: Harness) -> None:
    harness.given_data_center()
    harness.grow("train", 4)
    harness.start_recording()

    harness.scale("train", 2)

    assert harness.events("train") == [
        "CWNodePoolRemoveNodes 2",
        "CWNodeDeletionRequestSuccess n4",
        "CWNodeDeletionRequestSuccess n3",
        "CWDrainNode n4",
        "CWNodeDeleted n4",
        "CWDrainNode n3",
        "CWNodeDeleted n3",
        "CWNodePoolNodesRemoved 2 2",
        "CWNodePoolScaledDown 4 2",
    ]
    assert harness.nodes("train") == ["n1", "n2"]
    assert harness.conditions("train")["AtTarget"] == "TargetMet"


def test_nodes_that_are_still_booting_leave_first_without_a_drain(world: WorldHarness) -> None:
    world.given_cluster()
    world.given_quota(10)
    world.given_machines(1)
    world.given_machines(2, boot_s=600)
    world.grow("train", 3)
    world.start_recording()

    world.scale("train", 1)

    assert world.events("train") == [
        "CWNodePoolRemoveNodes 2",
        "CWNodeDeletionRequestSuccess n3",
        "CWNodeDeletionRequestSuccess n2",
        "CWNodeDeleted n3",
        "CWNodeDeleted n2",
        "CWNodePoolNodesRemoved 2 1",
        "CWNodePoolScaledDown 3 1",
    ]
    assert world.node_counts("train") == (1, 0, 1)


def test_the_condition_names_blocking_pods_before_nodes_that_are_draining(
    world: WorldHarness,
) -> None:
    # given a pool with three Nodes whose Pods take an hour to end, and a Node whose Pod blocks
    world.given_data_center()
    world.apply("train", 4, lifecycle=PREFER_IDLE)
    for node in ("n1", "n2", "n3"):
        world.run_pod(node, "patient", interruption="graceful", graceS=3600)
    world.pass_time(minutes=1)
    world.run_pod("n4", "stubborn")

    # when all Nodes have to leave
    world.scale("train", 0)

    # then the Pod that blocks without a deadline is named, and the others after it
    message = world.condition("train", "AtTarget")
    blocked = "n4, active with Pods stubborn since 2026-01-01T00:01:00Z"
    assert f"waits for {blocked}; n1, active since" in message
    assert message.endswith("; 1 more.")


def test_idle_only_keeps_an_active_node_until_it_is_idle(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 2)
    harness.run_pod("n1")
    harness.run_pod("n2")
    harness.start_recording()

    harness.scale("train", 1)
    waiting = harness.events("train")
    message = harness.condition("train", "AtTarget")
    harness.stop_pod("n1")

    assert waiting == ["CWNodePoolRemoveNodes 1"]
    count = "False OverTarget: NodePool has 2 Nodes and wants 1; waits for 1 of 2:"
    assert re.fullmatch(rf"{count} n1, active .*job.*; n2, active .*job.*", message)
    assert harness.events("train")[1:] == [
        "CWNodeDeletionRequestSuccess n1",
        "CWDrainNode n1",
        "CWNodeDeleted n1",
        "CWNodePoolNodesRemoved 1 1",
        "CWNodePoolScaledDown 2 1",
    ]
    assert harness.nodes("train") == ["n2"]


def test_prefer_idle_removes_idle_nodes_first_and_active_nodes_next(harness: Harness) -> None:
    harness.given_data_center()
    harness.grow("train", 3, lifecycle=PREFER_IDLE)
    harness.run_pod("n2", interruption="interruptable")
    harness.run_pod("n3", interruption="interruptable")
    harness.start_recording()

    harness.scale("train", 1)

    assert harness.events("train") == [
        "CWNodePoolRemoveNodes 2",
        "CWNodeDeletionRequestSuccess n1",
        "CWNodeDeletionRequestSuccess n3",
        "CWDrainNode n1",
        "CWNodeDeleted n1",
        "CWDrainNode n3",
        "CWNodeDeleted n3",
        "CWNodePoolNodesRemoved 2 1",
        "CWNodePoolScaledDown 3 1",
    ]


def test_prefer_idle_takes_an_idle_node_before_a_busy_cordoned_one(world: WorldHarness) -> None:
    world.given_data_center()
    world.grow("train", 2, lifecycle=PREFER_IDLE)
    world.run_pod("n1")
    world.command_node("CordonNode", "train", "n1")
    world.start_recording()

    world.scale("train", 1)

    assert "CWNodeDeleted n2" in world.events("train")
    assert world.nodes("train") == ["n1"]


def test_an_idle_node_takes_the_place_of_a_victim_that_waits_for_its_pods(
    world: WorldHarness,
) -> None:
    world.given_data_center()
    world.grow("train", 2, lifecycle=PREFER_IDLE)
    world.run_pod("n1", "first")
    world.run_pod("n2", "second")
    world.scale("train", 1)
    world.start_recording()

    world.stop_pod("n1", "first")

    assert world.events("train") == [
        "CWNodeDeletionRequestSuccess n1",
        "CWDrainNode n1",
        "CWNodeDeleted n1",
        "CWNodePoolNodesRemoved 1 1",
        "CWNodePoolScaledDown 2 1",
    ]
    assert "unschedulable" not in world.node("n2")["spec"]


def test_a_change_to_idle_only_keeps_busy_victims(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1, lifecycle=PREFER_IDLE)
    world.run_pod("n1")
    world.scale("train", 0)
    cordoned = world.node("n1")["spec"].get("unschedulable")

    world.apply("train", 0, lifecycle={"scaleDownStrategy": "IdleOnly"})

    assert cordoned is True
    assert "unschedulable" not in world.node("n1")["spec"]
    assert world.conditions("train")["AtTarget"] == "OverTarget"


def test_an_unhealthy_node_that_leaves_counts_in_a_scale_down(world: WorldHarness) -> None:
    # given an unhealthy Node that is replaced once its Pod has ended
    world.given_data_center()
    world.grow("train", 3, lifecycle={"disableUnhealthyNodeEviction": False})
    world.run_pod("n1")
    world.break_machines("n1", fault="gpu-lost")
    world.start_recording()

    world.scale("train", 2)
    chosen = world.events("train")
    world.stop_pod("n1")

    assert chosen == []
    assert world.nodes("train") == ["n2", "n3"]
    assert world.events("train")[-1] == "CWNodePoolScaledDown 3 2"


def test_a_blocking_pod_delays_the_deletion_of_its_node(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1, lifecycle=PREFER_IDLE)
    harness.run_pod("n1")
    harness.start_recording()

    harness.scale("train", 0)
    draining = harness.events("train"), harness.node_counts("train")
    harness.stop_pod("n1")

    assert draining == (
        ["CWNodePoolRemoveNodes 1", "CWNodeDeletionRequestSuccess n1", "CWDrainNode n1"],
        (0, 0, 1),
    )
    assert harness.events("train")[3:] == [
        "CWNodeDeleted n1",
        "CWNodePoolNodesRemoved 1 0",
        "CWNodePoolScaledDown 1 0",
    ]


def test_a_node_that_becomes_active_before_its_cordon_is_kept(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 2)
    world.run_pod("n1")
    world.start_recording()

    with world.paused("lifecycle"):
        world.scale("train", 1)
        world.run_pod("n2")

    assert world.messages("train") == [
        "NodePoolValidated Valid",
        "QuotaChecked Under 1",
        "CapacityChecked Sufficient 8",
        "CWNodePoolRemoveNodes 1",
        "CWNodeDeletionRequestSuccess n2",
        "GrantAcknowledged 1",
        "NodeUpdated n2 cordoned",
        "NodeActivityChanged n2 True",
        "NodeUpdated n2 production",
        "NodeKept n2",
    ]
    assert world.nodes("train") == ["n1", "n2"]
    assert world.conditions("train")["AtTarget"] == "OverTarget"
    assert world.node_conditions("n2")["CWNodeRemoval"] == "False NotPending"


def test_a_node_that_was_kept_leaves_when_it_is_idle_again(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 2)
    world.run_pod("n1")
    with world.paused("lifecycle"):
        world.scale("train", 1)
        world.run_pod("n2")
    world.start_recording()

    world.stop_pod("n2")

    assert world.events("train") == [
        "CWNodeDeletionRequestSuccess n2",
        "CWDrainNode n2",
        "CWNodeDeleted n2",
        "CWNodePoolNodesRemoved 1 1",
        "CWNodePoolScaledDown 2 1",
    ]


def test_a_target_raised_again_keeps_the_nodes_that_are_still_there(
    world: WorldHarness,
) -> None:
    world.given_data_center()
    world.grow("train", 2, lifecycle=PREFER_IDLE)
    world.run_pod("n1")
    world.run_pod("n2")
    world.scale("train", 0)
    world.start_recording()

    world.scale("train", 2)

    assert world.messages("train") == [
        "NodePoolValidated Valid",
        "QuotaChecked Under 2",
        "CapacityChecked Sufficient 8",
        "NodeRemovalCancelled n1",
        "NodeRemovalCancelled n2",
        "NodeUpdated n1 production",
        "NodeKept n1",
        "NodeUpdated n2 production",
        "NodeKept n2",
        "CWNodePoolNodesRemoved 0 2",
    ]
    assert world.node_counts("train") == (2, 0, 2)
    assert world.conditions("train")["AtTarget"] == "TargetMet"


def test_a_scale_down_that_found_no_idle_node_ends_when_it_is_taken_back(
    world: WorldHarness,
) -> None:
    # given a scale-down that waits for an idle Node
    world.given_data_center()
    world.grow("train", 2)
    world.run_pod("n1")
    world.run_pod("n2")
    world.start_recording()
    world.scale("train", 1)

    world.scale("train", 2)

    assert world.events("train") == ["CWNodePoolRemoveNodes 1", "CWNodePoolNodesRemoved 0 2"]
    assert world.event_messages("train", "CWNodePoolNodesRemoved") == ["0 Nodes removed, 2 remain"]


def test_a_scale_down_of_an_invalid_nodepool_ends_when_it_is_valid_and_wants_its_nodes(
    world: WorldHarness,
) -> None:
    # given a scale-down that waits for a Pod when its NodePool becomes invalid
    world.given_data_center()
    world.grow("train", 2, lifecycle=PREFER_IDLE)
    world.run_pod("n1")
    world.run_pod("n2")
    world.scale("train", 1)
    world.start_recording()
    world.apply("train", 2, lifecycle=PREFER_IDLE, region="US-WEST-04A")
    invalid = world.events("train")

    # when it is valid again and wants both Nodes
    world.apply("train", 2, lifecycle=PREFER_IDLE)

    assert invalid == ["CWInstanceTypeNotInZone"]
    assert world.events("train") == ["CWInstanceTypeNotInZone", "CWNodePoolNodesRemoved 0 2"]


def test_a_target_raised_again_replaces_the_nodes_that_are_gone(world: WorldHarness) -> None:
    world.given_data_center()
    world.grow("train", 3, lifecycle=PREFER_IDLE)
    world.run_pod("n1")
    world.scale("train", 0)
    world.start_recording()

    world.scale("train", 2)

    # then the totals wait until it is certain that the first Node stays
    assert world.events("train") == [
        "CWNodeRequestQueued 1",
        "CWNodeAssigned n4",
        "CWNodePoolNodesRemoved 2 2",
        "CWNodePoolScaledDown 3 2",
        "CWNodeRegistered n4",
    ]
    assert world.nodes("train") == ["n1", "n4"]


def test_a_scale_down_that_is_taken_back_counts_what_is_gone_and_asks_for_it_anew(
    world: WorldHarness,
) -> None:
    # given five Nodes, of which two are gone and one still drains
    world.given_data_center()
    world.grow("train", 5, lifecycle=PREFER_IDLE)
    for node in ("n1", "n2", "n3"):
        world.run_pod(node)
    world.scale("train", 2)
    world.start_recording()

    world.scale("train", 5)

    assert world.events("train") == [
        "CWNodeRequestQueued 2",
        "CWNodeAssigned n6",
        "CWNodeAssigned n7",
        "CWNodePoolNodesRemoved 2 5",
        "CWNodeRegistered n6",
        "CWNodeRegistered n7",
    ]
    assert world.nodes("train") == ["n1", "n2", "n3", "n6", "n7"]


def test_a_victim_replaced_as_unhealthy_before_it_could_be_kept_counts(
    world: WorldHarness,
) -> None:
    world.given_data_center()
    world.grow("train", 2, lifecycle={"disableUnhealthyNodeEviction": False})
    world.command_node("CordonNode", "train", "n1")
    world.start_recording()

    # when its removal is requested and cancelled before lifecycle has heard of its fault
    with world.paused("lifecycle"):
        world.break_machines("n1", fault="disk")
        world.scale("train", 1)
        world.scale("train", 2)

    # then the totals count the victim, and another Node is requested
    assert world.events("train") == [
        "CWNodePoolRemoveNodes 1",
        "CWNodeDeletionRequestSuccess n1",
        "CWNodeCordoned n1",
        "CWDrainNode n1",
        "CWNodeDeleted n1",
        "CWNodePoolNodesRemoved 1 1",
        "CWNodeRequestQueued 1",
        "CWNodeAssigned n3",
        "CWNodeRegistered n3",
    ]
    assert world.nodes("train") == ["n2", "n3"]


def test_a_scale_down_counts_no_node_that_left_for_a_drain_and_still_ends(
    world: WorldHarness,
) -> None:
    # given a surplus that is at work, and is unhealthy
    world.given_data_center(machines=3)
    world.grow("train", 3)
    for node in ("n1", "n2", "n3"):
        world.run_pod(node)
    for node in ("n1", "n2"):
        world.break_machines(node, fault="gpu-lost")
    world.start_recording()
    world.scale("train", 1)

    # when commands drain it, and the next scale-down follows
    for node in ("n1", "n2"):
        world.command_node("DrainNode", "train", node, force=True)
    world.pass_time(minutes=1)
    world.stop_pod("n3")
    world.scale("train", 0)

    assert world.event_messages("train", "CWNodePoolNodesRemoved") == [
        "0 Nodes removed, 1 remains",
        "1 Node removed, 0 remain",
    ]
    assert [each for each in world.events("train") if each.startswith("CWNodePool")] == [
        "CWNodePoolRemoveNodes 2",
        "CWNodePoolNodesRemoved 0 1",
        "CWNodePoolScaledDown 3 1",
        "CWNodePoolRemoveNodes 1",
        "CWNodePoolNodesRemoved 1 0",
        "CWNodePoolScaledDown 1 0",
    ]


def test_a_scale_down_counts_no_node_that_was_preempted_and_still_ends(
    world: WorldHarness,
) -> None:
    # given spot Nodes at work, of which one is too many
    world.given_data_center(machines=2)
    world.apply("cheap", 2, computeClass="spot")
    for node in ("n1", "n2"):
        world.run_pod(node)
    world.start_recording()
    world.scale("cheap", 1)

    # when it gives way
    world.apply("train", 1)
    world.pass_time(minutes=7)

    assert [each for each in world.events("cheap") if each.startswith("CWNodePool")] == [
        "CWNodePoolRemoveNodes 1",
        "CWNodePoolNodesRemoved 0 1",
        "CWNodePoolScaledDown 2 1",
    ]


def test_a_scale_down_ends_only_after_a_victim_that_was_asked_to_give_way_has_left(
    world: WorldHarness,
) -> None:
    # given a spot Node that leaves for a scale-down once its Pod ends
    world.given_data_center(machines=3)
    world.grow("cheap", 3, computeClass="spot", lifecycle={"scaleDownStrategy": "PreferIdle"})
    world.apply("train", 0)
    for node in ("n1", "n2", "n3"):
        world.run_pod(node)
    world.start_recording()
    world.scale("cheap", 2)

    # when it is asked to give way, and the target rises again before its preemption begins
    with world.paused("preemption"):
        world.scale("train", 1)
        world.scale("cheap", 3)
        world.stop_pod("n3")

    # then the scale-down ends, and counts the Node, once the Node has left
    assert [
        each for each in world.events("cheap") if each.startswith(("CWNodePool", "CWNodeDeleted"))
    ] == [
        "CWNodePoolRemoveNodes 1",
        "CWNodeDeleted n3",
        "CWNodePoolNodesRemoved 1 2",
    ]


def test_a_node_whose_machine_does_not_answer_is_deleted_and_its_machine_is_not_used_again(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=2)
    world.grow("train", 2)
    world.break_machines("n2", fault="hang")
    world.start_recording()

    world.scale("train", 1)
    world.pass_time(minutes=29)
    before = world.node_counts("train")
    world.pass_time(minutes=2)
    world.scale("train", 2)

    assert before == (1, 0, 2)
    assert world.timed_events("train")[2:7] == [
        "5:40 CWNodeCordoned n2",
        "30:01 CWNodePoolNodesRemoveError n2",
        "30:01 CWNodeDeleted n2",
        "30:01 CWNodePoolNodesRemoved 1 1",
        "30:01 CWNodePoolScaledDown 2 1",
    ]
    assert world.nodes("train") == ["n1"]
    assert world.conditions("train")["Capacity"] == "NoneAvailable"


def test_a_machine_that_answers_again_in_time_is_free(world: WorldHarness) -> None:
    world.given_data_center(machines=2)
    world.apply("train", 2)
    world.break_machines("n2", fault="hang")
    world.scale("train", 1)
    world.pass_time(minutes=29)

    world.break_machines("n2", fault="hang", times=0)
    world.scale("train", 2)

    assert world.nodes("train") == ["n1", "n2"]


def test_a_pod_that_blocks_a_scale_down_is_no_machine_that_does_not_answer(
    world: WorldHarness,
) -> None:
    world.given_data_center()
    world.apply("train", 1, lifecycle=PREFER_IDLE)
    world.run_pod("n1")

    world.scale("train", 0)
    world.pass_time(minutes=7 * 24 * 60)
    blocked = world.nodes("train")
    world.stop_pod("n1")

    assert blocked == ["n1"]
    assert world.nodes("train") == []
    assert "CWNodePoolNodesRemoveError n1" not in world.events("train")


def test_a_pool_that_shrinks_gives_its_machines_to_others(harness: Harness) -> None:
    harness.given_data_center(machines=2)
    harness.grow("train", 2)
    harness.apply("serve", 1)
    harness.start_recording()

    harness.scale("train", 1)

    assert harness.events("serve") == ["CWNodeAssigned n2", "CWNodeRegistered n2"]
    assert harness.nodes("train") == ["n1"]
    assert harness.nodes("serve") == ["n2"]


def test_a_victim_that_a_command_drains_stays_where_it_became_active(world: WorldHarness) -> None:
    # given a Node that a command drains, on which a Pod runs of which nobody knows yet
    world.given_data_center(machines=3)
    world.apply("train", 2)
    with ExitStack() as fleet:
        fleet.enter_context(world.paused("fleet"))
        world.run_pod("n2", "job")
        world.command_node("DrainNode", "train", "n2", reason="Audit")

        # when it is chosen to leave, before lifecycle hears of the Pod
        with world.paused("lifecycle"):
            fleet.close()
            world.scale("train", 1)
    world.pass_time(minutes=60)

    # then the idle Node leaves in its place, and the drain goes on
    assert world.nodes("train") == ["n2"]
    assert world.node_conditions("n2")["CWNodeRemoval"].startswith("False")
    assert world.condition("train", "AtTarget").startswith("True TargetMet")


def test_the_message_waits_for_no_pod_while_nodes_that_boot_can_leave(
    world: WorldHarness,
) -> None:
    # given four active Nodes and two that boot
    world.given_data_center(machines=4)
    world.given_machines(2, boot_s=600)
    world.apply("train", 4)
    for node in ("n1", "n2", "n3", "n4"):
        world.run_pod(node)
    world.scale("train", 6)

    # when the target falls while nobody removes Nodes
    with world.paused("lifecycle"):
        world.scale("train", 3)
        waiting = world.condition("train", "AtTarget")

    assert "waits for 1 of 4: " in waiting


def test_the_message_counts_every_node_that_leaves(world: WorldHarness) -> None:
    # given a spot NodePool of which three Nodes are preempted
    world.given_data_center(machines=4)
    world.apply("cheap", 4, computeClass="spot")
    for node in world.nodes("cheap")[:3]:
        world.preempt("cheap", node)

    # when its target falls by less
    world.apply("cheap", 3, computeClass="spot")

    assert world.condition("cheap", "AtTarget") == (
        "False OverTarget: NodePool has 4 Nodes and wants 3; 3 are being preempted."
    )


def test_the_message_names_no_busy_node_while_idle_nodes_can_leave(world: WorldHarness) -> None:
    world.given_data_center(machines=4)
    world.apply("train", 4)
    world.run_pod("n1")

    with world.paused("allocator"):
        world.scale("train", 1)
        waiting = world.condition("train", "AtTarget")

    assert waiting == "False OverTarget: NodePool has 4 Nodes and wants 1; 3 are to leave."
