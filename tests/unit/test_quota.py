"""How many Nodes quota grants: the verdict on a NodePool."""

import pytest
from immutables import Map

from contracts.samples import KIND, ZONE
from nodepool.contract.commands import SetQuota
from nodepool.contract.conditions import Quota, Validated
from nodepool.contract.keys import PoolKey
from nodepool.contract.model import NodePoolSpec
from quota.state import State
from unit.quota_service import (
    QuotaService,
    configured,
    deleting,
    exceeds,
    pool_deleted,
    released,
    verdict,
    warning,
)

A100, WEST = "gd-8xa100-i128", "RNO2A"


# The verdict on a NodePool.


def test_a_target_within_the_limit_is_granted() -> None:
    quota = QuotaService()
    quota.set_limit(8)

    outputs = quota.specify("train", 8)

    assert outputs == [verdict("train", Quota.UNDER, granted=8, limit=8, used=8)]


def test_where_no_limit_was_ever_set_nothing_is_granted() -> None:
    quota = QuotaService()

    outputs = quota.specify("train", 3)

    text = f"no quota is set for {KIND} in {ZONE}, and targetNodes is 3"
    assert outputs == [
        verdict("train", Quota.NOT_SET, granted=0, limit=None, used=0, message=text),
        warning("train", text),
    ]


def test_a_target_above_the_limit_is_not_granted_and_the_message_gives_the_numbers() -> None:
    quota = QuotaService()
    quota.set_limit(8)
    quota.specify("one", 4)
    quota.specify("two", 2)

    outputs = quota.specify("train", 12)

    text = exceeds(12, 8, "6 used by 2 other pools")
    assert outputs == [
        verdict("train", Quota.OVER, granted=0, limit=8, used=6, message=text),
        warning("train", text),
    ]


def test_the_message_names_a_single_other_pool_in_the_singular() -> None:
    quota = QuotaService()
    quota.set_limit(8)
    quota.specify("one", 4)

    outputs = quota.specify("train", 5)

    text = exceeds(5, 8, "4 used by 1 other pool")
    assert outputs == [
        verdict("train", Quota.OVER, granted=0, limit=8, used=4, message=text),
        warning("train", text),
    ]


@pytest.mark.parametrize("granted", [1, 5])
def test_a_target_that_grows_beyond_the_limit_keeps_the_grant_it_had(granted: int) -> None:
    quota = QuotaService()
    quota.set_limit(8)
    quota.specify("train", granted)

    outputs = quota.specify("train", 9)

    # then its own grant is not named as used by others
    text = exceeds(9, 8)
    assert outputs == [
        verdict(
            "train", Quota.OVER, granted=granted, limit=8, used=granted, generation=2, message=text
        ),
        warning("train", text),
    ]


def test_a_target_that_shrinks_and_is_still_over_the_limit_is_granted_no_more_than_itself() -> None:
    quota = QuotaService()
    quota.set_limit(8)
    quota.specify("train", 8)
    quota.assign("train", 3)
    quota.specify("other", 5)
    quota.set_limit(2)

    outputs = quota.specify("train", 4)

    text = exceeds(4, 2)
    assert outputs == [
        verdict(
            "train",
            Quota.OVER,
            granted=3,
            limit=2,
            used=8,
            generation=2,
            number=2,
            message=text,
        ),
        warning("train", text),
    ]


def test_a_target_that_is_not_above_the_nodes_of_its_pool_fits_any_limit() -> None:
    quota = QuotaService()
    quota.set_limit(8)
    quota.specify("train", 8)
    quota.assign("train", 8)

    lowered, shrinking = quota.set_limit(2), quota.specify("train", 4)

    fits = verdict("train", Quota.UNDER, granted=8, limit=2, used=8)
    shrinks = verdict("train", Quota.UNDER, granted=4, limit=2, used=8, generation=2, number=2)
    assert lowered == [*configured(2, granted=8), fits]
    assert shrinking == [shrinks]


def test_all_clusters_of_an_organisation_in_a_zone_share_one_limit() -> None:
    quota = QuotaService()
    quota.set_limit(8)
    quota.specify("acme/east/one", 6)

    outputs = quota.specify("acme/west/two", 3)

    text = exceeds(3, 8, "6 used by 1 other pool")
    assert outputs == [
        verdict("acme/west/two", Quota.OVER, granted=0, limit=8, used=6, message=text),
        warning("acme/west/two", text),
    ]


def test_other_organisations_zones_and_instance_types_have_limits_of_their_own() -> None:
    # given a limit that is used up
    quota = QuotaService()
    quota.set_limit(8)
    quota.specify("train", 8)

    # and the same limit for another organisation, another instance type, and in another zone
    quota.set_limit(8, org="other")
    quota.hears(SetQuota(org="acme", zone=ZONE, instance_type=A100, limit=8))
    quota.hears(SetQuota(org="acme", zone=WEST, instance_type=KIND, limit=8))

    # when NodePools need all of each
    outputs = [
        *quota.specify("other/prod/train", 8),
        *quota.specify("a100", 8, spec=NodePoolSpec(instance_type=A100, target_nodes=8)),
        *quota.specify("reno", 8, zone=WEST),
    ]

    # then each has all of it
    def whole(pool: str, **fields: object) -> object:
        all_of_it = verdict(pool, Quota.UNDER, granted=8, limit=8, used=8)
        return all_of_it.model_copy(update=fields)

    assert outputs == [
        whole("other/prod/train"),
        whole("a100", instance_type=A100),
        whole("reno", zone=WEST),
    ]


def test_a_target_of_0_is_within_any_limit() -> None:
    quota = QuotaService()
    quota.set_limit(0)

    outputs = quota.specify("train", 0)

    assert outputs == [verdict("train", Quota.UNDER, granted=0, limit=0, used=0)]


def test_of_a_pool_that_was_never_valid_nothing_is_said_and_nothing_kept() -> None:
    quota = QuotaService()

    outputs = [
        *quota.specify("train", 3, reason=Validated.INVALID),
        *quota.specify(
            "odd",
            3,
            spec=NodePoolSpec(instance_type="a/b", target_nodes=3),
            reason=Validated.INVALID,
        ),
        *quota.hears(deleting("train"), pool_deleted("train"), pool_deleted("odd")),
    ]

    assert outputs == []
    assert quota.state == State()


def test_a_pool_that_waited_and_becomes_invalid_leaves_its_number_alone_behind() -> None:
    quota = QuotaService()
    quota.specify("train", 3)

    outputs = quota.specify("train", 3, reason=Validated.INVALID)

    assert outputs == [released("train", granted=0, used=0)]
    assert quota.state == State(numbers=Map({PoolKey("acme/prod/train"): 1}))


def test_a_pool_that_becomes_invalid_keeps_its_grant_and_waits_no_more() -> None:
    # given a NodePool that waits for more than it has
    quota = QuotaService()
    quota.set_limit(8)
    quota.specify("train", 5)
    quota.specify("train", 9)

    # when its spec becomes invalid, and the limit is raised
    invalid = quota.specify("train", 9, reason=Validated.INVALID)
    raised = quota.set_limit(100)

    # then it gets nothing, and loses nothing
    assert invalid == []
    assert raised == configured(100, granted=5)
    assert quota.ledger.used == 5


def test_the_same_target_again_has_the_same_verdict_and_no_second_warning() -> None:
    quota = QuotaService()
    quota.set_limit(8)

    first = quota.specify("train", 9)
    second = quota.specify("train", 9)

    text = exceeds(9, 8)
    over = verdict("train", Quota.OVER, granted=0, limit=8, used=0, message=text)
    assert first == [over, warning("train", text)]
    assert second == [over.model_copy(update={"generation": 2})]
