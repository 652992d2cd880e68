"""A spot Node that was asked to give way, and was not warned yet, stays if nobody needs it."""

from collections.abc import Callable

import pytest

from support.constants import PREFER_IDLE
from support.world_harness import WorldHarness

Act = Callable[[WorldHarness], object]


def given_spot(world: WorldHarness, nodes: int = 3) -> None:
    """A spot NodePool holds all machines, and work runs on its Nodes; recording starts."""
    world.given_data_center(machines=nodes, quota=20)
    world.apply("cheap", nodes, computeClass="spot")
    for number in range(1, nodes + 1):
        world.run_pod(f"n{number}")
    world.start_recording()


def warned(world: WorldHarness) -> list[str]:
    """The warnings of the Nodes of the spot NodePool."""
    return [line for line in world.events("cheap") if line.startswith("PreemptionPending")]


def taken_back(world: WorldHarness) -> list[str]:
    """The requests that were taken back."""
    return [line for line in world.messages("cheap") if line.startswith("NodePreemptionWithdrawn")]


@pytest.mark.parametrize(
    "act",
    [
        lambda world: world.delete("train"),
        lambda world: world.scale("train", 0),
        lambda world: world.given_machines(2),
    ],
    ids=["deleted", "scaled down", "machines added"],
)
def test_no_spot_node_is_preempted_once_no_pool_needs_it(world: WorldHarness, act: Act) -> None:
    given_spot(world)

    # when the need of a default pool ends while the preemption service is away
    with world.paused("preemption"):
        world.apply("train", 2)
        world.pass_time(minutes=2)
        act(world)
    world.pass_time(minutes=12)

    # then no work was disturbed
    assert world.events("cheap") == []
    assert taken_back(world) == ["NodePreemptionWithdrawn n2", "NodePreemptionWithdrawn n1"]


def test_no_spot_node_is_preempted_once_the_operator_returns_the_machines(
    world: WorldHarness,
) -> None:
    given_spot(world)

    with world.paused("preemption"):
        world.reclaim(2)
        world.pass_time(minutes=2)
        world.give_back(2)
    world.pass_time(minutes=12)

    assert world.events("cheap") == []


def test_only_as_many_requests_are_taken_back_as_nobody_needs(world: WorldHarness) -> None:
    given_spot(world)

    # when a default pool that lacked two Nodes lacks only one of them
    with world.paused("preemption"):
        world.apply("train", 2)
        world.pass_time(minutes=2)
        world.scale("train", 1)
    world.pass_time(minutes=12)

    # then the Node that is the first to give way goes
    assert warned(world) == ["PreemptionPending n1"]
    assert world.nodes("train") == ["n1"]


def test_a_request_that_was_taken_back_can_be_made_again(world: WorldHarness) -> None:
    given_spot(world)

    with world.paused("preemption"):
        world.apply("train", 1)
        world.pass_time(minutes=1)
        world.scale("train", 0)
        world.pass_time(minutes=1)
        world.scale("train", 1)
    world.pass_time(minutes=12)

    assert taken_back(world) == ["NodePreemptionWithdrawn n1"]
    assert warned(world) == ["PreemptionPending n1"]
    assert world.nodes("train") == ["n1"]


def test_a_warning_is_not_taken_back(world: WorldHarness) -> None:
    given_spot(world)

    # when the need ends after the Node was warned, in the order of the log
    world.apply("train", 1)
    world.delete("train")
    world.pass_time(minutes=12)

    assert world.events("cheap")[:3] == [
        "PreemptionPending n1",
        "PreemptionInProgress n1",
        "CWDrainNode n1",
    ]


def test_a_command_that_preempts_the_node_is_followed_all_the_same(world: WorldHarness) -> None:
    given_spot(world)

    with world.paused("preemption"):
        world.apply("train", 1)
        world.preempt("cheap", "n1")
        world.delete("train")
    world.pass_time(minutes=12)

    assert taken_back(world) == ["NodePreemptionWithdrawn n1"]
    assert warned(world) == ["PreemptionPending n1"]


def test_a_machine_that_comes_anyway_takes_a_request_back(world: WorldHarness) -> None:
    # given a default pool whose Pod may take some minutes to end
    world.given_data_center(machines=3, quota=20)
    world.apply("old", 1, lifecycle=PREFER_IDLE)
    world.run_pod("n1", interruption="graceful", graceS=300)
    world.apply("cheap", 2, computeClass="spot")
    world.run_pod("n2")
    world.run_pod("n3")
    world.start_recording()

    # when its Node begins to leave while a spot Node is asked to give way to another pool
    with world.paused("preemption"):
        world.apply("train", 1)
        world.pass_time(minutes=1)
        world.scale("old", 0)
        world.pass_time(minutes=1)
    world.pass_time(minutes=12)

    assert warned(world) == []
    assert world.nodes("train") == ["n1"]


def test_the_organisation_whose_node_was_asked_first_gives_it_up(world: WorldHarness) -> None:
    # given a newest Node that a priority spares: an older Node of its organisation goes
    world.given_data_center(machines=3, quota=20)
    world.given_cluster("main", org="beta")
    world.given_quota(10, org="beta")
    world.apply("cheap", 1, computeClass="spot")
    world.apply("beta/main/other", 1, computeClass="spot")
    world.apply("dear", 1, computeClass="spot", schedulingPriority={"value": 5})
    world.start_recording()

    # when a Node of each organisation is asked, and then only one Node is needed
    with world.paused("preemption"):
        world.apply("train", 2)
        world.pass_time(minutes=2)
        world.scale("train", 1)
    world.pass_time(minutes=12)

    # then the organisation with the newest Node gives up a Node, as for one Node from the start
    assert warned(world) == ["PreemptionPending n1"]
    assert world.events("beta/main/other") == []


def test_a_scale_down_goes_on_with_a_node_that_stays_after_all(world: WorldHarness) -> None:
    # given a spot NodePool that needs no scale-down, since one of its Nodes is to give way
    world.given_data_center(machines=3, quota=20)
    world.apply("cheap", 3, computeClass="spot")
    world.start_recording()
    with world.paused("preemption"):
        world.apply("train", 1)
        world.scale("cheap", 2)
        world.pass_time(minutes=2)

        # when the need for that Node ends
        world.delete("train")
    world.pass_time(minutes=12)

    assert len(taken_back(world)) == 1
    assert warned(world) == []
    assert world.node_counts("cheap") == (2, 0, 2)
    assert world.conditions("cheap")["AtTarget"] == "TargetMet"


def test_a_node_that_waits_for_its_pods_waits_for_them_again(world: WorldHarness) -> None:
    # given a scale-down that waits for the Pods of a spot Node, which is the first to give way
    world.given_data_center(machines=2, quota=20)
    world.apply("cheap", 2, computeClass="spot", lifecycle=PREFER_IDLE)
    world.run_pod("n1")
    world.run_pod("n2")
    world.scale("cheap", 1)
    world.start_recording()

    # when it is asked, and then nobody needs it
    with world.paused("preemption"):
        world.apply("train", 1)
        world.pass_time(minutes=2)
        world.delete("train")
    world.pass_time(minutes=12)

    # then the scale-down waits for its Pods as before
    assert world.events("cheap") == []
    assert taken_back(world) == ["NodePreemptionWithdrawn n1"]
    world.stop_pod("n1")
    assert world.node_counts("cheap") == (1, 0, 1)
    assert world.nodes("cheap") == ["n2"]


def test_a_node_whose_machine_goes_to_triage_is_not_preempted_for_nothing(
    world: WorldHarness,
) -> None:
    given_spot(world)

    # when the machine of the Node that was asked breaks before it is warned
    with world.paused("preemption"):
        world.apply("train", 1)
        world.pass_time(minutes=1)
        world.break_machines("n1", fault="gpu-lost")
        world.pass_time(minutes=1)
    world.pass_time(minutes=12)

    # then another Node gives way in its place, and its own work goes on
    assert warned(world) == ["PreemptionPending n2"]
    assert world.nodes("train") == ["n2"]
    assert "n1" in world.nodes("cheap")


@pytest.mark.parametrize("is_asked_first", [True, False], ids=["asked first", "deleted first"])
def test_a_node_that_leaves_with_its_nodepool_keeps_its_time_once_nobody_needs_it(
    world: WorldHarness, is_asked_first: bool
) -> None:
    # given a spot Node whose Pod may take longer to end than a preemption
    world.given_data_center(machines=1, quota=20)
    world.apply("cheap", 1, computeClass="spot")
    world.run_pod("n1", interruption="graceful", graceS=1200)
    world.start_recording()

    # when its NodePool is deleted, and a default pool needs the machine only for a while
    with world.paused("preemption"):
        if is_asked_first:
            world.apply("train", 1)
            world.delete("cheap")
        else:
            world.delete("cheap")
            world.apply("train", 1)
        world.pass_time(minutes=1)
        world.delete("train")
        world.pass_time(minutes=1)
    world.pass_time(minutes=25)

    # then its Pod has the whole time to end
    assert taken_back(world) == ["NodePreemptionWithdrawn n1"]
    assert [line for line in world.timed_events("cheap") if "NodeDeleted" in line] == [
        "20:00 CWNodeDeleted n1"
    ]


def given_long_drain(world: WorldHarness, *blockers: str) -> None:
    """A default pool gives up a Node whose Pod may take 15 minutes to end; a spot Node is there.

    blockers: the Pods for which the drain waits besides.
    """
    world.given_data_center(machines=2, quota=20)
    world.apply("old", 1, lifecycle=PREFER_IDLE)
    world.run_pod("n1", interruption="graceful", graceS=900)
    for pod in blockers:
        world.run_pod("n1", pod)
    world.apply("cheap", 1, computeClass="spot")
    world.run_pod("n2")
    world.start_recording()
    world.scale("old", 0)


@pytest.mark.parametrize("asked_after", [1, 7], ids=["long before", "just before"])
def test_a_request_is_taken_back_once_the_end_of_a_long_drain_is_near(
    world: WorldHarness, asked_after: int
) -> None:
    given_long_drain(world)

    # when a spot Node is asked while the drain may go on for longer than a preemption
    with world.paused("preemption"):
        world.pass_time(minutes=asked_after)
        world.apply("train", 1)
        world.pass_time(seconds=10)

        # and another NodePool, for which nothing is left either, comes and goes
        world.apply("other", 1)
        world.delete("other")
        assert taken_back(world) == []

        # then it is taken back once a preemption would bring no machine sooner
        world.pass_time(minutes=8 - asked_after)
        assert taken_back(world) == ["NodePreemptionWithdrawn n2"]
    world.pass_time(minutes=7)
    assert world.events("cheap") == []
    assert world.nodes("train") == ["n1"]


def test_a_drain_that_no_pod_blocks_any_more_takes_a_request_back(world: WorldHarness) -> None:
    given_long_drain(world, "blocker")
    with world.paused("preemption"):
        world.pass_time(minutes=9)
        world.apply("train", 1)
        world.pass_time(minutes=1)

        # when the Pod that blocked the drain ends
        world.stop_pod("n1", "blocker")
        world.pass_time(minutes=1)

        # then the other Pod ends no later than a preemption would
        assert taken_back(world) == ["NodePreemptionWithdrawn n2"]
    world.pass_time(minutes=5)
    assert world.nodes("train") == ["n1"]
