"""Work on a Node that is verified or has just booted, which its removal or its reboot respects.

In a Kubernetes cluster, Pods stay bound to a Node that reboots, and a Pod may tolerate its taints.
"""

import pytest

from flow.test_kubernetes_nodes import EVICTING, connect, report_condition, status
from nodepool.contract.pods import Pod, PodClass, Toleration
from support.agent_reports import report
from support.audit.auditor import violations
from support.constants import PREFER_IDLE
from support.world_harness import WorldHarness

WORK = Pod(name="default/train-0", gpus=8, tolerations=(Toleration(operator="Exists"),))
GRACEFUL = WORK.model_copy(update={"interruption": PodClass.GRACEFUL, "grace_s": 60})


def given_verified_node(
    world: WorldHarness, *pods: Pod, verify_s: float = 600, compute_class: str = "default"
) -> None:
    """A Node that is verified after a forced reboot and on which Pods run; a recording begins.

    Without a verification, the Node has just been reset.
    """
    world.given_machines(3, boot_s=60, verifySeconds=verify_s)
    world.given_quota(10)
    connect(world)
    world.apply("train", 1, lifecycle={**EVICTING, **PREFER_IDLE}, computeClass=compute_class)
    world.pass_time(minutes=1)
    report(world, "n1")
    world.pass_time(seconds=verify_s)
    world.command_node("RebootNode", "train", "n1", force=True)
    world.pass_time(minutes=1 if verify_s else 0)
    report(world, "n1", *pods)
    world.start_recording()


def test_a_safe_reboot_of_a_verified_node_waits_until_nothing_blocks_it(
    world: WorldHarness,
) -> None:
    given_verified_node(world, WORK)

    world.command_node("RebootNode", "train", "n1")
    world.pass_time(minutes=9)
    waiting = world.messages("train")
    world.pass_time(minutes=60)
    report(world, "n1")
    report(world, "n1")

    assert waiting == ["NodeActionRequested n1", "AnswerAwaited n1"]
    assert world.messages("train") == [
        "NodeActionRequested n1",
        "AnswerAwaited n1",
        "NodeAnswered n1",
        "NodeUpdated n1 production",
        "CWNodeUncordoned n1",
        "NodeActivityChanged n1 False",
        "NodeUpdated n1 cordoned",
        "CWNodeCordoned n1",
        "CWDrainNode n1",
        "NodeUpdated n1 rebooting",
    ]


def test_a_safe_reboot_during_a_verification_begins_as_soon_as_the_work_ends(
    world: WorldHarness,
) -> None:
    given_verified_node(world, WORK)

    world.command_node("RebootNode", "train", "n1")
    report(world, "n1")

    assert world.messages("train") == [
        "NodeActionRequested n1",
        "NodeActivityChanged n1 False",
        "NodeUpdated n1 rebooting",
    ]


def test_a_safe_reboot_of_a_verified_node_gives_a_graceful_pod_its_grace_period(
    world: WorldHarness,
) -> None:
    given_verified_node(world, GRACEFUL)

    world.command_node("RebootNode", "train", "n1")
    report(world, "n1", GRACEFUL)
    report(world, "n1", GRACEFUL.model_copy(update={"terminating": True}))
    phase = status(world, "n1")["phase"]
    report(world, "n1")

    assert phase == "draining"
    assert status(world, "n1")["phase"] == "rebooting"


def test_a_forced_reboot_of_a_verified_node_does_not_wait(world: WorldHarness) -> None:
    given_verified_node(world, WORK)

    world.command_node("RebootNode", "train", "n1", force=True)

    assert world.messages("train") == ["NodeActionRequested n1", "NodeUpdated n1 rebooting"]


@pytest.mark.parametrize(("problem", "end"), [("XIDErrors", "rebooting"), ("GPUMissing", "")])
def test_a_node_with_a_problem_during_its_verification_waits_for_its_work(
    world: WorldHarness, problem: str, end: str
) -> None:
    given_verified_node(world, WORK)

    report_condition(world, "n1", problem, "True")
    report(world, "n1", WORK)
    world.pass_time(minutes=600)
    waiting = world.messages("train")
    report(world, "n1")

    assert waiting == ["NodeUpdated n1 cordoned", "CWNodeCordoned n1", "CWDrainNode n1"]
    assert status(world, "n1")["phase"] == end if end else world.nodes("train") == ["n2"]
    assert violations(world.entries()) == []


def test_a_problem_that_outlasts_a_forced_reboot_waits_for_the_work_too(
    world: WorldHarness,
) -> None:
    # given a Node that is unhealthy and at work
    given_verified_node(world, WORK, verify_s=0)
    world.pass_time(minutes=2)
    report_condition(world, "n1", "KernelDeadlock", "True")
    report(world, "n1", WORK)

    # when its reboot is forced, which ends neither its problem nor its work
    world.command_node("RebootNode", "train", "n1", force=True)
    world.pass_time(minutes=1)
    report(world, "n1", WORK)
    world.start_recording()
    world.pass_time(minutes=9)
    settling = world.events("train")
    world.pass_time(minutes=600)
    waiting = world.events("train")
    report(world, "n1")

    # then the Node is replaced once its work has ended
    assert (settling, waiting) == ([], ["CWNodeCordoned n1", "CWDrainNode n1"])
    assert world.events("train") == [
        "CWNodeCordoned n1",
        "CWDrainNode n1",
        "CWNodeDeleted n1",
        "CWNodeAssigned n2",
    ]


def test_a_node_that_fails_its_verification_is_replaced_once_its_work_ends(
    world: WorldHarness,
) -> None:
    given_verified_node(world)
    world.break_machines("n1", fault="verification")
    world.command_node("RebootNode", "train", "n1", force=True)
    world.pass_time(minutes=1)
    report(world, "n1", WORK)
    world.start_recording()

    world.pass_time(minutes=600)
    waiting = world.timed_events("train"), world.nodes("train")
    report(world, "n1")

    assert waiting == ([], ["n1"])
    assert world.events("train") == ["CWNodeDeleted n1", "CWNodeAssigned n2"]


def test_a_verified_spot_node_at_work_is_preempted_by_the_timetable(world: WorldHarness) -> None:
    given_verified_node(world, WORK, compute_class="spot")

    world.preempt("train", "n1")
    world.pass_time(minutes=8)

    assert world.timed_events("train") == [
        "0:00 PreemptionPending n1",
        "0:00 CWNodeUncordoned n1",
        "2:00 PreemptionInProgress n1",
        "2:00 CWDrainNode n1",
        "7:00 CWNodeDeleted n1",
        "7:00 DeletedForPreemption n1",
        "7:00 CWNodeAssigned n2",
    ]
    assert violations(world.entries()) == []


def test_a_scale_down_waits_for_the_work_on_a_verified_node(world: WorldHarness) -> None:
    given_verified_node(world, WORK)

    world.scale("train", 0)
    world.pass_time(minutes=600)
    waiting = world.events("train")
    report(world, "n1")

    assert waiting == [
        "CWNodePoolRemoveNodes 1",
        "CWNodeDeletionRequestSuccess n1",
        "CWNodeUncordoned n1",
        "CWDrainNode n1",
    ]
    assert world.nodes("train") == []
    assert violations(world.entries()) == []


def test_a_verified_node_that_is_kept_at_work_is_verified_again(world: WorldHarness) -> None:
    given_verified_node(world, WORK)
    world.scale("train", 0)

    world.scale("train", 1)
    again = status(world, "n1")["phase"]
    world.pass_time(minutes=10)

    assert (again, status(world, "n1")["phase"]) == ("verifying", "production")


def test_the_deletion_of_a_pool_gives_the_pods_on_a_verified_node_their_grace_period(
    world: WorldHarness,
) -> None:
    ending = WORK.model_copy(update={"terminating": True, "grace_s": 600})
    given_verified_node(world, WORK)

    world.delete("train")
    report(world, "n1", ending)
    world.pass_time(minutes=9)
    waiting = world.nodes("train")
    report(world, "n1")

    assert waiting == ["n1"]
    assert world.events("train") == [
        "CWNodePoolRemoveNodes 1",
        "CWNodeDeletionRequestSuccess n1",
        "CWNodeUncordoned n1",
        "CWDrainNode n1",
        "CWNodeDeleted n1",
        "CWNodePoolNodesRemoved 1 0",
        "CWNodePoolDeleted",
    ]


def test_a_victim_that_becomes_active_during_its_first_verification_is_kept(
    world: WorldHarness,
) -> None:
    # given an idle Node that is verified for the first time
    world.given_machines(1, boot_s=60, verifySeconds=600)
    world.given_quota(10)
    connect(world)
    world.apply("train", 1)
    world.pass_time(minutes=1)
    report(world, "n1")
    world.start_recording()

    # when a Pod starts on the Node just before a scale-down chooses it
    with world.paused("lifecycle"):
        report(world, "n1", WORK)
        world.scale("train", 0)

    # then the Node stays, and its verification goes on
    assert world.messages("train")[-4:] == [
        "CWNodeDeletionRequestSuccess n1",
        "GrantAcknowledged 0",
        "NodeActivityChanged n1 True",
        "NodeKept n1",
    ]
    world.pass_time(minutes=10)
    assert status(world, "n1")["phase"] == "production"
    assert violations(world.entries()) == []
