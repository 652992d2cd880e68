"""The telemetry of a service as a whole: one call for a batch counts and logs all of it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodepool.contract.log import Entry, LogId
from nodepool.engine.replica import Replica
from nodepool.host.settings import Settings, read
from nodepool.host.source import Source
from nodepool.host.telemetry import Telemetry
from quota.decide import SERVICE
from support.proposals import NOON, proposed, wake_entry

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "quota.log"


@pytest.fixture
def telemetry(path: Path) -> Iterator[Telemetry]:
    made = Telemetry(SERVICE, Settings(log_file=str(path)), Source())
    yield made
    made.close()


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def processed(telemetry: Telemetry, outcome: str) -> float | None:
    labels = {"nodepool_service": "quota", "message": "SetQuota", "outcome": outcome}
    registry = telemetry.metrics.page.registry
    return registry.get_sample_value("nodepool_messages_processed_total", labels)


@pytest.mark.parametrize("outcome", ["stored", "quiet"])
def test_each_input_with_an_output_is_counted_and_logged_with_the_outcome_of_its_batch(
    telemetry: Telemetry, path: Path, outcome: str
) -> None:
    # given a batch of two inputs
    batch = [*proposed().processed, *proposed().processed]

    # when it was processed
    telemetry.count_processed(batch, outcome)

    # then both are counted, and the lines of both are written at once
    assert processed(telemetry, outcome) == 2
    assert [line["outcome"] for line in lines(path)] == [outcome, outcome]
    assert all(isinstance(line["age_ms"], float) and line["age_ms"] > 0 for line in lines(path))


def test_an_input_that_failed_is_a_failure_whatever_became_of_its_batch(
    telemetry: Telemetry, path: Path
) -> None:
    # given a command that cannot be read
    batch = proposed(content=b"").processed

    # when its batch was stored
    telemetry.count_processed(batch, "stored")

    # then it is counted and logged as a failure
    assert processed(telemetry, "failure") == 1
    assert [line["outcome"] for line in lines(path)] == ["failure"]


def test_without_traces_outputs_carry_the_trace_of_their_command(telemetry: Telemetry) -> None:
    # given a service that makes no spans
    # when it processes a command with a trace
    # then nothing of what it has proposed is changed
    proposal = proposed(PARENT)
    assert telemetry.trace_proposal(proposal) is proposal
    assert {each.traceparent for each in proposal.processed[0].envelopes} == {PARENT}


def test_a_service_loads_neither_what_makes_traces_nor_what_its_libraries_can_do_without() -> None:
    script = (
        "import sys, nodepool.host.process; from nodepool.host.runtime import Runtime, Settings;"
        "from quota.decide import SERVICE; Runtime(SERVICE, Settings());"
        "loaded = {'opentelemetry', 'rich', 'attr', 'aiohttp', 'nats.js', 'yaml'};"
        "loaded &= set(sys.modules); assert not loaded, loaded"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr


def test_the_garbage_collector_works_once_a_process_serves() -> None:
    script = (
        "import gc, sys; gc.disable()\n"
        "from nodepool.host.process import run_until_stopped\n"
        "from nodepool.host.settings import Settings\n"
        "async def serve(stop): sys.exit(not (gc.isenabled() and gc.get_freeze_count()))\n"
        "run_until_stopped(serve, Settings())\n"
    )

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize("value", ["true", "TRUE"])
def test_a_switch_of_every_opentelemetry_program_turns_traces_off(path: Path, value: str) -> None:
    # given a service that is to send spans, in an environment that wants none
    settings = read(
        {
            "NODEPOOL_TRACES": "console",
            "NODEPOOL_LOG_FILE": str(path),
            "OTEL_SDK_DISABLED": value,
        }
    )
    telemetry = Telemetry(SERVICE, settings, Source())

    # when it processes a command with a trace
    # then nothing of what it has proposed is changed
    proposal = proposed(PARENT)
    assert telemetry.trace_proposal(proposal) is proposal
    telemetry.close()


def test_the_refusal_of_a_command_that_cannot_be_read_belongs_to_its_trace(
    telemetry: Telemetry, path: Path
) -> None:
    # given a command with a trace whose data cannot be read, another way of sending it, and one
    # that is not JSON
    cloud_event = {"specversion": "1.0", "id": "c", "traceparent": PARENT, "data": {"zone": 1}}
    contents = [json.dumps(cloud_event).encode(), b'{"zone": 1}', b"{"]
    headers = [{}, {"traceparent": PARENT}, {"ce-traceparent": PARENT}]
    for position, (content, header) in enumerate(zip(contents, headers, strict=True), 1):
        replica = Replica(SERVICE)
        replica.read(Entry(position, NOON, "np.cmd.acme._._.SetQuota", content, header))

        # when it is processed
        proposal = replica.propose()
        assert proposal is not None
        telemetry.count_processed(proposal.processed, "stored")

        # then its refusal carries the trace, and so does its line
        assert [
            (each.type, each.traceparent) for item in proposal.processed for each in item.envelopes
        ] == [("CommandRefused", PARENT)]
    assert [line["trace_id"] for line in lines(path)] == [PARENT[3:35]] * 3


def test_an_input_without_outputs_is_counted_once_however_often_it_is_processed(
    telemetry: Telemetry, path: Path
) -> None:
    # given inputs of which the last has outputs, and the others none
    (command,) = proposed(position=9).processed
    quiet = proposed(also=[wake_entry(8)], position=7).processed[1:]

    # when the quiet one is processed twice, as after a commit in doubt
    telemetry.begin(LogId("a"))
    telemetry.count_processed(quiet, "quiet")
    telemetry.count_processed([*quiet, command], "stored")

    # then it is counted and logged once; in another log the positions begin again
    assert [(line.get("position"), line.get("first")) for line in lines(path)] == [
        (None, 8),
        (9, None),
    ]
    telemetry.begin(LogId("b"))
    telemetry.count_processed(quiet, "quiet")
    assert [line["first"] for line in lines(path) if line["event"] == "batch"] == [8, 8]


def test_inputs_that_are_only_folded_share_a_line(telemetry: Telemetry, path: Path) -> None:
    # given a batch of a command with outputs and of two inputs without
    (command,) = proposed(position=7).processed
    quiet = proposed(also=[wake_entry(8), wake_entry(9)], position=6).processed[1:]

    # when it was processed
    telemetry.count_processed([command, *quiet], "stored")

    # then the command has its line, and one line has the other inputs
    own, batch = lines(path)
    assert (own["event"], own["position"]) == ("SetQuota", 7)
    assert {**batch, "age_ms": 0, "timestamp": ""} == {
        "service": "quota",
        "first": 8,
        "last": 9,
        "inputs": {"Wake": 2},
        "outcome": "stored",
        "age_ms": 0,
        "timestamp": "",
        "event": "batch",
        "level": "info",
    }


def test_at_the_level_of_debug_each_input_has_a_line(path: Path) -> None:
    # given a service that logs all there is
    settings = Settings(log_file=str(path), log_level="debug")
    telemetry = Telemetry(SERVICE, settings, Source())

    # when it has only folded two inputs
    quiet = proposed(also=[wake_entry(8), wake_entry(9)], position=7).processed[1:]
    telemetry.count_processed(quiet, "quiet")
    telemetry.close()

    # then each has a line
    assert [(line["event"], line["position"]) for line in lines(path)] == [("Wake", 8), ("Wake", 9)]


def test_a_higher_log_level_leaves_out_messages_but_still_counts_them(path: Path) -> None:
    # given a service that logs errors only
    quiet = Telemetry(SERVICE, Settings(log_file=str(path), log_level="error"), Source())

    # when it has processed an input
    quiet.count_processed(proposed().processed, "stored")
    quiet.close()

    # then the input is counted and not logged
    assert lines(path) == []
    assert processed(quiet, "stored") == 1


def test_an_object_that_cannot_be_stored_is_counted_and_logged(
    telemetry: Telemetry, path: Path
) -> None:
    # given telemetry
    # when an object of the read model was parked
    telemetry.count_parked_object(("nodepools", "acme/prod/p"), "too large")

    # then it is counted as a dead letter, and its line says which it is and why
    registry = telemetry.metrics.page.registry
    labels = {"nodepool_service": "quota"}
    assert registry.get_sample_value("nodepool_dead_letters_total", labels) == 1
    (line,) = lines(path)
    assert (line["level"], line["event"]) == ("error", "object parked")
    assert (line["bucket"], line["key"], line["cause"]) == (
        "nodepools",
        "acme/prod/p",
        "too large",
    )
