"""The status of NodePools, quotas and machines as gauges, computed at each scrape."""

from collections.abc import Iterator

from aggregator.objects import NodePoolObject
from aggregator.state import State
from nodepool.contract.keys import pool_path
from nodepool.service import Sample


def gauges(state: State) -> Iterator[Sample]:
    """Every gauge; for each condition one of value 1, whose labels are its status and reason."""
    for pool in state.pools.values():
        yield from _pool(pool)
    for quota in state.quotas.values():
        labels = {"org": quota.org, "zone": quota.zone, "instance_type": quota.instance_type}
        yield "nodepool_quota_limit_nodes", labels, float(quota.limit or 0)
        yield "nodepool_quota_used_nodes", labels, float(quota.used)
    for offering in state.capacity.values():
        labels = {"zone": offering.zone, "instance_type": offering.instance_type}
        counts = (
            ("free", offering.free),
            ("assigned", offering.assigned),
            ("triage", offering.triage),
        )
        for machine_state, count in counts:
            yield "nodepool_machines", {**labels, "state": machine_state}, float(count)


def _pool(item: NodePoolObject) -> Iterator[Sample]:
    org, cluster, pool = pool_path(item.key)
    labels = {"org": org, "cluster": cluster, "pool": pool}
    yield "nodepool_target_nodes", labels, float(item.spec.target_nodes)
    yield "nodepool_current_nodes", labels, float(item.current)
    yield "nodepool_in_progress_nodes", labels, float(item.in_progress)
    for condition in item.conditions.values():
        verdict = {"type": condition.type, "status": condition.status, "reason": condition.reason}
        yield "nodepool_status_condition", {**labels, **verdict}, 1.0
