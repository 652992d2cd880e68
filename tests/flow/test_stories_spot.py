"""A spot Node goes back: warned at 0:00, drained at 2:00, gone when drained or at 7:00."""

import pytest

from support.stage import NAMES, WorldStage, metadata

PENDING = "qos.coreweave.cloud/pending-preemption"
EVICTED = "qos.coreweave.cloud/evicted-at"


def spot(world: WorldStage, nodes: int = 1, **pod: object) -> None:
    """A spot pool of so many Nodes, the first with a Pod, and the stage listening."""
    world.given_house(machines=nodes)
    world.apply("cheap", nodes, computeClass="spot")
    if pod:
        world.run_pod("n1", "job", **pod)
    world.listen()


def marks(world: WorldStage, node: str) -> dict[str, str]:
    found = metadata(world.node(node))["labels"]
    return {key: value for key, value in found.items() if key.startswith("qos.")}


def test_a_preempted_node_without_pods_leaves_when_its_drain_begins(world: WorldStage) -> None:
    spot(world)

    world.preempt("cheap", "n1")
    world.pass_time(minutes=8)

    assert world.timed("cheap") == [
        "0:00 PreemptionPending n1",
        "2:00 PreemptionInProgress n1",
        "2:00 CWDrainNode n1",
        "2:00 CWNodeDeleted n1",
        "2:00 DeletedForPreemption n1",
        "2:00 CWNodeAssigned n1",
        "2:00 CWNodeRegistered n1",
    ]


def test_a_preempted_node_is_cordoned_and_marked_at_once(world: WorldStage) -> None:
    spot(world, graceS=60)

    world.preempt("cheap", "n1")

    assert marks(world, "n1") == {PENDING: "true"}
    assert world.node("n1")["spec"] == {
        "taints": [
            {"key": "is_gpu", "value": "true", "effect": "PreferNoSchedule"},
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        ],
        "unschedulable": True,
    }
    assert world.node_conditions("n1")["CWNodeRemoval"] == "True Preempted"


def test_a_pod_runs_on_for_two_minutes_and_then_ends_within_its_grace_period(
    world: WorldStage,
) -> None:
    spot(world, graceS=60)

    world.preempt("cheap", "n1")
    world.pass_time(minutes=2)
    evicted = marks(world, "n1")
    world.pass_time(minutes=2)

    assert evicted == {PENDING: "true", EVICTED: str(int(world.begun.timestamp()) + 120)}
    assert world.timed("cheap")[:5] == [
        "0:00 PreemptionPending n1",
        "2:00 PreemptionInProgress n1",
        "2:00 CWDrainNode n1",
        "3:00 CWNodeDeleted n1",
        "3:00 DeletedForPreemption n1",
    ]


def test_a_node_that_drains_early_leaves_early(world: WorldStage) -> None:
    spot(world, graceS=240)

    world.preempt("cheap", "n1")
    world.pass_time(minutes=2, seconds=30)
    world.stop_pod("n1")

    assert world.timed("cheap")[3:5] == ["2:30 CWNodeDeleted n1", "2:30 DeletedForPreemption n1"]


def test_a_pod_that_ends_during_the_warning_does_not_shorten_it(world: WorldStage) -> None:
    spot(world, graceS=240)

    world.preempt("cheap", "n1")
    world.pass_time(minutes=1)
    world.stop_pod("n1")
    world.pass_time(minutes=2)

    assert world.timed("cheap")[:4] == [
        "0:00 PreemptionPending n1",
        "2:00 PreemptionInProgress n1",
        "2:00 CWDrainNode n1",
        "2:00 CWNodeDeleted n1",
    ]


def test_a_pod_with_a_long_grace_period_is_cut_at_seven_minutes(world: WorldStage) -> None:
    spot(world, graceS=3600)

    world.preempt("cheap", "n1")
    world.pass_time(minutes=8)

    assert world.timed("cheap")[:5] == [
        "0:00 PreemptionPending n1",
        "2:00 PreemptionInProgress n1",
        "2:00 CWDrainNode n1",
        "7:00 CWNodeDeleted n1",
        "7:00 DeletedForPreemption n1",
    ]


def test_no_stage_comes_a_moment_early(world: WorldStage) -> None:
    spot(world, graceS=3600)
    world.preempt("cheap", "n1")

    world.pass_time(seconds=119)
    before_drain = world.timed("cheap")
    world.pass_time(seconds=300)
    before_end = world.timed("cheap")
    world.pass_time(seconds=2)

    assert before_drain == ["0:00 PreemptionPending n1"]
    assert before_end[1:] == ["2:00 PreemptionInProgress n1", "2:00 CWDrainNode n1"]
    assert world.timed("cheap")[3:5] == ["7:00 CWNodeDeleted n1", "7:00 DeletedForPreemption n1"]


def test_the_warnings_begin_with_their_reason(world: WorldStage) -> None:
    spot(world)

    world.preempt("cheap", "n1")
    world.pass_time(minutes=8)

    names = ("PreemptionPending", "PreemptionInProgress", "DeletedForPreemption")
    assert [world.messages("cheap", name) for name in names] == [
        ["Reason: Preemption pending. Node n1 is cordoned and goes within 7 minutes"],
        ["Reason: Preemption in progress. Node n1 is being drained"],
        ["Reason: Deleted for preemption. Node n1 left its NodePool"],
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_restart_in_the_middle_changes_no_moment(world: WorldStage, name: str) -> None:
    spot(world, graceS=3600)
    world.preempt("cheap", "n1")
    world.pass_time(minutes=1)
    world.restart(name)
    world.pass_time(minutes=3)

    world.restart(name)
    world.pass_time(minutes=4)

    assert world.timed("cheap")[:5] == [
        "0:00 PreemptionPending n1",
        "2:00 PreemptionInProgress n1",
        "2:00 CWDrainNode n1",
        "7:00 CWNodeDeleted n1",
        "7:00 DeletedForPreemption n1",
    ]


def test_a_service_that_slept_through_a_moment_is_late_and_says_it_once(world: WorldStage) -> None:
    spot(world, graceS=3600)
    world.preempt("cheap", "n1")

    with world.asleep("preemption"):
        world.pass_time(minutes=3)
    world.pass_time(minutes=5)

    assert world.timed("cheap")[:5] == [
        "0:00 PreemptionPending n1",
        "3:00 PreemptionInProgress n1",
        "3:00 CWDrainNode n1",
        "7:00 CWNodeDeleted n1",
        "7:00 DeletedForPreemption n1",
    ]


def test_a_target_of_none_during_the_warning_does_not_shorten_it(world: WorldStage) -> None:
    spot(world, graceS=60)
    world.preempt("cheap", "n1")
    world.pass_time(minutes=1)

    world.scale("cheap", 0)
    world.pass_time(minutes=3)

    assert world.timed("cheap") == [
        "0:00 PreemptionPending n1",
        "2:00 PreemptionInProgress n1",
        "2:00 CWDrainNode n1",
        "3:00 CWNodeDeleted n1",
        "3:00 DeletedForPreemption n1",
        "3:00 CWNodePoolScaledDown 1 0",
    ]


def test_a_pool_deleted_during_a_warning_is_gone_when_its_node_is(world: WorldStage) -> None:
    spot(world, graceS=60)
    world.preempt("cheap", "n1")
    world.pass_time(minutes=1)

    world.delete("cheap")
    world.pass_time(minutes=3)

    assert world.timed("cheap") == [
        "0:00 PreemptionPending n1",
        "1:00 CWNodePoolRemoveNodes 1",
        "1:00 CWNodeDeletionRequestSuccess n1",
        "2:00 PreemptionInProgress n1",
        "2:00 CWDrainNode n1",
        "3:00 CWNodeDeleted n1",
        "3:00 DeletedForPreemption n1",
        "3:00 CWNodePoolNodesRemoved 1 0",
        "3:00 CWNodePoolDeleted",
    ]


def test_a_node_preempted_while_its_pool_is_deleted_leaves_with_it(world: WorldStage) -> None:
    spot(world, nodes=2, graceS=600)
    world.delete("cheap")

    world.preempt("cheap", "n1")
    world.pass_time(minutes=8)

    assert world.shown("cheap") is None
    assert world.nodes() == []


def test_a_preempted_machine_goes_to_the_default_pool_that_waits(world: WorldStage) -> None:
    spot(world)
    world.apply("train", 1)

    world.preempt("cheap", "n1")
    world.pass_time(minutes=8)

    assert world.nodes("train") == ["n1"]
    assert world.counts("cheap") == (1, 0, 0)
    assert world.conditions("cheap")["AtTarget"] == "UnderTarget"


def test_an_empty_spot_pool_refills_when_capacity_returns(world: WorldStage) -> None:
    spot(world)
    world.apply("train", 1)
    world.preempt("cheap", "n1")
    world.pass_time(minutes=8)
    world.listen()

    world.given_machines(1)

    assert world.events("cheap") == ["CWNodeAssigned n2", "CWNodeRegistered n2"]
    assert world.counts("cheap") == (1, 0, 1)


def test_only_a_spot_node_can_be_preempted(world: WorldStage) -> None:
    world.given_house()
    world.apply("train", 1)

    asked = world.preempt("train", "n1")

    told = f"NotFound node: {world.machine('n1')} is no spot Node of NodePool train"
    assert world.outcomes(asked) == [told]


def test_many_preemptions_at_once_are_all_on_time(world: WorldStage) -> None:
    world.given_house(machines=60)
    world.apply("cheap", 60, computeClass="spot")
    world.listen()

    with world.together():
        for node in world.nodes("cheap"):
            world.preempt("cheap", node)
    world.pass_time(minutes=2)

    timed = world.timed("cheap")
    assert sum(line.startswith("0:00 PreemptionPending") for line in timed) == 60
    assert sum(line.startswith("2:00 PreemptionInProgress") for line in timed) == 60
