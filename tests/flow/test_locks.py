"""A Slurm job locks a Node: its prolog ends when no Pod is left that does not tolerate the lock."""

import pytest

from support.constants import H100, ORG, OWN_TAINT, PREFER_IDLE, ZONE
from support.failing import given_failing
from support.harness import Harness
from support.paths import zone_path
from support.world_harness import WorldHarness

LOCK = "sunk.coreweave.com/lock"
TOLERATION = {"key": LOCK, "value": "true", "operator": "Equal"}
GPU = {"key": "is_gpu", "value": "true", "effect": "PreferNoSchedule"}
RELEASED = "n1 released 42: Slurm job 42 released it"


def lock_of(harness: Harness, node: str) -> str:
    """The annotation and the taint of the lock, as the Node has them; empty without a lock."""
    document = harness.node(node)
    annotation = document["metadata"]["annotations"].get(LOCK, "")
    assert (LOCK in str(document["spec"]["taints"])) is bool(annotation)
    return str(annotation)


def active(harness: Harness, node: str) -> str:
    """Status and message of the condition CWActive."""
    conditions = harness.node(node)["status"]["conditions"]
    (found,) = (each for each in conditions if each["type"] == "CWActive")
    return f"{found['status']} {found['message']}"


def phase_of(harness: Harness, node: str) -> str:
    """Where a Node is on its way."""
    return harness.node(node)["status"]["phase"]


def given_node(harness: Harness) -> None:
    """A NodePool with one Node."""
    harness.given_data_center()
    harness.apply("train", 1, lifecycle=PREFER_IDLE)


def test_a_node_without_pods_is_locked_at_once_and_unlocked_again(harness: Harness) -> None:
    given_node(harness)

    locked = harness.lock("train", "n1")
    during = lock_of(harness, "n1"), active(harness, "n1")
    unlocked = harness.unlock("train", "n1")

    assert harness.outcomes(locked) == ["done"]
    assert during == ("locked", "True running: Slurm job 42")
    assert harness.outcomes(unlocked) == ["done"]
    assert harness.lock_changes("train") == ["n1 pending 42", "n1 locked 42", RELEASED]
    assert (lock_of(harness, "n1"), active(harness, "n1")) == ("", "False nothing runs here")
    assert harness.node("n1")["spec"] == {"taints": [GPU, OWN_TAINT]}


def test_a_lock_is_pending_until_the_last_pod_that_does_not_tolerate_it_is_gone(
    world: WorldHarness,
) -> None:
    given_node(world)
    world.create_pod("train", "short", gpus=4, graceS=30)
    world.run_pod("n1", "long", gpus=4, graceS=90)
    world.run_pod("n1", "quick", interruption="interruptable", graceS=600)
    world.create_pod("train", "slurm", accelerators=8, tolerations=[TOLERATION])

    world.lock("train", "n1")
    world.pass_time(seconds=89)
    pending = lock_of(world, "n1"), world.lock_changes("train")
    names = active(world, "n1")
    world.pass_time(seconds=1)

    assert pending == ("pending", ["n1 pending 42"])
    assert names == "True running: Slurm job 42, long, slurm"
    assert lock_of(world, "n1") == "locked"
    assert world.lock_changes("train") == ["n1 pending 42", "n1 locked 42"]
    assert world.pod_changes("train")[-2:] == [
        "short Terminating n1 Evicted",
        "short Gone n1 Evicted",
    ]
    assert active(world, "n1") == "True running: Slurm job 42, slurm"


def test_pods_of_daemon_sets_stay_where_they_tolerate_the_lock(world: WorldHarness) -> None:
    given_node(world)
    world.run_pod("n1", "agent", daemonSet=True, tolerations=[TOLERATION])
    world.run_pod("n1", "exporter", daemonSet=True, graceS=10)
    world.run_pod("n1", "check", verification=True, graceS=20)

    world.lock("train", "n1")
    world.pass_time(seconds=19)
    pending = lock_of(world, "n1")
    world.pass_time(seconds=1)

    (*_, last) = (entry.data for entry in world.envelopes() if hasattr(entry.data, "pods"))
    assert pending == "pending"
    assert lock_of(world, "n1") == "locked"
    assert [pod.name for pod in last.pods] == ["agent"]


def test_no_pod_starts_on_a_locked_node_that_does_not_tolerate_the_lock(harness: Harness) -> None:
    given_node(harness)
    harness.lock("train", "n1")

    bound = harness.send("RunPod", harness.machine_path("n1"), {"pod": {"name": "late"}})
    harness.create_pod("train", "waits", gpus=1)
    harness.create_pod("train", "slurm", accelerators=8, tolerations=[TOLERATION])
    locked = harness.pod_changes("train")
    harness.unlock("train", "n1")

    assert harness.outcomes(bound) == [
        f"Invalid pod.tolerations: do not tolerate the taint {LOCK}=true:NoExecute of the Node"
    ]
    assert locked == ["waits Pending", "slurm Pending", "slurm Running n1"]
    assert harness.pod_changes("train")[3:] == ["waits Running n1"]


def test_the_same_job_may_ask_again_and_is_told_the_state_of_its_lock(harness: Harness) -> None:
    given_node(harness)
    harness.run_pod("n1", graceS=600)
    harness.lock("train", "n1")

    again = harness.lock("train", "n1")
    harness.stop_pod("n1")
    later = harness.lock("train", "n1")

    assert harness.outcomes(again) == harness.outcomes(later) == ["unchanged"]
    assert harness.lock_changes("train") == [
        "n1 pending 42",
        "n1 pending 42",
        "n1 locked 42",
        "n1 locked 42",
    ]


def test_another_job_neither_takes_nor_releases_a_lock(harness: Harness) -> None:
    given_node(harness)
    harness.lock("train", "n1")

    taken = harness.lock("train", "n1", job="43")
    released = harness.unlock("train", "n1", job="43")

    node = harness.machine_name("n1")
    assert harness.outcomes(taken) == [f"Conflict node: Node {node} is locked by Slurm job 42"]
    assert harness.outcomes(released) == [
        f"Conflict job: Node {node} is locked by Slurm job 42; only that releases it"
    ]
    assert lock_of(harness, "n1") == "locked"


def test_a_lock_that_was_released_may_be_released_again_and_taken_by_another(
    harness: Harness,
) -> None:
    given_node(harness)
    harness.lock("train", "n1")
    harness.unlock("train", "n1")

    again = harness.unlock("train", "n1")
    harness.lock("train", "n1", job="43")

    assert harness.outcomes(again) == ["unchanged"]
    assert harness.lock_changes("train")[3:] == ["n1 pending 43", "n1 locked 43"]


def test_a_pending_lock_can_be_released_and_evicted_pods_still_end(world: WorldHarness) -> None:
    given_node(world)
    world.create_pod("train", graceS=60)
    world.lock("train", "n1")

    world.unlock("train", "n1")
    world.pass_time(seconds=60)

    assert world.lock_changes("train") == ["n1 pending 42", RELEASED]
    assert world.pod_changes("train")[2:] == ["job Terminating n1 Evicted", "job Gone n1 Evicted"]
    assert lock_of(world, "n1") == ""


@pytest.mark.parametrize("phase", ["pending", "locked"])
def test_a_restart_of_every_service_changes_nothing_about_a_lock(
    world: WorldHarness, phase: str
) -> None:
    given_node(world)
    world.create_pod("train", graceS=60)
    world.lock("train", "n1")
    world.pass_time(seconds=60 if phase == "locked" else 59)

    for name in ("lifecycle", "fleet", "aggregator"):
        world.restart(name)
    before = lock_of(world, "n1")
    world.pass_time(seconds=1)

    assert before == phase
    assert world.lock_changes("train") == ["n1 pending 42", "n1 locked 42"]
    assert lock_of(world, "n1") == "locked"


def test_a_pod_that_began_before_the_lock_was_known_delays_it(world: WorldHarness) -> None:
    given_node(world)

    with world.paused("fleet"):
        world.run_pod("n1", graceS=60)
        world.lock("train", "n1")
    pending = lock_of(world, "n1")
    world.pass_time(seconds=60)

    assert pending == "pending"
    assert lock_of(world, "n1") == "locked"


def test_gpus_are_shown_under_both_of_their_names(harness: Harness) -> None:
    given_node(harness)

    status = harness.node("n1")["status"]

    assert status["capacity"] == status["allocatable"]
    assert status["capacity"] == {
        "cpu": "128",
        "memory": "2112109804Ki",
        "pods": "110",
        "nvidia.com/gpu": "8",
        "sunk.coreweave.com/accelerator": "8",
    }


# What else happens to the Node.


def test_a_locked_node_is_not_idle_for_a_scale_down(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1)
    world.lock("train", "n1")

    world.scale("train", 0)
    world.pass_time(minutes=60)
    kept = world.nodes("train")
    world.unlock("train", "n1")

    assert kept == ["n1"]
    assert world.nodes("train") == []


def test_a_lock_delays_the_drain_of_a_scale_down_until_it_is_released(world: WorldHarness) -> None:
    given_node(world)
    world.lock("train", "n1")

    world.scale("train", 0)
    world.pass_time(minutes=60)
    draining = world.nodes("train"), lock_of(world, "n1"), active(world, "n1")
    world.unlock("train", "n1")

    assert draining == (["n1"], "locked", "True running: Slurm job 42")
    assert world.nodes("train") == []


def test_a_scale_down_with_prefer_idle_releases_a_pending_lock(world: WorldHarness) -> None:
    # given a Node that a job waits for until a Pod has ended
    given_node(world)
    world.run_pod("n1", graceS=600)
    world.lock("train", "n1")

    world.scale("train", 0)
    released = world.lock_changes("train")
    world.pass_time(minutes=10)

    # then no job begins there, and the Node leaves with the Pod
    assert released == [
        "n1 pending 42",
        "n1 released 42: Node n1 leaves its NodePool (ScaleDown)",
    ]
    assert world.nodes("train") == []


def test_a_lock_taken_while_a_node_is_chosen_keeps_it(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1)

    with world.paused("allocator"):
        world.lock("train", "n1")
        world.scale("train", 0)

    assert world.nodes("train") == ["n1"]
    assert lock_of(world, "n1") == "locked"


def test_a_pending_lock_outlives_a_removal_that_is_cancelled(world: WorldHarness) -> None:
    given_node(world)
    world.run_pod("n1", graceS=60)

    with world.paused("lifecycle"):
        world.lock("train", "n1")
        world.scale("train", 0)
        world.scale("train", 1)
    world.pass_time(seconds=60)

    assert world.nodes("train") == ["n1"]
    assert world.lock_changes("train") == ["n1 pending 42", "n1 locked 42"]


def test_no_job_begins_on_a_victim_that_breaks(world: WorldHarness) -> None:
    # given a Node that a job wants, that is to leave if it is idle, and that breaks
    world.given_data_center(machines=3)
    world.apply("train", 1, lifecycle={"disableUnhealthyNodeEviction": False})
    world.start_recording()
    with world.paused("lifecycle"):
        world.lock("train", "n1")
        world.scale("train", 0)
        world.break_machines("n1", fault="gpu-lost")
    world.pass_time(minutes=10)

    assert world.lock_changes("train") == [
        "n1 pending 42",
        "n1 released 42: Node n1 is cordoned",
    ]
    assert world.nodes("train") == []


@pytest.mark.parametrize("cause", ["preemption", "deletion", "problem"])
def test_no_job_begins_in_the_step_that_takes_its_node_away(cause: str) -> None:
    # given a pending lock whose last report could not be processed
    world = given_failing("lifecycle", "NodeObserved", 1)
    world.given_data_center(machines=1)
    kind = "spot" if cause == "preemption" else "default"
    eviction = {"disableUnhealthyNodeEviction": False}
    world.apply("train", 1, computeClass=kind, lifecycle=eviction)
    world.lock("train", "n1")
    world.start_recording()

    # when its Node leaves, or is cordoned, before that report is tried again
    match cause:
        case "preemption":
            world.preempt("train", "n1")
        case "deletion":
            world.delete("train")
        case _:
            world.break_machines("n1", fault="gpu-lost")
    world.pass_time(minutes=10)

    changes = world.lock_changes("train")
    assert [change for change in changes if "locked" in change] == []
    assert len(changes) == 1


def test_a_lock_does_not_delay_a_preemption(world: WorldHarness) -> None:
    world.given_data_center(machines=1)
    world.apply("spot", 1, computeClass="spot")
    world.lock("spot", "n1")
    world.start_recording()

    world.preempt("spot", "n1")
    world.pass_time(minutes=2)

    assert world.lock_changes("spot") == ["n1 released 42: Node n1 is deleted"]
    assert world.timed_events("spot")[2:4] == ["2:00 CWDrainNode n1", "2:00 CWNodeDeleted n1"]


def test_a_lock_does_not_delay_the_deletion_of_its_node_pool(world: WorldHarness) -> None:
    given_node(world)
    world.lock("train", "n1")

    world.delete("train")

    assert world.node_pool("train") is None
    assert world.lock_changes("train")[2:] == ["n1 released 42: Node n1 is deleted"]


def test_no_job_begins_on_a_node_that_is_preempted(world: WorldHarness) -> None:
    world.given_data_center(machines=1)
    world.apply("spot", 1, computeClass="spot")
    world.run_pod("n1", graceS=600)
    world.lock("spot", "n1")

    world.preempt("spot", "n1")

    assert world.lock_changes("spot") == [
        "n1 pending 42",
        "n1 released 42: Node n1 leaves its NodePool (Preempted)",
    ]


def test_a_lock_that_a_machine_does_not_answer_is_given_up(world: WorldHarness) -> None:
    # given a zone whose machines are all silent, which cordons none of their Nodes
    given_node(world)
    world.apply("serve", 3)
    world.create_pod("train", graceS=60)
    world.break_machines("n1", "n2", "n3", "n4", fault="hang")

    world.lock("train", "n1")
    world.pass_time(minutes=29, seconds=59)
    before = world.lock_changes("train")
    world.pass_time(seconds=2)

    assert before == ["n1 pending 42"]
    assert world.lock_changes("train")[1:] == ["n1 released 42: Node n1 did not answer in time"]
    assert lock_of(world, "n1") == ""


def test_a_machine_that_hangs_during_an_eviction_has_the_grace_period_and_half_an_hour(
    world: WorldHarness,
) -> None:
    given_node(world)
    world.apply("serve", 3)
    world.create_pod("train", graceS=3_600)
    world.lock("train", "n1")
    world.break_machines("n1", "n2", "n3", "n4", fault="hang")

    world.pass_time(minutes=89)
    before = world.lock_changes("train")
    world.pass_time(minutes=2)

    assert before == ["n1 pending 42"]
    assert world.lock_changes("train")[1:] == ["n1 released 42: Node n1 did not answer in time"]


def test_a_machine_that_answers_again_in_time_is_locked(world: WorldHarness) -> None:
    given_node(world)
    world.create_pod("train", graceS=60)
    world.break_machines("n1", fault="hang")
    world.lock("train", "n1")
    world.pass_time(minutes=5)

    world.break_machines("n1", fault="hang", times=0)

    assert world.lock_changes("train") == ["n1 pending 42", "n1 locked 42"]


def test_a_change_of_metadata_leaves_the_lock(harness: Harness) -> None:
    given_node(harness)
    harness.lock("train", "n1")

    harness.apply("train", 1, nodeAnnotations={"note": "new"})

    assert lock_of(harness, "n1") == "locked"
    assert harness.node("n1")["metadata"]["annotations"] == {"note": "new", LOCK: "locked"}


# The health of the Node.


def test_a_safe_reboot_waits_for_the_lock(harness: Harness) -> None:
    given_node(harness)
    harness.lock("train", "n1")

    harness.command_node("RebootNode", "train", "n1")
    waiting = phase_of(harness, "n1"), lock_of(harness, "n1")
    harness.unlock("train", "n1")

    assert waiting == ("production", "locked")
    assert harness.lock_changes("train")[2:] == [RELEASED]
    assert harness.node("n1")["status"]["reboots"] == 1


def test_a_forced_reboot_ends_the_lock(harness: Harness) -> None:
    given_node(harness)
    harness.lock("train", "n1")

    harness.command_node("RebootNode", "train", "n1", force=True)

    assert harness.lock_changes("train")[2:] == ["n1 released 42: Node n1 is rebooted"]
    assert (phase_of(harness, "n1"), lock_of(harness, "n1")) == ("production", "")
    assert active(harness, "n1") == "False nothing runs here"


def test_a_safe_drain_waits_for_the_lock_and_a_forced_one_does_not(world: WorldHarness) -> None:
    given_node(world)
    world.lock("train", "n1")

    world.command_node("DrainNode", "train", "n1", reason="Audit")
    waiting = phase_of(world, "n1")
    world.command_node("DrainNode", "train", "n1", reason="Audit", force=True)

    assert waiting == "draining"
    assert phase_of(world, "n1") == "cordoned"
    assert lock_of(world, "n1") == "locked"


def test_an_unhealthy_node_is_replaced_when_its_lock_is_released(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1, lifecycle={"disableUnhealthyNodeEviction": False})
    world.lock("train", "n1")

    world.break_machines("n1", fault="gpu-lost")
    world.pass_time(minutes=60)
    waiting = world.nodes("train"), lock_of(world, "n1")
    world.unlock("train", "n1")

    assert waiting == (["n1"], "locked")
    assert world.nodes("train") == ["n2"]


def test_no_job_begins_on_a_node_that_is_cordoned_meanwhile(world: WorldHarness) -> None:
    given_node(world)
    world.run_pod("n1", graceS=60)
    world.lock("train", "n1")

    world.command_node("CordonNode", "train", "n1", reason="Audit")
    at_work = active(world, "n1")
    world.pass_time(minutes=2)

    assert world.lock_changes("train")[1:] == ["n1 released 42: Node n1 is cordoned"]
    assert at_work == "True running: job"
    assert active(world, "n1") == "False nothing runs here"


def test_a_lock_that_a_cordon_ends_is_no_work_any_more(world: WorldHarness) -> None:
    # given a Node whose lock is pending while its machine does not answer
    given_node(world)
    world.break_machines("n1", fault="hang")
    world.lock("train", "n1")
    pending = active(world, "n1")

    # when its silence has it cordoned
    world.pass_time(minutes=10)

    assert pending == "True running: Slurm job 42"
    assert world.lock_changes("train")[1:] == ["n1 released 42: Node n1 is cordoned"]
    assert active(world, "n1") == "False nothing runs here"


def test_a_node_that_is_cordoned_reboots_or_is_verified_is_not_locked(world: WorldHarness) -> None:
    world.given_cluster()
    world.given_quota(9)
    world.send(
        "AddMachines",
        zone_path(ZONE),
        {"instanceType": H100, "count": 1, "bootSeconds": 60, "verifySeconds": 60},
    )
    world.apply("train", 1)
    world.pass_time(seconds=60)
    name = world.machine_name("n1")

    verified = world.lock("train", "n1")
    world.pass_time(seconds=60)
    world.command_node("CordonNode", "train", "n1", reason="Audit")
    cordoned = world.lock("train", "n1")
    world.command_node("RebootNode", "train", "n1", force=True)
    rebooted = world.lock("train", "n1")

    assert [world.outcomes(command) for command in (verified, cordoned, rebooted)] == [
        [f"Conflict node: Node {name} is not in production: verifying"],
        [f"Conflict node: Node {name} is cordoned"],
        [f"Conflict node: Node {name} is not in production: rebooting"],
    ]


# Refusals.


def test_no_job_takes_a_node_from_the_control_plane(world: WorldHarness) -> None:
    # given a Node of the control plane, on which its own Pod runs
    world.given_data_center()
    world.apply("train", 1)
    name = world.machine_name("n1")
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    tolerated = [{"key": "node.coreweave.cloud/reserved", "operator": "Exists"}]
    world.run_pod("n1", "system", tolerations=tolerated)
    world.start_recording()

    # when a job asks for its lock
    refused = world.lock("train", "n1")

    # then the Pod stays, and the job may have the Node once it is reserved for the organisation
    assert world.outcomes(refused) == [
        f"Conflict node: Node {name} is reserved for the control plane"
    ]
    assert (world.lock_changes("train"), world.pod_changes("train")) == ([], [])
    world.stop_pod("n1", "system")
    world.command_node("ReserveNode", "train", "n1", reservedDesired=ORG)
    world.pass_time(minutes=1)
    world.lock("train", "n1")
    assert world.lock_changes("train") == ["n1 pending 42", "n1 locked 42"]


def test_a_node_that_is_unknown_booting_or_leaving_is_not_locked(world: WorldHarness) -> None:
    world.given_data_center(boot_s=60)
    world.apply("train", 1, lifecycle=PREFER_IDLE)
    world.apply("other", 0)
    name = world.machine_name("n1")

    booting = world.lock("train", "n1")
    world.pass_time(minutes=2)
    world.run_pod("n1")
    world.scale("train", 0)
    leaving = world.lock("train", "n1")
    unknown = [world.lock("nothing", "n1"), world.lock("other", "n1"), world.lock("train", "g0")]

    assert world.outcomes(booting) == [f"Conflict node: Node {name} has not joined its cluster yet"]
    assert world.outcomes(leaving) == [
        f"Conflict node: Node {name} leaves its NodePool (ScaleDown)"
    ]
    assert [world.outcomes(command) for command in unknown] == [
        ["NotFound metadata.name: NodePool nothing does not exist"],
        [f"NotFound node: {name} is no Node of NodePool other"],
        ["NotFound node: g0 is no Node of NodePool train"],
    ]
    assert world.lock_changes("train") == []


@pytest.mark.parametrize("job", ["", "a b", "x" * 64, "-"])
def test_a_job_needs_a_name(world: WorldHarness, job: str) -> None:
    given_node(world)

    commands = [world.lock("train", "n1", job=job), world.unlock("train", "n1", job=job)]

    for command in commands:
        (outcome,) = world.outcomes(command)
        assert outcome.startswith("Invalid job: ")
    assert lock_of(world, "n1") == ""


def test_an_epilog_on_a_node_without_a_lock_changes_nothing(harness: Harness) -> None:
    given_node(harness)

    command = harness.unlock("train", "n1")

    assert harness.outcomes(command) == ["unchanged"]
    assert harness.lock_changes("train") == []
