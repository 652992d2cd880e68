"""Cordons that the bus says, and those by hand."""

from dataclasses import replace

from agent.actions import Patch, RecordEvent, Send
from agent.bus import Attempt
from agent.marks import MANAGED
from nodepool.contract.commands import CordonNode, UncordonNode
from support.agent_nodes import CORDONED, FOUND, NOW, WANTED, missing, remembered

# Cordons.


def test_a_cordon_of_the_bus_is_one_patch_with_its_number() -> None:
    metadata = {
        "annotations": {MANAGED: remembered(unschedulable=True, cordon=1)[MANAGED]},
        "uid": "uid-1",
        "resourceVersion": "5",
    }
    assert missing(CORDONED, FOUND) == [
        Patch("Node", "n1", {"metadata": metadata, "spec": {"unschedulable": True}})
    ]


BY_HAND = replace(FOUND, unschedulable=True)
CORDON_ID = "uid-1.7.cordon.40"


def test_a_cordon_by_hand_is_asked_of_the_bus_and_waited_for() -> None:
    command = CordonNode(org="acme", cluster="prod", pool="train", node="n1")
    pending = Attempt(CORDON_ID)
    accepted = Attempt("uid-1.7.cordon.39", "accepted", is_shown=False)

    assert missing(WANTED, BY_HAND) == [Send(CORDON_ID, command)]
    assert missing(WANTED, BY_HAND, pending) == []
    assert missing(WANTED, BY_HAND, accepted) == []


def test_an_uncordon_by_hand_is_asked_of_the_bus() -> None:
    found = replace(FOUND, annotations=remembered(unschedulable=True, cordon=1))

    assert missing(CORDONED, found) == [
        Send(
            "uid-1.7.uncordon.40",
            UncordonNode(org="acme", cluster="prod", pool="train", node="n1"),
        )
    ]


def test_a_refused_uncordon_is_told_and_set_back() -> None:
    found = replace(FOUND, annotations=remembered(unschedulable=True, cordon=1))
    id = "uid-1.7.uncordon.40"
    refused = Attempt(id, "refused", reason="Conflict", message="n1 is leaving its NodePool")

    tell, patch = missing(CORDONED, found, refused)

    text = "uncordon of Node n1 by hand: n1 is leaving its NodePool; it is cordoned again"
    assert tell == RecordEvent("Node", "n1", "uid-1", "Warning", "UncordonRefused", text, id, NOW)
    assert patch == Patch(
        "Node",
        "n1",
        {"metadata": {"uid": "uid-1", "resourceVersion": "5"}, "spec": {"unschedulable": True}},
    )


def test_a_refusal_of_an_older_state_of_the_node_does_not_answer_a_new_cordon() -> None:
    refused = Attempt("uid-1.7.cordon.12", "refused", message="not then")

    [send] = missing(WANTED, BY_HAND, refused)

    assert isinstance(send, Send)
    assert send.id == CORDON_ID


def test_the_same_cordon_from_both_sides_is_one() -> None:
    [patch] = missing(CORDONED, BY_HAND)

    assert patch == Patch(
        "Node",
        "n1",
        {
            "metadata": {
                "annotations": {MANAGED: remembered(unschedulable=True, cordon=1)[MANAGED]},
                "uid": "uid-1",
                "resourceVersion": "5",
            }
        },
    )


def test_a_new_cordon_of_the_bus_beats_an_uncordon_of_the_last_one() -> None:
    found = replace(FOUND, annotations=remembered(unschedulable=True, cordon=1))

    [patch] = missing(replace(CORDONED, cordon=2), found)

    assert isinstance(patch, Patch)
    assert patch.patch["spec"] == {"unschedulable": True}
