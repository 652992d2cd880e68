"""The metrics that only the agent of a cluster exports, beside those of each replica."""

from typing import Final

from nodepool.contract.metrics import CLUSTER_LABEL, QUICK, Metric

PLACE_LABELS: Final = ("org", CLUSTER_LABEL)
"""The labels that every series of an agent has after `nodepool_service`: its cluster."""
FAILED: Final = "failed"
REFUSED: Final = "refused"
"""The results of actions that were not carried out; what is refused would be refused again."""

REQUESTS: Final = Metric(
    "nodepool_agent_requests_total",
    "counter",
    "Requests to the API server; the code is 0 where no reply came.",
    ("verb", "resource", "code"),
)
REQUEST_SECONDS: Final = Metric(
    "nodepool_agent_request_seconds",
    "histogram",
    "How long requests to the API server took, watches not counted.",
    ("verb",),
    QUICK,
)
RECONCILE_SECONDS: Final = Metric(
    "nodepool_agent_reconcile_seconds",
    "histogram",
    "How long it took to compare an object and to carry out what was missing.",
    ("kind",),
    QUICK,
)
ACTIONS: Final = Metric(
    "nodepool_agent_actions_total",
    "counter",
    "Actions by result; refused are those that the API server would refuse again.",
    ("action", "result"),
)
QUEUE: Final = Metric(
    "nodepool_agent_queue_length", "gauge", "Objects that wait to be compared by the agent."
)
OBJECTS: Final = Metric(
    "nodepool_agent_objects", "gauge", "Objects of the cluster that the agent knows.", ("kind",)
)
LAST_SYNC: Final = Metric(
    "nodepool_agent_last_sync_age_seconds",
    "gauge",
    "For how long the objects of a kind have not been listed anew.",
    ("kind",),
)
PODS_WAITING: Final = Metric(
    "nodepool_agent_pods_waiting", "gauge", "Pods for which the scheduler has found no Node."
)
OF_THE_AGENT: Final[tuple[Metric, ...]] = tuple(
    value for value in vars().values() if isinstance(value, Metric)
)
"""All of them, in the order of this module."""
