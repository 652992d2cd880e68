"""The status of a NodePool object: the read model's, in the generations of the object."""

from dataclasses import replace

import pytest

from agent.actions import Patch
from agent.pools.objects import PoolObject, WantedPool
from agent.pools.status import invalid_status, is_progress, shown_status, status_patches
from support.constants import H100

SINCE = "2026-01-01T00:00:00Z"
SPEC = {"instanceType": H100, "targetNodes": 2}


def _condition(kind: str, generation: int, **more: object) -> dict[str, object]:
    return {
        "lastTransitionTime": SINCE,
        "message": "text",
        "observedGeneration": generation,
        "reason": "Valid",
        "status": "True",
        "type": kind,
        **more,
    }


def _wanted(*conditions: dict[str, object], **status: object) -> WantedPool:
    counts = {"currentNodes": 1, "inProgress": 1, "grantedNodes": 2}
    shown = {"conditions": list(conditions), **counts, **status}
    return WantedPool("pool", "bus-uid", 5, "42", SPEC, status=shown)


FOUND = PoolObject("pool", "uid", 9, "5", SPEC, created=SINCE)


def test_a_verdict_on_the_spec_that_the_object_has_is_of_its_generation() -> None:
    wanted = _wanted(_condition("Validated", 5, logPosition=3), _condition("Quota", 4))

    assert shown_status(wanted, FOUND, 8, is_same_spec=True) == {
        "conditions": [_condition("Validated", 9), _condition("Quota", 8)],
        "observedGeneration": 8,
        "currentNodes": 1,
        "inProgress": 1,
    }


def test_no_verdict_is_of_a_generation_that_the_bus_has_not_seen() -> None:
    status = shown_status(_wanted(_condition("Validated", 5)), FOUND, 9, is_same_spec=False)

    assert status["conditions"] == [_condition("Validated", 8)]


def test_before_an_agreement_every_verdict_is_older_than_the_object() -> None:
    first = replace(FOUND, generation=1)

    status = shown_status(_wanted(_condition("Validated", 5)), first, 0, is_same_spec=False)

    assert status["conditions"] == [_condition("Validated", 0)]


def test_the_order_of_the_conditions_is_that_of_the_read_model() -> None:
    kinds = ["Validated", "Capacity", "Quota", "AtTarget", "NodesRemoved"]
    wanted = _wanted(*(_condition(kind, 5) for kind in kinds))

    conditions = shown_status(wanted, FOUND, 9, is_same_spec=True)["conditions"]

    assert isinstance(conditions, list)
    assert [each["type"] for each in conditions] == kinds


def test_what_is_optional_is_shown_where_it_says_something() -> None:
    wanted = _wanted(
        grantedNodes=1,
        queuedNodes=2,
        awaitedSpotNodes=3,
        rackStatus={"target": 1, "current": 0, "queued": 1},
        otherNodeProfiles={"type/image:1@stable": 3},
        autoscaled={"message": "more", "since": SINCE, "logPosition": 8},
    )

    assert shown_status(wanted, FOUND, 9, is_same_spec=True) == {
        "conditions": [],
        "observedGeneration": 8,
        "currentNodes": 1,
        "inProgress": 1,
        "grantedNodes": 1,
        "queuedNodes": 2,
        "awaitedSpotNodes": 3,
        "rackStatus": {"target": 1, "current": 0, "queued": 1},
        "otherNodeProfiles": {"type/image:1@stable": 3},
        "autoscaled": {"message": "more", "since": SINCE},
    }


def test_a_status_is_patched_only_where_it_differs() -> None:
    status = shown_status(_wanted(_condition("Quota", 5)), FOUND, 9, is_same_spec=True)
    found = replace(FOUND, status={**status, "currentNodes": 0, "grantedNodes": 1})

    assert status_patches(found, status) == (
        Patch("NodePool", "pool", {"status": {"grantedNodes": None, "currentNodes": 1}}, "status"),
    )
    assert status_patches(replace(FOUND, status=status), status) == ()


def test_an_object_that_is_not_taken_is_invalid_since_it_first_was() -> None:
    status = invalid_status(FOUND, "spec.targetNodes: is required")
    invalid = {"reason": "Invalid", "status": "False", "message": "spec.targetNodes: is required"}
    earlier = {"lastTransitionTime": "2025-01-01T00:00:00Z"}
    found = replace(
        FOUND, status={"conditions": [_condition("Validated", 8, **invalid, **earlier)]}
    )

    stalled = {**invalid, "status": "True"}
    assert status == {
        "conditions": [
            _condition("Validated", 9, **invalid),
            _condition("Stalled", 9, **stalled),
        ],
        "currentNodes": 0,
        "inProgress": 0,
        "observedGeneration": 9,
    }
    assert invalid_status(found, "spec.targetNodes: is required")["conditions"] == [
        _condition("Validated", 9, **invalid, **earlier),
        _condition("Stalled", 9, **stalled, **earlier),
    ]


@pytest.mark.parametrize(("is_same_spec", "shown"), [(True, 9), (False, 8)])
def test_the_generation_that_was_evaluated_is_the_objects(is_same_spec: bool, shown: int) -> None:
    wanted = _wanted()
    wanted = replace(wanted, status={"observedGeneration": wanted.generation})

    status = shown_status(wanted, FOUND, 9, is_same_spec=is_same_spec)

    assert status["observedGeneration"] == shown


def test_a_status_of_any_shape_is_no_error() -> None:
    shapes = {"rackStatus": [], "otherNodeProfiles": 7, "autoscaled": 1}
    wanted = replace(_wanted(), status={"conditions": 5, "currentNodes": "x", **shapes})

    assert shown_status(wanted, FOUND, 9, is_same_spec=True) == {
        "conditions": [],
        "observedGeneration": 8,
        "currentNodes": 0,
        "inProgress": 0,
    }


def test_a_profile_that_no_node_has_any_more_is_removed_from_the_object() -> None:
    before, after = (
        shown_status(_wanted(otherNodeProfiles=others), FOUND, 9, is_same_spec=True)
        for others in ({"old": 1, "older": 2}, {"old": 1})
    )

    (patch,) = status_patches(replace(FOUND, status=before), after)

    assert patch == Patch(
        "NodePool", "pool", {"status": {"otherNodeProfiles": {"older": None}}}, "status"
    )


def test_counts_and_messages_are_progress_and_a_verdict_is_not() -> None:
    def conditions(**changes: object) -> dict[str, object]:
        return {"conditions": [_condition("AtTarget", 9, **changes)]}

    shown = {**conditions(), "observedGeneration": 9, "currentNodes": 1}

    assert is_progress({"currentNodes": 2}, shown)
    assert is_progress({**conditions(message="2 of 3 Nodes"), "currentNodes": 2}, shown)
    assert not is_progress(conditions(status="False"), shown)
    assert not is_progress(conditions(reason="Other"), shown)
    assert not is_progress(conditions(observedGeneration=10), shown)
    assert not is_progress({"observedGeneration": 10}, shown)
    assert not is_progress({"conditions": [], "currentNodes": 0}, shown)
