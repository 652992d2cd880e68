"""The status of NodePools, quotas and machines as gauges, computed at each scrape.

What does not exist has no gauge, such as a limit that is not set, or an instance type that is not
in the catalog.
"""

from collections.abc import Iterator

from aggregator.objects import CapacityObject, NodePoolObject, QuotaObject
from aggregator.state import State
from nodepool.contract.catalog import INSTANCE_TYPES
from nodepool.contract.keys import pool_path
from nodepool.service import Sample

CLUSTER_LABEL = "nodepool_cluster"
"""The label with a NodePool's cluster; `cluster` is one that Prometheus gives to its targets."""


def gauges(state: State) -> Iterator[Sample]:
    """Every gauge; for each condition one of value 1, whose labels are its status and reason."""
    for pool in state.pools.values():
        yield from _pool(pool)
    for quota in state.quotas.values():
        yield from _quota(quota)
    for offering in state.capacity.values():
        yield from _offering(offering)


def _pool(item: NodePoolObject) -> Iterator[Sample]:
    org, cluster, pool = pool_path(item.key)
    labels = {"org": org, CLUSTER_LABEL: cluster, "pool": pool}
    yield "nodepool_target_nodes", labels, float(item.spec.target)
    yield "nodepool_current_nodes", labels, float(item.current)
    yield "nodepool_in_progress_nodes", labels, float(item.in_progress)
    for condition in item.conditions.values():
        verdict = {"type": condition.type, "status": condition.status, "reason": condition.reason}
        yield "nodepool_status_condition", {**labels, **verdict}, 1.0


def _quota(item: QuotaObject) -> Iterator[Sample]:
    if item.instance_type not in INSTANCE_TYPES or (item.limit is None and not item.used):
        return
    labels = {"org": item.org, "zone": item.zone, "instance_type": item.instance_type}
    if item.limit is not None:
        yield "nodepool_quota_limit_nodes", labels, float(item.limit)
    yield "nodepool_quota_used_nodes", labels, float(item.used)


def _offering(item: CapacityObject) -> Iterator[Sample]:
    counts = {"free": item.free, "assigned": item.assigned, "triage": item.triage}
    if item.reclaimed:
        counts["reclaimed"] = item.reclaimed
    if item.instance_type not in INSTANCE_TYPES or not any(counts.values()):
        return
    labels = {"zone": item.zone, "instance_type": item.instance_type}
    for machine_state, count in counts.items():
        yield "nodepool_machines", {**labels, "state": machine_state}, float(count)
