"""Counters, histograms and levels by their labels, as immutable values.

They are part of a service's state: they follow from the log, survive restarts, and are the same in
all replicas.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from immutables import Map

from nodepool.contract.metrics import Histogram, Metric, Sample

Labels = tuple[str, ...]
"""The label values of a metric, in the order of its labels."""
SERIES_MAX: Final = 10_000
"""The most series of one metric; further series are counted with `OTHER` for each label."""
OTHER: Final = "other"


class _ByLabels(ABC):
    """Values by labels."""

    __slots__ = ()

    @property
    @abstractmethod
    def values(self) -> Mapping[Labels, float | Histogram]:
        """The values of the metric, by its label values."""

    def samples(self, metric: Metric, known: Iterable[Labels] = ()) -> Iterator[Sample]:
        """Yield a sample per series, sorted by labels; 0 for a known series without a value.

        A counter that begins with its first count has not grown for `increase()`, see
        https://prometheus.io/docs/practices/instrumentation/#avoid-missing-metrics.
        """
        values = {**dict.fromkeys(known, _nothing(metric)), **self.values}
        for labels, value in sorted(values.items(), key=itemgetter(0)):
            yield Sample(metric, labels, value)


def _nothing(metric: Metric) -> float | Histogram:
    """Return the value that a metric shows before its first count."""
    is_histogram = metric.kind == "histogram"
    return Histogram((0,) * (len(metric.buckets) + 1), 0.0) if is_histogram else 0


@dataclass(frozen=True, slots=True)
class Counters(_ByLabels):
    """Values that only grow, by labels."""

    values: Map[Labels, float] = Map()

    def add(self, *labels: str, by: float = 1) -> "Counters":
        """Return the counters with the counter of these labels increased by `by`."""
        labels = labels if labels in self.values else _limit_labels(self.values, labels)
        return Counters(self.values.set(labels, self.values.get(labels, 0) + by))


@dataclass(frozen=True, slots=True)
class Histograms(_ByLabels):
    """How often each range of values was observed, by labels."""

    values: Map[Labels, Histogram] = Map()

    def observe(self, metric: Metric, value: float, *labels: str) -> "Histograms":
        """Return the histograms with one more value; a histogram of other buckets starts again."""
        buckets = metric.buckets
        before = self.values.get(labels)
        if before is None:
            labels = _limit_labels(self.values, labels)
            before = self.values.get(labels)
        if before is None or len(before.counts) != len(buckets) + 1:
            before = Histogram((0,) * (len(buckets) + 1), 0.0)
        counts = list(before.counts)
        counts[bisect_left(buckets, value)] += 1  # Upper bounds are inclusive.
        return Histograms(self.values.set(labels, Histogram(tuple(counts), before.sum + value)))


@dataclass(frozen=True, slots=True)
class Levels(_ByLabels):
    """The current number of items, by labels; labels without items are not kept."""

    values: Map[Labels, int] = Map()

    def move(self, before: Labels | None, after: Labels | None) -> "Levels":
        """Return the levels after an item got other labels; None stands for no item."""
        if before == after:
            return self
        values = self.values
        if before is not None:
            values = _change_level(values, before, -1)
        return Levels(values if after is None else _change_level(values, after, 1))


@dataclass(frozen=True, slots=True)
class Violations:
    """How often each rule that must always hold was broken.

    counts: how often, by rule.
    last: the log position of the message that broke the rule last, by rule.
    """

    counts: Counters = Counters()
    last: Map[str, int] = Map()

    def add(self, invariant: str, position: int) -> "Violations":
        """Return the violations with one more broken rule, by the message at this position."""
        return Violations(self.counts.add(invariant), self.last.set(invariant, position))

    def samples(self, count: Metric, last: Metric, rules: Iterable[str]) -> Iterator[Sample]:
        """Yield the count of each rule, 0 if it always held, and where it was broken last."""
        yield from self.counts.samples(count, ((rule,) for rule in rules))
        for invariant, position in sorted(self.last.items()):
            yield Sample(last, (invariant,), position)


def _limit_labels(values: Map[Labels, object], labels: Labels) -> Labels:
    """Return the labels of a new series, or `OTHER` for each label if there are too many series."""
    return labels if len(values) < SERIES_MAX else (OTHER,) * len(labels)


def _change_level(values: Map[Labels, int], labels: Labels, change: int) -> Map[Labels, int]:
    level = values.get(labels, 0) + change
    if level:
        return values.set(labels, level)
    return values.delete(labels) if labels in values else values
