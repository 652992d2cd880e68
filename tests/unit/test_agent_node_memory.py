"""What an agent remembers of Nodes over time."""

from dataclasses import replace

from agent.nodes.memory import LAST_SEEN_MAX, NodeMemory
from agent.nodes.record import Managed
from nodepool.contract.pods import reserved_taint
from support.agent_nodes import FOUND, LOG, WANTED

NEW = replace(FOUND, annotations={}, taints=(reserved_taint("onboard"),))
CLAIM = Managed(LOG, assignment=7, version=40, unschedulable=False)


def test_pods_are_listed_a_second_after_a_cordon_was_seen_and_once() -> None:
    memory = NodeMemory()

    due = [memory.list_at("n1", key, now) for key, now in [("a", 5), ("a", 5.5), ("b", 6)]]
    asked = [memory.count_asked()]
    memory.note_list("n1", "b")
    asked.append(memory.count_asked())

    assert due == [6, 6, 7]
    assert asked == [1, 0]
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


def test_the_claim_of_a_new_node_is_that_of_the_stay_in_which_it_was_first_seen() -> None:
    memory = NodeMemory()

    first = memory.claim(NEW, WANTED, LOG)
    later = memory.claim(NEW, replace(WANTED, assignment=8, version="50"), LOG)

    assert (first, later, memory.record_of(NEW)) == (CLAIM, CLAIM, CLAIM)
    assert memory.claim(NEW, None, LOG) == CLAIM


def test_a_node_that_is_made_again_under_the_same_name_has_no_claim_of_the_one_before() -> None:
    memory = NodeMemory()
    memory.claim(NEW, WANTED, LOG)
    again = replace(NEW, uid="uid-2")

    assert memory.record_of(again) is None
    memory.note_change("n1", NEW, None)
    assert memory.record_of(NEW) is None


def test_a_node_that_the_bus_does_not_want_or_that_is_not_new_has_no_claim() -> None:
    memory = NodeMemory()

    assert memory.claim(NEW, None, LOG) is None
    assert memory.claim(replace(NEW, taints=()), WANTED, LOG) is None
    assert memory.claim(FOUND, WANTED, LOG) is None
