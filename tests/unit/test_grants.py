"""The grants that an allocator may still use."""

from aggregator.figures.grants import (
    FINAL,
    GRANTS_MAX,
    NO_GRANTS,
    Grants,
    acknowledge_grant,
    add_grant,
)
from contracts.samples import sample
from nodepool.contract.events import GrantAcknowledged, QuotaChecked


def after(*grants: tuple[int, int]) -> Grants:
    """What may be used after these grants, each a number and how many Nodes it allows."""
    known = NO_GRANTS
    for number, count in grants:
        known = add_grant(known, sample(QuotaChecked, number=number, granted=count))
    return known


def knows(known: Grants, number: int, nodes: int = 99, *, final: bool = False) -> Grants:
    """What may be used once the allocator uses at most so many Nodes of this grant."""
    event = sample(GrantAcknowledged, number=number, granted=nodes, final=final)
    return acknowledge_grant(known, event)


def test_the_most_of_all_grants_may_be_used() -> None:
    assert after((1, 2), (2, 7), (3, 4)).most == 7


def test_a_verdict_that_repeats_a_grant_adds_none() -> None:
    assert after((1, 2), (1, 2)) == Grants(((1, 2),), 2)


def test_an_acknowledged_grant_and_all_after_it_may_be_used() -> None:
    assert knows(after((1, 7), (2, 3), (3, 4)), 2) == Grants(((2, 3), (3, 4)), 4)


def test_a_grant_that_is_given_back_may_not_be_used() -> None:
    assert knows(after((1, 7), (2, 3)), 2, 0) == Grants(((2, 0),), 0)
    assert knows(after((1, 7), (2, 3)), 1, 0) == Grants(((1, 0), (2, 3)), 3)


def test_a_verdict_that_repeats_a_grant_which_is_given_back_gives_nothing() -> None:
    known = knows(after((1, 7), (2, 6)), 2, 0)

    assert add_grant(known, sample(QuotaChecked, number=2, granted=6)) == known


def test_a_grant_that_is_not_known_is_not_acknowledged() -> None:
    known = after((2, 7), (3, 4))

    assert knows(known, 1) == known


def test_a_grant_that_an_invalid_nodepool_was_given_is_acknowledged_all_the_same() -> None:
    assert knows(after((1, 7), (2, 3)), 4, 0) == Grants(((4, 0),), 0)
    assert knows(after((1, 7), (5, 2)), 4, 3) == Grants(((4, 3), (5, 2)), 3)


def test_nothing_may_be_used_of_a_nodepool_that_is_being_deleted() -> None:
    assert knows(after((1, 7)), 1, final=True) == FINAL


def test_nothing_of_what_it_is_granted_after_that_may_be_used() -> None:
    final = knows(after((1, 7)), 1, final=True)

    assert add_grant(final, sample(QuotaChecked, number=2, granted=3)) == FINAL
    assert FINAL.most == 0


def test_of_many_grants_the_largest_stands_for_the_oldest() -> None:
    known = after((1, 99), *((number, 1) for number in range(2, 100)))

    assert len(known.grants) == GRANTS_MAX
    assert known.most == 99
