"""NodePools that wait for quota: who is served, in which order, and who goes to the end."""

from contracts.samples import KIND
from nodepool.contract.conditions import Quota, Validated
from unit.quota_service import (
    QuotaService,
    acknowledged,
    configured,
    deleting,
    exceeds,
    limit_of,
    node_deleted,
    released,
    specified,
    verdict,
    warning,
)


def waiting_for(limit: int, **targets: int) -> QuotaService:
    """A service with this limit, and NodePools with these targets in their order."""
    quota = QuotaService()
    quota.set_limit(limit)
    for pool, target in targets.items():
        quota.specify(pool, target)
    return quota


def test_a_raised_limit_serves_waiting_pools_in_the_order_in_which_they_began_to_wait() -> None:
    # given that "late" was there first, and was the last to want more than it may have
    quota = waiting_for(4, late=0, first=5, second=6)
    quota.specify("late", 7)

    # when the limit leaves room for two of the three
    outputs = quota.set_limit(12)

    # then it serves the two that have waited longest
    text = exceeds(7, 12, "11 used by 2 other pools")
    assert outputs == [
        *configured(12, granted=0),
        verdict("first", Quota.UNDER, granted=5, limit=12, used=5, number=2),
        verdict("second", Quota.UNDER, granted=6, limit=12, used=11, number=2),
        verdict("late", Quota.OVER, granted=0, limit=12, used=11, generation=2, message=text),
        warning("late", text),
    ]


def test_a_small_pool_is_served_although_a_large_one_before_it_does_not_fit() -> None:
    quota = waiting_for(1, large=10, small=2)

    outputs = quota.set_limit(4)

    text = exceeds(10, 4, "2 used by 1 other pool")
    assert outputs == [
        *configured(4, granted=0),
        verdict("small", Quota.UNDER, granted=2, limit=4, used=2, number=2),
        verdict("large", Quota.OVER, granted=0, limit=4, used=2, message=text),
        warning("large", text),
    ]


def test_a_small_pool_waits_while_a_large_one_before_it_fits_what_is_given_back() -> None:
    # given a pool that gives back 8 Nodes, and two that wait, of which the first fits after that
    quota = waiting_for(8, train=8, large=4, small=1)
    quota.set_limit(7)

    # when the limit leaves room for the second, and then the allocator reads of the smaller grant
    raised = quota.set_limit(9)
    confirmed = quota.hears(acknowledged("train", 0, number=2))

    # then nobody is served before the first, and each of the others has the numbers after that
    fits = f"fits quota 9 for {KIND}, but a NodePool that has waited longer comes first"
    large, train = exceeds(4, 9, "8 used by 1 other pool"), f"targetNodes 8 {fits}"
    assert raised == [
        *configured(9, granted=8),
        verdict("large", Quota.OVER, granted=0, limit=9, used=8, message=large),
        warning("large", large),
        verdict("small", Quota.OVER, granted=0, limit=9, used=8, message=f"targetNodes 1 {fits}"),
        warning("small", f"targetNodes 1 {fits}"),
        verdict("train", Quota.OVER, granted=0, limit=9, used=8, number=2, message=train),
        warning("train", train),
    ]
    assert confirmed == [
        released("train", granted=0, used=0),
        verdict("large", Quota.UNDER, granted=4, limit=9, used=4, number=2),
        verdict("small", Quota.UNDER, granted=1, limit=9, used=5, number=2),
        verdict(
            "train",
            Quota.OVER,
            granted=0,
            limit=9,
            used=5,
            number=2,
            message=exceeds(8, 9, "5 used by 2 other pools"),
        ),
    ]


def test_a_newcomer_does_not_take_the_room_of_a_pool_that_fits_what_is_given_back() -> None:
    # given a pool that gives back 8 Nodes, and another that waits for 4 of them
    quota = waiting_for(8, train=8, large=9)
    quota.set_limit(7)
    quota.set_limit(9)

    newcomer = quota.specify("newcomer", 1)
    quota.hears(acknowledged("train", 0, number=2))

    text = f"targetNodes 1 fits quota 9 for {KIND}, but a NodePool that has waited longer"
    assert newcomer == [
        verdict("newcomer", Quota.OVER, granted=0, limit=9, used=8, message=f"{text} comes first"),
        warning("newcomer", f"{text} comes first"),
    ]
    assert quota.line == ["train", "newcomer"]


def test_a_pool_that_wants_no_more_than_its_grant_waits_for_no_other() -> None:
    # given a pool that gives back 5 Nodes, another that waits for them, and a third that waits too
    # and has lost one of the two Nodes of its grant
    quota = waiting_for(8, train=5, large=6, own=2)
    quota.assign("own", 2)
    quota.specify("own", 4)
    quota.set_limit(6)
    quota.hears(node_deleted("own", 0))
    quota.set_limit(8)

    outputs = quota.specify("own", 2)

    assert outputs == [verdict("own", Quota.UNDER, granted=2, limit=8, used=7, generation=3)]
    assert quota.line == ["large", "train"]


def test_a_small_pool_is_served_once_a_large_one_before_it_is_deleted() -> None:
    # given a pool that gives back 6 Nodes, a pool with 2 Nodes that waits for 4 of them, and a
    # small pool for which there is room
    quota = waiting_for(8, large=2, train=6)
    quota.assign("large", 2)
    quota.specify("large", 6)
    quota.specify("small", 1)
    quota.set_limit(7)
    quota.set_limit(9)
    waiting = quota.line

    outputs = quota.hears(deleting("large"))

    assert waiting == ["large", "small", "train"]
    assert verdict("small", Quota.UNDER, granted=1, limit=9, used=9, number=2) in outputs


def test_a_pool_that_was_served_waits_no_more() -> None:
    quota = waiting_for(4, train=5)
    quota.set_limit(5)

    outputs = quota.set_limit(6)

    assert outputs == configured(6, granted=5)
    assert quota.line == []


def test_a_limit_that_is_set_for_the_first_time_serves_the_pools_that_wait_for_it() -> None:
    quota = QuotaService()
    quota.specify("train", 3)

    outputs = quota.set_limit(8)

    assert outputs == [
        *configured(8, granted=0),
        verdict("train", Quota.UNDER, granted=3, limit=8, used=3, number=2),
    ]


def test_a_newcomer_in_the_same_batch_as_a_raised_limit_does_not_overtake_a_pool_that_waits() -> (
    None
):
    quota = waiting_for(0, waiting=5)

    outputs = [*quota.process(limit_of(5)), *quota.process(specified("newcomer", 5))]

    text = exceeds(5, 5, "5 used by 1 other pool")
    assert outputs == [
        *configured(5, granted=0),
        verdict("waiting", Quota.UNDER, granted=5, limit=5, used=5, number=2),
        verdict("newcomer", Quota.OVER, granted=0, limit=5, used=5, message=text),
        warning("newcomer", text),
    ]


def test_a_newcomer_in_the_same_batch_as_a_release_does_not_overtake_a_pool_that_waits() -> None:
    # given that "waiting" waits for what "train" has just given up
    quota = waiting_for(4, train=4, waiting=3)
    quota.specify("train", 1)

    # when the release and the newcomer come one right after the other
    outputs = [
        quota.process(acknowledged("train", 1, number=2)),
        quota.process(specified("newcomer", 3)),
    ]

    # then the one that waited is served in the step of the release
    text = exceeds(3, 4, "4 used by 2 other pools")
    assert outputs == [
        [
            released("train", granted=1, used=1),
            verdict("waiting", Quota.UNDER, granted=3, limit=4, used=4, number=2),
        ],
        [
            verdict("newcomer", Quota.OVER, granted=0, limit=4, used=4, message=text),
            warning("newcomer", text),
        ],
    ]


def test_a_waiter_goes_to_the_end_of_the_line_with_a_higher_target_only() -> None:
    quota = waiting_for(0, first=2, second=2, third=2)

    quota.hears(specified("first", 2, generation=1, labels={"team": "blue"}))
    relabelled = quota.line
    quota.specify("second", 3)

    assert relabelled == ["first", "second", "third"]
    assert quota.line == ["first", "third", "second"]


def test_a_waiter_that_lowers_its_target_keeps_its_place() -> None:
    quota = waiting_for(0, first=3, second=3)

    quota.specify("first", 2)

    assert quota.line == ["first", "second"]


def test_a_waiter_with_a_new_version_is_not_served_before_those_that_wait_longer() -> None:
    quota = waiting_for(0, first=2, second=2)

    raised = quota.process(limit_of(2))
    relabelled = quota.process(specified("second", 2, generation=1, labels={"team": "blue"}))

    text = exceeds(2, 2, "2 used by 1 other pool")
    over = verdict("second", Quota.OVER, granted=0, limit=2, used=2, message=text)
    assert raised == [
        *configured(2, granted=0),
        verdict("first", Quota.UNDER, granted=2, limit=2, used=2, number=2),
        over,
        warning("second", text),
    ]
    assert relabelled == [over]


def test_a_pool_that_was_invalid_is_a_newcomer_once_it_is_valid() -> None:
    quota = waiting_for(0, first=2, second=2)

    quota.specify("first", 2, reason=Validated.INVALID)
    invalid = quota.line
    quota.specify("first", 2)

    assert invalid == ["second"]
    assert quota.line == ["second", "first"]


# What it costs.


def test_of_two_thousand_pools_that_wait_a_newcomer_makes_none_be_checked_again() -> None:
    # given a long line, and a limit that leaves room for a small pool
    quota = QuotaService()
    quota.set_limit(10)
    for number in range(2_000):
        quota.process(specified(f"large-{number}", 20))

    # when small pools come
    first, second = quota.process(specified("small", 1)), quota.process(specified("other", 1))

    # then each has its verdict, and the others are told the new numbers later, at a bounded rate
    assert first == [verdict("small", Quota.UNDER, granted=1, limit=10, used=1)]
    assert second == [verdict("other", Quota.UNDER, granted=1, limit=10, used=2)]
    assert not quota.has_work
    assert quota.due is not None
    assert 19 <= (quota.due - quota.now).total_seconds() <= 20
