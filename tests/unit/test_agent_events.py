"""The Kubernetes Events that the agent records: their names and their fields."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from agent.actions import RecordEvent
from agent.events import event_document, event_name, log_key
from nodepool.contract.grammar import dns1123_subdomain

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
KEY = "ff.6475ef64cf340.p"
TELL = RecordEvent(
    "NodePool",
    "pool",
    "uid",
    "Normal",
    "CWNodePoolCreated",
    "NodePool pool is created",
    log_key(255, NOW, "NodePool"),
    time=NOW,
    component="nodepool",
)


def test_an_event_of_the_log_is_an_event_of_its_object() -> None:
    assert event_document(TELL, datetime(2027, 1, 1, tzinfo=UTC)) == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"pool.{KEY}", "namespace": "default"},
        "involvedObject": {
            "apiVersion": "compute.coreweave.com/v1alpha1",
            "kind": "NodePool",
            "name": "pool",
            "uid": "uid",
        },
        "type": "Normal",
        "reason": "CWNodePoolCreated",
        "message": "NodePool pool is created",
        "firstTimestamp": "2026-01-02T03:04:05Z",
        "lastTimestamp": "2026-01-02T03:04:05Z",
        "count": 1,
        "source": {"component": "nodepool"},
        "reportingComponent": "nodepool",
        "reportingInstance": "",
    }


def test_an_event_that_regards_a_node_as_well_has_another_name_there() -> None:
    assert log_key(255, NOW, "Node") == "ff.6475ef64cf340.n"


def test_an_event_that_takes_the_place_of_another_in_a_restored_log_has_another_name() -> None:
    later = NOW + timedelta(microseconds=1)

    assert log_key(255, NOW, "NodePool") == KEY
    assert log_key(255, later, "NodePool") == "ff.6475ef64cf341.p"


def test_an_event_about_a_pod_is_in_its_namespace() -> None:
    tell = replace(TELL, kind="Pod", name="job", namespace="team", time=None)
    document = event_document(tell, NOW)

    assert document["metadata"] == {"name": f"job.{KEY}", "namespace": "team"}
    assert document["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "job",
        "namespace": "team",
        "uid": "uid",
    }
    assert document["firstTimestamp"] == "2026-01-02T03:04:05Z"


def test_an_event_about_an_object_that_is_not_there_has_no_uid() -> None:
    assert event_document(replace(TELL, uid=""), NOW)["involvedObject"] == {
        "apiVersion": "compute.coreweave.com/v1alpha1",
        "kind": "NodePool",
        "name": "pool",
    }


def test_a_long_message_is_cut() -> None:
    message = event_document(replace(TELL, message="x" * 2000), NOW)["message"]

    assert message == f"{'x' * 1023}…"


NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", fullmatch=True)


@given(name=NAMES, key=st.text(max_size=300))
def test_every_name_is_a_subdomain_of_at_most_253_characters(name: str, key: str) -> None:
    name = event_name(replace(TELL, name=name, key=key))

    assert dns1123_subdomain(name) is None


def test_long_names_that_begin_alike_stay_apart() -> None:
    first, second = (replace(TELL, name="a" * 252 + end) for end in "bc")

    assert event_name(first) != event_name(second)
    assert event_name(first) == event_name(first)
    assert event_name(first).endswith(f".{KEY}")
