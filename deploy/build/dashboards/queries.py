"""PromQL from the metrics of the contract: a name or a label that it lacks cannot be written."""

from typing import Final

from monitoring.recorded import RECORDED, recorded_name
from nodepool.contract import metrics
from nodepool.contract.conditions import AtTarget
from nodepool.contract.metrics import CLUSTER_LABEL, SERVICE_LABEL, Metric

RATE: Final = "$__rate_interval"
"""The window of a rate in a graph: at least four scrapes, and at least one step of the graph."""
RANGE: Final = "$__range"
"""What the whole dashboard shows."""
POOL: Final = f"org, {CLUSTER_LABEL}, pool"
"""The labels that identify a NodePool, as a list in PromQL."""
OFFERING: Final = "zone, instance_type"
IS_DELETED: Final = f'type="{AtTarget.__name__}",reason="{AtTarget.PENDING_DELETE.value}"'
"""The condition of a NodePool that is being deleted: it wants no Nodes, whatever its target is."""
_TARGET: Final = {SERVICE_LABEL, "job", "instance"}
"""Labels that every series has, whatever its metric."""
_MATCHERS: Final = {
    "org": 'org=~"$org"',
    CLUSTER_LABEL: f'{CLUSTER_LABEL}=~"$cluster"',
    "pool": 'pool=~"$pool"',
    "zone": 'zone=~"$zone"',
    "instance_type": 'instance_type=~"$instance_type"',
    SERVICE_LABEL: f'{SERVICE_LABEL}=~"$service"',
}
"""How each variable of a dashboard chooses series."""


def series(metric: Metric, *labels: str, where: str = "", suffix: str = "") -> str:
    """Return the series of a metric that the variables of the named labels choose.

    where: further matchers. suffix: `_bucket`, `_sum` or `_count` of a histogram. A counter or a
    histogram of a state is read from its recorded series, once for all replicas.
    """
    unknown = {*labels} - {*metric.labels} - _TARGET
    assert not unknown, f"{metric.name} has no label {unknown}"
    assert (metric.kind == "histogram") == bool(suffix), f"{metric.name}: {suffix!r}"
    matchers = ",".join([_MATCHERS[label] for label in labels] + ([where] if where else []))
    is_recorded = metric in RECORDED
    name = recorded_name(metric, suffix) if is_recorded else f"{metric.name}{suffix}"
    return name + (f"{{{matchers}}}" if matchers else "")


def of_pools(metric: Metric, where: str = "", by: str = POOL) -> str:
    """One series for each chosen NodePool, or for each combination of the labels `by`.

    While one replica takes over from another, both may have been scraped as the leader.
    """
    return f"max by ({by}) ({series(metric, 'org', CLUSTER_LABEL, where=where)})"


def with_offering(pools: str) -> str:
    """Series of NodePools with their zone, instance type and class, of those that are chosen."""
    labels = f"{OFFERING}, compute_class"
    chosen = series(metrics.INFO, "org", CLUSTER_LABEL, "zone", "instance_type")
    info = f"max by ({POOL}, {labels}) ({chosen})"
    return f"{pools} * on ({POOL}) group_left ({labels}) {info}"


def node_hours(uses: str, by: str) -> str:
    """Node-hours of the running month in UTC, of uses as a regular expression, up to now.

    The seconds are those up to the last change of a Node. To them comes the time since then, or
    since the month began, once for each Node.
    """
    month = "(time() - time() % 86400 - 86400 * (scalar(day_of_month()) - 1))"
    changed = series(metrics.NODE_USE_TIME)
    known, nodes = (
        series(metric, "org", "instance_type", where=f'use=~"{uses}"')
        for metric in (metrics.NODE_USE_SECONDS, metrics.NODES_BY_USE)
    )
    on = "* ignoring (org, instance_type, use) group_left ()"
    counted = f"{known} {on} ({changed} >= bool {month})"
    since = f"{nodes} {on} (time() - clamp_min({changed}, {month}))"
    hours = f"max by (org, instance_type, use) ({counted} + {since}) / 3600"
    return f"sum by ({by}) ({hours})"


def of_offerings(metric: Metric, by: str, where: str = "") -> str:
    """One series for each combination of labels, of the chosen zones and instance types."""
    return f"max by ({by}) ({series(metric, 'zone', 'instance_type', where=where)})"


def rate(metric: Metric, *labels: str, by: str, where: str = "", window: str = RATE) -> str:
    """Return how much of a counter there is a second, by labels."""
    chosen = series(metric, *labels, where=where)
    return f"sum by ({by}) (rate({chosen}[{window}]))"


def count(metric: Metric, *labels: str, by: str = "", where: str = "", window: str = RANGE) -> str:
    """Return how much of a counter there was in a window, by labels."""
    chosen = series(metric, *labels, where=where)
    total = f"sum by ({by})" if by else "sum"
    return f"{total} (increase({chosen}[{window}]))"


def buckets(metric: Metric, *labels: str, where: str = "", window: str = RATE) -> str:
    """Return a query for the buckets of a histogram, for a heatmap."""
    chosen = series(metric, *labels, where=where, suffix="_bucket")
    return f"sum by (le) (increase({chosen}[{window}]))"


def quantile(
    share: float, metric: Metric, *labels: str, by: str = "", where: str = "", window: str = RATE
) -> str:
    """Return a query for a quantile of a histogram, grouped by the labels `by`."""
    chosen = series(metric, *labels, where=where, suffix="_bucket")
    groups = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, sum by ({groups}) (rate({chosen}[{window}])))"
