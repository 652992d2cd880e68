"""The metrics of a service: their names, which dashboards use, and what they count."""

from collections.abc import Iterator, Mapping

import pytest
from prometheus_client import generate_latest

from nodepool.host.metrics import Metrics, Progress, Source
from quota.decide import SERVICE
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
    "nodepool_connected",
)
"""What dashboards and alerts are made of."""
MESSAGES = {*SERVICE.inputs, *SERVICE.outputs}
AT_WORK = Progress(pending=3, committed=7, leading=True, failures=1)


def metrics_of(progress: Progress | None = AT_WORK) -> Metrics:
    """The metrics of a replica of quota that is as far as this."""
    return Metrics("quota", MESSAGES, Source(lambda: progress))


def page(metrics: Metrics) -> str:
    return generate_latest(metrics.registry).decode()


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(
        f"nodepool_{name}", {"nodepool_service": "quota", **labels}
    )


def test_every_metric_is_on_the_page_under_its_name() -> None:
    # given a service that has done all there is to count
    metrics = metrics_of()
    (item,) = proposed().processed
    metrics.processed(item, "SetQuota", "stored", 0.01)
    metrics.committed(0.01, "stored")
    metrics.reconnected()

    # when it is scraped
    text = page(metrics)

    # then every metric is there
    for name in NAMES:
        assert f"\n{name}{{" in text, name


def test_a_processed_input_is_counted_with_its_outcome_its_outputs_and_its_age() -> None:
    # given a command with two outputs
    metrics = metrics_of()
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
    metrics = metrics_of()
    (item,) = proposed(content=b"").processed

    # when it is processed
    metrics.processed(item, "SetQuota", "failure", 0.0)

    # then it is counted as a failure and as a dead letter
    assert value(metrics, "messages_processed_total", message="SetQuota", outcome="failure") == 1
    assert value(metrics, "dead_letters_total") == 1


def test_an_age_below_zero_counts_as_zero() -> None:
    # given a machine whose clock is behind the server's
    metrics = metrics_of()
    (item,) = proposed().processed

    # when an input seems to come from the future
    metrics.processed(item, "SetQuota", "stored", -5.0)

    # then its age is zero
    assert value(metrics, "message_age_seconds_sum") == 0


def test_commits_are_counted_by_result_and_timed() -> None:
    # given commits that end in different ways
    metrics = metrics_of()

    # when they are counted
    for result in ("stored", "stored", "conflict"):
        metrics.committed(0.5, result)

    # then each result has its count, and all are timed
    assert value(metrics, "commits_total", result="stored") == 2
    assert value(metrics, "commits_total", result="conflict") == 1
    assert value(metrics, "commit_seconds_count") == 3
    assert value(metrics, "commit_seconds_sum") == 1.5


# What senders invent makes no series.


def test_messages_of_invented_names_are_counted_together() -> None:
    # given a service
    metrics = metrics_of()
    (item,) = proposed(content=b"").processed

    # when it fails to read commands of names that it does not know
    for number in range(300):
        metrics.processed(item, f"Invented{number}", "failure", 0.0)

    # then all of them are one series
    assert value(metrics, "messages_processed_total", message="unknown", outcome="failure") == 300
    assert page(metrics).count("nodepool_messages_processed_total{") == 1
    assert "Invented" not in page(metrics)


# What is known of a replica depends on whether it is connected.


def gauges(metrics: Metrics) -> dict[str, float | None]:
    names = (
        "connected",
        "leading",
        "pending_messages",
        "committed_position",
        "replay_failures",
    )
    return {name: value(metrics, name) for name in names}


def test_a_connected_replica_shows_how_far_it_is_at_each_scrape() -> None:
    # given a replica that leads
    progress = Progress(pending=9, committed=1, leading=True, failures=0)
    metrics = Metrics("quota", MESSAGES, Source(lambda: progress))
    before = gauges(metrics)

    # when it follows another one later
    progress = Progress(pending=0, committed=12, leading=False, failures=2)

    # then each scrape shows what held at the time
    assert list(before.values()) == [1, 1, 9, 1, 0]
    assert list(gauges(metrics).values()) == [1, 0, 0, 12, 2]


def test_a_replica_without_a_connection_says_so_and_shows_nothing_that_it_cannot_know() -> None:
    assert list(gauges(metrics_of(None)).values()) == [0, 0, None, None, None]


# The gauges of a state.


def machines(count: float) -> Iterator[tuple[str, Mapping[str, str], float]]:
    yield "nodepool_machines", {"zone": "Z"}, count


def test_gauges_of_the_state_are_read_at_each_scrape() -> None:
    # given a leader with a gauge of its own
    count = 1.0
    metrics = Metrics("aggregator", (), Source(lambda: AT_WORK, lambda: machines(count)))

    # when it changes between two scrapes
    before = page(metrics)
    count = 2.0
    after = page(metrics)

    # then each shows its value at the time
    assert 'nodepool_machines{zone="Z"} 1.0' in before
    assert 'nodepool_machines{zone="Z"} 2.0' in after


@pytest.mark.parametrize(
    "progress", [Progress(pending=0, committed=7, leading=False, failures=0), None]
)
def test_only_a_leader_exports_the_gauges_of_its_state(progress: Progress | None) -> None:
    metrics = Metrics("aggregator", (), Source(lambda: progress, lambda: machines(1.0)))

    assert "nodepool_machines" not in page(metrics)
