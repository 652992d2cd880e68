"""The metrics of a service: their names, which dashboards use, and what they count."""

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from nodepool.contract.metrics import (
    ALL,
    COMMANDS,
    INVARIANT_VIOLATIONS,
    MACHINES,
    Histogram,
    Sample,
)
from nodepool.engine.proposal import Processed
from nodepool.host.exposition import Wanted
from nodepool.host.families import exemplar_of
from nodepool.host.metrics import Metrics
from nodepool.host.source import Progress, Source
from nodepool.nats.log.figures import LogFigures
from nodepool.nats.objects.unwritten import Lag
from nodepool.service import I
from quota.decide import SERVICE
from support.constants import H100
from support.proposals import proposed

FREE = {"zone": "Z", "instance_type": H100, "state": "free", "cause": ""}
AT_WORK = Progress(pending=3, committed=7, leading=True, failures=1)


def metrics_of(progress: Progress | None = AT_WORK) -> Metrics:
    """The metrics of a replica of quota that is as far as this."""
    return Metrics(SERVICE, Source(lambda: progress))


def page(metrics: Metrics, wants: Wanted | None = None) -> str:
    pieces = metrics.page.pieces(wants or Wanted())
    assert pieces is not None
    return b"".join(pieces).decode()


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    """The value of a series on the page; None where it has none."""
    wanted = {"nodepool_service": "quota", **labels}
    return next(
        (
            sample.value
            for family in text_string_to_metric_families(page(metrics))
            for sample in family.samples
            if sample.name == f"nodepool_{name}" and sample.labels == wanted
        ),
        None,
    )


def count(
    metrics: Metrics,
    item: Processed[I],
    name: str,
    outcome: str,
    age: float,
    exemplar: Mapping[str, str] | None = None,
) -> None:
    """Count one processed input and its outputs."""
    metrics.count_processed({(name, outcome): 1})
    metrics.count_outputs(item, name, age, exemplar)


# Every metric of the list that each replica has.

FIGURES = LogFigures(
    messages=5, bytes=600, last=7, copies={"current": 3}, storage_used=900, storage_limit=1000
)
OF_A_REPLICA = ALL[ALL.index(COMMANDS) : ALL.index(INVARIANT_VIOLATIONS)]
"""The metrics that are no figures of some service's state."""


@pytest.mark.parametrize("openmetrics", [False, True])
def test_every_metric_of_a_replica_is_on_the_page_as_the_list_has_it(openmetrics: bool) -> None:
    # given a leader that has done all there is to count
    source = Source(lambda: AT_WORK._replace(log=FIGURES), lag=lambda: Lag(0.5, 3))
    metrics = Metrics(SERVICE, source)
    (item,) = proposed().processed
    count(metrics, item, "SetQuota", "stored", 0.01)

    # when it is scraped
    text = page(metrics, Wanted(openmetrics=openmetrics))

    # then every metric is there once, with its type, its help text and its labels
    parse = openmetrics_families if openmetrics else text_string_to_metric_families
    families = {family.name: family for family in parse(text)}
    for metric in OF_A_REPLICA:
        family = families[metric.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.kind, metric.help)
        labels = {"nodepool_service", *metric.labels}
        assert {frozenset(sample.labels) - {"le"} for sample in family.samples} == {
            frozenset(labels)
        }
        bounds = {sample.labels["le"] for sample in family.samples if "le" in sample.labels}
        assert bounds == {*map(str, map(float, metric.buckets)), *["+Inf"] * bool(metric.buckets)}

    # and no other one, but for those of the process
    listed = {metric.name.removesuffix("_total") for metric in OF_A_REPLICA}
    assert {name for name in families if not name.startswith("process_")} == listed


def test_a_processed_input_is_counted_with_its_outcome_its_outputs_and_its_age() -> None:
    # given a command with two outputs
    metrics = metrics_of()
    (item,) = proposed().processed

    # when it is processed
    count(metrics, item, "SetQuota", "stored", 0.03)

    # then it is counted by type and outcome, and its outputs by type
    assert value(metrics, "messages_processed_total", message="SetQuota", outcome="stored") == 1
    assert value(metrics, "messages_published_total", message="CommandAccepted") == 1
    assert value(metrics, "messages_published_total", message="QuotaSet") == 1

    # and its age is observed, and it is no dead letter
    assert value(metrics, "message_age_seconds_sum") == 0.03
    assert value(metrics, "dead_letters_total") == 0


def test_what_alerts_watch_is_there_before_it_happens_first() -> None:
    metrics = metrics_of()

    refused = {"result": "refused", "reason": "InternalError"}
    assert [
        value(metrics, "dead_letters_total"),
        value(metrics, "session_restarts_total"),
        value(metrics, "commits_total", result="failed"),
        value(metrics, "messages_published_total", message="CWOverQuota"),
        value(metrics, "commands_total", command="SetQuota", **refused),
    ] == [0, 0, 0, 0, 0]


def test_an_accepted_command_is_counted_with_what_it_led_to_and_how_long_it_took() -> None:
    # given a command that sets a limit
    metrics = metrics_of()
    (item,) = proposed().processed

    # when it is processed
    count(metrics, item, "SetQuota", "stored", 0.03)

    # then it is counted once, and timed
    labels = {"command": "SetQuota", "result": "accepted", "reason": "configured"}
    assert value(metrics, "commands_total", **labels) == 1
    assert value(metrics, "command_seconds_sum", command="SetQuota") == 0.03


def test_a_refused_command_is_counted_with_the_reason_of_its_outcome() -> None:
    # given a command that cannot be read
    metrics = metrics_of()
    (item,) = proposed(content=b"").processed

    # when it is processed, once under a name that there is not
    count(metrics, item, "SetQuota", "failure", 0.03)
    count(metrics, item, "Invented", "failure", 0.03)

    # then both are counted, the second one without its name
    labels = {"result": "refused", "reason": "Invalid"}
    assert value(metrics, "commands_total", command="SetQuota", **labels) == 1
    assert value(metrics, "commands_total", command="unknown", **labels) == 1
    assert value(metrics, "command_seconds_count", command="unknown") == 1
    assert "Invented" not in page(metrics)


def test_an_exemplar_is_shown_in_openmetrics_only() -> None:
    # given a command and a commit of a trace
    metrics = metrics_of()
    (item,) = proposed().processed
    exemplar = exemplar_of("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")

    # when they are counted
    count(metrics, item, "SetQuota", "stored", 0.03, exemplar)
    metrics.count_commit(0.02, "stored", exemplar)

    # then the trace stands at the bucket of each histogram
    shown = [
        (sample.name, sample.labels["le"], sample.exemplar.labels, sample.exemplar.value)
        for family in openmetrics_families(page(metrics, Wanted(openmetrics=True)))  # type: ignore[no-untyped-call]
        for sample in family.samples
        if sample.exemplar is not None
    ]
    trace = {"trace_id": "0af7651916cd43dd8448eb211c80319c"}
    assert shown == [
        ("nodepool_message_age_seconds_bucket", "0.05", trace, 0.03),
        ("nodepool_command_seconds_bucket", "0.05", trace, 0.03),
        ("nodepool_commit_seconds_bucket", "0.02", trace, 0.02),
    ]

    # and nothing of it in the text format
    assert "trace_id" not in page(metrics)


@pytest.mark.parametrize(
    "traceparent",
    [None, "", "x" * 64, f"00-{'g' * 32}-{'0' * 16}-01", f"00-{'a' * 32}-{'b' * 16}-00"],
)
def test_a_message_without_a_trace_that_is_kept_makes_no_exemplar(traceparent: str | None) -> None:
    assert exemplar_of(traceparent) is None


def test_a_command_that_cannot_be_read_is_no_dead_letter_of_a_service() -> None:
    # given a command that cannot be read
    metrics = metrics_of()
    (item,) = proposed(content=b"").processed

    # when it is processed
    count(metrics, item, "SetQuota", "failure", 0.0)

    # then it is counted as a failure, and as a refusal in the place of a dead letter
    assert value(metrics, "messages_processed_total", message="SetQuota", outcome="failure") == 1
    assert value(metrics, "dead_letters_total") == 0


def test_a_failed_input_without_a_refusal_is_a_dead_letter() -> None:
    # given an input that fails and is no command
    metrics = metrics_of()
    (item,) = proposed(content=b"").processed

    # when it is processed
    count(metrics, item._replace(envelopes=()), "SetQuota", "failure", 0.0)

    # then it is counted as a dead letter
    assert value(metrics, "dead_letters_total") == 1


def test_an_age_below_zero_counts_as_zero() -> None:
    # given a machine whose clock is behind the server's
    metrics = metrics_of()
    (item,) = proposed().processed

    # when an input seems to come from the future
    count(metrics, item, "SetQuota", "stored", -5.0)

    # then its age is zero
    assert value(metrics, "message_age_seconds_sum") == 0


def test_commits_are_counted_by_result_and_timed() -> None:
    # given commits that end in different ways
    metrics = metrics_of()

    # when they are counted
    for result in ("stored", "stored", "conflict"):
        metrics.count_commit(0.5, result)

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
    before = page(metrics).count("nodepool_messages_processed_total{")

    # when it fails to read commands of names that it does not know
    for number in range(300):
        count(metrics, item, f"Invented{number}", "failure", 0.0)

    # then all of them are one series
    assert value(metrics, "messages_processed_total", message="unknown", outcome="failure") == 300
    assert page(metrics).count("nodepool_messages_processed_total{") == before + 1
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
    metrics = Metrics(SERVICE, Source(lambda: progress))
    before = gauges(metrics)

    # when it follows another one later
    progress = Progress(pending=0, committed=12, leading=False, failures=2)

    # then each scrape shows what held at the time
    assert list(before.values()) == [1, 1, 9, 1, 0]
    assert list(gauges(metrics).values()) == [1, 0, 0, 12, 2]


def test_a_replica_without_a_connection_says_so_and_shows_nothing_that_it_cannot_know() -> None:
    assert list(gauges(metrics_of(None)).values()) == [0, 0, None, None, None]


def test_a_replica_shows_how_long_its_oldest_input_waits_also_without_a_connection() -> None:
    metrics = Metrics(SERVICE, Source(oldest_input_age=lambda: 12.5))

    assert value(metrics, "oldest_input_age_seconds") == 12.5
    assert value(metrics, "ready") == 0


def test_figures_of_the_log_are_shown_wherever_they_are_known() -> None:
    def shown(progress: Progress) -> list[float | None]:
        metrics = Metrics(SERVICE, Source(lambda: progress))
        names = ("log_messages", "log_bytes", "storage_used_bytes", "storage_limit_bytes")
        return [value(metrics, name) for name in names]

    with_log = AT_WORK._replace(log=FIGURES)
    assert shown(with_log) == [5, 600, 900, 1000]
    assert shown(with_log._replace(log=FIGURES._replace(storage_limit=None)))[-1] is None
    # On a full disk no replica leads, and the figures are those that count.
    assert shown(with_log._replace(leading=False)) == [5, 600, 900, 1000]
    assert shown(AT_WORK) == [None] * 4


# Pages are made one after the other.


def test_a_scraper_that_comes_while_a_page_is_made_waits_for_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given a page that is being made
    begun, going_on = threading.Event(), threading.Event()

    def samples() -> Iterator[Sample]:
        begun.set()
        assert going_on.wait(10)
        yield from machines(1)

    metrics = Metrics(SERVICE, Source(lambda: AT_WORK, samples=samples))
    with ThreadPoolExecutor() as scrapers:
        first = scrapers.submit(metrics.page.pieces, Wanted())
        assert begun.wait(10)

        # when others want one, and the first takes longer than they may wait
        # then they have none
        monkeypatch.setattr("nodepool.host.page.PAGE_S", 0.01)
        assert metrics.page.pieces(Wanted()) is None

        # and they have it after the first where that is done in time
        monkeypatch.setattr("nodepool.host.page.PAGE_S", 10)
        second = scrapers.submit(metrics.page.pieces, Wanted())
        going_on.set()
        assert first.result()
        assert second.result()


def test_a_page_that_cannot_be_made_leaves_the_next_one_alone() -> None:
    def samples() -> Iterator[Sample]:
        yield Sample(MACHINES, ("Z", H100, "free", ""), Histogram((1,), 1.0))

    metrics = Metrics(SERVICE, Source(lambda: AT_WORK, samples=samples))
    for _ in range(2):
        with pytest.raises(TypeError, match="nodepool_machines is a gauge"):
            metrics.page.pieces(Wanted())


# The series of a state.


def machines(count: float) -> Iterator[Sample]:
    yield Sample(MACHINES, ("Z", H100, "free", ""), count)


def test_gauges_of_the_state_are_read_at_each_scrape() -> None:
    # given a leader with a gauge of its own
    count = 1.0
    metrics = Metrics(SERVICE, Source(lambda: AT_WORK, samples=lambda: machines(count)))

    # when it changes between two scrapes
    before = value(metrics, "machines", **FREE)
    count = 2.0
    after = value(metrics, "machines", **FREE)

    # then each shows its value at the time
    assert (before, after) == (1, 2)


@pytest.mark.parametrize(
    "progress", [Progress(pending=0, committed=7, leading=False, failures=0), None]
)
def test_only_a_leader_exports_the_gauges_of_its_state(progress: Progress | None) -> None:
    metrics = Metrics(SERVICE, Source(lambda: progress, samples=lambda: machines(1.0)))

    assert "nodepool_machines" not in page(metrics)
