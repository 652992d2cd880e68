from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from lifecycle import Hears, Says
from lifecycle.changes import change_node
from lifecycle.deadlines import USUALLY
from lifecycle.decide import SERVICE, service
from lifecycle.look import Standing, make_labels, make_taints
from lifecycle.node import Node, Workload
from lifecycle.node_events import list_names
from lifecycle.options import Options
from lifecycle.state import State
from lifecycle.template import NodeTemplate, make_template, update_template
from nodepool.contract.commands import CordonNode, RebootNode, UncordonNode
from nodepool.contract.commands_slurm import LockNode, UnlockNode
from nodepool.contract.conditions import Validated
from nodepool.contract.events import (
    AnswerAwaited,
    ClusterRegistered,
    CommandAccepted,
    CommandRefused,
    CWNodeAssigned,
    CWNodeCordoned,
    CWNodeDeleted,
    CWNodeDeletionRequestSuccess,
    CWNodePoolDeleted,
    CWNodePoolMetadata,
    CWNodePoolNodesRemoveError,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    MachineBooted,
    MachineFailed,
    NodeActivityChanged,
    NodeConditionChanged,
    NodeKept,
    NodeObserved,
    NodePoolValidated,
    NodePreempted,
    NodeRemovalCancelled,
    NodeReported,
    NodeUpdated,
    NodeUpdateFailed,
    NodeVerified,
    PreemptionInProgress,
    PreemptionPending,
    Wake,
)
from nodepool.contract.keys import machine_key, pool_key
from nodepool.contract.messages import Message, OfMachine, OfNode, PoolFields, pool_fields
from nodepool.contract.model import CORDON, GPU_TAINT, NodePhase, NodePoolSpec, RemovalReason, Taint
from nodepool.contract.outcomes import CommandOutcome
from nodepool.contract.pods import Pod, PodClass, reserved_taint
from nodepool.contract.subjects import Address
from nodepool.contract.timetable import BOOT_MAX, GONE_AFTER
from nodepool.engine.bounds import OUTPUTS_MAX
from nodepool.engine.snapshot import dump, load
from nodepool.engine.step import replay, step
from nodepool.engine.world import World
from nodepool.placement.racks import NVLINK_DOMAIN
from nodepool.service import Context, Failure, Service
from support.publishing import publish
from support.single import NOON, SingleService

ZONE, H100 = "US-EAST-02A", "gd-8xh100ib-i128"
POOL = pool_key("acme", "prod", "train")
OF: PoolFields = pool_fields(POOL)
RED = Taint(key="team", value="red", effect="NoSchedule")
PENDING_PREEMPTION = "qos.coreweave.cloud/pending-preemption"
THIRTY = timedelta(minutes=30)
TICK = timedelta(milliseconds=1)
EVICTED_AT = "qos.coreweave.cloud/evicted-at"


class NodeFields(PoolFields):
    """The identity of a Node as the fields of a message about it."""

    zone: str
    node: str
    assignment: int


class MachineFields(TypedDict):
    """The identity of a stay as the fields of a message of its machine."""

    zone: str
    machine: str
    assignment: int


class Story(SingleService[State, Hears, Says]):
    """The lifecycle service alone, with the messages that it hears in short."""

    def __init__(self, service: Service[State, Hears, Says] = SERVICE) -> None:
        super().__init__(service, TICK)

    def outputs(self, *messages: Hears) -> list[str]:
        """What is said to these messages and the wakes that they lead to, in short."""
        return [short(event) for event in self.hears(*messages)]

    def outputs_of(self, message: Hears | Wake) -> list[Says | CommandOutcome]:
        """The outputs for one message, whether or not it could be processed."""
        return list(self._step(message, "").outputs)

    def given_nodes(self, *nodes: str) -> None:
        """A NodePool with these Nodes in production."""
        self.hears(specified())
        for node in nodes:
            self.hears(assigned(node), booted(node))

    def wake_at(self, moment: datetime) -> list[Says | CommandOutcome]:
        """The outputs for a wake that is stored then."""
        self.now = moment - self.tick
        return self.wake()

    def node(self, name: str) -> Node:
        """What is folded of a Node."""
        return self.state.nodes[machine_key(ZONE, name)]


def specified(**spec: object) -> NodePoolValidated:
    """The desired state of the NodePool."""
    return NodePoolValidated(
        **OF,
        uid="u1",
        zone=ZONE,
        generation=1,
        version=1,
        created=NOON,
        spec=NodePoolSpec.model_validate({"instance_type": H100, "target_nodes": 3, **spec}),
        reason=Validated.VALID,
        message="",
    )


def labelled(event: NodePoolValidated, **labels: str) -> NodePoolValidated:
    """The desired state of the NodePool, with labels of its own."""
    return event.model_copy(update={"labels": labels})


def reborn(event: NodePoolValidated) -> NodePoolValidated:
    """The desired state of a later NodePool of the same name."""
    return event.model_copy(update={"uid": "u2"})


def of(node: str, assignment: int = 1) -> NodeFields:
    """The identity of a Node."""
    return {**OF, "zone": ZONE, "node": node, "assignment": assignment}


def machine(node: str, assignment: int = 1) -> MachineFields:
    """The identity of a Node as its machine has it."""
    return {"zone": ZONE, "machine": node, "assignment": assignment}


def assigned(node: str, assignment: int = 1) -> CWNodeAssigned:
    """A machine joins the NodePool."""
    return CWNodeAssigned(
        **of(node, assignment),
        uid="u1",
        instance_type=H100,
        labels={"node.coreweave.cloud/rack": "r7"},
        message="",
    )


def booted(
    node: str, assignment: int = 1, *, boot: int = 0, verifying: bool = False
) -> MachineBooted:
    """A machine booted."""
    return MachineBooted(**machine(node, assignment), boot=boot, verifying=verifying)


def verified(node: str, *, boot: int, passed: bool) -> NodeVerified:
    """The verification of a machine is over."""
    return NodeVerified(**machine(node), boot=boot, passed=passed)


def reboot(node: str) -> RebootNode:
    """A Node is to be rebooted at once."""
    return RebootNode(**OF, node=node, force=True)


def requested(
    node: str,
    removal: RemovalReason = RemovalReason.SCALE_DOWN,
    *,
    idle_only: bool = True,
    request: int = 1,
) -> CWNodeDeletionRequestSuccess:
    """A Node is to leave."""
    return CWNodeDeletionRequestSuccess(
        **of(node), removal=removal, idle_only=idle_only, request=request, message=""
    )


def seen(node: str, *pods: str, cordon: int = 0, assignment: int = 1) -> NodeObserved:
    """These Pods run on a Node; its cordon of this number is in force, 0 for none."""
    return NodeObserved(
        **machine(node, assignment),
        unschedulable=cordon > 0,
        cordon=cordon,
        pods=tuple(Pod(name=name, daemon_set=name.startswith("ds-")) for name in pods),
    )


def broken(node: str, status: str = "True", kind: str = "XIDErrors") -> NodeConditionChanged:
    """A Node has a problem that a reboot cures, or has it no longer."""
    fields = {"type": kind, "status": status, "reason": kind, "message": ""}
    return NodeConditionChanged.model_validate({**machine(node), **fields})


def silent(node: str) -> NodeConditionChanged:
    """A Node sends no heartbeat any more."""
    return broken(node, "Unknown", "Ready")


def failed(node: str) -> MachineFailed:
    """A machine does not boot."""
    return MachineFailed(**machine(node), cause="no link")


def in_rack(node: str) -> CWNodeAssigned:
    """A machine of a rack joins the NodePool."""
    labels = {NVLINK_DOMAIN: "d1"}
    return assigned(node).model_copy(update={"instance_type": "gb200-4x", "labels": labels})


def pending(node: str) -> PreemptionPending:
    """A preemption begins."""
    return PreemptionPending(**of(node), since=NOON, message="")


def in_progress(node: str) -> PreemptionInProgress:
    """A preemption comes to its drain."""
    return PreemptionInProgress(**of(node), evicted_at=NOON, message="")


def gone(node: str, removal: RemovalReason, *, triage: bool = True, lost: int = 0) -> CWNodeDeleted:
    """A Node left; its machine goes to triage, unless it is free."""
    why = ": it was preempted" if removal is RemovalReason.PREEMPTED else ""
    return CWNodeDeleted(
        **of(node),
        uid="u1",
        registered=True,
        triage=triage,
        removal=removal,
        lost=lost,
        message=f"Node {node} is deleted{why}",
    )


def unanswered(step: str) -> CWNodePoolNodesRemoveError:
    """The machine of the Node `n1` did not answer this step of its removal."""
    return CWNodePoolNodesRemoveError(
        **OF,
        uid="u1",
        node="n1",
        message=f"Node n1 is deleted: its machine did not answer a {step} in time and goes to"
        " triage",
    )


def short(event: Message) -> str:
    """An event as its name, its Node, and the phase where it has one."""
    name = type(event).__name__
    match event:
        case NodeUpdated(node=node, phase=phase):
            return f"{name} {node} {phase}"
        case CWNodePoolMetadata():
            return name
        case _:
            return f"{name} {getattr(event, 'node', '')}".strip()


# A Node comes.


def test_a_machine_that_booted_is_registered_as_its_pool_asks() -> None:
    story = Story()
    story.hears(specified(node_labels={"team": "red"}, node_annotations={"note": "ours"}))
    story.hears(assigned("n1"))

    (event,) = story.hears(booted("n1"))

    template = story.state.templates[POOL]
    assert event == CWNodeRegistered(
        **of("n1"),
        labels=make_labels(template, "n1", {"node.coreweave.cloud/rack": "r7"}),
        annotations={"note": "ours"},
        taints=(GPU_TAINT, reserved_taint("acme")),
        message="Node n1 is registered",
    )
    assert story.node("n1").phase is NodePhase.PRODUCTION
    assert event.labels["team"] == "red"


def test_a_machine_that_says_twice_that_it_booted_is_registered_once() -> None:
    story = Story()
    story.given_nodes("n1")

    assert story.outputs(booted("n1")) == []


def test_a_machine_that_fails_is_not_registered() -> None:
    story = Story()
    story.hears(specified(), assigned("n1"))

    (event,) = story.hears(MachineFailed(**machine("n1"), cause="no link"))

    assert event == CWNodeRegistrationFailed(
        **of("n1"), uid="u1", message="registration of Node n1 failed: no link"
    )
    assert story.state.nodes == Map()
    assert story.state.members == Map()


def test_a_machine_that_does_not_boot_in_time_is_given_up() -> None:
    story = Story()
    story.hears(specified(), assigned("n1"))
    due = story.now + BOOT_MAX

    story.now = due - 2 * TICK
    early = story.wake()
    (late,) = story.wake()

    assert early == []
    assert isinstance(late, CWNodeRegistrationFailed)
    assert late.message == (
        "registration of Node n1 failed: it did not join its cluster within 30 minutes"
    )


def test_a_node_that_joined_has_no_deadline_any_more() -> None:
    story = Story()
    story.given_nodes("n1")

    assert story.state.work.next() is None


def test_a_machine_that_comes_back_has_a_deadline_of_its_own() -> None:
    story = Story()
    story.hears(specified(), assigned("n1"), MachineFailed(**machine("n1"), cause="no link"))
    story.now += timedelta(minutes=20)

    story.hears(assigned("n1", assignment=2))

    assert story.state.work.next() == story.now + BOOT_MAX


def test_a_message_about_an_earlier_stay_changes_nothing() -> None:
    story = Story()
    story.hears(specified(), assigned("n1"), MachineFailed(**machine("n1"), cause="no link"))
    story.hears(assigned("n1", assignment=2))
    before = story.state

    outputs = story.outputs(booted("n1"), seen("n1", "train-0"), requested("n1"), pending("n1"))

    assert outputs == []
    assert story.state == before


# A Node that is not healthy.


def test_a_cordon_names_its_causes_in_a_list() -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(broken("n1"))

    *_, event = story.hears(broken("n1", kind="KernelDeadlock"))

    assert isinstance(event, CWNodeCordoned)
    assert event.message == "Node n1 is cordoned: KernelDeadlock, XIDErrors"


def test_a_node_shows_the_reboot_that_it_waits_for() -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(seen("n1", "train-0"))

    *_, event = story.hears(RebootNode(**OF, node="n1"))

    template = story.state.templates[POOL]
    look = make_labels(template, "n1", {"node.coreweave.cloud/rack": "r7"})
    assert isinstance(event, NodeUpdated)
    assert event.phase is NodePhase.PRODUCTION
    assert event.labels == {**look, "node.coreweave.cloud/pending-state": "production-reboot"}


def test_a_node_that_recovers_while_it_leaves_is_no_longer_cordoned_for_its_problem() -> None:
    # given an unhealthy Node, whose Pod blocks the scale-down that it leaves for
    story = Story()
    story.given_nodes("n1")
    story.hears(seen("n1", "train-0"), broken("n1"), requested("n1", idle_only=False))
    story.hears(seen("n1", "train-0", cordon=1))
    drained = story.node("n1").phase

    outputs = story.outputs(broken("n1", "False"))

    assert drained is NodePhase.DRAINING
    assert outputs == ["CWNodeUncordoned n1", "NodeUpdated n1 draining"]


def test_a_silence_of_most_nodes_of_a_zone_makes_none_unhealthy() -> None:
    # given four Nodes, of which two are silent
    story = Story()
    story.given_nodes("n1", "n2", "n3", "n4")
    first = story.outputs(silent("n1"), silent("n2"))

    # when a third falls silent, and five minutes have passed
    third = story.outputs(silent("n3"))
    story.now += timedelta(minutes=6)
    later = story.wake_until_idle()

    assert first == ["NodeSilent n1", "NodeSilent n2"]
    # then each silent Node is said to be silent with most of the zone, and nothing else follows
    assert third == ["NodeSilent n3", "NodeSilent n1", "NodeSilent n2"]
    assert later == []
    assert story.due is None


def test_a_rack_is_cordoned_while_machines_in_triage_leave_gaps_in_it() -> None:
    # given a rack of which fifteen machines have booted and three have not yet
    story = Story()
    names = [f"n{number:02}" for number in range(18)]
    story.hears(specified(instance_type="gb200-4x", target_nodes=18))
    story.hears(*map(in_rack, names), *map(booted, names[:15]))

    # when these three fail, and another machine of the rack takes the place of the first
    two = story.outputs(*(failed(name) for name in names[15:17]))
    down = story.outputs(failed(names[17]))
    up = story.outputs(in_rack("n18"))

    # then the others are cordoned while more than two Nodes are missing
    assert two == [f"CWNodeRegistrationFailed {name}" for name in names[15:17]]
    assert down == [
        f"CWNodeRegistrationFailed {names[17]}",
        *(
            line
            for name in names[:15]
            for line in (f"NodeUpdated {name} cordoned", f"CWNodeCordoned {name}")
        ),
    ]
    assert up == [
        line
        for name in names[:15]
        for line in (f"NodeUpdated {name} production", f"CWNodeUncordoned {name}")
    ]


def test_the_reason_for_a_cordon_has_at_most_100_characters() -> None:
    story = Story()
    story.given_nodes("n1")

    long, longer = (
        story.process(CordonNode(**OF, node="n1", reason="x" * length))[0] for length in (100, 101)
    )

    text, command = "must have at most 100 characters", "CordonNode"
    assert long == CommandAccepted(**OF, command=command, result="done")
    assert longer == CommandRefused(
        **OF, command=command, reason="Invalid", field="reason", message=text
    )


def test_a_node_on_which_work_runs_while_it_is_verified_is_drained_before_it_leaves() -> None:
    # given a new Node that is verified, on which a Pod runs
    story = Story()
    story.hears(specified(), assigned("n1"), booted("n1", verifying=True), seen("n1", "train-0"))
    verified = story.node("n1").phase

    asked = story.outputs(requested("n1", idle_only=False))
    answered = story.outputs(seen("n1", "train-0", cordon=1))

    assert verified is NodePhase.VERIFYING
    assert asked == ["NodeUpdated n1 cordoned"]
    assert answered == ["CWDrainNode n1"]


def test_a_late_report_of_an_earlier_boot_ends_no_reboot() -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(reboot("n1"))

    outputs = story.outputs(booted("n1", boot=0))

    assert outputs == []
    assert story.node("n1").phase is NodePhase.REBOOTING


def test_a_node_is_verified_anew_after_the_problem_that_interrupted_its_verification() -> None:
    # given a Node that did not pass, but is cordoned for a problem that outlasts its reboot
    story = Story()
    story.given_nodes("n1")
    story.hears(broken("n1"), reboot("n1"), booted("n1", boot=1, verifying=True))
    failed = story.outputs(verified("n1", boot=1, passed=False))
    story.wake_at(story.now + timedelta(minutes=11))
    cordoned = story.node("n1").phase

    # when the problem is over
    again = story.outputs(broken("n1", "False"))
    passed = story.outputs(verified("n1", boot=1, passed=True))

    # then only the new verification counts
    assert [failed, cordoned] == [[], NodePhase.CORDONED]
    assert again == ["NodeUpdated n1 verifying"]
    assert passed == ["NodeUpdated n1 production", "CWNodeUncordoned n1"]


# What runs on a Node.


def test_a_node_on_which_a_pod_runs_is_active() -> None:
    story = Story()
    story.given_nodes("n1")

    (active,) = story.hears(seen("n1", "train-0"))
    (idle,) = story.hears(seen("n1"))

    assert active.model_dump()["message"] == "running: train-0"
    assert idle.model_dump()["message"] == "nothing runs here"


def test_what_runs_on_a_node_is_told_once_its_machine_has_booted() -> None:
    # given a Node that its cluster knows before its machine has reported its boot
    story = Story()
    story.hears(ClusterRegistered(org="acme", cluster="prod", zone=ZONE, kubernetes=True))
    story.hears(specified(), assigned("n1"))
    pods = (Pod(name="train-0"),)

    early = story.outputs(NodeReported(**of("n1"), unschedulable=False, pods=pods))
    joined = story.outputs(booted("n1"))

    assert early == []
    assert joined == ["CWNodeRegistered n1", "NodeActivityChanged n1"]


def test_daemon_sets_make_no_node_active() -> None:
    story = Story()
    story.given_nodes("n1")

    assert story.outputs(seen("n1", "ds-logs")) == []


def test_the_same_activity_is_said_once() -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(seen("n1", "train-0"))

    assert story.outputs(seen("n1", "train-0")) == []


def test_an_active_node_names_the_pods_that_run_on_it_now() -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(seen("n1", "train-0"))

    (event,) = story.hears(seen("n1", "train-1"))

    assert isinstance(event, NodeActivityChanged)
    assert (event.active, event.message) == (True, "running: train-1")


def test_the_pods_that_block_a_scale_down_are_named_with_the_time_since_when() -> None:
    # given a Node with a Pod that blocks
    story = Story()
    story.given_nodes("n1")
    story.hears(seen("n1", "train-0"))
    since = story.now

    # when six more are there later, of which one can be interrupted
    story.now += timedelta(hours=1)
    pods = (*(f"train-{number}" for number in range(6)), "web")
    report = seen("n1", *pods)
    interruptable = Pod(name="web", interruption=PodClass.INTERRUPTABLE)
    report = report.model_copy(update={"pods": (*report.pods[:-1], interruptable)})
    (event,) = story.hears(report)

    # then those that have been there longest are named, and all are counted
    assert isinstance(event, NodeActivityChanged)
    assert [(pod.name, pod.since) for pod in event.blocking] == [
        ("train-0", since),
        *((f"train-{number}", story.now) for number in range(1, 5)),
    ]
    assert event.blocking_count == 6


def test_only_the_first_workloads_are_listed() -> None:
    assert list_names(("a", "b", "c", "d", "e")) == "a, b, c, d, e"
    assert list_names(("a", "b", "c", "d", "e", "f", "g")) == "a, b, c, d, e and 2 more"


# A Node goes.


def test_a_node_that_never_joined_is_deleted_at_once() -> None:
    story = Story()
    story.hears(specified(), assigned("n1"))

    (event,) = story.hears(requested("n1"))

    assert event.model_dump()["registered"] is False
    assert story.state.nodes == Map()
    assert story.state.work.next() is None


def test_an_idle_node_is_cordoned_and_deleted_once_the_cordon_holds() -> None:
    story = Story()
    story.given_nodes("n1")

    cordoned = story.outputs(requested("n1"))
    before = story.outputs(seen("n1"))
    after = story.outputs(seen("n1", cordon=1))

    assert cordoned == ["NodeUpdated n1 cordoned"]
    assert before == []
    assert after == ["CWDrainNode n1", "CWNodeDeleted n1"]


def test_a_cordoned_node_has_the_taint_of_a_cordon() -> None:
    story = Story()
    story.hears(specified(node_taints=[RED]), assigned("n1"), booted("n1"))

    (event,) = story.hears(requested("n1"))

    assert isinstance(event, NodeUpdated)
    assert event.taints == (GPU_TAINT, reserved_taint("acme"), CORDON, RED)
    assert (event.unschedulable, event.cordon) == (True, 1)


def test_an_active_node_that_may_go_only_idle_is_kept() -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(requested("n1", request=7))

    outputs = story.hears(seen("n1", "train-0", cordon=1))

    assert [short(event) for event in outputs] == [
        "NodeActivityChanged n1",
        "NodeUpdated n1 production",
        "NodeKept n1",
    ]
    assert outputs[-1] == NodeKept(
        **of("n1"), request=7, message="Node n1 stays: it became active: train-0"
    )
    assert story.node("n1").exit.reason is None


def test_an_active_node_that_has_to_go_is_drained_and_then_deleted() -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(seen("n1", "train-0"), requested("n1", idle_only=False))

    drained = story.outputs(seen("n1", "train-0", cordon=1))
    running = story.outputs(seen("n1", "train-0", cordon=1))
    empty = story.outputs(seen("n1", cordon=1))

    assert drained == ["CWDrainNode n1"]
    assert running == []
    assert empty == ["NodeActivityChanged n1", "CWNodeDeleted n1"]


def test_a_report_from_before_the_last_cordon_proves_nothing() -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(requested("n1"), seen("n1", "train-0", cordon=1), seen("n1"), requested("n1"))

    old, new = story.outputs(seen("n1", cordon=1)), story.outputs(seen("n1", cordon=2))

    assert old == []
    assert new == ["CWDrainNode n1", "CWNodeDeleted n1"]


@pytest.mark.parametrize(
    ("removal", "force"),
    [(RemovalReason.SCALE_DOWN, False), (RemovalReason.POOL_DELETED, True)],
)
def test_only_the_deletion_of_a_pool_lets_no_pod_block(removal: RemovalReason, force: bool) -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(seen("n1", "train-0"), requested("n1", removal, idle_only=False))

    (event,) = story.hears(seen("n1", "train-0", cordon=1))

    assert event.model_dump()["force"] is force


def test_a_node_that_is_cordoned_for_a_scale_down_goes_with_its_deleted_pool() -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(seen("n1", "train-0"), requested("n1"))

    (event,) = story.hears(requested("n1", RemovalReason.POOL_DELETED, idle_only=False, request=2))
    drained = story.outputs(seen("n1", "train-0", cordon=1))

    assert isinstance(event, NodeUpdated)
    assert (event.phase, event.cordon, event.removal) == ("cordoned", 1, "PoolDeleted")
    assert drained == ["CWDrainNode n1"]


def test_the_deletion_of_a_pool_drains_a_draining_node_once_more() -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(seen("n1", "train-0"), requested("n1", idle_only=False))
    story.hears(seen("n1", "train-0", cordon=1))

    assert story.outputs(requested("n1", RemovalReason.POOL_DELETED)) == [
        "NodeUpdated n1 draining",
        "CWDrainNode n1",
    ]


def test_a_node_that_its_pool_wants_again_is_kept() -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(requested("n1"))

    outputs = story.outputs(NodeRemovalCancelled(**of("n1")))

    assert outputs == ["NodeUpdated n1 production", "NodeKept n1"]
    assert story.outputs(NodeRemovalCancelled(**of("n1"))) == []


def test_a_node_that_goes_with_its_pool_is_not_kept() -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(requested("n1", RemovalReason.POOL_DELETED))

    assert story.outputs(NodeRemovalCancelled(**of("n1"))) == []


# A machine that does not answer.


@pytest.mark.parametrize("removal", [RemovalReason.SCALE_DOWN, RemovalReason.POOL_DELETED])
def test_a_machine_that_does_not_answer_a_cordon_is_taken_for_dead(removal: RemovalReason) -> None:
    # given a Node that is cordoned, and a wake after that
    story = Story()
    story.given_nodes("n1")
    story.hears(requested("n1", removal))
    story.now += USUALLY
    awaited = story.wake()
    due = story.now + THIRTY

    # when its machine says nothing for half an hour from then on
    story.now = due - 2 * TICK
    early = story.wake()
    late = story.wake()

    assert awaited == [AnswerAwaited(**of("n1"), answer_by=due)]
    assert early == []
    assert late == [unanswered("cordon"), gone("n1", removal)]
    assert story.state.nodes == Map()
    assert story.state.work.next() is None


def test_the_time_of_a_machine_begins_once_its_cordon_is_stored_however_late_that_is() -> None:
    # given a replica that is an hour late with a cordon
    story = Story()
    story.given_nodes("n1")
    story.hears(requested("n1"))
    story.now += timedelta(hours=1)

    outputs = story.wake()

    assert outputs == [AnswerAwaited(**of("n1"), answer_by=story.now + THIRTY)]


def test_a_wake_that_is_older_than_the_cordon_does_not_begin_the_time_of_a_machine() -> None:
    # given a replica that is late with a cordon, and reads a wake that it had stored before that
    story = Story()
    story.given_nodes("n1")
    story.hears(requested("n1"))
    story.now += timedelta(minutes=5)
    older = Wake(service="lifecycle", due=story.now)

    outputs = story.process(older)
    soon = story.now + USUALLY
    story.now = soon
    begun = story.wake()

    assert outputs == [AnswerAwaited(**of("n1"), answer_by=soon, is_final=False)]
    assert begun == [AnswerAwaited(**of("n1"), answer_by=story.now + THIRTY)]


def test_a_machine_that_hangs_during_a_drain_is_taken_for_dead() -> None:
    # given a Node that goes with its pool, whose Pod has two minutes to end
    story = Story()
    story.given_nodes("n1")
    story.hears(requested("n1", RemovalReason.POOL_DELETED, idle_only=False))
    report = seen("n1", "train-0", cordon=1)
    ending = Pod(name="train-0", grace_s=120, terminating=True)
    story.hears(report, report.model_copy(update={"pods": (ending,)}))

    # when nothing more is reported
    story.now += timedelta(minutes=2) + USUALLY
    awaited = story.wake()
    story.now += THIRTY
    late = story.wake()

    assert [short(event) for event in awaited] == ["AnswerAwaited n1"]
    assert late == [unanswered("drain"), gone("n1", RemovalReason.POOL_DELETED)]


def test_a_machine_that_hangs_when_its_drain_begins_is_taken_for_dead() -> None:
    # given a drain that a Pod blocks, as far as its machine has reported before the drain
    story = Story()
    story.given_nodes("n1")
    story.hears(requested("n1", idle_only=False), seen("n1", "train-0", cordon=1))

    # when nothing more is reported
    story.now += USUALLY
    awaited = story.wake()
    story.now += THIRTY
    late = story.wake()

    assert [short(event) for event in awaited] == ["AnswerAwaited n1"]
    assert late == [unanswered("drain"), gone("n1", RemovalReason.SCALE_DOWN)]


def test_reports_do_not_prolong_the_time_that_a_drain_may_take() -> None:
    # given a Node that goes with its pool, whose Pod has two minutes to end
    story = Story()
    story.given_nodes("n1")
    story.hears(requested("n1", RemovalReason.POOL_DELETED, idle_only=False))
    report = seen("n1", "train-0", cordon=1)
    ending = Pod(name="train-0", grace_s=120, terminating=True)
    stuck = report.model_copy(update={"pods": (ending,)})
    story.hears(report, stuck)
    begun = story.now

    # when its machine reports every minute that the Pod is still there
    while story.state.nodes and story.now < begun + 2 * THIRTY:
        story.now += timedelta(minutes=1)
        story.hears(stuck)

    # then it is taken for dead after that and half an hour
    assert story.state.nodes == Map()
    assert story.now - begun < timedelta(minutes=34)


def test_a_pod_that_ends_early_shortens_the_time_that_a_drain_may_take() -> None:
    # given a Node whose Pods have an hour and a minute to end
    story = Story()
    story.given_nodes("n1")
    story.hears(requested("n1", RemovalReason.POOL_DELETED, idle_only=False))
    report = seen("n1", "train-0", cordon=1)
    long = Pod(name="train-0", grace_s=3_600, terminating=True)
    short = Pod(name="train-1", grace_s=60, terminating=True)
    story.hears(report, report.model_copy(update={"pods": (long, short)}))

    story.hears(report.model_copy(update={"pods": (short,)}))

    assert story.state.work.next() == story.now + timedelta(minutes=1) + USUALLY


def test_reports_do_not_prolong_the_time_that_a_lock_may_take() -> None:
    story = Story()
    story.given_nodes("n1")
    story.process(lock("n1"))
    number, begun = story.position, story.now

    while story.node("n1").work.lock and story.now < begun + 3 * THIRTY:
        story.now += timedelta(minutes=1)
        story.hears(evicting("n1", number, grace_s=600))

    assert story.node("n1").work.lock is None
    assert story.now - begun < timedelta(minutes=42)


def test_a_pod_that_blocks_a_scale_down_blocks_it_without_a_deadline() -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(requested("n1", idle_only=False), seen("n1", "train-0", cordon=1))

    answered = story.outputs(seen("n1", "train-0", cordon=1))
    waits_for = story.state.work.next()
    story.now += timedelta(days=7)
    outputs = story.outputs(seen("n1", cordon=1))

    assert answered == []
    assert waits_for is None
    assert outputs == ["NodeActivityChanged n1", "CWNodeDeleted n1"]


def test_a_node_that_is_kept_has_no_deadline_any_more() -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(requested("n1"), seen("n1", "train-0", cordon=1))

    assert story.node("n1").phase is NodePhase.PRODUCTION
    assert story.state.work.next() is None


def test_the_timetable_of_a_preemption_replaces_the_deadline_of_a_removal() -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(requested("n1"), pending("n1"), in_progress("n1"))

    assert story.state.work.next() == NOON + GONE_AFTER


def test_the_deadline_of_a_removal_is_that_of_the_replica_that_published_it() -> None:
    # given two replicas with deadlines of five minutes and of one, and a Node that is cordoned
    story = Story(service(Options(timedelta(minutes=5))))
    other = Story(service(Options(timedelta(minutes=1))))
    for each in (story, other):
        each.given_nodes("n1")
        each.hears(requested("n1"))

    # when one folds what the other published
    story.now += USUALLY
    outputs = story.wake()
    wake = Wake(service="lifecycle", due=story.now)
    context = Context(other.position + 1, story.now)
    replayed = replay(other.service, other.folded, wake, outputs, context)

    # then both have the same state
    assert replayed.folded == story.folded
    assert story.state.work.next() == story.now + timedelta(minutes=5)


# Preemption.


def test_a_preempted_node_is_cordoned_drained_and_deleted_by_its_timetable() -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(seen("n1", "train-0"))

    first, second, third = (
        story.hears(pending("n1")),
        story.hears(in_progress("n1")),
        story.wake_at(NOON + GONE_AFTER),
    )

    assert [short(event) for event in first] == ["NodeUpdated n1 cordoned"]
    assert [short(event) for event in second] == ["NodeUpdated n1 draining", "CWDrainNode n1"]
    assert [short(event) for event in third] == ["CWNodeDeleted n1"]
    (warned, drained) = first[0], second[0]
    assert isinstance(warned, NodeUpdated)
    assert isinstance(drained, NodeUpdated)
    assert (warned.labels[PENDING_PREEMPTION], EVICTED_AT in warned.labels) == ("true", False)
    assert drained.labels[EVICTED_AT] == str(int(NOON.timestamp()))


def test_an_idle_node_is_not_drained_before_its_preemption_says_so() -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(pending("n1"))

    assert story.outputs(seen("n1", cordon=1)) == []


def test_a_preempted_node_goes_as_soon_as_it_is_drained() -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(seen("n1", "train-0"), pending("n1"), in_progress("n1"))

    outputs = story.outputs(seen("n1", cordon=1))

    assert outputs == ["NodeActivityChanged n1", "CWNodeDeleted n1"]


def test_no_request_shortens_a_preemption() -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(pending("n1"))

    outputs = story.outputs(requested("n1", RemovalReason.POOL_DELETED))

    assert outputs == []
    assert story.node("n1").exit.reason is RemovalReason.PREEMPTED


def test_a_node_that_drains_already_stays_so_when_it_is_preempted() -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(seen("n1", "train-0"), requested("n1", idle_only=False))
    story.hears(seen("n1", "train-0", cordon=1))

    assert story.outputs(pending("n1")) == ["NodeUpdated n1 draining"]


def test_a_booting_node_that_is_preempted_goes_at_once() -> None:
    story = Story()
    story.hears(specified(), assigned("n1"))

    outputs = story.hears(NodePreempted(**of("n1")))

    assert outputs == [
        gone("n1", RemovalReason.PREEMPTED, triage=False).model_copy(update={"registered": False})
    ]


def test_a_leaving_node_that_is_preempted_is_not_kept_and_goes_once_it_is_idle() -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(seen("n1", "train-0"), requested("n1"))

    first = story.outputs(NodePreempted(**of("n1")))
    rest = story.outputs(
        NodeRemovalCancelled(**of("n1")), seen("n1", "train-0", cordon=1), seen("n1", cordon=1)
    )

    assert first == ["NodeUpdated n1 cordoned"]
    assert rest == ["NodeActivityChanged n1", "CWDrainNode n1", "CWNodeDeleted n1"]


def test_a_node_that_was_kept_before_its_preemption_arrived_waits_for_a_timetable() -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(requested("n1"), seen("n1", "train-0", cordon=1))

    outputs = story.outputs(NodePreempted(**of("n1")))
    rest = story.wake_at(NOON + GONE_AFTER)

    assert (outputs, rest) == ([], [])
    assert story.node("n1").exit.reason is None


def test_a_node_without_a_timetable_yet_is_drained_when_its_pool_is_deleted_later() -> None:
    # given a Node that was kept before its preemption arrived, seven minutes ago
    story = Story()
    story.given_nodes("n1")
    story.hears(seen("n1", "train-0"), NodePreempted(**of("n1")))
    story.now += GONE_AFTER

    outputs = story.outputs(requested("n1", RemovalReason.POOL_DELETED, idle_only=False))
    drained = story.outputs(seen("n1", "train-0", cordon=1))

    assert outputs == ["NodeUpdated n1 cordoned"]
    assert drained == ["CWDrainNode n1"]


def test_a_preempted_node_goes_after_seven_minutes_whatever_runs_there_and_never_before() -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(seen("n1", "train-0", "train-1"), pending("n1"), in_progress("n1"))

    early = story.wake_at(NOON + GONE_AFTER - TICK)
    (event,) = story.wake_at(NOON + GONE_AFTER)

    assert early == []
    assert event == gone("n1", RemovalReason.PREEMPTED, triage=False, lost=2)
    assert story.due is None


def test_a_node_that_leaves_already_is_gone_seven_minutes_after_its_preemption() -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(requested("n1"), NodePreempted(**of("n1")))
    moment = story.now + GONE_AFTER

    early, late = story.wake_at(moment - TICK), story.wake_at(moment)

    assert early == []
    assert [short(event) for event in late] == ["CWNodeDeleted n1"]


def test_a_node_at_work_is_not_gone_before_its_preemption_has_a_timetable() -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(requested("n1"), seen("n1", "train-0"), NodePreempted(**of("n1")))
    moment = story.now + GONE_AFTER

    late = story.wake_at(moment)
    with_timetable = story.process(pending("n1").model_copy(update={"since": story.now}))

    assert (late, with_timetable) == ([], []), "it looks like a preempted Node already"


def test_a_node_without_a_timetable_goes_with_its_pool() -> None:
    # given a Node that was preempted without a timetable just when work began there
    story = Story()
    story.given_nodes("n1")
    story.hears(requested("n1"), NodePreempted(**of("n1")), seen("n1", "train-0", cordon=2))

    drained = story.process(requested("n1", RemovalReason.POOL_DELETED, idle_only=False))

    assert [short(event) for event in drained] == ["NodeUpdated n1 cordoned"]


def test_a_node_of_a_deleted_pool_is_gone_when_its_preemption_is_over() -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(seen("n1", "train-0"), requested("n1", RemovalReason.POOL_DELETED, idle_only=False))
    story.hears(pending("n1"), in_progress("n1"))

    assert [short(event) for event in story.wake_at(NOON + GONE_AFTER)] == ["CWNodeDeleted n1"]


def test_a_drain_that_is_announced_when_the_time_is_over_is_the_end() -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(seen("n1", "train-0"), pending("n1"))
    story.now = NOON + GONE_AFTER

    outputs = story.process(in_progress("n1"))

    assert [short(event) for event in outputs] == ["CWNodeDeleted n1"]


def test_a_node_that_goes_with_its_pool_needs_no_timetable() -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(requested("n1", RemovalReason.POOL_DELETED, idle_only=False))

    outputs = story.outputs(pending("n1"), in_progress("n1"), seen("n1", cordon=1))

    assert outputs == ["CWDrainNode n1", "CWNodeDeleted n1"]


# A NodePool whose metadata change.


def test_a_new_pool_announces_no_metadata() -> None:
    assert Story().outputs(specified(node_labels={"team": "red"})) == []


def test_a_change_of_node_labels_updates_every_node_and_is_then_announced() -> None:
    story = Story()
    story.given_nodes("n2", "n1")

    outputs = story.hears(specified(node_labels={"team": "red"}))

    assert [short(event) for event in outputs] == [
        "NodeUpdated n1 production",
        "NodeUpdated n2 production",
        "CWNodePoolMetadata",
    ]
    updated = outputs[0]
    assert isinstance(updated, NodeUpdated)
    assert updated.labels["team"] == "red"
    assert outputs[-1] == CWNodePoolMetadata(**OF, message="metadata of NodePool train is updated")


@pytest.mark.parametrize(
    "spec",
    [{"node_labels": {"a": "b"}}, {"node_annotations": {"a": "b"}}, {"node_taints": [RED]}],
)
def test_what_nodes_carry_reaches_them(spec: dict[str, object]) -> None:
    story = Story()
    story.given_nodes("n1")

    outputs = story.outputs(specified(**spec))

    assert outputs == ["NodeUpdated n1 production", "CWNodePoolMetadata"]


def test_labels_of_the_pool_itself_are_announced_and_change_no_node() -> None:
    story = Story()
    story.given_nodes("n1")

    first = story.outputs(labelled(specified(), app="x"))
    second = story.outputs(specified().model_copy(update={"annotations": {"note": "y"}}))

    assert first == second == ["CWNodePoolMetadata"]


def test_a_change_of_something_else_is_not_announced() -> None:
    story = Story()
    story.given_nodes("n1")

    assert story.outputs(specified(target_nodes=9)) == []


def test_a_node_that_boots_while_the_metadata_change_has_the_newest_when_it_joins() -> None:
    story = Story()
    story.hears(specified(), assigned("n1"))

    changed = story.outputs(specified(node_labels={"team": "red"}))
    (event,) = story.hears(booted("n1"))

    assert changed == ["CWNodePoolMetadata"]
    assert isinstance(event, CWNodeRegistered)
    assert event.labels["team"] == "red"


def test_a_change_of_metadata_leaves_a_cordon_in_place() -> None:
    story = Story()
    story.given_nodes("n1")
    story.hears(requested("n1"))

    (event, _) = story.hears(specified(node_labels={"team": "red"}))

    assert isinstance(event, NodeUpdated)
    assert (event.phase, event.cordon, event.removal) == ("cordoned", 1, "ScaleDown")


def test_a_pool_of_the_same_name_begins_anew() -> None:
    story = Story()
    story.hears(specified(), CWNodePoolDeleted(**OF, uid="u1", message=""))
    forgotten = story.state

    outputs = story.outputs(reborn(specified(node_labels={"team": "red"})))

    assert forgotten == State()
    assert outputs == []


def test_a_pool_of_the_same_name_does_not_inherit_a_failure() -> None:
    story = Story()
    story.hears(specified())
    folded(story, NodeUpdateFailed(**OF, message="internal error while removing a Node: lost"))

    story.hears(CWNodePoolDeleted(**OF, uid="u1", message=""))
    outputs = story.outputs(reborn(specified()), reborn(specified(node_labels={"team": "red"})))

    assert outputs == ["CWNodePoolMetadata"]


def test_the_deletion_of_an_earlier_pool_of_the_same_name_changes_nothing() -> None:
    story = Story()
    story.hears(reborn(specified()))

    story.hears(CWNodePoolDeleted(**OF, uid="u1", message=""))

    assert POOL in story.state.templates


def test_more_nodes_than_one_step_can_update_follow_before_the_announcement() -> None:
    # given a NodePool of 2,000 Nodes
    story = Story()
    story.given_nodes(*(f"n{number:04}" for number in range(2_000)))

    # when its labels change
    steps = [story.process(specified(node_labels={"team": "red"}))]
    while story.has_work:
        steps.append(story.wake())

    # then no step has more outputs than fit, and each Node is updated once before it is announced
    outputs = [short(event) for events in steps for event in events]
    assert [len(events) for events in steps] == [OUTPUTS_MAX, OUTPUTS_MAX, 201]
    assert outputs == [
        *(f"NodeUpdated n{number:04} production" for number in range(2_000)),
        "CWNodePoolMetadata",
    ]


def test_a_change_while_nodes_are_still_updated_reaches_all_of_them() -> None:
    story = Story()
    nodes = [f"n{number:03}" for number in range(OUTPUTS_MAX + 1)]
    story.given_nodes(*nodes)

    story.process(specified(node_labels={"team": "red"}))
    outputs = story.outputs(specified(node_labels={"team": "blue"}))

    revision = story.state.templates[POOL].revision
    assert outputs.count("CWNodePoolMetadata") == 1
    assert outputs[-1] == "CWNodePoolMetadata"
    assert {story.node(name).revision for name in nodes} == {revision}


def test_a_drain_that_is_no_longer_allowed_ends_behind_many_updates_too() -> None:
    # given a Node that is drained for its problem, in a NodePool of more Nodes than fit one step
    story = Story()
    story.hears(specified(lifecycle={"disable_unhealthy_node_eviction": False}))
    for number in range(OUTPUTS_MAX + 1):
        story.hears(assigned(f"n{number:03}"), booted(f"n{number:03}"))
    story.hears(seen("n000", "job"), broken("n000"), seen("n000", "job", cordon=1))
    drained = story.node("n000").phase

    # when its labels and its eviction change at once
    story.outputs(specified(node_labels={"team": "red"}))

    # then the Node is cordoned, and no longer drained
    assert drained is NodePhase.DRAINING
    assert story.node("n000").phase is NodePhase.CORDONED


def test_a_thousand_silent_machines_are_given_up_in_one_or_more_steps() -> None:
    story = Story()
    story.hears(specified(), *(assigned(f"n{number:04}") for number in range(1_000)))

    story.now += BOOT_MAX
    outputs = []
    while story.has_work:
        outputs += story.wake()

    assert [short(event) for event in outputs] == [
        f"CWNodeRegistrationFailed n{number:04}" for number in range(1_000)
    ]
    assert story.state.nodes == Map()


def test_a_deadline_that_waits_behind_many_updates_is_kept() -> None:
    # given a machine that is overdue while the Nodes of its pool are updated
    story = Story()
    story.given_nodes(*(f"n{number:04}" for number in range(2 * OUTPUTS_MAX)))
    story.hears(assigned("late"))
    story.now += BOOT_MAX
    story.process(specified(node_labels={"team": "red"}))

    # when the wake that it waited for has no room for it
    first, second = story.wake(), story.wake()

    # then it is given up at the next
    assert len(first) == OUTPUTS_MAX
    assert [short(event) for event in second] == [
        "CWNodePoolMetadata",
        "CWNodeRegistrationFailed late",
    ]


def test_a_machine_that_comes_back_before_the_next_wake_is_given_its_whole_time() -> None:
    # given a step that ends exactly with the machine that is given up
    story = Story()
    story.given_nodes(*(f"n{number:04}" for number in range(2 * OUTPUTS_MAX - 2)))
    story.hears(assigned("late"))
    story.now += BOOT_MAX
    story.process(specified(node_labels={"team": "red"}))
    outputs = [short(event) for event in story.wake()]

    # when it is assigned anew before the wake that follows
    story.process(assigned("late", assignment=2))
    due = story.now + BOOT_MAX
    again = story.wake()

    # then its new deadline stands
    assert outputs[-2:] == ["CWNodePoolMetadata", "CWNodeRegistrationFailed late"]
    assert again == []
    assert story.state.work.next() == due


def lock(node: str) -> LockNode:
    """A Slurm job wants a Node for itself."""
    return LockNode(**OF, node=node, job="7")


def evicting(node: str, lock: int, grace_s: int) -> NodeObserved:
    """A machine knows of the lock of this number, and evicts a Pod."""
    pod = Pod(name="train-0", grace_s=grace_s, terminating=True)
    return NodeObserved(**machine(node, 1), unschedulable=False, cordon=0, pods=(pod,), lock=lock)


def test_a_machine_has_half_an_hour_for_a_lock_from_the_moment_at_which_that_is_stored() -> None:
    # given a replica that stores a lock three quarters of an hour after the command
    story = Story()
    story.given_nodes("n1")
    story.process(lock("n1"))
    story.now += timedelta(minutes=44)

    (begins,) = story.wake()
    moment = story.now + THIRTY
    too_early, outputs = story.wake_at(moment - TICK), story.wake_at(moment)

    assert short(begins) == "AnswerAwaited n1"
    assert too_early == []
    assert [short(event) for event in outputs] == [
        "NodeLockChanged n1",
        "NodeUpdated n1 production",
        "NodeActivityChanged n1",
    ]
    assert story.node("n1").work.lock is None
    assert story.state.work.next() is None


def test_of_two_deadlines_that_are_over_at_once_neither_is_forgotten() -> None:
    # given a Node with a lock that waits for a Pod, and then a cordon that is not answered
    story = Story()
    story.given_nodes("n1")
    story.process(lock("n1"))
    story.process(evicting("n1", story.position, grace_s=600))
    story.process(requested("n1"))
    for _ in ("lock", "cordon"):
        story.now += USUALLY
        story.wake()

    # when the wake for the answer comes after the end of the lock
    story.now += timedelta(hours=1)
    outputs = story.wake()

    # then the lock is released, and the machine is taken for dead right after
    assert [short(event) for event in outputs[:3]] == [
        "NodeLockChanged n1",
        "NodeUpdated n1 cordoned",
        "NodeActivityChanged n1",
    ]
    assert outputs[3:] == [unanswered("cordon"), gone("n1", RemovalReason.SCALE_DOWN)]
    assert story.state.work.next() is None


def seen_now(story: Story, *pods: str) -> NodeObserved:
    """A machine knows of all that it has been told, and runs these Pods."""
    return seen("n1", *pods, cordon=story.node("n1").cordon.number)


def evicting_now(story: Story) -> NodeObserved:
    """A machine knows of the lock that there is, and evicts a Pod for it."""
    held = story.node("n1").work.lock
    return evicting("n1", held.number if held else 0, grace_s=600)


def leaving_node(_story: Story) -> CWNodeDeletionRequestSuccess:
    """A Node goes with its NodePool."""
    return requested("n1", RemovalReason.POOL_DELETED, idle_only=False)


STEPS: dict[str, Callable[[Story], Hears]] = {
    "lock": lambda _story: lock("n1"),
    "unlock": lambda _story: UnlockNode(**OF, node="n1", job="7"),
    "evicting": evicting_now,
    "idle": seen_now,
    "active": lambda story: seen_now(story, "train-0"),
    "reboot": lambda _story: RebootNode(**OF, node="n1"),
    "cordon": lambda _story: CordonNode(**OF, node="n1", reason="loose cable"),
    "uncordon": lambda _story: UncordonNode(**OF, node="n1"),
    "restarted": lambda story: MachineBooted(**machine("n1"), boot=story.node("n1").boot.number),
    "requested": lambda _story: requested("n1"),
    "leaving": leaving_node,
    "cancelled": lambda _story: NodeRemovalCancelled(**of("n1")),
    "pending": lambda _story: pending("n1"),
    "in progress": lambda _story: in_progress("n1"),
}


@given(st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 50)), max_size=8))
def test_no_deadline_is_left_behind_however_late_the_wakes_are(
    moves: list[tuple[str, int]],
) -> None:
    # given a Node with a lock, to which things happen, and a wake only after so many minutes
    story = Story()
    story.given_nodes("n1")
    story.process(lock("n1"))
    for name, minutes in moves:
        if machine_key(ZONE, "n1") in story.state.nodes:
            story.process(STEPS[name](story))
        story.now += timedelta(minutes=minutes)
        if minutes:
            story.wake()

    # when the next one is late as well
    story.now += timedelta(hours=1)
    story.wake_until_idle()

    for key, node in story.state.nodes.items():
        moments = (node.due, node.work.lock.due if node.work.lock is not None else None)
        assert all(moment is None or moment > story.now for moment in moments)
        assert story.state.work.deadlines.moments.get(key) == node.due


# Templates and Nodes as values.


def template(**spec: object) -> NodeTemplate:
    """The template of a new NodePool."""
    return make_template(specified(**spec), has_agent=False)


def test_what_the_control_plane_manages_wins_over_what_a_pool_asks_for() -> None:
    asked = {"node.coreweave.cloud/state": "mine", "kubernetes.io/hostname": "mine", "a": "b"}

    found = make_labels(template(node_labels=asked), "n1", {"node.coreweave.cloud/rack": "r7"})

    assert found["node.coreweave.cloud/state"] == "production"
    assert found["kubernetes.io/hostname"] == "n1"
    assert found["node.coreweave.cloud/rack"] == "r7"
    assert (found["a"], found["compute.coreweave.com/node-pool-uid"]) == ("b", "u1")


def test_a_template_taints_cordoned_nodes_between_its_kind_and_its_own() -> None:
    tainted = template(node_taints=[RED])

    assert make_taints(tainted, Standing()) == (GPU_TAINT, RED)
    assert make_taints(template(node_taints=[CORDON, RED]), Standing(unschedulable=True)) == (
        GPU_TAINT,
        CORDON,
        RED,
    )
    assert make_taints(tainted, Standing(unschedulable=True)) == (GPU_TAINT, CORDON, RED)


@pytest.mark.parametrize("cordoned", [False, True])
@pytest.mark.parametrize("taint", [GPU_TAINT, CORDON])
def test_a_node_has_one_taint_of_a_key_and_effect_and_the_managed_one_wins(
    taint: Taint, cordoned: bool
) -> None:
    repeated = taint.model_copy(update={"value": "mine"})

    found = make_taints(template(node_taints=[repeated, RED]), Standing(unschedulable=cordoned))

    assert found == make_taints(template(node_taints=[RED]), Standing(unschedulable=cordoned))


def test_a_template_counts_its_changes() -> None:
    before = template()

    same = update_template(before, specified(target_nodes=9))
    second = update_template(before, labelled(specified(), app="x"))
    third = update_template(second, labelled(specified(node_labels={"a": "b"}), app="x"))

    assert same is before
    assert (before.version, before.revision) == (1, 1)
    assert (second.version, second.revision) == (2, 1)
    assert (third.version, third.revision) == (3, 3)


def test_a_node_remembers_the_pods_that_count_as_work() -> None:
    node = Node("n1", POOL, 1, {}, boot_by=NOON)

    after = change_node(node, seen("n1", "train-1", "ds-logs", "train-0"), NOON)

    assert after.work.pods == (
        Workload("train-0", NOON, True, grace_s=30),
        Workload("train-1", NOON, True, grace_s=30),
    )


# Failures, snapshots and replay.


def test_a_removal_that_fails_shows_on_its_pool() -> None:
    story = Story()
    story.given_nodes("n1")
    name = "CWNodeDeletionRequestSuccess"
    address = Address("evt", "allocator", ("acme", "prod", "train"), name)

    outputs = SERVICE.on_failure(story.state, Failure(address, name, "", "is missing"))

    text = "internal error while removing a Node: is missing"
    assert list(outputs) == [
        NodeUpdateFailed(**OF, uid="u1", message=text),
        CWNodePoolNodesRemoveError(**OF, uid="u1", message=text),
    ]


def folded(story: Story, *messages: Hears | Says) -> None:
    """Folds messages on which nothing was decided, because that failed."""
    context = Context(story.position, story.now)
    for message in messages:
        state = SERVICE.evolve(story.state, message, context)
        story.folded = replace(story.folded, state=state)


def test_an_update_of_nodes_that_failed_is_tried_again_after_a_minute() -> None:
    story = Story()
    story.given_nodes("n1")
    text = "internal error while removing a Node: is missing"
    folded(story, specified(node_labels={"a": "b"}), NodeUpdateFailed(**OF, message=text))

    early = story.wake()
    story.now += timedelta(minutes=1)
    outputs = story.wake()

    assert early == []
    assert [short(event) for event in outputs] == [
        "NodeUpdated n1 production",
        "CWNodePoolMetadata",
        "NodeRemovalRecovered",
    ]
    assert story.state.failed == Map()
    assert story.state.work.next() is None


def test_a_step_of_a_removal_that_failed_is_found_again_from_the_state_of_its_node() -> None:
    # given Nodes whose requests, and the answers to whose cordons, could not be decided on
    story = Story()
    story.hears(specified(), assigned("boots"))
    story.given_nodes("asked", "answered", "drained")
    story.hears(requested("answered"), requested("drained", idle_only=False))
    story.hears(seen("drained", "train-0", cordon=1))
    failure = NodeUpdateFailed(**OF, message="internal error while removing a Node: is missing")
    folded(story, requested("boots"), requested("asked"), seen("answered", cordon=1), failure)
    folded(story, seen("drained", cordon=1))

    story.now += timedelta(minutes=1)
    outputs = [short(event) for event in story.wake()]

    assert outputs == [
        "CWDrainNode answered",
        "CWNodeDeleted answered",
        "NodeUpdated asked cordoned",
        "CWNodeDeleted boots",
        "NodeActivityChanged drained",
        "CWNodeDeleted drained",
        "NodeRemovalRecovered",
    ]


def test_a_removal_of_a_cordoned_node_that_failed_begins_the_time_of_its_machine() -> None:
    # given a Node that was cordoned by a command, and a removal that could not be decided on
    story = Story()
    story.given_nodes("n1")
    story.process(CordonNode(**OF, node="n1", reason="loose cable"))
    failure = NodeUpdateFailed(**OF, message="internal error while removing a Node: is missing")
    folded(story, leaving_node(story), failure)

    story.now += timedelta(minutes=1)
    outputs = [short(event) for event in story.wake()]

    assert outputs == ["NodeUpdated n1 cordoned", "NodeRemovalRecovered"]
    assert story.node("n1").answer.ask_after == story.now + USUALLY


def test_a_step_of_an_unhealthy_node_that_failed_is_said_once() -> None:
    # given a Node with a problem, and the end of its Pod, which could not be decided on
    story = Story()
    story.given_nodes("n1")
    story.hears(seen("n1", "train-0"), broken("n1"), seen("n1", "train-0", cordon=1))
    failure = NodeUpdateFailed(**OF, message="internal error while removing a Node: is missing")
    folded(story, seen("n1", cordon=1), failure)

    story.now += timedelta(minutes=1)
    outputs = [short(event) for event in story.wake()]

    assert outputs == ["NodeActivityChanged n1", "NodeRemovalRecovered"]


LEAVING_STEPS = ("active", "cordon", "idle", "in progress", "leaving", "pending", "requested")
"""What makes a Node leave, or leave for another reason."""


@given(
    st.lists(st.tuples(st.sampled_from(LEAVING_STEPS), st.integers(0, 3)), max_size=6),
    st.integers(0, 5),
)
def test_a_node_that_leaves_waits_for_no_machine_without_a_deadline_whatever_failed(
    moves: list[tuple[str, int]], failing: int
) -> None:
    # given a Node to which things happen, of which the failing step could not be decided on
    story, key = Story(), machine_key(ZONE, "n1")
    story.given_nodes("n1")
    for number, (name, minutes) in enumerate(moves):
        if key not in story.state.nodes:
            return
        message = STEPS[name](story)
        if number == failing and isinstance(message, OfMachine | OfNode):
            failure = NodeUpdateFailed(**OF, message="internal error: is missing")
            folded(story, message, failure)
        else:
            story.process(message)
        story.now += timedelta(minutes=minutes)
        if minutes:
            story.wake()

    # when the step that failed is tried again
    story.now += timedelta(minutes=1)
    story.wake_until_idle()

    for node in story.state.nodes.values():
        is_leaving = node.exit.reason not in (None, RemovalReason.PREEMPTED) and node.is_cordoned
        assert node.exit.reason is node.exit.shown
        assert node.answer.is_awaited or not is_leaving or node.has_answered


def test_a_deadline_that_failed_is_tried_again_with_the_pool_of_its_node() -> None:
    # given a machine that does not boot in time, and a step that fails then
    story = Story()
    story.hears(specified(), assigned("n1"))
    story.now += BOOT_MAX
    wake = Wake(service="lifecycle", due=story.now)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lifecycle.table.registration_failed", None)
        failed = story.outputs_of(wake)

    # when a minute has passed
    story.now += timedelta(minutes=1)
    outputs = [short(event) for event in story.wake()]

    text = "internal error while updating a Node: TypeError: 'NoneType' object is not callable"
    assert failed == [NodeUpdateFailed(**OF, uid="u1", message=text)]
    assert outputs == ["CWNodeRegistrationFailed n1", "NodeRemovalRecovered"]


def test_the_same_failure_of_a_removal_is_told_to_users_once() -> None:
    story = Story()
    story.given_nodes("n1")
    name = "CWNodeDeletionRequestSuccess"
    address = Address("evt", "allocator", ("acme", "prod", "train"), name)
    failure = Failure(address, name, "", "is missing")

    first = list(SERVICE.on_failure(story.state, failure))
    folded(story, *first)
    second = list(SERVICE.on_failure(story.state, failure))

    assert [short(event) for event in first] == [
        "NodeUpdateFailed",
        "CWNodePoolNodesRemoveError",
    ]
    assert [short(event) for event in second] == ["NodeUpdateFailed"]


def test_another_failure_shows_nowhere() -> None:
    address = Address("evt", "fleet", ("fleet", ZONE, "n1"), "NodeObserved")

    assert (
        list(
            SERVICE.on_failure(SERVICE.initial, Failure(address, "NodeObserved", "", "is missing"))
        )
        == []
    )


def test_a_node_of_an_unknown_pool_fails_alone() -> None:
    story = Story()
    story.hears(assigned("n1"))

    result = step(SERVICE, story.folded, booted("n1"), Context(9, NOON))

    assert result.outputs == ()
    assert result.failure is not None
    assert result.failure.is_bug


def test_the_state_survives_a_snapshot() -> None:
    story = Story()
    story.given_nodes("n1", "n2", "n3")
    story.hears(assigned("n4"), seen("n1", "train-0"), requested("n2"), pending("n3"))
    story.hears(in_progress("n3"), specified(node_labels={"team": "red"}, node_taints=[RED]))

    assert load(State, dump(story.folded)) == story.folded


def test_a_replay_of_the_log_makes_the_same_state() -> None:
    # given a NodePool with more Nodes than one step can update
    world, nodes = World([SERVICE]), [f"n{number:03}" for number in range(OUTPUTS_MAX + 1)]
    publish(world, specified())
    for node in nodes:
        publish(world, assigned(node))
        publish(world, booted(node))
    world.run_until_idle()

    # when its labels change
    publish(world, specified(node_labels={"team": "red"}))
    world.run_until_idle()

    # then each is updated, and what is replayed is what was folded
    updated = [
        event.node for event in world.messages(NodeUpdated) if isinstance(event, NodeUpdated)
    ]
    assert updated == nodes
    assert len(world.messages(CWNodePoolMetadata)) == 1
    assert world.replay_differs() == []
