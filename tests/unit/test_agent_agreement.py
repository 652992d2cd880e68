"""The agreement of both sides of a NodePool: what it holds, and whose change is new."""

import json
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.pools.agreement import (
    AGREED,
    SENT_MAX,
    Agreement,
    Differences,
    Sent,
    agree,
    agreement_in_epoch,
    agreement_of,
    differences,
    digests,
)
from agent.pools.objects import (
    LABELS,
    Log,
    PoolObject,
    SpecFault,
    WantedPool,
    fields_of,
    merge_patch,
    pool_object,
    read_spec,
    wanted_pool,
)
from agent.reading import UnreadableDocument, digest
from nodepool.contract.log import LogId
from support.agent.api_server import merged
from support.constants import H100

LOG = Log(LogId("log"), 100)
SPEC = {"instanceType": H100, "targetNodes": 2}
WANTED = WantedPool("pool", "bus-uid", 3, "42", SPEC, labels={"l": "1"})
FOUND = PoolObject("pool", "uid", 7, "5", SPEC)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=3), JSON.filter(lambda each: each is not None))


def _carrying(text: str) -> PoolObject:
    return replace(FOUND, annotations={AGREED: text})


def test_an_agreement_is_read_as_it_was_written() -> None:
    agreement = agree(WANTED, FOUND, LOG)

    assert agreement == Agreement(
        log="log",
        object="uid",
        uid="bus-uid",
        of=3,
        version=42,
        generation=7,
        fields=digests({**SPEC, LABELS: {"l": "1"}}),
    )
    assert agreement_of(_carrying(agreement.text())) == agreement


def test_an_agreement_of_another_object_is_none() -> None:
    text = agree(WANTED, replace(FOUND, uid="other"), LOG).text()

    assert agreement_of(_carrying(text)) is None


def test_an_agreement_of_an_object_that_was_being_created_is_that_of_any() -> None:
    assert agreement_of(_carrying(agree(WANTED, None, LOG).text())) is not None


def _counts(wanted: WantedPool | None, log: Log, written: Log = LOG) -> bool:
    """Whether an agreement counts that was made in the epoch of another log."""
    found = _carrying(agree(WANTED, FOUND, written).text())
    return agreement_in_epoch(found, wanted, log).uid != ""


def test_an_agreement_counts_in_its_epoch_only() -> None:
    here, there = replace(LOG, cluster="cluster-1"), replace(LOG, cluster="cluster-2")

    assert _counts(WANTED, LOG)
    assert not _counts(WANTED, replace(LOG, id=LogId("other")))
    assert not _counts(WANTED, there, here)


def test_an_agreement_of_a_cluster_without_a_uid_counts_in_any() -> None:
    here = replace(LOG, cluster="cluster-1")

    assert _counts(WANTED, here, LOG)
    assert _counts(WANTED, LOG, here)


@pytest.mark.parametrize(
    ("end", "start", "counts"),
    [(50, 41, True), (50, 42, False), (41, 0, False)],
    ids=["read model behind", "read model complete", "log ends before"],
)
def test_an_agreement_ends_with_the_history_of_its_log(end: int, start: int, counts: bool) -> None:
    older = replace(WANTED, version="10")

    assert _counts(older, Log(LOG.id, end, start)) is counts
    assert _counts(None, Log(LOG.id, end, start))


def test_an_agreement_names_the_last_commands_that_were_sent() -> None:
    agreement = agree(WANTED, FOUND, LOG)

    for number in (*range(SENT_MAX + 2), SENT_MAX):
        agreement = agreement.with_sent(Sent(id=f"c{number}", generation=1, fields={}))

    kept = [f"c{number}" for number in (*range(2, SENT_MAX), SENT_MAX + 1, SENT_MAX)]
    assert [each.id for each in agreement.sent] == kept
    assert agreement_of(_carrying(agreement.text())) == agreement


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"fields": 1}',
        '{"log":1,"object":"","uid":"","of":1,"version":1,"generation":1,"fields":{}}',
        '{"log":"","object":"","uid":"","of":true,"version":1,"generation":1,"fields":{}}',
        '{"log":"","object":"","uid":"","of":1,"version":1,"generation":1,"fields":{"a":1}}',
        "[" * 100_000,
    ],
)
def test_an_annotation_that_is_no_agreement_is_none(text: str) -> None:
    assert agreement_of(_carrying(text)) is None


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": {"c": 2, "d": 3}}) == digest({"b": {"d": 3, "c": 2}, "a": 1})
    assert digest({"a": 1}) != digest({"a": "1"})


def test_each_difference_belongs_to_who_has_changed_the_field() -> None:
    base = {"bus": "1", "cluster": "1", "both": "1", "same": "1", "gone": "1", "untouched": "1"}
    wanted = {**base, "bus": "2", "both": "2", "same": "2", "new": "2"}
    found = {**base, "cluster": "3", "both": "3", "same": "2"}
    del found["gone"]

    assert differences(base, wanted, found) == Differences(
        bus=frozenset(("bus", "new")),
        cluster=frozenset(("cluster", "gone")),
        both=frozenset(("both",)),
    )


def test_without_an_agreement_every_difference_is_of_both() -> None:
    assert differences(None, {"a": "1", "b": "1"}, {"a": "2", "b": "1"}) == Differences(
        frozenset(), frozenset(), frozenset(("a",))
    )


def test_labels_are_a_field_where_there_are_some() -> None:
    assert fields_of(SPEC, {}) == SPEC
    assert fields_of(SPEC, {"l": "1"}) == {**SPEC, LABELS: {"l": "1"}}


@given(before=OBJECTS, after=OBJECTS)
def test_a_merge_patch_makes_one_document_of_the_other(
    before: dict[str, object], after: dict[str, object]
) -> None:
    if "null" not in json.dumps(after):  # A merge patch cannot set null.
        assert merged(before, merge_patch(before, after)) == after


def test_a_spec_that_cannot_be_read_names_the_field() -> None:
    assert read_spec({"instanceType": H100}) == SpecFault("spec.targetNodes", "is required")


@given(document=JSON)
def test_no_document_of_any_shape_stops_the_agent(document: object) -> None:
    for document_ in (document, {"metadata": document}, {"spec": document, "status": document}):
        for read in (pool_object, lambda each: wanted_pool(each, "pool")):
            with suppress(UnreadableDocument):  # Any other error fails the test.
                read(document_)  # type: ignore[arg-type]  # Anything may be stored.


def test_a_pool_of_the_read_model_is_read_as_it_is() -> None:
    metadata = {
        "name": "pool",
        "uid": "bus-uid",
        "generation": 3,
        "resourceVersion": "42",
        "labels": {"l": "1"},
        "annotations": {"a": "b"},
        "deletionTimestamp": "2026-01-01T00:00:00Z",
    }
    document = {"metadata": metadata, "spec": SPEC, "status": {"currentNodes": 1}}

    wanted = wanted_pool(document, "pool")

    assert (wanted.uid, wanted.generation, wanted.version) == ("bus-uid", 3, "42")
    assert (wanted.labels, wanted.annotations) == ({"l": "1"}, {"a": "b"})
    assert wanted.deleting
    assert wanted.spec["autoscaling"] is False
    assert wanted.status == {"currentNodes": 1}
