"""Where the newest bytes of the log begin, whatever the sizes of its messages are."""

from hypothesis import given
from hypothesis import strategies as st

from nodepool.host.log_growth import MARKS, LogGrowth

HELD = 1_600
STEP = HELD // MARKS


def test_a_log_that_was_not_seen_before_is_taken_to_have_messages_of_one_size() -> None:
    growth = LogGrowth(HELD)

    growth.look(first=101, last=1_100, bytes=4 * HELD)

    assert growth.start == 851


def test_a_log_that_is_smaller_is_wanted_from_its_first_message_on() -> None:
    growth = LogGrowth(HELD)

    growth.look(first=1, last=0, bytes=0)
    growth.look(first=1, last=10, bytes=HELD // 2)

    assert growth.start == 1


def test_few_large_messages_count_as_many_small_ones() -> None:
    # given a log of small messages
    growth = LogGrowth(HELD)
    growth.look(first=1, last=1_500, bytes=1_500)

    # when a few large ones follow
    for number in range(1, 5):
        growth.look(first=1, last=1_500 + number, bytes=1_500 + HELD // 2 * number)

    # then no more than these are wanted
    assert 1_500 < growth.start <= 1_503


def test_what_is_trimmed_is_not_taken_for_a_log_that_does_not_grow() -> None:
    # given a log with messages of one byte
    growth = LogGrowth(HELD)
    growth.look(first=1, last=10_000, bytes=10_000)

    # when it grows, and as much is trimmed
    for number in range(1, 41):
        moved = STEP * number
        growth.look(first=1 + moved, last=10_000 + moved, bytes=10_000)

    # then the newest bytes are wanted still
    assert 10_000 + STEP * 40 - HELD - 2 * STEP <= growth.start <= 10_001 + STEP * 40 - HELD


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, HELD // 2)), max_size=60))
def test_no_more_is_wanted_than_the_newest_bytes_and_a_look_or_two(
    looks: list[tuple[int, int]],
) -> None:
    growth, sizes = LogGrowth(HELD), list[int]()
    growth.look(1, 0, 0)
    starts = [1]
    for count, size in looks:
        sizes += [size] * count
        growth.look(1, len(sizes), sum(sizes))
        starts.append(growth.start)

        # what is wanted is at least the newest bytes, and begins after all that is too old
        assert sum(sizes[growth.start - 1 :]) >= min(sum(sizes), HELD) - STEP
        one_look = max((number * each for number, each in looks), default=0)
        assert sum(sizes[growth.start - 1 :]) <= HELD + STEP + 2 * one_look
    assert starts == sorted(starts)
