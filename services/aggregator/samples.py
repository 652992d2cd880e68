"""The metrics of NodePools, Nodes, quotas and machines, computed at each scrape.

The duration of a scrape grows with the number of NodePools, limits and offerings, but not with the
number of Nodes, because Nodes are counted when they change. An object that does not exist, such as
a limit that is not set, has no series. An object that exists has its counters before the first
count.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from aggregator.counted_labels import AGES, DURATIONS, TRANSITIONS, of_offering
from aggregator.invariants import RULES
from aggregator.objects import CapacityObject, NodePoolObject, QuotaObject
from aggregator.state import State
from nodepool.contract.catalog import INSTANCE_TYPES
from nodepool.contract.keys import pool_path
from nodepool.contract.metrics import (
    ACTIVE_NODES,
    CONDITION_DURATION,
    CONDITION_SINCE,
    CONDITION_TRANSITIONS,
    CURRENT_NODES,
    GRANTED_NODES,
    IDLE_NODES,
    IN_PROGRESS_NODES,
    INFO,
    INVARIANT_LAST_POSITION,
    INVARIANT_VIOLATIONS,
    LOST_NODE_SECONDS,
    MACHINES,
    NODE_FAILURES,
    NODE_JOIN,
    NODE_REMOVALS,
    PREEMPTING_NODES,
    QUEUE_POSITION,
    QUEUED_NODES,
    QUOTA_LIMIT_NODES,
    QUOTA_USED_NODES,
    REMOVED_NODE_AGE,
    STATUS_CONDITION,
    TARGET_NODES,
    TIME_TO_TARGET,
    UNHEALTHY_NODES,
    Metric,
    Sample,
)
from nodepool.state.tallies import Labels, Levels

UNKNOWN: Final = "unknown"
"""The label for the instance type of a NodePool whose instance type does not exist."""


def samples(state: State) -> Iterator[Sample]:
    """Yield every series."""
    for pool in state.pools.values():
        yield from _pool(pool, state.node_figures.active)
    for quota in state.quotas.values():
        yield from _quota(quota)
    offerings = [each for each in state.capacity.values() if _exists(each)]
    for offering in offerings:
        yield from _offering(offering)
    yield from _figures(state, offerings)


def _pool(item: NodePoolObject, active_nodes: Levels) -> Iterator[Sample]:
    path = pool_path(item.key)
    spec = item.spec
    instance_type = spec.instance_type if spec.instance_type in INSTANCE_TYPES else UNKNOWN
    yield Sample(INFO, (*path, item.zone, instance_type, spec.compute_class.value), 1)
    yield Sample(TARGET_NODES, path, spec.target)
    yield Sample(GRANTED_NODES, path, item.grant)
    yield Sample(CURRENT_NODES, path, item.current)
    active = active_nodes.values.get(path, 0)
    yield Sample(ACTIVE_NODES, path, active)
    yield Sample(IDLE_NODES, path, item.current - active)
    yield Sample(IN_PROGRESS_NODES, path, item.in_progress)
    yield Sample(QUEUED_NODES, path, item.grant - item.held)
    if item.queue_position:
        yield Sample(QUEUE_POSITION, path, item.queue_position)
    for condition in item.conditions.values():
        verdict = condition.type, condition.status, condition.reason
        yield Sample(STATUS_CONDITION, path + verdict, 1)
        yield Sample(CONDITION_SINCE, (*path, condition.type), condition.since.timestamp())


def _quota(item: QuotaObject) -> Iterator[Sample]:
    if item.instance_type not in INSTANCE_TYPES or (item.limit is None and not item.used):
        return
    ledger = item.org, item.zone, item.instance_type
    if item.limit is not None:
        yield Sample(QUOTA_LIMIT_NODES, ledger, item.limit)
    yield Sample(QUOTA_USED_NODES, ledger, item.used)


def _offering(item: CapacityObject) -> Iterator[Sample]:
    """Yield the machines in service; `_figures` counts the other machines by cause."""
    counts = {"free": item.free, "assigned": item.assigned, "reclaimed": item.reclaimed}
    for machine_state, count in counts.items():
        if count or machine_state != "reclaimed":
            yield Sample(MACHINES, (item.zone, item.instance_type, machine_state, ""), count)


def _exists(item: CapacityObject) -> bool:
    """Return whether an offering has machines, and has an instance type that exists."""
    counts = (item.free, item.assigned, item.reclaimed, item.triage)
    return item.instance_type in INSTANCE_TYPES and any(counts)


def _figures(state: State, offerings: Sequence[CapacityObject]) -> Iterator[Sample]:
    """Yield the counts since the log began; each count that may ever occur starts at 0."""

    def known(metric: Metric) -> Iterator[Labels]:
        return chain(*(of_offering(metric, each.zone, each.instance_type) for each in offerings))

    of_pools, of_nodes = state.pool_figures, state.node_figures
    yield from of_nodes.unhealthy.samples(UNHEALTHY_NODES)
    yield from of_nodes.preempting.samples(PREEMPTING_NODES)
    yield from of_pools.transitions.samples(CONDITION_TRANSITIONS, TRANSITIONS)
    yield from of_pools.durations.samples(CONDITION_DURATION, DURATIONS)
    yield from of_pools.time_to_target.samples(TIME_TO_TARGET, known(TIME_TO_TARGET))
    yield from state.out_of_service.samples(MACHINES)
    yield from state.joins.samples(NODE_JOIN, known(NODE_JOIN))
    yield from of_nodes.failures.samples(NODE_FAILURES, known(NODE_FAILURES))
    yield from of_nodes.removals.samples(NODE_REMOVALS, known(NODE_REMOVALS))
    yield from of_nodes.ages.samples(REMOVED_NODE_AGE, AGES)
    yield from of_nodes.lost_seconds.samples(LOST_NODE_SECONDS, known(LOST_NODE_SECONDS))
    yield from state.violations.samples(INVARIANT_VIOLATIONS, INVARIANT_LAST_POSITION, RULES)
