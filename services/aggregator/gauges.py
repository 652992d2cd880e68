"""The status of NodePools, quotas and machines as gauges, taken at each scrape."""

from collections.abc import Iterator

from aggregator.decide import State
from aggregator.objects import NodePoolObject

Sample = tuple[str, dict[str, str], float]


def gauges(state: State) -> Iterator[Sample]:
    """Name, labels and value of every gauge; one-hot for the status and reason of a condition."""
    for row in state.pools.values():
        yield from _pool(row)
    for quota in state.quotas.values():
        labels = {"org": quota.org, "zone": quota.zone, "instance_type": quota.instance_type}
        yield "nodepool_quota_limit_nodes", labels, float(quota.limit or 0)
        yield "nodepool_quota_used_nodes", labels, float(quota.used)
    for offering in state.capacity.values():
        labels = {"zone": offering.zone, "instance_type": offering.instance_type}
        for doing in ("free", "assigned", "triage"):
            yield "nodepool_machines", {**labels, "state": doing}, float(getattr(offering, doing))


def _pool(row: NodePoolObject) -> Iterator[Sample]:
    org, cluster, pool = row.of
    labels = {"org": org, "cluster": cluster, "pool": pool}
    yield "nodepool_target_nodes", labels, float(row.spec.target_nodes)
    yield "nodepool_current_nodes", labels, float(row.current)
    yield "nodepool_in_progress_nodes", labels, float(row.in_progress)
    for condition in row.conditions.values():
        held = {"type": condition.type, "status": condition.status, "reason": condition.reason}
        yield "nodepool_status_condition", {**labels, **held}, 1.0
