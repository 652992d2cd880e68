"""The queue of keys: each once, each after its back-off, by a clock that the test drives."""

from nodepool.kube.queue import LEAST_S, MOST_S, KeyQueue


def taken(queue: KeyQueue[str], now: float) -> list[str]:
    """All keys that are handed out now."""
    keys = []
    while (key := queue.take(now)) is not None:
        keys.append(key)
    return keys


def test_keys_come_in_their_order_and_each_once() -> None:
    queue: KeyQueue[str] = KeyQueue()
    for key in ("a", "b", "a", "c", "b"):
        queue.add(key)

    assert taken(queue, 0) == ["a", "b", "c"]


def test_an_urgent_key_comes_before_all_others() -> None:
    queue: KeyQueue[str] = KeyQueue(lambda key: key == "pool")
    for key in ("n1", "n2", "pool"):
        queue.add(key)

    assert (len(queue), taken(queue, 0)) == (3, ["pool", "n1", "n2"])


def test_a_key_that_changes_while_it_is_worked_on_comes_again_after_that() -> None:
    queue: KeyQueue[str] = KeyQueue()
    queue.add("a")
    queue.take(0)

    queue.add("a")
    during = taken(queue, 0)
    queue.done("a")

    assert (during, taken(queue, 0)) == ([], ["a"])


def test_a_key_that_did_not_change_meanwhile_does_not_come_again() -> None:
    queue: KeyQueue[str] = KeyQueue()
    queue.add("a")
    queue.take(0)

    queue.done("a")

    assert (taken(queue, 0), queue.working) == ([], 0)


def test_a_key_with_a_moment_comes_then_and_not_before() -> None:
    queue: KeyQueue[str] = KeyQueue()
    queue.add_at("a", 5.0)

    assert [taken(queue, now) for now in (4.9, 5.0, 6.0)] == [[], ["a"], []]
    assert queue.next_due() is None


def test_of_two_moments_of_a_key_the_earlier_one_counts() -> None:
    queue: KeyQueue[str] = KeyQueue()
    queue.add_at("a", 5.0)
    queue.add_at("a", 3.0)
    queue.add_at("a", 7.0)

    due = queue.next_due()
    first = taken(queue, 3.0)
    queue.done("a")

    assert (due, first, taken(queue, 10.0)) == (3.0, ["a"], [])


def test_a_change_does_not_wait_for_the_moment_of_its_key() -> None:
    queue: KeyQueue[str] = KeyQueue()
    queue.add_at("a", 5.0)

    queue.add("a")
    first = taken(queue, 0.0)
    queue.done("a")

    assert (first, taken(queue, 5.0)) == (["a"], [])


def test_the_pause_after_a_failure_doubles_up_to_its_longest_and_begins_anew_after_a_success() -> (
    None
):
    queue: KeyQueue[str] = KeyQueue()
    pauses = []
    now = 0.0
    for _ in range(12):
        queue.add("a")
        queue.take(now)
        pauses.append(queue.retry_later("a", now, draw=0.0))
        now += pauses[-1]
        assert taken(queue, now - 0.01) == []

    queue.clear_failures("a")
    after = queue.retry_later("a", now, draw=0.0)

    assert pauses == [min(LEAST_S * 2**number, MOST_S) for number in range(12)]
    assert after == LEAST_S


def test_a_failure_waits_as_long_as_the_server_asks_for() -> None:
    queue: KeyQueue[str] = KeyQueue()
    queue.add("a")
    queue.take(0)

    pause = queue.retry_later("a", 0.0, draw=0.0, least_s=7.0)

    assert (pause, taken(queue, 6.9), taken(queue, 7.0)) == (7.0, [], ["a"])


def test_a_failure_of_one_key_keeps_no_other_waiting() -> None:
    queue: KeyQueue[str] = KeyQueue()
    for key in ("a", "b"):
        queue.add(key)
    queue.take(0)
    queue.retry_later("a", 0.0, draw=0.5)

    assert taken(queue, 0.0) == ["b"]


def test_thousands_of_keys_are_kept_once_each_however_often_they_change() -> None:
    queue: KeyQueue[int] = KeyQueue()
    for _ in range(3):
        for key in range(10_000):
            queue.add(key)
            queue.add_at(key, 5.0)

    assert len(queue) == 10_000
    assert queue.next_due() is None
