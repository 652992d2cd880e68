"""What an archive consists of: names, the chain of manifests, and rows."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodepool.archive import names
from nodepool.archive.chain import Head, faults_of, head_of_identity, head_of_manifest
from nodepool.archive.manifests import Identity, Manifest, Object, read_document
from nodepool.archive.rows import row_of
from nodepool.contract.log import Entry

LOG = "0123456789abcdef"
NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)
SHA = "0" * 64
LENGTHS = st.lists(st.integers(1, 1_000), min_size=1, max_size=20)


def chain(lengths: Sequence[int], log: str = LOG, first: int = 1) -> list[tuple[Manifest, bytes]]:
    """The manifests of segments with so many messages, each with its content."""
    identity = Identity(log=log, first=first)
    head = head_of_identity(identity, identity.to_bytes())
    found = []
    for length in lengths:
        manifest = Manifest(
            log=log,
            first=head.last + 1,
            last=head.last + length,
            count=length,
            began=NOON.isoformat(),
            ended=NOON.isoformat(),
            object=Object(name="segments/x.parquet", bytes=1, sha256=SHA),
            previous=head.sha256,
        )
        content = manifest.to_bytes()
        found.append((manifest, content))
        head = head_of_manifest(manifest, content)
    return found


def faults(links: Sequence[tuple[Manifest, bytes]], log: str = LOG) -> list[str]:
    """What is wrong with a chain."""
    identity = Identity(log=log, first=1)
    head, found = head_of_identity(identity, identity.to_bytes()), list[str]()
    for manifest, content in links:
        found += faults_of(head, manifest, log)
        head = head_of_manifest(manifest, content)
    return found


# The chain.


@given(LENGTHS)
def test_a_chain_of_any_segments_has_no_fault_and_its_documents_are_read_as_written(
    lengths: list[int],
) -> None:
    links = chain(lengths)

    assert faults(links) == []
    assert [read_document(Manifest, content) for _, content in links] == [link for link, _ in links]


@given(LENGTHS.filter(lambda lengths: len(lengths) > 1), st.data())
def test_a_segment_that_is_missing_is_a_gap_unless_it_is_the_last(
    lengths: list[int], data: st.DataObject
) -> None:
    links = chain(lengths)
    missing = data.draw(st.integers(0, len(links) - 2))
    gone, _ = links.pop(missing)

    found = faults(links)

    assert f"positions {gone.first} to {gone.last} are missing" in found[0]


@given(LENGTHS, st.data())
def test_a_manifest_that_was_changed_is_found_by_the_next_one(
    lengths: list[int], data: st.DataObject
) -> None:
    links = chain([*lengths, 1])
    changed = data.draw(st.integers(0, len(links) - 2))
    manifest, _ = links[changed]
    other = manifest.model_copy(update={"object": manifest.object.model_copy(update={"bytes": 2})})
    links[changed] = other, other.to_bytes()

    assert any("one was changed or removed" in fault for fault in faults(links))


def test_an_overlap_a_foreign_log_and_a_wrong_count_are_named() -> None:
    (manifest, _), *_ = chain([10])
    head = Head(5, manifest.previous)

    twice = list(faults_of(head, manifest, LOG))
    foreign = list(faults_of(Head(0, manifest.previous), manifest, "another"))
    wrong = list(
        faults_of(Head(0, manifest.previous), manifest.model_copy(update={"count": 9}), LOG)
    )

    assert twice == ["begins at 1: positions up to 5 are in the archive twice"]
    assert foreign == [f"is of the log {LOG}, and the archive holds another"]
    assert wrong == ["counts 9 messages from 1 to 10"]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "cannot be read: no JSON"),
        (b"{}", "cannot be read: began, count, .*previous"),
        (b'{"format": 2}', "cannot be read: .*format"),
        (b" " * (5 << 20), "it has 5242880 bytes"),
    ],
)
def test_a_document_with_a_fault_names_its_fields(content: bytes, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        read_document(Manifest, content)


# Names.


@given(st.integers(0, 1 << 62), st.integers(0, 1 << 62))
def test_names_sort_as_the_log_and_say_their_position(one: int, other: int) -> None:
    manifests = names.manifest_name(one), names.manifest_name(other)

    assert (one < other) == (manifests[0] < manifests[1])
    assert names.first_position(manifests[0]) == one
    assert names.first_position(f"{manifests[0]}.part") is None


def test_a_segment_lies_in_the_folder_of_its_day_and_has_other_names_for_another_try() -> None:
    name = names.segment_name(date(2026, 11, 28), 1, 20, "f" * 64)

    assert name == f"segments/day=2026-11-28/{1:020}-{20:020}-{'f' * 16}.parquet"
    assert names.other_name(name, 0) == name
    assert names.other_name(name, 1) == f"{name.removesuffix('.parquet')}~1.parquet"


@given(st.datetimes(datetime(2026, 1, 1), datetime(2040, 1, 1)), st.integers(1, 8_760))  # noqa: DTZ001
def test_times_of_one_period_have_one_name_and_the_next_period_has_a_later_one(
    time: datetime, hours: int
) -> None:
    period = names.period_of(time, hours)
    later = names.period_of(time + timedelta(hours=hours), hours)

    assert period < later
    assert period <= f"{time:%Y%m%dT%H}" < later
    assert names.period_of_set(names.set_name(period)) == period


def test_a_set_between_two_periods_has_a_name_between_theirs() -> None:
    time = datetime(2026, 11, 28, 0, 15, 30)  # noqa: DTZ001
    moment = names.set_name(names.moment_of(time))

    before, after = (names.period_of(time + timedelta(days=days), 24) for days in (0, 1))

    assert moment == "sets/20261128T001530.json"
    assert names.set_name(before) < moment < names.set_name(after)
    assert names.period_of_set(moment) == "20261128T001530"


# Rows.


def test_a_row_says_who_said_what_about_which_object_and_why() -> None:
    content = b'{"id": "e1", "correlationid": "c1", "causationid": "c0", "data": {}}'
    subject = "np.evt.quota.acme.prod.gpu~a.QuotaChecked"

    row = row_of(Entry(7, NOON, subject, content, {"a": "b"}))

    assert row[:11] == (
        *(7, NOON, subject, "QuotaChecked", "quota", "acme", "prod", "gpu.a"),
        *("e1", "c1", "c0"),
    )
    assert row[11:] == ([("a", "b")], content)


@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"[1]", b'{"id": 1}', b"[" * 100_000, b'{"id": "\\ud800"}']
)
def test_any_content_has_a_row(content: bytes) -> None:
    row = row_of(Entry(7, NOON, "np.commit.quota", content, {}))

    assert (row.service, row.type, row.id, row.content) == ("quota", None, None, content)
