"""The metrics of a service: their names, which dashboards use, and what they count."""

from collections.abc import Iterator, Mapping

from prometheus_client import generate_latest

from nodepool.host.metrics import Metrics
from support.proposals import proposed

NAMES = (
    "nodepool_messages_processed_total",
    "nodepool_messages_published_total",
    "nodepool_commits_total",
    "nodepool_dead_letters_total",
    "nodepool_reconnects_total",
    "nodepool_message_age_seconds_bucket",
    "nodepool_commit_seconds_bucket",
    "nodepool_committed_position",
    "nodepool_replay_failures",
    "nodepool_pending_messages",
    "nodepool_leading",
)
"""What dashboards and alerts are made of: none of these is ever renamed."""


def page(metrics: Metrics) -> str:
    return generate_latest(metrics.registry).decode()


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"nodepool_{name}", {"service": "quota", **labels})


def test_every_metric_is_on_the_page_under_its_name() -> None:
    # given a service that has done all there is to count
    metrics = Metrics("quota")
    (item,) = proposed().processed
    metrics.processed(item, "SetQuota", "stored", 0.01)
    metrics.committed(0.01, "stored")
    metrics.progress(pending=3, committed=7, leading=True, failures=1)
    metrics.reconnected()

    # when it is scraped
    text = page(metrics)

    # then every metric is there
    for name in NAMES:
        assert f"\n{name}{{" in text, name


def test_a_processed_input_is_counted_with_its_outcome_its_outputs_and_its_age() -> None:
    # given a command with two outputs
    metrics = Metrics("quota")
    (item,) = proposed().processed

    # when it is processed
    metrics.processed(item, "SetQuota", "stored", 0.03)

    # then it is counted by type and outcome, and its outputs by type
    assert value(metrics, "messages_processed_total", message="SetQuota", outcome="stored") == 1
    assert value(metrics, "messages_published_total", message="CommandAccepted") == 1
    assert value(metrics, "messages_published_total", message="QuotaSet") == 1

    # and its age is observed, and it is no dead letter
    assert value(metrics, "message_age_seconds_sum") == 0.03
    assert value(metrics, "dead_letters_total") == 0


def test_a_failed_input_is_a_dead_letter() -> None:
    # given a command that cannot be read
    metrics = Metrics("quota")
    (item,) = proposed(content=b"").processed

    # when it is processed
    metrics.processed(item, "SetQuota", "failure", 0.0)

    # then it is counted as a failure and as a dead letter
    assert value(metrics, "messages_processed_total", message="SetQuota", outcome="failure") == 1
    assert value(metrics, "dead_letters_total") == 1


def test_an_age_below_zero_counts_as_zero() -> None:
    # given a machine whose clock is behind the server's
    metrics = Metrics("quota")
    (item,) = proposed().processed

    # when an input seems to come from the future
    metrics.processed(item, "SetQuota", "stored", -5.0)

    # then its age is zero
    assert value(metrics, "message_age_seconds_sum") == 0


def test_commits_are_counted_by_result_and_timed() -> None:
    # given commits that end in different ways
    metrics = Metrics("quota")

    # when they are counted
    for result in ("stored", "stored", "conflict"):
        metrics.committed(0.5, result)

    # then each result has its count, and all are timed
    assert value(metrics, "commits_total", result="stored") == 2
    assert value(metrics, "commits_total", result="conflict") == 1
    assert value(metrics, "commit_seconds_count") == 3
    assert value(metrics, "commit_seconds_sum") == 1.5


def test_progress_is_what_it_was_set_to_last() -> None:
    # given a replica that leads
    metrics = Metrics("quota")
    metrics.progress(pending=9, committed=1, leading=True, failures=0)

    # when it follows another one later
    metrics.progress(pending=0, committed=12, leading=False, failures=2)

    # then the gauges show that
    assert value(metrics, "pending_messages") == 0
    assert value(metrics, "committed_position") == 12
    assert value(metrics, "replay_failures") == 2
    assert value(metrics, "leading") == 0


def test_gauges_of_the_state_are_read_at_each_scrape() -> None:
    # given a service with a gauge of its own
    machines = 1.0

    def samples() -> Iterator[tuple[str, Mapping[str, str], float]]:
        yield "nodepool_machines", {"zone": "Z"}, machines

    metrics = Metrics("capacity", samples)

    # when it changes between two scrapes
    before = page(metrics)
    machines = 2.0
    after = page(metrics)

    # then each shows its value at the time
    assert 'nodepool_machines{zone="Z"} 1.0' in before
    assert 'nodepool_machines{zone="Z"} 2.0' in after
