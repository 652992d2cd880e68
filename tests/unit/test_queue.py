from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from nodepool.state.queue import Queue

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


# A queue behaves as a list of distinct keys.


@given(changes)
def test_a_queue_keeps_the_order_in_which_keys_came(history: list[Change]) -> None:
    queue, model = queue_after(history)

    assert list(queue) == model
    assert len(queue) == len(model)
    assert [key in queue for key in ("k0", "k1")] == [key in model for key in ("k0", "k1")]


@given(changes)
def test_the_head_of_a_queue_is_its_first_key_so_that_iteration_starts_there(
    history: list[Change],
) -> None:
    queue, model = queue_after(history)

    assert queue.head == (queue.places[model[0]] if model else queue.tail)


@given(changes, keys)
def test_a_change_leaves_the_old_queue_as_it_was(history: list[Change], key: str) -> None:
    queue, model = queue_after(history)

    queue.put(key)
    queue.drop(key)

    assert list(queue) == model
