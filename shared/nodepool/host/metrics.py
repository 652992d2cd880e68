"""The Prometheus metrics of a service.

Times are in seconds. The values of each label are bounded: they are names of the contract, results
that the code knows, or identities of objects that exist now. What a sender invents makes no series.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from nodepool.engine.proposal import Processed
from nodepool.service import I, Sample

SERVICE_LABEL = "nodepool_service"
"""The label with the service's name; `service` is one that Prometheus gives to its targets."""
UNKNOWN = "unknown"
"""The value of the label `message` for every name that the service has no class for."""
GAUGES = {
    "nodepool_refused_node_moves": "Messages that asked a Node for a move that cannot follow.",
    "nodepool_target_nodes": "Nodes that a NodePool should have.",
    "nodepool_current_nodes": "Nodes of a NodePool registered and not deleted.",
    "nodepool_in_progress_nodes": "Nodes of a NodePool assigned and not yet registered.",
    "nodepool_status_condition": "1 for the status and reason that a condition has now.",
    "nodepool_quota_limit_nodes": "Nodes an organisation may hold; absent where no limit is set.",
    "nodepool_quota_used_nodes": "Nodes an organisation is granted.",
    "nodepool_machines": "Machines by what they are doing.",
    "nodepool_preemption_stages": "Stages of preemptions that came at their moment or after it.",
    "nodepool_preemption_late_stages": "Those that came more than a second after their moment.",
    "nodepool_preemption_lateness_seconds": "How late the last stage of a preemption was.",
    "nodepool_preemption_lost_pods": "Pods that ran on when the time of a preemption was over.",
}
"""The help texts of the gauges that a service's state may show, by name."""
AGE_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 60)
COMMIT_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a replica is that is connected to the server.

    pending: messages not yet processed.
    committed: the position up to which all inputs are processed and stored.
    leading: whether the service's last commit is one of this replica.
    failures: inputs replayed with a recorded output that cannot be folded.
    """

    pending: int
    committed: int
    leading: bool
    failures: int


def _disconnected() -> None:
    return None


def _no_samples() -> Iterable[Sample]:
    return ()


@dataclass(frozen=True, slots=True)
class Source:
    """What is read from a replica at each scrape, in the thread that serves it.

    progress: how far it is; None while it is not connected.
    samples: the gauges of its state.
    """

    progress: Callable[[], Progress | None] = _disconnected
    samples: Callable[[], Iterable[Sample]] = _no_samples


class Metrics:
    """The metrics of one replica of a service, in a registry of their own.

    messages: the name of every message that the service hears or says.
    """

    def __init__(self, service: str, messages: Collection[str], source: Source) -> None:
        self.registry = CollectorRegistry()
        self._messages = frozenset(messages)
        self.registry.register(_Scraped(service, source))
        self._processed = self._counter(
            "messages_processed", "Inputs by type and outcome.", service, "message", "outcome"
        )
        self._published = self._counter(
            "messages_published", "Outputs stored, by type.", service, "message"
        )
        self._commits = self._counter("commits", "Commits by result.", service, "result")
        self._dead_letters = self._counter(
            "dead_letters",
            "Inputs and objects parked on the dead-letter subject.",
            service,
        )[()]
        self._reconnects = self._counter("reconnects", "Reconnects to the bus.", service)[()]
        self._age = self._histogram(
            "message_age", "From storing an input to storing its outputs.", service, AGE_BUCKETS
        )
        self._commit = self._histogram(
            "commit", "How long the bus took to store a commit.", service, COMMIT_BUCKETS
        )

    def _counter(self, name: str, help: str, service: str, *labels: str) -> "_Children":
        names = (SERVICE_LABEL, *labels)
        return _Children(Counter(f"nodepool_{name}", help, names, registry=self.registry), service)

    def _histogram(
        self, name: str, help: str, service: str, buckets: tuple[float, ...]
    ) -> Histogram:
        return Histogram(
            f"nodepool_{name}_seconds",
            help,
            [SERVICE_LABEL],
            registry=self.registry,
            buckets=buckets,
        ).labels(service)

    def processed(self, item: Processed[I], name: str, outcome: str, age: float) -> None:
        """Counts one processed input.

        name: the name on its subject; one that the service does not know counts as UNKNOWN.
        outcome: "stored", "quiet" or "failure". age: how many seconds ago the log stored it.
        """
        self._processed[name if name in self._messages else UNKNOWN, outcome].inc()
        if item.envelopes:
            self._age.observe(max(0.0, age))
            for output in item.envelopes:
                self._published[type(output.data).__name__,].inc()
        if item.parked is not None:
            self._dead_letters.inc()

    def committed(self, seconds: float, result: str) -> None:
        """Counts one commit and how long it took.

        `result` is "stored", "conflict", "in_doubt" or "failed", where the server refused it.
        """
        self._commits[result,].inc()
        self._commit.observe(seconds)

    def parked(self) -> None:
        """Counts an object of the read model that was parked on the dead-letter subject."""
        self._dead_letters.inc()

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


class _Scraped(Collector):
    """The gauges that are read from the replica at each scrape.

    What is unknown while it is not connected is left out, and `nodepool_connected` says why, as
    https://prometheus.io/docs/instrumenting/writing_exporters/#failed-scrapes has it. The gauges of
    the state are those of the leader alone, so that no sum over replicas counts an object twice.
    """

    def __init__(self, service: str, source: Source) -> None:
        self._service = service
        self._source = source

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The gauges as they are now, a family for each name."""
        now = self._source.progress()
        leading = now is not None and now.leading
        yield self._gauge(
            "connected", "1 while this replica is connected to the bus.", now is not None
        )
        yield self._gauge("leading", "1 if the last commit is one of this replica.", leading)
        if now is not None:
            yield self._gauge("pending_messages", "Messages not yet processed.", now.pending)
            yield self._gauge(
                "committed_position", "All inputs up to this position are committed.", now.committed
            )
            yield self._gauge(
                "replay_failures",
                "Inputs replayed with an output that cannot be folded.",
                now.failures,
            )
        if leading:
            yield from self._samples()

    def _gauge(self, name: str, help: str, value: float) -> GaugeMetricFamily:
        family = GaugeMetricFamily(f"nodepool_{name}", help, labels=[SERVICE_LABEL])
        family.add_metric([self._service], value)
        return family

    def _samples(self) -> Iterable[GaugeMetricFamily]:
        families: dict[str, GaugeMetricFamily] = {}
        for name, labels, value in self._source.samples():
            if name not in families:
                families[name] = GaugeMetricFamily(name, GAUGES[name], labels=list(labels))
            families[name].add_metric(list(labels.values()), value)
        return families.values()
