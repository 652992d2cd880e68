import math
from collections.abc import Generator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from nodepool.contract.commands import PreemptNode
from nodepool.contract.commands_spot import AcknowledgePreemption
from nodepool.contract.events import (
    CommandAccepted,
    CommandRefused,
    CWDrainNode,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodeDeletionRequestSuccess,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    DeletedForPreemption,
    NodeKept,
    NodePreempted,
    NodePreemptionRequested,
    NodePreemptionWithdrawn,
    PreemptionCause,
    PreemptionInProgress,
    PreemptionPending,
    Wake,
)
from nodepool.contract.keys import PoolKey, node_key
from nodepool.contract.messages import PoolFields, pool_fields
from nodepool.contract.metrics import (
    INVARIANT_LAST_POSITION,
    INVARIANT_VIOLATIONS,
    PREEMPTION_LATENESS,
    Histogram,
)
from nodepool.contract.model import COMPUTE_CLASS, ComputeClass, RemovalReason
from nodepool.contract.outcomes import CommandOutcome
from nodepool.engine.snapshot import dump, load
from nodepool.engine.world import World
from nodepool.service import Context, Reconciler
from preemption import Hears, Says
from preemption.decide import SERVICE
from preemption.figures import Figures
from preemption.state import State, evolve
from support.publishing import publish
from support.single import SingleService

NOON = datetime(2026, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)
TICK = timedelta(microseconds=1)
TWO, SEVEN = timedelta(minutes=2), timedelta(minutes=7)
ZONE = "US-EAST-04A"
CHEAP, OTHER = PoolKey("acme/prod/cheap"), PoolKey("acme/prod/other")


class Story(SingleService[State, Hears, Says]):
    """The preemption service from noon on; time passes only when a story says so."""

    def __init__(self) -> None:
        super().__init__(SERVICE, tick=timedelta())
        self.now = NOON

    def wakes(self, after: timedelta) -> list[Says | CommandOutcome]:
        """The outputs for one wake, so long after noon."""
        self.now = NOON + after
        return self.wake()

    def at(self, after: timedelta, message: Hears) -> list[Says | CommandOutcome]:
        """The outputs for a message that is stored so long after noon."""
        self.now = NOON + after
        return self.hears(message)


def a_spot_node(name: str = "g1") -> Story:
    """A story that begins with one spot Node."""
    story = Story()
    story.hears(registered(name))
    return story


def a_preemption() -> Story:
    """A story that begins with one spot Node, preempted at noon."""
    story = a_spot_node()
    story.hears(preempt())
    return story


def registered(
    name: str = "g1", assignment: int = 1, *, pool: PoolKey = CHEAP, spot: bool = True
) -> CWNodeRegistered:
    """A Node joins its NodePool."""
    return CWNodeRegistered(
        **pool_fields(pool),
        node=name,
        zone=ZONE,
        assignment=assignment,
        labels={COMPUTE_CLASS: "spot"} if spot else {},
        annotations={},
        taints=(),
        message="",
    )


class NodeFields(PoolFields):
    """The identity of a Node as the fields of a message about it."""

    node: str
    zone: str
    assignment: int


def of_node() -> NodeFields:
    """The identity of the Node `g1` in its first stay."""
    return {**pool_fields(CHEAP), "node": "g1", "zone": ZONE, "assignment": 1}


def assigned() -> CWNodeAssigned:
    """A machine becomes a spot Node, and boots."""
    return CWNodeAssigned(
        **of_node(), uid="u", instance_type="x", compute_class=ComputeClass.SPOT, message=""
    )


def requested(request: int = 1) -> CWNodeDeletionRequestSuccess:
    """The Node is to leave in a scale-down."""
    return CWNodeDeletionRequestSuccess(
        **of_node(),
        removal=RemovalReason.SCALE_DOWN,
        idle_only=True,
        request=request,
        message="",
    )


def kept(request: int = 1) -> NodeKept:
    """The Node stays after all."""
    return NodeKept(**of_node(), request=request, message="")


def deleted(
    name: str = "g1",
    assignment: int = 1,
    pool: PoolKey = CHEAP,
    removal: RemovalReason = RemovalReason.PREEMPTED,
    lost: int = 0,
) -> CWNodeDeleted:
    """A Node leaves its NodePool."""
    return CWNodeDeleted(
        **pool_fields(pool),
        node=name,
        zone=ZONE,
        assignment=assignment,
        registered=True,
        uid="u",
        removal=removal,
        lost=lost,
        message="",
    )


def drained(name: str = "g1", assignment: int = 1) -> CWDrainNode:
    """The drain of a Node begins."""
    fields = {**of_node(), "node": name, "assignment": assignment}
    return CWDrainNode.model_validate({**fields, "force": True, "message": ""})


def taken_back() -> NodePreemptionRequested:
    """The machine of the Node is wanted by others."""
    return NodePreemptionRequested(**of_node(), cause="Reclaimed")


def broken(_state: State, _on: object, _context: Context) -> Generator[Says, State, None]:
    """Raise ValueError, as a reconciler or a decision with a bug does."""
    raise ValueError


def preempt(name: str = "g1", pool: PoolKey = CHEAP) -> PreemptNode:
    """The command to take a Node back."""
    return PreemptNode(**pool_fields(pool), node=name)


PENDING = PreemptionPending(
    **pool_fields(CHEAP),
    node="g1",
    zone=ZONE,
    assignment=1,
    since=NOON,
    message="Reason: Preemption pending. Node g1 is cordoned and goes within 7 minutes",
)
IMMEDIATE = NodePreempted(**of_node())
GONE = DeletedForPreemption(
    **pool_fields(CHEAP),
    node="g1",
    message="Reason: Deleted for preemption. Node g1 left its NodePool",
)
GONE_TOO = DeletedForPreemption(
    **pool_fields(OTHER),
    node="g2",
    message="Reason: Deleted for preemption. Node g2 left its NodePool",
)


def in_progress(after: timedelta) -> PreemptionInProgress:
    """The drain begins so long after noon."""
    return PreemptionInProgress(
        **pool_fields(CHEAP),
        node="g1",
        zone=ZONE,
        assignment=1,
        evicted_at=NOON + after,
        message="Reason: Preemption in progress. Node g1 is being drained",
    )


def accepted(result: str) -> CommandAccepted:
    """The command was taken."""
    return CommandAccepted.model_validate(
        {**pool_fields(CHEAP), "command": "PreemptNode", "result": result}
    )


def refused(name: str, pool: PoolKey = CHEAP) -> CommandRefused:
    """The command names no spot Node of its NodePool."""
    return CommandRefused(
        **pool_fields(pool),
        command="PreemptNode",
        reason="NotFound",
        field="node",
        message=f"{name} is no spot Node of NodePool {pool.rpartition('/')[2]}",
    )


# Which Nodes can be preempted.


def test_a_spot_node_is_warned_at_once() -> None:
    story = a_spot_node()

    outputs = story.hears(preempt())

    assert outputs == [accepted("done"), PENDING]
    assert story.due == NOON + TWO


def test_a_node_that_is_preempted_already_is_not_warned_again() -> None:
    story = a_preemption()

    outputs = story.hears(preempt())

    assert outputs == [accepted("unchanged")]
    assert story.due == NOON + TWO


def test_a_repeated_command_has_its_outcome_and_no_second_warning() -> None:
    story = a_spot_node()
    story.hears(preempt(), id="mine")
    story.hears(deleted())
    story.hears(registered(assignment=2))

    assert story.hears(preempt(), id="mine") == [accepted("done")]
    assert story.due is None


def test_a_node_that_is_not_there_cannot_be_preempted() -> None:
    assert a_spot_node().hears(preempt("g2")) == [refused("g2")]


def test_a_node_of_another_nodepool_cannot_be_preempted() -> None:
    assert a_spot_node().hears(preempt("g1", OTHER)) == [refused("g1", OTHER)]


def test_a_node_of_another_cluster_cannot_be_preempted() -> None:
    elsewhere = PoolKey("acme/west/cheap")

    assert a_spot_node().hears(preempt("g1", elsewhere)) == [refused("g1", elsewhere)]


def test_a_node_that_is_no_spot_node_cannot_be_preempted() -> None:
    story = Story()
    story.hears(registered(spot=False))

    assert story.hears(preempt()) == [refused("g1")]


def test_a_node_that_left_its_nodepool_cannot_be_preempted() -> None:
    story = a_spot_node()

    assert story.hears(deleted()) == []
    assert story.hears(preempt()) == [refused("g1")]
    assert replace(story.state, figures=Figures()) == SERVICE.initial


def test_a_node_that_moved_belongs_to_its_new_nodepool() -> None:
    story = a_spot_node()
    story.hears(deleted())
    story.hears(registered(assignment=2, pool=OTHER))

    assert story.hears(preempt("g1", CHEAP)) == [refused("g1")]
    assert len(story.hears(preempt("g1", OTHER))) == 2


# The stages.


def test_the_drain_is_said_at_its_moment_and_once() -> None:
    story = a_preemption()

    outputs = [story.wakes(after) for after in (TWO - TICK, TWO, TWO, SEVEN - TICK, SEVEN, SEVEN)]

    assert outputs == [[], [in_progress(TWO)], [], [], [], []]
    assert story.due is None


def test_a_wake_before_its_moment_leaves_the_moment_as_it_was() -> None:
    story = a_preemption()

    story.wakes(TWO - TICK)

    assert story.due == NOON + TWO


def test_a_wake_that_is_late_says_the_drain_then_unless_the_time_is_over() -> None:
    drained = a_preemption()
    over = a_preemption()

    assert drained.wakes(SEVEN - TICK) == [in_progress(SEVEN - TICK)]
    assert drained.due is None
    assert over.wakes(SEVEN) == []
    assert over.due is None


def test_a_node_without_a_timetable_is_not_drained_by_one() -> None:
    story = a_spot_node()
    story.hears(requested())
    story.hears(preempt())

    assert [story.wakes(after) for after in (TWO, SEVEN)] == [[], []]


def test_a_preemption_that_is_acknowledged_before_its_warning_is_drained_after_it() -> None:
    # given a spot Node whose preemption is accepted, and not yet published
    story = a_spot_node()
    story.process(preempt())

    # when the preemption is acknowledged
    outcomes = story.process(AcknowledgePreemption(**pool_fields(CHEAP), node="g1"))

    # then the acknowledgement is accepted, and the drain follows the warning at once
    done = {"command": "AcknowledgePreemption", "result": "done"}
    assert outcomes == [CommandAccepted.model_validate({**pool_fields(CHEAP), **done})]
    assert story.wake_until_idle() == [PENDING, in_progress(timedelta())]


# What is counted of them.


def shown(story: Story) -> list[tuple[str, tuple[str, ...], float]]:
    """Every counter that is not 0: its name, its labels and its value."""
    return [
        (metric.name.removeprefix("nodepool_"), labels, value)
        for metric, labels, value in SERVICE.samples(story.state)
        if not isinstance(value, Histogram) and value
    ]


def lateness(story: Story) -> dict[str, tuple[dict[float, int], float]]:
    """By stage that there was: how many were late by how much at most, in seconds; and the sum."""
    bounds = (*PREEMPTION_LATENESS.buckets, math.inf)
    return {
        labels[0]: (
            {bound: count for bound, count in zip(bounds, value.counts, strict=True) if count},
            value.sum,
        )
        for metric, labels, value in SERVICE.samples(story.state)
        if isinstance(value, Histogram) and any(value.counts)
    }


def test_what_may_be_counted_is_shown_before_its_first_time() -> None:
    # given no preemption yet
    samples = SERVICE.samples(Story().state)

    # then each cause and each stage has its counters, and nothing is counted
    assert [(metric.name.removeprefix("nodepool_"), *labels) for metric, labels, _ in samples] == [
        ("preemptions_total", "Command"),
        ("preemptions_total", "DefaultPoolShort"),
        ("preemptions_total", "Reclaimed"),
        ("preemption_stages_total", "drain"),
        ("preemption_stages_total", "end"),
        ("preemption_late_stages_total", "drain"),
        ("preemption_late_stages_total", "end"),
        ("preemption_lateness_seconds", "drain"),
        ("preemption_lateness_seconds", "end"),
        ("preemption_lost_pods_total",),
        ("invariant_violations_total", "PreemptionStageEarly"),
    ]
    assert (shown(Story()), lateness(Story())) == ([], {})


def test_a_stage_is_as_late_as_the_lifecycle_service_took_it() -> None:
    # given a drain that is announced a second late, and begins two more seconds later
    story = a_preemption()
    story.wakes(TWO + timedelta(seconds=1))
    story.at(TWO + timedelta(seconds=3), drained())

    # when it ends half a second late, with three Pods
    story.at(SEVEN + timedelta(seconds=0.5), deleted(lost=3))

    assert shown(story) == [
        ("preemptions_total", ("Command",), 1),
        ("preemption_stages_total", ("drain",), 1),
        ("preemption_stages_total", ("end",), 1),
        ("preemption_late_stages_total", ("drain",), 1),
        ("preemption_lost_pods_total", (), 3),
    ]
    assert lateness(story) == {"drain": ({5: 1}, 3.0), "end": ({0.5: 1}, 0.5)}


def test_what_comes_before_its_moment_is_not_late() -> None:
    # given a drain that was asked for, and is said again because its NodePool is deleted
    story = a_preemption()
    story.hears(AcknowledgePreemption(**pool_fields(CHEAP), node="g1"))
    story.at(timedelta(seconds=1), drained())
    story.at(SEVEN, drained())

    # when the Node leaves before its time is over
    story.at(SEVEN - TICK, deleted())

    assert shown(story) == [
        ("preemptions_total", ("Command",), 1),
        ("preemption_stages_total", ("drain",), 1),
    ]
    assert lateness(story) == {"drain": ({0.1: 1}, 0.0)}


def test_a_drain_that_is_none_of_a_preemption_does_not_count() -> None:
    # given a spot Node that is drained as a problem asks for, then preempted and deleted early
    story = a_spot_node()
    story.hears(drained())
    story.hears(preempt())
    story.at(timedelta(seconds=1), drained())
    story.at(TWO, deleted())

    # when another one is drained without a timetable
    story.hears(registered("g2", 2))
    story.hears(drained("g2", 2))

    assert shown(story) == [("preemptions_total", ("Command",), 1)]


def test_preemptions_are_counted_by_what_they_began_for() -> None:
    # given three spot Nodes
    story = a_spot_node()
    story.hears(registered("g2", 2))
    story.hears(registered("g3", 3))

    # when each is preempted for another cause, one of them twice
    story.hears(preempt())
    story.hears(preempt())
    story.hears(to_give_way("g2", 2, "Reclaimed"))
    story.hears(to_give_way("g3", 3, "DefaultPoolShort"))

    assert shown(story) == [
        ("preemptions_total", ("Command",), 1),
        ("preemptions_total", ("DefaultPoolShort",), 1),
        ("preemptions_total", ("Reclaimed",), 1),
    ]


def test_a_preemption_that_gets_its_timetable_later_is_one() -> None:
    # given a Node that is preempted while it boots
    story = Story()
    story.hears(assigned())
    story.hears(preempt())

    # when it joins its cluster before its end
    story.hears(registered())

    assert shown(story) == [("preemptions_total", ("Command",), 1)]


def to_give_way(name: str, assignment: int, cause: PreemptionCause) -> NodePreemptionRequested:
    """A spot Node is to be taken back for this cause."""
    identity: NodeFields = {**of_node(), "node": name, "assignment": assignment}
    return NodePreemptionRequested(**identity, cause=cause)


def early(story: Story) -> list[tuple[str, tuple[str, ...], float]]:
    """The samples about rules that were broken."""
    return [item for item in shown(story) if item[0].startswith("invariant")]


def test_a_drain_before_its_moment_that_nothing_asked_for_breaks_a_rule() -> None:
    # given a preemption, and what a service with a fault would say of it
    story = a_preemption()
    event = PreemptionInProgress(**of_node(), evicted_at=NOON, message="")

    # when that comes a moment too soon
    state = evolve(story.state, event, Context(77, NOON + TWO - TICK))

    assert list(SERVICE.samples(state))[-2:] == [
        (INVARIANT_VIOLATIONS, ("PreemptionStageEarly",), 1),
        (INVARIANT_LAST_POSITION, ("PreemptionStageEarly",), 77),
    ]


def test_pods_that_are_lost_before_the_time_is_over_break_a_rule() -> None:
    story = a_preemption()

    story.at(SEVEN - TICK, deleted(lost=1))

    assert early(story) == [
        ("invariant_violations_total", ("PreemptionStageEarly",), 1),
        ("invariant_violation_last_position", ("PreemptionStageEarly",), story.position),
    ]


def test_a_drain_that_a_command_asked_for_breaks_no_rule() -> None:
    story = a_preemption()

    story.hears(AcknowledgePreemption(**pool_fields(CHEAP), node="g1"))

    assert early(story) == []


# Many at once.


@pytest.mark.parametrize("reached", [[], [TWO]])
def test_a_preemption_ends_when_its_node_is_gone(reached: list[timedelta]) -> None:
    story = a_preemption()
    for after in reached:
        story.wakes(after)

    outputs = story.hears(deleted())

    assert outputs == [GONE]
    assert replace(story.state, figures=Figures()) == SERVICE.initial
    assert story.wakes(SEVEN + SEVEN) == []


def test_the_end_of_an_earlier_stay_does_not_end_a_preemption() -> None:
    story = a_spot_node()
    story.hears(deleted())
    story.hears(registered(assignment=2))
    story.hears(preempt())

    assert story.hears(deleted(assignment=1)) == []
    assert story.due == NOON + TWO


def test_a_wake_takes_many_nodes_and_the_next_one_the_others() -> None:
    story = Story()
    for number in range(750):
        story.hears(registered(f"g{number}"))
        story.hears(preempt(f"g{number}"))

    outputs = [story.wakes(TWO) for _ in range(3)]

    assert [len(messages) for messages in outputs] == [400, 350, 0]
    assert story.due is None


def test_750_preemptions_at_once_are_all_on_time() -> None:
    world = World([SERVICE])
    for number in range(750):
        publish(world, registered(f"g{number}"))
    for number in range(750):
        world.send(preempt(f"g{number}"))

    world.pass_time(timedelta(minutes=8))

    assert len(world.messages(PreemptionPending)) == 750
    late = delays(world)
    assert len(late) == 750
    assert min(late) >= timedelta(0)
    assert max(late) <= timedelta(seconds=1)
    assert world.replay_differs() == []


def delays(world: World) -> list[timedelta]:
    """How late each drain is announced, which is due two minutes after the warning of its Node."""
    since = {
        warning.node: warning.since
        for warning in world.messages(PreemptionPending)
        if isinstance(warning, PreemptionPending)
    }
    return [
        envelope.time - since[envelope.data.node] - TWO
        for envelope in world.envelopes(PreemptionInProgress)
        if isinstance(envelope.data, PreemptionInProgress) and envelope.time
    ]


# Nodes that go without a timetable.


def test_a_booting_spot_node_goes_without_a_timetable() -> None:
    story = Story()
    story.hears(assigned())

    outputs = story.hears(preempt())
    gone = story.hears(deleted())

    assert outputs == [accepted("done"), IMMEDIATE]
    assert gone == []
    assert replace(story.state, figures=Figures()) == SERVICE.initial


def test_a_node_that_leaves_already_goes_without_a_timetable() -> None:
    story = a_spot_node()
    story.hears(requested())

    outputs = story.hears(preempt())
    again = story.hears(preempt())
    gone = story.hears(deleted(removal=RemovalReason.PREEMPTED))

    assert outputs == [accepted("done"), IMMEDIATE]
    assert again == [accepted("unchanged")]
    assert gone == []


def test_a_node_that_joins_just_when_it_is_preempted_has_its_whole_timetable() -> None:
    story = Story()
    story.hears(assigned())
    story.hears(preempt())

    outputs = story.hears(registered())

    assert outputs == [PENDING]
    assert story.due == NOON + TWO


def test_a_node_that_is_kept_just_when_it_is_preempted_has_its_whole_timetable() -> None:
    story = a_spot_node()
    story.hears(requested())
    story.hears(preempt())

    outputs = story.hears(kept())
    gone = story.hears(deleted(removal=RemovalReason.PREEMPTED))

    assert outputs == [PENDING]
    assert gone == [GONE]


def test_a_node_that_was_kept_and_is_to_leave_again_goes_without_a_timetable() -> None:
    story = a_spot_node()
    story.hears(requested(request=1))
    story.hears(requested(request=2))
    story.hears(preempt())

    assert story.hears(kept(request=1)) == []


def test_a_node_that_a_scale_down_has_deleted_is_not_said_to_be_preempted() -> None:
    story = a_preemption()

    outputs = story.hears(deleted(removal=RemovalReason.SCALE_DOWN))

    assert outputs == []
    assert replace(story.state, figures=Figures()) == SERVICE.initial


def test_a_requested_preemption_that_is_tried_again_survives_what_happens_until_then() -> None:
    # given a preemption that was requested, and could not begin
    story = a_spot_node()
    story.service = replace(SERVICE, reconciler=Reconciler(broken))
    story.process(taken_back())
    failure = story.failure_of(Wake(service="preemption", due=NOON))
    story.service = SERVICE

    # when the Node is to leave for a scale-down as well, and is kept, before the next try
    story.hears(requested())
    story.hears(kept())
    retry = story.due
    (begun,) = story.wakes(timedelta(minutes=1))

    assert failure is not None
    assert retry == NOON + timedelta(minutes=1)
    assert isinstance(begun, PreemptionPending)
    assert story.due == story.now + TWO


def test_a_request_that_is_taken_back_before_it_is_tried_again_leaves_no_failure() -> None:
    # given a preemption that was requested, and could not begin
    story = a_spot_node()
    before = story.state
    story.service = replace(SERVICE, reconciler=Reconciler(broken))
    story.process(taken_back())
    story.failure_of(Wake(service="preemption", due=NOON))
    story.service = SERVICE

    # when the request is taken back, and made again
    story.hears(NodePreemptionWithdrawn(**of_node()))
    withdrawn = story.state
    begun = story.hears(taken_back())

    # then it is as if nothing had been asked, and the preemption begins at once
    assert withdrawn == before
    assert [type(event) for event in begun] == [PreemptionPending]


def test_a_stage_that_fails_after_another_was_tried_again_has_its_own_first_delay() -> None:
    # given a preemption that could not begin at first
    story = a_spot_node()
    story.service = replace(SERVICE, reconciler=Reconciler(broken))
    story.process(taken_back())
    story.failure_of(Wake(service="preemption", due=NOON))
    story.service = SERVICE
    story.wakes(timedelta(minutes=1))

    # when its drain cannot be said either
    story.service = replace(SERVICE, reconciler=Reconciler(broken))
    story.now += TWO
    story.failure_of(Wake(service="preemption", due=story.now))

    assert story.due == story.now + timedelta(minutes=1)


def test_each_end_that_could_not_be_said_is_said_at_the_next_try() -> None:
    # given preempted Nodes of two NodePools, whose ends could not be said
    story = a_preemption()
    story.hears(registered("g2", 2, pool=OTHER), preempt("g2", OTHER))
    story.service = replace(SERVICE, decide=broken)
    failures = [story.failure_of(deleted()), story.failure_of(deleted("g2", 2, OTHER))]
    story.service = SERVICE

    # when the time of the next try has come
    outputs = story.wakes(timedelta(minutes=1))

    assert None not in failures
    assert outputs == [GONE, GONE_TOO]
    assert replace(story.state, figures=Figures()) == SERVICE.initial


def test_a_spot_node_that_never_joins_is_forgotten() -> None:
    story = Story()
    story.hears(assigned())
    story.hears(preempt())

    outputs = story.hears(CWNodeRegistrationFailed(**of_node(), uid="u", message="it did not join"))

    assert outputs == []
    assert replace(story.state, figures=Figures()) == SERVICE.initial


# Snapshots.


def test_the_state_comes_back_from_a_snapshot_as_it_was() -> None:
    story = a_preemption()
    story.hears(registered("g2"))
    story.hears(preempt("g2"))
    story.wakes(TWO)

    assert node_key("acme", "prod", "g2") in story.state.nodes
    assert load(State, dump(story.folded)) == story.folded
