"""The counters and histograms of a process, made from the list of metrics."""

import re
from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

from nodepool.contract.metrics import Metric

_TRACE: Final = re.compile("00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f][13579bdf]")
# Otherwise each counter and histogram gets an additional gauge with its creation time.
disable_created_metrics()  # type: ignore[no-untyped-call]  # As prometheus_client has it.

F = TypeVar("F", Counter, Histogram)


class Children(dict[tuple[str, ...], F], Generic[F]):
    """The counters or histograms of one metric of a service, by the values of its labels.

    They are cached, because a lookup in the family costs more than a count.
    """

    def __init__(self, make: Callable[[tuple[str, ...]], F]) -> None:
        super().__init__()
        self._make: Callable[[tuple[str, ...]], F] = make

    def __missing__(self, labels: tuple[str, ...]) -> F:
        child = self[labels] = self._make(labels)
        return child


class Families:
    """Makes the counters and histograms of the services of a process in one registry.

    A family exists once in a registry, so that the services share each family that they count in.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._made: dict[str, Counter | Histogram] = {}

    def of(self, shared: Mapping[str, str]) -> "ServiceFamilies":
        """Return the families of a service; `shared` are the labels of all its series."""
        return ServiceFamilies(self, shared)

    def make(self, kind: type[F], metric: Metric, names: tuple[str, ...]) -> F:
        """Return the family of a metric with these labels; make it if it does not exist."""
        made = self._made.get(metric.name)
        if made is None:
            buckets = {"buckets": metric.buckets} if metric.buckets else {}
            made = kind(metric.name, metric.help, names, registry=self._registry, **buckets)  # type: ignore[arg-type]  # Only histograms have buckets.
            self._made[metric.name] = made
        assert isinstance(made, kind), f"{metric.name} is of another kind"
        return made


class ServiceFamilies:
    """Makes the metrics of one service.

    shared: the labels of every series, which come before the labels of the metric.
    """

    def __init__(self, families: Families, shared: Mapping[str, str]) -> None:
        self._families = families
        self._names, self._values = tuple(shared), tuple(shared.values())

    def counters(self, metric: Metric) -> Children[Counter]:
        """Return the counters of a metric."""
        return self._children(Counter, metric)

    def counter(self, metric: Metric) -> Counter:
        """Return the counter of a metric without labels, which exists at once."""
        return self.counters(metric)[()]

    def histograms(self, metric: Metric) -> Children[Histogram]:
        """Return the histograms of a metric."""
        return self._children(Histogram, metric)

    def histogram(self, metric: Metric) -> Histogram:
        """Return the histogram of a metric without labels, which exists at once."""
        return self.histograms(metric)[()]

    def _children(self, kind: type[F], metric: Metric) -> Children[F]:
        family = self._families.make(kind, metric, (*self._names, *metric.labels))
        return Children(lambda labels: family.labels(*self._values, *labels))


def exemplar_of(traceparent: str | None) -> dict[str, str] | None:
    """Return the exemplar of a message, its trace; None if the message has no sampled trace.

    The exemplar takes 40 characters of the 128 that OpenMetrics allows, see
    https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md#exemplars.
    """
    match = _TRACE.fullmatch(traceparent or "")
    return {"trace_id": match[1]} if match else None
