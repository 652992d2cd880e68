"""What is missing of a Node: its marks, its cordon, its object."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from agent.actions import Action, Create, Delete, ListPods, Patch, RecordEvent, Report
from agent.nodes.conditions import compare_conditions
from agent.nodes.marks import POOL_UID, STARTUP_TAINT, claim
from agent.nodes.memory import NodeMemory
from agent.nodes.missing import NodeView, missing_for_node
from agent.nodes.objects import Reported
from agent.nodes.record import Managed, read_record
from nodepool.contract.events import NodeConditionReported, NodeReported
from nodepool.contract.model import CORDON, GPU_TAINT, LOCK_TAINT, NodePhase, Taint
from nodepool.contract.pods import reserved_taint
from nodepool.contract.well_known import MANAGED
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

TYPE_LABEL, H100 = "node.kubernetes.io/instance-type", "gd-8xh100ib-i128"
CLAIMED = '{"assignment":7,"log":"log-1","unschedulable":false,"version":40}'
AS_READ = {"uid": "uid-1", "resourceVersion": "5"}


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
        Patch("Node", "n1", {"metadata": {"labels": {"team": "blue"}, "uid": "uid-1"}})
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
        {
            "metadata": {
                "labels": {"old": None},
                "annotations": {MANAGED: remembered()[MANAGED]},
                **AS_READ,
            }
        },
    )


def test_what_a_node_had_before_its_nodepool_asked_for_it_stays_afterwards() -> None:
    # given a Node with marks of others, and a NodePool that asks for the same
    mine = Taint(key="mine", value="1", effect="NoSchedule")
    asked = replace(
        WANTED,
        labels={**WANTED.labels, "rack": "r1"},
        annotations={**WANTED.annotations, "theirs": "y"},
        taints=(*WANTED.taints, mine),
    )
    found = replace(
        FOUND,
        labels={**FOUND.labels, "rack": "r1"},
        annotations={**FOUND.annotations, "theirs": "y"},
        taints=(*FOUND.taints, mine),
    )

    # when it asks for that, and when it does no more
    # then nothing of it was the control plane's
    assert missing(asked, found) == []
    assert missing(WANTED, found) == []


def test_a_label_of_somebody_else_that_is_set_to_another_value_goes_with_its_nodepool() -> None:
    asked = replace(WANTED, labels={**WANTED.labels, "rack": "r2"})
    found = replace(FOUND, labels={**FOUND.labels, "rack": "r1"})

    [patch] = missing(asked, found)

    annotations = {MANAGED: remembered(labels=["rack", "team"])[MANAGED]}
    metadata = {"labels": {"rack": "r2"}, "annotations": annotations, **AS_READ}
    assert patch == Patch("Node", "n1", {"metadata": metadata})


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
        Patch(
            "Node",
            "n1",
            {"metadata": {"uid": "uid-1", "resourceVersion": "5"}, "spec": {"taints": taints}},
        )
    ]


def test_the_taint_of_a_cordon_is_left_to_kubernetes() -> None:
    found = replace(FOUND, unschedulable=True, annotations=remembered(unschedulable=True, cordon=1))

    assert missing(replace(CORDONED, taints=(GPU_TAINT, CORDON)), found) == []


def test_taints_and_a_cordon_come_before_labels_and_annotations() -> None:
    # given a Node that is locked and cordoned, and gets other labels and annotations
    wanted = replace(
        CORDONED,
        taints=(GPU_TAINT, LOCK_TAINT),
        lock=33,
        labels={"color": "red"},
        annotations={"more": "y"},
    )
    cluster = MemoryCluster()
    cluster.add_node("n1", labels={"team": "blue"}, annotations=dict(remembered()), uid="uid-1")
    cluster.nodes["n1"]["spec"] = {"taints": [GPU_TAINT.model_dump()]}
    cluster.nodes["n1"]["metadata"]["resourceVersion"] = "1"
    cluster.version = 1

    # when what is missing is done, patch by patch
    done = []
    while patches := [each for each in missing(wanted, cluster.node("n1")) if type(each) is Patch]:
        [patch] = patches
        cluster.carry_out(patch)
        done.append(patch.patch)

    # then the first remembers what it makes, and the second all
    taints = [GPU_TAINT.model_dump(), {**LOCK_TAINT.model_dump()}]
    made = {"unschedulable": True, "cordon": 1, "lock": 33}
    made["taints"] = ["is_gpu:PreferNoSchedule", f"{LOCK_TAINT.key}:NoExecute"]  # type: ignore[assignment]
    first = remembered(**made)[MANAGED]
    second = remembered(**made, labels=["color"], annotations=["more"])[MANAGED]
    assert done == [
        {
            "metadata": {"annotations": {MANAGED: first}, "uid": "uid-1", "resourceVersion": "1"},
            "spec": {"taints": taints, "unschedulable": True},
        },
        {
            "metadata": {
                "labels": {"color": "red", "team": None},
                "annotations": {"more": "y", MANAGED: second, "note": None},
                "uid": "uid-1",
                "resourceVersion": "2",
            }
        },
    ]


def test_a_startup_taint_goes_with_the_first_patch() -> None:
    # given a Node as its kubelet has registered it, claimed for this stay
    startup = Taint(key="node.coreweave.cloud/reserved", effect="NoSchedule")
    claimed = {MANAGED: json.dumps({"assignment": 7, "log": LOG, "version": 40})}
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
                "uid": "uid-1",
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
        view = NodeView(wanted, found, proven="uid-1.7.0.33")
        report = missing_for_node(view, PLACE, LOG, NOW)[0]
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
        Patch(
            "Node",
            "n1",
            {"metadata": {"annotations": {"example.com/note-7": "x" * 500}, **AS_READ}},
        )
    ]


# Joining.


def test_a_node_is_claimed_and_not_reported_before_its_kubelet_is_ready() -> None:
    wanted = replace(WANTED, registered=False, phase=NodePhase.BOOTING)
    found = replace(FOUND, annotations={}, conditions=({"type": "Ready", "status": "False"},))
    claim = Patch("Node", "n1", {"metadata": {"annotations": {MANAGED: CLAIMED}, **AS_READ}})

    assert missing_for_node(NodeView(wanted, found), PLACE, LOG, NOW) == (claim,)
    ready = replace(found, conditions=(READY,))
    assert missing_for_node(NodeView(wanted, ready), PLACE, LOG, NOW) == (claim, Report(REPORT))


NEW = replace(FOUND, labels={}, annotations={}, taints=(reserved_taint("onboard"),))
"""A Node as a kubelet of ours has registered it."""


def test_a_new_node_is_patched_once_when_it_has_joined() -> None:
    # given a new Node
    memory, joining = NodeMemory(), replace(WANTED, registered=False, phase=NodePhase.BOOTING)
    silent = replace(NEW, conditions=({"type": "Ready", "status": "False"},))
    claimed = memory.claim(silent, joining, LOG)

    # when it is not ready, is ready, and has joined
    rounds = [
        missing_for_node(NodeView(wanted, found, claimed=claimed), PLACE, LOG, NOW)
        for wanted, found in ((joining, silent), (joining, NEW), (WANTED, NEW))
    ]

    # then one patch makes it all, and records it
    taint = {"key": "is_gpu", "effect": "PreferNoSchedule", "value": "true"}
    metadata = {"labels": {"team": "blue"}, "annotations": remembered(), **AS_READ}
    patch = Patch("Node", "n1", {"metadata": metadata, "spec": {"taints": [taint]}})
    assert rounds == [(), (Report(REPORT),), (Report(REPORT), patch)]


def test_a_new_node_that_leaves_before_it_is_ready_goes_at_once() -> None:
    claimed = NodeMemory().claim(NEW, replace(WANTED, registered=False), LOG)
    views = [NodeView(None, NEW, claimed=claimed, is_gone=is_gone) for is_gone in (False, True)]

    kept, gone = (missing_for_node(view, PLACE, LOG, NOW) for view in views)

    assert (kept, gone) == ((), (Delete("Node", "n1", "uid-1"),))


def test_a_new_node_of_an_earlier_stay_is_no_part_of_the_next() -> None:
    claimed = NodeMemory().claim(NEW, replace(WANTED, registered=False), LOG)
    later = replace(WANTED, registered=False, assignment=8)

    delete, create = missing_for_node(NodeView(later, NEW, claimed=claimed), PLACE, LOG, NOW)

    assert delete == Delete("Node", "n1", "uid-1")
    assert isinstance(create, Create)


@pytest.mark.parametrize("status", ["False", "Unknown", None])
def test_a_node_that_is_not_ready_is_not_reported_before_it_is_registered(
    status: str | None,
) -> None:
    conditions = () if status is None else ({"type": "Ready", "status": status},)
    wanted = replace(WANTED, registered=False, phase=NodePhase.BOOTING)
    claimed = {MANAGED: CLAIMED}
    found = replace(FOUND, annotations=claimed, conditions=conditions)

    assert missing_for_node(NodeView(wanted, found), PLACE, LOG, NOW) == ()


def test_a_registered_node_that_was_deleted_by_hand_is_created_with_all_it_has() -> None:
    labels = {**CORDONED.labels, TYPE_LABEL: H100}
    wanted = replace(CORDONED, taints=(GPU_TAINT, CORDON), labels=labels)

    metadata = {
        "name": "n1",
        "labels": {
            "kubernetes.io/hostname": "n1",
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            TYPE_LABEL: H100,
            "team": "blue",
        },
        "annotations": remembered(unschedulable=True, cordon=1, labels=[TYPE_LABEL, "team"]),
    }
    taints = [
        {"key": "is_gpu", "effect": "PreferNoSchedule", "value": "true"},
        {"key": "node.coreweave.cloud/reserved", "effect": "NoSchedule", "value": "booting"},
    ]
    spec = {"taints": taints, "unschedulable": True}
    assert missing(wanted, None) == [
        Create("Node", {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec})
    ]


def test_a_node_that_is_created_again_gets_back_what_others_had_given_it() -> None:
    # given a Node as it was seen last, with marks of others and of Kubernetes itself
    mine = Taint(key="mine", effect="NoExecute")
    not_ready = Taint(key="node.kubernetes.io/not-ready", effect="NoExecute")
    last_seen = replace(
        FOUND,
        labels={"team": "blue", "theirs": "1"},
        annotations={**remembered(), "kubelet": "x"},
        taints=(GPU_TAINT, mine, not_ready),
        provider_id="their://1",
        pod_cidrs=("10.0.0.0/24",),
    )

    # when it was deleted by hand
    view = NodeView(WANTED, None, last_seen=last_seen)
    [create] = missing_for_node(view, PLACE, LOG, NOW)

    # then it is back with all that cannot be made anew
    assert isinstance(create, Create)
    cluster = MemoryCluster()
    cluster.carry_out(create)
    found = cluster.node("n1")
    assert found is not None
    assert found.labels == {
        "kubernetes.io/hostname": "n1",
        "kubernetes.io/os": "linux",
        "team": "blue",
        "theirs": "1",
    }
    assert found.annotations == {**remembered(), "kubelet": "x"}
    assert found.taints == (GPU_TAINT, STARTUP_TAINT, mine)
    assert (found.provider_id, found.pod_cidrs) == ("their://1", ("10.0.0.0/24",))


@pytest.mark.parametrize("ready", ["True", "Unknown", None])
def test_a_node_that_was_created_again_takes_pods_once_it_is_ready(ready: str | None) -> None:
    conditions = () if ready is None else ({"type": "Ready", "status": ready},)
    found = replace(FOUND, taints=(GPU_TAINT, STARTUP_TAINT), conditions=conditions)

    patches = [each for each in missing(WANTED, found) if isinstance(each, Patch)]

    taints = [{"key": "is_gpu", "effect": "PreferNoSchedule", "value": "true"}]
    expected = [Patch("Node", "n1", {"metadata": AS_READ, "spec": {"taints": taints}})]
    assert patches == (expected if ready == "True" else [])


def test_a_node_that_is_not_registered_is_not_created() -> None:
    assert missing(replace(WANTED, registered=False), None) == []


# A new stay.


@pytest.mark.parametrize(
    ("before", "now", "claimed"),
    [(0, "7", 7), (5, "7", 5), (900, "7", 7), (5, "", 5), (0, "", 0)],
)
def test_the_earliest_known_position_of_a_stay_is_remembered(
    before: int, now: str, claimed: int
) -> None:
    # The log may have been restored from a backup, and is then behind what was remembered.
    state = Managed(LOG, WANTED.assignment, before)

    assert claim(replace(WANTED, version=now), LOG, state).version == claimed


def test_pods_of_an_earlier_stay_end_before_a_node_is_reported() -> None:
    # given a machine that has come back, with a Pod that is older than its Node
    cluster = MemoryCluster()
    node = cluster.add_node("n1", annotations={MANAGED: CLAIMED})
    node["metadata"]["creationTimestamp"] = "2026-01-01T00:00:10Z"
    old, new = cluster.add_pod("old", "n1"), cluster.add_pod("new", "n1")
    old["metadata"]["creationTimestamp"] = "2026-01-01T00:00:09Z"
    new["metadata"]["creationTimestamp"] = "2026-01-01T00:00:10Z"
    cluster.hanging.add("default/old")
    wanted = replace(WANTED, registered=False, phase=NodePhase.BOOTING)

    def step() -> Sequence[Action]:
        view = NodeView(wanted, cluster.node("n1"), cluster.pods_of("n1"))
        return missing_for_node(view, PLACE, LOG, NOW)

    # when it is compared
    first = step()
    for action in first:
        cluster.carry_out(action)

    # then that Pod ends at once, and does not count although a finalizer keeps its object
    assert first == (Delete("Pod", "old", old["metadata"]["uid"], "default", grace_s=0),)
    [report] = step()
    assert isinstance(report, Report)
    assert isinstance(report.event, NodeReported)
    assert [pod.name for pod in report.event.pods] == ["default/new"]


@pytest.mark.parametrize(
    ("created", "is_ended"), [("2026-01-01T00:01:00Z", False), ("2026-01-01T00:00:59Z", True)]
)
def test_a_pod_of_a_daemon_set_is_of_this_stay_by_a_clock_that_is_slow(
    created: str, *, is_ended: bool
) -> None:
    # given a machine that has come back, and a Pod of a DaemonSet there
    cluster = MemoryCluster()
    node = cluster.add_node("n1", annotations={MANAGED: CLAIMED})
    node["metadata"]["creationTimestamp"] = "2026-01-01T00:02:00Z"
    metadata = cluster.add_pod("driver", "n1")["metadata"]
    metadata["creationTimestamp"] = created
    metadata["ownerReferences"] = [{"kind": "DaemonSet", "name": "driver", "controller": True}]
    wanted = replace(WANTED, registered=False, phase=NodePhase.BOOTING)

    # when it is compared
    view = NodeView(wanted, cluster.node("n1"), cluster.pods_of("n1"))
    actions = missing_for_node(view, PLACE, LOG, NOW)

    # then the Pod ends only if it is older than clocks are apart
    assert [type(each) for each in actions] == [Delete if is_ended else Report]


# Cordons that are in force.


def test_the_number_of_a_cordon_is_reported_with_pods_that_were_listed_after_it() -> None:
    # given a Node that has just been cordoned, as reported before that
    found = replace(FOUND, unschedulable=True, annotations=remembered(unschedulable=True, cordon=1))
    view = NodeView(CORDONED, found, reported=Reported(REPORT))

    # when it is compared before its Pods are listed, and after that
    before = missing_for_node(view, PLACE, LOG, NOW)
    after = missing_for_node(replace(view, proven="uid-1.7.1.0"), PLACE, LOG, NOW)

    # then only the list proves it
    cordoned = REPORT.model_copy(update={"unschedulable": True})
    assert before == (ListPods("n1", "uid-1.7.1.0"), Report(cordoned))
    assert after == (Report(cordoned.model_copy(update={"cordon": 1})),)
    other = replace(view, proven="uid-1.7.2.0")
    assert missing_for_node(other, PLACE, LOG, NOW) == before


def test_a_process_that_has_reported_nothing_yet_proves_a_cordon_first() -> None:
    found = replace(FOUND, unschedulable=True, annotations=remembered(unschedulable=True, cordon=1))

    view = NodeView(CORDONED, found)

    assert missing_for_node(view, PLACE, LOG, NOW) == (ListPods("n1", "uid-1.7.1.0"),)


def test_a_node_that_is_not_ready_does_not_answer_a_cordon() -> None:
    found = replace(
        FOUND,
        unschedulable=True,
        annotations=remembered(unschedulable=True, cordon=1),
        conditions=({"type": "Ready", "status": "Unknown"},),
    )
    view = NodeView(CORDONED, found, reported=Reported(REPORT), proven="uid-1.7.1.0")

    reported = REPORT.model_copy(update={"unschedulable": True})
    reports = missing_for_node(view, PLACE, LOG, NOW)
    assert [each for each in reports if each == Report(reported)] == [Report(reported)]
    assert not any(isinstance(each, ListPods) for each in reports)


def reports_of_ready(view: NodeView) -> list[NodeConditionReported]:
    """The reports of the condition Ready that are missing."""
    return [
        each.event
        for each in missing_for_node(view, PLACE, LOG, NOW)
        if isinstance(each, Report) and isinstance(each.event, NodeConditionReported)
    ]


def test_a_silence_that_kubernetes_has_found_is_reported_at_once_and_once() -> None:
    found = replace(FOUND, conditions=({"type": "Ready", "status": "Unknown"},))
    view = NodeView(WANTED, found, reported=Reported(REPORT))

    (report,) = reports_of_ready(view)
    again = reports_of_ready(replace(view, reported=Reported(REPORT, {"Ready": report})))

    assert (report.status, report.request, again) == ("Unknown", 0, [])


@pytest.mark.parametrize("status", ["True", "False", "Unknown"])
def test_a_question_how_ready_a_node_is_gets_one_answer(status: str) -> None:
    found = replace(FOUND, conditions=({"type": "Ready", "status": status},))
    known = ({"type": "Ready", "status": status},)
    view = NodeView(replace(WANTED, conditions=known, request=70), found, reported=Reported(REPORT))

    (report,) = reports_of_ready(view)
    again = reports_of_ready(replace(view, reported=Reported(REPORT, {"Ready": report})))

    assert (report.status, report.request, again) == (status, 70, [])


# Leaving.


def test_a_node_that_has_left_goes_with_its_pods_and_without_grace() -> None:
    cluster = MemoryCluster()
    pod = cluster.add_pod("a", "n1")
    view = NodeView(None, FOUND, cluster.pods_of("n1"), is_gone=True)

    assert missing_for_node(view, PLACE, LOG, NOW) == (
        Delete("Pod", "a", pod["metadata"]["uid"], "default", grace_s=0),
        Delete("Node", "n1", "uid-1"),
    )


def test_a_node_that_the_read_model_lacks_is_not_deleted_for_that() -> None:
    view = NodeView(None, FOUND, unwanted_s=1_000_000)

    assert missing_for_node(view, PLACE, LOG, NOW) == ()


@pytest.mark.parametrize(
    ("unwanted_s", "ready", "taint", "goes"),
    [
        (1_800.0, "Unknown", STARTUP_TAINT, True),
        (1_800.0, "Unknown", reserved_taint("onboard"), True),
        (1_799.0, "Unknown", STARTUP_TAINT, False),
        (1_800.0, "Unknown", reserved_taint("control-plane"), False),
        (1_800.0, "Unknown", Taint(key="foreign", effect="NoExecute"), False),
    ],
)
def test_a_node_that_a_kubelet_of_ours_has_registered_for_nobody_goes_in_the_end(
    unwanted_s: float, ready: str, taint: Taint, goes: bool
) -> None:
    found = replace(
        FOUND,
        annotations={},
        taints=(taint,),
        conditions=({"type": "Ready", "status": ready},),
    )

    actions = missing_for_node(NodeView(None, found, unwanted_s=unwanted_s), PLACE, LOG, NOW)

    assert actions == ((Delete("Node", "n1", "uid-1"),) if goes else ())


def test_a_ready_node_that_nobody_claims_is_told_of_and_stays() -> None:
    found = replace(
        FOUND,
        annotations={},
        taints=(STARTUP_TAINT,),
        conditions=({"type": "Ready", "status": "True"},),
    )

    soon, later = (
        missing_for_node(NodeView(None, found, unwanted_s=unwanted_s), PLACE, LOG, NOW)
        for unwanted_s in (1_799.0, 1_800.0)
    )

    assert soon == ()
    (event,) = later
    assert isinstance(event, RecordEvent)
    assert (event.kind, event.name, event.severity) == ("Node", "n1", "Warning")
    assert event.reason == "NodeNotClaimed"
    assert "node.coreweave.cloud/reserved=booting:NoSchedule" in event.message


def test_a_condition_is_written_with_a_heartbeat() -> None:
    since = "2026-01-01T00:00:00Z"
    condition = {"type": "CWActive", "status": "True", "lastTransitionTime": since}
    wanted = replace(WANTED, conditions=(condition,))

    assert compare_conditions(wanted, replace(FOUND, conditions=()), {}).written == [
        {"lastHeartbeatTime": since, **condition}
    ]


def test_a_foreign_node_is_not_touched() -> None:
    assert missing(None, replace(FOUND, annotations={})) == []


def test_a_node_of_another_log_is_not_deleted() -> None:
    view = NodeView(None, replace(FOUND, annotations=remembered(log="log-0")), is_gone=True)

    assert missing_for_node(view, PLACE, LOG, NOW) == ()


def test_a_node_that_is_being_deleted_is_not_deleted_again() -> None:
    view = NodeView(None, replace(FOUND, deleting=True), is_gone=True)

    assert missing_for_node(view, PLACE, LOG, NOW) == ()


@pytest.mark.parametrize("registered", [True, False])
def test_an_object_of_an_earlier_stay_is_replaced(*, registered: bool) -> None:
    # given a machine that has come back, and the object of its last stay, as from a backup of etcd
    found = replace(FOUND, annotations=remembered(assignment=6))
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
    state = read_record(new)
    assert state is not None
    assert (state.log, state.assignment) == (LOG, 7)


@pytest.mark.parametrize("other", [{"log": "log-0"}, {"assignment": 8}])
def test_an_object_of_another_log_or_of_a_log_that_was_restored_is_adopted(
    other: Mapping[str, object],
) -> None:
    # given a Node that the bus wants, with the numbers of another log and a Pod at work
    old = remembered(**other, labels=["old", "team"], cordon=5, lock=9, unschedulable=True)
    found = replace(FOUND, labels={"team": "blue", "old": "1"}, annotations=old)
    cluster = MemoryCluster()
    cluster.add_pod("work", "n1")
    view = NodeView(replace(WANTED, cordon=5), found, cluster.pods_of("n1"))

    # when it is compared
    report, patch = missing_for_node(view, PLACE, LOG, NOW)

    # then it keeps its Pods, and only the keys count of what was remembered
    assert isinstance(report, Report)
    assert isinstance(report.event, NodeReported)
    assert (report.event.cordon, report.event.lock) == (0, 0)
    assert [pod.name for pod in report.event.pods] == ["default/work"]
    new = {"labels": {"old": None}, "annotations": {MANAGED: remembered(cordon=5)[MANAGED]}}
    assert patch == Patch("Node", "n1", {"metadata": {**new, **AS_READ}})


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '{"assignment":"x"}'])
def test_an_annotation_that_cannot_be_read_is_written_again(text: str) -> None:
    found = replace(FOUND, annotations={"note": "x", MANAGED: text})

    assert missing(WANTED, found) == [
        Patch(
            "Node",
            "n1",
            {"metadata": {"annotations": {MANAGED: remembered()[MANAGED]}, **AS_READ}},
        )
    ]
