"""What an agent remembers of Nodes over time."""

from dataclasses import replace

import pytest

from agent.host.node_memory import LAST_SEEN_MAX, NodeMemory
from support.agent_nodes import FOUND

UNKNOWN = replace(FOUND, conditions=({"type": "Ready", "status": "Unknown"},))


def test_a_silence_counts_from_when_it_was_first_seen_until_the_node_is_ready() -> None:
    memory = NodeMemory()

    seen = []
    for now, node in enumerate([FOUND, UNKNOWN, UNKNOWN, FOUND, UNKNOWN]):
        memory.changed("n1", None, node, now)
        seen.append(memory.unready_since("n1"))

    assert seen == [None, 1, 1, None, 4]


@pytest.mark.parametrize(
    ("silent", "nodes", "is_widespread"),
    [(0, 0, False), (2, 2, False), (1, 3, False), (2, 3, True), (11, 20, False), (12, 20, True)],
)
def test_most_of_several_nodes_say_something_of_the_network(
    silent: int, nodes: int, *, is_widespread: bool
) -> None:
    memory = NodeMemory()
    for number in range(nodes):
        memory.changed(f"n{number}", None, UNKNOWN if number < silent else FOUND, 0)

    assert memory.is_widespread is is_widespread


def test_a_node_of_others_says_nothing_of_the_network() -> None:
    memory = NodeMemory()
    for number in range(10):
        memory.changed(f"n{number}", None, replace(UNKNOWN, annotations={}), 0)

    assert not memory.is_widespread


def test_pods_are_listed_a_second_after_a_cordon_was_seen_and_once() -> None:
    memory = NodeMemory()

    due = [memory.list_at("n1", key, now) for key, now in [("a", 5), ("a", 5.5), ("b", 6)]]
    memory.listed("n1", "b")

    assert due == [6, 6, 7]
    assert memory.proven("n1") == "b"
    memory.forget_list("n1")
    assert (memory.proven("n1"), memory.list_at("n1", "b", 9)) == ("", 10)


def test_a_node_that_was_deleted_is_remembered_until_it_is_back() -> None:
    memory = NodeMemory()

    memory.changed("n1", FOUND, None, 0)
    before = memory.last_seen("n1")
    memory.changed("n1", None, FOUND, 1)

    assert (before, memory.last_seen("n1")) == (FOUND, None)


def test_the_memory_of_deleted_nodes_is_bounded() -> None:
    memory = NodeMemory()
    for number in range(LAST_SEEN_MAX + 1):
        memory.changed(f"n{number}", FOUND, None, 0)

    assert memory.last_seen("n0") is None
    assert memory.last_seen(f"n{LAST_SEEN_MAX}") == FOUND


def test_a_node_is_unwanted_since_the_bus_was_first_seen_to_lack_it() -> None:
    memory = NodeMemory()

    steps = [(1.0, False), (2.0, False), (3.0, True), (4.0, False)]
    since = [memory.unwanted_since("n1", now, is_wanted=wanted) for now, wanted in steps]

    assert since == [1.0, 1.0, 3.0, 4.0]
