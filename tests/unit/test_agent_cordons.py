"""Cordons that the bus says, and those by hand."""

from dataclasses import replace
from functools import partial

import pytest

from agent.actions import Attempt, Patch, RecordEvent, Send
from agent.nodes.memory import NodeMemory
from agent.nodes.missing import NodeView, missing_for_node
from agent.reading import command_id
from nodepool.contract.commands import CordonNode, UncordonNode
from nodepool.contract.model import NodePhase, Taint
from nodepool.contract.pods import reserved_taint
from nodepool.contract.well_known import MANAGED
from support.agent_nodes import CORDONED, FOUND, LOG, NOW, PLACE, WANTED, missing, remembered

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
BARE = replace(
    FOUND,
    labels={},
    annotations={},
    taints=(Taint(key="node.coreweave.cloud/reserved", effect="NoSchedule"),),
)
"""The Node as its kubelet has registered it."""
ASKED = replace(BY_HAND, annotations=remembered(asked=True))
UNCORDON_ASKED = replace(FOUND, annotations=remembered(unschedulable=True, cordon=1, asked=False))
CORDON_ID = command_id("uid-1", 7, "cordon", "40")
UNCORDON_ID = command_id("uid-1", 7, "uncordon", "40")
CORDON_NODE = CordonNode(org="acme", cluster="prod", pool="train", node="n1")
UNCORDON_NODE = UncordonNode(org="acme", cluster="prod", pool="train", node="n1")
cordoning, uncordoning = (
    partial(Attempt, command=command) for command in (CORDON_NODE, UNCORDON_NODE)
)
"""Make commands that were sent, with an outcome."""


def remembering(**changes: object) -> Patch:
    """The patch that changes only what is remembered, of an object that nobody has changed."""
    annotations = {MANAGED: remembered(**changes)[MANAGED]}
    metadata = {"annotations": annotations, "uid": "uid-1", "resourceVersion": "5"}
    return Patch("Node", "n1", {"metadata": metadata})


def told(verb: str, why: str, key: str) -> RecordEvent:
    """The Event about a cordon or uncordon by hand that is not kept."""
    message = f"{verb.lower()} of Node n1 by hand: {why}"
    return RecordEvent("Node", "n1", "uid-1", "Warning", f"{verb}Refused", message, key, NOW)


def test_a_cordon_by_hand_is_remembered_then_asked_of_the_bus_and_waited_for() -> None:
    pending = cordoning(CORDON_ID)
    accepted = cordoning(command_id("uid-1", 7, "cordon", "39"), "accepted")

    assert missing(WANTED, BY_HAND) == [remembering(asked=True)]
    assert missing(WANTED, ASKED) == [Send(CORDON_ID, CORDON_NODE)]
    assert missing(WANTED, ASKED, pending) == []
    assert missing(WANTED, ASKED, accepted) == []


@pytest.mark.parametrize("is_early", [False, True])
def test_a_cordon_by_hand_of_a_node_that_joins_is_kept_and_asked_of_the_bus_once_it_has(
    is_early: bool,
) -> None:
    # given a Node that is claimed as it joins
    joining = replace(WANTED, registered=False, phase=NodePhase.BOOTING)
    found = replace(BARE, unschedulable=is_early)
    annotations = {MANAGED: '{"assignment":7,"log":"log-1","unschedulable":false,"version":40}'}
    as_read = {"uid": "uid-1", "resourceVersion": "5"}
    first, _ = missing_for_node(NodeView(joining, found), PLACE, LOG, NOW)
    assert first == Patch("Node", "n1", {"metadata": {"annotations": annotations, **as_read}})

    # when somebody has cordoned it before that, or does before it has what it is to have
    actions = missing(WANTED, replace(BARE, annotations=annotations, unschedulable=True))

    # then it stays so, is remembered as asked for, and asked of the bus
    metadata = {"labels": {"team": "blue"}, "annotations": remembered(asked=True), **as_read}
    taint = {"key": "is_gpu", "effect": "PreferNoSchedule", "value": "true"}
    assert actions == [Patch("Node", "n1", {"metadata": metadata, "spec": {"taints": [taint]}})]
    assert missing(WANTED, ASKED) == [Send(CORDON_ID, CORDON_NODE)]


@pytest.mark.parametrize("registered", [False, True], ids=["joining", "after a restart"])
def test_a_cordon_of_a_new_node_is_by_hand_whenever_a_process_sees_it(registered: bool) -> None:
    # given a new Node that somebody has cordoned, seen before it has joined or only afterwards
    new = replace(BARE, unschedulable=True, taints=(reserved_taint("onboard"),))
    claimed = NodeMemory().claim(new, replace(WANTED, registered=registered), LOG)

    # when it has joined
    actions = missing_for_node(NodeView(WANTED, new, claimed=claimed), PLACE, LOG, NOW)

    # then it stays cordoned, and that is remembered as asked for
    metadata = {
        "labels": {"team": "blue"},
        "annotations": remembered(asked=True),
        "uid": "uid-1",
        "resourceVersion": "5",
    }
    taint = {"key": "is_gpu", "effect": "PreferNoSchedule", "value": "true"}
    assert actions[1:] == (
        Patch("Node", "n1", {"metadata": metadata, "spec": {"taints": [taint]}}),
    )


def test_an_uncordon_by_hand_is_asked_of_the_bus() -> None:
    assert missing(CORDONED, UNCORDON_ASKED) == [Send(UNCORDON_ID, UNCORDON_NODE)]


def test_a_refused_uncordon_is_told_and_set_back() -> None:
    why = "n1 is leaving its NodePool"
    refused = uncordoning(UNCORDON_ID, "refused", reason="Conflict", message=why)

    tell, patch = missing(CORDONED, UNCORDON_ASKED, refused)

    why = "n1 is leaving its NodePool; it is cordoned again"
    assert tell == told("Uncordon", why, UNCORDON_ID)
    metadata = remembering(unschedulable=True, cordon=1).patch["metadata"]
    assert patch == Patch("Node", "n1", {"metadata": metadata, "spec": {"unschedulable": True}})


def test_a_refusal_of_an_older_state_of_the_node_does_not_answer_a_new_cordon() -> None:
    refused = cordoning(command_id("uid-1", 7, "cordon", "12"), "refused", message="not then")

    assert missing(WANTED, ASKED, refused) == [Send(CORDON_ID, CORDON_NODE)]


def test_the_same_cordon_from_both_sides_is_one() -> None:
    assert missing(CORDONED, BY_HAND) == [remembering(unschedulable=True, cordon=1)]
    assert missing(CORDONED, ASKED) == [remembering(unschedulable=True, cordon=1)]


def test_a_new_cordon_of_the_bus_beats_an_uncordon_of_the_last_one_and_that_is_told() -> None:
    found = replace(FOUND, annotations=remembered(unschedulable=True, cordon=1))

    tell, patch = missing(replace(CORDONED, cordon=2), found)

    why = "the control plane has cordoned it again meanwhile"
    assert tell == told("Uncordon", why, command_id("uid-1", 7, "again", 2))
    assert isinstance(patch, Patch)
    assert patch.patch["spec"] == {"unschedulable": True}


# What is taken back before the bus has answered.

TAKEN_BACK = replace(FOUND, annotations=remembered(asked=True))


def test_a_cordon_that_is_taken_back_once_the_bus_has_it_is_an_uncordon_by_hand() -> None:
    accepted = cordoning(CORDON_ID, "accepted", is_shown=True)
    agreed = remembered(unschedulable=True, cordon=1, asked=False)

    patches = missing(CORDONED, TAKEN_BACK, accepted)
    sent = missing(CORDONED, replace(TAKEN_BACK, annotations=agreed), accepted)

    assert patches == [remembering(unschedulable=True, cordon=1, asked=False)]
    assert sent == [Send(UNCORDON_ID, UNCORDON_NODE)]


def test_a_cordon_that_is_taken_back_before_it_was_answered_is_answered_first() -> None:
    assert missing(WANTED, TAKEN_BACK, cordoning(CORDON_ID)) == []
    assert missing(WANTED, TAKEN_BACK, cordoning(CORDON_ID, "accepted")) == []


@pytest.mark.parametrize(
    "attempt",
    [None, cordoning(CORDON_ID, "accepted", is_shown=True)],
    ids=["perhaps sent by a process that has ended", "accepted and not seen"],
)
def test_a_cordon_that_is_taken_back_and_may_come_yet_is_followed_by_an_uncordon(
    attempt: Attempt | None,
) -> None:
    assert missing(WANTED, TAKEN_BACK, attempt) == [Send(UNCORDON_ID, UNCORDON_NODE)]
    assert missing(WANTED, TAKEN_BACK, uncordoning(UNCORDON_ID)) == []


def test_a_cordon_that_is_taken_back_is_forgotten_once_it_cannot_come_any_more() -> None:
    refused = cordoning(CORDON_ID, "refused", message="not now")
    done = uncordoning(UNCORDON_ID, "accepted", is_shown=True)

    assert missing(WANTED, TAKEN_BACK, refused) == [remembering()]
    assert missing(WANTED, TAKEN_BACK, done) == [remembering()]


def test_what_takes_a_cordon_back_and_is_refused_is_told() -> None:
    refused = uncordoning(UNCORDON_ID, "refused", message="n1 is leaving its NodePool")

    tell = told("Uncordon", "n1 is leaving its NodePool", UNCORDON_ID)
    assert missing(WANTED, TAKEN_BACK, refused) == [tell, remembering()]
