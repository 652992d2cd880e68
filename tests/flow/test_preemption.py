"""Preemption of a spot Node: warned at 0:00, drained from 2:00, deleted when drained or at 7:00."""

from contextlib import ExitStack
from datetime import timedelta

import pytest

from nodepool.contract.events import PreemptionPending
from support.audit.auditor import violations
from support.constants import OWN_TAINT, PREFER_IDLE
from support.services import NAMES
from support.world_harness import WorldHarness

PENDING = "qos.coreweave.cloud/pending-preemption"
EVICTED = "qos.coreweave.cloud/evicted-at"


def given_spot_pool(world: WorldHarness, nodes: int = 1, **pod: object) -> None:
    """A spot NodePool of so many Nodes, the first with a Pod of these fields; recording starts."""
    world.given_data_center(machines=nodes)
    world.grow("cheap", nodes, computeClass="spot")
    if pod:
        world.run_pod("n1", "job", **pod)
    world.start_recording()


def qos_labels(world: WorldHarness, node: str) -> dict[str, str]:
    """The labels of a Node about its preemption."""
    labels = world.node(node)["metadata"]["labels"]
    return {key: value for key, value in labels.items() if key.startswith("qos.")}


def test_a_preempted_node_without_pods_leaves_when_its_drain_begins(world: WorldHarness) -> None:
    given_spot_pool(world)

    world.preempt("cheap", "n1")
    world.pass_time(minutes=8)

    assert world.timed_events("cheap") == [
        "0:00 PreemptionPending n1",
        "2:00 PreemptionInProgress n1",
        "2:00 CWDrainNode n1",
        "2:00 CWNodeDeleted n1",
        "2:00 DeletedForPreemption n1",
        "2:00 CWNodeAssigned n1",
        "2:00 CWNodeRegistered n1",
    ]


def test_a_preempted_node_is_cordoned_and_labelled_at_once(world: WorldHarness) -> None:
    given_spot_pool(world, graceS=60)

    world.preempt("cheap", "n1")

    assert qos_labels(world, "n1") == {PENDING: "true"}
    assert world.node("n1")["spec"] == {
        "taints": [
            {"key": "is_gpu", "value": "true", "effect": "PreferNoSchedule"},
            OWN_TAINT,
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        ],
        "unschedulable": True,
    }
    assert world.node_conditions("n1")["CWNodeRemoval"] == "True Preempted"


def test_a_pod_runs_on_for_two_minutes_and_then_ends_within_its_grace_period(
    world: WorldHarness,
) -> None:
    given_spot_pool(world, graceS=60)

    world.preempt("cheap", "n1")
    world.pass_time(minutes=2)
    evicted = qos_labels(world, "n1")
    world.pass_time(minutes=2)

    assert evicted == {PENDING: "true", EVICTED: str(int(world.recording_since.timestamp()) + 120)}
    assert world.timed_events("cheap")[:5] == [
        "0:00 PreemptionPending n1",
        "2:00 PreemptionInProgress n1",
        "2:00 CWDrainNode n1",
        "3:00 CWNodeDeleted n1",
        "3:00 DeletedForPreemption n1",
    ]


def test_a_node_that_drains_early_leaves_early(world: WorldHarness) -> None:
    given_spot_pool(world, graceS=240)

    world.preempt("cheap", "n1")
    world.pass_time(minutes=2, seconds=30)
    world.stop_pod("n1")

    assert world.timed_events("cheap")[3:5] == [
        "2:30 CWNodeDeleted n1",
        "2:30 DeletedForPreemption n1",
    ]


def test_a_pod_that_ends_during_the_warning_does_not_shorten_it(world: WorldHarness) -> None:
    given_spot_pool(world, graceS=240)

    world.preempt("cheap", "n1")
    world.pass_time(minutes=1)
    world.stop_pod("n1")
    world.pass_time(minutes=2)

    assert world.timed_events("cheap")[:4] == [
        "0:00 PreemptionPending n1",
        "2:00 PreemptionInProgress n1",
        "2:00 CWDrainNode n1",
        "2:00 CWNodeDeleted n1",
    ]


def test_a_pod_with_a_long_grace_period_is_ended_at_seven_minutes(world: WorldHarness) -> None:
    given_spot_pool(world, graceS=3600)

    world.preempt("cheap", "n1")
    world.pass_time(minutes=8)

    assert world.timed_events("cheap")[:5] == [
        "0:00 PreemptionPending n1",
        "2:00 PreemptionInProgress n1",
        "2:00 CWDrainNode n1",
        "7:00 CWNodeDeleted n1",
        "7:00 DeletedForPreemption n1",
    ]


def test_no_step_comes_early(world: WorldHarness) -> None:
    given_spot_pool(world, graceS=3600)
    world.preempt("cheap", "n1")

    world.pass_time(seconds=119)
    before_drain = world.timed_events("cheap")
    world.pass_time(seconds=300)
    before_end = world.timed_events("cheap")
    world.pass_time(seconds=2)

    assert before_drain == ["0:00 PreemptionPending n1"]
    assert before_end[1:] == ["2:00 PreemptionInProgress n1", "2:00 CWDrainNode n1"]
    assert world.timed_events("cheap")[3:5] == [
        "7:00 CWNodeDeleted n1",
        "7:00 DeletedForPreemption n1",
    ]


def test_the_warnings_begin_with_their_reason(world: WorldHarness) -> None:
    given_spot_pool(world)

    world.preempt("cheap", "n1")
    world.pass_time(minutes=8)

    names = ("PreemptionPending", "PreemptionInProgress", "DeletedForPreemption")
    assert [world.event_messages("cheap", name) for name in names] == [
        ["Reason: Preemption pending. Node n1 is cordoned and goes within 7 minutes"],
        ["Reason: Preemption in progress. Node n1 is being drained"],
        ["Reason: Deleted for preemption. Node n1 left its NodePool"],
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_restart_between_two_steps_delays_neither(world: WorldHarness, name: str) -> None:
    given_spot_pool(world, graceS=3600)
    world.preempt("cheap", "n1")
    world.pass_time(minutes=1)
    world.restart(name)
    world.pass_time(minutes=3)

    world.restart(name)
    world.pass_time(minutes=4)

    assert world.timed_events("cheap")[:5] == [
        "0:00 PreemptionPending n1",
        "2:00 PreemptionInProgress n1",
        "2:00 CWDrainNode n1",
        "7:00 CWNodeDeleted n1",
        "7:00 DeletedForPreemption n1",
    ]


def test_a_step_missed_during_a_pause_is_taken_late_and_once(
    world: WorldHarness,
) -> None:
    given_spot_pool(world, graceS=3600)
    world.preempt("cheap", "n1")

    with world.paused("preemption"):
        world.pass_time(minutes=3)
    world.pass_time(minutes=5)

    assert world.timed_events("cheap")[:5] == [
        "0:00 PreemptionPending n1",
        "3:00 PreemptionInProgress n1",
        "3:00 CWDrainNode n1",
        "7:00 CWNodeDeleted n1",
        "7:00 DeletedForPreemption n1",
    ]


def test_a_node_leaves_in_time_although_the_preemption_service_is_away(
    world: WorldHarness,
) -> None:
    given_spot_pool(world, graceS=3600)
    world.preempt("cheap", "n1")
    world.pass_time(minutes=3)

    with world.paused("preemption"):
        world.pass_time(minutes=5)

    assert world.timed_events("cheap")[3:] == [
        "7:00 CWNodeDeleted n1",
        "7:00 CWNodeAssigned n1",
        "7:00 CWNodeRegistered n1",
        "7:00 DeletedForPreemption n1",
    ]


def test_no_drain_is_announced_of_a_node_that_has_left(world: WorldHarness) -> None:
    given_spot_pool(world, graceS=3600)
    world.preempt("cheap", "n1")

    with world.paused("preemption"):
        world.pass_time(minutes=8)

    assert world.timed_events("cheap") == [
        "0:00 PreemptionPending n1",
        "7:00 CWNodeDeleted n1",
        "7:00 CWNodeAssigned n1",
        "7:00 CWNodeRegistered n1",
        "7:00 DeletedForPreemption n1",
    ]


def test_scaling_to_zero_during_the_warning_does_not_shorten_it(world: WorldHarness) -> None:
    given_spot_pool(world, graceS=60)
    world.preempt("cheap", "n1")
    world.pass_time(minutes=1)

    world.scale("cheap", 0)
    world.pass_time(minutes=3)

    assert world.timed_events("cheap") == [
        "0:00 PreemptionPending n1",
        "2:00 PreemptionInProgress n1",
        "2:00 CWDrainNode n1",
        "3:00 CWNodeDeleted n1",
        "3:00 DeletedForPreemption n1",
        "3:00 CWNodePoolScaledDown 1 0",
    ]


def test_a_pool_deleted_during_a_warning_is_gone_when_its_node_is(world: WorldHarness) -> None:
    given_spot_pool(world, graceS=60)
    world.preempt("cheap", "n1")
    world.pass_time(minutes=1)

    world.delete("cheap")
    world.pass_time(minutes=3)

    assert world.timed_events("cheap") == [
        "0:00 PreemptionPending n1",
        "1:00 CWNodePoolRemoveNodes 1",
        "1:00 CWNodeDeletionRequestSuccess n1",
        "2:00 PreemptionInProgress n1",
        "2:00 CWDrainNode n1",
        "3:00 CWNodeDeleted n1",
        "3:00 DeletedForPreemption n1",
        "3:00 CWNodePoolNodesRemoved 1 0",
        "3:00 CWNodePoolDeleted",
    ]


def test_a_node_preempted_while_its_pool_is_deleted_leaves_with_it(world: WorldHarness) -> None:
    given_spot_pool(world, nodes=2, graceS=600)
    world.delete("cheap")

    world.preempt("cheap", "n1")
    world.pass_time(minutes=8)

    assert world.node_pool("cheap") is None
    assert world.nodes() == []


@pytest.mark.parametrize("late", [("allocator",), ("allocator", "preemption")])
def test_a_node_preempted_after_the_deletion_of_its_pool_leaves_without_a_timetable(
    world: WorldHarness, late: tuple[str, ...]
) -> None:
    given_spot_pool(world, graceS=600)

    # when the allocator removes the Nodes of the deleted pool only after the preemption has begun
    with world.paused(*late):
        world.delete("cheap")
        world.preempt("cheap", "n1")
        world.pass_time(minutes=1)
    world.pass_time(minutes=8)

    # then the Node is gone seven minutes after the request
    assert world.timed_events("cheap") == [
        "0:00 CWNodePoolRemoveNodes 1",
        "0:00 CWNodeDeletionRequestSuccess n1",
        "1:00 CWDrainNode n1",
        "8:00 CWNodeDeleted n1",
        "8:00 CWNodePoolNodesRemoved 1 0",
        "8:00 CWNodePoolDeleted",
    ]
    assert violations(world.entries()) == []


def test_a_preempted_machine_goes_to_the_default_pool_that_waits(world: WorldHarness) -> None:
    given_spot_pool(world)
    world.apply("train", 1)

    world.preempt("cheap", "n1")
    world.pass_time(minutes=8)

    assert world.nodes("train") == ["n1"]
    assert world.node_counts("cheap") == (1, 0, 0)
    assert world.conditions("cheap")["AtTarget"] == "UnderTarget"


def test_an_empty_spot_pool_refills_when_capacity_returns(world: WorldHarness) -> None:
    given_spot_pool(world)
    world.apply("train", 1)
    world.preempt("cheap", "n1")
    world.pass_time(minutes=8)
    world.start_recording()

    world.given_machines(1)

    assert world.events("cheap") == ["CWNodeAssigned n2", "CWNodeRegistered n2"]
    assert world.node_counts("cheap") == (1, 0, 1)


def test_only_a_spot_node_can_be_preempted(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1)

    command = world.preempt("train", "n1")

    expected = f"NotFound node: {world.machine_name('n1')} is no spot Node of NodePool train"
    assert world.outcomes(command) == [expected]


def test_many_preemptions_at_once_are_all_on_time(world: WorldHarness) -> None:
    world.given_data_center(machines=60)
    world.apply("cheap", 60, computeClass="spot")
    world.start_recording()

    with world.sent_together():
        for node in world.nodes("cheap"):
            world.preempt("cheap", node)
    world.pass_time(minutes=2)

    events = world.timed_events("cheap")
    assert sum(line.startswith("0:00 PreemptionPending") for line in events) == 60
    assert sum(line.startswith("2:00 PreemptionInProgress") for line in events) == 60


# Nodes that boot, or leave already.


def test_a_booting_spot_node_goes_at_once_and_is_replaced(world: WorldHarness) -> None:
    world.given_data_center(machines=2, boot_s=60)
    world.apply("cheap", 1, computeClass="spot")
    world.start_recording()

    command = world.preempt("cheap", "n1")
    world.pass_time(minutes=8)

    assert world.outcomes(command) == ["done"]
    assert world.timed_events("cheap") == [
        "0:00 CWNodeDeleted n1",
        "0:00 CWNodeAssigned n2",
        "1:00 CWNodeRegistered n2",
    ]


def test_a_node_that_leaves_and_waits_for_its_pods_has_the_whole_timetable(
    world: WorldHarness,
) -> None:
    world.given_data_center()
    world.grow("cheap", 2, computeClass="spot", lifecycle=PREFER_IDLE)
    world.run_pod("n1", graceS=60)
    world.run_pod("n2", graceS=60)
    world.scale("cheap", 1)
    world.start_recording()

    command = world.preempt("cheap", "n2")
    again = world.preempt("cheap", "n2")
    world.scale("cheap", 2)
    world.pass_time(minutes=8)

    assert (world.outcomes(command), world.outcomes(again)) == (["done"], ["unchanged"])
    assert world.timed_events("cheap") == [
        "0:00 PreemptionPending n2",
        "0:00 CWNodePoolNodesRemoved 0 2",
        "2:00 PreemptionInProgress n2",
        "2:00 CWDrainNode n2",
        "3:00 CWNodeDeleted n2",
        "3:00 DeletedForPreemption n2",
        "3:00 CWNodeAssigned n3",
        "3:00 CWNodeRegistered n3",
    ]


def test_a_leaving_node_whose_pod_ends_during_the_warning_stays_until_its_drain(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=1)
    world.apply("cheap", 1, computeClass="spot", lifecycle=PREFER_IDLE)
    world.run_pod("n1", graceS=60)
    world.scale("cheap", 0)
    world.start_recording()

    world.preempt("cheap", "n1")
    labels = qos_labels(world, "n1")
    world.stop_pod("n1")
    world.pass_time(minutes=8)

    assert labels == {PENDING: "true"}
    assert world.timed_events("cheap") == [
        "0:00 PreemptionPending n1",
        "2:00 PreemptionInProgress n1",
        "2:00 CWDrainNode n1",
        "2:00 CWNodeDeleted n1",
        "2:00 DeletedForPreemption n1",
        "2:00 CWNodePoolNodesRemoved 1 0",
        "2:00 CWNodePoolScaledDown 1 0",
    ]


def test_an_idle_node_that_leaves_already_goes_without_a_timetable(world: WorldHarness) -> None:
    # given a scale-down of an idle Node whose machine does not answer its cordon
    world.given_data_center(machines=1)
    world.apply("cheap", 1, computeClass="spot", lifecycle=PREFER_IDLE)
    world.break_machines("n1", fault="hang")
    world.scale("cheap", 0)
    world.start_recording()

    world.preempt("cheap", "n1")
    world.pass_time(minutes=8)

    assert world.timed_events("cheap")[:2] == ["5:39 CWNodeCordoned n1", "7:00 CWNodeDeleted n1"]
    assert not [line for line in world.events("cheap") if "reempt" in line]


# The services come late.


def test_work_on_a_node_that_is_preempted_without_a_warning_is_warned_before_it_ends(
    world: WorldHarness,
) -> None:
    # given an idle Node that is to leave, and work that begins there before its cordon
    given_spot_pool(world)
    with ExitStack() as away:
        with world.paused("lifecycle"):
            world.scale("cheap", 0)
            world.preempt("cheap", "n1")
            away.enter_context(world.paused("preemption"))
            world.run_pod("n1", graceS=60)

        # when the preemption service is away for longer than a preemption takes
        world.pass_time(minutes=8)
        meanwhile = world.nodes("cheap")
    world.pass_time(minutes=8)

    # then the work goes on until then, and has the whole timetable
    assert meanwhile == ["n1"]
    assert world.timed_events("cheap")[:7] == [
        "0:00 CWNodePoolRemoveNodes 1",
        "0:00 CWNodeDeletionRequestSuccess n1",
        "8:00 PreemptionPending n1",
        "10:00 PreemptionInProgress n1",
        "10:00 CWDrainNode n1",
        "11:00 CWNodeDeleted n1",
        "11:00 DeletedForPreemption n1",
    ]


@pytest.mark.parametrize("minutes", [3, 8])
def test_a_service_that_is_late_warns_as_long_as_one_in_time(
    world: WorldHarness, minutes: int
) -> None:
    given_spot_pool(world, graceS=60)

    with world.paused("preemption"):
        world.preempt("cheap", "n1")
        world.pass_time(minutes=minutes)
    warned = world.recording_since + timedelta(minutes=minutes)
    world.pass_time(minutes=8)

    (pending,) = world.world.messages(PreemptionPending)
    assert isinstance(pending, PreemptionPending)
    assert timedelta() <= pending.since - warned < timedelta(seconds=1)
    assert world.timed_events("cheap")[:5] == [
        f"{minutes}:00 PreemptionPending n1",
        f"{minutes + 2}:00 PreemptionInProgress n1",
        f"{minutes + 2}:00 CWDrainNode n1",
        f"{minutes + 3}:00 CWNodeDeleted n1",
        f"{minutes + 3}:00 DeletedForPreemption n1",
    ]


def test_nothing_is_said_of_a_preemption_of_a_node_that_has_left_meanwhile(
    world: WorldHarness,
) -> None:
    given_spot_pool(world, nodes=2)

    with world.paused("preemption"):
        command = world.preempt("cheap", "n2")
        world.scale("cheap", 1)
    world.pass_time(minutes=8)

    assert world.outcomes(command) == ["done"]
    assert not [line for line in world.events("cheap") if "reempt" in line]


def test_a_late_drain_of_an_acknowledged_node_names_its_own_moment(world: WorldHarness) -> None:
    given_spot_pool(world, graceS=60)
    world.preempt("cheap", "n1")

    with world.paused("preemption"):
        world.acknowledge("cheap", "n1")
        world.pass_time(minutes=1)

    moment = world.recording_since + timedelta(minutes=1)
    assert qos_labels(world, "n1")[EVICTED] == str(int(moment.timestamp()))


def test_a_node_that_a_scale_down_deleted_is_not_said_to_be_preempted(world: WorldHarness) -> None:
    given_spot_pool(world, nodes=2)

    with world.paused("preemption"):
        world.scale("cheap", 1)
        command = world.preempt("cheap", "n2")
    world.pass_time(minutes=8)

    assert world.outcomes(command)[0].startswith("NotFound")
    assert not [line for line in world.events("cheap") if "reempt" in line]


def test_a_preemption_during_a_scale_down_costs_one_node(world: WorldHarness) -> None:
    # given a scale-down of which the victim still drains
    world.given_data_center(machines=3)
    world.grow("cheap", 3, computeClass="spot", lifecycle=PREFER_IDLE)
    for node in ("n1", "n2", "n3"):
        world.run_pod(node, graceS=60, interruption="graceful")
    world.scale("cheap", 2)
    world.start_recording()

    world.preempt("cheap", "n1")
    world.pass_time(minutes=8)

    assert world.nodes("cheap") == ["n2", "n3"]
    assert world.timed_events("cheap")[-4:] == [
        "3:00 CWNodeDeleted n1",
        "3:00 DeletedForPreemption n1",
        "3:00 CWNodePoolNodesRemoved 0 2",
        "3:00 CWNodePoolScaledDown 3 2",
    ]


def test_a_node_that_is_kept_and_preempted_at_once_costs_one_node(world: WorldHarness) -> None:
    # given a victim that becomes active before its cordon holds, and is preempted
    world.given_data_center(machines=3)
    world.apply("cheap", 3, computeClass="spot")
    with world.paused("lifecycle", "allocator"):
        world.run_pod("n3", graceS=60)
        world.scale("cheap", 2)
        world.preempt("cheap", "n3")

    world.pass_time(minutes=8)

    assert world.nodes("cheap") == ["n1", "n2"]
    assert world.conditions("cheap")["AtTarget"] == "TargetMet"


def test_a_spot_pool_over_its_quota_is_given_what_it_lost_up_to_its_grant(
    world: WorldHarness,
) -> None:
    # given three Nodes, which are all that quota allows, and a target of nine
    world.given_data_center(machines=9, quota=3)
    world.apply("cheap", 3, computeClass="spot")
    world.scale("cheap", 9)

    # when all three are preempted
    for node in ("n1", "n2", "n3"):
        world.preempt("cheap", node)
    world.pass_time(minutes=8)

    # then three others take their places
    assert world.nodes("cheap") == ["n4", "n5", "n6"]
    assert world.conditions("cheap")["Quota"] == "Over"


def test_a_node_of_an_invalid_nodepool_that_is_preempted_is_named_as_leaving(
    world: WorldHarness,
) -> None:
    # given an invalid NodePool with two Nodes too many
    world.given_data_center(machines=3)
    world.apply("cheap", 3, computeClass="spot")
    world.apply("cheap", 1, computeClass="spot", region="US-WEST-04A")
    before = world.condition("cheap", "AtTarget")

    world.preempt("cheap", "n1")

    start = "False OverTarget: NodePool has 3 Nodes and wants 1;"
    assert before == f"{start} none is removed while Validated is Invalid."
    assert world.condition("cheap", "AtTarget") == (
        f"{start} 1 is being preempted; no other is removed while Validated is Invalid."
    )
