"""Pods of a cluster as the agent reads them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.pods.objects import PodObject, pod_object
from agent.reading import Document, UnreadableDocument
from nodepool.contract.model import GPU_TAINT, LOCK_TAINT
from nodepool.contract.pods import TOLERATIONS_MAX, Pod, PodClass, Toleration


def document(
    metadata: Mapping[str, object] | None = None,
    spec: Mapping[str, object] | None = None,
    phase: str = "Running",
) -> Document:
    """A Pod that runs on Node n1, with changes."""
    return {
        "metadata": {
            "namespace": "ml",
            "name": "job",
            "uid": "u",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            **(metadata or {}),
        },
        "spec": {"nodeName": "n1", "containers": [{}], **(spec or {})},
        "status": {"phase": phase},
    }


def read(
    metadata: Mapping[str, object] | None = None, spec: Mapping[str, object] | None = None
) -> Pod:
    """What counts of such a Pod."""
    found = pod_object(document(metadata, spec))
    assert found is not None
    return found.pod


def test_a_pod_is_read_with_its_namespace_in_its_name() -> None:
    assert pod_object(document()) == PodObject(
        namespace="ml",
        uid="u",
        node="n1",
        pod=Pod(name="ml/job"),
        created=datetime(2026, 1, 1, tzinfo=UTC),
    )


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_does_not_count(phase: str) -> None:
    assert pod_object(document(phase=phase)) is None


def test_a_pod_that_is_bound_to_no_node_does_not_count() -> None:
    assert pod_object(document(spec={"nodeName": ""}, phase="Pending")) is None


def test_pods_of_daemon_sets_and_static_pods_are_no_work() -> None:
    daemon = {"ownerReferences": [{"kind": "DaemonSet", "controller": True}]}
    static = {"annotations": {"kubernetes.io/config.mirror": "hash"}}
    replica = {"ownerReferences": [{"kind": "ReplicaSet", "controller": True}]}

    assert [read(each).counts_as_work for each in (daemon, static, replica)] == [
        False,
        False,
        True,
    ]


def test_pods_that_verify_nodes_are_no_work() -> None:
    assert read({"namespace": "hpc-verification"}).verification
    assert not read({"namespace": "hpc-verification-2"}).verification


@pytest.mark.parametrize(
    ("labels", "interruption"),
    [
        ({}, PodClass.BLOCKING),
        ({"qos.coreweave.cloud/interruptable": "true"}, PodClass.INTERRUPTABLE),
        ({"qos.coreweave.cloud/interruptable": "false"}, PodClass.BLOCKING),
        ({"qos.coreweave.com/graceful-interruptible": "true"}, PodClass.GRACEFUL),
        ({"qos.coreweave.cloud/graceful-interruptible": "true"}, PodClass.GRACEFUL),
        (
            {
                "qos.coreweave.cloud/interruptable": "true",
                "qos.coreweave.com/graceful-interruptible": "true",
            },
            PodClass.INTERRUPTABLE,
        ),
    ],
)
def test_labels_say_how_a_pod_may_be_interrupted(
    labels: Mapping[str, str], interruption: PodClass
) -> None:
    assert read({"labels": labels}).interruption is interruption


def test_a_terminating_pod_has_the_grace_period_of_its_deletion() -> None:
    deleted = {"deletionTimestamp": "2026-01-01T00:01:00Z", "deletionGracePeriodSeconds": 5}
    spec = {"terminationGracePeriodSeconds": 600}

    assert (read({}, spec).grace_s, read({}, spec).terminating) == (600, False)
    assert (read(deleted, spec).grace_s, read(deleted, spec).terminating) == (5, True)


def test_the_deletion_of_a_pod_began_its_grace_period_before_it_ends() -> None:
    deleted = {"deletionTimestamp": "2026-01-01T00:01:00Z", "deletionGracePeriodSeconds": 45}

    pod = pod_object(document(deleted))

    assert pod is not None
    assert pod.terminating_since == datetime(2026, 1, 1, 0, 0, 15, tzinfo=UTC)


def test_a_pod_that_is_being_deleted_without_any_grace_left_has_ended() -> None:
    deleted = {"deletionTimestamp": "2026-01-01T00:01:00Z", "deletionGracePeriodSeconds": 0}

    assert pod_object(document({**deleted, "finalizers": ["example.com/held"]})) is None


@pytest.mark.parametrize(("given_s", "kept_s"), [(-1, 0), (10**9, 86_400), (None, 30)])
def test_a_grace_period_is_bounded(given_s: int | None, kept_s: int) -> None:
    assert read({}, {"terminationGracePeriodSeconds": given_s}).grace_s == kept_s


def container(count: object, kind: str = "requests", **rest: object) -> Mapping[str, object]:
    return {"resources": {kind: {"nvidia.com/gpu": count}}, **rest}


@pytest.mark.parametrize(
    ("spec", "gpus"),
    [
        ({"containers": [container("4"), container("2")]}, 6),
        ({"containers": [container("8", "limits")]}, 8),
        ({"containers": [container("1k")]}, 1_000),
        ({"containers": [container("1e3")]}, 1_000),
        ({"containers": [container("1500m")]}, 2),
        ({"containers": [container("many")]}, 1_024),
        ({"containers": [container("9999999")]}, 1_024),
        ({"containers": [container("1")], "initContainers": [container("8")]}, 8),
        (
            {
                "containers": [container("1")],
                "initContainers": [container("2", restartPolicy="Always"), container("4")],
            },
            6,
        ),
    ],
)
def test_gpus_are_counted_as_kubernetes_counts_them(spec: Mapping[str, Any], gpus: int) -> None:
    assert read({}, spec).gpus == gpus


def test_slurms_name_of_the_gpus_is_counted_for_itself() -> None:
    resources = {"requests": {"sunk.coreweave.com/accelerator": "8"}}
    pod = read({}, {"containers": [{"resources": resources}]})

    assert (pod.gpus, pod.accelerators) == (0, 8)


def test_of_many_tolerations_those_that_matter_are_kept() -> None:
    # given a Pod with more tolerations than a report holds, one of them of everything
    foreign = [{"key": f"example.com/{n}", "operator": "Exists"} for n in range(200)]
    managed = [{"key": GPU_TAINT.key, "value": str(n), "effect": "NoSchedule"} for n in range(200)]
    pod = read({}, {"tolerations": [*foreign, *managed, {"operator": "Exists"}]})

    # then it is still tolerant of the lock
    assert len(pod.tolerations) == TOLERATIONS_MAX
    assert pod.tolerations[0] == Toleration(operator="Exists")
    assert pod.tolerates(LOCK_TAINT)


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": LOCK_TAINT.key, "operator": "Exists", "tolerationSeconds": 300},
        {"key": LOCK_TAINT.key, "operator": "Gt", "value": "1"},
        {"key": LOCK_TAINT.key, "value": "false"},
        {"key": LOCK_TAINT.key, "operator": "Exists", "effect": "NoSchedule"},
    ],
)
def test_a_toleration_that_ends_or_is_of_something_else_is_none(
    toleration: Mapping[str, object],
) -> None:
    assert not read({}, {"tolerations": [toleration]}).tolerates(LOCK_TAINT)


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        ({"metadata": []}, "metadata: must be an object, not list"),
        ({"spec": {"nodeName": 5}}, "nodeName: must be a text, not int"),
        (document({"name": None}), "name: must be a text, not NoneType"),
        (document({"labels": "x"}), "labels: must be an object, not str"),
        (
            document({"deletionTimestamp": "soon"}),
            "deletionTimestamp: must be a moment as RFC 3339 writes it, not str",
        ),
        (
            document(spec={"containers": [container(["1"])]}),
            "nvidia.com/gpu: must be a quantity, not list",
        ),
    ],
)
def test_what_is_no_pod_is_named_with_its_field(broken: Document, text: str) -> None:
    whole = {**document(), **broken}

    with pytest.raises(UnreadableDocument) as caught:
        pod_object(whole)

    assert str(caught.value) == text


FIELDS = [
    *("metadata", "spec", "status", "labels", "name", "namespace", "uid", "annotations"),
    *("ownerReferences", "kind", "deletionTimestamp", "creationTimestamp", "nodeName"),
    *("containers", "initContainers", "resources", "requests", "limits", "nvidia.com/gpu"),
    *("tolerations", "key", "operator", "effect", "value", "terminationGracePeriodSeconds"),
]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6)
    ),
    max_leaves=25,
)


@given(st.dictionaries(st.sampled_from(FIELDS), ANYTHING), ANYTHING, ANYTHING)
def test_a_document_of_any_shape_is_read_or_named_unreadable(
    spec: dict[str, object], metadata: object, status: object
) -> None:
    spec.setdefault("nodeName", "n1")
    fault = ": must be "
    try:
        pod_object({"metadata": metadata, "spec": spec, "status": status})
    except UnreadableDocument as error:
        fault = str(error)
    assert ": must be " in fault
