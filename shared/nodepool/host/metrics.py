"""The Prometheus metrics of a service. Dashboards and alerts use these names: none is ever renamed.

Times are in seconds.
"""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from nodepool.engine.proposal import Processed
from nodepool.service import I, Sample

Samples = Callable[[], Iterable[Sample]]

GAUGES = {
    "nodepool_target_nodes": "Nodes that a NodePool should have.",
    "nodepool_current_nodes": "Nodes of a NodePool registered and not deleted.",
    "nodepool_in_progress_nodes": "Nodes of a NodePool assigned and not yet registered.",
    "nodepool_status_condition": "1 for the status and reason that a condition has now.",
    "nodepool_quota_limit_nodes": "Nodes an organisation may hold.",
    "nodepool_quota_used_nodes": "Nodes an organisation is granted.",
    "nodepool_machines": "Machines by what they are doing.",
}
"""The help texts of the gauges that a service's state may show, by name."""
AGE_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 60)
COMMIT_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5)


class Metrics:
    """The metrics of one replica of a service, in a registry of their own."""

    def __init__(self, service: str, samples: Samples | None = None) -> None:
        self.registry = CollectorRegistry()
        if samples is not None:
            self.registry.register(_Sampled(samples))
        self._processed = self._counter(
            "messages_processed", "Inputs by type and outcome.", service, "message", "outcome"
        )
        self._published = self._counter(
            "messages_published", "Outputs stored, by type.", service, "message"
        )
        self._commits = self._counter("commits", "Commits by result.", service, "result")
        self._dead_letters = self._counter(
            "dead_letters", "Inputs parked on the dead-letter subject.", service
        )[()]
        self._reconnects = self._counter("reconnects", "Reconnects to the bus.", service)[()]
        self._age = self._histogram(
            "message_age", "From storing an input to storing its outputs.", service, AGE_BUCKETS
        )
        self._commit = self._histogram(
            "commit", "How long the bus took to store a commit.", service, COMMIT_BUCKETS
        )
        self._position = self._gauge(
            "committed_position", "All inputs up to this position are committed.", service
        )
        self._pending = self._gauge("pending_messages", "Messages not yet processed.", service)
        self._leading = self._gauge("leading", "1 while this replica leads.", service)
        self._replay_failures = self._gauge(
            "replay_failures", "Inputs replayed with an output that cannot be folded.", service
        )

    def _counter(self, name: str, help: str, service: str, *labels: str) -> "_Children":
        names = ("service", *labels)
        return _Children(Counter(f"nodepool_{name}", help, names, registry=self.registry), service)

    def _gauge(self, name: str, help: str, service: str) -> Gauge:
        gauge = Gauge(f"nodepool_{name}", help, ["service"], registry=self.registry)
        return gauge.labels(service)

    def _histogram(
        self, name: str, help: str, service: str, buckets: tuple[float, ...]
    ) -> Histogram:
        return Histogram(
            f"nodepool_{name}_seconds", help, ["service"], registry=self.registry, buckets=buckets
        ).labels(service)

    def processed(self, item: Processed[I], name: str, outcome: str, age: float) -> None:
        """Counts one processed input; `age` is how many seconds ago the log stored it."""
        self._processed[name, outcome].inc()
        if item.envelopes:
            self._age.observe(max(0.0, age))
            for output in item.envelopes:
                self._published[output.type,].inc()
        if item.parked is not None:
            self._dead_letters.inc()

    def committed(self, seconds: float, result: str) -> None:
        """Counts one commit and how long it took.

        `result` is "stored", "conflict", "in_doubt" or "failed", where the server refused it.
        """
        self._commits[result,].inc()
        self._commit.observe(seconds)

    def progress(self, pending: int, committed: int, leading: bool, failures: int) -> None:
        """Sets how far the replica is.

        pending: messages not yet processed. committed: the committed position. leading: whether it
        leads. failures: inputs replayed with an output that cannot be folded.
        """
        self._pending.set(pending)
        self._position.set(committed)
        self._leading.set(leading)
        self._replay_failures.set(failures)

    def reconnected(self) -> None:
        """Counts one reconnect."""
        self._reconnects.inc()


class _Children(dict[tuple[str, ...], Counter]):
    """The counters of one family by their labels, kept because a lookup costs more than a count."""

    def __init__(self, family: Counter, service: str) -> None:
        super().__init__()
        self._family = family
        self._service = service

    def __missing__(self, labels: tuple[str, ...]) -> Counter:
        child = self[labels] = self._family.labels(self._service, *labels)
        return child


class _Sampled(Collector):
    """Gauges that are read from a service's state at each scrape."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The gauges as they are now, a family for each name."""
        families: dict[str, GaugeMetricFamily] = {}
        for name, labels, value in self._samples():
            if name not in families:
                families[name] = GaugeMetricFamily(name, GAUGES[name], labels=list(labels))
            families[name].add_metric(list(labels.values()), value)
        yield from families.values()
