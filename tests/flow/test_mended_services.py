"""A service that fails on one input and is mended comes to the same end as one that never failed.

What follows from an input is computed from the state, so a later try does what the first did not.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, replace
from typing import Any

import pytest

from nodepool.contract.events import Wake
from nodepool.contract.messages import Event
from nodepool.service import AnyService, Context
from support.constants import A100, H100, INJECTED, PREFER_IDLE
from support.services import NAMES, services
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


@dataclass
class Failing:
    """A service of which one decision fails: that on the n-th input of a class.

    left: how many such inputs are still to come, the one that fails among them.
    """

    service: str
    input: str
    left: int

    def wrapped(self, service: AnyService) -> AnyService:
        """The service, which fails if it is the one."""
        reconciler = service.reconciler
        if service.name != self.service or reconciler is None:
            return service

        def decide(state: Any, message: Any, context: Context) -> Iterable[Any]:
            outputs = tuple(service.decide(state, message, context))
            self._counted(type(message).__name__)
            return outputs

        def reconcile(state: Any, key: Any, context: Context) -> Iterator[Any]:
            outputs = tuple(reconciler.reconcile(state, key, context))
            if outputs:
                self._counted(Wake.__name__)
            yield from outputs

        return replace(service, decide=decide, reconciler=replace(reconciler, reconcile=reconcile))

    def _counted(self, name: str) -> None:
        if name == self.input:
            self.left -= 1
            if not self.left:
                raise RuntimeError(INJECTED)


def inputs(service: str) -> Iterator[str]:
    """The classes of input on which a service fails; commands are refused, and sent again."""
    (found,) = services(service)
    for name, kind in found.inputs.items():
        if issubclass(kind, Event):
            yield name


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
    service: str, story: Callable[[WorldHarness], None]
) -> None:
    untroubled = WorldHarness()
    story(untroubled)
    expected = outcome(untroubled)

    different: dict[tuple[str, int], object] = {}
    for name in inputs(service):
        for number in NUMBERS:
            failing = Failing(service, name, number)
            world = WorldHarness(*(failing.wrapped(each) for each in services()))
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


def given_failing(service: str, name: str, number: int = 1) -> WorldHarness:
    """A world in which a service fails on the n-th input of a class."""
    failing = Failing(service, name, number)
    return WorldHarness(*(failing.wrapped(each) for each in services()))


def test_a_machine_whose_boot_could_not_be_processed_joins_a_minute_later() -> None:
    world = given_failing("lifecycle", "MachineBooted")
    world.given_data_center()

    world.apply("train", 1)
    before = world.node_counts("train")
    world.pass_time(minutes=1)

    assert (before, world.node_counts("train")) == ((1, 1, 0), (1, 0, 1))


def test_a_node_whose_idleness_could_not_be_published_still_leaves() -> None:
    # given a scale-down that waits for its only Node, and fails on the report that it is idle
    world = given_failing("lifecycle", "NodeObserved", 2)
    world.given_data_center()
    world.apply("train", 1)
    world.run_pod("n1")
    world.scale("train", 0)

    world.stop_pod("n1")
    before = world.node_counts("train")
    world.pass_time(minutes=1)

    assert (before, world.node_counts("train")) == ((0, 0, 1), (0, 0, 0))


def test_a_node_whose_removal_could_not_be_cancelled_at_once_is_kept() -> None:
    world = given_failing("lifecycle", "NodeRemovalCancelled")
    world.given_data_center()
    world.apply("train", 1, lifecycle=PREFER_IDLE)
    world.run_pod("n1")
    world.scale("train", 0)

    world.scale("train", 1)
    world.pass_time(minutes=1)
    world.stop_pod("n1")

    assert world.nodes("train") == ["n1"]
    assert world.node_conditions("n1")["CWNodeRemoval"].startswith("False")


def test_a_drain_that_could_not_be_forced_at_once_ends_after_all() -> None:
    # given a drain that a Pod blocks, and a deletion of the NodePool that fails on it
    world = given_failing("lifecycle", "CWNodeDeletionRequestSuccess", 2)
    world.given_data_center()
    world.apply("train", 1, lifecycle=PREFER_IDLE)
    world.run_pod("n1", graceS=30)
    world.scale("train", 0)

    world.delete("train")
    world.pass_time(minutes=2)

    assert world.node_pool("train") is None


def test_a_preempted_node_that_hangs_goes_although_its_end_failed_at_first() -> None:
    world = given_failing("lifecycle", "PreemptionOverdue")
    world.given_data_center()
    world.apply("cheap", 1, computeClass="spot")
    world.break_machines("n1", fault="hang")

    world.preempt("cheap", "n1")
    world.pass_time(minutes=8)

    assert world.nodes("cheap") == ["n2"]


@pytest.mark.parametrize("number", [1, 2])
def test_a_preemption_goes_on_although_one_of_its_stages_failed(number: int) -> None:
    world = given_failing("preemption", "Wake", number)
    world.given_data_center()
    world.apply("cheap", 1, computeClass="spot")
    world.run_pod("n1", graceS=900)
    world.start_recording()

    world.preempt("cheap", "n1")
    world.pass_time(minutes=10)

    assert [event for event in world.events("cheap") if event.endswith("n1")] == [
        "PreemptionPending n1",
        "PreemptionInProgress n1",
        "CWDrainNode n1",
        "CWNodeDeleted n1",
        "DeletedForPreemption n1",
    ]


def test_the_end_of_a_preemption_is_said_although_its_machine_is_used_again() -> None:
    world = given_failing("preemption", "CWNodeDeleted")
    world.given_data_center(machines=1)
    world.apply("cheap", 1, computeClass="spot")
    world.preempt("cheap", "n1")
    world.start_recording()

    world.pass_time(minutes=3)
    world.delete("cheap")

    assert [event for event in world.events("cheap") if event.startswith("DeletedFor")] == [
        "DeletedForPreemption n1"
    ]
    assert world.node_pool("cheap") is None


def test_a_deletion_that_could_not_be_ended_at_once_ends_a_minute_later() -> None:
    world = given_failing("validator", "CWNodePoolNodesRemoved")
    world.given_data_center()
    world.apply("train", 1)

    world.delete("train")
    before = world.conditions("train")["NodesRemoved"]
    world.pass_time(minutes=1)

    assert before == "Complete"
    assert world.node_pool("train") is None


def test_a_machine_that_failed_is_reported_although_the_report_failed_at_first() -> None:
    world = given_failing("allocator", "CWNodeRegistrationFailed")
    world.given_data_center(machines=2)
    world.break_machines("n1", fault="boot")

    world.apply("train", 1)
    world.pass_time(minutes=1)

    assert [event for event in world.events("train") if "DeliverFail" in event] == [
        "CWNodeDeliverFail n1"
    ]


def test_a_limit_is_given_back_although_the_name_of_its_pool_is_used_for_another_type() -> None:
    # given a NodePool that quota cannot release, while another one waits for that limit
    broken: set[str] = set()
    world = WorldHarness(*(failing_on(broken, each) for each in services()))
    world.given_data_center(machines=6, quota=2)
    world.given_machines(3, A100)
    world.given_quota(2, A100)
    world.apply("train", 2)
    world.apply("late", 2)
    broken.add("acme/prod/train")
    world.delete("train")
    # and a new one of the same name, for which another limit counts
    world.apply("train", 2, A100)
    # and a quota service that is mended
    broken.clear()
    world.pass_time(minutes=30)

    assert world.node_counts("late") == (2, 0, 2)
    assert world.node_counts("train") == (2, 0, 2)
    assert used(world) == {A100: 2, H100: 2}
    world.delete("late")
    world.delete("train")
    assert used(world) == {A100: 0, H100: 0}
    assert world.replay_differs() == []


def failing_on(broken: Set[str], service: AnyService) -> AnyService:
    """The quota service, which fails on what is about these NodePools; any other as it is."""
    reconciler = service.reconciler
    if service.name != "quota" or reconciler is None:
        return service

    def decide(state: Any, message: Any, context: Context) -> Iterable[Any]:
        assert getattr(message, "key", "") not in broken, INJECTED
        return service.decide(state, message, context)

    def reconcile(state: Any, key: Any, context: Context) -> Iterable[Any]:
        assert key not in broken, INJECTED
        return reconciler.reconcile(state, key, context)

    return replace(service, decide=decide, reconciler=replace(reconciler, reconcile=reconcile))


def used(world: WorldHarness) -> dict[str, int]:
    """How many Nodes of each instance type count against its limit."""
    return {
        str(item["instanceType"]): int(str(item["used"]))
        for item in world.documents("quotas").values()
    }


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
def test_autoscaling_that_fails_once_comes_to_the_same_end(service: str) -> None:
    assert autoscaled(WorldHarness()) == (3, 1)

    different: dict[tuple[str, int], object] = {}
    for name in (*inputs(service), Wake.__name__):
        for number in NUMBERS:
            world = given_failing(service, name, number)
            targets = autoscaled(world)
            if targets != (3, 1):
                different[name, number] = targets
            assert world.replay_differs() == []

    assert different == {}


def test_a_machine_that_could_not_report_its_boot_joins_a_minute_later() -> None:
    world = given_failing("fleet", "Wake")
    world.given_data_center(boot_s=60)

    world.apply("train", 1)
    world.pass_time(minutes=1)
    before = world.node_counts("train")
    world.pass_time(minutes=1)

    assert (before, world.node_counts("train")) == ((1, 1, 0), (1, 0, 1))


def test_a_pod_that_could_not_be_placed_runs_a_minute_later() -> None:
    world = given_failing("fleet", "Wake", 2)
    world.given_data_center()
    world.apply("train", 1)

    world.create_pod("train")
    before = world.pod_changes("train")
    world.pass_time(minutes=1)

    assert before == ["job Pending"]
    assert world.pod_changes("train") == ["job Pending", "job Running n1"]


@pytest.mark.parametrize("input", ["NodeUpdated", "CWDrainNode"])
def test_a_node_that_could_not_answer_a_cordon_or_a_drain_does_so_a_minute_later(
    input: str,
) -> None:
    world = given_failing("fleet", input)
    world.given_data_center()
    world.apply("train", 1, lifecycle=PREFER_IDLE)
    world.run_pod("n1", interruption="interruptable")

    world.scale("train", 0)
    before = world.node_counts("train")
    world.pass_time(minutes=1)

    assert (before, world.node_counts("train")) == ((0, 0, 1), (0, 0, 0))
