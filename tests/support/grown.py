"""What of the samples of a state has been counted."""

from collections.abc import Iterable, Iterator

from nodepool.contract.metrics import Histogram, Metric, Sample


def grown(samples: Iterable[Sample]) -> Iterator[Sample]:
    """The samples but for counters and histograms that are still at 0."""
    for sample in samples:
        if sample.metric.kind == "gauge" or _total(sample):
            yield sample


def from_nothing(
    samples: Iterable[Sample], before: Iterable[Sample]
) -> list[tuple[Metric, tuple[str, ...]]]:
    """What has been counted and was not there at 0 before, by metric and labels."""
    known = {(metric, labels) for metric, labels, _ in before}
    counted = ((it.metric, it.labels) for it in grown(samples) if it.metric.kind != "gauge")
    return [item for item in counted if item not in known]


def _total(sample: Sample) -> float:
    value = sample.value
    return sum(value.counts) if isinstance(value, Histogram) else value
