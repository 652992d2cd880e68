from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from nodepool.state.persistent import Deadlines, Queue

START = datetime(2026, 1, 1, tzinfo=UTC)

keys = st.sampled_from([f"k{number}" for number in range(8)])
moments = st.builds(
    lambda seconds, fraction: START + timedelta(seconds=seconds, microseconds=fraction),
    st.integers(-2, 4),
    st.sampled_from([0, 1, 500_000, 999_999]),
)


@dataclass(frozen=True)
class Step:
    """One change of deadlines or a queue: a key put, with its moment, or dropped."""

    key: str
    due: datetime | None


steps = st.lists(st.builds(Step, keys, st.none() | moments), max_size=40)


def agenda_of(changes: list[Step]) -> tuple[Deadlines, dict[str, datetime]]:
    """An deadlines after these changes, and the plain dictionary that it stands for."""
    deadlines, model = Deadlines(), dict[str, datetime]()
    for step in changes:
        if step.due is None:
            deadlines = deadlines.drop(step.key)
            model.pop(step.key, None)
        else:
            deadlines = deadlines.put(step.key, step.due)
            model[step.key] = step.due
    return deadlines, model


def queue_of(changes: list[Step]) -> tuple[Queue, list[str]]:
    """A queue after these changes, and the plain list that it stands for."""
    queue, model = Queue(), list[str]()
    for step in changes:
        if step.due is None:
            queue = queue.drop(step.key)
            model = [key for key in model if key != step.key]
        else:
            queue = queue.put(step.key)
            model += [] if step.key in model else [step.key]
    return queue, model


# An deadlines behaves as a dictionary of moments.


def test_an_empty_agenda_has_no_next_moment_and_nothing_due() -> None:
    assert Deadlines().next() is None
    assert Deadlines().due(START, 10) == ()


def test_a_key_put_again_is_due_at_its_new_moment_alone() -> None:
    deadlines = Deadlines().put("a", START).put("a", START + timedelta(hours=1))

    assert deadlines == Deadlines().put("a", START + timedelta(hours=1))
    assert deadlines.due(START, 10) == ()


def test_what_is_due_within_the_same_second_is_not_due_early() -> None:
    deadlines = Deadlines().put("late", START + timedelta(milliseconds=900)).put("early", START)

    assert deadlines.due(START + timedelta(milliseconds=899), 10) == ("early",)
    assert deadlines.due(START + timedelta(milliseconds=900), 10) == ("early", "late")


def test_dropping_what_is_not_there_gives_the_same_agenda() -> None:
    deadlines = Deadlines().put("a", START)

    assert deadlines.drop("b") is deadlines


@given(steps)
def test_the_next_moment_is_the_earliest_of_all(changes: list[Step]) -> None:
    deadlines, model = agenda_of(changes)

    assert deadlines.next() == min(model.values(), default=None)


@given(steps, moments, st.integers(1, 10))
def test_what_is_due_comes_earliest_first_then_by_key_and_never_early(
    changes: list[Step], now: datetime, limit: int
) -> None:
    deadlines, model = agenda_of(changes)

    expected = sorted((due, key) for key, due in model.items() if due <= now)[:limit]

    assert deadlines.due(now, limit) == tuple(key for _, key in expected)


@given(steps, steps)
def test_agendas_with_the_same_moments_are_equal_whatever_their_history(
    changes: list[Step], others: list[Step]
) -> None:
    one, model = agenda_of(changes)
    other, _ = agenda_of([*others, *(Step(key, None) for key in _all_keys(others))])

    for key in sorted(model, reverse=True):
        other = other.put(key, model[key])

    assert other == one


@given(steps, keys, moments)
def test_a_change_of_an_agenda_leaves_the_old_one_as_it_was(
    changes: list[Step], key: str, due: datetime
) -> None:
    deadlines, _ = agenda_of(changes)
    again, _ = agenda_of(changes)

    deadlines.put(key, due)
    deadlines.drop(key)

    assert deadlines == again


def _all_keys(changes: list[Step]) -> list[str]:
    return [step.key for step in changes]


# A queue behaves as a list of distinct keys.


@given(steps)
def test_a_queue_keeps_the_order_in_which_keys_came(changes: list[Step]) -> None:
    queue, model = queue_of(changes)

    assert list(queue) == model
    assert len(queue) == len(model)
    assert [key in queue for key in ("k0", "k1")] == [key in model for key in ("k0", "k1")]


@given(steps)
def test_the_head_of_a_queue_is_its_first_key_so_that_iteration_starts_there(
    changes: list[Step],
) -> None:
    queue, model = queue_of(changes)

    assert queue.head == (queue.places[model[0]] if model else queue.tail)


@given(steps, keys)
def test_a_change_of_a_queue_leaves_the_old_one_as_it_was(changes: list[Step], key: str) -> None:
    queue, model = queue_of(changes)

    queue.put(key)
    queue.drop(key)

    assert list(queue) == model


def test_a_key_that_waits_keeps_its_place_when_put_again() -> None:
    queue = Queue().put("a").put("b")

    assert queue.put("a") is queue


def test_a_key_that_left_comes_back_at_the_end() -> None:
    queue = Queue().put("a").put("b").drop("a").put("a")

    assert list(queue) == ["b", "a"]


def test_dropping_what_does_not_wait_gives_the_same_queue() -> None:
    queue = Queue().put("a")

    assert queue.drop("b") is queue
