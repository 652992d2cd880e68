from datetime import UTC, datetime, timedelta

import pytest

from nodepool.cli.description import format_description, label
from nodepool.cli.event_table import count_events, event_document, interval, occurred_once
from nodepool.cli.names import EVENT
from nodepool.cli.tables import row
from nodepool.client import ObjectEvent
from nodepool.contract.conditions import HEALTHY
from nodepool.contract.moments import rfc3339
from support.described import DESCRIBED

NOW = datetime(2025, 6, 10, 14, 48, 54, tzinfo=UTC)


def pool(**metadata: object) -> dict[str, object]:
    return {
        "apiVersion": "compute.coreweave.com/v1alpha1",
        "kind": "NodePool",
        "metadata": {
            "name": "test-pool",
            "uid": "9311678d-4064-45b8-8439-b943250e5852",
            "generation": 1,
            "resourceVersion": "857370",
            "creationTimestamp": "2025-06-09T14:48:54Z",
            "finalizers": ["compute.coreweave.com/node-pool"],
            **metadata,
        },
        "spec": {
            "instanceType": "gd-8xa100-i128",
            "targetNodes": 1,
            "autoscaling": False,
            "lifecycle": {"disableUnhealthyNodeEviction": True, "scaleDownStrategy": "IdleOnly"},
        },
        "status": {
            "conditions": [
                {
                    "lastTransitionTime": "2025-05-30T17:36:00Z",
                    "message": message,
                    "observedGeneration": 1,
                    "reason": str(reason),
                    "status": "True",
                    "type": type(reason).__name__,
                }
                for reason, message in HEALTHY.items()
            ],
            "currentNodes": 1,
            "inProgress": 0,
        },
    }


def event(reason: str, seconds_ago: float, message: str = "text") -> ObjectEvent:
    return ObjectEvent(
        time=NOW - timedelta(seconds=seconds_ago),
        severity="Normal",
        reason=reason,
        kind="NodePool",
        name="test-pool",
        component="allocator",
        message=message,
    )


def test_a_healthy_nodepool_is_described_as_in_the_documentation() -> None:
    assert format_description(pool(), [], NOW) == DESCRIBED


def test_a_nodepool_in_deletion_shows_since_when_and_what_holds_it() -> None:
    lines = format_description(pool(deletionTimestamp=rfc3339(NOW)), [], NOW).splitlines()

    begin = lines.index("Metadata:")
    assert lines[begin + 1 : begin + 5] == [
        "  Creation Timestamp:  2025-06-09T14:48:54Z",
        "  Deletion Timestamp:  2025-06-10T14:48:54Z",
        "  Finalizers:",
        "    compute.coreweave.com/node-pool",
    ]


def test_labels_and_annotations_stand_below_each_other_in_their_order() -> None:
    document = pool(labels={"b": "2", "a": "1"}, annotations={"short": "s", "lines": "x\ny"})

    lines = format_description(document, [], NOW).splitlines()

    assert lines[2:8] == [
        "Labels:       a=1",
        "              b=2",
        "Annotations:  lines:",
        "                x",
        "                y",
        "              short: s",
    ]


def test_a_long_annotation_is_cut_where_kubectl_cuts_it() -> None:
    lines = format_description(pool(annotations={"long": "v" * 200}), [], NOW).splitlines()

    assert lines[3:5] == ["Annotations:  long:", f"                {'v' * 138}..."]


def test_events_are_a_table_below_the_object() -> None:
    events = count_events([event("CWNodePoolCreated", 600), event("CWNodeAssigned", 5)])

    lines = format_description(pool(), events, NOW).splitlines()

    assert lines[lines.index("Events:") :] == [
        "Events:",
        "  Type    Reason             Age   From       Message",
        "  ----    ------             ----  ----       -------",
        "  Normal  CWNodePoolCreated  10m   allocator  text",
        "  Normal  CWNodeAssigned     5s    allocator  text",
    ]


def test_the_same_event_again_is_counted_and_moves_to_its_last_place() -> None:
    events = count_events([event("A", 300), event("B", 200), event("A", 60)])

    assert [row(EVENT, event_document(each), NOW, wide=False) for each in events] == [
        ["3m20s", "Normal", "B", "NodePool/test-pool", "text"],
        ["60s (x2 over 5m)", "Normal", "A", "NodePool/test-pool", "text"],
    ]


def test_events_that_differ_in_their_message_are_different() -> None:
    events = count_events([event("A", 300, "one"), event("A", 200, "two")])

    assert [(each.message, each.count) for each in events] == [("one", 1), ("two", 1)]


def test_an_event_that_occurred_once_shows_how_long_ago() -> None:
    once = occurred_once(event("A", 300))

    assert (once.object, once.count) == ("NodePool/test-pool", 1)
    assert interval(once, NOW) == "5m"


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("disableUnhealthyNodeEviction", "Disable Unhealthy Node Eviction"),
        ("uid", "UID"),
        ("apiVersion", "API Version"),
        ("UIDThing", "UID Thing"),
        ("nodeURLFoo", "Node URL Foo"),
        ("foo-bar", "Foo - Bar"),
        ("a.b/c", "a.b/c"),
        ("a1", "a1"),
        ("x", "X"),
    ],
)
def test_field_names_become_words_as_in_kubectl(field: str, words: str) -> None:
    assert label(field) == words


def test_values_are_written_as_go_writes_them() -> None:
    document = {**pool(), "spec": {"a": None, "b": True, "c": [], "d": {}, "e": ["x", 1], "f": -1}}

    lines = format_description(document, [], NOW).splitlines()

    begin, end = lines.index("Spec:"), lines.index("Status:")
    assert lines[begin + 1 : end] == [
        "  A:  <nil>",
        "  B:  true",
        "  C:",
        "  D:",
        "  E:",
        "    x",
        "    1",
        "  F:  -1",
    ]
