"""Unhealthy Nodes: cordoned, rebooted in place, or drained and replaced."""

from typing import TYPE_CHECKING, cast

import pytest

from lifecycle.decide import service as lifecycle_service
from lifecycle.gauges import gauges
from lifecycle.options import Options
from nodepool.contract.events import MachineBooted
from nodepool.contract.health import CAUSES
from nodepool.contract.metrics import REFUSED_NODE_MOVES
from support.constants import PREFER_IDLE, ZONE
from support.grown import grown
from support.harness import Harness
from support.publishing import publish
from support.services import services
from support.world_harness import WorldHarness

if TYPE_CHECKING:
    from lifecycle.state import State
    from nodepool.contract.health import NodeFault

EVICTING = {"disableUnhealthyNodeEviction": False}
CORDON_REASON = "node.coreweave.cloud/cordonReason"


def cordon_reason(harness: Harness, node: str) -> str | None:
    """The causes of the cordon of a Node, as it shows them."""
    return harness.node(node)["metadata"]["annotations"].get(CORDON_REASON)


def machine_status(harness: Harness, node: str) -> dict[str, object]:
    """The status of a machine of the first zone."""
    document = harness.document("machines", "/".join(harness.machine_path(node)[1:]))
    assert document is not None
    return cast("dict[str, object]", document["status"])


def is_cordoned(harness: Harness, node: str) -> bool:
    """Whether nothing new may be scheduled on a Node."""
    return "unschedulable" in harness.node(node)["spec"]


# By default, an unhealthy Node is cordoned and reported only.


@pytest.mark.parametrize(
    ("fault", "cause", "shown"),
    [
        ("xid", "XIDErrors", "XIDErrors True XIDErrors"),
        ("nvlink", "NVLinkStatusInactive", "NVLinkStatusInactive True NVLinkStatusInactive"),
        ("gpu-lost", "GPUMissing", "GPUMissing True GPUMissing"),
        ("disk", "ReadonlyFilesystem", "ReadonlyFilesystem True FilesystemIsReadOnly"),
        ("kernel-deadlock", "KernelDeadlock", "KernelDeadlock True CPUSoftLockup"),
        ("link-flap", "IBLinkFlapping", "IBLinkFlapping True IBLinkFlapping"),
    ],
)
def test_an_unhealthy_node_is_cordoned_and_reported(
    world: WorldHarness, fault: str, cause: str, shown: str
) -> None:
    world.given_data_center()
    world.apply("train", 1)
    world.start_recording()

    world.break_machines("n1", fault=fault)
    world.pass_time(minutes=120)

    assert world.timed_events("train") == ["0:00 CWNodeCordoned n1"]
    condition = shown.partition(" ")[0]
    assert f"{condition} {world.node_conditions('n1')[condition]}" == shown
    assert cordon_reason(world, "n1") == cause
    assert is_cordoned(world, "n1")
    assert world.node_counts("train") == (1, 0, 1)


def test_a_node_that_recovers_is_used_again(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    harness.break_machines("n1", fault="disk")
    harness.start_recording()

    harness.break_machines("n1", fault="disk", times=0)

    assert harness.events("train") == ["CWNodeUncordoned n1"]
    conditions = harness.node_conditions("n1")
    assert conditions["ReadonlyFilesystem"] == "False FilesystemIsNotReadOnly"
    assert cordon_reason(harness, "n1") is None
    assert not is_cordoned(harness, "n1")


# With eviction, what a reboot cures is rebooted in place.


def test_a_node_that_a_reboot_cures_keeps_its_place(world: WorldHarness) -> None:
    world.given_data_center(boot_s=300)
    world.apply("train", 1, lifecycle=EVICTING)
    world.pass_time(minutes=5)
    world.start_recording()

    world.break_machines("n1", fault="xid")
    during = world.node("n1")["metadata"]["labels"]["node.coreweave.cloud/state"]
    counts = world.node_counts("train")
    world.pass_time(minutes=5)

    assert during == "production-reboot"
    assert counts == (1, 0, 1)
    assert world.timed_events("train") == [
        "0:00 CWNodeCordoned n1",
        "0:00 CWDrainNode n1",
        "5:00 CWNodeUncordoned n1",
    ]
    assert world.node("n1")["status"]["phase"] == "production"
    assert world.node_conditions("n1")["XIDErrors"] == "False NoXIDErrors"
    assert cordon_reason(world, "n1") is None


def test_a_reboot_waits_without_end_for_a_pod_that_blocks(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1, lifecycle=EVICTING)
    world.run_pod("n1", "job")
    world.run_pod("n1", "web", interruption="interruptable")
    world.break_machines("n1", fault="kernel-deadlock")

    world.pass_time(minutes=600)
    waiting = world.node("n1")["status"]["phase"]
    world.start_recording()
    world.stop_pod("n1", "job")

    assert waiting == "draining"
    assert world.messages("train") == [
        "NodeActivityChanged n1 False",
        "NodeUpdated n1 rebooting",
        "NodeUpdated n1 production",
        "CWNodeUncordoned n1",
    ]


def test_a_problem_that_comes_again_within_an_hour_needs_triage(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1, lifecycle=EVICTING)
    world.break_machines("n1", fault="xid")
    world.start_recording()

    world.pass_time(minutes=59)
    world.break_machines("n1", fault="xid")

    assert world.timed_events("train") == [
        "59:00 CWNodeCordoned n1",
        "59:00 CWDrainNode n1",
        "59:00 CWNodeDeleted n1",
        "59:00 CWNodeAssigned n2",
        "59:00 CWNodeRegistered n2",
    ]


def test_a_problem_that_comes_again_later_is_cured_again(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1, lifecycle=EVICTING)
    world.break_machines("n1", fault="xid")
    world.start_recording()

    world.pass_time(minutes=61)
    world.break_machines("n1", fault="xid")

    assert world.timed_events("train") == [
        "61:00 CWNodeCordoned n1",
        "61:00 CWDrainNode n1",
        "61:00 CWNodeUncordoned n1",
    ]


def test_a_reboot_that_fails_or_does_not_end_needs_triage(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 2, lifecycle=EVICTING)
    world.break_machines("n1", fault="boot", cause="no power")
    world.break_machines("n2", fault="silence")
    world.start_recording()

    world.command_node("RebootNode", "train", "n1")
    world.command_node("RebootNode", "train", "n2")
    world.pass_time(minutes=31)

    assert world.event_messages("train", "CWNodeDeleted") == [
        "Node n1 is deleted: its reboot failed: the machine did not boot: no power",
        "Node n2 is deleted: it did not reboot within 30 minutes",
    ]
    assert world.nodes("train") == ["n3", "n4"]


# What needs triage is drained and replaced.


@pytest.mark.parametrize("fault", ["gpu-lost", "disk"])
def test_a_node_that_needs_triage_is_replaced(harness: Harness, fault: str) -> None:
    harness.given_data_center()
    harness.apply("train", 1, lifecycle=EVICTING)
    harness.run_pod("n1")
    harness.break_machines("n1", fault=fault)
    harness.start_recording()

    harness.stop_pod("n1")

    assert harness.events("train") == [
        "CWNodeDeleted n1",
        "CWNodeAssigned n2",
        "CWNodeRegistered n2",
    ]
    assert harness.node_counts("train") == (1, 0, 1)


def test_eviction_that_is_switched_on_reaches_the_nodes_that_are_unhealthy(
    harness: Harness,
) -> None:
    harness.given_data_center()
    harness.apply("train", 2)
    harness.break_machines("n1", fault="disk")
    harness.start_recording()

    harness.apply("train", 2, lifecycle=EVICTING)

    assert harness.events("train") == [
        "CWDrainNode n1",
        "CWNodeDeleted n1",
        "CWNodeAssigned n3",
        "CWNodeRegistered n3",
    ]


@pytest.mark.parametrize(
    ("fault", "problem"),
    [("gpu-lost", "GPUMissing"), ("disk", "ReadonlyFilesystem (FilesystemIsReadOnly)")],
)
def test_the_deletion_of_an_unhealthy_node_names_its_problem(
    world: WorldHarness, fault: str, problem: str
) -> None:
    world.given_data_center()
    world.apply("train", 1, lifecycle=EVICTING)
    world.start_recording()

    world.break_machines("n1", fault=fault)

    assert world.event_messages("train", "CWNodeDeleted") == [f"Node n1 is deleted: {problem}"]


# What commands ask for.


def test_a_node_is_cordoned_and_uncordoned_by_command(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    harness.start_recording()

    harness.command_node("CordonNode", "train", "n1", reason="a fan is loud")
    reason = cordon_reason(harness, "n1")
    harness.command_node("UncordonNode", "train", "n1")

    assert harness.messages("train") == [
        "NodeActionRequested n1",
        "NodeUpdated n1 cordoned",
        "CWNodeCordoned n1",
        "NodeActionRequested n1",
        "NodeUpdated n1 production",
        "CWNodeUncordoned n1",
    ]
    assert reason == "a fan is loud"
    assert cordon_reason(harness, "n1") is None


def test_a_drain_by_command_leaves_the_node_cordoned_in_its_pool(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    harness.run_pod("n1", "web", interruption="interruptable")
    harness.start_recording()

    harness.command_node("DrainNode", "train", "n1")

    assert harness.events("train") == ["CWNodeCordoned n1", "CWDrainNode n1"]
    assert harness.node_conditions("n1")["CWActive"] == "False NoWorkloads"
    assert harness.node("n1")["status"]["phase"] == "cordoned"
    assert harness.node_counts("train") == (1, 0, 1)


def test_a_forced_drain_waits_for_the_grace_period_only(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1)
    world.run_pod("n1", "job", graceS=60)
    world.command_node("DrainNode", "train", "n1")
    world.pass_time(minutes=60)
    waiting = world.node_conditions("n1")["CWActive"]

    world.command_node("DrainNode", "train", "n1", force=True)
    world.pass_time(seconds=60)

    assert waiting == "True WorkloadsRunning"
    assert world.node_conditions("n1")["CWActive"] == "False NoWorkloads"
    assert world.node("n1")["status"]["phase"] == "cordoned"


@pytest.mark.parametrize("fault", [cause for cause in CAUSES if cause != "kubelet"])
def test_no_pod_blocks_the_care_of_an_unhealthy_node_whose_drain_is_forced(
    world: WorldHarness, fault: str
) -> None:
    world.given_data_center()
    world.apply("train", 1, lifecycle=EVICTING)
    world.run_pod("n1", graceS=60)
    world.break_machines("n1", fault=fault)
    world.pass_time(minutes=60)
    waiting = world.node("n1")["status"]["phase"]
    world.start_recording()

    world.command_node("DrainNode", "train", "n1", force=True)
    world.pass_time(seconds=60)

    assert waiting == "draining"
    assert "CWDrainNode n1" in world.messages("train")
    assert "NodeActivityChanged n1 False" in world.messages("train")


def test_no_pod_blocks_a_safe_reboot_of_a_node_whose_drain_is_forced(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1)
    world.run_pod("n1", graceS=60)
    world.command_node("DrainNode", "train", "n1")
    world.command_node("RebootNode", "train", "n1")
    world.pass_time(minutes=60)
    world.start_recording()

    world.command_node("DrainNode", "train", "n1", force=True)
    world.pass_time(seconds=60)

    assert "NodeUpdated n1 rebooting" in world.messages("train")


def test_a_reboot_that_waited_is_shown_from_its_beginning(world: WorldHarness) -> None:
    # given a Node that waits for a reboot, because a Pod runs there
    world.given_data_center(machines=1, boot_s=60)
    world.apply("train", 1)
    world.pass_time(minutes=1)
    world.run_pod("n1")
    world.command_node("RebootNode", "train", "n1")
    world.pass_time(minutes=60)
    waiting = world.node_condition_times("n1")

    # when the Pod ends, and the Node boots
    world.stop_pod("n1")

    # then the reboot began now, and not when the Node began to wait
    assert waiting["PendingPhaseState"] == "2026-01-01T00:01:00Z"
    assert world.node_condition_times("n1")["PhaseState"] == "2026-01-01T01:01:00Z"


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_machine_in_triage_names_its_problem_whatever_its_node_left_for(
    world: WorldHarness, is_deleted: bool
) -> None:
    # given a NodePool that keeps its unhealthy Nodes
    world.given_data_center()
    world.apply("train", 2)
    world.break_machines("n1", fault="gpu-lost")

    # when its unhealthy Node leaves with a scale-down, or with the NodePool
    if is_deleted:
        world.delete("train")
    else:
        world.scale("train", 1)

    # then the machine says what is broken
    assert world.event_messages("train", "CWNodeDeleted")[0] == "Node n1 is deleted: GPUMissing"
    assert str(machine_status(world, "n1")["cause"]).endswith("is deleted: GPUMissing")


def test_a_safe_reboot_cordons_nothing_while_it_waits(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    harness.run_pod("n1")

    harness.command_node("RebootNode", "train", "n1")
    harness.run_pod("n1", "another", interruption="interruptable")
    waiting = harness.node_conditions("n1")["PendingPhaseState"]
    was_cordoned = is_cordoned(harness, "n1")
    harness.start_recording()
    harness.stop_pod("n1")

    assert waiting == "True production-reboot"
    assert not was_cordoned
    assert harness.events("train") == [
        "CWNodeCordoned n1",
        "CWDrainNode n1",
        "CWNodeUncordoned n1",
    ]
    assert harness.node("n1")["status"]["phase"] == "production"
    assert harness.node_conditions("n1")["CWActive"] == "False NoWorkloads"


def test_a_forced_reboot_waits_for_nothing(world: WorldHarness) -> None:
    world.given_data_center(boot_s=60)
    world.apply("train", 1)
    world.pass_time(minutes=1)
    world.run_pod("n1")
    world.start_recording()

    world.command_node("RebootNode", "train", "n1", force=True)
    state = world.node("n1")["metadata"]["labels"]["node.coreweave.cloud/state"]
    world.pass_time(minutes=1)

    assert state == "production-powerreset"
    assert world.timed_events("train") == ["0:00 CWNodeCordoned n1", "1:00 CWNodeUncordoned n1"]
    assert world.node_conditions("n1")["CWActive"] == "False NoWorkloads"


def test_commands_about_nodes_are_refused_with_a_reason(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    harness.break_machines("n1", fault="disk")

    unknown = harness.command_node("CordonNode", "train", "n2")
    commas = harness.command_node("CordonNode", "train", "n1", reason="a,b")
    unhealthy = harness.command_node("UncordonNode", "train", "n1")
    reserved = harness.command_node("ReserveNode", "train", "n1", reservedDesired="elsewhere")

    name = harness.machine_name("n2")
    assert harness.outcomes(unknown) == [f"NotFound node: {name} is no Node of NodePool train"]
    assert harness.outcomes(commas) == [
        "Invalid reason: must have no commas and no characters that cannot be printed"
    ]
    assert harness.outcomes(unhealthy) == [
        f"Invalid node: {harness.machine_name('n1')} is cordoned until this is over:"
        " ReadonlyFilesystem"
    ]
    assert harness.outcomes(reserved) == ["Invalid reservedDesired: must be control-plane or acme"]


# A removal comes before a cure.


def test_a_node_that_reboots_goes_at_once_with_its_pool(world: WorldHarness) -> None:
    world.given_data_center(boot_s=300)
    world.apply("train", 1)
    world.pass_time(minutes=5)
    world.command_node("RebootNode", "train", "n1")
    world.start_recording()

    world.delete("train")

    assert world.events("train") == [
        "CWNodePoolRemoveNodes 1",
        "CWNodeDeletionRequestSuccess n1",
        "CWNodeDeleted n1",
        "CWNodePoolNodesRemoved 1 0",
        "CWNodePoolDeleted",
    ]


def test_a_spot_node_that_reboots_is_preempted_at_once(world: WorldHarness) -> None:
    world.given_data_center(boot_s=300)
    world.apply("batch", 1, computeClass="spot")
    world.pass_time(minutes=5)
    world.command_node("RebootNode", "batch", "n1")
    world.start_recording()

    world.preempt("batch", "n1")

    assert world.events("batch")[:3] == [
        "PreemptionPending n1",
        "CWNodeDeleted n1",
        "DeletedForPreemption n1",
    ]


def test_a_scale_down_takes_an_unhealthy_node_first(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 3, lifecycle=PREFER_IDLE)
    harness.break_machines("n1", fault="disk")
    harness.start_recording()

    harness.scale("train", 2)

    assert "CWNodeDeleted n1" in harness.events("train")
    assert harness.nodes("train") == ["n2", "n3"]
    assert machine_status(harness, "n1")["state"] == "Triage"


def test_a_node_that_recovers_while_it_leaves_and_is_kept_is_healthy_again(
    world: WorldHarness,
) -> None:
    # given an unhealthy Node that waits for its Pods, and recovers before it is kept
    world.given_data_center()
    world.grow("train", 2, lifecycle=PREFER_IDLE)
    world.run_pod("n1")
    world.run_pod("n2")
    world.break_machines("n1", fault="disk")
    world.scale("train", 1)
    world.start_recording()

    world.break_machines("n1", fault="disk", times=0)
    reason = cordon_reason(world, "n1")
    world.scale("train", 2)
    kept = world.events("train")
    world.scale("train", 1)

    # then its cordon is over, and the newest Node leaves before it
    assert reason is None
    assert kept == ["CWNodeUncordoned n1", "CWNodePoolNodesRemoved 0 2"]
    assert "CWNodeDeletionRequestSuccess n2" in world.events("train")


@pytest.mark.parametrize("fault", ["disk", "xid"])
def test_a_node_that_becomes_unhealthy_while_it_leaves_is_kept_last(
    world: WorldHarness, fault: str
) -> None:
    # given two Nodes that wait for their Pods, of which the older one becomes unhealthy
    world.given_data_center()
    world.grow("train", 2, lifecycle={**PREFER_IDLE, **EVICTING})
    world.run_pod("n1")
    world.run_pod("n2")
    world.scale("train", 0)
    world.start_recording()

    world.break_machines("n1", fault=fault)
    reported = world.events("train")
    world.scale("train", 1)

    # then its cause is reported, and the healthy Node is kept
    assert reported == ["CWNodeCordoned n1"]
    assert (
        cordon_reason(world, "n1") == CAUSES[cast("NodeFault", fault)].type
    )  # Parameters are text.
    assert [is_cordoned(world, node) for node in ("n1", "n2")] == [True, False]


# A verification comes before production.


def standing(harness: Harness, node: str) -> tuple[str, str, list[str]]:
    """State, reservation and taint of the reservation that a Node has."""
    document = harness.node(node)
    labels, taints = document["metadata"]["labels"], document["spec"]["taints"]
    shown = [
        f"{taint['value']}:{taint['effect']}"
        for taint in cast("list[dict[str, str]]", taints)
        if taint["key"] == "node.coreweave.cloud/reserved"
    ]
    state = labels["node.coreweave.cloud/state"]
    return state, labels["node.coreweave.cloud/reserved"], shown


def test_a_new_node_is_verified_before_production(world: WorldHarness) -> None:
    world.given_data_center(machines=0)
    world.given_machines(2, verifySeconds=1_200)
    world.start_recording()

    world.apply("train", 1)
    during = standing(world, "n1")
    counts = world.node_counts("train")
    world.pass_time(minutes=20)

    assert during == ("test", "test", ["9f86d08188:NoExecute"])
    assert counts == (1, 0, 1)
    assert [text for text in world.messages("train") if " n1" in text] == [
        "CWNodeAssigned n1",
        "CWNodeRegistered n1",
        "AnswerAwaited n1",
        "NodeAnswered n1",
        "NodeUpdated n1 production",
    ]
    assert standing(world, "n1") == ("production", "acme", ["822b33ad87:NoExecute"])


def test_a_node_that_does_not_pass_its_verification_is_replaced(world: WorldHarness) -> None:
    world.given_data_center(machines=0)
    world.given_machines(3, verifySeconds=60)
    world.break_machines("n1", fault="verification", cause="low bandwidth")
    world.break_machines("n2", fault="hang")
    world.start_recording()
    world.apply("train", 2)

    world.pass_time(minutes=121)

    assert world.event_messages("train", "CWNodeDeleted") == [
        "Node n1 is deleted: it did not pass its verification: low bandwidth",
        "Node n2 is deleted: it was not verified within 120 minutes",
    ]
    assert world.nodes("train") == ["n3"]


def test_a_node_is_verified_again_after_a_reboot(world: WorldHarness) -> None:
    world.given_data_center(machines=0)
    world.given_machines(1, verifySeconds=60)
    world.apply("train", 1, lifecycle=EVICTING)
    world.pass_time(minutes=1)
    world.start_recording()

    world.break_machines("n1", fault="nvlink")
    during = standing(world, "n1")
    world.pass_time(minutes=1)

    assert during[:2] == ("production-powerreset", "production-powerreset")
    assert world.messages("train") == [
        "NodeUpdated n1 cordoned",
        "CWNodeCordoned n1",
        "CWDrainNode n1",
        "NodeUpdated n1 rebooting",
        "NodeUpdated n1 verifying",
        "AnswerAwaited n1",
        "NodeAnswered n1",
        "NodeUpdated n1 production",
        "CWNodeUncordoned n1",
    ]


@pytest.mark.parametrize("passes", [True, False], ids=["passes", "does not pass"])
def test_a_node_that_was_cordoned_during_its_verification_is_verified_again(
    world: WorldHarness, passes: bool
) -> None:
    # given a Node that has a problem while it is verified
    world.given_data_center(machines=0)
    world.given_machines(1, verifySeconds=600)
    if not passes:
        world.break_machines("n1", fault="verification")
    world.apply("train", 1)
    world.pass_time(minutes=1)
    world.break_machines("n1", fault="xid")
    during = world.node("n1")["status"]["phase"]

    # when the problem ends
    world.break_machines("n1", fault="xid", times=0)
    after = world.node("n1")["status"]["phase"]
    world.pass_time(minutes=11)

    # then its verification begins anew, and decides
    assert (during, after) == ("cordoned", "verifying")
    if passes:
        assert world.node("n1")["status"]["phase"] == "production"
        assert not is_cordoned(world, "n1")
    else:
        assert "CWNodeDeleted n1" in world.events("train")


def test_a_node_that_is_verified_goes_at_once_when_it_is_to_leave(world: WorldHarness) -> None:
    world.given_data_center(machines=0)
    world.given_machines(1, verifySeconds=600)
    world.apply("train", 1)
    world.start_recording()

    world.scale("train", 0)

    assert "CWDrainNode n1" not in world.events("train")
    assert world.nodes() == []


# What a Node is reserved for.


def test_a_reservation_changes_once_nothing_runs_there(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    harness.run_pod("n1")

    harness.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    labels = harness.node("n1")["metadata"]["labels"]
    pending = labels["node.coreweave.cloud/reserved"], is_cordoned(harness, "n1")
    harness.stop_pod("n1")

    assert labels["node.coreweave.cloud/reserved-desired"] == "control-plane"
    assert pending == ("acme", True)
    assert standing(harness, "n1")[1] == "control-plane"
    assert "node.coreweave.cloud/reserved-desired" not in harness.node("n1")["metadata"]["labels"]
    assert not is_cordoned(harness, "n1")


def test_a_reservation_can_be_taken_back(harness: Harness) -> None:
    harness.given_data_center(machines=1)
    harness.apply("train", 1)
    harness.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")

    harness.command_node("ReserveNode", "train", "n1", reservedDesired="acme")

    assert standing(harness, "n1")[1] == "acme"


# Machines fail by themselves, and are repaired.


def test_machines_fail_at_their_rate_and_always_at_the_same_times() -> None:
    def failures(seed: int) -> list[str]:
        world = WorldHarness()
        world.given_cluster()
        world.given_quota(100)
        world.given_machines(20, failuresPerDay=1, seed=seed)
        world.apply("train", 20)
        world.start_recording()
        world.pass_time(minutes=1_440)
        return [text for text in world.timed_events("train") if "CWNodeCordoned" in text]

    assert failures(1) == failures(1)
    assert failures(1) != failures(2)
    assert 5 < len(failures(1)) < 20


def test_a_machine_in_triage_is_repaired_by_itself(world: WorldHarness) -> None:
    world.given_data_center(machines=0)
    world.given_machines(1, repairSeconds=3_600)
    world.apply("train", 1, lifecycle=EVICTING)
    states = []
    for _ in range(3):
        world.break_machines("n1", fault="disk")
        states.append(machine_status(world, "n1")["state"])
        world.pass_time(minutes=30)
        states.append(machine_status(world, "n1")["state"])
        world.pass_time(minutes=30)
        states.append(machine_status(world, "n1")["state"])

    world.repair_machines("n1")

    assert states == [
        *("Triage", "Debug", "Assigned"),
        *("Triage", "Debug", "Assigned"),
        *("Triage", "Rma", "Rma"),
    ]
    assert world.nodes("train") == ["n1"]


# Settings.


def test_both_names_of_a_failed_registration_are_said_where_a_setting_asks_for_it() -> None:
    world = WorldHarness(
        *(each for each in services() if each.name != "lifecycle"),
        lifecycle_service(Options(registration_failed_event=True)),
    )
    world.given_data_center()
    world.break_machines("n1", fault="boot")

    world.apply("train", 1)

    failed = "registration of Node n1 failed: the machine did not boot"
    assert world.event_messages("train", "CWNodeRegistrationFailed") == [failed]
    assert world.event_messages("train", "CWRegistrationFailedEvent") == [failed]
    assert standing(world, "n2") == ("production", "acme", ["822b33ad87:NoExecute"])
    assert world.replay_differs() == []


# What cannot follow is counted.


def test_what_cannot_follow_on_a_phase_is_refused_and_counted(world: WorldHarness) -> None:
    world.given_data_center(boot_s=60)
    world.apply("train", 1)

    refused = world.command_node("RebootNode", "train", "n1")
    world.lock("train", "n1")
    world.pass_time(minutes=1)
    world.lock("train", "n1", job="7")
    world.lock("train", "n1", job="8")
    late = MachineBooted(zone=ZONE, machine=world.machine_name("n1"), assignment=1)
    publish(world.world, late)
    world.run_until_idle()

    assert world.outcomes(refused) == [
        f"Invalid node: {world.machine_name('n1')} has not joined its cluster yet; wait until it"
        " has"
    ]
    assert list(grown(gauges(cast("State", world.world.state("lifecycle"))))) == [
        (REFUSED_NODE_MOVES, ("booting", "LockNode"), 1),
        (REFUSED_NODE_MOVES, ("booting", "RebootNode"), 1),
        (REFUSED_NODE_MOVES, ("production", "MachineBooted"), 1),
    ]
    assert world.nodes("train") == ["n1"]


def test_no_healthy_node_leaves_in_place_of_an_unhealthy_one_whose_removal_was_cancelled(
    world: WorldHarness,
) -> None:
    # given a NodePool with an idle Node too many, which then gets work and breaks
    world.given_data_center(machines=3)
    world.apply("train", 2, lifecycle=EVICTING)
    with world.paused("allocator"):
        world.scale("train", 1)
        world.run_pod("n1")
        world.break_machines("n1", fault="gpu-lost")
        world.pass_time(minutes=1)

        # when the late allocator chooses that Node, keeps it, and has to choose again
        world.scale("train", 2)
        world.scale("train", 1)

    # then that Node leaves all the same once its Pod ends, and the healthy Node stays
    assert world.nodes("train") == ["n1", "n2"]
    world.stop_pod("n1")
    world.pass_time(minutes=1)
    assert world.nodes("train") == ["n2"]
