"""A thousand Nodes in one NodePool: no service says more at once than one commit can hold."""

from collections import Counter
from collections.abc import Iterator

import pytest

from nodepool.contract.log import MESSAGE_BYTES_MAX
from nodepool.engine.bounds import BYTES_MAX, OUTPUTS_MAX
from support.constants import H100, PREFER_IDLE, ZONE
from support.world_harness import WorldHarness

NODES = 1_000
WAITING = tuple(f"small-{number}" for number in range(480))
"""NodePools whose verdicts and warnings are more than one commit can hold."""
# A machine that is busy with other work may take several times as long as an idle one.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def world() -> Iterator[WorldHarness]:
    """Services that, whatever a story does, stay within the bound and lose nothing."""
    stage = WorldHarness()
    yield stage
    outputs = Counter((envelope.source, envelope.causeposition) for envelope in stage.envelopes())
    assert max(outputs.values()) <= OUTPUTS_MAX
    assert stage.dead_letters() == []
    assert stage.replay_differs() == []


def names(world: WorldHarness, pool: str) -> Counter[str]:
    """How often each event of a NodePool was published since the story began."""
    return Counter(line.split()[0] for line in world.messages(pool))


def test_fleet_lifecycle_and_aggregator_follow_a_thousand_nodes_that_boot_at_one_moment(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=NODES, quota=NODES, boot_s=60)
    world.apply("train", NODES)
    before = world.node_counts("train")

    world.pass_time(seconds=61)
    booted = world.node_counts("train"), len(world.nodes("train"))
    world.start_recording()
    world.apply("train", NODES, nodeLabels={"team": "blue"})

    assert before == (NODES, NODES, 0)
    assert booted == ((NODES, 0, NODES), NODES)
    published = names(world, "train")
    assert (published["NodeUpdated"], published["CWNodePoolMetadata"]) == (NODES, 1)
    metadata = {str(document["metadata"]) for document in world.documents("nodes").values()}
    assert all("'team': 'blue'" in text for text in metadata)


def test_allocator_takes_back_a_thousand_removals_at_once(world: WorldHarness) -> None:
    world.given_data_center(machines=NODES, quota=NODES)
    world.apply("train", NODES, lifecycle=PREFER_IDLE)
    world.start_recording()

    with world.paused("lifecycle"):
        world.scale("train", 0)
        requested = names(world, "train")["CWNodeDeletionRequestSuccess"]
        world.scale("train", NODES)
        cancelled = names(world, "train")["NodeRemovalCancelled"]

    assert (requested, cancelled) == (NODES, NODES)
    assert world.node_counts("train") == (NODES, 0, NODES)
    assert world.conditions("train")["AtTarget"] == "TargetMet"
    assert names(world, "train")["CWNodeDeleted"] == 0


def test_validator_says_one_verdict_and_allocator_removes_a_thousand_nodes(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=NODES, quota=NODES)
    world.apply("train", NODES)
    world.start_recording()

    world.scale("train", 0)

    assert names(world, "train")["NodePoolValidated"] == 1
    assert names(world, "train")["CWNodeDeleted"] == NODES
    assert world.node_counts("train") == (0, 0, 0)


def test_allocator_empties_a_deleted_pool_whose_scale_down_is_under_way(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=NODES, quota=NODES)
    world.apply("train", NODES, lifecycle=PREFER_IDLE)
    world.start_recording()

    with world.sent_together():
        world.scale("train", 50)
        world.delete("train")

    assert world.node_pool("train") is None
    assert names(world, "train")["CWNodeDeleted"] == NODES
    machines = world.document("capacity", f"{ZONE}/{H100}") or {}
    counts = {state: machines[state] for state in ("free", "assigned", "triage")}
    assert counts == {"free": NODES, "assigned": 0, "triage": 0}


def test_quota_and_capacity_tell_480_waiting_pools_when_a_thousand_nodes_go(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=NODES, quota=NODES)
    world.apply("train", NODES)
    with world.sent_together():
        for pool in WAITING:
            world.apply(pool, 2)
    assert {world.conditions(pool)["Quota"] for pool in WAITING} == {"Over"}

    world.delete("train")

    assert {world.conditions(pool)["Quota"] for pool in WAITING} == {"Under"}
    assert {world.conditions(pool)["Capacity"] for pool in WAITING} == {"Sufficient"}
    assert {world.node_counts(pool) for pool in WAITING} == {(2, 0, 2)}


def test_capacity_warns_480_pools_for_which_a_thousand_nodes_leave_nothing(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=NODES, quota=3 * NODES)
    with world.paused("allocator"):
        with world.sent_together():
            for pool in WAITING:
                world.apply(pool, 2)
        assert {world.conditions(pool)["Capacity"] for pool in WAITING} == {"Sufficient"}

        world.apply("train", NODES, schedulingPriority={"value": 9})

        assert {world.conditions(pool)["Capacity"] for pool in WAITING} == {"NoneAvailable"}
        assert all(names(world, pool)["CWInsufficientCapacity"] == 1 for pool in WAITING)


def test_preemption_keeps_its_timetable_for_a_thousand_nodes_at_once(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=NODES, quota=NODES)
    world.apply("cheap", NODES, computeClass="spot")
    world.start_recording()

    with world.sent_together():
        for node in world.nodes("cheap"):
            world.preempt("cheap", node)
    world.pass_time(minutes=2, seconds=1)

    times = {
        line.split()[0] for line in world.timed_events("cheap") if "PreemptionInProgress" in line
    }
    published = names(world, "cheap")
    assert (published["PreemptionPending"], published["DeletedForPreemption"]) == (NODES, NODES)
    assert times == {"2:00"}


def test_no_commit_is_larger_than_its_bound_however_large_the_annotations_of_nodes_are(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=100, quota=100)
    world.apply("train", 100)
    world.start_recording()

    world.apply("train", 100, nodeAnnotations={"note": "x" * 190_000})

    published = names(world, "train")
    assert (published["NodeUpdated"], published["CWNodePoolMetadata"]) == (100, 1)
    assert max(commit_sizes(world)) < BYTES_MAX + MESSAGE_BYTES_MAX


def commit_sizes(world: WorldHarness) -> Iterator[int]:
    """The bytes of each commit: of the messages of its speaker since the commit before."""
    sizes: Counter[str] = Counter()
    for entry in world.entries():
        kind, service = entry.subject.split(".")[1:3]
        if kind == "evt":
            sizes[service] += len(entry.content)
        elif kind == "commit":
            yield sizes.pop(service, 0)
