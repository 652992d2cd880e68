"""A spot Node that was asked to give way, and was not warned yet, stays if nobody needs it."""

from collections.abc import Callable

import pytest

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
    return [line for line in world.messages("cheap") if line.startswith("NodeRemovalCancelled")]


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
    assert taken_back(world) == ["NodeRemovalCancelled n1", "NodeRemovalCancelled n2"]


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

    assert warned(world) == ["PreemptionPending n1"]


def test_a_machine_that_comes_anyway_takes_a_request_back(world: WorldHarness) -> None:
    # given a default pool that can be scaled down
    world.given_data_center(machines=3, quota=20)
    world.apply("old", 1)
    world.apply("cheap", 2, computeClass="spot")
    world.run_pod("n2")
    world.run_pod("n3")
    world.start_recording()

    # when its Node leaves while a spot Node was asked to give way to another pool
    with world.paused("preemption"):
        world.apply("train", 1)
        world.pass_time(minutes=1)
        world.scale("old", 0)
        world.pass_time(minutes=1)
    world.pass_time(minutes=12)

    assert warned(world) == []
    assert world.nodes("train") == ["n1"]
