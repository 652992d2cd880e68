"""Equal reports at growing intervals, and pauses that grow apart."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from nodepool.host.repeats import KEPT, LONGEST_S, Repeats
from nodepool.state.back_off import pause_s


def written(times: list[float], report: str = "x") -> list[tuple[float, int]]:
    """When a report that comes at these times is written, and how many were left out before."""
    repeats = Repeats()
    results = [(time, repeats.left_out(report, time)) for time in times]
    return [(time, left_out) for time, left_out in results if left_out is not None]


def test_equal_reports_are_written_at_growing_intervals_with_the_number_left_out() -> None:
    # given a report that comes ten times a second for a quarter of a minute
    times = [number / 10 for number in range(160)]

    # when each is offered
    # then few are written, and none is uncounted
    assert written(times) == [(0.0, 0), (1.0, 9), (3.0, 19), (7.0, 39), (15.0, 79)]


def test_a_new_report_is_written_at_once_between_equal_ones() -> None:
    repeats = Repeats()
    offered = [("refused", 0.0), ("refused", 0.1), ("no reply", 0.2), ("refused", 0.3)]
    assert [repeats.left_out(*report) for report in offered] == [0, None, 0, None]


def test_a_report_that_has_not_come_for_long_is_new_again() -> None:
    assert written([0.0, 0.5, 1.5, 100.0, 100.5, 101.5]) == [
        (0.0, 0),
        (1.5, 1),
        (100.0, 0),
        (101.5, 1),
    ]


def test_reports_that_are_never_equal_take_bounded_memory() -> None:
    repeats = Repeats()
    for number in range(10 * KEPT):
        assert repeats.left_out(str(number), 0.0) == 0
    assert len(repeats._written) == KEPT


@given(st.lists(st.floats(0.01, 2), min_size=1, max_size=200))
def test_every_report_is_written_or_counted_and_none_later_than_the_longest_interval(
    gaps: list[float],
) -> None:
    # given a report that comes at any times
    times = [sum(gaps[: number + 1]) for number in range(len(gaps))]

    # when each is offered
    results = written(times)

    # then what was left out is counted, and no silence is longer than it may be
    last = [time for time in times if time > results[-1][0]]
    assert len(results) + sum(left_out for _, left_out in results) + len(last) == len(times)
    assert all(later[0] - earlier[0] <= LONGEST_S + 2 for earlier, later in pairwise(results))


@given(st.integers(0, 10_000), st.floats(0, 1))
def test_a_pause_grows_to_its_bound_and_is_drawn_from_its_upper_half(
    failures: int, draw: float
) -> None:
    pause = pause_s(failures, 0.05, 0.6, draw)
    whole = min(0.05 * 2 ** min(failures - 1, 10), 0.6) if failures else 0
    assert whole / 2 <= pause <= whole
