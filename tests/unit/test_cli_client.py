import json
import subprocess
import sys
from collections.abc import Mapping

import pytest
from nats.errors import NoServersError

from contracts.samples import sample
from nodepool.client import Client, Document, Refused, Unreachable
from nodepool.client.errors import no_outcome, translate_errors
from nodepool.client.events import KINDS, object_events, regards
from nodepool.client.names import check_name, find_name_refusal
from nodepool.client.objects import document_of, has_condition
from nodepool.client.sender import PendingOutcomes, encode_command, outcome_filters
from nodepool.client.session import FILTERS_MAX
from nodepool.contract.commands import (
    BreakMachine,
    DeleteNodePool,
    FindCapacity,
    RegisterCluster,
    SetQuota,
)
from nodepool.contract.events import (
    CapacityFound,
    CommandAccepted,
    CommandRefused,
    CWNodeRegistrationFailed,
    CWOverQuota,
    PreemptionPending,
)
from nodepool.contract.log import Entry
from nodepool.contract.messages import Event, envelope_of
from nodepool.contract.subjects import subject_of
from nodepool.engine.world import START
from nodepool.nats.log.reader import Reader
from nodepool.nats.wire.addresses import without_password
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import InDoubt, ServerRefusal, StreamChanged

POOL = {"org": "acme", "cluster": "prod", "pool": "training"}


def delete(pool: str, cluster: str = "prod") -> DeleteNodePool:
    return DeleteNodePool(org="acme", cluster=cluster, pool=pool)


def entry(event: Event) -> Entry:
    kind = type(event)
    envelope = envelope_of(kind).model_construct(id="1", type=kind.__name__, source="x", data=event)
    return Entry(1, START, subject_of(event, kind.speaker), envelope.encode(), {})


# Outcomes.


def test_the_outcome_of_one_command_is_read_on_its_own_subject() -> None:
    assert outcome_filters([delete("a.b")]) == [
        "np.evt.*.acme.prod.a~b.CommandAccepted",
        "np.evt.*.acme.prod.a~b.CommandRefused",
    ]
    assert outcome_filters([SetQuota(org="acme", zone="Z", instance_type="t", limit=1)]) == [
        "np.evt.*.acme._._.CommandAccepted",
        "np.evt.*.acme._._.CommandRefused",
    ]


def test_the_answer_to_a_query_is_read_in_place_of_its_acceptance() -> None:
    assert outcome_filters([FIND], CapacityFound) == [
        "np.evt.*.acme._._.CapacityFound",
        "np.evt.*.acme._._.CommandRefused",
    ]


def test_outcomes_of_many_commands_are_read_by_cluster() -> None:
    filters = outcome_filters([delete("a"), delete("b"), delete("a", "test")])

    assert filters == [
        "np.evt.*.acme.prod.*.CommandAccepted",
        "np.evt.*.acme.prod.*.CommandRefused",
        "np.evt.*.acme.test.*.CommandAccepted",
        "np.evt.*.acme.test.*.CommandRefused",
    ]


def test_outcomes_of_very_many_clusters_are_read_all_together() -> None:
    many = [delete("a", f"c{number}") for number in range(FILTERS_MAX + 1)]

    assert outcome_filters(many) == [
        "np.evt.*.*.*.*.CommandAccepted",
        "np.evt.*.*.*.*.CommandRefused",
    ]


def outcome(event: Event, id: str) -> Entry:
    kind = type(event)
    envelope = envelope_of(kind).model_construct(
        id="1", type=kind.__name__, source="x", correlationid=id, data=event
    )
    return Entry(1, START, subject_of(event, "validator"), envelope.encode(), {})


ACCEPTED = CommandAccepted(
    org="acme", cluster="prod", pool="training", command="DeleteNodePool", result="deleted"
)
REFUSED = CommandRefused(
    **POOL, command="DeleteNodePool", field="metadata.name", reason="NotFound", message="no"
)


FIND = sample(FindCapacity)
FOUND = sample(CapacityFound)
NO_QUERY = CommandRefused(
    org="acme",
    cluster="_",
    pool="_",
    command="FindCapacity",
    field="selections",
    reason="Invalid",
    message="no",
)


def answer(event: CapacityFound, id: str) -> Entry:
    """What a query of this id is answered with."""
    envelope = envelope_of(CapacityFound).model_construct(
        id="2", type="CapacityFound", source="capacity", correlationid=id, data=event
    )
    return Entry(1, START, subject_of(event, "capacity"), envelope.encode(), {})


async def test_each_outcome_goes_to_the_command_with_its_id() -> None:
    pending = PendingOutcomes(Reader(Connection(), "NODEPOOL", []), CommandAccepted)
    first, second = pending.expect("c1"), pending.expect("c2")
    for message in (
        outcome(REFUSED, "another client's"),
        outcome(REFUSED, "c2"),
        outcome(ACCEPTED, "c1"),
        outcome(REFUSED, "c1"),
    ):
        pending.receive(message)
    accepted, refused = first.result(), second.result()

    assert accepted == ACCEPTED
    assert isinstance(refused, Refused)
    assert str(refused) == "metadata.name: no (NotFound)"


async def test_each_answer_goes_to_the_query_with_its_id() -> None:
    pending = PendingOutcomes(Reader(Connection(), "NODEPOOL", []), CapacityFound)
    first, second = pending.expect("q1"), pending.expect("q2")
    for message in (
        answer(FOUND, "another client's"),
        answer(FOUND, "q1"),
        outcome(NO_QUERY, "q2"),
    ):
        pending.receive(message)
    found, refused = first.result(), second.result()

    assert found == FOUND
    assert isinstance(refused, Refused)
    assert str(refused) == "selections: no (Invalid)"


async def test_an_outcome_that_is_no_longer_expected_is_dropped() -> None:
    pending = PendingOutcomes(Reader(Connection(), "NODEPOOL", []), CommandAccepted)
    future = pending.expect("c1")
    pending.forget("c1")
    pending.receive(outcome(ACCEPTED, "c1"))

    assert future.cancelled()


def test_a_command_is_a_cloud_event() -> None:
    event = json.loads(encode_command(delete("training"), "id-1", "shop/me"))

    assert event["specversion"] == "1.0"
    assert (event["id"], event["type"], event["source"]) == ("id-1", "DeleteNodePool", "shop/me")
    assert event["subject"] == "acme/prod/training"
    assert event["data"]["pool"] == "training"


def test_a_missing_outcome_says_whether_the_command_is_stored() -> None:
    assert str(no_outcome("SetQuota", 10, stored=False)) == (
        "SetQuota may or may not be stored: the server did not confirm it within 10 s;"
        " send it again, which does no harm"
    )
    assert str(no_outcome("SetQuota", 10, stored=True)) == (
        "SetQuota has no outcome after 10 s; it is stored in the log and will be processed once"
        " the services run"
    )


# Names.


@pytest.mark.parametrize("name", ["", "*", ">", "a.*.b", "a b", "a..b\n", ".a", "a~b"])
def test_a_name_that_would_reach_beyond_its_subject_is_refused(name: str) -> None:
    refusal = find_name_refusal(delete(name))

    assert refusal is not None
    assert (refusal.field, refusal.reason) == ("metadata.name", "Invalid")


def test_a_name_that_can_be_part_of_a_subject_is_left_to_the_control_plane() -> None:
    assert check_name("name", "a.b") == "a.b"
    assert find_name_refusal(delete("Upper_Case.and.dots")) is None
    assert find_name_refusal(RegisterCluster(org="acme", cluster="c", zone="Z")) is None
    assert find_name_refusal(BreakMachine(zone="RNO2A", machine="g000001", fault="boot")) is None


def test_a_client_for_a_wildcard_organisation_is_refused() -> None:
    with pytest.raises(Refused, match=r'^org: "\*" is not a valid name; use letters'):
        Client(org="*")


@pytest.mark.parametrize(
    "parts",
    ["Client(); client.admin; client.objects('machines')", "Client(through='gateway')"],
)
def test_a_client_and_its_parts_load_no_message_models(parts: str) -> None:
    script = (
        "import sys; from nodepool.client import Client;"
        f"client = {parts}; client.session.backend;"
        "sys.exit(bool({'pydantic', 'yaml', 'nodepool.contract.events'} & set(sys.modules)))"
    )

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_no_part_of_a_client_inherits_from_another_part() -> None:
    client = Client()

    parts = [*vars(client).values(), client.admin, client.admin.dead_letters, client.admin.replays]

    bases = {type(part).__bases__ for part in parts if not isinstance(part, str)}
    assert bases == {(object,)}


# Errors.


def test_an_error_never_shows_the_password_of_an_address() -> None:
    assert without_password("nats://user:secret@bus:4222") == "nats://bus:4222"
    assert without_password("nats://bus:4222") == "nats://bus:4222"
    assert without_password("token@bus") == "bus"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ServerRefusal(10059, "stream not found"), "no control plane is set up at nats://bus"),
        (StreamChanged("the stream is gone"), "no control plane is set up at nats://bus"),
        (
            ServerRefusal(10023, "insufficient resources"),
            "the server at nats://bus refuses: insufficient resources (10023)",
        ),
        (InDoubt("?"), "the server at nats://bus does not respond"),
        (NoServersError(), "the server at nats://bus does not respond"),
        (TimeoutError(), "the server at nats://bus does not respond"),
    ],
)
def test_an_error_of_the_bus_says_what_it_means_for_a_user(error: Exception, text: str) -> None:
    with pytest.raises(Unreachable) as caught, translate_errors("nats://me:secret@bus"):
        raise error

    assert str(caught.value).startswith(text)


def test_an_error_that_is_not_of_the_bus_stays_as_it_is() -> None:
    with pytest.raises(LookupError), translate_errors("nats://bus"):
        raise LookupError


# The read model.


def stored(content: bytes, headers: Mapping[str, str]) -> Document | None:
    return document_of(Entry(1, START, "$KV.nodepools.acme.prod.p", content, headers))


def test_a_deleted_object_has_no_document() -> None:
    assert stored(b'{"kind": "NodePool"}', {}) == {"kind": "NodePool"}
    assert stored(b"", {"KV-Operation": "DEL"}) is None
    assert stored(b"", {"KV-Operation": "PURGE"}) is None
    assert stored(b"", {"Nats-Marker-Reason": "MaxAge"}) is None


@pytest.mark.parametrize(
    "content",
    [b'{"a": "\\ud800"}', b'{"\\uDFFF\\ud800": 1}', b'{"a": "\xed\xa0\x80"}', b"[1]", b'{"a":'],
)
def test_an_object_that_is_no_text_is_none(content: bytes) -> None:
    assert stored(content, {}) is None


def test_an_object_with_escaped_characters_is_read() -> None:
    assert stored(b'{"a": "\\ud83d\\ude00\\u001b"}', {}) == {"a": "\U0001f600\x1b"}


def pool(generation: int, observed: int) -> Document:
    condition = {"type": "AtTarget", "status": "True", "observedGeneration": observed}
    return {"metadata": {"generation": generation}, "status": {"conditions": [condition]}}


@pytest.mark.parametrize(
    ("document", "condition", "status", "expected"),
    [
        (pool(2, 2), "AtTarget", "True", True),
        (pool(2, 2), "attarget", "true", True),
        (pool(2, 2), "AtTarget", "False", False),
        (pool(2, 1), "AtTarget", "True", False),
        (pool(2, 2), "Capacity", "True", False),
        ({}, "AtTarget", "True", False),
        ({"status": {"conditions": 1}}, "AtTarget", "True", False),
        ({"status": {"conditions": "no list"}}, "AtTarget", "True", False),
        ({"status": {"conditions": ["no condition", None, {}]}}, "AtTarget", "True", False),
    ],
)
def test_a_condition_holds_for_the_newest_generation_in_any_spelling(
    document: Document, condition: str, status: str, expected: bool
) -> None:
    assert has_condition(document, condition, status) is expected


# Events.


def test_an_event_about_a_node_and_its_nodepool_is_shown_for_each() -> None:
    event = PreemptionPending(
        **POOL, node="g1", message="Reason: x", zone="Z", assignment=1, since=START
    )

    events = object_events(entry(event))

    assert [(each.kind, each.name, each.reason, each.severity) for each in events] == [
        ("Node", "g1", "Preemption pending", "Warning"),
        ("NodePool", "training", "Preemption pending", "Warning"),
    ]
    assert {each.component for each in events} == {"preemption"}


def test_an_event_about_a_node_alone_is_not_one_of_its_nodepool() -> None:
    failed = CWNodeRegistrationFailed(
        **POOL, node="g1", message="no", uid="u", zone="Z", assignment=1
    )

    (event,) = object_events(entry(failed))

    assert regards(event, "", "g1")
    assert not regards(event, "training", "")
    assert regards(event, "", "")


def test_a_message_that_is_not_a_kubernetes_event_is_not_shown() -> None:
    assert "CWOverQuota" in KINDS
    assert "NodePoolValidated" not in KINDS
    assert object_events(Entry(1, START, "np.cmd.a.b.c.DeleteNodePool", b"{}", {})) == []
    assert object_events(Entry(1, START, "np.evt.quota.a.b.c.CWOverQuota", b"no json", {})) == []
    assert len(object_events(entry(CWOverQuota(**POOL, message="over")))) == 1
