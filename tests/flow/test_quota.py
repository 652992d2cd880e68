"""Quota: limits of organisations, grants to NodePools, and NodePools that wait for a grant."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from immutables import Map

from nodepool.contract.events import QuotaChecked
from quota.ledger import Ledger
from quota.pool import Pool
from quota.state import State as QuotaState
from quota.verdict import verdict
from support.constants import A100, H100, ORG, ZONE
from support.harness import Harness
from support.paths import org_path
from support.world_harness import WorldHarness

EVICTING = {"disableUnhealthyNodeEviction": False}


def test_a_target_above_the_limit_is_over_quota_and_gets_no_node(harness: Harness) -> None:
    harness.given_data_center(quota=2)
    harness.start_recording()

    harness.apply("train", 3)

    assert harness.messages("train") == [
        "CWNodePoolCreated",
        "NodePoolValidated Valid",
        "QuotaChecked Over 0",
        "CWOverQuota",
        "CapacityChecked Sufficient 10",
    ]
    assert harness.condition("train", "Quota") == (
        "False Over: targetNodes 3 exceeds quota 2 for gd-8xh100ib-i128"
    )
    assert harness.node_counts("train") == (3, 0, 0)
    assert harness.conditions("train")["AtTarget"] == "UnderTarget"


def test_a_message_over_quota_names_what_other_pools_use(harness: Harness) -> None:
    harness.given_data_center(quota=8)
    harness.apply("train", 4)
    harness.apply("serve", 2)
    harness.start_recording()

    harness.apply("batch", 12)

    expected = "targetNodes 12 exceeds quota 8 for gd-8xh100ib-i128 (6 used by 2 other pools)"
    assert harness.condition("batch", "Quota") == f"False Over: {expected}"
    assert harness.event_messages("batch", "CWOverQuota") == [expected]


def test_a_pool_that_grows_over_its_quota_keeps_the_nodes_it_has(harness: Harness) -> None:
    harness.given_data_center(quota=3)
    harness.apply("train", 2)
    harness.start_recording()

    harness.scale("train", 4)

    assert harness.events("train") == ["CWOverQuota"]
    assert harness.nodes("train") == ["n1", "n2"]
    assert harness.conditions("train") == {
        "Validated": "Valid",
        "Capacity": "Sufficient",
        "Quota": "Over",
        "AtTarget": "UnderTarget",
        "Stalled": "Over",
    }


def test_a_limit_that_was_never_set_grants_no_node(harness: Harness) -> None:
    harness.given_cluster()
    harness.given_machines(3)
    harness.start_recording()

    harness.apply("train", 1)

    assert harness.events("train") == ["CWNodePoolCreated", "CWOverQuota"]
    assert harness.condition("train", "Quota") == (
        "False NotSet: no quota is set for gd-8xh100ib-i128 in US-EAST-04A, and targetNodes is 1"
    )


def test_a_limit_holds_for_one_type_in_one_zone_over_all_clusters(harness: Harness) -> None:
    harness.given_data_center(quota=3)
    harness.given_cluster("lab")
    harness.given_cluster("west", zone="US-WEST-04A")
    harness.given_cluster("prod", org="umbrella")
    harness.given_quota(3, A100)
    harness.given_quota(3, zone="US-WEST-04A")
    harness.given_quota(3, org="umbrella")
    harness.apply("train", 3)

    for pool in ("acme/lab/train", "acme/west/train", "umbrella/prod/train"):
        harness.apply(pool, 3)
    harness.apply("other", 3, A100)

    pools = ("acme/lab/train", "acme/west/train", "umbrella/prod/train", "other")
    assert [harness.conditions(pool)["Quota"] for pool in pools] == [
        "Over",
        "Under",
        "Under",
        "Under",
    ]


def test_a_limit_that_is_raised_serves_the_pool_that_waits(harness: Harness) -> None:
    harness.given_data_center(quota=1)
    harness.apply("train", 2)
    harness.start_recording()

    harness.given_quota(2)

    assert harness.messages("train") == [
        "QuotaChecked Under 2",
        "CapacityChecked Sufficient 10",
        "CWNodeRequestQueued 2",
        "CWNodeAssigned n1",
        "CWNodeAssigned n2",
        "CWNodeRegistered n1",
        "CWNodeRegistered n2",
    ]
    assert harness.conditions("train")["Quota"] == "Under"


def test_a_limit_set_for_the_first_time_serves_the_pool_that_waits(
    harness: Harness,
) -> None:
    harness.given_cluster()
    harness.given_machines(1)
    harness.apply("train", 1)
    harness.start_recording()

    harness.given_quota(1)

    assert harness.node_counts("train") == (1, 0, 1)
    assert harness.conditions("train")["Quota"] == "Under"


def test_a_limit_that_is_raised_too_little_is_named_and_grants_nothing(harness: Harness) -> None:
    harness.given_data_center(quota=1)
    harness.apply("train", 3)
    harness.start_recording()

    harness.given_quota(2)

    text = "targetNodes 3 exceeds quota 2 for gd-8xh100ib-i128"
    assert harness.condition("train", "Quota") == f"False Over: {text}"
    assert harness.event_messages("train", "CWOverQuota") == [text]
    assert harness.node_counts("train") == (3, 0, 0)


def test_a_limit_lowered_below_its_use_removes_no_node_and_grants_none(harness: Harness) -> None:
    harness.given_data_center(quota=5)
    harness.apply("train", 3)
    harness.apply("serve", 2)
    harness.start_recording()

    harness.given_quota(4)
    lowered = harness.conditions("train")["Quota"], harness.conditions("serve")["Quota"]
    harness.scale("train", 4)

    assert lowered == ("Under", "Under")
    assert harness.event_messages("train", "CWOverQuota") == [
        "targetNodes 4 exceeds quota 4 for gd-8xh100ib-i128 (2 used by 1 other pool)",
    ]
    assert harness.events("serve") == []
    assert harness.nodes("train") == ["n1", "n2", "n3"]
    assert harness.nodes("serve") == ["n4", "n5"]


def test_a_pool_without_nodes_is_never_over_a_limit(world: WorldHarness) -> None:
    world.given_data_center(quota=5)
    world.apply("train", 4)
    world.apply("serve", 1)
    world.start_recording()

    world.given_quota(2)
    world.apply("empty", 0)
    with world.paused("lifecycle"):
        world.scale("serve", 0)
        leaving = world.condition("serve", "Quota")

    under = "True Under: NodePool is within instance type quota."
    assert [world.condition(pool, "Quota") for pool in ("train", "empty")] == [under, under]
    assert leaving == under
    assert world.event_messages("empty", "CWOverQuota") == []
    assert world.event_messages("serve", "CWOverQuota") == []
    assert world.event_messages("train", "CWOverQuota") == []


def test_a_node_that_comes_back_under_a_lowered_limit_leaves_again(
    world: WorldHarness,
) -> None:
    # given a pool of two Nodes, of which one is reserved while the limit is lowered
    world.given_data_center(machines=2, quota=2)
    world.apply("train", 2)
    world.command_node("ReserveNode", "train", "n1", reservedDesired="control-plane")
    world.given_quota(0)
    over = world.condition("train", "Quota")

    # when the pool may use the Node again
    world.command_node("ReserveNode", "train", "n1", reservedDesired=ORG)

    # then it keeps the Node that it had when the limit was lowered, and no more
    assert over == f"False Over: targetNodes 2 exceeds quota 0 for {H100}"
    assert world.node_counts("train") == (2, 0, 1)
    assert world.condition("train", "Quota") == over


def test_a_pool_that_may_replace_a_lost_node_is_within_a_limit_that_is_set_again(
    world: WorldHarness,
) -> None:
    # given a pool of two Nodes that loses one of them, and a limit that is deleted
    world.given_data_center(machines=2, quota=2)
    world.apply("train", 2, lifecycle=EVICTING)
    world.given_quota(0)
    world.break_machines("n1", fault="gpu-lost")
    world.send("DeleteQuota", org_path(ORG), {"zone": ZONE, "instanceType": H100})
    deleted = world.conditions("train")["Quota"]

    # when the limit is set again, below the grant that the pool still has
    world.given_quota(1)

    assert deleted == "NotSet"
    assert world.conditions("train")["Quota"] == "Under"
    world.given_machines(1)
    assert world.node_counts("train") == (2, 0, 2)


def test_a_pool_that_may_replace_a_lost_node_is_within_a_lowered_limit_whatever_is_edited(
    world: WorldHarness,
) -> None:
    # given a NodePool with more Nodes than a lowered limit, of which one is lost for good
    world.given_data_center(machines=5, quota=5)
    world.apply("train", 5, lifecycle=EVICTING)
    world.given_quota(3)
    world.break_machines("n1", fault="gpu-lost")
    world.pass_time(minutes=2)
    lost = world.conditions("train")["Quota"]
    world.start_recording()

    # when its labels are edited, and it wants more Nodes and then as many as before
    world.apply("train", 5, lifecycle=EVICTING, metadata={"labels": {"team": "red"}})
    edited = world.conditions("train")["Quota"]
    world.scale("train", 6)
    more = world.conditions("train")["Quota"]
    world.scale("train", 5)

    # then its grant still covers what it wants, and the lost Node is replaced
    assert (lost, edited, more) == ("Under", "Under", "Over")
    assert world.conditions("train")["Quota"] == "Under"
    assert world.events("train") == ["CWNodePoolMetadata", "CWOverQuota"]
    world.given_machines(1)
    assert world.node_counts("train").current == 5


def test_a_pool_that_is_to_keep_nodes_after_all_keeps_its_grant_for_them(
    world: WorldHarness,
) -> None:
    # given a pool of five Nodes that is to have one, of which two have left
    world.given_data_center(quota=5)
    world.apply("train", 5, lifecycle=EVICTING)
    for node in ("n1", "n2", "n3"):
        world.run_pod(node)
    world.scale("train", 1)
    world.apply("serve", 2)
    shrinking = world.granted_nodes("train")

    # when it is to have five again, and loses a Node
    world.scale("train", 5)
    world.break_machines("n1", fault="gpu-lost")
    world.stop_pod("n1")

    # then it keeps the three that are left, and the lost Node is replaced
    assert shrinking == 3
    assert world.granted_nodes("train") == 3
    assert world.node_counts("train") == (5, 0, 3)
    assert world.conditions("serve")["Quota"] == "Under"


def test_an_invalid_pool_has_no_grant_beyond_its_nodes(world: WorldHarness) -> None:
    # given a pool with a grant of five and two Nodes, and another pool that waits
    world.given_data_center(machines=2, quota=5)
    world.apply("train", 5, lifecycle=EVICTING)
    world.apply("serve", 3)
    before = world.granted_nodes("train"), world.conditions("serve")["Quota"]

    # when it becomes invalid, and a Node of it is lost
    world.apply("train", 5, lifecycle=EVICTING, region="US-WEST-04A")
    after = world.granted_nodes("train"), world.conditions("serve")["Quota"]
    world.break_machines("n1", fault="gpu-lost")

    # then its grant is what it has
    assert before == (5, "Over")
    assert after == (2, "Under")
    assert world.granted_nodes("train") == 1


def test_an_invalid_pool_without_nodes_leaves_no_trace_in_quota(world: WorldHarness) -> None:
    world.given_data_center(machines=0, quota=5)
    before = world.world.state("quota")

    world.apply("train", 5)
    world.apply("train", 5, region="US-WEST-04A")

    after = world.world.state("quota")
    assert isinstance(after, QuotaState)
    assert replace(after, numbers=Map()) == before
    assert world.granted_nodes("train") == 0


def test_a_pool_that_was_invalid_twice_gives_back_a_late_grant(world: WorldHarness) -> None:
    # given a pool without Nodes that was granted none, and then was invalid
    world.given_data_center(machines=0, quota=0)
    world.apply("train", 5)
    world.apply("train", 5, region="US-WEST-04A")
    world.given_quota(5)

    # when it is granted Nodes for a valid version after an invalid version has followed
    with world.paused("quota"):
        world.apply("train", 5)
        world.apply("train", 5, region="US-WEST-04A")

    # then nothing stays reserved for it
    assert [quota["used"] for quota in world.documents("quotas").values()] == [0]


def test_pools_that_one_lowered_limit_makes_wait_are_served_by_creation(
    world: WorldHarness,
) -> None:
    # given two pools without Nodes, of which the older one was invalid for a while
    world.given_data_center(machines=0, quota=6)
    world.apply("older", 3)
    world.pass_time(seconds=1)
    world.apply("newer", 3)
    world.apply("older", 3, region="US-WEST-04A")
    world.apply("older", 3)

    # when the limit is lowered below both, and raised for one of them
    world.given_quota(0)
    world.given_quota(3)

    assert world.conditions("older")["Quota"] == "Under"
    assert world.conditions("newer")["Quota"] == "Over"


def test_a_lowered_limit_leaves_what_there_is_to_the_oldest_pools(harness: Harness) -> None:
    # given three pools that wait for machines
    harness.given_data_center(machines=0, quota=6)
    for pool in ("oldest", "older", "newest"):
        harness.apply(pool, 2)

    # when the limit is lowered to the targets of two pools
    harness.given_quota(4)

    # then the newest waits, though the grant of the oldest was given back first
    quota = [harness.conditions(pool)["Quota"] for pool in ("oldest", "older", "newest")]
    assert quota == ["Under", "Under", "Over"]


def test_a_lowered_limit_leaves_what_there_is_to_an_older_and_larger_pool(
    harness: Harness,
) -> None:
    harness.given_data_center(machines=0, quota=6)
    harness.apply("older", 4)
    harness.apply("newer", 2)

    harness.given_quota(4)

    assert harness.conditions("older")["Quota"] == "Under"
    assert harness.condition("newer", "Quota") == (
        "False Over: targetNodes 2 exceeds quota 4 for gd-8xh100ib-i128 (4 used by 1 other pool)"
    )


@pytest.mark.parametrize("oldest", ["large", "small"])
def test_a_lowered_limit_serves_the_longest_wait_whatever_is_given_back_first(
    harness: Harness, oldest: str
) -> None:
    # given three pools without Nodes, and a fourth that waits, of which one was created first
    harness.given_data_center(machines=0, quota=16)
    harness.apply(oldest, 0)
    for pool, target in (("small", 4), ("tiny", 1), ("medium", 6), ("large", 8)):
        harness.apply(pool, target)

    # when the limit is lowered to what the fourth needs beside the smallest pool
    harness.given_quota(10)

    # then these two have what they want
    quota = {pool: harness.conditions(pool)["Quota"] for pool in ("large", "small", "medium")}
    assert quota == {"large": "Under", "small": "Over", "medium": "Over"}
    assert harness.conditions("tiny")["Quota"] == "Under"


def test_a_limit_raised_again_at_once_grants_what_was_not_given_back_yet(
    world: WorldHarness,
) -> None:
    world.given_data_center(machines=0, quota=6)
    for pool in ("oldest", "older", "newest"):
        world.apply(pool, 2)

    with world.paused("allocator"):
        world.given_quota(4)
        world.given_quota(6)
        quota = [world.conditions(pool)["Quota"] for pool in ("oldest", "older", "newest")]

    assert quota == ["Under", "Under", "Under"]


def test_a_limit_lowered_and_raised_again_grants_what_it_did_before(harness: Harness) -> None:
    harness.given_data_center(machines=2, quota=5)
    harness.apply("train", 3)
    harness.given_quota(1)
    harness.start_recording()

    harness.given_quota(5)

    assert harness.messages("train") == [
        "QuotaChecked Under 3",
        "CapacityChecked NoneAvailable 0",
        "CWInsufficientCapacity",
    ]
    assert harness.conditions("train")["Quota"] == "Under"


def test_an_over_quota_pool_may_shrink_to_what_is_free(harness: Harness) -> None:
    harness.given_data_center(quota=5)
    harness.apply("train", 3)
    harness.apply("serve", 2)
    harness.given_quota(3)

    harness.scale("train", 1)

    assert harness.node_counts("train") == (1, 0, 1)
    assert harness.conditions("train")["Quota"] == "Under"
    assert harness.conditions("serve")["Quota"] == "Under"


def test_one_of_two_pools_that_exceed_a_limit_together_is_over_quota(harness: Harness) -> None:
    harness.given_data_center(quota=3)

    with harness.sent_together():
        harness.apply("train", 2)
        harness.apply("serve", 2)

    assert harness.conditions("train")["Quota"] == "Under"
    assert harness.conditions("serve")["Quota"] == "Over"
    assert harness.nodes("train") == ["n1", "n2"]
    assert harness.nodes("serve") == []


def test_a_shrinking_pool_gives_back_its_grant_when_its_nodes_are_gone(world: WorldHarness) -> None:
    world.given_data_center(quota=2)
    world.apply("train", 2)
    world.apply("serve", 1)
    world.run_pod("n1")
    world.run_pod("n2")
    world.start_recording()

    world.scale("train", 1)
    shrinking = world.conditions("serve")["Quota"], world.messages("serve")
    world.stop_pod("n2")

    assert shrinking == ("Over", [])
    assert world.conditions("serve")["Quota"] == "Under"
    assert world.nodes("train") == ["n1"]
    assert world.nodes("serve") == ["n3"]


def test_a_deleted_pool_gives_back_its_grant_when_it_is_gone(world: WorldHarness) -> None:
    world.given_data_center(quota=2)
    world.apply("train", 2)
    world.apply("serve", 2)
    world.run_pod("n1", graceS=60)

    world.delete("train")
    leaving = world.conditions("serve")["Quota"]
    world.pass_time(minutes=1)

    assert leaving == "Over"
    assert world.node_pool("train") is None
    assert world.conditions("serve")["Quota"] == "Under"
    assert world.node_counts("serve") == (2, 0, 2)


def test_pools_that_wait_for_quota_are_checked_in_order_of_arrival(
    harness: Harness,
) -> None:
    harness.given_data_center(quota=0)
    harness.apply("train", 2)
    harness.apply("serve", 2)
    harness.apply("batch", 1)

    harness.given_quota(3)

    assert harness.nodes("train") == ["n1", "n2"]
    assert harness.nodes("serve") == []
    assert harness.nodes("batch") == ["n3"]


def test_a_pool_that_waits_for_quota_keeps_its_place_when_scaled(
    harness: Harness,
) -> None:
    harness.given_data_center(quota=0)
    harness.apply("train", 3)
    harness.apply("serve", 2)
    harness.scale("train", 2)

    harness.given_quota(2)

    assert harness.conditions("train")["Quota"] == "Under"
    assert harness.conditions("serve")["Quota"] == "Over"


def test_an_invalid_pool_does_not_wait_for_quota(harness: Harness) -> None:
    harness.given_data_center(quota=0)
    harness.apply("train", 3)
    harness.apply("train", 3, region="US-EAST-01A")
    harness.start_recording()

    harness.given_quota(5)

    assert harness.messages("train") == []
    assert harness.conditions("train")["Validated"] == "Invalid"


def test_a_newcomer_does_not_overtake_a_pool_that_waits(harness: Harness) -> None:
    harness.given_data_center(quota=0)
    harness.apply("waiting", 5)

    with harness.sent_together():
        harness.given_quota(5)
        harness.apply("newcomer", 5)

    assert harness.conditions("waiting")["Quota"] == "Under"
    assert harness.conditions("newcomer")["Quota"] == "Over"


def test_a_pool_that_waits_does_not_move_ahead_with_a_label(harness: Harness) -> None:
    harness.given_data_center(quota=0)
    harness.apply("train", 2)
    harness.apply("serve", 2)

    with harness.sent_together():
        harness.given_quota(2)
        harness.apply("serve", 2, metadata={"labels": {"team": "blue"}})

    assert harness.conditions("train")["Quota"] == "Under"
    assert harness.conditions("serve")["Quota"] == "Over"


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"labels": {"team": "blue"}}},
        {"metadata": {"annotations": {"team": "blue"}}},
        {"nodeLabels": {"team": "blue"}},
        {"lifecycle": {"scaleDownStrategy": "PreferIdle"}},
    ],
    ids=",".join,
)
def test_a_pool_that_waits_keeps_its_place_whatever_changes_but_its_target(
    harness: Harness, change: Mapping[str, Any]
) -> None:
    harness.given_data_center(quota=0)
    harness.apply("train", 2)
    harness.apply("serve", 2)

    harness.apply("train", 2, **change)
    harness.given_quota(2)

    assert harness.conditions("train")["Quota"] == "Under"
    assert harness.conditions("serve")["Quota"] == "Over"


def test_a_pool_that_waits_goes_to_the_end_with_a_higher_target(harness: Harness) -> None:
    harness.given_data_center(quota=0)
    harness.apply("train", 2)
    harness.apply("serve", 3)

    harness.scale("train", 3)
    harness.given_quota(3)

    assert harness.conditions("train")["Quota"] == "Over"
    assert harness.conditions("serve")["Quota"] == "Under"


def test_a_pool_that_was_invalid_waits_at_the_end(harness: Harness) -> None:
    harness.given_data_center(quota=0)
    harness.apply("train", 2)
    harness.apply("serve", 2)

    harness.apply("train", 2, region="US-WEST-04A")
    harness.apply("train", 2)
    harness.given_quota(2)

    assert harness.conditions("train")["Quota"] == "Over"
    assert harness.conditions("serve")["Quota"] == "Under"


def test_a_pool_that_could_not_be_validated_keeps_its_place(world: WorldHarness) -> None:
    world.given_data_center(quota=0)
    world.apply("train", 2)
    world.apply("serve", 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("validator.objects.verdict", None)
        world.apply("train", 2, metadata={"labels": {"team": "blue"}})
    failed = world.conditions("train")["Validated"]

    world.pass_time(minutes=1)
    world.given_quota(2)

    assert failed == "InternalError"
    assert world.conditions("train")["Quota"] == "Under"
    assert world.conditions("serve")["Quota"] == "Over"


def test_what_a_lowered_limit_leaves_is_given_to_a_pool_that_waits(harness: Harness) -> None:
    # given a pool that may have 5 Nodes, has the 2 that there are, and another that waits
    harness.given_data_center(machines=2, quota=5)
    harness.apply("train", 5)
    harness.apply("serve", 1)

    # when the limit is lowered to 3
    harness.given_quota(3)

    # then the third goes to the other
    assert harness.condition("train", "Quota") == (
        "False Over: targetNodes 5 exceeds quota 3 for gd-8xh100ib-i128 (1 used by 1 other pool)"
    )
    assert harness.conditions("serve")["Quota"] == "Under"
    assert harness.nodes("train") == ["n1", "n2"]


def test_a_pool_that_fits_but_waits_for_another_says_so(world: WorldHarness) -> None:
    # given a NodePool with a grant for 6 Nodes that it does not have, and another that waits
    world.given_cluster()
    world.given_quota(8)
    world.apply("train", 6)
    world.apply("serve", 5)

    # when the limit falls and rises again while the allocator cannot confirm the smaller grants
    with world.paused("allocator"):
        world.given_quota(5)
        world.given_quota(8)
        waiting = world.condition("train", "Quota")

    # then the message does not say that 6 exceeds 8
    assert waiting == (
        "False Over: targetNodes 6 fits quota 8 for gd-8xh100ib-i128, "
        "but a NodePool that has waited longer comes first"
    )


def test_the_message_of_a_pool_that_waits_names_the_numbers_of_now(harness: Harness) -> None:
    harness.given_data_center(quota=8)
    harness.apply("train", 12)

    def message() -> str:
        return harness.condition("train", "Quota").partition(": ")[2]

    messages = [message()]
    for limit in (10, 2):
        harness.given_quota(limit)
        messages.append(message())
    harness.apply("serve", 2)
    messages.append(message())
    harness.apply("batch", 0)
    messages.append(message())

    assert messages == [
        "targetNodes 12 exceeds quota 8 for gd-8xh100ib-i128",
        "targetNodes 12 exceeds quota 10 for gd-8xh100ib-i128",
        "targetNodes 12 exceeds quota 2 for gd-8xh100ib-i128",
        "targetNodes 12 exceeds quota 2 for gd-8xh100ib-i128 (2 used by 1 other pool)",
        "targetNodes 12 exceeds quota 2 for gd-8xh100ib-i128 (2 used by 1 other pool)",
    ]


def test_a_pool_that_was_never_valid_leaves_no_trace_in_quota(world: WorldHarness) -> None:
    world.given_cluster()
    for number, name in enumerate(("typo", "a b", "a/b")):
        world.apply(f"train-{number}", 3, name)

    for number in range(3):
        world.delete(f"train-{number}")

    assert world.world.state("quota") == QuotaState()
    assert world.documents("quotas") == {}
    assert world.dead_letters() == []


def test_a_check_that_failed_is_made_again_when_the_limit_is_raised(harness: Harness) -> None:
    harness.given_data_center(quota=2)
    harness.apply("train", 2)
    harness.publish("np.evt.validator.acme.prod.train.NodePoolValidated", b"{}")
    failed = harness.conditions("train")["Quota"]

    harness.given_quota(3)

    assert failed == "InternalError"
    assert harness.conditions("train")["Quota"] == "Under"
    assert harness.node_counts("train") == (2, 0, 2)


def test_a_check_that_failed_is_made_again_after_a_minute(world: WorldHarness) -> None:
    world.given_data_center()
    world.apply("train", 1)
    world.publish("np.evt.validator.acme.prod.train.NodePoolValidated", b'{"data": {}}')
    failed = world.condition("train", "Quota")

    world.pass_time(minutes=1)

    assert failed == "Unknown InternalError: internal error while checking quota: id is required"
    assert world.conditions("train")["Quota"] == "Under"


def test_a_bug_that_one_pool_brings_up_is_shown_by_it_and_stops_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given three pools that wait, and a bug that the check of one of them brings up
    world = WorldHarness()
    world.given_data_center(quota=0)
    for pool in ("before", "bad", "after"):
        world.apply(pool, 1)

    def check(pool: Pool, ledger: Ledger) -> QuotaChecked:
        if pool.key.endswith("/bad"):
            raise LookupError("broken")
        return verdict(pool, ledger)

    # when the limit is raised, and the bug mended an hour later
    with monkeypatch.context() as patch:
        patch.setattr("quota.checks.verdict", check)
        world.given_quota(5)
        raised = [world.conditions(pool)["Quota"] for pool in ("before", "bad", "after")]
        world.pass_time(minutes=60)
    world.pass_time(minutes=15)

    # then it alone has to wait for that, and people are told once
    assert raised == ["Under", "InternalError", "Under"]
    assert world.conditions("bad")["Quota"] == "Under"
    assert world.event_messages("bad", "CWNodePoolQuotaCheckFailed") == [
        "internal error while checking quota: LookupError: broken"
    ]
    assert world.replay_differs() == []


def test_a_limit_that_is_unset_removes_no_node_and_grants_none(harness: Harness) -> None:
    harness.given_data_center(machines=2, quota=3)
    harness.apply("train", 3)
    unset = {"zone": ZONE, "instanceType": H100}

    outcomes = harness.outcomes(harness.send("DeleteQuota", org_path(ORG), unset))
    again = harness.outcomes(harness.send("DeleteQuota", org_path(ORG), unset))
    harness.given_machines(1)

    assert outcomes == ["deleted"]
    assert again == ["NotFound instanceType: no quota is set for gd-8xh100ib-i128 in US-EAST-04A"]
    assert harness.conditions("train")["Quota"] == "NotSet"
    assert harness.nodes("train") == ["n1", "n2"]


def test_a_limit_of_zero_that_is_unset_shrinks_no_grant_again() -> None:
    # given a spot pool that is Over with its two Nodes, and one that wants none
    world = WorldHarness()
    world.given_data_center(machines=2, quota=2)
    world.apply("train", 2, computeClass="spot")
    world.apply("idle", 0)
    world.given_quota(0)

    # when the limit is unset while one of the Nodes is gone and not replaced yet
    world.preempt("train", "n1")
    with world.paused("allocator"):
        world.pass_time(minutes=8)
        world.send("DeleteQuota", org_path(ORG), {"zone": ZONE, "instanceType": H100})

    # then the grant is what it was, and replaced within it; both pools say that none is set
    assert world.nodes("train") == ["n1", "n2"]
    assert world.conditions("train")["Quota"] == "NotSet"
    assert world.conditions("idle")["Quota"] == "NotSet"
    assert world.replay_differs() == []
