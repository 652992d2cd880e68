from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from nodepool.state.deadlines import Deadlines

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
EMPTY: Deadlines[str] = Deadlines()

keys = st.sampled_from([f"k{number}" for number in range(8)])
moments = st.builds(
    lambda seconds, fraction: NOON + timedelta(seconds=seconds, microseconds=fraction),
    st.integers(-2, 4),
    st.sampled_from([0, 1, 500_000, 999_999]),
)


@dataclass(frozen=True)
class Change:
    """A key that is put with its moment, or dropped where it has none."""

    key: str
    due: datetime | None


changes = st.lists(st.builds(Change, keys, st.none() | moments), max_size=40)


def deadlines_after(history: list[Change]) -> tuple[Deadlines[str], dict[str, datetime]]:
    """Deadlines after these changes, and the dictionary that they stand for."""
    deadlines, model = EMPTY, dict[str, datetime]()
    for change in history:
        if change.due is None:
            deadlines = deadlines.drop(change.key)
            model.pop(change.key, None)
        else:
            deadlines = deadlines.put(change.key, change.due)
            model[change.key] = change.due
    return deadlines, model


def test_without_keys_there_is_no_next_moment_and_nothing_due() -> None:
    assert EMPTY.next() is None
    assert EMPTY.due(NOON, 10) == ()


def test_a_key_put_again_is_due_at_its_new_moment_alone() -> None:
    deadlines = EMPTY.put("a", NOON).put("a", NOON + timedelta(hours=1))

    assert deadlines == EMPTY.put("a", NOON + timedelta(hours=1))
    assert deadlines.due(NOON, 10) == ()


def test_what_is_due_within_the_same_second_is_not_due_early() -> None:
    late = NOON + timedelta(milliseconds=900)
    deadlines = EMPTY.put("late", late).put("early", NOON)

    assert deadlines.due(late - timedelta(milliseconds=1), 10) == ("early",)
    assert deadlines.due(late, 10) == ("early", "late")


def test_dropping_an_unknown_key_gives_the_same_deadlines() -> None:
    deadlines = EMPTY.put("a", NOON)

    assert deadlines.drop("b") is deadlines


# Deadlines behave as a dictionary of moments.


@given(changes)
def test_the_next_moment_is_the_earliest_of_all(history: list[Change]) -> None:
    deadlines, model = deadlines_after(history)

    assert deadlines.next() == min(model.values(), default=None)


@given(changes, moments, st.integers(1, 10))
def test_what_is_due_comes_earliest_first_then_by_key_and_never_early(
    history: list[Change], now: datetime, limit: int
) -> None:
    deadlines, model = deadlines_after(history)

    expected = sorted((due, key) for key, due in model.items() if due <= now)[:limit]

    assert deadlines.due(now, limit) == tuple(key for _, key in expected)


@given(changes, changes)
def test_deadlines_with_the_same_moments_are_equal_whatever_their_history(
    history: list[Change], other_history: list[Change]
) -> None:
    deadlines, model = deadlines_after(history)
    dropped = [Change(change.key, None) for change in other_history]
    others, _ = deadlines_after([*other_history, *dropped])

    for key in sorted(model, reverse=True):
        others = others.put(key, model[key])

    assert others == deadlines


@given(changes, keys, moments)
def test_a_change_leaves_the_old_deadlines_as_they_were(
    history: list[Change], key: str, due: datetime
) -> None:
    deadlines, _ = deadlines_after(history)
    unchanged, _ = deadlines_after(history)

    deadlines.put(key, due)
    deadlines.drop(key)

    assert deadlines == unchanged
