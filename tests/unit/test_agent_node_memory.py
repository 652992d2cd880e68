"""What an agent remembers of Nodes over time."""

from agent.nodes.memory import LAST_SEEN_MAX, NodeMemory
from support.agent_nodes import FOUND


def test_pods_are_listed_a_second_after_a_cordon_was_seen_and_once() -> None:
    memory = NodeMemory()

    due = [memory.list_at("n1", key, now) for key, now in [("a", 5), ("a", 5.5), ("b", 6)]]
    memory.note_list("n1", "b")

    assert due == [6, 6, 7]
    assert memory.find_proven_key("n1") == "b"
    memory.forget_list("n1")
    assert (memory.find_proven_key("n1"), memory.list_at("n1", "b", 9)) == ("", 10)


def test_a_node_that_was_deleted_is_remembered_until_it_is_back() -> None:
    memory = NodeMemory()

    memory.note_change("n1", FOUND, None)
    before = memory.last_seen("n1")
    memory.note_change("n1", None, FOUND)

    assert (before, memory.last_seen("n1")) == (FOUND, None)


def test_the_memory_of_deleted_nodes_is_bounded() -> None:
    memory = NodeMemory()
    for number in range(LAST_SEEN_MAX + 1):
        memory.note_change(f"n{number}", FOUND, None)

    assert memory.last_seen("n0") is None
    assert memory.last_seen(f"n{LAST_SEEN_MAX}") == FOUND


def test_a_node_is_unwanted_since_the_bus_was_first_seen_to_lack_it() -> None:
    memory = NodeMemory()

    steps = [(1.0, False), (2.0, False), (3.0, True), (4.0, False)]
    since = [memory.unwanted_since("n1", now, is_wanted=wanted) for now, wanted in steps]

    assert since == [1.0, 1.0, 3.0, 4.0]
