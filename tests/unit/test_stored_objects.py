"""What is known of the objects that lie in the read model's buckets."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nodepool.contract import grammar
from nodepool.contract.buckets import BUCKETS, PARTS
from nodepool.contract.catalog import INSTANCE_TYPES, ZONES
from nodepool.nats.stored_objects import (
    NOTHING,
    TOMBSTONE_S,
    VERSION,
    StoredObject,
    StoredObjects,
    headers_of,
    key_fault,
    key_of_object,
    stored_object,
    subject_of_object,
)

POOL = ("nodepools", "acme/prod/p")
OTHER = ("nodepools", "acme/prod/q")
WRITTEN = StoredObject(position=5, version=40)
DELETED = StoredObject(position=6, version=50, deleted=True)
NOW = 1_000.0


@pytest.mark.parametrize(
    ("key", "subject"),
    [
        (("nodepools", "acme/prod/p"), "$KV.nodepools.acme.prod.p"),
        (("nodes", "acme/prod/node.with.dots"), "$KV.nodes.acme.prod.node.with.dots"),
        (("capacity", "US-EAST-04A/h100"), "$KV.capacity.US-EAST-04A.h100"),
        (("machines", "US-EAST-04A/rack.7"), "$KV.machines.US-EAST-04A.rack.7"),
        (("clusters", "acme/prod"), "$KV.clusters.acme.prod"),
    ],
)
def test_a_key_and_its_subject_say_the_same(key: tuple[str, str], subject: str) -> None:
    # given an object
    # when its key is made a subject, and that a key again
    # then nothing is lost, dots in a name neither
    assert subject_of_object(key) == subject
    assert key_of_object(key[0], subject) == key


labels = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
subdomains = st.lists(labels, min_size=1, max_size=4).map(".".join)
zones, types = st.sampled_from(sorted(ZONES)), st.sampled_from(sorted(INSTANCE_TYPES))


@given(labels, labels, subdomains, labels, zones, types)
def test_every_name_that_is_accepted_makes_a_key_that_can_be_stored(
    org: str, cluster: str, pool: str, machine: str, zone: str, instance_type: str
) -> None:
    # given names that the grammar lets in
    assume(grammar.pool_name(pool) is None)
    assert grammar.dns1123_label(org) is grammar.dns1123_label(cluster) is None

    # when an object of each bucket has a key of them
    keys = [
        ("nodepools", f"{org}/{cluster}/{pool}"),
        ("nodes", f"{org}/{cluster}/{machine}"),
        ("quotas", f"{org}/{zone}/{instance_type}"),
        ("capacity", f"{zone}/{instance_type}"),
        ("machines", f"{zone}/{machine}"),
        ("clusters", f"{org}/{cluster}"),
    ]

    # then it can be stored, and found again
    assert [bucket for bucket, _ in keys] == list(BUCKETS) == list(PARTS)
    assert [key_fault(key) for key in keys] == [None] * len(keys)
    assert [key_of_object(key[0], subject_of_object(key)) for key in keys] == keys


@pytest.mark.parametrize(
    "name", ["", "a b", "a..b", "a.", ".a", "a/", "a//b", "*", "a.>", "a\nb", "ä", "x" * 2_001]
)
def test_what_the_server_takes_for_no_key_is_known_before_it_is_sent(name: str) -> None:
    assert key_fault(("nodepools", name)) is not None


@pytest.mark.parametrize("written", [WRITTEN, DELETED, StoredObject(5, 40, rendering="2")])
def test_a_write_has_the_headers_that_it_is_known_by(written: StoredObject) -> None:
    # given a write
    # when its headers are read
    # then they say of it what was written
    assert stored_object(headers_of(written, 3), written.position) == written


@pytest.mark.parametrize(
    ("headers", "written"),
    [
        ({VERSION: "40"}, StoredObject(7, 40)),
        ({VERSION: "40", "KV-Operation": "DEL"}, StoredObject(7, 40, deleted=True)),
        ({VERSION: "40", "KV-Operation": "PURGE"}, StoredObject(7, 40, deleted=True)),
        ({}, StoredObject(7, 0)),
        ({VERSION: "forty"}, StoredObject(7, 0)),
        ({VERSION: "-1"}, StoredObject(7, 0)),
        ({VERSION: "9" * 5_000}, StoredObject(7, 0)),
    ],
)
def test_a_write_is_known_by_its_headers(headers: dict[str, str], written: StoredObject) -> None:
    # given the headers of a write, of ours or of another program
    # when they are read
    # then they say which version was written, the oldest of all where they do not say
    assert stored_object(headers, 7) == written


def test_the_last_write_of_an_object_counts() -> None:
    # given an object that was written
    stored = StoredObjects()
    stored.note(POOL, StoredObject(1, 10), NOW)

    # when it is written again
    stored.note(POOL, WRITTEN, NOW)

    # then that is what is known
    assert stored.get(POOL) == WRITTEN
    assert stored.live() == {POOL}


def test_an_object_that_was_never_written_is_nothing() -> None:
    # given nothing
    # when an object is looked up
    # then it is as one that was deleted before all versions
    assert StoredObjects().get(POOL) == NOTHING == StoredObject(0, 0, deleted=True)


def test_a_deleted_object_keeps_its_version_and_is_not_live() -> None:
    # given two objects
    stored = StoredObjects()
    stored.note(POOL, WRITTEN, NOW)
    stored.note(OTHER, WRITTEN, NOW)

    # when one of them is deleted
    stored.note(POOL, DELETED, NOW)

    # then the other is live, and an older write of it still can be told from a newer one
    assert stored.live() == {OTHER}
    assert stored.get(POOL) == DELETED


def test_an_object_that_is_created_again_is_live() -> None:
    # given a deleted object
    stored = StoredObjects()
    stored.note(POOL, DELETED, NOW)

    # when it is written again
    again = StoredObject(position=9, version=60)
    stored.note(POOL, again, NOW)

    # then it is live, and stays so when its tombstone would have expired
    assert stored.live() == {POOL}
    stored.note(OTHER, DELETED, NOW + TOMBSTONE_S)
    assert stored.get(POOL) == again


def test_deleted_objects_are_forgotten_when_the_server_forgets_them() -> None:
    # given a deleted object
    stored = StoredObjects()
    stored.note(POOL, DELETED, NOW)

    # when others are deleted, before its tombstone expires and after
    stored.note(OTHER, DELETED, NOW + TOMBSTONE_S - 1)
    assert stored.get(POOL) == DELETED
    stored.note(("nodepools", "acme/prod/r"), DELETED, NOW + TOMBSTONE_S)

    # then only what the server still knows is known
    assert stored.get(POOL) == NOTHING
    assert stored.get(OTHER) == DELETED


def test_what_is_missing_in_the_bucket_is_nothing() -> None:
    # given an object, and a deleted one
    stored = StoredObjects()
    stored.note(POOL, WRITTEN, NOW)
    stored.note(OTHER, DELETED, NOW)

    # when the bucket turns out to hold neither
    stored.note_missing(POOL)
    stored.note_missing(OTHER)

    # then both are as if never written
    assert stored.get(POOL) == stored.get(OTHER) == NOTHING
    assert stored.live() == set()


def test_clear_forgets_everything() -> None:
    # given an object
    stored = StoredObjects()
    stored.note(POOL, WRITTEN, NOW)

    # when all is forgotten
    stored.clear()

    # then nothing is known
    assert stored.get(POOL) == NOTHING
