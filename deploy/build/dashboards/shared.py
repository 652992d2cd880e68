"""What the dashboards have in common: variables, marks, links, the colors of what is known."""

from collections.abc import Mapping
from typing import Final

from dashboards.page import Annotation, Variable
from dashboards.panels import JSON, link
from dashboards.queries import RANGE, RATE, series
from nodepool.contract import metrics
from nodepool.contract.conditions import LOOKS, Look
from nodepool.contract.metrics import CLUSTER_LABEL, SERVICE_LABEL, Metric
from nodepool.contract.services import SERVICES

FLEET_UID: Final = "nodepool-fleet"
POOL_UID: Final = "nodepool-pool"
NODES_UID: Final = "nodepool-nodes"
SYSTEM_UID: Final = "nodepool-system"

_INFO: Final = metrics.INFO.name
_MACHINES: Final = metrics.MACHINES.name
ORG: Final = Variable("org", "Organisation", f"label_values({_INFO}, org)")
CLUSTER: Final = Variable(
    "cluster", "Cluster", f'label_values({_INFO}{{org=~"$org"}}, {CLUSTER_LABEL})'
)
ZONE: Final = Variable("zone", "Zone", f"label_values({_MACHINES}, zone)")
INSTANCE_TYPE: Final = Variable(
    "instance_type", "Instance type", f'label_values({_MACHINES}{{zone=~"$zone"}}, instance_type)'
)

_NAMES: Final = "|".join(SERVICES)
_WHERE_MACHINES_ARE_REAL: Final = "fleet"
"""The service that simulates machines: it is missed only where it was seen."""


def services_without(metric: Metric) -> str:
    """How many services have no replica of which this gauge is 1, those that are not seen included.

    Whatever is chosen on the dashboard, for what is not there cannot be chosen.
    """
    there = series(metric, where=f'{SERVICE_LABEL}=~"{_NAMES}"')
    simulated = series(metric, where=f'{SERVICE_LABEL}="{_WHERE_MACHINES_ARE_REAL}"')
    return (
        f"{len(SERVICES) - 1} "
        f"+ (count(group(last_over_time({simulated}[{RANGE}]))) or vector(0)) "
        f"- (count(max by ({SERVICE_LABEL}) ({there}) == 1) or vector(0))"
    )


_COLORS: Final = {
    Look.WELL: "green",
    Look.UNDER_WAY: "blue",
    Look.SHORT: "yellow",
    Look.BLOCKED: "orange",
    Look.WRONG: "red",
    Look.UNKNOWN: "purple",
}
IN_STATE: Final[Mapping[str, str]] = {reason: _COLORS[look] for reason, look in LOOKS.items()}
"""The color of each reason of a condition."""
REASONS: Final = tuple(LOOKS)
"""Every reason that a condition may have; its place, from 1, is its number in a timeline."""

TO_POOL: Final[JSON] = link(
    "Why is this NodePool as it is?",
    POOL_UID,
    org="${__data.fields.org}",
    cluster=f"${{__data.fields.{CLUSTER_LABEL}}}",
    pool="${__data.fields.pool}",
)
"""From a line of a table to the NodePool in it; fields go by the names that queries give them."""
FROM_SERIES: Final[JSON] = link(
    "Open this NodePool",
    POOL_UID,
    org="${__field.labels.org}",
    cluster=f"${{__field.labels.{CLUSTER_LABEL}}}",
    pool="${__field.labels.pool}",
)
"""From a series of a graph to its NodePool."""


def build_annotation(name: str, color: str, *messages: str) -> Annotation:
    """Return an annotation that marks the times at which any of these events was stored."""
    chosen = "|".join(messages)
    events = f'{metrics.MESSAGES_PUBLISHED.name}{{message=~"{chosen}"}}'
    expr = f"sum by (message) (increase({events}[{RATE}])) > 0"
    return Annotation(name, expr, color, name, "{{message}}")


EVENTS: Final = (
    build_annotation("Scaling", "blue", "CWNodePoolScaledUp", "CWNodePoolScaledDown"),
    build_annotation("Preemptions", "purple", "PreemptionPending", "CapacityReclaimed"),
    build_annotation(
        "Failures",
        "red",
        "MachineFailed",
        "CWNodeRegistrationFailed",
        "CWNodePoolNodesRemoveError",
        "CWNodeDeliverFail",
        "PreemptionFailed",
        "AllocationFailed",
    ),
    build_annotation(
        "Quota and capacity", "yellow", "CWOverQuota", "QuotaSet", "CWInsufficientCapacity"
    ),
)
"""The events of the whole fleet; counters of messages do not know of which NodePool they are."""
