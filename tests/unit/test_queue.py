from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from nodepool.state import queue as module
from nodepool.state.queue import Queue
from support import work

EMPTY: Queue[str] = Queue()

keys = st.sampled_from([f"k{number}" for number in range(8)])


@dataclass(frozen=True)
class Change:
    """A key that is put into a queue, or dropped from it."""

    key: str
    put: bool


changes = st.lists(st.builds(Change, keys, st.booleans()), max_size=40)


def queue_after(history: list[Change]) -> tuple[Queue[str], list[str]]:
    """A queue after these changes, and the list that it stands for."""
    queue, model = EMPTY, list[str]()
    for change in history:
        if change.put:
            queue = queue.put(change.key)
            model += [] if change.key in model else [change.key]
        else:
            queue = queue.drop(change.key)
            model = [key for key in model if key != change.key]
    return queue, model


def test_a_key_that_waits_keeps_its_place_when_put_again() -> None:
    queue = EMPTY.put("a").put("b")

    assert queue.put("a") is queue


def test_a_key_that_left_comes_back_at_the_end() -> None:
    queue = EMPTY.put("a").put("b").drop("a").put("a")

    assert list(queue) == ["b", "a"]


def test_dropping_an_unknown_key_gives_the_same_queue() -> None:
    queue = EMPTY.put("a")

    assert queue.drop("b") is queue


@given(changes, keys)
def test_a_key_that_replaces_another_has_its_place(history: list[Change], key: str) -> None:
    queue, model = queue_after([*history, Change("other", put=False), Change(key, put=True)])

    replaced = queue.replace(key, "other")

    expected = ["other" if each == key else each for each in model]
    assert list(replaced) == expected
    assert list(replaced.drop("other").put(key)) == [*(k for k in expected if k != "other"), key]


# A queue behaves as a list of distinct keys.


@given(changes)
def test_a_queue_keeps_the_order_in_which_keys_came(history: list[Change]) -> None:
    queue, model = queue_after(history)

    assert list(queue) == model
    assert len(queue) == len(model)
    assert [key in queue for key in ("k0", "k1")] == [key in model for key in ("k0", "k1")]


@given(changes, keys)
def test_a_change_leaves_the_old_queue_as_it_was(history: list[Change], key: str) -> None:
    queue, model = queue_after(history)

    queue.put(key)
    queue.drop(key)

    assert list(queue) == model


# What an operation costs, counted in lines of the module that are run, so that no clock matters.

LINES_OF_A_CHANGE = 12
"""No change of a queue, and no step of an iteration, runs more lines than this."""


def lines_run(act: Callable[[], object]) -> int:
    """How many lines of the module one call runs."""
    return work.lines_run(act, module.__file__)


@dataclass(frozen=True)
class Passage:
    """So many keys that pass through a queue, or stay in it."""

    count: int
    stays: bool


passages = st.lists(st.builds(Passage, st.integers(0, 300), st.booleans()), max_size=8)


def queue_passed_by(history: list[Passage]) -> tuple[Queue[str], list[str]]:
    """A queue after these passages, and the keys that stay in it."""
    queue, staying = EMPTY.put("first"), ["first"]
    for number, passage in enumerate(history):
        keys = [f"{number}.{each}" for each in range(passage.count)]
        for key in keys:
            queue = queue.put(key)
        kept = keys[-2:] if passage.stays else []
        for key in keys[: len(keys) - len(kept)]:
            queue = queue.drop(key)
        staying += kept
    return queue, staying


@given(passages)
def test_what_passed_through_a_queue_before_makes_nothing_slower(history: list[Passage]) -> None:
    queue, staying = queue_passed_by(history)

    assert list(queue) == staying
    assert lines_run(lambda: list(queue)) <= LINES_OF_A_CHANGE * (len(queue) + 1)
    assert lines_run(lambda: next(iter(queue))) <= LINES_OF_A_CHANGE
    assert lines_run(lambda: queue.put("new")) <= LINES_OF_A_CHANGE
    assert lines_run(lambda: queue.drop(staying[0])) <= LINES_OF_A_CHANGE
    assert lines_run(lambda: queue.drop(staying[-1])) <= LINES_OF_A_CHANGE


def test_two_keys_are_found_at_once_after_a_hundred_thousand_others() -> None:
    queue = EMPTY.put("first")
    for number in range(100_000):
        queue = queue.put(f"{number}").drop(f"{number - 1}")

    assert lines_run(lambda: list(queue)) <= 3 * LINES_OF_A_CHANGE
    assert list(queue) == ["first", "99999"]
