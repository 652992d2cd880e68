"""Quota: limits of organisations, grants to NodePools, and NodePools that wait for a grant."""

from support.constants import A100
from support.harness import Harness
from support.world_harness import WorldHarness


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


def test_a_limit_that_is_raised_too_little_changes_nothing(harness: Harness) -> None:
    harness.given_data_center(quota=1)
    harness.apply("train", 3)
    harness.start_recording()

    harness.given_quota(2)

    assert harness.messages("train") == []
    assert harness.conditions("train")["Quota"] == "Over"


def test_a_limit_lowered_below_its_use_removes_no_node_and_grants_none(harness: Harness) -> None:
    harness.given_data_center(quota=5)
    harness.apply("train", 3)
    harness.apply("serve", 2)
    harness.start_recording()

    harness.given_quota(4)
    lowered = harness.conditions("train")["Quota"], harness.conditions("serve")["Quota"]
    harness.scale("train", 4)

    assert lowered == ("Over", "Over")
    assert harness.events("train") == ["CWOverQuota", "CWOverQuota"]
    assert harness.event_messages("train", "CWOverQuota") == [
        "targetNodes 3 exceeds quota 4 for gd-8xh100ib-i128 (2 used by 1 other pool)",
        "targetNodes 4 exceeds quota 4 for gd-8xh100ib-i128 (2 used by 1 other pool)",
    ]
    assert harness.nodes("train") == ["n1", "n2", "n3"]
    assert harness.nodes("serve") == ["n4", "n5"]


def test_a_limit_lowered_and_raised_again_grants_what_it_did_before(harness: Harness) -> None:
    harness.given_data_center(quota=5)
    harness.apply("train", 3)
    harness.given_quota(1)
    harness.start_recording()

    harness.given_quota(5)

    assert harness.messages("train") == ["QuotaChecked Under 3"]
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
