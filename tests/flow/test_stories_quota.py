"""What an organisation may have: limits, grants, and who waits for them."""

from support.stage import A100, Stage, WorldStage


def test_a_target_above_the_limit_is_over_quota_and_asks_for_no_node(stage: Stage) -> None:
    stage.given_house(quota=2)
    stage.listen()

    stage.apply("train", 3)

    assert stage.story("train") == [
        "CWNodePoolCreated",
        "NodePoolValidated Valid",
        "QuotaChecked Over 0",
        "CWOverQuota",
        "CapacityChecked Sufficient 10",
    ]
    assert stage.condition("train", "Quota") == (
        "False Over: targetNodes 3 exceeds quota 2 for gd-8xh100ib-i128"
    )
    assert stage.counts("train") == (3, 0, 0)
    assert stage.conditions("train")["AtTarget"] == "UnderTarget"


def test_a_message_over_quota_names_what_other_pools_use(stage: Stage) -> None:
    stage.given_house(quota=8)
    stage.apply("train", 4)
    stage.apply("serve", 2)
    stage.listen()

    stage.apply("batch", 12)

    told = "targetNodes 12 exceeds quota 8 for gd-8xh100ib-i128 (6 used by 2 other pools)"
    assert stage.condition("batch", "Quota") == f"False Over: {told}"
    assert stage.messages("batch", "CWOverQuota") == [told]


def test_a_pool_that_grows_over_its_quota_keeps_the_nodes_it_has(stage: Stage) -> None:
    stage.given_house(quota=3)
    stage.apply("train", 2)
    stage.listen()

    stage.scale("train", 4)

    assert stage.events("train") == ["CWOverQuota"]
    assert stage.nodes("train") == ["n1", "n2"]
    assert stage.conditions("train") == {
        "Validated": "Valid",
        "Capacity": "Sufficient",
        "Quota": "Over",
        "AtTarget": "UnderTarget",
    }


def test_a_limit_that_was_never_set_blocks_like_none(stage: Stage) -> None:
    stage.given_cluster()
    stage.given_machines(3)
    stage.listen()

    stage.apply("train", 1)

    assert stage.events("train") == ["CWNodePoolCreated", "CWOverQuota"]
    assert stage.condition("train", "Quota") == (
        "False NotSet: no quota is set for gd-8xh100ib-i128 in US-EAST-04A, and targetNodes is 1"
    )


def test_a_limit_is_of_one_type_in_one_zone_over_all_clusters(stage: Stage) -> None:
    stage.given_house(quota=3)
    stage.given_cluster("lab")
    stage.given_cluster("west", zone="US-WEST-04A")
    stage.given_cluster("prod", org="umbrella")
    stage.given_quota(3, A100)
    stage.given_quota(3, zone="US-WEST-04A")
    stage.given_quota(3, org="umbrella")
    stage.apply("train", 3)

    for pool in ("acme/lab/train", "acme/west/train", "umbrella/prod/train"):
        stage.apply(pool, 3)
    stage.apply("other", 3, A100)

    pools = ("acme/lab/train", "acme/west/train", "umbrella/prod/train", "other")
    assert [stage.conditions(pool)["Quota"] for pool in pools] == [
        "Over",
        "Under",
        "Under",
        "Under",
    ]


def test_a_limit_that_is_raised_serves_the_pool_that_waits(stage: Stage) -> None:
    stage.given_house(quota=1)
    stage.apply("train", 2)
    stage.listen()

    stage.given_quota(2)

    assert stage.story("train") == [
        "QuotaChecked Under 2",
        "CapacityChecked Sufficient 10",
        "CWNodeRequestQueued 2",
        "CWNodeAssigned n1",
        "CWNodeAssigned n2",
        "CWNodeRegistered n1",
        "CWNodeRegistered n2",
    ]
    assert stage.conditions("train")["Quota"] == "Under"


def test_a_limit_that_is_set_for_the_first_time_serves_the_pool_that_waits(stage: Stage) -> None:
    stage.given_cluster()
    stage.given_machines(1)
    stage.apply("train", 1)
    stage.listen()

    stage.given_quota(1)

    assert stage.counts("train") == (1, 0, 1)
    assert stage.conditions("train")["Quota"] == "Under"


def test_a_limit_that_is_raised_too_little_says_nothing_new(stage: Stage) -> None:
    stage.given_house(quota=1)
    stage.apply("train", 3)
    stage.listen()

    stage.given_quota(2)

    assert stage.story("train") == []
    assert stage.conditions("train")["Quota"] == "Over"


def test_a_limit_lowered_below_its_use_takes_nothing_and_adds_nothing(stage: Stage) -> None:
    stage.given_house(quota=5)
    stage.apply("train", 3)
    stage.apply("serve", 2)
    stage.listen()

    stage.given_quota(4)
    lowered = stage.conditions("train")["Quota"], stage.conditions("serve")["Quota"]
    stage.scale("train", 4)

    assert lowered == ("Over", "Over")
    assert stage.events("train") == ["CWOverQuota", "CWOverQuota"]
    assert stage.messages("train", "CWOverQuota") == [
        "targetNodes 3 exceeds quota 4 for gd-8xh100ib-i128 (2 used by 1 other pool)",
        "targetNodes 4 exceeds quota 4 for gd-8xh100ib-i128 (2 used by 1 other pool)",
    ]
    assert stage.nodes("train") == ["n1", "n2", "n3"]
    assert stage.nodes("serve") == ["n4", "n5"]


def test_a_limit_lowered_and_raised_again_is_as_it_was(stage: Stage) -> None:
    stage.given_house(quota=5)
    stage.apply("train", 3)
    stage.given_quota(1)
    stage.listen()

    stage.given_quota(5)

    assert stage.story("train") == ["QuotaChecked Under 3", "CapacityChecked Sufficient 7"]
    assert stage.conditions("train")["Quota"] == "Under"


def test_an_over_quota_pool_may_shrink_to_what_is_free(stage: Stage) -> None:
    stage.given_house(quota=5)
    stage.apply("train", 3)
    stage.apply("serve", 2)
    stage.given_quota(3)

    stage.scale("train", 1)

    assert stage.counts("train") == (1, 0, 1)
    assert stage.conditions("train")["Quota"] == "Under"
    assert stage.conditions("serve")["Quota"] == "Under"


def test_two_pools_that_race_for_the_last_of_a_limit_do_not_share_it(stage: Stage) -> None:
    stage.given_house(quota=3)

    with stage.together():
        stage.apply("train", 2)
        stage.apply("serve", 2)

    assert stage.conditions("train")["Quota"] == "Under"
    assert stage.conditions("serve")["Quota"] == "Over"
    assert stage.nodes("train") == ["n1", "n2"]
    assert stage.nodes("serve") == []


def test_a_shrinking_pool_gives_back_its_grant_when_its_nodes_are_gone(world: WorldStage) -> None:
    world.given_house(quota=2)
    world.apply("train", 2)
    world.apply("serve", 1)
    world.run_pod("n1")
    world.run_pod("n2")
    world.listen()

    world.scale("train", 1)
    shrinking = world.conditions("serve")["Quota"], world.story("serve")
    world.stop_pod("n2")

    assert shrinking == ("Over", [])
    assert world.conditions("serve")["Quota"] == "Under"
    assert world.nodes("train") == ["n1"]
    assert world.nodes("serve") == ["n3"]


def test_a_deleted_pool_gives_back_its_grant_when_it_is_gone(world: WorldStage) -> None:
    world.given_house(quota=2)
    world.apply("train", 2)
    world.apply("serve", 2)
    world.run_pod("n1", graceS=60)

    world.delete("train")
    leaving = world.conditions("serve")["Quota"]
    world.pass_time(minutes=1)

    assert leaving == "Over"
    assert world.shown("train") is None
    assert world.conditions("serve")["Quota"] == "Under"
    assert world.counts("serve") == (2, 0, 2)


def test_pools_that_wait_for_quota_are_looked_at_in_the_order_in_which_they_came(
    stage: Stage,
) -> None:
    stage.given_house(quota=0)
    stage.apply("train", 2)
    stage.apply("serve", 2)
    stage.apply("batch", 1)

    stage.given_quota(3)

    assert stage.nodes("train") == ["n1", "n2"]
    assert stage.nodes("serve") == []
    assert stage.nodes("batch") == ["n3"]


def test_a_pool_that_waits_for_quota_keeps_its_place_while_its_target_changes(stage: Stage) -> None:
    stage.given_house(quota=0)
    stage.apply("train", 3)
    stage.apply("serve", 2)
    stage.scale("train", 2)

    stage.given_quota(2)

    assert stage.conditions("train")["Quota"] == "Under"
    assert stage.conditions("serve")["Quota"] == "Over"


def test_an_invalid_pool_waits_for_no_quota(stage: Stage) -> None:
    stage.given_house(quota=0)
    stage.apply("train", 3)
    stage.apply("train", 3, region="US-EAST-01A")
    stage.listen()

    stage.given_quota(5)

    assert stage.story("train") == []
    assert stage.conditions("train")["Validated"] == "Invalid"
