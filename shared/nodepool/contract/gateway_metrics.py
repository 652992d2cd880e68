"""The metrics that only the gateway exports, beside those of each replica."""

from typing import Final

from nodepool.contract.metrics import QUICK, Metric

STORED: Final = "stored"
ANSWERED: Final = "answered"
"""The results of messages and queries that are not refused; others have the reason."""

TAKEN: Final = Metric(
    "nodepool_gateway_messages_total",
    "counter",
    "Commands and observations of an organisation, by result: stored, or why they were refused.",
    ("endpoint", "org", "result"),
)
QUERIES: Final = Metric(
    "nodepool_gateway_queries_total",
    "counter",
    "Queries by result: answered, or why they were refused.",
    ("query", "result"),
)
SECONDS: Final = Metric(
    "nodepool_gateway_seconds",
    "histogram",
    "How long messages and queries took from their arrival to the reply; Watch is left out.",
    ("endpoint",),
    QUICK,
)
WAITING: Final = Metric(
    "nodepool_gateway_waiting",
    "gauge",
    "Messages and queries that wait or are in work.",
    ("endpoint",),
)
BYTES: Final = Metric(
    "nodepool_gateway_stored_bytes",
    "gauge",
    "What an organisation has used of its storage budget within the last hour at this replica.",
    ("org",),
)
BYTES_MAX: Final = Metric(
    "nodepool_gateway_storage_budget_bytes",
    "gauge",
    "How many bytes each organisation may have stored within an hour by this replica.",
)
OF_THE_GATEWAY: Final[tuple[Metric, ...]] = tuple(
    value for value in vars().values() if isinstance(value, Metric)
)
"""All of them, in the order of this module."""
