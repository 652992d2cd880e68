from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from nodepool.state.work import IMMEDIATELY, WithWork, WorkQueue

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=2)
EMPTY: WorkQueue[str] = WorkQueue()


def test_an_empty_work_queue_has_nothing_due_and_no_next_moment() -> None:
    assert EMPTY.due(LATER, 10) == ()
    assert EMPTY.next() is None
    assert WithWork().work == EMPTY


def test_a_key_that_is_ready_is_due_immediately() -> None:
    work = EMPTY.put("a")

    assert work.next() == IMMEDIATELY
    assert work.due(IMMEDIATELY, 10) == ("a",)


def test_a_key_is_due_at_its_moment_and_not_before() -> None:
    work = EMPTY.put_at("a", LATER)

    assert work.next() == LATER
    assert work.due(LATER - timedelta(microseconds=1), 10) == ()
    assert work.due(LATER, 10) == ("a",)


def test_a_key_put_again_at_another_moment_is_due_then_alone() -> None:
    work = EMPTY.put_at("a", NOON).put_at("a", LATER)

    assert work.due(NOON, 10) == ()
    assert work.next() == LATER


def test_a_ready_key_keeps_its_place_when_put_again() -> None:
    work = EMPTY.put("a").put("b")

    assert work.put("a") is work


def test_ready_keys_come_in_their_order_before_those_whose_moment_has_come() -> None:
    work = EMPTY.put_at("late", LATER).put_at("early", NOON).put("b").put("a")

    assert work.due(LATER, 10) == ("b", "a", "early", "late")


def test_a_key_that_leaves_the_queue_leaves_no_failure_behind() -> None:
    work = EMPTY.retry_later("a", NOON).put("a").drop("a")

    assert (work.next(), len(work.failures)) == (None, 0)


def test_a_success_keeps_a_moment_that_is_no_retry() -> None:
    work = EMPTY.put_at("a", LATER)

    assert work.clear_failures("a") is work


def test_no_more_keys_are_due_than_asked_for() -> None:
    work = EMPTY.put_at("early", NOON).put_at("late", LATER).put("b").put("a")

    assert work.due(LATER, 1) == ("b",)
    assert work.due(LATER, 2) == ("b", "a")
    assert work.due(LATER, 3) == ("b", "a", "early")


def test_a_key_that_is_ready_and_due_later_is_due_once() -> None:
    work = EMPTY.put("a").put_at("a", NOON)

    assert work.due(LATER, 10) == ("a",)


def test_a_dropped_key_is_neither_ready_nor_due_later() -> None:
    work = EMPTY.put("a").put_at("a", NOON).put("b").drop("a")

    assert work.due(LATER, 10) == ("b",)
    assert work.drop("b").next() is None


def test_dropping_an_unknown_key_gives_the_same_work_queue() -> None:
    work = EMPTY.put("a").put_at("b", NOON)

    assert work.drop("c") is work


@given(
    st.lists(st.sampled_from("abcd")),
    st.dictionaries(st.sampled_from("abcd"), st.sampled_from([NOON, LATER])),
    st.integers(1, 5),
)
def test_dropping_what_is_due_until_nothing_is_takes_every_key_once(
    ready: list[str], later: dict[str, datetime], limit: int
) -> None:
    work = EMPTY
    for key in ready:
        work = work.put(key)
    for key, due in later.items():
        work = work.put_at(key, due)

    taken: list[str] = []
    while keys := work.due(LATER, limit):
        assert len(keys) <= limit
        taken += keys
        for key in keys:
            work = work.drop(key)

    assert sorted(taken) == sorted({*ready, *later})
    assert work.next() is None
