"""What Prometheus records once for all replicas of a service: the counters of its state.

A state is a fold of the log, so each replica that leads shows the same counts. One that goes on in
the series of another instance has not grown for `increase()`, see
https://prometheus.io/docs/prometheus/latest/querying/functions/#increase. So each is recorded
without the labels that tell replicas apart, and rules and panels read that series; its name is made
as https://prometheus.io/docs/practices/rules/ has it.
"""

from collections.abc import Mapping
from typing import Final

from nodepool.contract.metrics import ALL, Metric
from pages.metrics import exported_by_states

OF_REPLICAS: Final = (
    "instance",
    "job",
    "pod",
    "container",
    "endpoint",
    "node",
    "pod_template_hash",
)
"""The labels of targets that may differ between the replicas of a service."""
_OF_STATES: Final = exported_by_states().keys()
RECORDED: Final = tuple(it for it in ALL if it.kind != "gauge" and it in _OF_STATES)
"""The counters and histograms of states, in the order of the list of metrics."""


def suffixes(metric: Metric) -> tuple[str, ...]:
    """Return the suffixes that the names of a metric's series add to the name of the metric."""
    return ("_bucket", "_count", "_sum") if metric.kind == "histogram" else ("",)


def recorded_name(metric: Metric, suffix: str = "") -> str:
    """Return the name of the recorded series of a metric; `suffix` is one of `suffixes`."""
    return f"nodepool:{metric.name}{suffix}:max"


def recording_rules() -> list[Mapping[str, str]]:
    """Return the Prometheus rules that record the metrics in `RECORDED`."""
    labels = ", ".join(OF_REPLICAS)
    return [
        {
            "record": recorded_name(metric, suffix),
            "expr": f"max without ({labels}) ({metric.name}{suffix})",
        }
        for metric in RECORDED
        for suffix in suffixes(metric)
    ]
