"""What is known of the objects that lie in the read model's buckets."""

from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nodepool.contract import grammar
from nodepool.contract.buckets import BUCKETS, PARTS
from nodepool.contract.catalog import INSTANCE_TYPES, ZONES
from nodepool.nats.objects.stored_objects import (
    NOTHING,
    TOMBSTONE_S,
    VERSION_HEADER,
    Extent,
    Finding,
    StoredObject,
    StoredObjects,
    examine,
    headers_of,
    is_same_document,
    key_fault,
    key_of_object,
    replaces,
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
        ({VERSION_HEADER: "40"}, StoredObject(7, 40)),
        ({VERSION_HEADER: "40", "KV-Operation": "DEL"}, StoredObject(7, 40, deleted=True)),
        ({VERSION_HEADER: "40", "KV-Operation": "PURGE"}, StoredObject(7, 40, deleted=True)),
        ({}, StoredObject(7, 0)),
        ({VERSION_HEADER: "forty"}, StoredObject(7, 0)),
        ({VERSION_HEADER: "-1"}, StoredObject(7, 0)),
        ({VERSION_HEADER: "9" * 5_000}, StoredObject(7, 0)),
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


# What another program may have written.

OURS = StoredObject(position=0, version=40, rendering="r", log="l")


@pytest.mark.parametrize(
    ("stored", "finding"),
    [
        pytest.param(OURS, Finding.RIGHT, id="what is wanted"),
        pytest.param(OURS._replace(rendering="s"), Finding.RIGHT, id="another rendering"),
        pytest.param(OURS._replace(version=39), Finding.RIGHT, id="older"),
        pytest.param(OURS._replace(version=39, deleted=True), Finding.RIGHT, id="deleted before"),
        pytest.param(OURS._replace(version=40, deleted=True), Finding.WRONG, id="deleted then"),
        pytest.param(OURS._replace(version=41), Finding.WRONG, id="never changed then"),
        pytest.param(OURS._replace(version=60), Finding.WRONG, id="not since"),
        pytest.param(OURS._replace(version=61), Finding.NEWER, id="not read so far"),
        pytest.param(OURS._replace(version=80), Finding.NEWER, id="the log's end"),
        pytest.param(OURS._replace(version=81), Finding.WRONG, id="beyond the log's end"),
        pytest.param(OURS._replace(log="m"), Finding.WRONG, id="another log"),
        pytest.param(OURS._replace(log=""), Finding.WRONG, id="no log"),
    ],
)
def test_a_stored_object_is_found_wrong_where_no_writer_of_the_log_can_have_written_it(
    stored: StoredObject, finding: Finding
) -> None:
    # given an object of version 40, in a state of position 60, in a log that ends at 80
    # when something is found in its place, then it is right, wrong, or newer than the state
    assert examine(stored, OURS, committed=60, log_end=80) is finding


objects = st.builds(
    StoredObject,
    position=st.integers(0, 3),
    version=st.integers(0, 3),
    deleted=st.booleans(),
    rendering=st.sampled_from(["r", "s"]),
    log=st.sampled_from(["l", "m"]),
)


@given(objects, objects)
def test_two_writers_of_one_log_never_replace_each_others_objects_in_turn(
    one: StoredObject, other: StoredObject
) -> None:
    # given two objects of one log and rendering, neither of them deleted
    one = one._replace(log="l", rendering="r", deleted=False)
    other = other._replace(log="l", rendering="r", deleted=False)

    # when each is written over the other, then at most one of them is
    assert not (replaces(one, other) and replaces(other, one))


@given(objects)
def test_what_was_written_is_not_written_again(written: StoredObject) -> None:
    assert not replaces(written, written._replace(position=9))


@given(objects, objects)
def test_an_object_of_another_log_is_replaced_whatever_its_version(
    wanted: StoredObject, stored: StoredObject
) -> None:
    assert replaces(wanted._replace(log="l", deleted=False), stored._replace(log="m"))


@given(st.lists(st.booleans(), max_size=30), st.randoms(), st.integers(0, 30))
def test_what_others_have_written_is_never_taken_for_known(
    own: list[bool], chance: Random, examined: int
) -> None:
    # given writes of a bucket of which some are of this writer, which learns of them in any order
    extent, positions = Extent(), [number for number, is_own in enumerate(own, 1) if is_own]
    chance.shuffle(positions)

    # when some were examined meanwhile
    for position in positions[: len(positions) // 2]:
        extent.note(position)
    extent.note_examination(min(examined, len(own)))
    for position in positions[len(positions) // 2 :]:
        extent.note(position)

    # then what is known ends before the first that is neither examined nor its own
    known = min(examined, len(own))
    others = (n for n, is_own in enumerate(own, 1) if n > known and not is_own)
    assert extent.known == next(others, len(own) + 1) - 1

    # and every own or examined write is known, so that no inspection examines it again
    for position, is_own in enumerate(own, 1):
        assert extent.is_known(position) is (is_own or position <= known)


@pytest.mark.parametrize(
    ("content", "same"),
    [
        (b'{"a":1,"b":[1,2]}', True),
        (b'{ "b": [1, 2], "a": 1 }', True),
        (b'{"a":1,"b":[2,1]}', False),
        (b'{"a":true,"b":[1,2]}', False),
        (b'{"a":1}', False),
        (b"", False),
        (b"\xff", False),
        (b"[" * 100_000, False),
    ],
)
def test_documents_are_the_same_whatever_the_order_of_their_fields(
    content: bytes, same: bool
) -> None:
    assert is_same_document(content, b'{"a":1,"b":[1,2]}') is same


def test_a_bucket_holds_as_many_messages_as_there_are_objects_and_tombstones() -> None:
    # given an object, one that was just deleted, and one that was deleted long ago
    stored = StoredObjects()
    stored.note(("quotas", "a/b/c"), OURS, now=0)
    stored.note(("quotas", "a/b/d"), OURS._replace(deleted=True), now=0)
    stored.note(("quotas", "a/b/e"), OURS._replace(deleted=True), now=3_590)
    stored.note(POOL, WRITTEN, now=0)

    # when the messages are counted, then an expired tombstone may be there or not
    assert list(stored.count("quotas", now=3_595)) == [2, 3]
    assert list(stored.count("quotas", now=10)) == [3]


def test_a_tombstone_that_was_read_expires_by_its_age() -> None:
    # given a tombstone that was read half an hour after it was written
    stored, deleted = StoredObjects(), OURS._replace(position=7, deleted=True)
    stored.note_read(("quotas", "a/b/c"), deleted, now=0, age_s=1_800)

    # when the messages are counted, then it is there, and half an hour later it may be gone
    assert list(stored.count("quotas", now=1_700)) == [1]
    assert list(stored.count("quotas", now=1_790)) == [0, 1]


def test_a_tombstone_that_the_server_should_have_forgotten_stays() -> None:
    # given one that another program wrote two hours ago, for ever
    stored, deleted = StoredObjects(), OURS._replace(position=7, deleted=True)
    stored.note_read(("quotas", "a/b/c"), deleted, now=0, age_s=7_200)

    # when the messages are counted, then it is there
    assert list(stored.count("quotas", now=10)) == [1]
