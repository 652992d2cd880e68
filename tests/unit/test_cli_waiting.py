"""What `wait` and `rollout status` wait for, and whether an object is believed."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from nodepool.cli.awaited import parse_awaited
from nodepool.cli.progress import Progress, progress
from nodepool.client import ObjectEvent
from nodepool.client.accepted import (
    DELETED,
    DELETING,
    VALIDATED,
    Accepted,
    accepted_in,
    is_outdated,
    read_accepted,
)
from nodepool.contract.documents import Document
from nodepool.contract.events import CWNodePoolDeleted, NodePoolDeleting, NodePoolValidated
from nodepool.contract.log import Entry
from nodepool.contract.messages import envelope_of

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def pool(
    *, current: int = 8, target: int = 12, deleting: bool = False, **reasons: tuple[str, str]
) -> Document:
    """A NodePool of generation 2; reasons are status and reason of a condition."""
    conditions = {"Validated": ("True", "Valid"), "AtTarget": ("False", "UnderTarget"), **reasons}
    metadata: dict[str, object] = {"name": "a", "generation": 2}
    if deleting:
        metadata["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    return {
        "metadata": metadata,
        "spec": {"targetNodes": target},
        "status": {
            "currentNodes": current,
            "conditions": [
                {
                    "type": kind,
                    "status": status,
                    "reason": reason,
                    "message": f"about {kind}",
                    "observedGeneration": 2,
                }
                for kind, (status, reason) in conditions.items()
            ],
        },
    }


@pytest.mark.parametrize(
    ("until", "document", "met"),
    [
        ("condition=AtTarget", pool(), False),
        ("condition=attarget=false", pool(), True),
        ("jsonpath={.spec.targetNodes}=12", pool(), True),
        ("jsonpath={.spec.targetNodes}=13", pool(), False),
        ("jsonpath='{.spec.targetNodes}'=12".replace("'", ""), pool(), True),
        ("jsonpath=.spec.targetNodes=12", pool(), True),
        ('jsonpath={.status.conditions[?(@.type=="AtTarget")].status}=False', pool(), True),
        ('jsonpath={.status.conditions[?(@.type=="AtTarget")].status}', pool(), True),
        ("jsonpath={.status.nosuch}", pool(), False),
        ("jsonpath={.status.conditions[9].type}=x", pool(), False),
    ],
)
def test_a_state_is_a_condition_or_a_value(until: str, document: Document, met: bool) -> None:
    assert parse_awaited(until).is_met(document) is met


def test_a_wait_that_ends_in_vain_shows_what_is_there_instead() -> None:
    condition = parse_awaited("condition=AtTarget")
    misspelt = parse_awaited("condition=AtTraget")
    value = parse_awaited("jsonpath={.spec.targetNodes}=13")

    assert condition.instead(pool()) == "it is False (UnderTarget): about AtTarget"
    assert misspelt.instead(pool()) == "it has the conditions Validated, AtTarget"
    assert value.instead(pool()) == "it is 12"
    assert value.instead({}) == "it is missing"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (
            pool(),
            Progress(
                'Waiting for nodepool "a" rollout to finish: 8 of 12 Nodes...', "8 of 12 Nodes"
            ),
        ),
        (
            pool(Quota=("False", "Over"), Capacity=("True", "Sufficient")),
            Progress(
                'Waiting for nodepool "a" rollout to finish: 8 of 12 Nodes;'
                " Quota is Over: about Quota...",
                "8 of 12 Nodes; Quota is Over: about Quota",
            ),
        ),
        (
            pool(AtTarget=("True", "TargetMet")),
            Progress('nodepool "a" successfully rolled out', done=True),
        ),
        (
            pool(Validated=("False", "Invalid")),
            Progress('nodepool "a" is invalid: about Validated', failed=True),
        ),
        (pool(deleting=True), Progress('nodepool "a" is being deleted', failed=True)),
        (
            {"metadata": {"name": "a", "generation": 3}, "status": pool()["status"]},
            Progress('Waiting for nodepool "a" spec update to be observed...'),
        ),
    ],
)
def test_progress_says_what_is_missing(document: Document, expected: Progress) -> None:
    assert progress(document) == expected


def stored(uid: str, generation: int, version: int) -> Document:
    return {"metadata": {"uid": uid, "generation": generation, "resourceVersion": str(version)}}


@pytest.mark.parametrize(
    ("document", "outdated"),
    [
        (stored("u", 2, 90), False),
        (stored("u", 1, 90), True),
        (stored("earlier", 5, 90), True),
        (stored("later", 1, 101), False),
        (stored("u", 3, 100), False),
        ({"metadata": {"generation": 2}}, False),
        ({}, False),
    ],
)
def test_an_object_older_than_the_last_accepted_command_is_outdated(
    document: Document, outdated: bool
) -> None:
    assert is_outdated(document, Accepted("u", 2, 100)) is outdated
    assert is_outdated(document, None) is False


def test_an_object_that_does_not_know_of_its_deletion_is_outdated() -> None:
    deleted = Accepted("u", 2, 100, "deleting")
    deleting = {"metadata": {**pool(deleting=True)["metadata"], "uid": "u"}}  # type: ignore[dict-item]  # A map.

    assert is_outdated(stored("u", 2, 90), deleted)
    assert not is_outdated(stored("u", 2, 101), deleted)
    assert not is_outdated(deleting, deleted)


def test_what_was_accepted_is_read_without_the_models_of_messages() -> None:
    values = NodePoolDeleting(org="o", cluster="c", pool="p", uid="u", generation=3, since=NOW)
    content = (
        envelope_of(NodePoolDeleting)
        .model_construct(id="1", type="NodePoolDeleting", source="validator", data=values)
        .encode()
    )

    events = (NodePoolValidated, NodePoolDeleting, CWNodePoolDeleted)
    assert [(each.speaker, each.__name__) for each in events] == [VALIDATED, DELETING, DELETED]
    assert accepted_in(Entry(7, NOW, "s", content, {}), "deleting") == Accepted(
        "u", 3, 7, "deleting"
    )
    assert accepted_in(Entry(7, NOW, "s", b"{", {})) is None
    assert accepted_in(Entry(7, NOW, "s", b'{"data": []}', {})) is None


def at(position: int) -> Entry:
    content = f'{{"data": {{"uid": "u{position}", "generation": {position}}}}}'
    return Entry(position, NOW, "s", content.encode(), {})


@pytest.mark.parametrize(
    ("log", "accepted"),
    [
        ({}, None),
        ({DELETING: at(8)}, Accepted("u8", 8, 8, "deleting")),
        ({DELETING: at(8), DELETED: at(9)}, Accepted("", 0, 9, "deleted")),
        ({VALIDATED: at(1)}, Accepted("u1", 1, 1)),
        ({VALIDATED: at(1), DELETING: at(2)}, Accepted("u2", 2, 2, "deleting")),
        ({VALIDATED: at(1), DELETING: at(2), DELETED: at(3)}, Accepted("", 0, 3, "deleted")),
        ({VALIDATED: at(1), DELETED: at(3)}, Accepted("", 0, 3, "deleted")),
        ({VALIDATED: at(4), DELETING: at(2), DELETED: at(3)}, Accepted("u4", 4, 4)),
    ],
    ids=[
        *("never", "trimmed and deleting", "trimmed and deleted"),
        *("stored", "deleting", "deleted", "deleted at once", "made anew"),
    ],
)
async def test_the_newest_events_about_a_nodepool_say_what_was_accepted_last(
    log: Mapping[tuple[str, str], Entry], accepted: Accepted | None
) -> None:
    async def last_event(event: tuple[str, str]) -> Entry | None:
        return log.get(event)

    assert await read_accepted(last_event) == accepted


def event(reason: str, seconds: float) -> ObjectEvent:
    time = NOW + timedelta(seconds=seconds)
    return ObjectEvent(time, "Normal", reason, "NodePool", "a", "validator", "text")


@pytest.mark.parametrize("version", ["9" * 5_000, "", "7e1", None, [7]])
def test_a_version_that_the_control_plane_never_writes_is_older_than_all_others(
    version: object,
) -> None:
    document = {"metadata": {"resourceVersion": version, "generation": 1}}

    assert is_outdated(document, Accepted("u", 2, 100))
