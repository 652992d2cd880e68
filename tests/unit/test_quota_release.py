"""What a lowered limit does to grants, and when a NodePool gives back what is reserved for it."""

from contracts.samples import sample
from nodepool.contract.conditions import Quota, Validated
from nodepool.contract.events import CWNodeRegistrationFailed
from quota.state import State
from unit.quota_service import (
    QuotaService,
    acknowledged,
    assigned,
    configured,
    deleting,
    exceeds,
    node_deleted,
    not_set,
    of,
    pool_deleted,
    released,
    reserved,
    specified,
    uid_of,
    unlimited,
    unset,
    verdict,
    warning,
)


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
    quota.assign("one", 4)
    quota.assign("two", 4)

    outputs = quota.set_limit(5)

    assert outputs == [
        *configured(5, granted=8),
        verdict("one", Quota.UNDER, granted=4, limit=5, used=8),
        verdict("two", Quota.UNDER, granted=4, limit=5, used=8),
    ]
    assert quota.ledger.used == 8


def test_a_limit_below_what_is_reserved_shrinks_every_grant_to_what_its_pool_holds() -> None:
    # given a pool that may have 5 Nodes and has 2, and another that waits
    quota = QuotaService()
    quota.set_limit(5)
    quota.specify("train", 5)
    quota.assign("train", 2)
    quota.specify("other", 1)

    # when the limit is lowered to 3, and the allocator has read of that
    lowered = quota.set_limit(3)
    acknowledgement = quota.hears(acknowledged("train", 2, number=2))

    # then the third goes to the one that waits
    alone, short = exceeds(5, 3), exceeds(1, 3, "5 used by 1 other pool")
    both = exceeds(5, 3, "1 used by 1 other pool")
    assert lowered == [
        *configured(3, granted=5),
        verdict("train", Quota.OVER, granted=2, limit=3, used=5, number=2, message=alone),
        warning("train", alone),
        verdict("other", Quota.OVER, granted=0, limit=3, used=5, message=short),
        warning("other", short),
    ]
    assert acknowledgement == [
        released("train", granted=2, used=2),
        verdict("other", Quota.UNDER, granted=1, limit=3, used=3, number=2),
        verdict("train", Quota.OVER, granted=2, limit=3, used=3, number=2, message=both),
    ]


def test_a_limit_that_is_lowered_to_what_is_reserved_leaves_every_grant_as_it_is() -> None:
    # given a pool that may have 5 Nodes, has 2, and wants more than the limit allows
    quota = QuotaService()
    quota.set_limit(8)
    quota.specify("train", 5)
    quota.assign("train", 2)
    quota.specify("train", 9)

    outputs = quota.set_limit(5)

    text = exceeds(9, 5)
    assert outputs == [
        *configured(5, granted=5),
        verdict("train", Quota.OVER, granted=5, limit=5, used=5, generation=2, message=text),
        warning("train", text),
    ]


def test_a_grant_that_shrank_covers_the_nodes_that_were_assigned_before_it_was_read() -> None:
    # given a grant that shrinks to nothing with the limit
    quota = QuotaService()
    quota.set_limit(4)
    quota.specify("train", 4)
    quota.set_limit(1)

    # when the allocator assigns two Nodes before it reads of that
    quota.assign("train", 2)
    outputs = quota.process(acknowledged("train", 0, number=2))

    # then the grant is these two at once, so that a lost Node is replaced
    text = exceeds(4, 1)
    assert outputs == [
        released("train", granted=2, used=2),
        verdict("train", Quota.OVER, granted=2, limit=1, used=2, number=3, message=text),
    ]


def test_a_grant_shrinks_once_and_a_later_loss_is_replaced_up_to_it() -> None:
    quota = QuotaService()
    quota.set_limit(5)
    quota.specify("train", 5)
    quota.assign("train", 4)
    quota.set_limit(3)
    quota.hears(acknowledged("train", 4, number=2))

    lost = quota.hears(node_deleted("train", 0))
    raised = quota.set_limit(4)

    text = exceeds(5, 4)
    assert lost == []
    assert raised == [
        *configured(4, granted=4),
        verdict("train", Quota.OVER, granted=4, limit=4, used=4, number=2, message=text),
        warning("train", text),
    ]


def test_a_grant_that_shrank_and_grew_again_before_the_allocator_read_of_it_is_given_back() -> None:
    # given that a limit was lowered, raised and lowered again while the allocator read nothing
    quota = QuotaService()
    quota.set_limit(5)
    quota.specify("train", 5)
    for limit in (1, 5, 2):
        quota.set_limit(limit)

    # when the allocator reads of the first change, and then of the last
    first = quota.hears(acknowledged("train", 0, number=2))
    last = quota.hears(acknowledged("train", 0, number=4))

    # then it gives back what it could have used in between only after the last
    assert first == []
    assert last == [released("train", granted=0, used=0)]


def test_one_acknowledgement_gives_back_all_grants_before_it() -> None:
    # given a grant that shrank, grew and shrank again before the allocator read of any of it
    quota = QuotaService()
    quota.set_limit(5)
    quota.specify("train", 5)
    for limit in (1, 5, 2):
        quota.set_limit(limit)

    # when it acknowledges the last of them only, and the pool is invalid by then
    quota.specify("train", 5, reason=Validated.INVALID)
    outputs = quota.hears(acknowledged("train", 0, number=4))

    assert outputs == [released("train", granted=0, used=0)]


def test_pools_are_within_their_quota_again_once_the_limit_is_raised() -> None:
    quota = two_pools_that_use_the_limit_of_8()
    quota.set_limit(5)

    outputs = quota.set_limit(8)

    assert outputs == [
        *configured(8, granted=8),
        verdict("one", Quota.UNDER, granted=4, limit=8, used=8, number=3),
        verdict("two", Quota.UNDER, granted=4, limit=8, used=8, number=3),
    ]


# A limit that is unset.


def test_an_unset_limit_shrinks_grants_as_one_of_0_does_and_the_reason_is_not_set() -> None:
    quota = QuotaService()
    quota.set_limit(5)
    quota.specify("train", 5)
    quota.assign("train", 2)

    outputs = quota.unset_limit()

    assert outputs == [
        *unlimited(granted=5),
        verdict(
            "train", Quota.NOT_SET, granted=2, limit=None, used=5, number=2, message=not_set(5)
        ),
        warning("train", not_set(5)),
    ]


def test_an_unset_limit_is_shown_by_a_pool_that_wants_no_node_too() -> None:
    quota = QuotaService()
    quota.set_limit(8)
    quota.specify("train", 0)

    outputs = quota.unset_limit()

    assert outputs == [
        *unlimited(granted=0),
        verdict("train", Quota.NOT_SET, granted=0, limit=None, used=0, message=not_set(0)),
        warning("train", not_set(0)),
    ]


def test_a_limit_of_0_that_is_unset_shrinks_no_grant_again() -> None:
    # given a grant that shrank to the Nodes of its pool, of which one is lost since
    quota = QuotaService()
    quota.set_limit(5)
    quota.specify("train", 5)
    quota.assign("train", 4)
    quota.set_limit(0)
    quota.hears(acknowledged("train", 4, number=2), node_deleted("train", 0))

    outputs = quota.unset_limit()

    assert outputs == [
        *unlimited(granted=4),
        verdict(
            "train", Quota.NOT_SET, granted=4, limit=None, used=4, number=2, message=not_set(5)
        ),
        warning("train", not_set(5)),
    ]


def test_of_an_unset_limit_nothing_is_kept_once_its_last_pool_is_gone() -> None:
    quota = QuotaService()
    quota.set_limit(5)
    unused = quota.unset_limit(), quota.state
    quota.set_limit(5)
    quota.specify("train", 5)
    quota.unset_limit()

    quota.hears(deleting("train"), acknowledged("train", 0, 1, final=True), pool_deleted("train"))

    assert unused == (unlimited(granted=0), State())
    assert quota.state == State()


def test_an_unset_limit_is_not_checked_again_once_its_last_pool_is_gone() -> None:
    # given a limit whose use has changed, so that the verdict on a pool that waits is due
    quota = QuotaService()
    quota.set_limit(4)
    quota.specify("waiting", 5)
    quota.process(specified("train", 1))

    # when the limit is unset, and all pools are deleted, before the next wake
    for message in (
        unset(),
        *(deleting("waiting"), pool_deleted("waiting")),
        *(deleting("train"), acknowledged("train", 0, number=2, final=True)),
        pool_deleted("train"),
    ):
        quota.process(message)

    assert quota.due is None
    assert quota.state == State()


# A target that shrinks.


def test_a_smaller_target_gives_back_its_grant_as_its_nodes_leave() -> None:
    quota = QuotaService()
    quota.set_limit(4)
    quota.specify("train", 4)
    quota.assign("train", 4)

    smaller = quota.specify("train", 2)
    acknowledgement = quota.hears(acknowledged("train", 2, number=2))
    first = quota.hears(node_deleted("train", 3))
    second = quota.hears(node_deleted("train", 2))

    assert smaller == [
        verdict("train", Quota.UNDER, granted=2, limit=4, used=4, generation=2, number=2)
    ]
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
    acknowledgement = quota.hears(acknowledged("train", 1, number=2))

    # then the other has its share only after the allocator has acknowledged that
    assert smaller == [
        verdict("train", Quota.UNDER, granted=1, limit=4, used=4, generation=2, number=2)
    ]
    assert acknowledgement == [
        released("train", granted=1, used=1),
        verdict("other", Quota.UNDER, granted=3, limit=4, used=4, number=2),
    ]


def test_a_node_that_leaves_before_the_acknowledgement_gives_back_nothing() -> None:
    # given a grant of 4, of which the allocator may still assign 3 until it reads the smaller one
    quota = QuotaService()
    quota.set_limit(4)
    quota.specify("train", 4)
    quota.assign("train", 1)
    quota.specify("train", 1)

    deleted = quota.hears(node_deleted("train", 0))
    acknowledgement = quota.hears(acknowledged("train", 1, number=2))

    assert deleted == []
    assert acknowledgement == [released("train", granted=1, used=1)]


def test_an_acknowledged_older_grant_leaves_the_newer_one_reserved() -> None:
    quota = QuotaService()
    quota.set_limit(4)
    quota.specify("train", 4)
    quota.specify("train", 1)
    quota.specify("train", 3)

    older = quota.hears(acknowledged("train", 1, number=2))
    newer = quota.hears(acknowledged("train", 3, number=3))

    assert older == [released("train", granted=3, used=3)]
    assert newer == []
    assert quota.ledger.used == 3


def test_an_acknowledgement_of_an_older_generation_gives_back_where_the_grant_is_the_same() -> None:
    quota = QuotaService()
    quota.set_limit(4)
    quota.specify("train", 4)
    quota.specify("train", 1)
    quota.specify("train", 1)

    outputs = quota.hears(acknowledged("train", 1, number=2))

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


def test_a_node_that_returns_from_the_control_plane_counts_once_again() -> None:
    # given a pool with all Nodes that it was granted
    quota = QuotaService()
    quota.set_limit(4)
    quota.specify("train", 2)
    quota.assign("train", 2)

    # when one of them is reserved for the control plane for a while
    there = quota.hears(reserved("train", 1, usable=False))
    back = quota.hears(reserved("train", 1, usable=True))

    assert [there, back] == [[], []]
    assert quota.ledger.used == 2


def test_a_node_that_returns_to_a_pool_that_shrank_without_it_takes_room_from_others() -> None:
    # given a pool of two Nodes that wants one, while the other is reserved for the control plane
    quota = QuotaService()
    quota.set_limit(2)
    quota.specify("train", 2)
    quota.assign("train", 2)
    quota.hears(reserved("train", 1, usable=False))
    quota.specify("train", 1)
    quota.hears(acknowledged("train", 1, number=2))

    # when it returns, and another pool wants the room that it has left
    back = quota.hears(reserved("train", 1, usable=True))
    other = quota.specify("other", 1)

    text = exceeds(1, 2, "2 used by 1 other pool")
    assert back == [
        verdict("train", Quota.UNDER, granted=1, limit=2, used=2, generation=2, number=2, beyond=1)
    ]
    assert other == [
        verdict("other", Quota.OVER, granted=0, limit=2, used=2, message=text),
        warning("other", text),
    ]


def test_a_node_that_returns_as_another_one_is_assigned_in_its_place_is_counted_at_once() -> None:
    # given a pool that wants more than the limit allows, while one of its Nodes is away
    quota = QuotaService()
    quota.set_limit(2)
    quota.specify("train", 2)
    quota.assign("train", 2)
    quota.hears(reserved("train", 1, usable=False))
    quota.specify("train", 3)

    # when that Node returns, and the allocator assigned another one before it read of that
    back = quota.hears(reserved("train", 1, usable=True))
    new = quota.hears(assigned("train", 2))

    text = (
        f"{exceeds(3, 2)}; the control plane gave back 1 Node beyond the grant of the NodePool, "
        "which scales down to 2 by its scaleDownStrategy"
    )
    over = verdict(
        *("train", Quota.OVER), granted=2, limit=2, used=3, generation=2, message=text, beyond=1
    )
    assert back == []
    assert new == [over]


def test_a_pool_in_deletion_keeps_reserved_what_it_holds_and_gives_it_back_node_by_node() -> None:
    # given a NodePool that may have 4 Nodes and has two
    quota = QuotaService()
    quota.set_limit(4)
    quota.specify("train", 4)
    quota.assign("train", 2)

    # when it is deleted, and the allocator has read of that
    outputs = [
        quota.hears(deleting("train")),
        quota.hears(acknowledged("train", 0, number=1, final=True)),
        quota.hears(node_deleted("train", 0)),
        quota.hears(node_deleted("train", 1)),
        quota.hears(pool_deleted("train")),
    ]

    # then what it could still have got is free, and then each Node
    assert outputs == [
        [],
        [released("train", granted=2, used=2)],
        [released("train", granted=1, used=1)],
        [released("train", granted=0, used=0)],
        [],
    ]
    assert list(quota.state.pools) == []


def test_a_grant_that_is_raised_right_before_a_deletion_is_given_back_with_the_others() -> None:
    quota = QuotaService()
    quota.set_limit(10)
    quota.specify("train", 2)
    quota.assign("train", 2)
    quota.specify("train", 10)
    quota.hears(deleting("train"))

    outputs = quota.hears(acknowledged("train", 0, number=1, final=True))

    assert outputs == [released("train", granted=2, used=2)]


def test_a_late_acknowledgement_of_a_grant_of_nothing_is_not_taken_for_that_of_a_deletion() -> None:
    # given a grant that shrank to nothing, grew again, and a deletion, none of it read so far
    quota = QuotaService()
    quota.set_limit(4)
    quota.specify("train", 4)
    quota.set_limit(0)
    quota.set_limit(4)
    quota.hears(deleting("train"))

    # when the allocator reads of the first, and at last of the deletion
    shrunk = quota.hears(acknowledged("train", 0, number=2))
    deleted = quota.hears(acknowledged("train", 0, number=3, final=True))

    # then it might still have used the second grant in between
    assert shrunk == []
    assert deleted == [released("train", granted=0, used=0)]


def test_a_pool_in_deletion_gives_back_all_when_its_object_is_gone_at_the_latest() -> None:
    quota = QuotaService()
    quota.set_limit(4)
    quota.specify("train", 2)
    quota.assign("train", 2)
    quota.specify("other", 3)

    nodes = quota.hears(deleting("train"), node_deleted("train", 0), node_deleted("train", 1))
    gone = quota.hears(pool_deleted("train"))

    assert nodes == []
    assert gone == [
        released("train", granted=0, used=0),
        verdict("other", Quota.UNDER, granted=3, limit=4, used=3, number=2),
    ]


def test_a_pool_in_deletion_is_not_checked_whatever_is_said_of_its_spec() -> None:
    quota = QuotaService()
    quota.set_limit(4)
    quota.specify("train", 2)
    quota.assign("train", 2)
    quota.hears(deleting("train"))

    outputs = quota.specify("train", 3)

    assert outputs == []
    assert quota.ledger.used == 2


def test_of_a_pool_that_gave_back_a_grant_nothing_is_kept_once_it_is_gone() -> None:
    # given a limit
    quota = QuotaService()
    quota.set_limit(8)
    before = quota.state

    # when a pool gives back its grant for a lower limit, is deleted, and the limit is raised again
    quota.specify("train", 8)
    quota.set_limit(7)
    quota.hears(acknowledged("train", 0, number=2))
    quota.hears(deleting("train"), acknowledged("train", 0, 2, final=True), pool_deleted("train"))
    quota.set_limit(8)

    assert quota.state == before


def test_a_pool_in_deletion_waits_for_nothing_and_one_without_nodes_is_forgotten_at_once() -> None:
    quota = QuotaService()
    quota.set_limit(4)
    quota.specify("train", 9)

    deleted = quota.hears(deleting("train"))
    raised = quota.set_limit(100)

    assert deleted == [released("train", granted=0, used=0)]
    assert raised == configured(100, granted=0)
    assert list(quota.state.pools) == []


def test_messages_about_an_earlier_pool_of_the_same_name_change_nothing() -> None:
    earlier, present = uid_of("train", life=1), uid_of("train", life=2)
    quota = QuotaService()
    quota.set_limit(8)
    quota.specify("train", 2, uid=present)

    outputs = quota.hears(
        assigned("train", uid=earlier),
        node_deleted("train", uid=earlier),
        acknowledged("train", 0, number=1, uid=earlier),
        deleting("train", uid=earlier),
    )

    assert outputs == []
    assert quota.ledger.used == 2
