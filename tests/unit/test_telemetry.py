"""The telemetry of a service as a whole: one call for a batch counts and logs all of it."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from nodepool.host.metrics import Source
from nodepool.host.settings import Settings
from nodepool.host.telemetry import Telemetry
from quota.decide import SERVICE
from support.proposals import proposed


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "quota.log"


@pytest.fixture
def telemetry(path: Path) -> Iterator[Telemetry]:
    made = Telemetry(SERVICE, Settings(log_file=str(path), metrics_port=0), Source())
    yield made
    made.close()


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def processed(telemetry: Telemetry, outcome: str) -> float | None:
    labels = {"nodepool_service": "quota", "message": "SetQuota", "outcome": outcome}
    registry = telemetry.metrics.registry
    return registry.get_sample_value("nodepool_messages_processed_total", labels)


@pytest.mark.parametrize("outcome", ["stored", "quiet"])
def test_each_input_of_a_batch_is_counted_and_logged_with_the_outcome_of_the_batch(
    telemetry: Telemetry, path: Path, outcome: str
) -> None:
    # given a batch of two inputs
    batch = [*proposed().processed, *proposed().processed]

    # when it was processed
    telemetry.processed(batch, outcome)

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
    telemetry.processed(batch, "stored")

    # then it is counted and logged as a failure
    assert processed(telemetry, "failure") == 1
    assert [line["outcome"] for line in lines(path)] == ["failure"]


def test_a_higher_log_level_leaves_out_messages_but_still_counts_them(path: Path) -> None:
    # given a service that logs errors only
    quiet = Telemetry(SERVICE, Settings(log_file=str(path), log_level="error"), Source())

    # when it has processed an input
    quiet.processed(proposed().processed, "stored")
    quiet.close()

    # then the input is counted and not logged
    assert lines(path) == []
    assert processed(quiet, "stored") == 1


def test_what_is_counted_is_served(telemetry: Telemetry) -> None:
    # given a service that serves its metrics
    port = telemetry.serve(lambda: None)

    # when it has processed an input
    telemetry.processed(proposed().processed, "stored")

    # then the page of metrics says so
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as response:
        text = response.read().decode()
    assert 'nodepool_messages_processed_total{message="SetQuota",nodepool_service="quota"' in text


def test_settings_without_a_port_serve_nothing(path: Path) -> None:
    # given settings without a port
    telemetry = Telemetry(SERVICE, Settings(log_file=str(path), metrics_port=-1), Source())

    # when the pages are to be served
    # then there are none
    assert telemetry.serve(lambda: None) == -1
    telemetry.close()


def test_an_object_that_cannot_be_stored_is_counted_and_logged(
    telemetry: Telemetry, path: Path
) -> None:
    # given telemetry
    # when an object of the read model was parked
    telemetry.parked(("nodepools", "acme/prod/p"), "too large")

    # then it is counted as a dead letter, and its line says which it is and why
    registry = telemetry.metrics.registry
    labels = {"nodepool_service": "quota"}
    assert registry.get_sample_value("nodepool_dead_letters_total", labels) == 1
    (line,) = lines(path)
    assert (line["level"], line["event"]) == ("error", "object parked")
    assert (line["bucket"], line["key"], line["cause"]) == (
        "nodepools",
        "acme/prod/p",
        "too large",
    )
