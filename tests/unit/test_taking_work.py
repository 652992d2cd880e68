from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from nodepool.state.work import WorkQueue

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=1)
EMPTY: WorkQueue[str] = WorkQueue()


# Keys are ready, or due at a moment, or both.


def test_ready_keys_are_taken_in_their_order_and_then_those_whose_moment_has_come() -> None:
    work = EMPTY.put_at("d", NOON).put_at("c", NOON).put("b").put("a").put_at("e", LATER)

    keys, rest = work.take(NOON, 10)

    assert keys == ("b", "a", "c", "d")
    assert not rest.ready
    assert rest.deadlines == EMPTY.put_at("e", LATER).deadlines


def test_a_moment_that_has_not_come_outlasts_the_taking_of_its_key() -> None:
    work = EMPTY.put_at("a", LATER).put("a")

    keys, rest = work.take(NOON, 10)

    assert keys == ("a",)
    assert not rest.ready
    assert rest.deadlines == work.deadlines


def test_a_key_that_is_ready_and_due_is_taken_once() -> None:
    work = EMPTY.put_at("a", NOON).put("a")

    keys, rest = work.take(NOON, 10)

    assert keys == ("a",)
    assert rest.next() is None


@dataclass(frozen=True)
class Change:
    """A key made ready, due in so many seconds, or dropped (None)."""

    key: str
    seconds: int | None
    ready: bool


changes = st.lists(
    st.builds(Change, st.sampled_from("abcdefgh"), st.none() | st.integers(-3, 3), st.booleans()),
    max_size=30,
)


@given(changes, st.integers(1, 9))
def test_a_work_queue_behaves_as_a_list_and_a_dictionary(history: list[Change], limit: int) -> None:
    work, ready, moments = EMPTY, list[str](), dict[str, datetime]()
    for change in history:
        if change.ready:
            work = work.put(change.key)
            ready += [] if change.key in ready else [change.key]
        elif change.seconds is not None:
            moment = NOON + timedelta(seconds=change.seconds)
            work = work.put_at(change.key, moment)
            moments[change.key] = moment
        else:
            work = work.drop(change.key)
            ready = [key for key in ready if key != change.key]
            moments.pop(change.key, None)

    keys, rest = work.take(NOON, limit)

    overdue = sorted((moment, key) for key, moment in moments.items() if moment <= NOON)
    expected = [*ready, *(key for _, key in overdue if key not in ready)][:limit]
    assert list(keys) == expected
    assert list(rest.ready) == [key for key in ready if key not in keys]
    assert dict(rest.deadlines.moments) == {
        key: moment for key, moment in moments.items() if key not in keys or moment > NOON
    }
