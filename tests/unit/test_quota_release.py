"""What a lowered limit does to grants, and when a NodePool gives back what is reserved for it."""

from nodepool.contract.conditions import Quota
from nodepool.contract.events import CWNodeRegistrationFailed
from unit.quota_service import (
    QuotaService,
    acknowledged,
    assigned,
    configured,
    deleting,
    exceeds,
    node_deleted,
    of,
    pool_deleted,
    released,
    uid_of,
    verdict,
    warning,
)
from unit.samples import sample


def two_pools_that_use_the_limit_of_8() -> QuotaService:
    """A service under whose limit of 8 two NodePools have 4 Nodes each."""
    quota = QuotaService()
    quota.set_limit(8)
    quota.specify("one", 4)
    quota.specify("two", 4)
    return quota


# A limit that is lowered.


def test_a_limit_below_what_is_in_use_takes_nothing_away_and_grants_nothing_more() -> None:
    quota = two_pools_that_use_the_limit_of_8()

    outputs = quota.set_limit(5)

    text = exceeds(4, 5, "4 used by 1 other pool")
    assert outputs == [
        *configured(5, granted=8),
        verdict("one", Quota.OVER, granted=4, limit=5, used=8, message=text),
        warning("one", text),
        verdict("two", Quota.OVER, granted=4, limit=5, used=8, message=text),
        warning("two", text),
    ]
    assert quota.ledger.used == 8


def test_pools_are_within_their_quota_again_once_the_limit_is_raised() -> None:
    quota = two_pools_that_use_the_limit_of_8()
    quota.set_limit(5)

    outputs = quota.set_limit(8)

    assert outputs == [
        *configured(8, granted=8),
        verdict("one", Quota.UNDER, granted=4, limit=8, used=8),
        verdict("two", Quota.UNDER, granted=4, limit=8, used=8),
    ]


# A target that shrinks.


def test_a_smaller_target_gives_back_its_grant_as_its_nodes_leave() -> None:
    quota = QuotaService()
    quota.set_limit(4)
    quota.specify("train", 4)
    quota.assign("train", 4)

    smaller = quota.specify("train", 2)
    acknowledgement = quota.hears(acknowledged("train", 2, generation=2))
    first = quota.hears(node_deleted("train", 3))
    second = quota.hears(node_deleted("train", 2))

    assert smaller == [verdict("train", Quota.UNDER, granted=2, limit=4, used=4, generation=2)]
    assert acknowledgement == []
    assert first == [released("train", granted=3, used=3)]
    assert second == [released("train", granted=2, used=2)]


def test_a_grant_is_not_given_to_another_pool_before_the_allocator_acknowledges() -> None:
    # given a NodePool that has all of the limit, and another that waits
    quota = QuotaService()
    quota.set_limit(4)
    quota.specify("train", 4)
    quota.specify("other", 3)

    # when the first one wants less
    smaller = quota.specify("train", 1)
    acknowledgement = quota.hears(acknowledged("train", 1, generation=2))

    # then the other has its share only after the allocator has acknowledged that
    assert smaller == [verdict("train", Quota.UNDER, granted=1, limit=4, used=4, generation=2)]
    assert acknowledgement == [
        released("train", granted=1, used=1),
        verdict("other", Quota.UNDER, granted=3, limit=4, used=4),
    ]


def test_a_node_that_leaves_before_the_acknowledgement_gives_back_nothing() -> None:
    # given a grant of 4, of which the allocator may still assign 3 until it reads the smaller one
    quota = QuotaService()
    quota.set_limit(4)
    quota.specify("train", 4)
    quota.assign("train", 1)
    quota.specify("train", 1)

    deleted = quota.hears(node_deleted("train", 0))
    acknowledgement = quota.hears(acknowledged("train", 1, generation=2))

    assert deleted == []
    assert acknowledgement == [released("train", granted=1, used=1)]


def test_an_acknowledged_older_grant_leaves_the_newer_one_reserved() -> None:
    quota = QuotaService()
    quota.set_limit(4)
    quota.specify("train", 4)
    quota.specify("train", 1)
    quota.specify("train", 3)

    older = quota.hears(acknowledged("train", 1, generation=2))
    newer = quota.hears(acknowledged("train", 3, generation=3))

    assert older == [released("train", granted=3, used=3)]
    assert newer == []
    assert quota.ledger.used == 3


def test_an_acknowledgement_of_an_older_generation_gives_back_where_the_grant_is_the_same() -> None:
    quota = QuotaService()
    quota.set_limit(4)
    quota.specify("train", 4)
    quota.specify("train", 1)
    quota.specify("train", 1)

    outputs = quota.hears(acknowledged("train", 1, generation=2))

    assert outputs == [released("train", granted=1, used=1)]


def test_a_node_that_failed_to_register_stays_reserved_while_its_pool_wants_another() -> None:
    quota = QuotaService()
    quota.set_limit(4)
    quota.specify("train", 2)
    quota.assign("train", 2)

    failed = sample(CWNodeRegistrationFailed, **of("train"), uid=uid_of("train"), assignment=0)
    outputs = quota.hears(failed)

    assert outputs == []
    assert quota.ledger.used == 2


# A NodePool that is deleted.


def test_a_pool_in_deletion_gives_back_its_grant_when_its_object_is_gone() -> None:
    # given a NodePool with two Nodes, and another that waits for one of them
    quota = QuotaService()
    quota.set_limit(4)
    quota.specify("train", 2)
    quota.assign("train", 2)
    quota.specify("other", 3)

    # when the first one is deleted: its Nodes, then the object
    nodes = quota.hears(deleting("train"), node_deleted("train", 0), node_deleted("train", 1))
    gone = quota.hears(pool_deleted("train"))

    # then the other is served once the allocator cannot assign Nodes to the first any more
    assert nodes == []
    assert gone == [
        released("train", granted=0, used=0),
        verdict("other", Quota.UNDER, granted=3, limit=4, used=3),
    ]
    assert list(quota.state.pools) == ["acme/prod/other"]


def test_a_pool_in_deletion_waits_for_nothing() -> None:
    quota = QuotaService()
    quota.set_limit(4)
    quota.specify("train", 9)
    quota.hears(deleting("train"))

    outputs = quota.set_limit(100)

    assert outputs == configured(100, granted=0)


def test_messages_about_an_earlier_pool_of_the_same_name_change_nothing() -> None:
    earlier, present = uid_of("train", life=1), uid_of("train", life=2)
    quota = QuotaService()
    quota.set_limit(8)
    quota.specify("train", 2, uid=present)

    outputs = quota.hears(
        assigned("train", uid=earlier),
        node_deleted("train", uid=earlier),
        acknowledged("train", 0, generation=1, uid=earlier),
        deleting("train", uid=earlier),
    )

    assert outputs == []
    assert quota.ledger.used == 2
