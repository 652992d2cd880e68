"""What a service shows of itself, without a bus: lines, metrics, pages, spans."""

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from nodepool.contract.commands import SetQuota
from nodepool.contract.log import Entry
from nodepool.contract.messages import envelope_of, subject_of
from nodepool.engine.replica import Proposal, Replica
from nodepool.host.settings import Settings, SettingsError
from nodepool.host.telemetry import Telemetry
from quota.decide import SERVICE, State
from support.constants import H100, ZONE

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
METRICS = (
    "nodepool_messages_handled_total",
    "nodepool_messages_said_total",
    "nodepool_commits_total",
    "nodepool_dead_letters_total",
    "nodepool_reconnects_total",
    "nodepool_message_age_seconds_bucket",
    "nodepool_commit_seconds_bucket",
    "nodepool_settled_position",
    "nodepool_pending_messages",
    "nodepool_leading",
)
"""What dashboards and alerts are made of: none of these is ever renamed."""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "quota.log"


@pytest.fixture
def telemetry(log: Path) -> Iterator[Telemetry]:
    made = Telemetry("quota", Settings(log_file=str(log), metrics_port=0))
    yield made
    made.close()


def proposed(trace: str | None = None, content: bytes | None = None) -> Proposal[State]:
    """What quota would say to a command."""
    command = SetQuota(org="acme", zone=ZONE, instance_type=H100, limit=5)
    envelope = envelope_of(SetQuota).model_construct(
        id="c1", type="SetQuota", source="me", traceparent=trace, data=command
    )
    said = envelope.encode() if content is None else content
    replica = Replica(SERVICE)
    replica.read(Entry(7, NOON, subject_of(command, ""), said, {"Nats-Msg-Id": "c1"}))
    found = replica.propose()
    assert found is not None
    return found


def lines(log: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def page(port: int, path: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as output:
            return output.status, output.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


# --- lines --------------------------------------------------------------------------------------


def test_each_handled_message_is_one_line_of_json(telemetry: Telemetry, log: Path) -> None:
    # given a command that was processed
    # when it is told
    telemetry.handled(proposed(PARENT).processed, "stored")

    # then there is one line, with all that there is to know
    (line,) = lines(log)
    assert line.pop("timestamp")
    age = line.pop("age_ms")
    assert isinstance(age, float)
    assert age > 0
    assert line == {
        "service": "quota",
        "event": "SetQuota",
        "level": "info",
        "position": 7,
        "id": "c1",
        "about": "acme/_/_",
        "outcome": "stored",
        "outputs": ["CommandAccepted", "QuotaSet"],
        "correlation": "c1",
        "trace": TRACE,
    }


def test_a_message_in_trouble_is_a_warning_with_its_field_and_cause(
    telemetry: Telemetry, log: Path
) -> None:
    # given a command that nobody can read
    # when it is told
    telemetry.handled(proposed(content=b'{"zone": "Z"}').processed, "stored")

    # then the line warns of it, and says what is wrong
    (line,) = lines(log)
    assert (line["level"], line["outcome"]) == ("warning", "failure")
    assert (line["event"], line["id"]) == ("SetQuota", "c1")
    assert (line["field"], line["cause"]) == ("instanceType", "is required")


def test_a_line_of_its_own_says_what_is_the_matter(telemetry: Telemetry, log: Path) -> None:
    # given something that belongs to no message
    # when it is told
    telemetry.log.warning("starting anew", cause="no server")
    telemetry.close()

    # then the line names the service and the cause
    (line,) = lines(log)
    assert line.pop("timestamp")
    assert line == {
        "service": "quota",
        "event": "starting anew",
        "level": "warning",
        "cause": "no server",
    }


def test_a_higher_level_leaves_out_the_lines_of_messages(log: Path) -> None:
    # given a service that tells only what is wrong
    quiet = Telemetry("quota", Settings(log_file=str(log), log_level="error"))

    # when a message is handled
    quiet.handled(proposed().processed, "stored")
    quiet.close()

    # then it is counted and not told
    assert lines(log) == []
    labels = {"service": "quota", "message": "SetQuota", "outcome": "stored"}
    assert quiet.registry.get_sample_value("nodepool_messages_handled_total", labels) == 1


def test_a_full_log_file_makes_room_for_another(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a service whose log file may be small only
    monkeypatch.setattr("nodepool.host.telemetry.LOG_FILE_BYTES", 1_000)
    small = Telemetry("quota", Settings(log_file=str(log)))

    # when it tells much
    for _ in range(20):
        small.handled(proposed().processed, "stored")
    small.close()

    # then there is a bounded number of files of a bounded size
    files = sorted(path.name for path in log.parent.iterdir())
    assert files == ["quota.log", "quota.log.1", "quota.log.2"]
    assert all(path.stat().st_size < 2_000 for path in log.parent.iterdir())


def test_a_disk_without_room_is_no_reason_to_stop() -> None:
    # given a log on a device that takes nothing
    if not Path("/dev/full").exists():
        pytest.skip("needs Linux's always full device")
    deaf = Telemetry("quota", Settings(log_file="/dev/full"))

    # when much is told
    for _ in range(200):
        deaf.handled(proposed().processed, "stored")
    deaf.close()

    # then nothing has happened
    labels = {"service": "quota", "message": "SetQuota", "outcome": "stored"}
    assert deaf.registry.get_sample_value("nodepool_messages_handled_total", labels) == 200


# --- pages --------------------------------------------------------------------------------------


def test_the_page_of_metrics_has_every_name(telemetry: Telemetry) -> None:
    # given a service that has handled what can be handled
    port = telemetry.serve(Settings(metrics_port=0))
    telemetry.handled(proposed().processed, "stored")
    telemetry.handled(proposed(content=b"").processed, "stored")
    telemetry.committed(0.01, "stored")

    # when somebody scrapes it
    status, text = page(port, "/metrics")

    # then every metric is there
    assert status == 200
    for name in METRICS:
        assert f"\n{name}{{" in text, name
    assert 'nodepool_messages_handled_total{message="SetQuota"' in text
    assert 'nodepool_commits_total{result="stored",service="quota"} 1.0' in text


def test_gauges_are_read_at_the_moment_of_a_scrape(tmp_path: Path) -> None:
    # given a service with something of its own to show
    machines = 1.0

    def samples() -> Iterator[tuple[str, dict[str, str], float]]:
        yield "nodepool_machines", {"zone": "Z"}, machines

    shown = Telemetry("capacity", Settings(log_file=str(tmp_path / "log")), samples)
    port = shown.serve(Settings(metrics_port=0))

    # when that changes between two scrapes
    before = page(port, "/metrics")[1]
    machines = 2.0
    after = page(port, "/metrics")[1]
    shown.close()

    # then each shows what was so at the time
    assert 'nodepool_machines{zone="Z"} 1.0' in before
    assert 'nodepool_machines{zone="Z"} 2.0' in after


def test_health_is_told_to_whoever_asks(telemetry: Telemetry) -> None:
    # given a service that was just started
    port = telemetry.serve(Settings(metrics_port=0))

    # when somebody asks for its health
    # then it is alive, and not ready
    assert page(port, "/livez") == (200, "ok\n")
    assert page(port, "/readyz") == (503, "not now\n")

    # and when it has caught up it is
    telemetry.ready = lambda: True
    assert page(port, "/readyz") == (200, "ok\n")

    # and other pages there are none
    assert page(port, "/")[0] == 404


def test_no_port_means_no_page(telemetry: Telemetry) -> None:
    # given settings without a port
    # when pages are to be served
    # then there are none
    assert telemetry.serve(Settings(metrics_port=-1)) == -1


def test_a_taken_port_is_one_line_that_names_it(telemetry: Telemetry) -> None:
    # given somebody who listens on the port
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        # when pages are to be served there
        with pytest.raises(SettingsError) as error:
            telemetry.serve(Settings(metrics_port=port))

    # then the line names the place
    assert str(error.value).startswith(f"cannot serve metrics on 127.0.0.1:{port}: ")


# --- spans --------------------------------------------------------------------------------------


def test_without_traces_the_trace_of_a_command_is_handed_on_as_it_is(
    telemetry: Telemetry,
) -> None:
    # given a command with a trace, and a service that makes no spans
    # when it is processed
    traced = telemetry.traced(proposed(PARENT))

    # then the outputs carry the very same trace
    assert {e.traceparent for one in traced.processed for e in one.envelopes} == {PARENT}


def test_without_traces_a_command_without_a_trace_stays_without(telemetry: Telemetry) -> None:
    # given a command without a trace
    # when it is processed
    traced = telemetry.traced(proposed())

    # then its outputs have none
    assert {e.traceparent for one in traced.processed for e in one.envelopes} == {None}


@pytest.mark.parametrize("parent", [PARENT, None, "nonsense", f"00-{'z' * 32}-{'0' * 16}-01"])
def test_with_traces_answers_name_the_span_of_their_question(
    log: Path, capsys: pytest.CaptureFixture[str], parent: str | None
) -> None:
    # given a service that makes spans
    tracing = Telemetry("quota", Settings(log_file=str(log), traces="console"))

    # when it outputs a command with a trace, or without one that can be read
    traced = tracing.traced(proposed(parent))
    tracing.close()

    # then one span tells of it, and the outputs name that span as their parent
    (span,) = map(json.loads, capsys.readouterr().err.splitlines())
    assert span["name"] == "process SetQuota"
    assert span["attributes"]["messaging.message.id"] == "c1"
    assert span["attributes"]["nodepool.position"] == 7
    assert span["resource"]["attributes"]["service.name"] == "quota"
    trace, id = (span["context"][part].removeprefix("0x") for part in ("trace_id", "span_id"))
    told = {e.traceparent for one in traced.processed for e in one.envelopes}
    assert told == {f"00-{trace}-{id}-01"}

    # and it is part of the command's trace, where there is one
    assert (trace == TRACE) == (parent == PARENT)
    assert span["parent_id"] == ("0xb7ad6b7169203331" if parent == PARENT else None)


def test_spans_change_nothing_but_the_trace(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # given what a service would say
    plain = proposed(PARENT)
    tracing = Telemetry("quota", Settings(log_file=str(log), traces="console"))

    # when spans are made of it
    traced = tracing.traced(plain)
    tracing.close()
    capsys.readouterr()

    # then all is the same but the trace of each output
    for before, after in zip(plain.processed, traced.processed, strict=True):
        bare = tuple(e.model_copy(update={"traceparent": PARENT}) for e in after.envelopes)
        assert bare == before.envelopes
    assert replace(traced, processed=plain.processed) == plain
