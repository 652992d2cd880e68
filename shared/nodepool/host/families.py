"""The counters, histograms and gauges of a process, made from the list of metrics."""

import re
from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)

from nodepool.contract.metrics import Metric

_TRACE: Final = re.compile("00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f][13579bdf]")
# Otherwise each counter and histogram gets an additional gauge with its creation time.
disable_created_metrics()  # type: ignore[no-untyped-call]  # As prometheus_client has it.

F = TypeVar("F", Counter, Gauge, Histogram)
Family = Counter | Gauge | Histogram


class Children(dict[tuple[str, ...], F], Generic[F]):
    """The counters, gauges or histograms of one metric of a service, by the values of its labels.

    They are cached, because a lookup in the family costs more than a count.
    """

    def __init__(
        self, make: Callable[[tuple[str, ...]], F], remove: Callable[[tuple[str, ...]], None]
    ) -> None:
        super().__init__()
        self._make: Callable[[tuple[str, ...]], F] = make
        self._remove: Callable[[tuple[str, ...]], None] = remove

    def __missing__(self, labels: tuple[str, ...]) -> F:
        child = self[labels] = self._make(labels)
        return child

    def forget(self, labels: tuple[str, ...]) -> None:
        """Export the series of these labels no more; it begins at 0 if it is counted again."""
        del self[labels]
        self._remove(labels)


class Families:
    """Makes the counters, gauges and histograms of one service of a process.

    A family exists once in a registry, so services share each family that they count in.

    shared: the labels of every series, which come before the labels of the metric.
    made: the families of the registry that exist, by name.
    """

    def __init__(
        self,
        shared: Mapping[str, str],
        registry: CollectorRegistry,
        made: dict[str, Family],
    ) -> None:
        self._names, self._values = tuple(shared), tuple(shared.values())
        self._registry = registry
        self._made = made

    def counters(self, metric: Metric) -> Children[Counter]:
        """Return the counters of a metric."""
        return self._children(Counter, metric)

    def counter(self, metric: Metric) -> Counter:
        """Return the counter of a metric without labels, which exists at once."""
        return self.counters(metric)[()]

    def gauge(self, metric: Metric) -> Gauge:
        """Return the gauge of a metric without labels, which exists at once, at 0."""
        return self._children(Gauge, metric)[()]

    def histograms(self, metric: Metric) -> Children[Histogram]:
        """Return the histograms of a metric."""
        return self._children(Histogram, metric)

    def histogram(self, metric: Metric) -> Histogram:
        """Return the histogram of a metric without labels, which exists at once."""
        return self.histograms(metric)[()]

    def _children(self, kind: type[F], metric: Metric) -> Children[F]:
        family = self._made.get(metric.name)
        if family is None:
            family = self._made[metric.name] = self._make(metric)
        assert isinstance(family, kind), f"{metric.name} is a {metric.kind}"
        return Children(
            lambda labels: family.labels(*self._values, *labels),
            lambda labels: family.remove(*self._values, *labels),
        )

    def _make(self, metric: Metric) -> Family:
        name, text, names = metric.name, metric.help, (*self._names, *metric.labels)
        if metric.kind == "counter":
            return Counter(name, text, names, registry=self._registry)
        if metric.kind == "gauge":
            return Gauge(name, text, names, registry=self._registry)
        return Histogram(name, text, names, registry=self._registry, buckets=metric.buckets)


def exemplar_of(traceparent: str | None) -> dict[str, str] | None:
    """Return the exemplar of a message, its trace; None if the message has no sampled trace.

    The exemplar takes 40 characters of the 128 that OpenMetrics allows, see
    https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md#exemplars.
    """
    match = _TRACE.fullmatch(traceparent or "")
    return {"trace_id": match[1]} if match else None
