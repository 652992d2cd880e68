"""What commands ask for a Node, together with what else becomes of it."""

import pytest

from nodepool.contract.cordons import can_be_uncordoned, split_causes
from support.audit.auditor import violations
from support.constants import ORG, PREFER_IDLE
from support.harness import Harness
from support.world_harness import WorldHarness

EVICTING = {"disableUnhealthyNodeEviction": False}
RESERVED = "node.coreweave.cloud/reserved"
CORDON_REASON = "node.coreweave.cloud/cordonReason"


def reservation(harness: Harness, node: str) -> str:
    """What a Node is reserved for."""
    return harness.node(node)["metadata"]["labels"][RESERVED]


def test_a_forced_reboot_comes_before_the_triage_that_a_pod_blocks(world: WorldHarness) -> None:
    world.given_data_center(boot_s=60)
    world.apply("train", 1, lifecycle=EVICTING)
    world.pass_time(minutes=1)
    world.run_pod("n1")
    world.break_machines("n1", fault="gpu-lost")
    world.start_recording()

    world.command_node("RebootNode", "train", "n1", force=True)
    phase = world.node("n1")["status"]["phase"]
    world.pass_time(minutes=1)

    assert phase == "rebooting"
    assert world.timed_events("train")[:2] == [
        "1:00 CWNodeDeleted n1",
        "1:00 CWNodeAssigned n2",
    ]
    assert world.event_messages("train", "CWNodeDeleted") == ["Node n1 is deleted: GPUMissing"]


@pytest.mark.parametrize("interruption", ["blocking", "graceful"])
@pytest.mark.parametrize("removal", ["ScaleDown", "Preempted", "PoolDeleted"])
def test_a_node_that_leaves_before_its_safe_reboot_names_no_reboot_as_its_cordon(
    world: WorldHarness, removal: str, interruption: str
) -> None:
    # given a Node whose safe reboot waits for a Pod, or is cordoned until a Pod has ended
    world.given_data_center()
    world.apply("train", 1, computeClass="spot", lifecycle=PREFER_IDLE)
    world.run_pod("n1", graceS=600, interruption=interruption)
    world.command_node("RebootNode", "train", "n1")

    # when the Node leaves for another reason
    match removal:
        case "ScaleDown":
            world.scale("train", 0)
        case "Preempted":
            world.preempt("train", "n1")
        case _:
            world.delete("train")

    # then it is cordoned for its removal alone
    assert world.node_conditions("n1")["CWNodeRemoval"] == f"True {removal}"
    assert CORDON_REASON not in world.node("n1")["metadata"]["annotations"]


@pytest.mark.parametrize("cause", ["GPUMissing", "ReservationPending"])
def test_a_node_that_waits_for_a_safe_reboot_names_no_cause_that_is_over(
    world: WorldHarness, cause: str
) -> None:
    # given a Node with a cause for its cordon, whose safe reboot waits for a Pod
    world.given_data_center()
    world.apply("train", 1)
    world.run_pod("n1")
    if cause == "GPUMissing":
        world.break_machines("n1", fault="gpu-lost")
    else:
        world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    world.command_node("RebootNode", "train", "n1")
    before = world.node("n1")["metadata"]["annotations"][CORDON_REASON]
    world.start_recording()

    # when that cause ends
    if cause == "GPUMissing":
        world.break_machines("n1", fault="gpu-lost", times=0)
    else:
        world.command_node("ReserveNode", "train", "n1", reservedDesired=ORG)

    # then the reboot is all that the Node and its events name
    metadata = world.node("n1")["metadata"]
    assert (before, metadata["annotations"][CORDON_REASON]) == (cause, "AdminReboot")
    assert f"{RESERVED}-desired" not in metadata["labels"]
    assert world.event_messages("train", "CWNodeCordoned") == ["Node n1 is cordoned: AdminReboot"]


def test_a_node_waits_for_its_drain_only_until_it_is_drained(world: WorldHarness) -> None:
    # given a Node whose drain waits for a Pod
    world.given_data_center()
    world.apply("train", 1)
    world.run_pod("n1")
    world.command_node("DrainNode", "train", "n1")
    waiting = world.node_conditions("n1")

    # when the Pod ends
    world.stop_pod("n1")

    # then nothing waits any more
    assert waiting["PendingPhaseState"] == "True drain"
    assert "PendingPhaseState" not in world.node_conditions("n1")


def test_a_node_shows_until_when_its_reboot_has_to_end_only_while_it_reboots(
    world: WorldHarness,
) -> None:
    # given a Node that reboots, for which its machine has half an hour
    world.given_data_center(boot_s=120)
    world.apply("train", 1)
    world.pass_time(minutes=5)
    world.command_node("RebootNode", "train", "n1")
    world.pass_time(minutes=1)
    rebooting = world.node("n1")["status"].get("answerBy")

    # when its machine has booted
    world.pass_time(minutes=2)

    # then the Node is not shown as about to be given up
    assert rebooting == "2026-01-01T00:35:01Z"
    assert "answerBy" not in world.node("n1")["status"]


def test_a_cordoned_node_shows_only_until_its_machine_answers_that_its_drain_waits_and_how_long(
    world: WorldHarness,
) -> None:
    # given a machine that hangs, and so does not answer the cordon of its Node
    world.given_data_center()
    world.apply("train", 1)
    world.break_machines("n1", fault="hang")
    world.command_node("DrainNode", "train", "n1")
    world.pass_time(minutes=1)
    hanging = world.node("n1")["status"]
    waiting = [each for each in hanging["conditions"] if each["type"] == "PendingPhaseState"]

    # when the machine answers again
    world.break_machines("n1", fault="hang", times=0)

    # then its drain has waited since it was known that the machine had not answered
    assert hanging["answerBy"] == "2026-01-01T00:30:01Z"
    assert [(each["reason"], each["lastTransitionTime"]) for each in waiting] == [
        ("drain", "2026-01-01T00:00:01Z")
    ]

    # and the Node stays cordoned, waits no more, and is not shown as about to be given up
    assert world.node("n1")["status"]["phase"] == "cordoned"
    assert "PendingPhaseState" not in world.node_conditions("n1")
    assert "answerBy" not in world.node("n1")["status"]


@pytest.mark.parametrize("phase", ["rebooting", "verifying"])
def test_a_node_that_is_drained_while_it_reboots_stays(world: WorldHarness, phase: str) -> None:
    # given a Node that is rebooted, or is verified after that
    world.given_cluster()
    world.given_quota(10)
    world.given_machines(2, boot_s=300, verifySeconds=300)
    world.apply("train", 1)
    world.pass_time(minutes=10)
    world.command_node("RebootNode", "train", "n1")
    world.pass_time(minutes=1 if phase == "rebooting" else 6)
    during = world.node("n1")["status"]["phase"]

    # when its drain is asked for, and hours pass
    world.command_node("DrainNode", "train", "n1", reason="replace the fan")
    world.pass_time(minutes=300)

    # then it is cordoned: the time that its reboot had is no time for what follows
    assert during == phase
    assert world.nodes("train") == ["n1"]
    assert world.node("n1")["status"]["phase"] == "cordoned"
    assert violations(world.entries()) == []


def test_a_reservation_takes_effect_on_a_node_that_is_drained_by_command(
    harness: Harness,
) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    harness.run_pod("n1")
    harness.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")

    harness.command_node("DrainNode", "train", "n1")
    before = reservation(harness, "n1")
    harness.stop_pod("n1")

    assert before == "acme"
    assert reservation(harness, "n1") == "control-plane"
    assert harness.node("n1")["status"]["phase"] == "cordoned"


def test_a_reservation_takes_effect_where_a_drain_is_asked_for_an_idle_node(
    harness: Harness,
) -> None:
    harness.given_data_center()
    harness.apply("train", 1)

    with harness.sent_together():
        harness.command_node("DrainNode", "train", "n1")
        harness.command_node("UncordonNode", "train", "n1")
        harness.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
        harness.command_node("DrainNode", "train", "n1")

    assert reservation(harness, "n1") == "control-plane"
    assert harness.node("n1")["status"]["phase"] == "cordoned"


def test_a_node_with_a_pending_reservation_is_not_uncordoned(harness: Harness) -> None:
    harness.given_data_center()
    harness.apply("train", 1)
    harness.run_pod("n1")
    harness.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")

    refused = harness.command_node("UncordonNode", "train", "n1")

    assert harness.outcomes(refused) == [
        f"Invalid node: {harness.machine_name('n1')} is cordoned until this is over:"
        " ReservationPending control-plane"
    ]


@pytest.mark.parametrize(
    ("commands", "reason", "is_accepted"),
    [
        (("ReserveNode",), "ReservationPending", False),
        (("CordonNode",), "AdminCordon", True),
        (("RebootNode",), "AdminReboot", True),
        (("ReserveNode", "DrainNode"), "AdminDrain,ReservationPending", True),
    ],
)
def test_readers_know_from_its_cordon_whether_a_node_can_be_uncordoned(
    world: WorldHarness, commands: tuple[str, ...], reason: str, is_accepted: bool
) -> None:
    # given a Node that is cordoned: at work, or before its machine answers
    world.given_data_center()
    world.apply("train", 1)
    if "RebootNode" in commands:
        world.break_machines("n1", fault="hang")
    else:
        world.run_pod("n1")
    for command in commands:
        more = {"reservedDesired": "control-plane"} if command == "ReserveNode" else {}
        world.command_node(command, "train", "n1", **more)
    cordon = world.node("n1")["metadata"]["annotations"][CORDON_REASON]

    outcomes = world.outcomes(world.command_node("UncordonNode", "train", "n1"))

    assert cordon == reason
    assert can_be_uncordoned(split_causes(cordon)) is (outcomes == ["done"]) is is_accepted


def test_a_forced_drain_stays_one_when_its_node_leaves_for_a_scale_down(
    world: WorldHarness,
) -> None:
    world.given_data_center()
    world.apply("train", 1, lifecycle=PREFER_IDLE)
    world.run_pod("n1", graceS=60)
    with world.paused("fleet"):
        world.command_node("DrainNode", "train", "n1", force=True)
        world.scale("train", 0)
    world.start_recording()

    world.pass_time(minutes=1)

    assert world.events("train")[0] == "CWNodeDeleted n1"
    assert world.nodes("train") == []


# A problem while a Node is verified.


@pytest.mark.parametrize("fault", ["xid", "gpu-lost"])
def test_without_eviction_a_problem_during_the_verification_cordons_the_node(
    world: WorldHarness, fault: str
) -> None:
    world.given_data_center(machines=0)
    world.given_machines(2, verifySeconds=600)
    world.apply("train", 1)
    world.start_recording()

    world.break_machines("n1", fault=fault)
    world.pass_time(minutes=180)

    assert world.timed_events("train") == ["0:00 CWNodeCordoned n1"]
    assert world.node("n1")["status"]["phase"] == "cordoned"


def test_with_eviction_a_problem_during_the_verification_is_cured(world: WorldHarness) -> None:
    world.given_data_center(machines=0)
    world.given_machines(2, verifySeconds=600)
    world.apply("train", 2, lifecycle=EVICTING)
    world.start_recording()

    world.break_machines("n1", fault="xid")
    world.break_machines("n2", fault="gpu-lost")
    world.pass_time(minutes=15)

    assert world.nodes("train") == ["n1"]
    assert world.node("n1")["status"]["phase"] == "production"


# Restarts, and preemptions, on the way.


@pytest.mark.parametrize("seconds", [0, 30, 60, 75, 90])
def test_a_restart_of_every_service_changes_nothing_about_what_was_asked_for(
    world: WorldHarness, seconds: int
) -> None:
    world.given_data_center(machines=0)
    world.given_machines(3, boot_s=60, verifySeconds=30)
    world.apply("train", 3)
    world.pass_time(minutes=2)
    for node in ("n1", "n3"):
        world.run_pod(node, interruption="graceful", graceS=60)
    world.start_recording()

    world.command_node("DrainNode", "train", "n1")
    world.command_node("RebootNode", "train", "n2")
    world.lock("train", "n3")
    world.pass_time(seconds=seconds)
    for service in world.services:
        world.restart(service.name)
    world.pass_time(seconds=120 - seconds)

    assert world.timed_events("train") == [
        "0:00 CWNodeCordoned n1",
        "0:00 CWDrainNode n1",
        "0:00 CWNodeCordoned n2",
        "0:00 CWDrainNode n2",
        "1:30 CWNodeUncordoned n2",
    ]
    assert [world.node(node)["status"]["phase"] for node in ("n1", "n2", "n3")] == [
        "cordoned",
        "production",
        "production",
    ]
    assert world.node_conditions("n1")["CWActive"] == "False NoWorkloads"
    assert world.lock_changes("train") == ["n3 pending 42", "n3 locked 42"]


def test_a_spot_node_that_is_verified_is_preempted_at_once(world: WorldHarness) -> None:
    world.given_data_center(machines=0)
    world.given_machines(1, verifySeconds=600)
    world.apply("batch", 1, computeClass="spot")
    world.start_recording()

    world.preempt("batch", "n1")

    assert world.events("batch")[:3] == [
        "PreemptionPending n1",
        "CWNodeDeleted n1",
        "DeletedForPreemption n1",
    ]


def test_a_spot_node_that_a_command_drains_goes_by_the_timetable_of_its_preemption(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=1)
    world.apply("batch", 1, computeClass="spot")
    world.run_pod("n1", graceS=60)
    world.command_node("DrainNode", "batch", "n1")
    world.start_recording()

    world.preempt("batch", "n1")
    world.pass_time(minutes=4)

    assert world.timed_events("batch")[:5] == [
        "0:00 PreemptionPending n1",
        "2:00 PreemptionInProgress n1",
        "2:00 CWDrainNode n1",
        "3:00 CWNodeDeleted n1",
        "3:00 DeletedForPreemption n1",
    ]


def test_a_lock_that_is_pending_ends_once_when_its_node_is_cordoned_and_then_preempted(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=1)
    world.apply("batch", 1, computeClass="spot")
    world.run_pod("n1", graceS=60)
    world.lock("batch", "n1")

    world.command_node("CordonNode", "batch", "n1", reason="maintenance")
    world.preempt("batch", "n1")
    world.pass_time(minutes=3)

    assert world.lock_changes("batch") == [
        "n1 pending 42",
        "n1 released 42: Node n1 is cordoned",
    ]
    assert "CWNodeDeleted n1" in world.events("batch")
