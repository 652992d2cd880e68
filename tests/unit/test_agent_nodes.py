"""What is missing of a Node: its marks, its cordon, its object."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from agent.actions import Create, Delete, Patch, Report
from agent.bus import Reported
from agent.marks import MANAGED, POOL_UID, managed
from agent.nodes import NodeView, missing_for_node
from nodepool.contract.events import NodeReported
from nodepool.contract.model import CORDON, GPU_TAINT, LOCK_TAINT, NodePhase, Taint
from support.agent_nodes import (
    CORDONED,
    FOUND,
    LOG,
    NOW,
    PLACE,
    READY,
    REPORT,
    WANTED,
    missing,
    remembered,
)
from support.memory_cluster import MemoryCluster


def test_a_node_that_is_as_it_is_to_be_needs_nothing() -> None:
    assert missing(WANTED, FOUND) == []


def test_a_node_is_reported_once() -> None:
    first = missing_for_node(NodeView(WANTED, FOUND), PLACE, LOG, NOW)
    again = NodeView(WANTED, FOUND, reported=Reported(REPORT))

    assert first == (Report(REPORT),)
    assert missing_for_node(again, PLACE, LOG, NOW) == ()


def test_a_drain_of_a_node_on_which_nothing_runs_is_answered_once() -> None:
    drained = replace(WANTED, drain="forced")
    before = NodeView(drained, FOUND, reported=Reported(REPORT))
    after = NodeView(drained, FOUND, reported=Reported(REPORT, drain="forced"))

    assert missing_for_node(before, PLACE, LOG, NOW) == (Report(REPORT, drain="forced"),)
    assert missing_for_node(after, PLACE, LOG, NOW) == ()


# Marks.


def test_a_managed_label_that_was_set_by_hand_is_set_back_and_a_foreign_one_stays() -> None:
    found = replace(FOUND, labels={"team": "red", "mine": "1"})

    assert missing(WANTED, found) == [
        Patch("Node", "n1", {"metadata": {"labels": {"team": "blue"}}})
    ]


def test_a_label_that_the_bus_no_longer_lists_is_removed() -> None:
    found = replace(
        FOUND,
        labels={"team": "blue", "old": "1", "mine": "1"},
        annotations=remembered(labels=["old", "team"]),
    )

    [patch] = missing(WANTED, found)

    assert patch == Patch(
        "Node",
        "n1",
        {"metadata": {"labels": {"old": None}, "annotations": {MANAGED: remembered()[MANAGED]}}},
    )


def test_the_label_of_the_uid_names_the_object_of_the_pool() -> None:
    [patch] = missing(WANTED, FOUND, pool_uid="object-uid")

    assert isinstance(patch, Patch)
    assert patch.patch["metadata"]["labels"] == {POOL_UID: "object-uid"}  # type: ignore[index]


def test_foreign_taints_keep_their_order_and_their_moment() -> None:
    # given a Node with taints of Kubernetes around one that was removed by hand
    not_ready = Taint(key="node.kubernetes.io/not-ready", effect="NoExecute")
    mine = Taint(key="mine", value="1", effect="NoSchedule")
    found = replace(
        FOUND,
        taints=(not_ready, CORDON, mine),
        taints_added={"node.kubernetes.io/not-ready:NoExecute": "2026-01-01T00:00:00Z"},
    )

    # when it is compared
    # then ours comes last, under the version that was read
    taints = [
        {
            "key": "node.kubernetes.io/not-ready",
            "effect": "NoExecute",
            "timeAdded": "2026-01-01T00:00:00Z",
        },
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "mine", "effect": "NoSchedule", "value": "1"},
        {"key": "is_gpu", "effect": "PreferNoSchedule", "value": "true"},
    ]
    assert missing(WANTED, found) == [
        Patch("Node", "n1", {"metadata": {"resourceVersion": "5"}, "spec": {"taints": taints}})
    ]


def test_the_taint_of_a_cordon_is_left_to_kubernetes() -> None:
    found = replace(FOUND, unschedulable=True, annotations=remembered(unschedulable=True, cordon=1))

    assert missing(replace(CORDONED, taints=(GPU_TAINT, CORDON)), found) == []


def test_a_startup_taint_goes_with_the_first_patch() -> None:
    # given a Node as its kubelet has registered it, claimed for this stay
    startup = Taint(key="node.coreweave.cloud/reserved", effect="NoSchedule")
    claimed = {MANAGED: json.dumps({"assignment": 7, "log": LOG})}
    found = replace(FOUND, labels={}, annotations=claimed, taints=(startup,))

    # when it is registered
    [patch] = missing(WANTED, found)

    # then one patch makes it all
    assert patch == Patch(
        "Node",
        "n1",
        {
            "metadata": {
                "labels": {"team": "blue"},
                "annotations": remembered(),
                "resourceVersion": "5",
            },
            "spec": {"taints": [{"key": "is_gpu", "effect": "PreferNoSchedule", "value": "true"}]},
        },
    )


def test_a_lock_is_written_with_its_taint_and_reported_only_with_it() -> None:
    # given a Node that a job locks
    wanted = replace(WANTED, taints=(GPU_TAINT, LOCK_TAINT), lock=33)
    [patch] = missing(wanted, FOUND)
    assert isinstance(patch, Patch)
    assert json.loads(patch.patch["metadata"]["annotations"][MANAGED])["lock"] == 33  # type: ignore[index]
    assert patch.patch["spec"]["taints"][-1]["key"] == LOCK_TAINT.key  # type: ignore[index]

    # when the taint is there, and when it was taken away by hand
    locks = []
    for taints in ((GPU_TAINT, LOCK_TAINT), (GPU_TAINT,)):
        found = replace(FOUND, taints=taints, annotations=remembered(lock=33))
        report = missing_for_node(NodeView(wanted, found), PLACE, LOG, NOW)[0]
        assert isinstance(report, Report)
        assert isinstance(report.event, NodeReported)
        locks.append(report.event.lock)

    # then only the taint proves the lock
    assert locks == [33, 0]


def test_a_large_template_is_patched_only_where_it_differs() -> None:
    large = {f"example.com/note-{n}": "x" * 500 for n in range(400)}
    keys = sorted({**large, "note": "x"})
    wanted = replace(WANTED, annotations={**large, "note": "x"})
    found = replace(
        FOUND,
        annotations={**large, **remembered(annotations=keys), "example.com/note-7": "other"},
    )

    assert missing(wanted, found) == [
        Patch("Node", "n1", {"metadata": {"annotations": {"example.com/note-7": "x" * 500}}})
    ]


# Joining.


def test_a_node_is_claimed_and_not_reported_before_its_kubelet_is_ready() -> None:
    wanted = replace(WANTED, registered=False, phase=NodePhase.BOOTING)
    found = replace(FOUND, annotations={}, conditions=({"type": "Ready", "status": "False"},))
    claim = Patch(
        "Node", "n1", {"metadata": {"annotations": {MANAGED: '{"assignment":7,"log":"log-1"}'}}}
    )

    assert missing_for_node(NodeView(wanted, found), PLACE, LOG, NOW) == (claim,)
    ready = replace(found, conditions=(READY,))
    assert missing_for_node(NodeView(wanted, ready), PLACE, LOG, NOW) == (claim, Report(REPORT))


@pytest.mark.parametrize("status", ["False", "Unknown", None])
def test_a_node_that_is_not_ready_is_not_reported_before_it_is_registered(
    status: str | None,
) -> None:
    conditions = () if status is None else ({"type": "Ready", "status": status},)
    wanted = replace(WANTED, registered=False, phase=NodePhase.BOOTING)
    claimed = {MANAGED: '{"assignment":7,"log":"log-1"}'}
    found = replace(FOUND, annotations=claimed, conditions=conditions)

    assert missing_for_node(NodeView(wanted, found), PLACE, LOG, NOW) == ()


def test_a_registered_node_that_was_deleted_by_hand_is_created_with_all_it_has() -> None:
    wanted = replace(CORDONED, taints=(GPU_TAINT, CORDON))

    metadata = {
        "name": "n1",
        "labels": {"team": "blue"},
        "annotations": remembered(unschedulable=True, cordon=1),
    }
    taints = [{"key": "is_gpu", "effect": "PreferNoSchedule", "value": "true"}]
    spec = {"taints": taints, "unschedulable": True}
    assert missing(wanted, None) == [
        Create("Node", {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec})
    ]


def test_a_node_that_is_not_registered_is_not_created() -> None:
    assert missing(replace(WANTED, registered=False), None) == []


# Leaving.


def test_a_node_that_has_left_goes_with_its_pods_and_without_grace() -> None:
    cluster = MemoryCluster()
    pod = cluster.add_pod("a", "n1")
    view = NodeView(None, FOUND, cluster.pods_of("n1"))

    assert missing_for_node(view, PLACE, LOG, NOW) == (
        Delete("Pod", "a", pod["metadata"]["uid"], "default", grace_s=0),
        Delete("Node", "n1", "uid-1"),
    )


def test_a_foreign_node_is_not_touched() -> None:
    assert missing(None, replace(FOUND, annotations={})) == []


def test_a_node_of_another_log_is_not_deleted() -> None:
    assert missing(None, replace(FOUND, annotations=remembered(log="log-0"))) == []


def test_a_node_that_is_being_deleted_is_not_deleted_again() -> None:
    assert missing(None, replace(FOUND, deleting=True)) == []


@pytest.mark.parametrize("stale", [{"assignment": 6}, {"log": "log-0"}])
@pytest.mark.parametrize("registered", [True, False])
def test_an_object_of_another_stay_is_replaced(
    stale: Mapping[str, object], *, registered: bool
) -> None:
    # given a machine that has come back, and the object of its last stay, as from a backup of etcd
    found = replace(FOUND, annotations=remembered(**stale))
    wanted = replace(WANTED, registered=registered)

    # when it is compared
    delete, create = missing(wanted, found)

    # then it is another Node, which knows of the new stay
    assert delete == Delete("Node", "n1", "uid-1")
    assert isinstance(create, Create)
    cluster = MemoryCluster()
    cluster.carry_out(create)
    new = cluster.node("n1")
    assert new is not None
    state = managed(new)
    assert state is not None
    assert (state.log, state.assignment) == (LOG, 7)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '{"assignment":"x"}'])
def test_an_annotation_that_cannot_be_read_is_written_again(text: str) -> None:
    found = replace(FOUND, annotations={"note": "x", MANAGED: text})

    assert missing(WANTED, found) == [
        Patch("Node", "n1", {"metadata": {"annotations": {MANAGED: remembered()[MANAGED]}}})
    ]
