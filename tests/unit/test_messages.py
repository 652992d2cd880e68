import json
from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from contracts.samples import OF, sample
from nodepool.contract.decode import decode
from nodepool.contract.events import CWNodeAssigned, CWNodeDeleted, MachineAdded, Wake
from nodepool.contract.keys import pool_path
from nodepool.contract.messages import (
    Envelope,
    envelope_of,
    members,
    path_fields,
    pool_fields,
)
from nodepool.engine.codec import encode


def test_a_message_never_changes() -> None:
    event = sample(CWNodeAssigned)

    with pytest.raises(ValidationError, match="frozen"):
        event.uid = "other"  # type: ignore[misc]  # This is what must fail.


def test_a_message_about_a_node_has_the_keys_of_its_nodepool_its_node_and_its_machine() -> None:
    event = sample(CWNodeAssigned)

    assert event.key == "acme/prod/train.v1"
    assert event.node_key == "acme/prod/g3779b1"
    assert event.machine_key == "US-EAST-02A/g3779b1"
    assert sample(MachineAdded).machine_key == event.machine_key


def test_a_copy_with_another_identity_has_the_keys_of_that_identity() -> None:
    # given an event whose keys were asked for
    event = sample(CWNodeAssigned)
    keys = (event.key, event.node_key, event.machine_key)

    # when it is copied for another NodePool and another Node
    other = event.model_copy(update={"pool": "spot", "node": "g1"})

    # then the copy has keys of its own, and the event keeps its keys
    assert (other.key, other.node_key, other.machine_key) == (
        "acme/prod/spot",
        "acme/prod/g1",
        "US-EAST-02A/g1",
    )
    assert (event.key, event.node_key, event.machine_key) == keys


def test_a_message_is_the_same_value_whether_or_not_its_keys_were_asked_for() -> None:
    asked, fresh = sample(CWNodeAssigned), sample(CWNodeAssigned).model_copy()

    assert all((asked.key, asked.node_key, asked.machine_key))

    assert asked == fresh
    assert repr(asked) == repr(fresh)
    assert asked.model_dump() == fresh.model_dump()
    assert asked.model_dump_json() == fresh.model_dump_json()
    assert encode(asked) == encode(fresh)


def test_the_identity_of_a_nodepool_is_the_same_from_its_key_and_from_a_message_about_it() -> None:
    event = sample(CWNodeAssigned)

    assert pool_fields(event.key) == path_fields(event) == OF
    assert pool_path(event.key) == event.path


def test_an_envelope_leaves_out_what_it_has_not() -> None:
    event = sample(Wake)
    envelope = envelope_of(Wake).model_construct(id="1", type="Wake", source="clock", data=event)

    assert json.loads(envelope.encode()) == {
        "specversion": "1.0",
        "id": "1",
        "type": "Wake",
        "source": "clock",
        "subject": "",
        "datacontenttype": "application/json",
        "data": {"service": "preemption", "due": "2026-01-01T12:00:00.250000Z"},
    }


def test_moments_keep_their_zone_and_their_fraction() -> None:
    event = sample(Wake, due=datetime(2026, 1, 1, 12, 0, 0, 123_456, tzinfo=UTC))
    envelope = envelope_of(Wake).model_construct(id="1", type="Wake", source="clock", data=event)

    decoded = decode(Wake, "np.evt.clock.preemption._._.Wake", envelope.encode(), {}, 7)

    assert isinstance(decoded, Envelope)
    assert decoded.data == event


def test_the_members_of_a_union_are_the_messages_in_it() -> None:
    assert list(members(Wake | CWNodeDeleted)) == [Wake, CWNodeDeleted]
    assert list(members(Wake)) == [Wake]
    assert list(members(None)) == []
    assert list(members(int | str)) == []
