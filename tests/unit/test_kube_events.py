"""The Kubernetes Events that the agent records: their names and their fields."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from agent.host.event_recorder import log_key
from nodepool.contract.grammar import dns1123_subdomain
from nodepool.contract.model import API_VERSION
from nodepool.kube.events import KEPT_S, Event, Recorder, Regarding
from support.agent.answered import answered

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
KEY = "ff.6475ef64cf340.p"
POOL = Regarding(API_VERSION, "NodePool", "pool", "uid")
TELL = Event(
    POOL,
    "Normal",
    "CWNodePoolCreated",
    "NodePool pool is created",
    log_key(255, NOW, "NodePool"),
    "nodepool",
)


def test_an_event_of_the_log_is_an_event_of_its_object() -> None:
    assert TELL.document(NOW) == {
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
    document = TELL._replace(regarding=Regarding("v1", "Pod", "job", "uid", "team")).document(NOW)

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
    assert TELL._replace(regarding=POOL._replace(uid="")).document(NOW)["involvedObject"] == {
        "apiVersion": "compute.coreweave.com/v1alpha1",
        "kind": "NodePool",
        "name": "pool",
    }


def test_an_event_that_stands_for_several_has_their_count_and_both_times() -> None:
    document = TELL._replace(times=7).document(NOW, NOW + timedelta(seconds=2))

    assert document["message"] == "(combined from similar events): NodePool pool is created"
    assert document["count"] == 7
    assert document["firstTimestamp"] == "2026-01-02T03:04:05Z"
    assert document["lastTimestamp"] == "2026-01-02T03:04:07Z"


def test_a_long_message_is_cut() -> None:
    message = TELL._replace(message="x" * 2000).document(NOW)["message"]

    assert message == f"{'x' * 1023}…"


NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", fullmatch=True)


@given(name=NAMES, key=st.text(max_size=300))
def test_every_name_is_a_subdomain_of_at_most_253_characters(name: str, key: str) -> None:
    name = TELL._replace(regarding=POOL._replace(name=name), key=key).name

    assert dns1123_subdomain(name) is None


def test_long_names_that_begin_alike_stay_apart() -> None:
    first, second = (
        TELL._replace(regarding=POOL._replace(name="a" * 252 + end)).name for end in "bc"
    )

    assert first != second
    assert first.endswith(f".{KEY}")


async def test_an_event_is_recorded_again_once_the_api_server_has_dropped_it() -> None:
    # given a recorder whose clock the test drives
    requests, moments, counts = list[str](), [0.0], list[int]()
    other = TELL._replace(key="another")

    def reply(path: str) -> tuple[int, bytes]:
        requests.append(path)
        return 409, b'{"reason": "AlreadyExists"}'

    async with answered(reply) as api:
        recorder = Recorder(api, lambda: moments[-1])
        # when the same Event is recorded at these moments, and another one in the end
        for event, now in ((TELL, 0.0), (TELL, KEPT_S / 2), (TELL, KEPT_S), (other, KEPT_S)):
            moments.append(now)
            await recorder.record(event, NOW)
            counts.append(len(requests))
    assert (counts) == [1, 1, 2, 3]
