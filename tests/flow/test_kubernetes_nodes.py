"""Nodes of a cluster that an agent connects to Kubernetes: what it reports, and what follows."""

from collections.abc import Mapping
from typing import cast

import pytest

from nodepool.contract.conditions import ConditionStatus
from nodepool.contract.events import (
    CWNodeDeleted,
    CWNodeRegistered,
    NodeActivityChanged,
    NodeConditionReported,
    NodeObserved,
    PodChanged,
)
from nodepool.contract.pods import Pod, Toleration
from support.agent_reports import report
from support.audit.auditor import violations
from support.constants import CLUSTER, ORG, PREFER_IDLE, WEST, ZONE
from support.paths import cluster_path
from support.publishing import publish
from support.world_harness import WorldHarness

WORK = Pod(name="default/train-0", gpus=8)
DAEMON = Pod(name="kube-system/cni-1", daemon_set=True)
LOCKED_DAEMON = DAEMON.model_copy(update={"tolerations": (Toleration(operator="Exists"),)})
NO_FIELDS: Mapping[str, object] = {}
EVICTING = {"disableUnhealthyNodeEviction": False}


def connect(world: WorldHarness, cluster: str = CLUSTER, *, kubernetes: bool = True) -> list[str]:
    """Registers a cluster as its agent does; the outcome."""
    content = {"zone": ZONE, "kubernetes": kubernetes}
    return world.outcomes(world.send("RegisterCluster", cluster_path(ORG, cluster), content))


def status(world: WorldHarness, node: str) -> Mapping[str, object]:
    """The status of a Node as the agent reads it."""
    return cast("Mapping[str, object]", world.node(node)["status"])


def report_ready(world: WorldHarness, node: str, ready: str) -> None:
    """The agent reports the condition Ready of a Node, and answers where it is asked for that."""
    reason = "KubeletReady" if ready == "True" else "NodeStatusUnknown"
    report_condition(world, node, "Ready", "True" if ready == "True" else "Unknown", reason)


def report_condition(
    world: WorldHarness, node: str, kind: str, state: ConditionStatus, reason: str = "Reported"
) -> None:
    """The agent reports a condition of a Node."""
    publish(
        world.world,
        NodeConditionReported(
            org=ORG,
            cluster=CLUSTER,
            pool="train",
            node=world.machine_name(node),
            zone=ZONE,
            assignment=cast("int", status(world, node)["assignment"]),
            type=kind,
            status=state,
            reason=reason,
            message="",
            request=cast("int", status(world, node).get("reportRequest", 0)),
        ),
    )
    world.run_until_idle()


def fall_silent(world: WorldHarness, node: str) -> None:
    """A kubelet is silent, and its agent confirms that once it is asked."""
    report_ready(world, node, "Unknown")
    world.pass_time(minutes=5)
    report_ready(world, node, "Unknown")


def given_node(world: WorldHarness, lifecycle: Mapping[str, object] = NO_FIELDS) -> None:
    """A NodePool with one Node, which its agent has reported; the recording begins then."""
    given_booting_node(world, boot_s=0, lifecycle=lifecycle)
    report(world, "n1", DAEMON)
    world.start_recording()


def given_booting_node(
    world: WorldHarness, boot_s: float, lifecycle: Mapping[str, object] = NO_FIELDS
) -> None:
    """A NodePool that wants one Node, in a cluster that is one of Kubernetes."""
    world.given_machines(3, boot_s=boot_s)
    world.given_quota(10)
    assert connect(world) == ["created"]
    world.apply("train", 1, lifecycle=dict(lifecycle))


def said(world: WorldHarness, *kinds: type) -> list[str]:
    """The events of these classes in the whole log."""
    return [type(each.data).__name__ for each in world.envelopes() if isinstance(each.data, kinds)]


# Clusters.


def test_a_cluster_that_an_agent_has_connected_stays_connected(world: WorldHarness) -> None:
    outcomes = [connect(world, kubernetes=each) for each in (False, False, True, True, False)]

    assert outcomes == [["created"], ["unchanged"], ["configured"], ["unchanged"], ["unchanged"]]
    document = world.document("clusters", f"{ORG}/{CLUSTER}")
    assert document is not None
    assert document["spec"] == {"org": ORG, "zone": ZONE, "kubernetes": True}


def test_a_cluster_with_simulated_pods_has_those_of_kubernetes_once_it_is_connected(
    world: WorldHarness,
) -> None:
    world.given_data_center()
    world.apply("train", 1)
    world.create_pod("train", "first")
    world.create_pod("train", "second", gpus=8)
    world.create_pod("train", "third", gpus=8)
    world.run_pod("n1", "bound")
    world.start_recording()

    connect(world)
    observed = said(world, NodeObserved)
    report(world, "n1", WORK)

    why = "its cluster has Pods of its own from now on"
    ended = [e.data for e in world.envelopes_of("train") if isinstance(e.data, PodChanged)]
    assert [(pod.name, pod.phase, pod.message) for pod in ended] == [
        ("first", "Gone", why),
        ("second", "Gone", why),
        ("third", "Gone", why),
    ]
    assert world.condition("train", "AtTarget").startswith("True TargetMet")
    assert world.node_conditions("n1")["CWActive"] == "True WorkloadsRunning"
    assert said(world, NodeObserved) == observed


# Joining.


@pytest.mark.parametrize("first", ["the machine", "the kubelet"])
def test_a_node_is_registered_once_its_machine_has_booted_and_its_kubelet_has_come(
    world: WorldHarness, first: str
) -> None:
    given_booting_node(world, boot_s=60)
    world.start_recording()

    if first == "the kubelet":
        report(world, "n1")
        world.pass_time(seconds=59)
    else:
        world.pass_time(minutes=5)
    before = world.timed_events("train")
    if first == "the kubelet":
        world.pass_time(seconds=1)
    else:
        report(world, "n1")

    assert before == []
    assert [text.split(" ", 1)[1] for text in world.timed_events("train")] == [
        "CWNodeRegistered n1"
    ]
    assert status(world, "n1")["phase"] == "production"
    assert violations(world.entries()) == []


def test_what_follows_from_a_report_carries_the_id_of_the_command_that_asked_for_the_node(
    world: WorldHarness,
) -> None:
    world.given_machines(3, boot_s=60)
    world.given_quota(10)
    connect(world)
    first = world.apply("train", 1)
    second = world.scale("train", 2)
    world.pass_time(minutes=1)

    report(world, "n1")
    report(world, "n2")
    report(world, "n1", WORK)

    events = (CWNodeRegistered, NodeActivityChanged)
    followed = [each for each in world.envelopes() if isinstance(each.data, events)]
    assert [(each.type, each.correlationid) for each in followed] == [
        ("CWNodeRegistered", first),
        ("CWNodeRegistered", second),
        ("NodeActivityChanged", first),
    ]


def test_an_audit_finds_a_node_that_is_registered_before_its_agent_has_reported_it(
    world: WorldHarness,
) -> None:
    given_node(world)

    unreported = [each for each in world.entries() if not each.subject.endswith("NodeReported")]

    found = [text.partition(": ")[2] for text in violations(unreported)]
    assert f"{ZONE}/{world.machine_name('n1')} is registered before its agent has reported it" in (
        found
    )


def test_a_node_whose_kubelet_never_comes_is_replaced(world: WorldHarness) -> None:
    given_booting_node(world, boot_s=60)
    world.start_recording()

    world.pass_time(minutes=31)

    assert world.timed_events("train") == [
        "30:00 CWNodeRegistrationFailed n1",
        "30:00 CWNodeDeliverFail n1",
        "30:00 CWNodeAssigned n2",
    ]
    assert world.nodes("train") == ["n2"]
    machine = world.document("machines", f"{ZONE}/{world.machine_name('n1')}")
    assert machine is not None
    assert cast("Mapping[str, object]", machine["status"])["state"] == "Triage"


def test_a_node_that_reports_after_it_was_given_up_is_not_taken_for_its_successor(
    world: WorldHarness,
) -> None:
    given_booting_node(world, boot_s=0)
    late = cast("int", status(world, "n1")["assignment"])
    world.pass_time(minutes=31)

    report(world, "n2", assignment=late)
    before = world.node_counts("train")
    report(world, "n2")

    assert (before.in_progress, before.current) == (1, 0)
    assert world.node_counts("train").current == 1


def test_what_was_reported_before_a_node_is_registered_counts_afterwards(
    world: WorldHarness,
) -> None:
    given_booting_node(world, boot_s=60)
    report(world, "n1", WORK, DAEMON)
    report_ready(world, "n1", "Unknown")

    world.pass_time(minutes=1)

    assert world.node_conditions("n1") == {
        "CWRegistered": "True Registered",
        "CWActive": "True WorkloadsRunning",
        "CWNodeRemoval": "False NotPending",
        "Ready": "Unknown NodeStatusUnknown",
    }
    world.pass_time(minutes=4)
    report_ready(world, "n1", "Unknown")
    assert status(world, "n1")["phase"] == "cordoned"


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"cluster": "other"}, id="another cluster"),
        pytest.param({"org": "other"}, id="another organisation"),
        pytest.param({"pool": "other"}, id="another NodePool"),
        pytest.param({"zone": WEST}, id="another zone"),
        pytest.param({"assignment": 0}, id="another stay"),
        pytest.param({"node": "gffffff"}, id="another machine"),
    ],
)
def test_a_report_that_names_another_node_is_not_believed(
    world: WorldHarness, wrong: Mapping[str, object]
) -> None:
    given_booting_node(world, boot_s=0)
    connect(world, "other")

    report(world, "n1", **wrong)
    before = status(world, "n1")["phase"]
    report(world, "n1")

    assert (before, status(world, "n1")["phase"]) == ("booting", "production")


def test_a_report_about_a_cluster_that_has_no_agent_is_not_believed(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1)

    report(world, "n1", WORK)
    report_ready(world, "n1", "Unknown")

    assert world.node_conditions("n1") == {
        "CWRegistered": "True Registered",
        "CWActive": "False NoWorkloads",
        "CWNodeRemoval": "False NotPending",
    }
    assert status(world, "n1")["phase"] == "production"


# What the simulated machines do there.


def test_no_simulated_pod_runs_in_a_cluster_of_kubernetes(world: WorldHarness) -> None:
    given_node(world)

    refused = [
        world.send("RunPod", world.machine_path("n1"), {"pod": {"name": "job"}}),
        world.send("StopPod", world.machine_path("n1"), {"name": "job"}),
        world.create_pod("train"),
        world.delete_pod("train"),
    ]

    why = "cluster prod has Pods of its own: use kubectl"
    assert [world.outcomes(command) for command in refused] == [
        [f"Invalid machine: {why}"],
        [f"Invalid machine: {why}"],
        [f"Invalid cluster: {why}"],
        [f"Invalid cluster: {why}"],
    ]
    assert said(world, NodeObserved, PodChanged) == []


def test_the_machines_of_a_cluster_of_kubernetes_report_what_is_wrong_with_them(
    world: WorldHarness,
) -> None:
    given_node(world)

    kubelet = world.send("BreakMachine", world.machine_path("n1"), {"fault": "kubelet"})
    world.break_machines("n1", fault="gpu-lost")

    why = "cluster prod has kubelets of its own: stop the one of the Node"
    assert world.outcomes(kubelet) == [f"Invalid fault: {why}"]
    assert world.node_conditions("n1")["GPUMissing"] == "True GPUMissing"
    assert "Ready" not in world.node_conditions("n1")
    assert world.events("train") == ["CWNodeCordoned n1"]
    assert said(world, NodeObserved) == []
    assert violations(world.entries()) == []


def test_machines_that_fail_by_themselves_leave_the_kubelet_to_the_cluster(
    world: WorldHarness,
) -> None:
    world.given_machines(20, failuresPerDay=200)
    world.given_quota(20)
    connect(world)
    world.apply("train", 20)
    for node in world.nodes("train"):
        report(world, node)

    world.pass_time(minutes=120)

    problems = {
        kind
        for node in world.nodes("train")
        for kind in world.node_conditions(node)
        if not kind.startswith("CW")
    }
    assert len(problems) > 3
    assert "Ready" not in problems


# Health.


def test_a_node_whose_kubelet_is_silent_is_cordoned_and_then_replaced(world: WorldHarness) -> None:
    given_node(world, lifecycle=EVICTING)

    fall_silent(world, "n1")
    world.pass_time(minutes=31)

    assert world.timed_events("train") == [
        "5:00 CWNodeCordoned n1",
        "35:01 CWNodePoolNodesRemoveError n1",
        "35:01 CWNodeDeleted n1",
        "35:01 CWNodeAssigned n2",
    ]
    assert violations(world.entries()) == []


def test_a_silence_that_no_agent_confirms_is_no_reason_to_repair(world: WorldHarness) -> None:
    given_node(world, lifecycle=EVICTING)

    report_ready(world, "n1", "Unknown")
    world.pass_time(minutes=600)
    during = world.timed_events("train")
    report_ready(world, "n1", "Unknown")

    assert during == []
    assert world.timed_events("train") == ["600:00 CWNodeCordoned n1"]


def test_a_node_that_stays_cordoned_is_not_given_up_for_a_silence_that_is_over(
    world: WorldHarness,
) -> None:
    given_node(world, lifecycle=EVICTING)
    world.command_node("CordonNode", "train", "n1", reason="maintenance")
    report(world, "n1")

    report_ready(world, "n1", "Unknown")
    world.pass_time(minutes=5)
    report_ready(world, "n1", "True")
    world.pass_time(minutes=120)

    assert status(world, "n1")["phase"] == "cordoned"
    assert world.nodes("train") == ["n1"]


def test_a_node_whose_kubelet_reports_again_is_uncordoned(world: WorldHarness) -> None:
    given_node(world)
    fall_silent(world, "n1")
    world.pass_time(minutes=5)

    report_ready(world, "n1", "True")

    assert world.timed_events("train") == ["5:00 CWNodeCordoned n1", "10:00 CWNodeUncordoned n1"]
    assert world.node_conditions("n1")["Ready"] == "True KubeletReady"
    assert status(world, "n1")["phase"] == "production"


@pytest.mark.parametrize("is_seen", [True, False], ids=["seen to be silent", "too fast to be seen"])
def test_a_node_is_back_from_a_reboot_once_its_kubelet_is(
    world: WorldHarness, is_seen: bool
) -> None:
    given_booting_node(world, boot_s=60, lifecycle=EVICTING)
    world.pass_time(minutes=1)
    report(world, "n1")
    world.command_node("RebootNode", "train", "n1")
    report(world, "n1")
    phases = [status(world, "n1")["phase"]]

    if is_seen:
        report_ready(world, "n1", "Unknown")
    world.pass_time(minutes=2)
    phases.append(status(world, "n1")["phase"])
    if is_seen:
        report_ready(world, "n1", "True")
    phases.append(status(world, "n1")["phase"])

    assert phases == ["rebooting", "rebooting" if is_seen else "production", "production"]
    assert world.nodes("train") == ["n1"]
    assert violations(world.entries()) == []


def given_rebooting_node(world: WorldHarness, verify_s: float) -> None:
    """A Node that begins to reboot for a problem; the boot takes a minute."""
    world.given_machines(3, boot_s=60, verifySeconds=verify_s)
    world.given_quota(10)
    connect(world)
    world.apply("train", 1, lifecycle=EVICTING)
    world.pass_time(minutes=1)
    report(world, "n1")
    world.pass_time(minutes=11)
    world.start_recording()
    report_condition(world, "n1", "XIDErrors", "True")
    report(world, "n1")


@pytest.mark.parametrize("verify_s", [0, 30, 600])
@pytest.mark.parametrize("is_cured", [True, False], ids=["cured", "not cured"])
def test_a_problem_that_a_reboot_cures_may_end_some_time_after_the_reboot(
    world: WorldHarness, verify_s: int, is_cured: bool
) -> None:
    # given a Node that reboots for a problem which its node problem detector reports
    given_rebooting_node(world, verify_s=verify_s)

    # when the machine is back, and the detector withdraws the problem later, or never
    world.pass_time(minutes=2)
    during = status(world, "n1")["phase"]
    if is_cured:
        report_condition(world, "n1", "XIDErrors", "False")
    world.pass_time(minutes=40)

    # then the Node returns in place, or is replaced once its time is over
    assert during == ("verifying" if verify_s else "rebooting")
    assert ("CWNodeDeleted n1" in world.events("train")) is not is_cured
    if is_cured:
        assert status(world, "n1")["phase"] == "production"
    else:
        assert world.event_messages("train", "CWNodeDeleted") == ["Node n1 is deleted: XIDErrors"]
    assert violations(world.entries()) == []


def given_reboot_by_command(world: WorldHarness, verify_s: float) -> None:
    """A Node that a command reboots for a problem, in a NodePool whose unhealthy Nodes stay."""
    world.given_machines(3, boot_s=60, verifySeconds=verify_s)
    world.given_quota(10)
    connect(world)
    world.apply("train", 1)
    world.pass_time(minutes=1)
    report(world, "n1")
    world.pass_time(minutes=11)
    world.start_recording()
    report_condition(world, "n1", "XIDErrors", "True")
    world.command_node("RebootNode", "train", "n1")
    report(world, "n1")


@pytest.mark.parametrize("verify_s", [0, 600])
def test_a_node_that_only_a_command_reboots_stays_although_its_problem_lasts(
    world: WorldHarness, verify_s: float
) -> None:
    # given a Node whose detector never withdraws its problem
    given_reboot_by_command(world, verify_s)

    # when the time is over in which a detector withdraws a problem that is cured
    world.pass_time(minutes=60)

    # then the Node stays, cordoned, until somebody asks for its replacement
    assert status(world, "n1")["phase"] == "cordoned"
    assert world.nodes("train") == ["n1"]
    assert world.event_messages("train", "CWNodeCordoned") == ["Node n1 is cordoned: XIDErrors"] * 2


@pytest.mark.parametrize("verify_s", [0, 600])
def test_a_new_problem_counts_while_the_old_one_may_still_end(
    world: WorldHarness, verify_s: float
) -> None:
    given_rebooting_node(world, verify_s)
    world.pass_time(minutes=2)

    report_condition(world, "n1", "GPUMissing", "True")

    assert "CWNodeDeleted n1" in world.events("train")


def test_a_problem_that_a_reboot_may_have_cured_sends_no_machine_to_triage(
    world: WorldHarness,
) -> None:
    # given a Node that is verified after a reboot, before its detector has withdrawn the problem
    given_rebooting_node(world, verify_s=600)
    world.pass_time(minutes=2)

    # when its NodePool no longer wants the Node
    world.scale("train", 0)

    deleted = [e.data for e in world.envelopes_of("train") if isinstance(e.data, CWNodeDeleted)]
    assert [each.triage for each in deleted] == [False]


@pytest.mark.parametrize("verify_s", [0, 600])
def test_a_problem_that_a_requested_reboot_may_have_cured_sends_no_machine_to_triage(
    world: WorldHarness, verify_s: int
) -> None:
    # given a Node that a command reboots for a problem, in a NodePool whose unhealthy Nodes stay
    given_reboot_by_command(world, verify_s)

    # when its NodePool no longer wants the Node, before its detector has withdrawn the problem
    world.pass_time(minutes=2)
    world.scale("train", 0)

    # then the Node was cordoned once, and its machine is free again
    deleted = [e.data for e in world.envelopes_of("train") if isinstance(e.data, CWNodeDeleted)]
    assert [each.triage for each in deleted] == [False]
    assert len(world.event_messages("train", "CWNodeCordoned")) == 1


@pytest.mark.parametrize("verify_s", [0, 600])
def test_a_problem_that_begins_during_a_reboot_sends_no_machine_to_triage(
    world: WorldHarness, verify_s: int
) -> None:
    # given a Node that a command reboots for a problem, in a NodePool whose unhealthy Nodes stay
    given_reboot_by_command(world, verify_s)

    # when its last boot reports another problem that a reboot cures, before the machine has booted
    report_condition(world, "n1", "KernelDeadlock", "True")
    world.pass_time(minutes=2)
    world.scale("train", 0)

    # then the reboot may have cured both: the Node was cordoned once, and its machine is free again
    deleted = [e.data for e in world.envelopes_of("train") if isinstance(e.data, CWNodeDeleted)]
    assert [each.triage for each in deleted] == [False]
    assert len(world.event_messages("train", "CWNodeCordoned")) == 1


def test_a_silence_long_ago_takes_no_time_from_a_later_drain(world: WorldHarness) -> None:
    # given a drained Node that was uncordoned during a silence
    given_node(world)
    world.command_node("DrainNode", "train", "n1")
    report(world, "n1", DAEMON)
    report_ready(world, "n1", "Unknown")
    world.command_node("UncordonNode", "train", "n1")
    report(world, "n1", DAEMON)
    report_ready(world, "n1", "True")
    world.pass_time(minutes=60)
    world.start_recording()

    # when the Node is drained again, and nobody answers
    world.command_node("DrainNode", "train", "n1")
    world.pass_time(minutes=31)

    assert world.timed_events("train")[:2] == [
        "0:00 CWNodeCordoned n1",
        "30:01 CWNodePoolNodesRemoveError n1",
    ]


def test_a_node_that_is_verified_again_shows_the_state_of_a_reboot(world: WorldHarness) -> None:
    # given a Node with a problem while it is verified after a reboot
    world.given_machines(1, boot_s=60, verifySeconds=600)
    world.given_quota(10)
    connect(world)
    world.apply("train", 1)
    world.pass_time(minutes=1)
    report(world, "n1")
    world.pass_time(minutes=11)
    world.command_node("RebootNode", "train", "n1")
    report(world, "n1")
    world.pass_time(minutes=2)
    report_condition(world, "n1", "XIDErrors", "True")
    report(world, "n1")

    # when commands have cordoned and drained the Node meanwhile
    world.command_node("CordonNode", "train", "n1")
    report_condition(world, "n1", "XIDErrors", "False")
    world.command_node("DrainNode", "train", "n1")
    report(world, "n1")
    world.command_node("UncordonNode", "train", "n1")

    assert status(world, "n1")["phase"] == "verifying"
    labels = world.node("n1")["metadata"]["labels"]
    assert labels["node.coreweave.cloud/state"] == "production-reboot"


def test_a_node_whose_kubelet_does_not_come_back_from_a_reboot_is_replaced(
    world: WorldHarness,
) -> None:
    given_booting_node(world, boot_s=60)
    world.pass_time(minutes=1)
    report(world, "n1")
    world.command_node("RebootNode", "train", "n1", force=True)
    world.start_recording()

    report_ready(world, "n1", "Unknown")
    world.pass_time(minutes=31)

    assert world.timed_events("train") == ["30:00 CWNodeDeleted n1", "30:01 CWNodeAssigned n2"]


def test_pods_that_were_there_before_a_reset_are_there_after_it(world: WorldHarness) -> None:
    given_booting_node(world, boot_s=60)
    world.pass_time(minutes=1)
    report(world, "n1", WORK)

    world.command_node("RebootNode", "train", "n1", force=True)
    world.pass_time(minutes=2)

    assert status(world, "n1")["phase"] == "production"
    assert world.node_conditions("n1")["CWActive"] == "True WorkloadsRunning"


def test_a_drain_goes_on_where_it_was_once_a_kubelet_is_not_silent_any_more(
    world: WorldHarness,
) -> None:
    given_node(world, lifecycle=PREFER_IDLE)
    report(world, "n1", WORK)
    world.scale("train", 0)
    report(world, "n1", WORK)
    report_ready(world, "n1", "Unknown")
    world.pass_time(minutes=29)

    report_ready(world, "n1", "True")
    world.pass_time(minutes=120)
    waiting = world.nodes("train")
    report(world, "n1")

    assert (waiting, world.nodes("train")) == (["n1"], [])


# Leaving.


def test_a_scale_down_waits_for_what_blocks_it_and_shows_a_safe_drain(world: WorldHarness) -> None:
    given_node(world, lifecycle=PREFER_IDLE)
    report(world, "n1", WORK, DAEMON)
    world.scale("train", 0)
    before = status(world, "n1").get("drain")

    report(world, "n1", WORK, DAEMON)
    draining = status(world, "n1")
    world.pass_time(minutes=120)
    waiting = world.condition("train", "AtTarget")
    report(world, "n1", DAEMON)

    assert (before, draining["phase"], draining["drain"]) == (None, "draining", "safe")
    assert "default/train-0" in waiting
    assert world.nodes("train") == []
    assert violations(world.entries()) == []


@pytest.mark.parametrize("command", ["ScaleNodePool", "DrainNode"])
def test_a_drain_waits_for_a_lock_on_a_node_without_pods(world: WorldHarness, command: str) -> None:
    # given a Node on which a job of Slurm has the lock, and nothing but Pods of DaemonSets runs
    given_node(world, PREFER_IDLE)
    world.lock("train", "n1")
    report(world, "n1", LOCKED_DAEMON)

    # when the Node is drained, and its agent has nothing to report for hours
    if command == "DrainNode":
        world.command_node("DrainNode", "train", "n1")
    else:
        world.scale("train", 0)
    report(world, "n1", LOCKED_DAEMON)
    world.pass_time(minutes=180)
    waiting = world.lock_changes("train"), world.nodes("train")
    world.unlock("train", "n1")

    # then the job keeps the Node until it ends
    assert waiting == (["n1 pending 42", "n1 locked 42"], ["n1"])
    assert world.nodes("train") == (["n1"] if command == "DrainNode" else [])
    assert "CWNodePoolNodesRemoveError n1" not in world.events("train")


def test_a_forced_drain_leaves_a_node_with_a_lock_and_no_pods_in_its_pool(
    world: WorldHarness,
) -> None:
    # given a Node on which a job of Slurm has the lock, and nothing but Pods of DaemonSets runs
    given_node(world)
    world.lock("train", "n1")
    report(world, "n1", LOCKED_DAEMON)

    # when its drain is forced, and its agent has nothing to report for hours
    world.command_node("DrainNode", "train", "n1", reason="debug", force=True)
    report(world, "n1", LOCKED_DAEMON)
    world.pass_time(minutes=180)

    # then the drain is over at once, and nothing more is awaited of the machine
    assert world.timed_events("train") == ["0:00 CWNodeCordoned n1", "0:00 CWDrainNode n1"]
    assert world.lock_changes("train") == ["n1 pending 42", "n1 locked 42"]
    assert violations(world.entries()) == []


def test_a_cordon_after_a_reboot_has_half_an_hour_of_its_own(world: WorldHarness) -> None:
    # given a Node whose reboot takes twenty minutes, and an agent that is away
    given_booting_node(world, boot_s=1200)
    world.pass_time(minutes=20)
    report(world, "n1", DAEMON)
    world.start_recording()
    world.command_node("RebootNode", "train", "n1", force=True)

    # when its drain is asked for meanwhile, and nobody reports its cordon
    world.command_node("DrainNode", "train", "n1", reason="debug")
    world.pass_time(minutes=50)
    waiting = world.nodes("train")
    world.pass_time(minutes=1)

    # then its machine has as long to answer as after any cordon
    assert waiting == ["n1"]
    assert "50:01 CWNodePoolNodesRemoveError n1" in world.timed_events("train")


def test_the_deletion_of_a_pool_shows_a_forced_drain(world: WorldHarness) -> None:
    given_node(world)
    report(world, "n1", WORK)
    world.delete("train")

    report(world, "n1", WORK)
    draining = status(world, "n1")
    report(world, "n1")

    assert (draining["phase"], draining["drain"]) == ("draining", "forced")
    assert world.node_pool("train") is None


def test_grace_periods_count_from_a_drain_that_lifecycle_begins_late(world: WorldHarness) -> None:
    pod = Pod(name="default/train-0", grace_s=2700)
    given_node(world, PREFER_IDLE)
    report(world, "n1", pod)
    world.scale("train", 0)
    report(world, "n1", pod)
    world.start_recording()

    with world.paused("lifecycle"):
        world.delete("train")
        world.pass_time(minutes=40)
    report(world, "n1", pod.model_copy(update={"terminating": True}))
    world.pass_time(minutes=45)
    report(world, "n1", DAEMON)

    assert [line for line in world.timed_events("train") if "Deleted" in line] == [
        "85:00 CWNodeDeleted n1",
        "85:00 CWNodePoolDeleted",
    ]


def test_a_drain_that_is_forced_later_is_shown_as_forced(world: WorldHarness) -> None:
    given_node(world)
    report(world, "n1", WORK)
    shown = []
    for force in (False, True):
        world.command_node("DrainNode", "train", "n1", force=force)
        report(world, "n1", WORK)
        shown.append(status(world, "n1")["drain"])

    report(world, "n1")

    assert shown == ["safe", "forced"]
    assert status(world, "n1")["phase"] == "cordoned"
    assert "drain" not in status(world, "n1")


def test_a_cordon_is_in_force_once_the_agent_reports_its_number(world: WorldHarness) -> None:
    given_node(world)
    world.scale("train", 0)

    report(world, "n1", unschedulable=True, cordon=0)
    before = world.nodes("train")
    report(world, "n1")

    assert (before, world.nodes("train")) == (["n1"], [])


# Locks.


def test_a_lock_is_held_once_the_agent_reports_no_pod_that_does_not_tolerate_it(
    world: WorldHarness,
) -> None:
    tolerant = Pod(name="sunk/slurmd", tolerations=(LOCK_TOLERATION,))
    given_node(world)
    report(world, "n1", WORK, tolerant)

    world.lock("train", "n1")
    states = [world.lock_changes("train")]
    report(world, "n1", tolerant, lock=0)
    report(world, "n1", WORK, tolerant)
    states.append(world.lock_changes("train"))
    report(world, "n1", tolerant)

    pending, locked = ["n1 pending 42"], ["n1 pending 42", "n1 locked 42"]
    assert [*states, world.lock_changes("train")] == [pending, pending, locked]
    assert violations(world.entries()) == []


LOCK_TOLERATION = Toleration(key="sunk.coreweave.com/lock", operator="Exists")
