"""Objects of the read model, of any content under any key: read, or taken for nothing."""

import json
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from fuzz.bounded import bounded
from fuzz.corpus import HEADER_VALUES, RIGHT, content_like, headers, randoms
from nodepool.client.accepted import Accepted, accepted_in, is_outdated
from nodepool.client.events import object_events
from nodepool.client.objects import document_of, has_condition
from nodepool.contract.buckets import BUCKETS
from nodepool.contract.log import Entry
from nodepool.nats.objects.stored_objects import (
    RENDERING,
    VERSION_HEADER,
    StoredObject,
    headers_of,
    key_of_object,
    stored_object,
)
from support.hostile import subjects
from support.proposals import NOON

VERSIONS = ("1", "-1", "1e9", "9" * 18, "9" * 5_000, "\u0663", "", " 1", "1\r\n", *HEADER_VALUES)
OPERATIONS = ("DEL", "PURGE", "del", "", "\ud800")
NODE_POOL = {
    "apiVersion": "compute.coreweave.com/v1alpha1",
    "kind": "NodePool",
    "metadata": {"name": "train", "resourceVersion": "7", "generation": 2, "uid": "u"},
    "spec": {"instanceType": "h100", "targetNodes": 3},
    "status": {"inProgress": 0, "currentNodes": 3, "conditions": [{"type": "AtTarget"}]},
}


def _headers(random: Random) -> dict[str, str]:
    written = {
        VERSION_HEADER: random.choice(VERSIONS),
        RENDERING: random.choice(VERSIONS),
        "KV-Operation": random.choice(OPERATIONS),
    }
    return {name: value for name, value in written.items() if random.random() < 0.6}


@given(randoms)
def test_headers_of_any_kind_are_those_of_some_write(random: Random) -> None:
    given_headers = {**headers(random), **_headers(random)}

    with bounded():
        written = stored_object(given_headers, 7)

    assert written.position == 7
    assert 0 <= written.version < 10**18
    newer = StoredObject(0, written.version + 1, rendering="r")
    assert all(value.isascii() for value in headers_of(newer, written.position).values())


@given(randoms, st.text(max_size=50))
def test_a_subject_of_any_kind_in_a_bucket_is_some_key(random: Random, text: str) -> None:
    for bucket in BUCKETS:
        for subject in (text, f"$KV.{bucket}.{text}", f"$KV.{bucket}.{subjects.subject(random)}"):
            of_bucket, key = key_of_object(bucket, subject)

            assert of_bucket == bucket
            assert "/".join(subject.removeprefix(f"$KV.{bucket}.").split(".")) >= key[:0]


@given(randoms, st.binary(max_size=200))
def test_a_client_reads_an_object_of_any_content(random: Random, raw: bytes) -> None:
    for content in (raw, content_like(random, {**NODE_POOL, "data": NODE_POOL})):
        entry = Entry(7, NOON, "$KV.nodepools.acme.prod.train", content, _headers(random))

        with bounded():
            document = document_of(entry)
            outdated = is_outdated(document or {}, Accepted("u", 2, 7))
            met = has_condition(document or {}, "AtTarget", "True")

        assert document is None or isinstance(document, dict)
        assert json.dumps(document, ensure_ascii=False).encode()
        assert (outdated in (True, False), met in (True, False)) == (True, True)


@given(randoms, st.binary(max_size=200))
def test_a_client_reads_an_event_of_any_content(random: Random, raw: bytes) -> None:
    own, document = random.choice(RIGHT)
    subject = random.choice((own, subjects.subject(random), subjects.same_shape(random, own)))

    for content in (raw, content_like(random, document)):
        entry = Entry(7, NOON, subject, content, headers(random))

        with bounded():
            shown, accepted = object_events(entry), accepted_in(entry)

        assert all(event.position == 7 for event in shown)
        assert is_outdated(json.loads(json.dumps(NODE_POOL)), accepted) in (True, False)
