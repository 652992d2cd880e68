"""What the aggregator counts: given events, when they are folded, then exactly these samples."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Never

import pytest

from aggregator import Hears
from aggregator.decide import SERVICE
from aggregator.read_model import ReadModel
from aggregator.state import State
from contracts.samples import KIND, MACHINE, ZONE, sample
from nodepool.contract import metrics
from nodepool.contract.conditions import Quota, Validated
from nodepool.contract.events import (
    CWDrainNode,
    CWNodeAssigned,
    CWNodeCordoned,
    CWNodeDeleted,
    CWNodePoolDeleted,
    CWNodePoolNodesRemoved,
    CWNodePoolNodesRemoveError,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    CWNodeUncordoned,
    GrantAcknowledged,
    MachineAdded,
    MachineRepaired,
    MachineStateChanged,
    NodeActivityChanged,
    NodeConditionChanged,
    NodePoolDeleting,
    NodePoolValidated,
    NodeUpdated,
    QuotaChecked,
    QuotaSet,
)
from nodepool.contract.metrics import Histogram, Metric
from nodepool.contract.model import NodePhase, NodePoolSpec, RemovalReason
from nodepool.contract.node_states import MachineState
from support.constants import A100
from support.grown import from_nothing, grown
from support.single import SingleService

OFFERING = ZONE, KIND
POOL = "acme", "prod", "train.v1"
Series = dict[tuple[str, ...], float]


class Story(SingleService[State, Hears, Never]):
    """The aggregator with the events that it has heard, a second apart."""

    def __init__(self) -> None:
        super().__init__(SERVICE)

    def heard(self, *events: Hears) -> "Story":
        """The story after these events."""
        self.hears(*events)
        return self

    def after(self, seconds: float, *events: Hears) -> "Story":
        """The story after these events, the first of them so long after the last one before."""
        self.now += timedelta(seconds=seconds) - self.tick
        return self.heard(*events)

    def shown(self, metric: Metric) -> Series:
        """The series of a metric by their labels; of a histogram, the sum of its values.

        Without counters that are still at 0, which all others were before their first count.
        """
        samples = tuple(SERVICE.samples(self.state))
        offerings = ReadModel(capacity=self.state.read_model.capacity)
        assert from_nothing(samples, SERVICE.samples(State(offerings))) == []
        series: Series = {}
        for each, labels, value in grown(samples):
            if each == metric:
                assert labels not in series, f"{metric.name} has {labels} twice"
                is_histogram = isinstance(value, Histogram)
                assert is_histogram is (metric.kind == "histogram")
                series[labels] = value.sum if isinstance(value, Histogram) else value
        return series

    def activity(self) -> tuple[float, float]:
        """Return how many Nodes of the NodePool are active, and how many are idle."""
        active, idle = (self.shown(each) for each in (metrics.ACTIVE_NODES, metrics.IDLE_NODES))
        return active[POOL], idle[POOL]

    def broken(self) -> Series:
        """How often each rule was broken."""
        return self.shown(metrics.INVARIANT_VIOLATIONS)


def validated(target: int = 1, generation: int = 1, **fields: object) -> NodePoolValidated:
    """A valid NodePool that wants so many Nodes."""
    spec = NodePoolSpec(instance_type=KIND, target_nodes=target)
    fields = {"reason": Validated.VALID, "fault": "", "message": "", "spec": spec, **fields}
    return sample(NodePoolValidated, generation=generation, **fields)


def granted(
    count: int = 1, generation: int = 1, reason: Quota = Quota.UNDER, **fields: object
) -> QuotaChecked:
    """A NodePool may have so many Nodes, of eight."""
    fields = {"limit": 8, "used": count, "number": generation, **fields}
    return sample(
        QuotaChecked, granted=count, generation=generation, reason=reason, zone=ZONE, **fields
    )


def updated(phase: NodePhase, removal: RemovalReason | None = None) -> NodeUpdated:
    """The Node is in this phase from now on."""
    return sample(NodeUpdated, phase=phase, removal=removal, template=0)


def deleted(removal: RemovalReason | None = RemovalReason.SCALE_DOWN, **fields: object) -> Hears:
    """The Node is gone."""
    return sample(CWNodeDeleted, **{"registered": True, "triage": False, **fields}, removal=removal)


def with_pool(target: int = 1) -> Story:
    """A NodePool that wants so many Nodes and may have them, and one machine."""
    return Story().heard(sample(MachineAdded), validated(target), granted(target))


def with_node() -> Story:
    """A NodePool that has the one Node that it wants, five seconds after it was assigned."""
    assigned, joined = sample(CWNodeAssigned), sample(CWNodeRegistered, template=0)
    return with_pool().heard(assigned).after(5, joined)


# NodePools.


def test_a_node_above_a_grant_is_not_shown_as_granted() -> None:
    over = granted(0, reason=Quota.OVER, beyond=1)
    story = with_node().heard(over)

    assert story.shown(metrics.GRANTED_NODES) == {POOL: 0}
    assert story.shown(metrics.QUEUED_NODES) == {POOL: 0}


def test_a_nodepool_shows_what_it_wants_and_what_it_has() -> None:
    story = with_pool(3).heard(sample(CWNodeAssigned))

    shown = {
        metric: story.shown(metric)
        for metric in (
            metrics.INFO,
            metrics.TARGET_NODES,
            metrics.GRANTED_NODES,
            metrics.CURRENT_NODES,
            metrics.IN_PROGRESS_NODES,
            metrics.QUEUED_NODES,
        )
    }
    assert shown == {
        metrics.INFO: {(*POOL, ZONE, KIND, "default"): 1},
        metrics.TARGET_NODES: {POOL: 3},
        metrics.GRANTED_NODES: {POOL: 3},
        metrics.CURRENT_NODES: {POOL: 0},
        metrics.IN_PROGRESS_NODES: {POOL: 1},
        metrics.QUEUED_NODES: {POOL: 2},
    }


def test_an_instance_type_that_does_not_exist_makes_no_label() -> None:
    spec = NodePoolSpec(instance_type="typo", target_nodes=1)
    story = Story().heard(sample(NodePoolValidated, spec=spec, reason=Validated.INVALID))

    assert story.shown(metrics.INFO) == {(*POOL, ZONE, "unknown", "default"): 1}


def test_a_condition_shows_its_status_and_since_when() -> None:
    story = with_pool()

    assert story.shown(metrics.STATUS_CONDITION) == {
        (*POOL, "Validated", "True", "Valid"): 1,
        (*POOL, "Quota", "True", "Under"): 1,
        (*POOL, "AtTarget", "False", "UnderTarget"): 1,
    }
    noon = (story.now - 3 * story.tick).timestamp()
    assert story.shown(metrics.CONDITION_SINCE) == {
        (*POOL, "Validated"): noon + 2,
        (*POOL, "AtTarget"): noon + 2,
        (*POOL, "Quota"): noon + 3,
    }


def test_changes_of_a_condition_are_counted_and_timed() -> None:
    # given a NodePool that is over its quota, then under it after a minute, and is checked again
    story = Story().heard(validated(), granted(0, reason=Quota.OVER))
    story.after(60, granted(number=2)).heard(granted(number=2, message="again"))

    transitions = story.shown(metrics.CONDITION_TRANSITIONS)
    assert transitions == {
        ("Validated", "True", "Valid"): 1,
        ("AtTarget", "False", "UnderTarget"): 1,
        ("Quota", "False", "Over"): 1,
        ("Quota", "True", "Under"): 1,
    }
    assert story.shown(metrics.CONDITION_DURATION) == {("Quota", "False"): 60}


def waited(story: Story) -> dict[str, float]:
    """How long NodePools waited in all for their targets, by direction."""
    series = story.shown(metrics.TIME_TO_TARGET)
    assert all(labels[:3] == (ZONE, KIND, "default") for labels in series)
    return {labels[-1]: value for labels, value in series.items()}


def test_the_time_to_target_begins_with_the_target() -> None:
    assert waited(with_node()) == {"up": 7}


def test_a_loss_of_a_node_begins_a_wait() -> None:
    story = with_node().heard(deleted(RemovalReason.UNHEALTHY))
    again = sample(CWNodeAssigned, assignment=8)
    story.after(30, again).after(60, sample(CWNodeRegistered, assignment=8, template=0))

    assert waited(story) == {"up": 7 + 90}


def test_a_wait_goes_on_where_the_target_rises_meanwhile() -> None:
    story = with_pool(1).after(10, validated(2, 2), granted(2, 2))
    other = {"node": "g2", "assignment": 8}
    story.heard(sample(MachineAdded, machine="g2"), sample(CWNodeAssigned))
    story.heard(sample(CWNodeAssigned, **other), sample(CWNodeRegistered, template=0))
    story.after(20, sample(CWNodeRegistered, template=0, **other))

    assert waited(story) == {"up": 36}


def test_a_target_that_comes_to_the_nodes_ends_a_wait_that_does_not_count() -> None:
    assert waited(with_pool(1).after(3600, validated(0, 2))) == {}


def test_no_time_counts_while_more_is_wanted_than_the_quota_allows() -> None:
    story = Story().heard(sample(MachineAdded), validated(1), granted(0, reason=Quota.OVER))
    story.after(36_000, granted(1, number=2))
    story.after(4, sample(CWNodeAssigned)).after(5, sample(CWNodeRegistered, template=0))

    assert waited(story) == {"up": 9}


def test_a_scale_down_is_a_wait_of_its_own_direction() -> None:
    story = with_node().heard(validated(0, 2)).after(40, deleted())

    assert waited(story) == {"up": 7, "down": 40}


def test_a_nodepool_that_is_deleted_leaves_no_series() -> None:
    story = with_node().heard(sample(CWNodeCordoned, cause="XIDErrors"), sample(NodePoolDeleting))
    story.heard(deleted(RemovalReason.POOL_DELETED))
    story.heard(sample(CWNodePoolNodesRemoved, removal=RemovalReason.POOL_DELETED))
    story.heard(sample(CWNodePoolDeleted))

    of_pools = [metric for metric in metrics.ALL if "pool" in metric.labels]
    assert {metric.name: story.shown(metric) for metric in of_pools} == {
        metric.name: {} for metric in of_pools
    }
    assert story.broken() == {}


# Nodes.


def test_the_time_to_join_is_that_since_the_assignment() -> None:
    assert with_node().shown(metrics.NODE_JOIN) == {OFFERING: 5}


def lost(story: Story) -> Series:
    """The seconds lost, by cause."""
    return {labels[2:]: value for labels, value in story.shown(metrics.LOST_NODE_SECONDS).items()}


def test_a_cordoned_node_is_unhealthy_by_the_first_of_its_causes_until_it_is_not() -> None:
    story = with_node().heard(sample(CWNodeCordoned, cause="XIDErrors,AdminCordon"))
    assert story.shown(metrics.UNHEALTHY_NODES) == {(*POOL, "XIDErrors"): 1}
    story.heard(sample(CWNodeCordoned, cause="my own words"))
    assert story.shown(metrics.UNHEALTHY_NODES) == {(*POOL, "Other"): 1}

    story.after(9, sample(CWNodeUncordoned))

    # then all the time counts for what it began with
    assert story.shown(metrics.UNHEALTHY_NODES) == {}
    assert lost(story) == {("XIDErrors",): 10}


def test_a_reboot_and_the_verification_after_it_are_lost_once() -> None:
    story = with_node().heard(updated(NodePhase.REBOOTING))
    story.heard(sample(CWNodeCordoned, cause="AdminReboot"))
    story.after(60, updated(NodePhase.VERIFYING))

    story.after(30, updated(NodePhase.PRODUCTION), sample(CWNodeUncordoned))

    assert lost(story) == {("AdminReboot",): 92}


def test_a_node_that_is_verified_before_its_first_use_cannot_be_used() -> None:
    story = with_pool().heard(sample(CWNodeAssigned))
    story.heard(sample(CWNodeRegistered, template=0, phase=NodePhase.VERIFYING))

    story.after(15, updated(NodePhase.PRODUCTION))

    assert lost(story) == {("Verification",): 15}


def test_a_preempted_node_is_counted_by_its_stage_and_lost_until_it_is_gone() -> None:
    story = with_node().heard(updated(NodePhase.CORDONED, RemovalReason.PREEMPTED))
    assert story.shown(metrics.PREEMPTING_NODES) == {(*POOL, "pending"): 1}
    story.after(120, sample(CWDrainNode))
    assert story.shown(metrics.PREEMPTING_NODES) == {(*POOL, "drain"): 1}

    story.after(300, deleted(RemovalReason.PREEMPTED))

    assert story.shown(metrics.PREEMPTING_NODES) == {}
    assert lost(story) == {("Preempted",): 420}


def working(active: bool) -> NodeActivityChanged:
    """Return the event that a workload runs on the Node from now on, or that none does."""
    return sample(NodeActivityChanged, active=active)


def test_a_node_is_active_while_a_workload_runs_on_it_and_idle_otherwise() -> None:
    story = with_node()
    seen = [story.activity()]
    for active in (True, True, False, True):
        seen.append(story.heard(working(active)).activity())

    assert seen == [(0, 1), (1, 0), (1, 0), (0, 1), (1, 0)]
    assert story.heard(deleted()).activity() == (0, 0)


def test_a_node_that_is_not_registered_is_neither_active_nor_idle() -> None:
    story = with_pool().heard(sample(CWNodeAssigned), working(True))
    assert story.activity() == (0, 0)

    story.heard(sample(CWNodeRegistered, template=0))

    assert story.activity() == (1, 0)


def test_a_node_that_is_to_leave_for_its_nodepool_is_not_lost() -> None:
    story = with_node().heard(updated(NodePhase.CORDONED, RemovalReason.SCALE_DOWN))

    story.after(60, deleted())

    assert lost(story) == {}
    assert story.shown(metrics.NODE_REMOVALS) == {(*OFFERING, "ScaleDown"): 1}
    assert story.shown(metrics.REMOVED_NODE_AGE) == {("ScaleDown",): 66}


def failures(story: Story) -> Series:
    """What has failed, by cause."""
    return {labels[2:]: value for labels, value in story.shown(metrics.NODE_FAILURES).items()}


def out_of_service(story: Story) -> Series:
    """The machines that are, by state and cause."""
    series = story.shown(metrics.MACHINES).items()
    return {labels[2:]: value for labels, value in series if labels[3]}


def test_a_machine_that_does_not_boot_is_out_of_service_until_it_is_repaired() -> None:
    message = "registration of Node g1 failed: the machine did not boot: no PSU"
    story = with_pool().heard(
        sample(CWNodeAssigned), sample(CWNodeRegistrationFailed, message=message)
    )
    assert failures(story) == {("BootFailed",): 1}
    assert out_of_service(story) == {("triage", "BootFailed"): 1}
    story.heard(sample(MachineStateChanged, state=MachineState.RMA))
    assert out_of_service(story) == {("rma", "BootFailed"): 1}

    story.heard(sample(MachineRepaired))

    assert story.shown(metrics.MACHINES) == {
        (*OFFERING, "free", ""): 1,
        (*OFFERING, "assigned", ""): 0,
    }


def problem(status: str, type: str = "GPUMissing") -> NodeConditionChanged:
    """A condition of the Node is reported."""
    return sample(NodeConditionChanged, machine=MACHINE, assignment=7, type=type, status=status)


def test_a_problem_is_a_failure_each_time_that_it_begins() -> None:
    story = with_node().heard(problem("True"), problem("True"), problem("False"), problem("True"))
    story.heard(problem("False", "Healthy"), problem("True", "FrequentKubeletRestart"))

    # when its Node is replaced for it
    replaced = deleted(RemovalReason.UNHEALTHY, triage=True, message="Node g1 is deleted: NotReady")
    story.heard(replaced)

    assert failures(story) == {("GPUMissing",): 2}
    assert out_of_service(story) == {("triage", "NotReady"): 1}


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("Node g1 is deleted: its reboot failed: the machine did not boot", "RebootFailed"),
        ("Node g1 is deleted: it was not verified within 120 minutes", "NotVerified"),
    ],
)
def test_what_fails_at_the_end_of_a_node_is_counted_then(text: str, cause: str) -> None:
    story = with_node().heard(deleted(RemovalReason.UNHEALTHY, triage=True, message=text))

    assert failures(story) == {(cause,): 1}
    assert out_of_service(story) == {("triage", cause): 1}


def test_a_machine_that_does_not_answer_is_a_failure_once() -> None:
    text = "Node g1 is deleted: its machine did not answer a drain in time and goes to triage"
    given_up = sample(CWNodePoolNodesRemoveError, node=MACHINE, message=text)

    story = with_node().heard(given_up, deleted(triage=True, message="Node g1 is deleted"))

    assert failures(story) == {("Unanswered",): 1}
    assert out_of_service(story) == {("triage", "Unanswered"): 1}


# Rules that always hold.


def of_two(**fields: str) -> Iterable[Hears]:
    """A second machine, and the Node that it becomes, both with these fields."""
    assigned = sample(CWNodeAssigned, node="g2", assignment=8, **fields)
    return sample(MachineAdded, machine="g2", **fields), assigned


def test_a_story_without_a_fault_breaks_no_rule() -> None:
    assert with_node().heard(deleted()).broken() == {}


@pytest.mark.parametrize(
    ("events", "rule"),
    [
        ([sample(CWNodeAssigned, assignment=9)], "MachineHeld"),
        ([sample(CWNodeAssigned, node="g404", assignment=9)], "MachineUnknown"),
        ([deleted(), sample(CWNodeAssigned)], "AssignmentNotNew"),
        ([deleted(), sample(CWNodeAssigned, assignment=9, uid="u9")], "NodePoolUnknown"),
        (of_two(), "GrantPassed"),
        ([sample(CWNodeRegistered)], "RegisteredTwice"),
        ([sample(CWNodeRegistered, assignment=6)], "NodeUnknown"),
        ([deleted(registered=False)], "CountsDisagree"),
        ([sample(CWNodeRegistrationFailed)], "CountsDisagree"),
        ([updated(NodePhase.BOOTING)], "PhaseOutOfOrder"),
        (
            [sample(CWNodePoolNodesRemoved, removal=RemovalReason.POOL_DELETED)],
            "NodePoolNotEmpty",
        ),
        (of_two(instance_type=A100), "MachineUnfit"),
        (of_two(zone="US-WEST-01A"), "MachineUnfit"),
        (
            [validated(spec=NodePoolSpec(instance_type=A100, target_nodes=1))],
            "InstanceTypeChanged",
        ),
        ([validated(uid="u9")], "NodePoolReplaced"),
        ([validated(generation=0)], "GenerationBackwards"),
        ([granted(9, 2)], "LimitPassed"),
    ],
)
def test_a_rule_that_is_broken_is_counted_with_its_position(
    events: Iterable[Hears], rule: str
) -> None:
    story = with_node().heard(*events)

    assert story.broken() == {(rule,): 1}
    assert story.shown(metrics.INVARIANT_LAST_POSITION) == {(rule,): story.position}


def test_a_node_that_has_not_joined_is_not_in_production() -> None:
    story = with_pool().heard(sample(CWNodeAssigned), updated(NodePhase.PRODUCTION))

    assert story.broken() == {("NodeUnregistered",): 1}


def test_what_cannot_have_happened_changes_no_count() -> None:
    story = with_node().heard(sample(CWNodeAssigned, assignment=9))

    assert story.shown(metrics.CURRENT_NODES) == {POOL: 1}
    assert story.shown(metrics.IN_PROGRESS_NODES) == {POOL: 0}


def test_a_limit_that_is_lowered_is_not_passed() -> None:
    story = with_node().heard(sample(QuotaSet, limit=0, granted=1, zone=ZONE))

    assert story.heard(granted(1, 1, Quota.OVER, limit=0)).broken() == {}


def test_a_grant_may_be_used_until_the_allocator_has_acknowledged_a_smaller_one() -> None:
    # given a NodePool that may have two Nodes, and then one
    story = with_pool(2).heard(granted(1, 1, number=2), sample(CWNodeAssigned))
    assert story.heard(*of_two()).broken() == {}

    # when it gets one more after the allocator has said that it knows
    story.heard(sample(GrantAcknowledged, number=2, granted=1, final=False))
    story.heard(sample(MachineAdded, machine="g3"))
    story.heard(sample(CWNodeAssigned, node="g3", assignment=9))

    assert story.broken() == {("GrantPassed",): 1}
