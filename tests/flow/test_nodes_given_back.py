"""Nodes that the control plane gives back: they count, and raise no grant beyond the limit."""

from random import Random

import pytest

from flow.test_audit import removal_faults
from flow.test_explanations import explained
from flow.test_racks import DOMAIN, EAST, GB200, R1, R2, add, domains, given_racks, want
from support.constants import H100, ORG, PREFER_IDLE, ZONE
from support.simulation.advice import check_advice
from support.world_harness import WorldHarness


def lend(world: WorldHarness, node: str, pool: str = "train") -> None:
    """Reserve a Node for the control plane, so that another Node takes its place."""
    world.command_node("ReserveNode", pool, node, reservedDesired="control-plane")
    world.pass_time(minutes=1)


def take_back(world: WorldHarness, node: str, pool: str = "train") -> None:
    """Reserve a Node for the organisation again."""
    world.command_node("ReserveNode", pool, node, reservedDesired=ORG)
    world.pass_time(minutes=1)


def used(world: WorldHarness) -> int:
    """Return how many Nodes count against the limit."""
    count = world.documents("quotas")[f"{ORG}/{ZONE}/{H100}"]["used"]
    assert isinstance(count, int)
    return count


def given_a_busy_node_above_the_grant(world: WorldHarness, **lifecycle: object) -> None:
    """Make a NodePool with a limit of 3 that wants 4 Nodes: with n1, which came back, 4 work."""
    world.given_data_center(machines=8, quota=3)
    world.apply("train", 3, lifecycle=lifecycle)
    lend(world, "n1")
    world.scale("train", 4)
    for node in ("n2", "n3", "n4"):
        world.run_pod(node)
    with world.paused("allocator"):
        world.command_node("ReserveNode", "train", "n1", reservedDesired=ORG)
        world.run_pod("n1")


def test_no_node_that_comes_back_raises_a_grant_beyond_the_limit(world: WorldHarness) -> None:
    # given a NodePool that uses its whole limit
    world.given_data_center(machines=9, quota=3)
    world.apply("train", 3)
    world.start_recording()

    # when Nodes are lent and replaced, the target rises, and they come back: at once, or in turn
    for count in (1, 2):
        nodes = world.nodes("train")[-count:]
        for node in nodes:
            lend(world, node)
        world.scale("train", world.node_counts("train").target + count)
        for node in nodes:
            take_back(world, node)

    # then the NodePool scales down to its grant each time, and says why
    assert world.node_counts("train") == (6, 0, 3)
    assert (world.granted_nodes("train"), used(world)) == (3, 3)
    assert set(world.event_messages("train", "CWNodePoolRemoveNodes")) == {
        "removing 1 Node (IdleOnly; the control plane gave back Nodes beyond the grant of 3)"
    }
    assert (
        world.event_messages("train", "CWNodePoolScaledDown")
        == ["scaled down from 4 to 3 Nodes"] * 3
    )
    assert removal_faults(tuple(world.entries())) == []


def test_a_node_that_comes_back_overtakes_no_nodepool_that_waits(world: WorldHarness) -> None:
    # given a NodePool that waits for quota, and then another NodePool, to which a Node comes back
    world.given_data_center(machines=9, quota=3)
    world.apply("train", 3)
    world.apply("serve", 1)
    lend(world, "n1")
    world.scale("train", 4)

    # when the limit is raised by what the first NodePool lacks, before that Node has left
    with world.paused("allocator"):
        world.command_node("ReserveNode", "train", "n1", reservedDesired=ORG)
        world.given_quota(4)
        message = world.condition("train", "Quota")

    # then the NodePool that waited first gets the room
    assert message == (
        "False Over: targetNodes 4 fits quota 4 for gd-8xh100ib-i128, but a NodePool that has "
        "waited longer comes first; the control plane gave back 1 Node beyond the grant of the "
        "NodePool, which scales down to 3 by its scaleDownStrategy"
    )
    assert (world.granted_nodes("train"), world.granted_nodes("serve")) == (3, 1)
    assert (world.node_counts("train").current, used(world)) == (3, 4)
    assert world.condition("train", "Quota") == (
        "False Over: targetNodes 4 exceeds quota 4 for gd-8xh100ib-i128 (1 used by 1 other pool)"
    )


ENDS = {
    "IdleOnly": "cordon one of its active Nodes and end the work there: it leaves once it is idle",
    "PreferIdle": "end the Pods that block on n1",
}
"""The advice that lets a Node leave, by the strategy of its NodePool."""


@pytest.mark.parametrize("strategy", ENDS)
def test_a_nodepool_with_a_busy_node_above_its_grant_says_why_it_scales_down(
    world: WorldHarness, strategy: str
) -> None:
    given_a_busy_node_above_the_grant(world, scaleDownStrategy=strategy)

    # when the advice is followed
    check_advice(world.world, Random(0), most=100)
    cause, removal = explained(world, "train").causes
    before = world.node_counts("train").current, world.granted_nodes("train"), used(world)
    world.stop_pod("n2")
    world.pass_time(minutes=1)

    # then the Node that is idle first leaves
    assert cause.message == (
        "targetNodes 4 exceeds quota 3 for gd-8xh100ib-i128; the control plane gave back 1 Node "
        "beyond the grant of the NodePool, which scales down to 3 by its scaleDownStrategy"
    )
    assert cause.helps == ("raise the quota of gd-8xh100ib-i128 in US-EAST-04A to 4",)
    assert removal.title == "it has 1 Node too many"
    assert list(map(world.with_machine_numbers, removal.helps)) == [ENDS[strategy]]
    assert before == (4, 3, 4)
    assert world.nodes("train") == ["n1", "n3", "n4"]
    assert (world.granted_nodes("train"), used(world)) == (3, 3)


def test_a_nodepool_above_its_grant_is_over_its_target_until_the_node_has_left(
    world: WorldHarness,
) -> None:
    given_a_busy_node_above_the_grant(world, **PREFER_IDLE)

    before = world.condition("train", "AtTarget"), "Reconciling" in world.conditions("train")
    world.stop_pod("n1")
    world.pass_time(minutes=1)

    assert before == (
        "False OverTarget: NodePool has 4 Nodes and its quota allows 3; waits for n1, active with "
        "Pods job since 2026-01-01T00:01:00Z.",
        True,
    )
    assert world.conditions("train")["AtTarget"] == "UnderTarget"


def test_a_nodepool_whose_grant_is_0_has_too_many_nodes_if_one_comes_back(
    world: WorldHarness,
) -> None:
    # given a NodePool whose only Node is lent as its limit falls to 0
    world.given_data_center(machines=1, quota=1)
    world.apply("train", 1)
    lend(world, "n1")
    world.given_quota(0)

    # when that Node comes back, and work runs there
    with world.paused("allocator"):
        world.command_node("ReserveNode", "train", "n1", reservedDesired=ORG)
        world.run_pod("n1")
    world.pass_time(minutes=1)

    titles = [cause.title for cause in explained(world, "train").causes]
    assert world.granted_nodes("train") == 0
    assert titles == ["Quota is Over", "it has 1 Node too many"]


def test_a_nodepool_above_its_grant_keeps_its_node_if_the_limit_is_raised(
    world: WorldHarness,
) -> None:
    # given a Node above the grant that is to leave once its Pod has ended
    given_a_busy_node_above_the_grant(world, **PREFER_IDLE)
    world.start_recording()

    # when the limit has room for it
    world.given_quota(4)
    world.pass_time(minutes=1)

    # then the grant rises as for any target, and the Node stays
    assert world.events("train") == ["CWNodePoolScaledUp 3 4", "CWNodePoolNodesRemoved 0 4"]
    assert world.nodes("train") == ["n1", "n2", "n3", "n4"]
    assert world.conditions("train")["Quota"] == "Under"
    assert (world.granted_nodes("train"), used(world)) == (4, 4)


def test_a_raised_target_keeps_a_node_that_came_back_until_quota_has_judged_it(
    world: WorldHarness,
) -> None:
    # given a NodePool within its limit, with a busy Node that came back and is one too many
    world.given_data_center(machines=8, quota=10)
    world.apply("train", 3, lifecycle=PREFER_IDLE)
    lend(world, "n1")
    for node in ("n2", "n3", "n4"):
        world.run_pod(node)
    with world.paused("allocator"):
        world.command_node("ReserveNode", "train", "n1", reservedDesired=ORG)
        world.run_pod("n1")
    world.start_recording()

    # when the target rises to what it has while the quota service is away, and its work ends
    with world.paused("quota"):
        world.scale("train", 4)
        world.stop_pod("n1")
        world.pass_time(minutes=1)
    world.pass_time(minutes=1)

    assert world.nodes("train") == ["n1", "n2", "n3", "n4"]
    assert world.events("train") == ["CWNodePoolNodesRemoved 0 4", "CWNodePoolScaledUp 3 4"]
    assert (world.granted_nodes("train"), used(world)) == (4, 4)


def test_no_node_is_to_come_back_to_a_nodepool_that_would_give_up_another_one(
    world: WorldHarness,
) -> None:
    # given a NodePool that has all Nodes of its grant, and wants more
    world.given_data_center(machines=5, quota=3)
    world.apply("train", 3)
    lend(world, "n1")
    world.scale("train", 4)

    over = [cause.helps for cause in explained(world, "train").causes]
    check_advice(world.world, Random(0), most=100)

    assert over == [
        (
            "raise the quota of gd-8xh100ib-i128 in US-EAST-04A to 4",
            "scale train to 3, what it has",
        ),
        (),
    ]


def test_a_node_above_a_grant_delays_no_nodepool_that_waits_for_other_room(
    world: WorldHarness,
) -> None:
    # given a Node above a grant that stays, and two NodePools that wait
    given_a_busy_node_above_the_grant(world, scaleDownStrategy="IdleOnly")
    world.apply("large", 2)
    world.apply("small", 1)

    # when the limit has room for the Node and for `small`
    world.scale("train", 6)
    world.given_quota(5)

    # then `small` is served, and `large` is passed over
    assert [world.granted_nodes(pool) for pool in ("train", "large", "small")] == [3, 0, 1]
    assert used(world) == 5


def test_a_nodepool_with_a_node_above_its_grant_is_passed_over_by_no_room_that_fits_it(
    world: WorldHarness,
) -> None:
    # given a busy Node above a grant, and `large`, which has waited longer than `train`
    world.given_data_center(machines=9, quota=3)
    world.apply("train", 3)
    lend(world, "n1")
    world.apply("large", 3)
    world.scale("train", 5)
    for node in ("n2", "n3", "n4"):
        world.run_pod(node)
    with world.paused("allocator"):
        world.command_node("ReserveNode", "train", "n1", reservedDesired=ORG)
        world.run_pod("n1")

    # when the limit has too little room for `large`, and enough for `train`
    world.given_quota(6)

    # then `train` is served
    assert [world.granted_nodes(pool) for pool in ("train", "large")] == [5, 0]
    assert used(world) == 5


@pytest.mark.parametrize("limit", [4, 5])
def test_the_autoscaler_requests_what_the_limit_allows_with_a_node_above_the_grant(
    world: WorldHarness, limit: int
) -> None:
    # given an autoscaled NodePool with its whole limit at work, to which a Node comes back
    world.given_data_center(machines=8, quota=3)
    world.apply("train", 3, autoscaling=True, minNodes=3, maxNodes=6)
    world.pass_time(minutes=11)
    lend(world, "n1")
    for pod in ("one", "two", "three"):
        world.create_pod("train", pod, gpus=8)
    with world.paused("allocator"):
        world.command_node("ReserveNode", "train", "n1", reservedDesired=ORG)
        world.create_pod("train", "four", gpus=8)

    # when a Pod waits for another Node, and the limit is raised a minute later
    world.create_pod("train", "five", gpus=8)
    world.pass_time(minutes=1)
    before = world.node_counts("train")
    world.given_quota(limit)
    world.pass_time(minutes=1)

    # then the target is what the limit allows
    assert before == (3, 0, 4)
    assert world.node_counts("train") == (limit, 0, limit)
    assert world.conditions("train")["Quota"] == "Under"


def test_the_autoscaler_forgets_a_node_above_the_grant_once_it_has_left(
    world: WorldHarness,
) -> None:
    # given an autoscaled NodePool with its whole limit, of which a Node came back and left again
    world.given_data_center(machines=8, quota=3)
    world.apply("train", 3, autoscaling=True, minNodes=3, maxNodes=6)
    world.pass_time(minutes=11)
    lend(world, "n1")
    take_back(world, "n1")
    left = world.node_counts("train")

    # when more Pods wait than it has Nodes
    for pod in ("one", "two", "three", "four"):
        world.create_pod("train", pod, gpus=8)
    world.pass_time(minutes=1)

    assert left == (3, 0, 3)
    assert world.node_counts("train") == (3, 0, 3)
    assert world.conditions("train")["Quota"] == "Under"


def test_another_edit_keeps_no_node_above_the_grant(world: WorldHarness) -> None:
    # given a Node above the grant that is to leave once its Pod has ended
    given_a_busy_node_above_the_grant(world, **PREFER_IDLE)
    world.start_recording()

    world.apply("train", 4, lifecycle=PREFER_IDLE, nodeLabels={"team": "vision"})
    world.scale("train", 5)
    world.stop_pod("n1")

    assert world.events("train")[-3:] == [
        "CWNodeDeleted n1",
        "CWNodePoolNodesRemoved 1 3",
        "CWNodePoolScaledDown 4 3",
    ]
    kept = [line for line in world.messages("train") if line.startswith("NodeRemovalCancelled")]
    assert kept == []
    assert world.granted_nodes("train") == 3


def test_a_nodepool_at_its_target_is_not_told_to_keep_a_node_above_its_grant(
    world: WorldHarness,
) -> None:
    # given a NodePool whose target is its limit, and to which a busy Node came back
    given_a_busy_node_above_the_grant(world, **PREFER_IDLE)
    world.scale("train", 3)
    world.pass_time(minutes=1)

    # when it is explained
    check_advice(world.world, Random(0), most=100)
    (cause,) = explained(world, "train").causes

    # then the advice is to let the Node leave, as no higher target keeps it
    assert cause.title == "it has 1 Node too many"
    assert list(map(world.with_machine_numbers, cause.helps)) == ["end the Pods that block on n1"]


def test_a_nodepool_is_told_which_target_keeps_a_node_above_its_grant(world: WorldHarness) -> None:
    # given a NodePool that wants 6 Nodes and has 4 of a limit of 4, of which its grant covers 3
    given_a_busy_node_above_the_grant(world, **PREFER_IDLE)
    world.scale("train", 6)
    world.given_quota(4)

    # when the advice is followed
    check_advice(world.world, Random(0), most=100)
    cause, _ = explained(world, "train").causes
    world.scale("train", 4)
    world.pass_time(minutes=1)

    # then the NodePool keeps the Node
    assert cause.helps[1] == "scale train to 4, which fits"
    assert (world.granted_nodes("train"), used(world)) == (4, 4)
    assert world.condition("train", "AtTarget").startswith("True TargetMet")


def test_a_lower_target_is_granted_whatever_came_back(world: WorldHarness) -> None:
    # given a Node above a grant that stays
    given_a_busy_node_above_the_grant(world)

    # when the target falls to the grant
    world.scale("train", 3)

    # then no grant counts the Node, and the limit is exceeded until the Node has left
    quota, at_target = (world.conditions("train")[kind] for kind in ("Quota", "AtTarget"))
    assert (quota, at_target) == ("Under", "OverTarget")
    assert (world.granted_nodes("train"), used(world)) == (3, 4)


def test_a_nodepool_that_was_invalid_keeps_no_node_that_came_back_for_good(
    world: WorldHarness,
) -> None:
    # given an invalid NodePool to which a Node came back while another NodePool took its place
    world.given_data_center(machines=5, quota=2)
    world.apply("train", 2)
    world.apply("train", 2, region="US-WEST-04A")
    world.apply("serve", 1)
    lend(world, "n1")
    take_back(world, "n1")
    invalid = world.node_counts("train").current

    # when it is valid again
    world.apply("train", 2)
    world.pass_time(minutes=1)

    # then it has no more Nodes than the limit leaves it
    assert invalid == 2
    assert world.node_counts("train") == (2, 0, 1)
    assert [world.granted_nodes(pool) for pool in ("train", "serve")] == [1, 1]


def test_a_rack_leaves_if_a_node_that_came_back_makes_it_one_too_many(world: WorldHarness) -> None:
    # given a rack of which a Node was lent, and replaced by a Node of another rack
    world.given_cluster(zone=EAST)
    world.given_quota(18, GB200, zone=EAST)
    add(world, {"count": 18, "labels": {DOMAIN: R1}})
    want(world, 1)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    add(world, {"count": 1, "labels": {DOMAIN: R1}})
    world.pass_time(minutes=1)
    want(world, 2)

    # when it comes back
    world.command_node("ReserveNode", "train", "n1", reservedDesired="acme")
    world.pass_time(minutes=1)

    assert domains(world) == {R1: 18}


def test_a_node_that_fills_up_a_rack_stays(world: WorldHarness) -> None:
    # given two racks, of which a Node was lent as the limit fell below what they have
    given_racks(world, 2, quota=36)
    want(world, 2)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    world.given_quota(20, GB200, zone=EAST)
    over, lent = explained(world, "train").causes

    # when it comes back, as advised
    world.command_node("ReserveNode", "train", "n1", reservedDesired="acme")
    world.pass_time(minutes=1)

    # then no rack is too many, and the grant covers the Node
    assert over.title == "Quota is Over"
    assert list(map(world.with_machine_numbers, lent.helps)) == [
        "reserve n1 for the organisation again"
    ]
    assert domains(world) == {R1: 18, R2: 18}
    assert world.granted_nodes("train") == 36
    assert world.conditions("train") == {
        "Validated": "Valid",
        "Capacity": "Sufficient",
        "Quota": "Under",
        "AtTarget": "TargetMet",
    }
    assert explained(world, "train").causes == ()


def test_a_raised_target_keeps_a_node_above_the_grant_until_quota_has_judged_it(
    world: WorldHarness,
) -> None:
    # given a Node above the grant that is to leave, as the target fell to the grant
    given_a_busy_node_above_the_grant(world, **PREFER_IDLE)
    world.scale("train", 3)

    # when the target rises again while quota is away
    with world.paused("quota"):
        world.scale("train", 4)
        shown = world.conditions("train")["AtTarget"]
        causes = [cause.title for cause in explained(world, "train").causes]

    # then nobody says that the Node leaves before quota has judged that target
    assert shown == "TargetMet"
    assert "it has 1 Node too many" not in causes
    assert world.conditions("train")["AtTarget"] == "OverTarget"


def test_a_nodepool_that_was_invalid_keeps_its_nodes_until_quota_has_judged_it(
    world: WorldHarness,
) -> None:
    # given a NodePool with a Node above its grant
    given_a_busy_node_above_the_grant(world, **PREFER_IDLE)

    # when it is Invalid, and then Valid again and idle while quota is away
    with world.paused("quota"):
        world.apply("train", 4, lifecycle=PREFER_IDLE, region="US-WEST-04A")
        invalid = world.granted_nodes("train")
        world.apply("train", 4, lifecycle=PREFER_IDLE)
        for node in ("n1", "n2", "n3", "n4"):
            world.stop_pod(node)
        world.pass_time(minutes=1)
        kept = world.nodes("train")

    # then no Node leaves for a grant that no longer holds
    assert invalid == 4
    assert kept == ["n1", "n2", "n3", "n4"]
