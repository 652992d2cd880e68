"""When a reader has filters: by what it would cost to have them, and to do without."""

from hypothesis import given
from hypothesis import strategies as st

from nodepool.nats.log.filtering import (
    BEHIND,
    MATCHES,
    POSITIONS_PER_SEARCH,
    SUBJECTS_PER_POSITION,
    Filtering,
)

SUBJECTS = 40_000
PAID = SUBJECTS // SUBJECTS_PER_POSITION
"""Reading so many positions costs as much as beginning with filters."""


def begun(behind: int, matches: int) -> Filtering:
    """One that began so far behind, with so many matches before it."""
    filtering = Filtering()
    if filtering.begins(behind, SUBJECTS):
        filtering.keeps(behind, matches)
    return filtering


def dropping(count: int) -> Filtering:
    """One without filters at the end of the stream, that has dropped so many messages."""
    filtering = begun(behind=0, matches=0)
    for _ in range(count):
        filtering.count_drop()
    return filtering


def test_a_reader_near_the_end_begins_without_filters_for_they_cost_more_than_the_rest() -> None:
    assert not begun(behind=PAID, matches=0).filtered
    assert begun(behind=PAID + 1, matches=0).filtered


def test_a_reader_far_behind_with_few_matches_has_the_server_find_them() -> None:
    behind = 100 * PAID

    assert begun(behind, matches=behind // POSITIONS_PER_SEARCH).filtered


def test_a_reader_far_behind_with_many_matches_reads_everything() -> None:
    behind = 100 * PAID

    assert not begun(behind, matches=behind // POSITIONS_PER_SEARCH + 1).filtered


def test_it_counts_positions_and_not_matches_whether_a_reader_falls_behind() -> None:
    filtering = begun(behind=100 * PAID, matches=0)

    assert not filtering.asks(MATCHES)
    assert filtering.asks(MATCHES + 1)
    assert not filtering.changes(BEHIND, SUBJECTS, remaining=BEHIND)
    assert filtering.changes(BEHIND + 1, SUBJECTS, remaining=MATCHES + 1)


def test_a_reader_takes_up_its_filters_at_the_end_once_dropping_has_cost_as_much() -> None:
    early, paid = dropping(PAID - 1), dropping(PAID)

    assert not early.asks(0)
    assert paid.asks(0)
    assert not paid.asks(1)
    assert paid.changes(0, SUBJECTS, remaining=0)
    assert not paid.changes(BEHIND + 1, SUBJECTS, remaining=0)


def test_a_reader_that_drops_nothing_needs_no_filters() -> None:
    filtering = Filtering()
    filtering.begins(0, 0)

    assert not filtering.asks(0)


@given(st.lists(st.integers(1, 2_000), max_size=60), st.integers(1, 200_000))
def test_whatever_comes_a_reader_begins_with_filters_no_oftener_than_it_has_paid_for(
    bursts: list[int], subjects: int
) -> None:
    """Bursts of foreign messages, each followed by a moment at the end of the stream."""
    filtering = Filtering()
    filtering.begins(0, subjects)
    began, dropped = 0, 0
    for burst in bursts:
        if filtering.filtered:
            # It fell behind while others wrote, with as many matches.
            if filtering.asks(burst) and filtering.changes(burst, subjects, burst):
                filtering.begins(burst, subjects, filtered=False)
            continue
        for _ in range(burst):
            filtering.count_drop()
        dropped += burst
        if filtering.asks(0) and filtering.changes(0, subjects, 0):
            began += 1
            assert filtering.begins(0, subjects, filtered=True)

    assert began * subjects <= dropped * SUBJECTS_PER_POSITION
