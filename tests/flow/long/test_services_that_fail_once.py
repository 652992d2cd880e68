"""A service that fails on any one input comes to the same end as one that never failed.

What follows from an input is computed from the state, so a later try does what the first did not.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from nodepool.contract.events import Wake
from support.constants import A100, PREFER_IDLE
from support.failing import Failing, given_failing, inputs
from support.services import NAMES
from support.world_harness import WorldHarness

FAILING = tuple(name for name in NAMES if name != "aggregator")
"""The services that decide."""
NUMBERS = (1, 4)
"""Which inputs of each class a service fails on, one in each run of a story."""

ONCE = (
    "CWNodeDeliverFail",
    "CWNodePoolCreated",
    "CWNodePoolDeleted",
    "CWNodePoolNodesRemoved",
    "DeletedForPreemption",
    "PreemptionPending",
)
"""What has to be said in a story as often as if nothing had failed."""


@pytest.fixture
def numbers(request: pytest.FixtureRequest) -> Sequence[int]:
    """Those inputs; in the short form of the long tests, the first of each class alone."""
    return NUMBERS[:1] if request.config.getoption("--short") else NUMBERS


def given_pools(world: WorldHarness) -> None:
    """A NodePool with machines of which one did not boot, one of spot Nodes, and one that waits."""
    world.given_data_center(machines=12, quota=8)
    world.given_machines(3, A100)
    world.given_quota(2, A100)
    world.break_machines("n1", fault="boot")
    for name, target, spec in (
        ("train", 3, {"lifecycle": PREFER_IDLE}),
        ("serve", 3, {}),
        ("cheap", 2, {"computeClass": "spot"}),
        ("late", 2, {}),
    ):
        world.apply(name, target, **spec)
        world.pass_time(minutes=5)


def scaled_down(world: WorldHarness) -> None:
    """Nodes become idle one by one; a removal that a Pod blocks is taken back, another one not."""
    given_pools(world)
    for pool in ("train", "serve"):
        for node in world.nodes(pool):
            world.run_pod(node)
            world.pass_time(minutes=5)
    world.scale("serve", 1)
    world.pass_time(minutes=5)
    for node in world.nodes("serve")[:2]:
        world.stop_pod(node)
        world.pass_time(minutes=5)
    for target in (1, 2):
        world.scale("train", target)
        world.pass_time(minutes=5)
    for node in world.nodes("train"):
        world.stop_pod(node)
        world.pass_time(minutes=5)


def preempted(world: WorldHarness) -> None:
    """Spot Nodes go: one that drains late, one whose machine hangs, one that is leaving already."""
    given_pools(world)
    first, second = world.nodes("cheap")
    world.run_pod(first, graceS=900)
    world.pass_time(minutes=5)
    world.break_machines(second, fault="hang")
    for node in (first, second):
        world.preempt("cheap", node)
    world.pass_time(minutes=15)
    world.run_pod(world.nodes("cheap")[0], graceS=60)
    world.pass_time(minutes=5)
    world.delete("cheap")
    world.pass_time(minutes=15)


def deleted(world: WorldHarness) -> None:
    """NodePools with Pods and with a machine that hangs are deleted, and a name is used again."""
    given_pools(world)
    world.run_pod(world.nodes("train")[0], graceS=60)
    world.pass_time(minutes=5)
    world.break_machines(world.nodes("serve")[0], fault="hang")
    for pool in ("train", "serve"):
        world.delete(pool)
        world.pass_time(minutes=50)
    world.apply("train", 2, A100)
    world.pass_time(minutes=5)


STORIES: tuple[Callable[[WorldHarness], None], ...] = (scaled_down, preempted, deleted)


def outcome(world: WorldHarness) -> dict[str, object]:
    """What a world comes to: its objects, what was said once, and the failures still known."""
    said: Counter[str] = Counter()
    for pool in ("train", "serve", "cheap", "late"):
        for event in world.events(pool):
            name = event.split()[0]
            said[f"{pool} {name}"] += name in ONCE
    return {
        "pools": {
            name: (*world.node_counts(name), world.conditions(name))
            for name in (key.rpartition("/")[2] for key in world.documents("nodepools"))
        },
        "active": Counter(
            world.node_conditions(node)["CWActive"].split()[0] for node in world.nodes()
        ),
        "machines": {
            key: (item["free"], item["assigned"], item["triage"])
            for key, item in world.documents("capacity").items()
        },
        "used": {key: item["used"] for key, item in world.documents("quotas").items()},
        "said": +said,
        "spot": len(world.world.state("preemption").nodes),  # type: ignore[attr-defined]  # Its state.
        "failing": {
            name: list(world.world.state(name).work.failures)  # type: ignore[attr-defined]  # Each has one.
            for name in FAILING
        },
    }


@pytest.mark.parametrize("service", FAILING)
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_service_that_fails_once_comes_to_the_same_end(
    service: str, story: Callable[[WorldHarness], None], numbers: Sequence[int]
) -> None:
    untroubled = WorldHarness()
    story(untroubled)
    expected = outcome(untroubled)

    different: dict[tuple[str, int], object] = {}
    for name in inputs(service):
        for number in numbers:
            failing = Failing(service, name, number)
            world = failing.world()
            story(world)
            if failing.left > 0:
                break
            world.pass_time(minutes=30)
            found = outcome(world)
            if found != expected:
                different[name, number] = {
                    key: found[key] for key in found if found[key] != expected[key]
                }
        assert world.replay_differs() == []

    assert different == {}


def autoscaled(world: WorldHarness) -> tuple[int, ...]:
    """The targets that a NodePool has while Pods come and go, some minutes after each change."""
    targets: list[int] = []
    world.given_data_center(machines=8)
    world.apply("train", 0, autoscaling=True, minNodes=0, maxNodes=4)
    for name in ("a", "b", "c"):
        world.create_pod("train", name, gpus=8)
    world.pass_time(minutes=20)
    targets.append(world.node_counts("train").target)
    for name in ("a", "b"):
        world.delete_pod("train", name)
    world.pass_time(minutes=30)
    targets.append(world.node_counts("train").target)
    return tuple(targets)


@pytest.mark.parametrize("service", ["autoscaler", "validator"])
def test_autoscaling_that_fails_once_comes_to_the_same_end(
    service: str, numbers: Sequence[int]
) -> None:
    assert autoscaled(WorldHarness()) == (3, 1)

    different: dict[tuple[str, int], object] = {}
    for name in (*inputs(service), Wake.__name__):
        for number in numbers:
            world = given_failing(service, name, number)
            targets = autoscaled(world)
            if targets != (3, 1):
                different[name, number] = targets
            assert world.replay_differs() == []

    assert different == {}
