"""What the pages of the console say, computed from objects alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from console.view.capacity import read_found, read_selections
from console.view.events import EventsAsked, list_events, read_events_asked
from console.view.forms import build_manifest, list_create_commands, read_form
from console.view.model import Fleet, Happening, Place, Pool, build_pool, without_reason
from console.view.node import build_node_page, find_verbs
from console.view.nodes import (
    build_grid,
    build_member,
    count_words,
    word_of_node,
)
from console.view.organisation import describe_room, list_quotas
from console.view.paging import Cut
from console.view.pool import build_pool_page
from console.view.pools import list_pools, make_line, read_asked
from console.view.preemptions import Past, build_preemptions
from console.view.remedies import Remedy as ConsoleRemedy
from console.view.standing import Group, sentence, stand
from console.view.timeline import build_timeline
from console.view.times import format_countdown, format_due, format_duration
from console.view.verdict import ACCEPTED, WAITS, Verdict, judge_target
from console.view.words import Word
from nodepool.contract.cordons import CORDON_REASON
from nodepool.contract.rules import RESERVED
from nodepool.explanation.remedies import (
    Action,
    DrainNode,
    RebootNode,
    Remedy,
    UncordonNodes,
    Unreserve,
    Wait,
)
from support.constants import H100, ZONE

NOW = datetime(2026, 11, 23, 16, 49, 18, tzinfo=UTC)
TRAIN, NEW = Place("demo", "train"), Place("demo", "new")
Fields = Mapping[str, Any]


def ago(**duration: float) -> str:
    """A moment before now, as objects have it."""
    return (NOW - timedelta(**duration)).isoformat()


def node(
    name: str, *conditions: tuple[str, str, str], pool: str = "train", **status: object
) -> Fields:
    """A Node that has joined, and on which nothing runs, unless its conditions say otherwise."""
    usual = {"CWRegistered": ("True", "Registered"), "CWActive": ("False", "NoWorkloads")}
    known = {**usual, **{kind: (value, reason) for kind, value, reason in conditions}}
    labels = {"compute.coreweave.com/node-pool": pool, "node.kubernetes.io/instance-type": H100}
    shown = [
        {"type": kind, "status": value, "reason": reason, "message": reason}
        for kind, (value, reason) in known.items()
    ]
    metadata = {"name": name, "labels": labels, "creationTimestamp": ago(minutes=5)}
    return {"metadata": metadata, "status": {"phase": "production", "conditions": shown, **status}}


def pool(
    *nodes: Fields,
    target: int = 2,
    current: int | None = None,
    reasons: Mapping[str, tuple[str, str]] | None = None,
    place: Place = TRAIN,
    explanation: Fields | None = None,
    **more: Any,
) -> Pool:
    """A NodePool that is at its target, unless its conditions say otherwise."""
    usual = {
        "Validated": ("True", "Valid"),
        "Quota": ("True", "Under"),
        "Capacity": ("True", "Sufficient"),
        "AtTarget": ("True", "TargetMet"),
    }
    conditions = [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": f"it is {reason}",
            "observedGeneration": 1,
            "lastTransitionTime": ago(minutes=2),
            "logPosition": 41,
        }
        for kind, (status, reason) in {**usual, **(reasons or {})}.items()
    ]
    document = {
        "metadata": {"name": place.name, "generation": 1, **more.get("metadata", {})},
        "spec": {"instanceType": H100, "targetNodes": target, **more.get("spec", {})},
        "status": {
            "currentNodes": len(nodes) if current is None else current,
            "conditions": conditions,
            **more.get("status", {}),
        },
    }
    members = [build_member(place.cluster, each) for each in nodes]
    return build_pool(place, ZONE, document, members, explanation)


def happening(position: int, reason: str, seconds: float, **fields: Any) -> Happening:
    """An event about the NodePool, so many seconds ago."""
    given = {"kind": "NodePool", "name": "train", "message": f"{reason} at {position}", **fields}
    time = NOW - timedelta(seconds=seconds)
    return Happening("demo", position, time, "Normal", reason, **given)


LOST = {
    "type": "GPUMissing",
    "status": "True",
    "reason": "GPUMissing",
    "message": "Xid 79: GPU has fallen off the bus",
    "lastTransitionTime": ago(seconds=30),
}
CURES = {"lifecycle": {"disableUnhealthyNodeEviction": False}}
WAITING = {"Capacity": ("False", "NoneAvailable"), "AtTarget": ("False", "UnderTarget")}
PREFER_IDLE = {"spec": {"lifecycle": {"scaleDownStrategy": "PreferIdle"}}}
GOING = {"deletionTimestamp": ago(minutes=1)}
OVER = {"Quota": ("False", "Over"), "AtTarget": ("False", "UnderTarget")}


@pytest.mark.parametrize(
    ("shown", "group", "word"),
    [
        (pool(node("a"), node("b")), Group.WELL, "At target"),
        (pool(reasons=OVER), Group.PERSON, "Over quota"),
        (pool(reasons={**OVER, "Quota": ("False", "NotSet")}), Group.PERSON, "No quota"),
        (pool(reasons={"Validated": ("False", "Invalid")}), Group.PERSON, "Invalid"),
        (pool(reasons={"AtTarget": ("Unknown", "InternalError")}), Group.PERSON, "Internal error"),
        (pool(reasons=WAITING), Group.WAITS, "Waits for capacity"),
        (pool(status={"inProgress": 2}), Group.MOVES, "2 booting"),
        (pool(node("a"), node("b"), node("c")), Group.MOVES, "1 over target"),
        (pool(metadata=GOING), Group.MOVES, "Deleting"),
        (
            pool(node("a", ("CWNodeRemoval", "True", "Preempted")), node("b")),
            Group.MOVES,
            "Losing 1 Node",
        ),
    ],
)
def test_a_nodepool_is_in_the_first_group_that_fits(shown: Pool, group: Group, word: str) -> None:
    standing = stand(shown)

    assert (standing.group, standing.word.text) == (group, word)


@pytest.mark.parametrize(
    ("shown", "action", "group", "word"),
    [
        ({"reasons": WAITING}, "Wait", Group.WAITS, Word("wait", "Waits for capacity")),
        ({"reasons": WAITING}, "AddMachines", Group.WAITS, Word("wait", "Waits for capacity")),
        ({"reasons": WAITING}, "StartService", Group.PERSON, Word("act", "Waits for capacity")),
        ({"current": 3}, "Wait", Group.MOVES, Word("go", "1 over target")),
        ({"current": 3}, "EndWork", Group.MOVES, Word("go", "1 over target")),
        ({"current": 3, **PREFER_IDLE}, "EndWork", Group.PERSON, Word("act", "1 over target")),
        ({"metadata": GOING}, "Wait", Group.MOVES, Word("out", "Deleting")),
        ({"metadata": GOING}, "StartService", Group.PERSON, Word("out", "Deleting")),
        ({"reasons": OVER}, "Wait", Group.PERSON, Word("act", "Over quota")),
        ({}, "EndWork", Group.WELL, Word("ok", "At target")),
    ],
)
def test_a_nodepool_needs_a_person_if_a_service_is_away_or_pods_block_without_a_deadline(
    shown: Mapping[str, Any], action: str, group: Group, word: Word
) -> None:
    cause = {"title": "a cause", "helps": ["what helps"], "actions": [{"kind": action}]}

    standing = stand(pool(**shown, explanation={"causes": [cause]}))

    assert (standing.group, standing.word) == (group, word)


def test_a_second_problem_is_a_second_word() -> None:
    shown = pool(node("a", ("GPUMissing", "True", "GPUMissing")), node("b"), reasons=OVER)

    assert [word.text for word in stand(shown).also] == ["1 unhealthy"]


def test_a_nodepool_that_is_well_but_for_a_node_says_what_is_wrong_with_it() -> None:
    title = "1 Node is unhealthy"
    cause = {"cause": "Health", "title": title, "message": "a: GPUMissing", "helps": []}
    ill = node("a", ("GPUMissing", "True", "GPUMissing"))
    shown = pool(ill, node("b"), explanation={"causes": [cause]}, spec=CURES)

    standing = stand(shown)

    assert (standing.group, standing.is_quiet) == (Group.WELL, False)
    assert standing.why == "1 Node is unhealthy: a: GPUMissing."


def test_a_nodepool_whose_unhealthy_nodes_nothing_cures_needs_a_person_since_they_are_ill() -> None:
    ill = node("a", ("GPUMissing", "True", "GPUMissing"), problemsSince=ago(seconds=30))

    at_target = stand(pool(ill, node("b")))
    waits = stand(pool(ill, node("b"), target=4, reasons=WAITING))

    assert (at_target.group, at_target.word.text) == (Group.PERSON, "1 unhealthy")
    assert at_target.also == ()
    drained = node("a", ("GPUMissing", "True", "GPUMissing"), phase="draining")
    assert stand(pool(drained, node("b"))).group is Group.WELL
    assert (waits.group, waits.word.text) == (Group.PERSON, "Waits for capacity")
    assert [word.text for word in waits.also] == ["1 unhealthy"]


def test_a_nodepool_that_needs_a_person_says_for_what_whatever_comes_by_itself() -> None:
    # given a NodePool that refills by itself, with an unhealthy Node that is left to people
    refills = {"cause": "Preemption", "title": "1 Node is being preempted", "helps": ["wait: b"]}
    ill = {"cause": "Health", "title": "1 Node is unhealthy", "helps": ["'nodepool drain a'"]}
    leaving = node("b", ("CWNodeRemoval", "True", "Preempted"))
    known = node("a", ("GPUMissing", "True", "GPUMissing"))

    shown = stand(pool(known, leaving, explanation={"causes": [refills, ill]}))

    assert (shown.group, shown.helps) == (Group.PERSON, "'nodepool drain a'.")
    assert shown.why == "1 Node is unhealthy."


def test_a_nodepool_waits_for_a_silent_node_also_before_its_explanation_is_read() -> None:
    silent = node("a", ("Ready", "Unknown", "NodeStatusUnknown"))
    advice = {"cause": "Health", "helps": ["drain a"], "actions": [{"kind": "DrainNode"}]}

    before = stand(pool(silent, node("b")))
    after = stand(pool(silent, node("b"), explanation={"causes": [advice]}))

    assert (before.group, before.word.text) == (Group.WAITS, "1 unhealthy")
    assert after.group is Group.PERSON


def test_a_nodepool_names_its_nodes_that_people_drain_and_that_stay() -> None:
    drained = node("a", phase="draining")
    leaves = node("b", ("CWNodeRemoval", "True", "ScaleDown"), phase="draining")

    assert [word.text for word in stand(pool(drained, node("c"))).also] == ["1 draining"]
    assert stand(pool(leaves, node("c"))).also == ()


def test_a_nodepool_says_which_pods_its_drained_nodes_wait_for_without_a_deadline() -> None:
    first, second = (node(name, phase="draining", **PODS) for name in ("a", "b"))

    one, two = stand(pool(first, node("c"))), stand(pool(first, second))

    assert one.why == "a waits for Pods: job must end."
    assert two.why == "a and 1 more wait for Pods: job must end."
    assert stand(pool(node("a", phase="draining"))).why == ""


def test_a_nodepool_that_loses_nodes_does_so_since_the_first_warning() -> None:
    leaves = ("CWNodeRemoval", "True", "Preempted")
    first, second = (
        node(name, leaves, phase="cordoned", preemptedSince=ago(seconds=seconds))
        for name, seconds in (("a", 41), ("b", 5))
    )

    assert stand(pool(first, second)).since == NOW - timedelta(seconds=41)


def test_a_nodepool_that_loses_a_preempted_node_says_that_it_is_preempted() -> None:
    title = "1 Node is being preempted"
    cause = {"cause": "Preemption", "title": title, "message": "a", "helps": []}
    warned = node("a", ("CWNodeRemoval", "True", "Preempted"), phase="cordoned")

    standing = stand(pool(warned, node("b"), explanation={"causes": [cause]}))

    assert standing.why == "1 Node is being preempted: a."


def test_a_nodepool_that_loses_nodes_names_the_first_and_its_deadline() -> None:
    warned = [node(name, phase="cordoned", preemptedSince=ago(seconds=41)) for name in "ba"]

    standing = stand(pool(*warned, node("c", phase="cordoned", preemptedSince=ago(seconds=1))))

    assert standing.next is not None
    assert (standing.next.name, standing.next.others) == ("a", 1)
    assert standing.next.deadline.at == NOW + timedelta(seconds=79)


def test_the_bar_of_a_short_nodepool_has_what_is_here_what_comes_and_what_is_missing() -> None:
    shown = pool(target=24, current=19, status={"inProgress": 2}, reasons=WAITING)

    bar = stand(shown).bar

    assert [(part.look, part.start, part.count) for part in bar] == [
        ("has", 0, 19),
        ("go", 19, 2),
        ("wait", 21, 3),
    ]


def test_the_first_cause_of_explain_says_why_and_its_first_remedy_what_helps() -> None:
    cause = {
        "title": "Quota is Over",
        "message": "targetNodes 9 exceeds quota 6",
        "helps": ["wait"],
    }
    shown = pool(reasons=OVER, explanation={"causes": [cause]})

    standing = stand(shown)

    assert (standing.why, standing.helps) == ("targetNodes 9 exceeds quota 6.", "Wait.")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("none can be had", "None can be had."),
        ("targetNodes is 4", "targetNodes is 4."),
        ("train reserves 0", "train reserves 0."),
        ("demo/other waits.", "demo/other waits."),
        ("wait: it refills", "Wait: it refills."),
        ("", ""),
    ],
)
def test_names_keep_their_case_at_the_begin_of_a_sentence(words: str, expected: str) -> None:
    assert sentence(words, "train") == expected


def test_the_list_answers_sorts_by_who_must_act_and_says_how_many_are_short() -> None:
    pools = [
        pool(node("a"), node("b"), place=Place("demo", "well")),
        pool(target=4, reasons=WAITING, place=Place("demo", "waits")),
        pool(target=9, reasons=OVER, place=Place("demo", "over")),
        pool(target=5, reasons=OVER, place=Place("other", "over")),
    ]

    shown = list_pools([*map(make_line, pools)], read_asked({}))

    assert shown.title == "3 of 4 NodePools are short of Nodes"
    assert shown.summary == ("2 need a person", "1 waits")
    assert (shown.current, shown.wanted) == (2, 20)
    names = [[line.place.name for line in section.lines] for section in shown.sections]
    assert names == [["over", "over"], ["waits"], ["well"]]
    assert [line.target for line in shown.sections[0].lines] == [9, 5]


def test_the_list_answers_that_nodes_are_ill_and_shows_their_nodepools_first() -> None:
    ill, other = (
        node("a", ("GPUMissing", "True", "GPUMissing"), pool=name) for name in ("ill", "train")
    )
    pools = [
        pool(node("a"), node("b"), spec=CURES, place=Place("demo", "fine")),
        pool(ill, node("b"), spec=CURES, place=Place("demo", "ill")),
    ]

    cured = list_pools([*map(make_line, pools)], read_asked({}))
    left = list_pools([make_line(pool(other, node("b")))], read_asked({}))

    assert (cured.title, cured.summary) == (
        "All 2 NodePools are at target",
        ("1 Node is unhealthy",),
    )
    assert [line.place.name for line in cured.sections[0].lines] == ["ill", "fine"]
    assert left.title == "The NodePool needs a person"


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"state": "waits"}, ["waits"]),
        ({"q": "OVER quota"}, ["over"]),
        ({"q": "h100 waits"}, ["waits"]),
        ({"q": "nothing"}, []),
        ({"state": "unknown", "by": "unknown", "sort": "name"}, ["over", "waits", "well"]),
        ({"by": "cluster", "sort": "name"}, ["over", "waits", "well"]),
        ({"by": "type", "sort": "since"}, ["over", "waits", "well"]),
    ],
)
def test_the_address_filters_groups_and_sorts(query: Mapping[str, str], names: list[str]) -> None:
    pools = [
        pool(node("a"), node("b"), place=Place("demo", "well")),
        pool(target=4, reasons=WAITING, place=Place("demo", "waits")),
        pool(target=9, reasons=OVER, place=Place("demo", "over")),
    ]

    shown = list_pools([*map(make_line, pools)], read_asked(query))

    assert [line.place.name for each in shown.sections for line in each.lines] == names


def test_a_long_list_has_pages_in_the_order_of_who_must_act() -> None:
    well = [pool(node("a"), node("b"), place=Place("demo", f"w{n:04}")) for n in range(115)]
    short = [pool(reasons=OVER, place=Place("demo", f"s{n:04}")) for n in range(60)]
    lines = [*map(make_line, [*well, *short])]

    pages = [list_pools(lines, read_asked({"page": str(page)})) for page in (1, 2, 3)]

    shown = [[(each.id, each.count, len(each.lines)) for each in page.sections] for page in pages]
    assert shown[0] == [("person", 60, 60), ("well", 115, 40)]
    assert shown[1] == shown[2] == [("well", 115, 75)]
    assert [page.cut for page in pages[:2]] == [Cut(0, 100, 1, 2, 175), Cut(100, 175, 2, 2, 175)]
    assert pages[1].sections[0].lines[0].place.name == "w0040"


@pytest.mark.parametrize(
    ("query", "changes", "expected"),
    [
        ({}, {}, {}),
        ({"q": "missing", "page": "3"}, {"state": "well"}, {"q": "missing", "state": "well"}),
        ({"by": "type", "sort": "name"}, {"page": 2}, {"by": "type", "sort": "name", "page": 2}),
    ],
)
def test_a_link_of_the_list_keeps_what_is_asked_for(
    query: Fields, changes: Fields, expected: Fields
) -> None:
    asked = read_asked({name: str(value) for name, value in query.items()})

    assert asked.query(**changes) == expected


@pytest.mark.parametrize(
    ("shown", "word"),
    [
        (node("a"), "Idle"),
        (node("a", ("CWActive", "True", "Workloads")), "Active"),
        (node("a", phase="booting"), "Booting"),
        (node("a", ("GPUMissing", "True", "GPUMissing")), "Unhealthy"),
        (node("a", phase="cordoned"), "Cordoned"),
        (node("a", phase="draining"), "Draining"),
        (node("a", phase="cordoned", preemptedSince=ago(minutes=1)), "Warned"),
        (node("a", phase="draining", preemptedSince=ago(minutes=1), drain="safe"), "Warned"),
        (node("a", phase="draining", preemptedSince=ago(minutes=3), drain="forced"), "Draining"),
        (node("a", reservedFor="control-plane"), "Reserved"),
        (node("a", ("CWNodeRemoval", "True", "ScaleDown")), "Leaving"),
        (node("a", phase="new"), "Unknown"),
    ],
)
def test_the_word_of_a_node_says_first_what_is_wrong(shown: Fields, word: str) -> None:
    assert word_of_node(pool(shown).facts.nodes[0]).text == word


def test_nodes_are_grouped_by_state_with_what_is_wrong_first_and_counted_if_there_are_many() -> (
    None
):
    few = pool(node("b"), node("a"), node("c", ("GPUMissing", "True", "GPUMissing")))
    many = pool(*(node(f"n{number:05}") for number in range(2_001)))

    grid = build_grid(few.members, "rack")

    assert grid.by == "state"
    assert [(row.title, len(row.cells)) for row in grid.rows] == [("Unhealthy", 1), ("Idle", 2)]
    assert [row.counts[0][1] for row in build_grid(many.members, "").rows] == [2_001]


def test_the_key_of_a_bar_has_nodes_that_run_pods_first_then_idle_ones_and_what_is_wrong_last() -> (
    None
):
    shown = pool(
        *(node("a"), node("b", ("CWActive", "True", "Running"))),
        *(node("c", ("GPUMissing", "True", "GPUMissing")), node("d")),
    )

    key = [(word.text, count) for word, count in count_words(shown.members)]

    assert key == [("Active", 1), ("Idle", 2), ("Unhealthy", 1)]


def test_a_node_that_changes_or_leaves_touches_few_parts_of_a_grid() -> None:
    nodes = [node(f"n{number:05}") for number in range(500)]
    (before,) = build_grid(pool(*nodes).members, "state").rows
    nodes[100] = node("n00100", ("CWActive", "True", "Running"))
    del nodes[200]
    (active, idle) = build_grid(pool(*nodes).members, "state").rows

    parts = list(before.parts)
    assert sum(parts, ()) == before.cells
    assert len(parts) > 8
    assert [[len(part) for part in row.parts] for row in (active,)] == [[1]]
    assert len(set(idle.parts) - set(parts)) <= 2


def test_of_events_of_one_moment_the_one_later_in_the_log_comes_first() -> None:
    reasons = ("CWNodePoolCreated", "CWNodeRequestQueued", "CWNodeAssigned")
    events = [happening(position, reason, 30) for position, reason in enumerate(reasons, 5)]

    past = build_timeline(pool(), events).past

    assert [entry.positions for entry in past] == [(7,), (6,), (5,)]


def test_the_timeline_has_deadlines_above_now_and_the_past_below_in_groups() -> None:
    boots = node("boots", ("CWRegistered", "False", "Booting"), phase="booting")
    warned = node("warned", phase="cordoned", preemptedSince=ago(seconds=130))
    events = [
        happening(9, "CWNodeRegistered", 1),
        happening(8, "CWNodeRegistered", 2),
        happening(5, "CWNodePoolCreated", 60, actor="demo/alice"),
    ]

    timeline = build_timeline(pool(boots, warned), events)

    coming = [(entry.at, entry.nodes[0].name) for entry in timeline.coming]
    assert coming == [
        (NOW + timedelta(minutes=25), "boots"),
        (NOW + timedelta(seconds=290), "warned"),
        (NOW - timedelta(seconds=10), "warned"),
    ]
    # The drain was due ten seconds ago, and no event says that it has begun.
    past = [(entry.text, entry.positions, entry.actor) for entry in timeline.past]
    assert past == [
        ("CWNodeRegistered at 9, and 1 more like it", (8, 9), ""),
        ("CWNodePoolCreated at 5", (5,), "demo/alice"),
    ]


def test_the_timeline_groups_what_happens_to_many_nodes_in_turn() -> None:
    kinds = ("CWDrainNode", "CWNodeDeleted")
    turns = [happening(number, kinds[number % 2], 60) for number in range(8)]
    changes = [
        happening(number, f"CWNodePoolScaled{'Up' if number % 2 else 'Down'}", 30)
        for number in range(10, 14)
    ]

    page = build_timeline(pool(node("a")), [*turns, *changes])

    assert [(entry.why, entry.positions) for entry in page.past] == [
        ("CWNodePoolScaledUp", (13,)),
        ("CWNodePoolScaledDown", (12,)),
        ("CWNodePoolScaledUp", (11,)),
        ("CWNodePoolScaledDown", (10,)),
        ("CWNodeDeleted", (1, 7)),
        ("CWDrainNode", (0, 6)),
    ]


def test_the_timeline_says_of_several_nodes_what_it_says_of_one() -> None:
    warned = [node(name, phase="cordoned", preemptedSince=ago(seconds=41)) for name in "ab"]

    timeline = build_timeline(pool(*warned), [])

    assert [entry.text for entry in timeline.coming] == [
        "are gone at the latest",
        "begin to drain",
    ]


SILENT = ("Ready", "Unknown", "NodeStatusUnknown")
PODS: dict[str, Any] = {"blockingPods": [{"name": "job"}], "blockingPodCount": 1}
JOB: dict[str, Any] = {"blockingPods": [{"name": "Slurm job 7"}], "blockingPodCount": 1}


def cordoned(
    name: str,
    cordon: str,
    *conditions: tuple[str, str, str],
    **status: Any,  # The fields of a status have many types.
) -> Fields:
    """A Node that is cordoned for these causes."""
    document = node(name, *conditions, phase="cordoned", **status)
    annotations = {CORDON_REASON: cordon}
    return {**document, "metadata": {**document["metadata"], "annotations": annotations}}


def test_only_nodes_that_are_to_be_drained_wait_for_their_pods() -> None:
    pods = PODS
    works = node("works", ("CWActive", "True", "WorkloadsRunning"), **pods)
    ill = node("ill", ("GPUMissing", "True", "GPUMissing"), **pods)
    drained = [node(f"d{number}", phase="draining", **pods) for number in range(8)]

    one = build_timeline(pool(works, ill, drained[0]), [])
    cured = build_timeline(pool(works, ill, spec=CURES), [])
    many = build_timeline(pool(*drained), [])
    silent = build_timeline(pool(node("s", SILENT, phase="draining", **pods)), [])

    assert [entry.nodes[0].name for entry in one.open] == ["d0"]
    assert [entry.nodes[0].name for entry in cured.open] == ["ill"]
    assert silent.open == ()
    assert [entry.text for entry in many.open][-2:] == ["waits for Pods", "2 more wait for Pods"]


@pytest.mark.parametrize(
    ("shown", "spec", "then"),
    [
        (node("a"), {}, ""),
        (
            node("a", ("GPUMissing", "True", "GPUMissing")),
            {},
            "No deadline: this NodePool leaves unhealthy Nodes to people.",
        ),
        (
            node("a", ("GPUMissing", "True", "GPUMissing"), blockingPodCount=2),
            CURES,
            "No deadline: it is rebooted or replaced once 2 Pods that block a drain ended.",
        ),
        (
            node("a", phase="draining", blockingPodCount=1),
            {},
            "No deadline: it is drained once 1 Pod that blocks a drain ended.",
        ),
        (
            node("a", phase="cordoned"),
            {},
            "No deadline: nothing new is scheduled on it until a person uncordons it.",
        ),
        (
            cordoned("a", "RackUnavailable r1"),
            {},
            "No deadline: nothing new is scheduled on it until this is over: RackUnavailable r1.",
        ),
        (
            cordoned("a", "AdminDrain,ReservationPending"),
            {},
            "No deadline: nothing new is scheduled on it until this is over: ReservationPending.",
        ),
        (cordoned("a", "AdminReboot"), {}, ""),
        (cordoned("a", "AdminDrain", answerBy=ago(minutes=-9)), {}, ""),
        (node("a", SILENT, phase="draining", **PODS), {}, ""),
        (node("a", SILENT, **PODS), CURES, ""),
        (node("a", SILENT, phase="draining", **JOB), {}, ""),
        (
            cordoned("a", "NotReady", SILENT, **JOB),
            {},
            "No deadline: this NodePool leaves unhealthy Nodes to people.",
        ),
        (node("a", phase="cordoned", preemptedSince=ago(seconds=4)), {}, ""),
    ],
)
def test_a_node_says_what_it_waits_for_and_whether_a_person_must_act(
    shown: Fields, spec: Fields, then: str
) -> None:
    known = pool(shown, spec=spec)

    assert build_node_page(known, known.members[0]).then == then


@pytest.mark.parametrize(
    ("shown", "verbs"),
    [
        (node("a"), {"cordon", "drain", "reboot"}),
        (cordoned("a", "AdminDrain,ReservationPending"), {"uncordon", "drain", "reboot"}),
        (cordoned("a", "RackUnavailable r1"), {"drain", "reboot"}),
        (node("a", preemptedSince=ago(seconds=4)), {"cordon", "drain", "reboot", "acknowledge"}),
        (node("a", phase="draining", drain="safe", **PODS), {"drain", "reboot", "uncordon"}),
        (node("a", phase="draining", drain="safe"), {"reboot", "uncordon"}),
        (node("a", phase="draining", drain="forced", **PODS), {"reboot", "uncordon"}),
    ],
)
def test_a_node_has_only_buttons_of_what_is_accepted_and_has_an_effect(
    shown: Fields, verbs: set[str]
) -> None:
    known = pool(shown)

    assert find_verbs(known, known.members[0].facts) == verbs


@pytest.mark.parametrize(
    ("help", "kind", "group", "then"),
    [
        (
            "'nodepool drain a' ends what runs there",
            "DrainNode",
            Group.PERSON,
            "No deadline: this NodePool leaves unhealthy Nodes to people.",
        ),
        ("wait: a does not answer", "Wait", Group.WAITS, ""),
    ],
)
def test_the_pages_of_an_ill_node_and_of_its_nodepool_say_the_same_about_what_helps(
    help: str, kind: str, group: Group, then: str
) -> None:
    cause = {"cause": "Health", "helps": [help], "actions": [{"kind": kind}]}
    ill = node("a", ("GPUMissing", "True", "GPUMissing"))

    known = pool(ill, node("b"), explanation={"causes": [cause]})
    page = build_node_page(known, known.members[0])

    assert (stand(known).group, stand(known).word.text) == (group, "1 unhealthy")
    assert [each.text for each in page.helps] == [stand(known).helps] == [sentence(help)]
    assert page.then == then
    assert build_node_page(known, known.members[1]).helps == ()


def test_the_page_of_an_ill_node_that_is_not_the_first_says_where_to_begin() -> None:
    helps, actions = ["'nodepool drain a' ends what runs there"], [{"kind": "DrainNode"}]
    cause = {"cause": "Health", "helps": helps, "actions": actions}
    ill = (node(name, ("GPUMissing", "True", "GPUMissing")) for name in "ab")
    known = pool(*ill, explanation={"causes": [cause]})

    first, second = (build_node_page(known, member).then for member in known.members)

    assert first == "No deadline: this NodePool leaves unhealthy Nodes to people."
    assert second == f"{first} Its page says which Node to begin with."


@pytest.mark.parametrize(
    ("shown", "say", "since"),
    [
        (
            node("a", conditions=[LOST]),
            "Xid 79: GPU has fallen off the bus (GPUMissing).",
            NOW - timedelta(seconds=30),
        ),
        (node("a", phase="cordoned"), "This Node is cordoned.", None),
        (
            node("a", phase="cordoned", preemptedSince=ago(seconds=4)),
            "This Node is being preempted.",
            NOW - timedelta(seconds=4),
        ),
        (node("a"), "Nothing runs on this Node.", None),
    ],
)
def test_a_node_says_in_a_sentence_what_is_so_and_since_when(
    shown: Fields, say: str, since: datetime | None
) -> None:
    known = pool(shown)
    page = build_node_page(known, known.members[0])

    assert (page.say, page.since) == (say, since)


@pytest.mark.parametrize(
    ("text", "count", "around"),
    [
        ("'nodepool drain a --force' ends it.", 1, ("", " ends it.")),
        ("End the Slurm job, then 'nodepool drain a'.", 1, ("End the Slurm job, then ", ".")),
        ("Scale train to 64, which fits.", 1, ("", ", which fits.")),
        ("Raise the quota to 70.", 1, ("Raise the quota to 70.", "")),
        ("'nodepool uncordon a b' opens them.", 2, ("'nodepool uncordon a b' opens them.", "")),
    ],
)
def test_a_button_stands_for_the_command_of_the_advice(
    text: str, count: int, around: tuple[str, str]
) -> None:
    assert ConsoleRemedy(text, (("/address", "Drain a…"),) * count).around == around


def test_the_problem_of_a_node_looks_the_same_in_its_conditions_as_in_its_state() -> None:
    ill = pool(node("a", ("GPUMissing", "True", "GPUMissing"), ("Ready", "False", "NotYet")))

    page = build_node_page(ill, ill.members[0])

    looks = {name: word.look for name, word, _, _ in page.conditions}
    assert (looks["GPUMissing"], page.word.look) == ("bad", "bad")
    assert looks["CWRegistered"] == "ok"


def test_the_page_of_a_nodepool_has_the_sentence_its_evidence_and_a_remedy_to_press() -> None:
    cause = {
        "title": "Quota is Over",
        "message": "targetNodes 9 exceeds quota 6",
        "helps": ["raise the quota to 9", "scale train to 6, which fits", "scale other to 1"],
        "actions": [
            {"kind": "SetLimit", "limit": 9},
            {"kind": "ScaleTo", "target": 6},
            {"kind": "ScalePeer", "peer": "dev/other", "target": 1000, "waits": False},
        ],
        "proofs": [{"logPosition": 41, "about": "condition Quota"}, {"logPosition": "no"}],
    }
    dated = "Quota is Over, False since 16:47:18: targetNodes 9 exceeds quota 6"
    sentence = f"NodePool train wants 9 and has 1; {dated}; raise the quota to 9."
    explanation = {"sentence": sentence, "causes": [cause]}
    shown = pool(node("a"), target=9, reasons=OVER, explanation=explanation)

    page = build_pool_page(shown, [], "")

    assert page.say == "NodePool train wants 9 and has 1. targetNodes 9 exceeds quota 6."
    assert [proof.position for proof in page.causes[0].proofs] == [41]
    assert [remedy.links for remedy in page.causes[0].helps] == [
        (),
        (("/nodepools/demo/train/scale?target=6", "Scale to 6…"),),
        (("/nodepools/dev/other/scale?target=1000", "Scale other to 1,000…"),),
    ]
    assert page.gpus == (8, 72)
    assert [(part.look, part.count) for part in page.bar] == [("idl", 1), ("act", 8)]


def test_a_node_that_the_control_plane_uses_is_missing_on_the_page_as_in_the_list() -> None:
    away = node("b", reservedFor="control-plane")
    shown = pool(node("a"), away, target=2, current=1, reasons=WAITING)

    page = build_pool_page(shown, [], "")

    assert [(word.text, count) for word, count in page.key] == [
        ("Idle", 1),
        ("Reserved", 1),
        ("missing", 1),
    ]
    assert page.standing.missing == 1


@pytest.mark.parametrize(
    ("action", "links"),
    [
        (RebootNode("a", force=True), [("/nodes/demo/a/reboot?force=yes", "Reboot a…")]),
        (DrainNode("a", after_work=True), [("/nodes/demo/a/drain", "Drain a…")]),
        (
            UncordonNodes(("a", "b")),
            [("/nodes/demo/a/uncordon", "Uncordon a…"), ("/nodes/demo/b/uncordon", "Uncordon b…")],
        ),
        (Unreserve("a", uncordons=True), [("/nodes/demo/a/uncordon", "Uncordon a…")]),
        (Unreserve("a"), []),
        (Wait(("a",)), []),
    ],
)
def test_a_remedy_about_nodes_has_the_forms_of_its_actions_whatever_its_words_are(
    action: Action, links: Sequence[tuple[str, str]]
) -> None:
    remedy = Remedy("'nodepool reboot other' may help", action)
    cause = {"title": "ill", "helps": [remedy.text], "actions": [remedy.document]}
    explanation = {"sentence": "It wants 1.", "causes": [cause]}

    page = build_pool_page(pool(node("a"), explanation=explanation), [], "")

    assert [*page.causes[0].helps[0].links] == links


def test_the_words_of_a_remedy_are_shown_without_links_if_an_older_gateway_has_no_actions() -> None:
    cause = {"title": "ill", "helps": ["scale train to 6", "wait"]}
    explanation = {"sentence": "It wants 1.", "causes": [cause]}

    page = build_pool_page(pool(node("a"), explanation=explanation), [], "")

    assert [(each.text, each.links) for each in page.causes[0].helps] == [
        ("Scale train to 6.", ()),
        ("Wait.", ()),
    ]


def test_running_preemptions_are_sorted_by_deadline_and_ended_ones_are_summed_up() -> None:
    first = node("first", phase="draining", drain="forced", preemptedSince=ago(seconds=200))
    second = node("second", phase="cordoned", preemptedSince=ago(seconds=41))
    ended = Past(Place("demo", "gone"), "train", 5, NOW, "Requested", "", 120, 121, 0.1, 1)
    why = Past(
        Place("demo", "first"), "train", 6, NOW, "DefaultPoolShort", "big", None, None, None, 0
    )

    page = build_preemptions([pool(second, first)], [ended, why], NOW)

    assert page.title == "2 Nodes are being preempted"
    running = [
        (each.member.place.name, each.passed_s, each.word.text, each.reason)
        for each in page.running
    ]
    # What needs the Node may have changed since it was requested.
    assert running == [
        ("first", 200, "Draining", "requested for big"),
        ("second", 41, "Warned", ""),
    ]
    assert page.last == NOW + timedelta(seconds=379)
    assert page.past_summary == "1 ended, 1 Pod lost, at most 0.10 s late"


def test_quotas_name_who_holds_and_who_waits_even_where_none_is_set() -> None:
    pools = {
        TRAIN: pool(node("a"), node("b")),
        Place("demo", "big"): pool(target=9, reasons=OVER, place=Place("demo", "big")),
    }
    quota = {"zone": ZONE, "instanceType": H100, "limit": 6, "used": 2}

    with_quota = list_quotas(Fleet("demo", pools, {"demo": ZONE}, [quota]))
    without = list_quotas(Fleet("demo", pools, {"demo": ZONE}))

    assert [(each.limit, each.left, each.waiting, each.word.text) for each in with_quota] == [
        (6, 4, 9, "Over quota")
    ]
    assert [(each.place.name, each.waits) for each in with_quota[0].holders] == [
        ("big", 9),
        ("train", 0),
    ]
    assert [each.word.text for each in without] == ["No quota"]


def test_a_quota_that_was_lowered_below_its_use_says_by_how_much() -> None:
    def word_of(limit: int) -> Word:
        quota = {"zone": ZONE, "instanceType": H100, "limit": limit, "used": 2}
        pools = {TRAIN: pool(node("a"), node("b"))}
        (line,) = list_quotas(Fleet("demo", pools, {"demo": ZONE}, [quota]))
        return line.word

    assert word_of(3) == Word("ok", "Room")
    assert word_of(2) == Word("idle", "Used up")
    assert word_of(1) == Word("act", "1 over limit")


def test_a_quota_names_some_of_its_nodepools_and_no_invalid_one_without_nodes() -> None:
    places = [Place("demo", f"p{number:02}") for number in range(12)]
    pools = {place: pool(node("a"), place=place) for place in places}
    invalid = {"Validated": ("False", "Invalid"), "Quota": ("True", "Under")}
    wrong = Place("demo", "wrong")
    other = pool(place=wrong, reasons=invalid, spec={"instanceType": "gd-unknown"})

    lines = list_quotas(Fleet("demo", {**pools, wrong: other}, {"demo": ZONE}))

    assert [(line.instance_type, len(line.holders), line.hidden) for line in lines] == [
        (H100, 8, 4)
    ]


def test_events_are_filtered_by_every_part_and_newest_first() -> None:
    events = [
        happening(5, "CWNodePoolCreated", 60),
        happening(7, "CWNodeCordoned", 50, kind="Node", name="g1", actor="demo/alice"),
        happening(9, "CWNodeRegistered", 40, kind="Node", name="g2"),
    ]

    assert [e.event.position for e in list_events(events, EventsAsked()).lines] == [9, 7, 5]
    assert [e.event.position for e in list_events(events, EventsAsked("ALICE cordoned")).lines] == [
        7
    ]
    asked = read_events_asked({"kind": "Node", "name": "g2", "severity": "unknown"})
    assert [e.event.position for e in list_events(events, asked).lines] == [9]
    assert list_events(events, EventsAsked(cluster="other")).lines == ()


def test_the_next_pages_of_events_go_on_where_the_first_one_ended_whatever_happens() -> None:
    # given somebody who reads the first page of 250 events
    events = [happening(position, "CWNodeCordoned", 50) for position in range(1, 251)]
    first = list_events(events, EventsAsked())

    # when more happens before each next page
    pages, query = [first], dict[str, str]()
    for newest in (260, 270):
        events += [happening(each, "CWNodeCordoned", 1) for each in range(newest - 9, newest + 1)]
        shown = pages[-1]
        query = {k: str(v) for k, v in shown.asked.query(shown.cut.page + 1).items()}
        pages.append(list_events(events, read_events_asked(query)))

    # then each event that was there is on one page
    read = [line.event.position for page in pages for line in page.lines]
    assert read == list(range(250, 0, -1))
    assert {key: value for key, value in query.items() if value} == {"page": "3", "until": "250"}

    # and the first page has the newest events, whatever else its address says
    for until in ("", "0", "100"):
        shown = list_events(events, read_events_asked({"until": until}))
        assert shown.lines[0].event.position == 270

    # and so has a page whose events are forgotten
    events += [happening(each, "CWNodeCordoned", 1) for each in range(271, 571)]
    forgotten = list_events(events[260:], read_events_asked(query))
    assert (forgotten.cut.page, forgotten.lines[0].event.position) == (1, 570)
    # and a position beyond the log is that of its newest event
    beyond = list_events(events, read_events_asked({"page": "2", "until": "999"}))
    assert (beyond.asked.until, beyond.lines[0].event.position) == (570, 470)


def test_the_list_of_events_says_since_when_it_has_them_whatever_matches() -> None:
    events = [happening(5, "CWNodePoolCreated", 60), happening(7, "CWNodeCordoned", 50)]

    assert list_events(events, EventsAsked("cordoned")).since == events[0].time
    assert list_events([], EventsAsked()).since is None


def test_a_message_about_a_node_and_its_nodepool_is_one_line() -> None:
    both = [
        happening(7, "CWNodeCordoned", 5, kind=kind, name=name)
        for kind, name in (("Node", "g1"), ("NodePool", "train"))
    ]

    shown = list_events(both, EventsAsked())

    assert [line.objects for line in shown.lines] == [(("Node", "g1"), ("NodePool", "train"))]
    assert (shown.known, shown.cut.count) == (1, 1)


def test_a_message_does_not_repeat_the_reason_that_stands_beside_it() -> None:
    reason, message = "Preemption pending", "Node a is cordoned"

    assert without_reason(f"Reason: {reason}. {message}", reason) == message
    assert without_reason(message, reason) == message


def test_the_room_of_a_quota_for_a_nodepool_counts_what_others_use() -> None:
    pools = {TRAIN: pool(node("a"), node("b"))}
    quota = {"zone": ZONE, "instanceType": H100, "limit": 6, "used": 3}
    fleet = Fleet("demo", pools, {"demo": ZONE}, [quota])

    own = describe_room(fleet, ZONE, H100, TRAIN)
    new = describe_room(fleet, ZONE, H100)

    assert own == "The quota of 6 has room for 5, as other NodePools use 1."
    assert new == "The quota of 6 has room for 3, as other NodePools use 3."
    assert describe_room(fleet, ZONE, "other") == f"No quota is set for other in {ZONE}."
    assert describe_room(fleet, ZONE, "") == ""


@pytest.mark.parametrize(
    ("limit", "target", "place", "expected"),
    [
        (6, 5, TRAIN, Verdict(ACCEPTED)),
        (
            6,
            7,
            TRAIN,
            Verdict(
                WAITS,
                "The server would accept it. The quota of 6 has room for 5, as other NodePools use"
                " 1. A target of 5 would fit. Until this target fits, no further Node joins.",
            ),
        ),
        (
            3,
            4,
            NEW,
            Verdict(
                WAITS,
                "The server would accept it. The quota of 3 has room for 0, as other NodePools use"
                " 3. Until this target fits, no further Node joins.",
            ),
        ),
        (
            None,
            1,
            NEW,
            Verdict(
                WAITS,
                f"The server would accept it. No quota is set for {H100} in {ZONE}."
                " Until this target fits, no further Node joins.",
            ),
        ),
        (1, 2, TRAIN, Verdict(ACCEPTED)),
        (None, 0, NEW, Verdict(ACCEPTED)),
    ],
    ids=["fits", "over", "used up", "no quota", "what it has fits", "nothing fits"],
)
def test_a_target_that_the_quota_has_no_room_for_would_wait_and_is_told_what_fits(
    limit: int | None, target: int, place: Place, expected: Verdict
) -> None:
    pools = {TRAIN: pool(node("a"), node("b"))}
    quota = {"zone": ZONE, "instanceType": H100, "limit": limit, "used": 3}

    fleet = Fleet("demo", pools, {"demo": ZONE}, [quota])

    assert judge_target(fleet, place, H100, target) == expected


def test_a_target_that_counts_a_node_above_the_grant_would_wait() -> None:
    # given a NodePool with 2 Nodes, of which its grant covers one
    known = pool(node("a"), node("b"))
    pools = {TRAIN: replace(known, facts=replace(known.facts, granted=1))}
    quota = {"zone": ZONE, "instanceType": H100, "limit": 1, "used": 2}
    fleet = Fleet("demo", pools, {"demo": ZONE}, [quota])

    # when its target is raised to what it has, or lowered to its grant
    higher, lower = (judge_target(fleet, TRAIN, H100, target) for target in (2, 1))

    # then only its grant is sure
    assert (higher.word, lower) == (WAITS, Verdict(ACCEPTED))


def test_a_form_keeps_what_was_typed_and_names_each_fault() -> None:
    typed = {
        "name": "Night_ly",
        "target": "x",
        "labels": "team",
        "taints": "a=b",
        "cluster": "none",
    }

    form = read_form(typed, ["demo"])

    assert sorted(form.faults) == ["cluster", "labels", "name", "taints", "target", "type"]
    assert form.value("target") == "x"
    assert form.value("class") == "default"


@pytest.mark.parametrize(
    ("changes", "faults"),
    [
        ({}, {}),
        (
            {"target": "x", "labels": "a=b c", "taints": "k=v:Never"},
            {
                "target": "Give a whole number from 0 to 1,000,000, for example 4.",
                "labels": "value 'b c' must be letters, digits, '-', '_' or '.', with a letter or"
                " digit at both ends (Kubernetes: Labels and Selectors)",
                "taints": "effect 'Never' must be one of NoSchedule, PreferNoSchedule, NoExecute"
                " (Kubernetes: Taints and Tolerations)",
            },
        ),
        (
            {"how": "auto", "least": "5", "most": "4", "labels": "x.coreweave.com/a=b"},
            {"most": "Give a maximum of at least 5, the minimum.", "labels": RESERVED},
        ),
        ({"how": "auto", "target": "x", "least": "1", "most": "4"}, {}),
    ],
    ids=["none", "of the form and of the rules", "of bounds and of a label", "of a hidden field"],
)
def test_a_form_names_at_once_what_it_and_the_rules_of_the_server_refuse(
    changes: dict[str, str], faults: dict[str, str]
) -> None:
    given = {"name": "nightly", "cluster": "demo", "type": H100, **changes}

    assert read_form(given, ["demo"]).faults == faults


def test_a_form_becomes_the_manifest_and_the_command_that_say_the_same() -> None:
    plain = {"name": "a", "cluster": "demo", "type": H100, "class": "spot", "target": "3"}
    autoscaled = {**plain, "how": "auto", "least": "1", "most": "4", "labels": "team=a, b=c"}
    tainted = {**plain, "taints": "dedicated=eval:NoSchedule"}

    spec = build_manifest(read_form(plain, ["demo"]))["spec"]
    more = build_manifest(read_form(autoscaled, ["demo"]))["spec"]
    taints = build_manifest(read_form(tainted, ["demo"]))["spec"]

    assert spec == {"instanceType": H100, "computeClass": "spot", "targetNodes": 3}
    assert more == {
        "instanceType": H100,
        "computeClass": "spot",
        "autoscaling": True,
        "targetNodes": 1,
        "minNodes": 1,
        "maxNodes": 4,
        "nodeLabels": {"team": "a", "b": "c"},
    }
    assert isinstance(taints, dict)
    assert taints["nodeTaints"] == [{"key": "dedicated", "value": "eval", "effect": "NoSchedule"}]
    own, _ = list_create_commands(read_form(plain, ["demo"]))
    assert own.line == (
        f"nodepool create nodepool a --instance-type {H100} --compute-class spot --target 3"
    )


def test_a_command_quotes_what_a_shell_would_read() -> None:
    form = read_form({"name": "a; rm -rf /", "cluster": "x y"}, ["x y"])

    assert list_create_commands(form)[0].line.startswith("nodepool create nodepool 'a; rm -rf /' ")


def test_capacity_is_asked_for_each_known_type_once_and_ranked_as_it_was_answered() -> None:
    chosen = read_selections([H100, "unknown", H100, "gd-8xa100-i128"], ["1", "2", "3", "0"])
    answer = {
        "zones": [
            {"zone": "B", "availability": "Likely available", "tags": ["Likely available"]},
            {"zone": ZONE, "availability": "Not available", "tags": ["Not available"]},
            {"zone": "C", "availability": "SKU unavailable", "tags": []},
        ]
    }

    found = read_found(answer, {"demo": ZONE})

    assert [(each.number, bool(each.fault)) for each in chosen] == [(3, False), (0, True)]
    assert [(zone.name, zone.clusters) for zone in found.zones] == [("B", ()), (ZONE, ("demo",))]
    assert [zone.name for zone in found.others] == ["C"]


@pytest.mark.parametrize(
    ("seconds", "text", "countdown"),
    [
        (-1, "0 s", "0:00"),
        (26, "26 s", "0:26"),
        (146, "2 min 26 s", "2:26"),
        (11_100, "3 h 5 min", "3:05:00"),
        (90_000, "1 d 1 h", "25:00:00"),
        (345_600, "4 d", "96:00:00"),
    ],
)
def test_a_duration_has_at_most_two_units(seconds: float, text: str, countdown: str) -> None:
    assert format_duration(seconds) == text
    assert format_countdown(seconds) == countdown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (274, "in 4:34"),
        (-15, "in 0:00"),
        (-16, "overdue by 16 s"),
        (-725, "overdue by 12 min 5 s"),
    ],
)
def test_a_deadline_is_overdue_once_a_service_is_late(seconds: float, text: str) -> None:
    assert format_due(seconds, "in ") == text
