"""What the agent reports of a Node, and what it puts into its status."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from agent.actions import Drain, Place
from agent.nodes.conditions import Compared, compare_conditions
from agent.nodes.objects import NodeObject, Reported, WantedNode
from agent.nodes.record import Managed
from agent.nodes.reports import condition_reports, is_minor, node_report, proves_more
from agent.reading import Document
from nodepool.contract.events import NodeReported
from nodepool.contract.log import LogId
from nodepool.contract.model import LOCK_TAINT, NodePhase
from nodepool.contract.pods import PODS_MAX, Pod
from support.memory_cluster import MemoryCluster

PLACE = Place("acme", "prod", "z")
WANTED = WantedNode("n1", "z", "p", 7, "9", NodePhase.PRODUCTION, registered=True)
FOUND = NodeObject("n1", "u", "5")
BOTH = ["hard", "soft"]


def condition(type: str, status: str, **rest: str) -> Document:
    return {"type": type, "status": status, **rest}


def both(
    here: Sequence[Document], there: Sequence[Document], last: Mapping[str, str] | None = None
) -> Compared:
    """The conditions of a Node here, and those of the bus there."""
    found, wanted = (
        replace(FOUND, conditions=tuple(here)),
        replace(WANTED, conditions=tuple(there)),
    )
    return compare_conditions(wanted, found, last or {})


def reports(here: Sequence[Document], reported: Reported) -> list[tuple[str, str, str, str]]:
    """The reports of conditions that the bus has not heard of."""
    found = both(here, []).reported
    return [
        (each.event.type, each.event.status, each.event.reason, each.event.message)  # type: ignore[union-attr]
        for each in condition_reports(WANTED, found, reported, PLACE)
    ]


# Ready.


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_a_node_that_is_not_ready_is_reported_as_kubernetes_says_it(status: str) -> None:
    ready = condition("Ready", status, reason="NodeStatusUnknown", message="silent")

    assert reports([ready], Reported()) == [("Ready", status, "NodeStatusUnknown", "silent")]


@pytest.mark.parametrize("here", [[condition("Ready", "True")], []])
def test_a_ready_node_and_one_that_says_nothing_yet_are_not_reported(
    here: Sequence[Document],
) -> None:
    assert both(here, []) == Compared([], [], {})


def test_a_node_that_is_ready_again_is_reported() -> None:
    ready = condition("Ready", "True")

    assert both([ready], [condition("Ready", "Unknown")]).reported == [ready]
    assert both([ready], [ready]).reported == []


def test_a_condition_is_reported_once_and_its_text_is_bounded() -> None:
    ready = condition("Ready", "False", message="x" * 5_000)
    [event] = [r.event for r in condition_reports(WANTED, [ready], Reported(), PLACE)]

    assert not isinstance(event, NodeReported)
    assert len(event.message) == 1_024
    again = Reported(conditions={"Ready": event})
    assert list(condition_reports(WANTED, [ready], again, PLACE)) == []


# Problems that others may put on a Node.

BAD, GOOD = condition("GPUMissing", "True"), condition("GPUMissing", "False")


@pytest.mark.parametrize(
    ("here", "there", "last", "outcome"),
    [
        ([BAD], [], {}, ([BAD], [], {})),
        ([GOOD], [], {}, ([], [], {"GPUMissing": "False"})),
        ([], [BAD], {}, ([], [BAD], {})),
        ([BAD], [BAD], {}, ([], [], {"GPUMissing": "True"})),
        # Only the bus has changed it, then only the Node.
        ([GOOD], [BAD], {"GPUMissing": "False"}, ([], [BAD], {"GPUMissing": "False"})),
        ([BAD], [GOOD], {"GPUMissing": "True"}, ([], [GOOD], {"GPUMissing": "True"})),
        ([BAD], [GOOD], {"GPUMissing": "False"}, ([BAD], [], {"GPUMissing": "False"})),
        ([GOOD], [BAD], {"GPUMissing": "True"}, ([GOOD], [], {"GPUMissing": "True"})),
        # Nobody knows who has: a problem counts.
        ([BAD], [GOOD], {}, ([BAD], [], {})),
        ([GOOD], [BAD], {}, ([], [BAD], {})),
    ],
)
def test_a_problem_is_compared_three_ways(
    here: Sequence[Document],
    there: Sequence[Document],
    last: Mapping[str, str],
    outcome: tuple[Sequence[Document], Sequence[Document], Mapping[str, str]],
) -> None:
    assert both(here, there, last) == outcome


def test_conditions_of_the_bus_are_put_on_the_node_and_those_of_the_kubelet_are_not() -> None:
    active, fan = condition("CWActive", "True"), condition("FanSlow", "True")
    there = [active, fan, condition("Ready", "Unknown"), condition("DiskPressure", "True")]

    assert both([], there).written == [active, fan]
    assert both([active, fan], [active, fan]).written == []


def test_a_moment_that_is_written_otherwise_is_no_difference() -> None:
    here = condition("CWActive", "True", lastTransitionTime="2026-01-01T00:00:00Z")
    there = condition("CWActive", "True", lastTransitionTime="2026-01-01T00:00:00.123Z")

    assert both([here], [there]).written == []


def test_a_state_that_is_over_is_taken_from_the_node_and_foreign_conditions_stay() -> None:
    here = [condition("PhaseState", "True"), condition("MemoryPressure", "False")]

    assert both(here, []).written == [{"$patch": "delete", "type": "PhaseState"}]


# Nodes.


def report(cluster: MemoryCluster, *, state: Managed | None = None) -> NodeReported:
    state = state or Managed(LogId("log"), 7)
    return node_report(WANTED, FOUND, state, cluster.pods_of("n1"), PLACE)


def test_a_node_with_more_pods_than_a_report_holds_shows_those_that_it_waits_for() -> None:
    # given a Node with many Pods of DaemonSets, and many that are work
    cluster = MemoryCluster()
    for n in range(100):
        pod = cluster.add_pod(f"a-daemon-{n:03}", "n1")
        pod["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "controller": True}]
    for n in range(100):
        cluster.add_pod(f"work-{n:03}", "n1")

    # when it is reported
    pods = report(cluster).pods

    # then all work is in there
    assert len(pods) == PODS_MAX
    assert [pod.name for pod in pods if pod.counts_as_work] == [
        f"default/work-{n:03}" for n in range(100)
    ]


@pytest.mark.parametrize(
    ("drain", "lock", "shown"),
    [("safe", 0, ["hard"]), ("forced", 0, ["hard"]), ("", 0, BOTH), ("safe", 9, BOTH)],
)
def test_a_drain_does_not_wait_for_the_grace_of_what_may_be_interrupted_and_a_lock_does(
    drain: Drain, lock: int, shown: list[str]
) -> None:
    cluster = MemoryCluster()
    for name, labels in (("soft", {"qos.coreweave.cloud__interruptable": "true"}), ("hard", {})):
        pod = cluster.add_pod(name, "n1", **labels)
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    wanted = replace(WANTED, drain=drain, lock=lock)
    state = Managed(LogId("log"), 7)
    found = node_report(wanted, FOUND, state, cluster.pods_of("n1"), PLACE).pods
    assert [(pod.name, pod.terminating) for pod in found] == [
        (f"default/{name}", True) for name in shown
    ]


@pytest.mark.parametrize(
    ("last", "unschedulable", "cordon", "lock", "more"),
    [
        (None, False, 0, 0, False),
        (None, True, 0, 0, False),
        (None, True, 1, 0, True),
        ((False, 0, 0), True, 1, 0, True),
        ((True, 1, 0), True, 1, 0, False),
        ((True, 1, 0), True, 2, 0, True),
        ((False, 1, 0), True, 1, 0, True),
        ((True, 1, 0), False, 1, 0, False),
        ((False, 0, 0), False, 0, 9, True),
        ((False, 0, 9), False, 0, 9, False),
    ],
)
def test_a_report_proves_more_where_a_cordon_or_a_lock_has_come(
    last: tuple[bool, int, int] | None,
    unschedulable: bool,
    cordon: int,
    lock: int,
    more: bool,
) -> None:
    state = Managed(LogId("log"), 7, cordon=cordon, lock=lock)
    found = replace(FOUND, unschedulable=unschedulable, taints=(LOCK_TAINT,))
    now = node_report(WANTED, found, state, [], PLACE)
    before = None
    if last is not None:
        before = now.model_copy(
            update=dict(zip(("unschedulable", "cordon", "lock"), last, strict=True))
        )

    assert proves_more(now, Reported(before)) is more


USED = NodeReported(
    org="acme",
    cluster="prod",
    pool="p",
    node="n1",
    zone="z",
    assignment=7,
    unschedulable=False,
    pods=(Pod(name="default/a"),),
)


@pytest.mark.parametrize(
    ("change", "minor"),
    [
        pytest.param({"pods": (Pod(name="default/b"),)}, True, id="another Pod"),
        pytest.param({"pods": ()}, False, id="no Pod any more"),
        pytest.param({"unschedulable": True, "cordon": 1}, False, id="a cordon"),
        pytest.param({"lock": 5}, False, id="a lock"),
        pytest.param({"assignment": 8}, False, id="another stay"),
    ],
)
def test_only_that_other_pods_run_on_a_node_in_use_may_be_reported_later(
    change: Mapping[str, object], minor: bool
) -> None:
    report = USED.model_copy(update=dict(change))

    assert is_minor(report, Reported(node=USED)) is minor
    assert not is_minor(report, Reported())
