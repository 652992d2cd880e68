from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Never, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator import CheckFailed, Hears
from aggregator.decide import PROJECTION, SERVICE
from aggregator.projection import CAPACITY, CLUSTERS, MACHINES, NODES, POOLS, QUOTAS
from aggregator.state import State
from contracts.samples import KIND, MACHINE, UID, ZONE, sample
from nodepool.contract.conditions import Capacity, Quota, Validated
from nodepool.contract.documents import field
from nodepool.contract.events import (
    AllocationFailed,
    AllocationRecovered,
    CapacityChecked,
    CapacityCheckFailed,
    ClusterRegistered,
    CWDrainNode,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodePoolDeleted,
    CWNodePoolNodesRemoved,
    CWNodePoolNodesRemoveError,
    CWNodePoolQuotaCheckFailed,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    MachineAdded,
    MachineBroken,
    MachineRepaired,
    NodeActivityChanged,
    NodeConditionReported,
    NodePoolDeleting,
    NodePoolValidated,
    NodePreempted,
    NodePreemptionRequested,
    NodePreemptionWithdrawn,
    NodeRemovalRecovered,
    NodeReservationChanged,
    NodeUpdated,
    PreemptionPending,
    QuotaChecked,
    QuotaDeleted,
    QuotaReleased,
    QuotaSet,
)
from nodepool.contract.keys import node_key
from nodepool.contract.model import NodePhase, NodePoolSpec, RemovalReason
from nodepool.contract.node_failures import NodeFailure
from nodepool.contract.pods import BlockingPod
from nodepool.engine.snapshot import dump, load
from support.single import NOON, SingleService

OVER = (
    "Quota is Over: targetNodes 12 exceeds quota 8 for gd-8xh100ib-i128 (6 used by 2 other pools)"
)
POOL, NODE = "acme/prod/train.v1", f"acme/prod/{MACHINE}"
NODE_KEY = node_key("acme", "prod", MACHINE)
LEDGER, OFFERING = f"acme/{ZONE}/{KIND}", f"{ZONE}/{KIND}"
Document = Mapping[str, object]


class Story(SingleService[State, Hears, Never]):
    """The aggregator with the events that it has heard, a second apart."""

    def __init__(self) -> None:
        super().__init__(SERVICE)

    def heard(self, *events: Hears) -> "Story":
        """The story after these events."""
        assert self.hears(*events) == [], "the aggregator says nothing"
        return self

    def objects(self) -> dict[tuple[str, str], Document]:
        """Every object that readers see, by bucket and key."""
        state = self.state
        places = ((b, key) for b in PROJECTION.buckets for key in PROJECTION.keys(state, b))
        return {place: self.document(*place) for place in places}

    def document(self, bucket: str, key: str) -> Document:
        """An object as readers see it."""
        item = PROJECTION.get(self.state, bucket, key)
        assert item is not None, f"there is no {bucket}/{key}"
        return PROJECTION.render(item)

    def version(self, bucket: str, key: str) -> int:
        """The position of the last change of an object."""
        item = PROJECTION.get(self.state, bucket, key)
        assert item is not None, f"there is no {bucket}/{key}"
        return item.version

    def conditions(self) -> dict[str, tuple[str, str]]:
        """Status and reason of each condition of the NodePool, by type."""
        return conditions_of(self.document(POOLS, POOL))

    def messages(self) -> dict[str, str]:
        """The message of each condition of the NodePool, by type."""
        status = cast("dict[str, list[dict[str, str]]]", self.document(POOLS, POOL)["status"])
        return {c["type"]: c["message"] for c in status["conditions"]}

    def counts(self) -> tuple[object, object]:
        """How many Nodes of the NodePool are in progress, and how many are current."""
        status = cast("Document", self.document(POOLS, POOL)["status"])
        return status["inProgress"], status["currentNodes"]

    def fault(self) -> object:
        """The fault that the machine shows; None where it shows none."""
        status = cast("Document", self.document(MACHINES, f"{ZONE}/{MACHINE}")["status"])
        return status.get("fault")

    def broken(self) -> dict[str, float]:
        """How often each rule was broken that always holds."""
        counts = self.state.figures.violations.counts.values
        return {rule: count for (rule,), count in counts.items()}

    def machines(self) -> tuple[object, object, object]:
        """How many machines are free, assigned and in triage."""
        document = self.document(CAPACITY, OFFERING)
        return document["free"], document["assigned"], document["triage"]


def conditions_of(document: Document) -> dict[str, tuple[str, str]]:
    """Status and reason of each condition of a Kubernetes object, by type."""
    status = cast("dict[str, list[dict[str, str]]]", document["status"])
    return {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}


def validated(target: int = 2, **fields: object) -> NodePoolValidated:
    """A valid NodePool that wants so many Nodes."""
    spec = NodePoolSpec(instance_type=KIND, target_nodes=target)
    return sample(
        NodePoolValidated,
        **{"spec": spec, "reason": Validated.VALID, "fault": "", "message": "valid", **fields},
    )


def with_pool(target: int = 2) -> Story:
    """A NodePool that wants so many Nodes, and one free machine."""
    return Story().heard(sample(MachineAdded), validated(target))


def with_node() -> Story:
    """A NodePool that wants one Node, to which a machine is assigned."""
    return with_pool(1).heard(sample(CWNodeAssigned))


# NodePools.


def test_a_nodepool_is_shown_in_the_shape_of_a_kubernetes_object() -> None:
    story = Story().heard(validated())

    assert story.document(POOLS, POOL) == {
        "apiVersion": "compute.coreweave.com/v1alpha1",
        "kind": "NodePool",
        "metadata": {
            "name": "train.v1",
            "uid": UID,
            "generation": 2,
            "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T12:00:00Z",
            "finalizers": ["compute.coreweave.com/node-pool"],
            "labels": {"app": "train"},
            "annotations": {"note": "by hand"},
        },
        "spec": {
            "instanceType": KIND,
            "targetNodes": 2,
            "autoscaling": False,
            "lifecycle": {
                "disableUnhealthyNodeEviction": True,
                "scaleDownStrategy": "IdleOnly",
            },
        },
        "status": {
            "conditions": [
                {
                    "lastTransitionTime": "2026-01-01T12:00:01Z",
                    "logPosition": 1,
                    "message": "valid",
                    "observedGeneration": 2,
                    "reason": "Valid",
                    "status": "True",
                    "type": "Validated",
                },
                {
                    "lastTransitionTime": "2026-01-01T12:00:01Z",
                    "logPosition": 1,
                    "message": "NodePool has 0 of 2 Nodes.",
                    "observedGeneration": 2,
                    "reason": "UnderTarget",
                    "status": "False",
                    "type": "AtTarget",
                },
                {
                    "lastTransitionTime": "2026-01-01T12:00:01Z",
                    "logPosition": 1,
                    "message": "NodePool has 0 of 2 Nodes.",
                    "observedGeneration": 2,
                    "reason": "UnderTarget",
                    "status": "True",
                    "type": "Reconciling",
                },
            ],
            "currentNodes": 0,
            "grantedNodes": 0,
            "inProgress": 0,
            "nodeProfile": f"{KIND}/default",
            "specified": "2026-01-01T12:00:01Z",
            "targeted": "2026-01-01T12:00:01Z",
            "checked": "2026-01-01T12:00:01Z",
        },
    }


def test_the_deprecated_conditions_are_shown_where_they_are_asked_for() -> None:
    story = Story().heard(validated(reason=Validated.INVALID, fault="Zone"))
    item = PROJECTION.get(story.state, POOLS, POOL)
    assert item is not None
    assert PROJECTION.render_deprecated is not None

    shown = conditions_of(PROJECTION.render_deprecated(item))

    assert shown == story.conditions() | {
        "Accepted": ("False", "PolicyViolation"),
        "Allocated": ("False", "UnderTarget"),
    }


def test_a_nodepool_keeps_its_counts_and_conditions_when_its_spec_changes() -> None:
    story = with_node().heard(sample(CWNodeRegistered), sample(QuotaChecked))

    story.heard(validated(3, generation=3))

    assert story.counts() == (0, 1)
    assert story.conditions() == {
        "Validated": ("True", "Valid"),
        "Quota": ("False", "Over"),
        "AtTarget": ("False", "UnderTarget"),
        "Reconciling": ("True", "UnderTarget"),
    }


def test_a_nodepool_of_the_same_name_begins_anew() -> None:
    story = with_node().heard(sample(QuotaChecked), validated(uid="another", generation=1))

    assert story.counts() == (0, 0)
    assert set(story.conditions()) == {"Validated", "AtTarget", "Reconciling"}


def test_verdicts_show_as_conditions() -> None:
    story = with_pool().heard(
        sample(QuotaChecked, reason=Quota.UNDER), sample(CapacityChecked, reason=Capacity.PARTIAL)
    )

    assert story.conditions() == {
        "Validated": ("True", "Valid"),
        "Capacity": ("False", "Partial"),
        "Quota": ("True", "Under"),
        "AtTarget": ("False", "UnderTarget"),
        "Reconciling": ("True", "UnderTarget"),
    }


@pytest.mark.parametrize("fields", [{"generation": 1}, {"uid": "another"}])
def test_a_verdict_on_another_generation_or_another_nodepool_is_not_shown(
    fields: dict[str, object],
) -> None:
    checks = sample(QuotaChecked, **fields, granted=0), sample(CapacityChecked, **fields)
    story = with_pool().heard(*checks)

    assert set(story.conditions()) == {"Validated", "AtTarget", "Reconciling"}
    assert story.version(POOLS, POOL) == 2


def test_a_grant_is_shown_whichever_generation_it_is_for() -> None:
    story = with_pool().heard(sample(QuotaChecked, generation=1, granted=3))

    assert cast("Document", story.document(POOLS, POOL)["status"])["grantedNodes"] == 3


@pytest.mark.parametrize(
    ("event", "condition"),
    [
        (sample(CWNodePoolQuotaCheckFailed), "Quota"),
        (sample(CapacityCheckFailed), "Capacity"),
        (sample(AllocationFailed), "AtTarget"),
    ],
)
def test_a_check_that_failed_makes_its_condition_unknown(
    event: CheckFailed, condition: str
) -> None:
    story = with_pool().heard(event)

    assert story.conditions()[condition] == ("Unknown", "InternalError")


def test_a_removal_that_failed_shows_in_the_condition_that_follows_from_the_nodes() -> None:
    story = with_pool().heard(sample(CWNodePoolNodesRemoveError))

    assert "NodesRemoved" not in story.conditions()
    assert story.conditions()["AtTarget"] == ("Unknown", "InternalError")

    story.heard(sample(NodePoolDeleting), sample(CWNodePoolNodesRemoveError))

    assert story.conditions()["NodesRemoved"] == ("Unknown", "InternalError")
    assert story.conditions()["AtTarget"] == ("False", "PendingDelete")


def test_a_removal_that_recovers_shows_the_nodes_again_and_changes_nothing_else() -> None:
    story = with_node().heard(sample(CWNodePoolNodesRemoveError), sample(NodeRemovalRecovered))
    recovered = story.document(POOLS, POOL)

    assert story.conditions()["AtTarget"][1] != "InternalError"
    assert story.heard(sample(NodeRemovalRecovered)).document(POOLS, POOL) == recovered


def test_a_nodepool_counts_its_nodes_from_assignment_to_deletion() -> None:
    story = with_pool(1)
    counts = [story.counts()]
    for event in (
        sample(CWNodeAssigned),
        sample(CWNodeRegistered),
        sample(CWNodeDeleted, registered=True),
        sample(CWNodeAssigned, assignment=8),
        sample(CWNodeDeleted, assignment=8, registered=False),
        sample(CWNodeAssigned, assignment=9),
        sample(CWNodeRegistrationFailed, assignment=9),
    ):
        counts.append(story.heard(event).counts())

    assert counts == [(0, 0), (1, 0), (0, 1), (0, 0), (1, 0), (0, 0), (1, 0), (0, 0)]


@pytest.mark.parametrize(
    ("target", "reason"), [(0, "OverTarget"), (1, "TargetMet"), (2, "UnderTarget")]
)
def test_at_target_compares_the_nodes_that_joined_with_the_target(target: int, reason: str) -> None:
    story = with_pool(target).heard(sample(CWNodeAssigned), sample(CWNodeRegistered))

    status = "True" if reason == "TargetMet" else "False"
    assert story.conditions()["AtTarget"] == (status, reason)


def test_a_nodepool_names_the_machines_that_its_racks_lost_until_they_are_its_nodes_again() -> None:
    kind, labels = "gb200-4x", {"ds.coreweave.com/nvlink.domain": "a"}
    other = {"node": "g2", "instance_type": kind, "labels": labels}
    story = Story().heard(
        sample(MachineAdded, instance_type=kind, labels=labels),
        sample(MachineAdded, machine="g2", instance_type=kind, labels=labels),
        validated(spec=NodePoolSpec(instance_type=kind, target_nodes=18)),
        sample(CWNodeAssigned, **other),
    )
    shown = []
    for event in (
        sample(CWNodeAssigned, instance_type=kind, labels=labels),
        sample(CWNodeDeleted, registered=False),
        sample(CWNodeAssigned, instance_type=kind, labels=labels, assignment=8),
        sample(CWNodeRegistrationFailed, assignment=8),
        sample(MachineRepaired),
        sample(CWNodeAssigned, instance_type=kind, labels=labels, assignment=9),
    ):
        status = story.heard(event).document(POOLS, POOL)["status"]
        shown.append(cast("Document", status).get("lostMachines"))

    lost = [{"name": MACHINE, "domain": "a"}]
    assert shown == [None, None, None, lost, lost, None]


def test_nodes_of_an_earlier_nodepool_of_the_same_name_are_not_counted() -> None:
    story = with_node().heard(validated(uid="another"), sample(CWNodeDeleted, registered=False))

    assert story.counts() == (0, 0)


def test_a_node_that_was_never_assigned_breaks_a_rule_and_changes_nothing_else() -> None:
    story = with_pool()
    before = story.objects()

    story.heard(sample(CWNodeRegistered))

    assert story.objects() == before
    assert story.broken() == {"NodeUnknown": 1}


def test_a_nodepool_is_shown_until_it_is_deleted() -> None:
    story = with_node().heard(sample(NodePoolDeleting))

    assert story.conditions()["AtTarget"] == ("False", "PendingDelete")
    assert story.conditions()["NodesRemoved"] == ("False", "Pending")

    story.heard(sample(CWNodeDeleted, registered=False), sample(CWNodePoolNodesRemoved))

    metadata = cast("Document", story.document(POOLS, POOL)["metadata"])
    assert metadata["deletionTimestamp"] == "2026-01-01T12:00:00Z"
    assert story.conditions()["NodesRemoved"] == ("True", "Complete")

    story.heard(sample(CWNodePoolDeleted))

    assert (POOLS, POOL) not in story.objects()


@pytest.mark.parametrize(
    "late",
    [
        sample(QuotaChecked, reason=Quota.UNDER),
        sample(CapacityChecked, reason=Capacity.PARTIAL),
        sample(CWNodePoolQuotaCheckFailed),
        sample(CapacityCheckFailed),
    ],
)
def test_nothing_is_claimed_of_the_checks_of_a_nodepool_that_is_being_deleted(late: Hears) -> None:
    story = with_node().heard(sample(NodePoolDeleting))
    before = story.document(POOLS, POOL)

    assert story.heard(late).document(POOLS, POOL) == before


def test_an_allocation_that_fails_during_a_deletion_is_a_failure_of_the_removal() -> None:
    story = with_node().heard(sample(NodePoolDeleting), sample(AllocationFailed))
    failed = story.conditions()

    story.heard(sample(AllocationRecovered))

    assert failed["AtTarget"] == ("False", "PendingDelete")
    assert failed["NodesRemoved"] == ("Unknown", "InternalError")
    assert story.conditions()["NodesRemoved"] == ("False", "Pending")


def test_an_allocation_that_failed_shows_until_it_succeeds_whatever_the_counts_are() -> None:
    story = with_node().heard(sample(AllocationFailed), sample(CWNodeRegistered))
    counted = story.conditions()["AtTarget"]

    story.heard(sample(AllocationRecovered))

    assert counted == ("Unknown", "InternalError")
    assert story.conditions()["AtTarget"] == ("True", "TargetMet")


def test_a_removal_that_failed_before_the_deletion_shows_during_it() -> None:
    story = with_node().heard(sample(CWNodePoolNodesRemoveError), sample(NodePoolDeleting))
    failed = story.conditions()["NodesRemoved"]

    story.heard(sample(NodeRemovalRecovered))

    assert failed == ("Unknown", "InternalError")
    assert story.conditions()["NodesRemoved"] == ("False", "Pending")


def test_a_machine_that_does_not_answer_is_no_internal_error() -> None:
    silent = f"Node g1 is deleted: {NodeFailure.UNANSWERED.phrase} a drain in time"
    story = with_node().heard(sample(NodePoolDeleting))

    story.heard(sample(CWNodePoolNodesRemoveError, node="g1", message=silent))

    assert story.conditions()["NodesRemoved"] == ("False", "Pending")


def test_a_removal_that_recovers_says_nothing_of_the_allocation() -> None:
    story = with_pool().heard(sample(AllocationFailed), sample(NodeRemovalRecovered))

    assert story.conditions()["AtTarget"] == ("Unknown", "InternalError")


# What the status of a NodePool waits for.


def registered_pool(target: int, *nodes: str, **spec: object) -> Story:
    """A NodePool that wants so many Nodes and has these, all of them idle."""
    document = {"instance_type": KIND, "target_nodes": target, **spec}
    story = Story().heard(validated(spec=NodePoolSpec.model_validate(document)))
    for node in nodes:
        story.heard(
            sample(MachineAdded, machine=node),
            sample(CWNodeAssigned, node=node),
            sample(CWNodeRegistered, node=node),
        )
    return story


def running(node: str, *pods: str, blocking: int = 0) -> NodeActivityChanged:
    """These Pods run on a Node, and this many block a scale-down; the first has a time."""
    return sample(
        NodeActivityChanged,
        node=node,
        active=bool(pods),
        message=f"running: {', '.join(pods)}",
        blocking=[BlockingPod(name=pod, since=NOON) for pod in pods] if blocking else [],
        blocking_count=blocking,
    )


def leaves(node: str) -> NodeUpdated:
    """A Node is cordoned, because its NodePool shrinks."""
    return sample(NodeUpdated, node=node, removal=RemovalReason.SCALE_DOWN)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], "NodePool has 0 of 2 Nodes."),
        ([sample(CWNodeAssigned)], "NodePool has 0 of 2 Nodes; 1 is in progress."),
        ([sample(QuotaChecked, granted=1)], f"NodePool has 0 of 2 Nodes; {OVER}."),
        (
            [sample(QuotaChecked, granted=1), validated(generation=3)],
            "NodePool has 0 of 2 Nodes.",
        ),
        (
            [
                sample(CapacityChecked, reason=Capacity.NONE_AVAILABLE, wanted=1),
                sample(QuotaChecked, granted=1),
            ],
            f"NodePool has 0 of 2 Nodes; {OVER}; Capacity is NoneAvailable: 1 of 3 wanted Nodes can"
            " be had.",
        ),
        (
            [
                sample(QuotaChecked),
                sample(CWNodePoolQuotaCheckFailed),
                sample(CapacityChecked, reason=Capacity.PARTIAL, wanted=2),
            ],
            "NodePool has 0 of 2 Nodes; Capacity is Partial: 1 of 3 wanted Nodes can be had;"
            " Quota is InternalError: internal error while checking quota: KeyError.",
        ),
        (
            [validated(reason=Validated.INVALID, fault="Settings")],
            "NodePool has 0 of 2 Nodes; Validated is Invalid: valid.",
        ),
        (
            [validated(reason=Validated.INVALID, fault="Settings", message="did you mean it?")],
            "NodePool has 0 of 2 Nodes; Validated is Invalid: did you mean it?",
        ),
    ],
)
def test_a_nodepool_under_its_target_names_the_checks_that_block_and_their_numbers(
    events: list[Hears], expected: str
) -> None:
    assert with_pool().heard(*events).messages()["AtTarget"] == expected


def test_a_nodepool_over_its_target_names_the_nodes_that_it_waits_for() -> None:
    # given a NodePool that wants one Node and has three, one of them idle
    story = registered_pool(1, "g1", "g2", "g3")
    story.heard(running("g1", "a", "b", blocking=7), running("g2", "c"))

    # when the idle one is chosen to leave
    story.heard(leaves("g3"))

    # then it waits for one of the others, whose Pods are named with their times
    assert story.messages()["AtTarget"] == (
        "NodePool has 3 Nodes and wants 1; waits for 1 of 2: g1, active with Pods"
        " a since 2026-01-01T12:00:00Z, b since 2026-01-01T12:00:00Z, 5 more;"
        " g2, active since 2026-01-01T12:00:12Z (running: c)."
    )

    # and once it has what it waited for, it names it no more
    story.heard(running("g1"), leaves("g1"))
    assert story.messages()["AtTarget"] == (
        "NodePool has 3 Nodes and wants 1; 2 are being removed."
    )


def test_a_nodepool_that_prefers_idle_nodes_waits_for_the_active_ones_that_leave() -> None:
    lifecycle = {"scale_down_strategy": "PreferIdle"}
    story = registered_pool(1, "g1", "g2", lifecycle=lifecycle)
    story.heard(running("g1", "a"), running("g2", "b"), leaves("g2"))

    assert story.messages()["AtTarget"] == (
        "NodePool has 2 Nodes and wants 1;"
        " waits for g2, active since 2026-01-01T12:00:09Z (running: b)."
    )


def test_an_invalid_nodepool_over_its_target_removes_nothing_and_says_so() -> None:
    story = registered_pool(1, "g1")
    story.heard(validated(0, reason=Validated.INVALID, fault="Settings"))

    assert story.messages()["AtTarget"] == (
        "NodePool has 1 Node and wants 0; none is removed while Validated is Invalid."
    )


def test_many_nodes_that_a_nodepool_waits_for_are_counted() -> None:
    names = [f"g{number}" for number in range(6)]
    story = registered_pool(0, *names).heard(*(running(name, "a") for name in names))

    message = story.messages()["AtTarget"]

    assert message.count("active since") == 3
    assert message.endswith("; 3 more.")


def test_a_nodepool_that_is_being_deleted_names_the_nodes_that_it_waits_for() -> None:
    story = registered_pool(2, "g1", "g2").heard(running("g1", "a"), sample(NodePoolDeleting))

    waits = "; waits for g1, active since 2026-01-01T12:00:08Z (running: a)."
    assert story.messages()["AtTarget"] == (
        f"NodePool is being deleted, 2 Nodes are still to be removed{waits}"
    )
    assert story.messages()["NodesRemoved"] == f"2 Nodes are still to be removed{waits}"


def test_a_node_is_active_since_it_became_so_whatever_runs_there_later() -> None:
    story = registered_pool(1, "g1").heard(running("g1", "a"), running("g1", "b"))

    (node,) = story.state.read_model.nodes.values()
    assert node.active_since == NOON + timedelta(seconds=5)


def test_a_scale_down_does_not_complete_a_deletion() -> None:
    story = with_pool().heard(
        sample(NodePoolDeleting),
        sample(CWNodePoolNodesRemoved, removal=RemovalReason.SCALE_DOWN),
    )

    assert story.conditions()["NodesRemoved"] == ("False", "Pending")


def test_the_deletion_of_an_earlier_nodepool_of_the_same_name_changes_nothing() -> None:
    story = with_pool().heard(sample(CWNodePoolDeleted, uid="another"))

    assert (POOLS, POOL) in story.objects()


def test_what_is_about_an_unknown_nodepool_is_not_shown() -> None:
    story = Story().heard(
        sample(NodePoolDeleting),
        sample(CapacityChecked),
        sample(AllocationFailed),
        sample(CWNodePoolNodesRemoved),
        sample(CWNodePoolDeleted),
    )

    assert story.objects() == {}


# Nodes.


def test_a_node_is_shown_in_the_shape_of_a_kubernetes_object() -> None:
    story = with_node()

    since = "2026-01-01T12:00:03Z"
    assert story.document(NODES, NODE) == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": MACHINE,
            "resourceVersion": "3",
            "creationTimestamp": since,
            "labels": {
                "node.kubernetes.io/instance-type": KIND,
                "topology.kubernetes.io/zone": ZONE,
                "compute.coreweave.com/node-pool": "train.v1",
                "ib.coreweave.cloud/leafgroup": "l-7",
            },
            "annotations": {},
        },
        "spec": {"taints": []},
        "status": {
            "phase": "booting",
            "assignment": 7,
            "cordon": 0,
            "lock": 0,
            "nodeProfile": f"{KIND}/default",
            "conditions": [
                {
                    "type": "CWRegistered",
                    "status": "False",
                    "reason": "NotRegistered",
                    "message": f"Node {MACHINE} is not yet registered",
                    "lastTransitionTime": since,
                },
                {
                    "type": "CWActive",
                    "status": "False",
                    "reason": "NoWorkloads",
                    "message": "nothing runs here",
                    "lastTransitionTime": since,
                },
                {
                    "type": "CWNodeRemoval",
                    "status": "False",
                    "reason": "NotPending",
                    "message": f"Node {MACHINE} is to stay",
                    "lastTransitionTime": since,
                },
            ],
        },
    }


def test_a_node_shows_its_cordon_its_lock_and_how_it_is_drained() -> None:
    story = with_node().heard(sample(CWNodeRegistered))

    shown = []
    for event in (
        sample(NodeUpdated, phase=NodePhase.CORDONED, cordon=2, lock=41),
        sample(NodeUpdated, phase=NodePhase.DRAINING, cordon=2, lock=41),
        sample(CWDrainNode, force=False),
        sample(CWDrainNode, force=True),
        sample(NodeUpdated, phase=NodePhase.DRAINING, cordon=2, lock=0),
        sample(NodeUpdated, phase=NodePhase.PRODUCTION, unschedulable=False, cordon=2, lock=0),
        sample(NodeUpdated, phase=NodePhase.DRAINING, cordon=3, lock=0),
    ):
        status = cast("Document", story.heard(event).document(NODES, NODE)["status"])
        shown.append((status["cordon"], status["lock"], status.get("drain")))

    assert shown == [
        (2, 41, None),
        (2, 41, "safe"),
        (2, 41, "safe"),
        (2, 41, "forced"),
        (2, 0, "forced"),
        (2, 0, None),
        (3, 0, "safe"),
    ]


def reported_of(story: Story) -> list[tuple[str, str]]:
    """Type and status of the conditions that were reported of the Node."""
    item = story.state.read_model.nodes[NODE_KEY]
    return [(each.type, each.status) for each in item.reported]


def test_a_condition_that_an_agent_reports_is_shown_on_its_node() -> None:
    story = with_node().heard(sample(ClusterRegistered, kubernetes=True))

    story.heard(sample(NodeConditionReported))

    assert conditions_of(story.document(NODES, NODE))["Ready"] == ("Unknown", "NodeStatusUnknown")
    assert story.version(NODES, NODE) == 5


@pytest.mark.parametrize(
    ("report", "kubernetes"),
    [
        pytest.param({}, False, id="cluster without an agent"),
        pytest.param({"cluster": "test"}, True, id="another cluster"),
        pytest.param({"pool": "other"}, True, id="another NodePool"),
        pytest.param({"zone": "US-EAST-01A"}, True, id="another zone"),
        pytest.param({"assignment": 6}, True, id="an earlier stay"),
        pytest.param({"node": "gffffff"}, True, id="an unknown Node"),
    ],
)
def test_a_report_of_an_agent_that_has_no_such_node_is_not_believed(
    report: dict[str, object], kubernetes: bool
) -> None:
    story = with_node().heard(sample(ClusterRegistered, kubernetes=kubernetes))
    before = story.objects()

    story.heard(sample(ClusterRegistered, cluster="test", kubernetes=True))
    story.heard(sample(NodeConditionReported, **report))

    assert reported_of(story) == []
    assert {place: story.objects()[place] for place in before} == before


def test_a_node_shows_what_happens_to_it_until_it_is_deleted() -> None:
    story = with_node()

    def phase() -> object:
        return cast("Document", story.document(NODES, NODE)["status"])["phase"]

    story.heard(sample(CWNodeRegistered))
    assert phase() == "production"
    assert conditions_of(story.document(NODES, NODE))["CWRegistered"] == ("True", "Registered")

    story.heard(sample(NodeActivityChanged))
    assert conditions_of(story.document(NODES, NODE))["CWActive"] == ("True", "WorkloadsRunning")

    story.heard(sample(NodeUpdated, phase=NodePhase.CORDONED))
    assert phase() == "cordoned"
    assert story.document(NODES, NODE)["spec"] == {
        "taints": [
            {"key": "dedicated", "effect": "NoSchedule", "value": "ml"},
            {"key": "x", "effect": "NoExecute"},
        ],
        "unschedulable": True,
    }
    assert conditions_of(story.document(NODES, NODE))["CWNodeRemoval"] == ("True", "Preempted")

    story.heard(sample(CWDrainNode))
    assert phase() == "draining"

    story.heard(sample(CWNodeDeleted))
    assert (NODES, NODE) not in story.objects()


def test_the_removal_of_a_node_is_dated_when_it_begins_or_is_cancelled() -> None:
    story = with_node()

    def since() -> datetime | None:
        return next(iter(story.state.read_model.nodes.values())).removal_since

    dates = [since()]
    for removal in (None, RemovalReason.SCALE_DOWN, RemovalReason.PREEMPTED, None, None):
        story.heard(sample(NodeUpdated, removal=removal))
        dates.append(since())

    began, cancelled = NOON + timedelta(seconds=5), NOON + timedelta(seconds=7)
    assert dates == [None, None, began, began, cancelled, cancelled]


@pytest.mark.parametrize(
    "event",
    [
        sample(NodeUpdated, assignment=8),
        sample(NodeActivityChanged, assignment=8),
        sample(CWDrainNode, assignment=8),
        sample(NodeUpdated, node="unknown"),
    ],
)
def test_what_is_about_another_assignment_or_an_unknown_node_changes_nothing(
    event: Hears,
) -> None:
    story = with_node()
    before = story.objects()

    assert story.heard(event).objects() == before


# Quotas and capacity.


def test_a_limit_shows_what_counts_against_it() -> None:
    story = Story().heard(sample(QuotaReleased, used=4))
    shown = [story.document(QUOTAS, LEDGER)]
    for event in (
        sample(QuotaSet, limit=8, granted=4),
        sample(QuotaChecked, limit=8, used=6),
        sample(QuotaReleased, used=5),
        sample(QuotaReleased, used=5),
    ):
        shown.append(story.heard(event).document(QUOTAS, LEDGER))

    identity = {"kind": "Quota", "org": "acme", "zone": ZONE, "instanceType": KIND}
    assert shown == [
        {**identity, "limit": limit, "used": used, "resourceVersion": version}
        for limit, used, version in (
            (None, 4, "1"),
            (8, 4, "2"),
            (8, 6, "3"),
            (8, 5, "4"),
            (8, 5, "4"),
        )
    ]


@pytest.mark.parametrize(
    "last", [sample(QuotaReleased, used=0), sample(QuotaChecked, limit=None, used=0)]
)
def test_what_has_no_limit_and_counts_nothing_is_not_shown(last: Hears) -> None:
    story = Story().heard(sample(QuotaSet, limit=8, granted=1), sample(QuotaDeleted, granted=1))
    unlimited = story.document(QUOTAS, LEDGER)

    story.heard(last)

    assert (unlimited["limit"], unlimited["used"]) == (None, 1)
    assert (QUOTAS, LEDGER) not in story.objects()


def test_a_cluster_is_shown_from_its_registration_on() -> None:
    story = Story().heard(sample(ClusterRegistered))

    assert story.document(CLUSTERS, "acme/prod") == {
        "apiVersion": "compute.coreweave.com/v1alpha1",
        "kind": "Cluster",
        "metadata": {
            "name": "prod",
            "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T12:00:01Z",
        },
        "spec": {"org": "acme", "zone": ZONE},
    }


def test_a_cluster_shows_that_it_has_an_agent_from_then_on() -> None:
    story = Story().heard(sample(ClusterRegistered), sample(ClusterRegistered, kubernetes=True))

    assert story.document(CLUSTERS, "acme/prod") == {
        "apiVersion": "compute.coreweave.com/v1alpha1",
        "kind": "Cluster",
        "metadata": {
            "name": "prod",
            "resourceVersion": "2",
            "creationTimestamp": "2026-01-01T12:00:01Z",
        },
        "spec": {"org": "acme", "zone": ZONE, "kubernetes": True},
    }


def test_a_machine_is_shown_in_the_shape_of_a_kubernetes_object() -> None:
    story = Story().heard(sample(MachineAdded))

    assert story.document(MACHINES, f"{ZONE}/{MACHINE}") == {
        "apiVersion": "compute.coreweave.com/v1alpha1",
        "kind": "Machine",
        "metadata": {
            "name": MACHINE,
            "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T12:00:01Z",
            "labels": {
                "ib.coreweave.cloud/leafgroup": "l-7",
                "node.kubernetes.io/instance-type": KIND,
                "topology.kubernetes.io/zone": ZONE,
            },
        },
        "spec": {"instanceType": KIND, "zone": ZONE},
        "status": {"state": "Free"},
    }


def test_a_machine_shows_who_has_it_and_why_it_is_in_triage() -> None:
    story = with_pool(1)
    shown = []
    for event in (
        sample(CWNodeAssigned),
        sample(CWNodeDeleted, registered=False),
        sample(CWNodeAssigned, assignment=8),
        sample(CWNodeRegistrationFailed, assignment=8, message="no link"),
        sample(MachineRepaired),
        sample(CWNodeAssigned, assignment=9),
        sample(CWNodeDeleted, assignment=9, registered=False, triage=True, message="no answer"),
    ):
        shown.append(story.heard(event).document(MACHINES, f"{ZONE}/{MACHINE}")["status"])

    free: dict[str, object] = {"state": "Free"}
    pool = {"org": "acme", "cluster": "prod", "nodePool": "train.v1", "node": MACHINE}
    assigned = {"state": "Assigned", **pool}
    assert shown == [
        assigned,
        free,
        assigned,
        {"state": "Triage", "cause": "no link"},
        free,
        assigned,
        {"state": "Triage", "cause": "no answer"},
    ]


def test_a_fault_of_a_machine_is_shown_until_it_has_shown_itself() -> None:
    story = with_pool(1).heard(sample(MachineBroken, fault="boot", times=2))
    shown = [story.fault()]
    for assignment in (7, 8):
        story.heard(sample(CWNodeAssigned, assignment=assignment))
        shown.append(story.fault())
        story.heard(
            sample(CWNodeRegistrationFailed, assignment=assignment), sample(MachineRepaired)
        )
        shown.append(story.fault())

    assert shown == ["boot", "boot", "boot", "boot", None]


def test_a_node_hangs_at_once_until_its_fault_is_ended() -> None:
    story = with_node().heard(sample(CWNodeRegistered))
    shown = []
    for times in (1, 0):
        shown.append(story.heard(sample(MachineBroken, fault="hang", times=times)).fault())

    assert shown == ["hang", None]


def test_a_fault_that_is_ended_before_it_showed_is_gone() -> None:
    story = with_pool(1).heard(sample(MachineBroken, times=3), sample(MachineBroken, times=0))

    assert story.fault() is None


def test_an_offering_counts_its_machines_by_what_they_do() -> None:
    story = Story().heard(sample(MachineAdded), sample(MachineAdded, machine="other"))
    counts = [story.machines()]
    for event in (
        sample(CWNodeAssigned),
        sample(CWNodeDeleted, registered=False),
        sample(CWNodeAssigned, assignment=8),
        sample(CWNodeRegistrationFailed, assignment=8),
        sample(MachineRepaired),
    ):
        counts.append(story.heard(event).machines())

    assert counts == [(2, 0, 0), (1, 1, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1), (2, 0, 0)]
    assert story.document(CAPACITY, OFFERING) == {
        "kind": "Capacity",
        "zone": ZONE,
        "instanceType": KIND,
        "free": 2,
        "assigned": 0,
        "triage": 0,
        "reclaimed": 0,
        "toReclaim": 0,
        "resourceVersion": "7",
    }


@pytest.mark.parametrize(
    "event",
    [
        sample(MachineAdded),
        sample(MachineRepaired),
        sample(CWNodeDeleted, assignment=6, registered=False),
    ],
)
def test_a_machine_that_does_not_change_hands_is_not_counted_again(event: Hears) -> None:
    story = with_node().heard(event)

    assert story.machines() == (0, 1, 0)
    assert story.version(CAPACITY, OFFERING) == 3


def test_a_machine_whose_registration_fails_twice_is_in_triage_once() -> None:
    story = with_node().heard(sample(CWNodeRegistrationFailed))

    story.failure_of(sample(CWNodeRegistrationFailed))

    assert story.machines() == (0, 0, 1)


# The projection.

pools = st.sampled_from(["a", "b"])
uids = st.sampled_from(["1", "2"])
machines = st.sampled_from(["m1", "m2"])
counts = st.integers(1, 2)


def any_event(draw: st.DrawFn) -> Hears:
    """An event of any class about one of a few NodePools, Nodes and machines."""
    kind = draw(st.sampled_from(tuple(SERVICE.inputs.values())))
    named: dict[str, object] = {
        "pool": draw(pools),
        "uid": draw(uids),
        "node": draw(machines),
        "machine": draw(machines),
        "assignment": draw(counts),
        "generation": draw(counts),
        "used": draw(counts),
        "limit": draw(counts),
        "registered": draw(st.booleans()),
    }
    known = {name: value for name, value in named.items() if name in kind.model_fields}
    return cast("Hears", sample(kind, **known))


def test_a_reservation_for_the_control_plane_changes_the_node_and_its_nodepool() -> None:
    story = with_node().heard(sample(CWNodeRegistered))
    event = sample(NodeReservationChanged)

    story.heard(event)

    node = cast("Document", story.document(NODES, event.node_key)["status"])
    assert node["reservedFor"] == "control-plane"
    changed = {(POOLS, POOL), (NODES, event.node_key), (QUOTAS, LEDGER)}
    assert set(PROJECTION.touched(story.state, event)) == changed
    assert story.version(NODES, event.node_key) == story.position


def test_a_request_to_give_way_that_is_taken_back_shows_no_more() -> None:
    # given a Node that is asked to give way
    story = with_node().heard(sample(CWNodeRegistered), sample(NodePreemptionRequested))
    asked, event = story.objects(), sample(NodePreemptionWithdrawn)

    # when the request is taken back
    story.heard(event)

    # then the Node and the count of the Nodes that give way are written again, without it
    places = {(NODES, event.node_key), (CAPACITY, OFFERING)}
    assert {place for place in asked if asked[place] != story.document(*place)} == places
    assert places <= set(PROJECTION.touched(story.state, event))
    assert "givingWay" not in story.document(CAPACITY, OFFERING)
    assert field(story.document(NODES, event.node_key), "status", "askedSince") is None


@pytest.mark.parametrize("begins", [NodePreempted, PreemptionPending])
def test_a_preemption_that_has_begun_is_not_taken_back(begins: type[Hears]) -> None:
    # given a preemption that began just before the Node was asked to give way
    story = with_node().heard(sample(CWNodeRegistered), sample(begins))
    story.heard(sample(NodePreemptionRequested))
    asked = story.objects()

    story.heard(sample(NodePreemptionWithdrawn))

    assert story.objects() == asked


@given(st.lists(st.composite(any_event)(), max_size=40))
def test_every_object_that_an_event_changes_is_touched_by_it_and_has_its_version(
    events: list[Hears],
) -> None:
    story = Story()
    for event in events:
        before = story.objects()
        if story.failure_of(event) is None:
            after = story.objects()
            changed = {p for p in {*before, *after} if before.get(p) != after.get(p)}

            assert changed <= set(PROJECTION.touched(story.state, event))
            for place in changed & after.keys():
                assert story.version(*place) == story.position

    model = story.state.read_model
    busy = {(node.pool, key) for key, node in model.nodes.items() if node.is_busy}
    assert busy == {(pool, key) for pool, keys in model.busy.items() for key in keys}
    lines = tuple(dump(story.folded))
    assert load(State, lines) == story.folded


def test_the_aggregator_says_nothing_and_fills_every_bucket() -> None:
    assert SERVICE.outputs == {}
    assert SERVICE.projection is PROJECTION
    assert PROJECTION.buckets == (
        "nodepools",
        "nodes",
        "quotas",
        "capacity",
        "machines",
        "clusters",
    )


def test_another_bucket_is_refused() -> None:
    with pytest.raises(ValueError, match="the aggregator fills no bucket pods"):
        PROJECTION.get(State(), "pods", "a")
    with pytest.raises(ValueError, match="the aggregator fills no bucket pods"):
        PROJECTION.keys(State(), "pods")
