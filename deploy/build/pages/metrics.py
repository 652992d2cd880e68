"""The page of every metric, made from their list and from who uses it: `make metrics` writes it."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from contracts.services import load_services
from nodepool.contract import metrics
from nodepool.contract.agent_metrics import OF_THE_AGENT
from nodepool.contract.archive_metrics import OF_THE_ARCHIVER
from nodepool.contract.console_metrics import OF_THE_CONSOLE
from nodepool.contract.gateway_metrics import OF_THE_GATEWAY
from nodepool.contract.metal_metrics import OF_THE_DRIVER
from nodepool.contract.metrics import ALL, Metric
from nodepool.contract.real_machines import PROVIDER
from nodepool.contract.services import EDGES, SERVICES

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "deploy" / "METRICS.md"
HOST = ROOT / "shared" / "nodepool" / "host"
EDGE = HOST / "edge.py"
"""The module of what every edge exports."""
NAMES = {value: name for name, value in vars(metrics).items() if isinstance(value, Metric)}
"""The name of the constant of each metric."""
OF_THE_READ_MODEL = metrics.READ_MODEL_LAG, metrics.READ_MODEL_PENDING_OBJECTS
HEAD = """\
# Metrics

Every metric, in the order of `shared/nodepool/contract/metrics.py` and then of `agent_metrics.py`,
`gateway_metrics.py`, `archive_metrics.py`, `console_metrics.py` and `metal_metrics.py` beside it,
from which `make metrics` writes this page.
`/metrics` of each service shows them in Prometheus'
[text format](https://prometheus.io/docs/instrumenting/exposition_formats/), or as
[OpenMetrics](https://github.com/prometheus/OpenMetrics) where the request asks for that. All of
them have the label `nodepool_service` as well, and those of an agent also `org` and
`nodepool_cluster`, those of the cluster that it connects.

What is marked * only the replica that leads shows: it is about objects, or the log, which a sum
over replicas would count twice. "all" are the services of the control plane; the agent of a
cluster, the gateway, the archiver and the console show what names them.

| Metric | Type | Labels | Meaning | Services |
| --- | --- | --- | --- | --- |
"""
PROCESS = (
    ("process_start_time_seconds", "gauge", "When the process began, so that a restart is seen."),
    ("process_cpu_seconds_total", "counter", "Processor time that it has used."),
    ("process_resident_memory_bytes", "gauge", "Memory that it has."),
    ("process_virtual_memory_bytes", "gauge", "Memory that it may address."),
    ("process_open_fds", "gauge", "Files and connections that it has open."),
    ("process_max_fds", "gauge", "The most that it may have open."),
)
"""What is known of each process on Linux: name, type and meaning."""


def page() -> str:
    """Return the text of the page."""
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for row in (*_rows(), *_process_rows()))


def _rows() -> Iterator[tuple[str, ...]]:
    of_states = exported_by_states()
    writers = [service.name for service in load_services() if service.projection is not None]
    leader = ALL.index(metrics.LOG_MESSAGES), ALL.index(metrics.LOG_COPIES)
    for number, metric in enumerate(ALL):
        of_leader = leader[0] <= number <= leader[1]
        if metric in of_states:
            where = f"{', '.join(of_states[metric])} *"
        elif of_leader or metric in OF_THE_READ_MODEL:
            where = f"{', '.join(writers)}{' *' if of_leader else ''}"
        else:
            where = "all" if metric in of_replicas() else "none"
            where += "".join(f", {edge}" for edge in EDGES if metric in of_an_edge(edge))
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        yield f"`{metric.name}`", metric.kind, labels, metric.help, where
    of_edges = (OF_THE_AGENT, OF_THE_GATEWAY, OF_THE_ARCHIVER, OF_THE_CONSOLE, OF_THE_DRIVER)
    for edge, own in zip((*EDGES, PROVIDER), of_edges, strict=True):
        for metric in own:
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            yield f"`{metric.name}`", metric.kind, labels, metric.help, edge


def _process_rows() -> Iterator[tuple[str, ...]]:
    for name, kind, meaning in PROCESS:
        yield f"`{name}`", kind, "", meaning, ", ".join(("all", *EDGES))


def exported_by_states() -> dict[Metric, list[str]]:
    """Return, per metric, the services whose state exports the metric."""
    return _users({name: _files(name) for name in SERVICES})


def of_replicas() -> set[Metric]:
    """Return the metrics that each replica exports, whatever its state."""
    return set(_users({"host": {*HOST.rglob("*.py")} - {EDGE}}))


def of_an_edge(edge: str) -> set[Metric]:
    """Return the metrics of each replica that an edge exports as well."""
    return set(_users({edge: {*_files(edge), EDGE}}))


def _files(service: str) -> set[Path]:
    return set((ROOT / "services" / service).rglob("*.py"))


def _users(files: Mapping[str, Iterable[Path]]) -> dict[Metric, list[str]]:
    users: dict[Metric, list[str]] = {}
    for name, of_name in files.items():
        used = {used for file in of_name for used in _names(file)}
        for metric, constant in NAMES.items():
            if constant in used:
                users.setdefault(metric, []).append(name)
    return users


@cache
def _names(file: Path) -> frozenset[str]:
    """Return the names of the metric constants that a module uses."""
    names = set[str]()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == metrics.__name__:
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names.update([node.attr] * (node.value.id in ("contract", "metrics")))
    return frozenset(names)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
