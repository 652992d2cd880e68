"""What the console shows of Nodes as the services leave them, from the documents of the log."""

import pytest

from console.view.model import Place, Pool, build_pool
from console.view.node import find_verbs
from console.view.nodes import build_member
from console.view.preemptions import build_preemptions
from support.constants import CLUSTER, ORG, PREFER_IDLE, ZONE
from support.world_harness import WorldHarness

PLACE = f"{ORG}/{CLUSTER}"


def shown(world: WorldHarness, name: str) -> Pool:
    """A NodePool as the console has it."""
    nodes = world.documents("nodes").values()
    members = [build_member(PLACE, each) for each in nodes]
    own = [each for each in members if each.pool == name]
    document = world.node_pool(name)
    assert document is not None, f"there is no NodePool {name}"
    return build_pool(Place(PLACE, name), ZONE, document, own)


def leaving(world: WorldHarness) -> tuple[str, str, list[str], bool]:
    """What the console says of the only Node that is preempted, and whether to give it back."""
    pool = shown(world, "spot")
    page = build_preemptions([pool], [], world.world.log.clock)
    (node,) = page.running
    deadlines = [each.about for each in node.member.deadlines]
    gives_back = "acknowledge" in find_verbs(pool, node.member.facts)
    return node.word.text, node.then, deadlines, gives_back


WARNED = (
    "Warned",
    "asked to end 2 min after the warning",
    ["begins to drain", "is gone at the latest"],
    True,
)
DRAINS = ("Draining", "asked to end", ["is gone at the latest"], False)


def test_a_node_that_was_draining_is_shown_as_warned_until_its_preemption_drains_it(
    world: WorldHarness,
) -> None:
    # given a spot Node whose drain waits for a Pod
    world.given_data_center(machines=1)
    world.apply("spot", 1, computeClass="spot")
    world.run_pod("n1")
    world.command_node("DrainNode", "spot", "n1")

    # when it is preempted
    world.preempt("spot", "n1")
    world.pass_time(seconds=30)
    warned = leaving(world)
    world.pass_time(seconds=100)

    # then its Pod is asked to end only two minutes after the warning
    assert (warned, leaving(world)) == (WARNED, DRAINS)


def test_a_node_that_a_smaller_target_drains_is_shown_as_warned_too(world: WorldHarness) -> None:
    # given an active spot Node that its NodePool gives back
    world.given_data_center(machines=1)
    world.apply("spot", 1, computeClass="spot", lifecycle=PREFER_IDLE)
    world.run_pod("n1")
    world.scale("spot", 0)

    # when it is preempted, and its Pod ends at once
    world.preempt("spot", "n1")
    warned = leaving(world)
    world.stop_pod("n1")
    idle = leaving(world)

    # then it stays until the drain, unless it is given back
    assert warned == WARNED
    assert idle == ("Warned", "nothing runs on the Node", WARNED[2], True)


def drains(world: WorldHarness) -> bool:
    """Whether the console offers to drain the only Node of `train`."""
    pool = shown(world, "train")
    return "drain" in find_verbs(pool, pool.members[0].facts)


@pytest.mark.parametrize(("why", "left"), [("AdminDrain", [False]), ("Unhealthy", [])])
def test_a_drain_that_a_pod_blocks_can_be_forced_on_the_console(
    world: WorldHarness, why: str, left: list[bool]
) -> None:
    # given a Node whose drain, by command or as unhealthy, waits for a Pod
    world.given_data_center(machines=1)
    world.apply("train", 1, lifecycle={"disableUnhealthyNodeEviction": False})
    world.run_pod("n1")
    if why == "AdminDrain":
        world.command_node("DrainNode", "train", "n1")
    else:
        world.break_machines("n1", fault="gpu-lost")
    safely = drains(world)

    # when a user forces its drain
    world.command_node("DrainNode", "train", "n1", force=True)
    forced = drains(world)
    world.pass_time(minutes=1)

    # then no other drain is offered, and its Pod ends: the Node is idle, or given up for triage
    assert (safely, forced) == (True, False)
    assert [each.facts.active for each in shown(world, "train").members] == left


@pytest.mark.parametrize("why", ["ScaleDown", "Preempted"])
def test_no_drain_is_offered_of_a_node_whose_removal_decides_about_it(
    world: WorldHarness, why: str
) -> None:
    # given a Node whose drain waits for a Pod
    world.given_data_center(machines=1)
    world.apply("train", 1, computeClass="spot", lifecycle=PREFER_IDLE)
    world.run_pod("n1")

    # when its NodePool gives it back, or it is preempted
    if why == "ScaleDown":
        world.scale("train", 0)
    else:
        world.command_node("DrainNode", "train", "n1")
        world.preempt("train", "n1")

    # then a drain by command would change nothing
    assert not drains(world)


def test_a_node_that_restarts_has_the_deadline_of_its_step_and_is_not_about_to_be_lost(
    world: WorldHarness,
) -> None:
    # given a machine that is verified for a long time after each boot
    world.given_cluster()
    world.given_quota(1)
    world.given_machines(1, boot_s=600, verifySeconds=1200)
    world.apply("train", 1)
    world.pass_time(minutes=12)
    first = deadlines(world)
    world.pass_time(minutes=30)
    production = deadlines(world)

    # when its Node is rebooted
    world.command_node("RebootNode", "train", "n1")
    world.pass_time(minutes=2)
    rebooting = deadlines(world)
    world.pass_time(minutes=10)

    # then each step says what has to be over by when, and looks like a Node that is on its way
    verified = "is verified, or is given up and replaced"
    rebooted = "has rebooted, or is given up and replaced"
    assert first == [("02:10", "go", verified, "verification deadline")]
    assert production == []
    assert rebooting == [("01:12", "go", rebooted, "reboot deadline")]
    assert deadlines(world) == [("02:52", "go", verified, "verification deadline")]


def test_a_machine_that_does_not_answer_the_drain_of_its_node_is_about_to_be_given_up(
    world: WorldHarness,
) -> None:
    # given a machine that hangs
    world.given_data_center(machines=1)
    world.apply("train", 1)
    world.break_machines("n1", fault="hang")

    # when its Node is drained
    world.command_node("DrainNode", "train", "n1")
    world.pass_time(minutes=1)

    # then its Node has a deadline that nobody wants to see
    given_up = "is given up unless its machine answers"
    assert deadlines(world) == [("00:30", "bad", given_up, "answer to its cordon or drain")]


def deadlines(world: WorldHarness) -> list[tuple[str, str, str, str]]:
    """The deadlines of the only Node of `train`."""
    (member,) = shown(world, "train").members
    return [(f"{each.at:%H:%M}", each.look, each.about, each.why) for each in member.deadlines]
