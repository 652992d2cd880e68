"""What is told of an action that the API server refuses for what it asks."""

import pytest

from agent.actions import Create, Delete, Evict, Kind, Patch
from agent.host.refusals import Refusable, refusal_event
from nodepool.kube.failures import ApiFailure

POOL: tuple[Kind, str, str] = ("NodePool", "train", "u-1")
CHANGE = {
    "metadata": {"uid": "u-2", "resourceVersion": "7", "labels": {"team": "x"}},
    "spec": {"taints": []},
}


@pytest.mark.parametrize(
    ("action", "reason", "message"),
    [
        (
            Patch("Node", "n1", CHANGE),
            "UpdateRefused",
            "Node n1 cannot be updated (metadata.labels, spec.taints): no",
        ),
        (
            Patch("NodePool", "train", {"status": {"conditions": []}}, "status"),
            "UpdateRefused",
            "NodePool train cannot be updated (status.conditions): no",
        ),
        (
            Create("Node", {"metadata": {"name": "n1"}}),
            "CreateRefused",
            "Node n1 cannot be created: no",
        ),
        (Delete("Node", "n1", "u-2"), "DeleteRefused", "Node n1 cannot be deleted: no"),
        (
            Delete("Pod", "job", "u-3", "team"),
            "DeleteRefused",
            "Pod team/job cannot be deleted: no",
        ),
        (Evict("team", "job", "u-3"), "EvictionRefused", "Pod team/job cannot be evicted: no"),
    ],
)
def test_a_refusal_names_the_object_and_what_was_to_become_of_it(
    action: Refusable, reason: str, message: str
) -> None:
    event = refusal_event(POOL, action, (), "no")

    assert (event.kind, event.name, event.uid) == POOL
    assert (event.severity, event.reason, event.message) == ("Warning", reason, message)


def test_fields_that_the_api_server_names_are_not_named_twice() -> None:
    why = 'Node "n1" is invalid: metadata.labels: Invalid value: "?"'

    event = refusal_event(POOL, Patch("Node", "n1", CHANGE), ["metadata.labels"], why)

    assert event.message == f"Node n1 cannot be updated: {why}"


def test_the_same_refusal_is_one_event_and_another_one_is_another() -> None:
    patch = Patch("Node", "n1", CHANGE)
    keys = {refusal_event(POOL, patch, (), why).key for why in ("no", "no", "never")}
    keys.add(refusal_event(("NodePool", "train", "u-9"), patch, (), "no").key)

    assert len(keys) == 3


@pytest.mark.parametrize(
    ("code", "is_lasting"),
    [
        (400, True),
        (401, False),
        (403, True),
        (404, False),
        (409, False),
        (410, False),
        (413, True),
        (422, True),
        (429, False),
        (500, False),
        (503, False),
    ],
)
def test_what_is_refused_for_the_moment_is_not_refused_for_ever(
    code: int, is_lasting: bool
) -> None:
    assert ApiFailure(code, {}, 0.0).is_lasting is is_lasting


@pytest.mark.parametrize(
    ("code", "message", "lacks_right"),
    [
        (401, "Unauthorized", True),
        (
            403,
            'nodes "n1" is forbidden: User "agent" cannot patch resource "nodes" in API group ""'
            " at the cluster scope",
            True,
        ),
        (403, "nodes \"n1\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: no", False),
        (403, 'admission webhook "w" denied the request: User "anna" cannot do this', False),
        (422, 'User "agent" cannot patch resource "nodes"', False),
    ],
)
def test_a_right_that_is_missing_is_told_from_an_object_that_is_refused(
    code: int, message: str, lacks_right: bool
) -> None:
    failure = ApiFailure(code, {"message": message}, 0.0)

    assert (failure.lacks_right, failure.is_lasting) == (lacks_right, not lacks_right)


def test_a_failure_has_the_fields_that_its_causes_name() -> None:
    causes = [
        {"reason": "FieldValueInvalid", "message": "?", "field": "metadata.labels"},
        {"reason": "FieldValueInvalid", "message": "?"},
        "nonsense",
    ]

    failure = ApiFailure(422, {"details": {"causes": causes}}, 0.0)

    assert failure.fields == ("metadata.labels",)
    assert failure.causes == {"FieldValueInvalid": "?"}
