"""A Node that something else changes as often as it is set back."""

from dataclasses import replace

import pytest

from agent.actions import Action, Delete, Kind, Patch, RecordEvent
from agent.nodes.set_backs import (
    PAUSE_S,
    SET_BACKS_MAX,
    WITHIN_S,
    SetBacks,
    set_back_event,
    set_back_fields,
)
from nodepool.contract.model import GPU_TAINT
from nodepool.contract.well_known import MANAGED
from support.agent_nodes import FOUND, WANTED


def patched(set_backs: SetBacks, times: int, every_s: float) -> list[bool]:
    """Whether a pause begins with each of so many patches, from the moment 0 on."""
    return [set_backs.note_patch(WANTED, number * every_s) for number in range(times)]


def test_a_node_that_is_set_back_too_often_is_left_alone_for_a_while() -> None:
    set_backs = SetBacks()

    begins = patched(set_backs, SET_BACKS_MAX + 1, 1.0)

    now = float(SET_BACKS_MAX)
    assert begins == [*[False] * SET_BACKS_MAX, True]
    assert set_backs.held_until(WANTED, now) == now + PAUSE_S
    assert set_backs.held_until(WANTED, now + PAUSE_S - 0.1) == now + PAUSE_S
    assert set_backs.held_until(WANTED, now + PAUSE_S) == 0.0


def test_what_something_else_changes_now_and_then_is_set_back_for_ever() -> None:
    set_backs = SetBacks()

    begins = patched(set_backs, 3 * SET_BACKS_MAX, WITHIN_S / (SET_BACKS_MAX - 1))

    assert begins == [False] * (3 * SET_BACKS_MAX)


def test_what_the_bus_wants_anew_is_done_at_once() -> None:
    set_backs = SetBacks()
    patched(set_backs, SET_BACKS_MAX + 1, 1.0)

    cordoned = replace(WANTED, unschedulable=True, cordon=1)
    later = replace(WANTED, version="41")

    now = float(SET_BACKS_MAX)
    assert set_backs.held_until(cordoned, now) == 0.0
    assert set_backs.held_until(later, now) == now + PAUSE_S
    assert not set_backs.note_patch(cordoned, now)


def test_a_node_that_is_gone_is_forgotten() -> None:
    set_backs = SetBacks()
    patched(set_backs, SET_BACKS_MAX + 1, 1.0)

    set_backs.forget("n1")

    assert set_backs.held_until(WANTED, float(SET_BACKS_MAX)) == 0.0


MINE = {"key": "mine", "effect": "NoSchedule"}
OURS = {"key": GPU_TAINT.key, "value": GPU_TAINT.value, "effect": GPU_TAINT.effect}


@pytest.mark.parametrize(
    ("action", "fields"),
    [
        (
            Patch("Node", "n1", {"metadata": {"labels": {"b": "1", "a": None}, "uid": "uid-1"}}),
            ["metadata.labels[a]", "metadata.labels[b]"],
        ),
        (
            Patch("Node", "n1", {"metadata": {"annotations": {MANAGED: "{}", "note": "x"}}}),
            ["metadata.annotations[note]"],
        ),
        (Patch("Node", "n1", {"metadata": {"annotations": {MANAGED: "{}"}}}), []),
        (
            Patch("Node", "n1", {"spec": {"taints": [OURS, MINE], "unschedulable": None}}),
            ["spec.taints[mine:NoSchedule]", "spec.unschedulable"],
        ),
        (Patch("Node", "n1", {"spec": {"taints": []}}), ["spec.taints[is_gpu:PreferNoSchedule]"]),
        (Patch("Node", "n1", {"status": {"conditions": []}}, "status"), []),
        (Delete("Node", "n1", "uid-1"), []),
    ],
)
def test_only_what_others_can_change_of_a_node_is_set_back(
    action: Action, fields: list[str]
) -> None:
    assert list(set_back_fields(action, FOUND)) == fields


def test_one_event_stands_for_all_nodes_of_a_nodepool() -> None:
    pool: tuple[Kind, str, str] = ("NodePool", "train", "u-train")

    first = set_back_event(pool, "n1", ["metadata.labels[team]"])
    second = set_back_event(pool, "n2", ["metadata.labels[team]"])
    other = set_back_event(pool, "n1", ["metadata.labels[color]"])

    message = (
        "Node n1 was set back more than 10 times in a minute in metadata.labels[team]: something"
        " else changes it as often. It is left alone for 30 seconds at a time; take it out of the"
        " NodePool, or end the other writer"
    )
    key = first.key
    assert first == RecordEvent(*pool, "Warning", "SetBackRepeatedly", message, key)
    assert second.key == key != other.key
