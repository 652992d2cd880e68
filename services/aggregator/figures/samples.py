"""The metrics of NodePools, Nodes, quotas and machines, computed at each scrape.

The duration of a scrape grows with the number of NodePools, limits and offerings, but not with the
number of Nodes, because Nodes are counted when they change. An object that does not exist, such as
a limit that is not set, has no series. An object that exists has its counters before the first
count.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, get_args

from aggregator.figures.pools import DIRECTIONS
from aggregator.figures.state import Figures
from aggregator.objects import CapacityObject, NodePoolObject, QuotaObject
from aggregator.read_model import ReadModel
from aggregator.real_machines import ONBOARD
from nodepool.contract import metrics
from nodepool.contract.catalog import INSTANCE_TYPES
from nodepool.contract.conditions import (
    AtTarget,
    Capacity,
    NodesRemoved,
    Quota,
    Validated,
    status_of,
)
from nodepool.contract.invariants import RULES
from nodepool.contract.keys import pool_path
from nodepool.contract.metrics import Metric, Sample
from nodepool.contract.model import ComputeClass, RemovalReason
from nodepool.contract.node_failures import CORDON_CAUSES, PROBLEMS, NodeFailure
from nodepool.contract.real_machines import MachineCondition
from nodepool.state.tallies import Labels, Levels
from nodepool.usage.uses import PREEMPTION, VERIFICATION

UNKNOWN: Final = "unknown"
"""The label for the instance type of a NodePool whose instance type does not exist."""
_TRANSITIONS: Final = tuple(
    (kind.__name__, status_of(reason), reason.value)
    for kind in (Validated, Quota, Capacity, AtTarget, NodesRemoved)
    for reason in kind
)
_DURATIONS: Final = tuple(dict.fromkeys((kind, status) for kind, status, _ in _TRANSITIONS))
_AGES: Final = tuple((reason.value,) for reason in RemovalReason)
_FAILURES: Final = tuple((cause,) for cause in (*(it.value for it in NodeFailure), *PROBLEMS))
_LOST: Final = tuple(
    (cause,)
    for cause in dict.fromkeys(
        (*PROBLEMS, *CORDON_CAUSES, NodeFailure.OTHER.value, PREEMPTION, VERIFICATION)
    )
)
_TIMES: Final = tuple((each.value, way) for each in ComputeClass for way in DIRECTIONS)
_PROBLEMS: Final = get_args(MachineCondition)
_MAINTENANCE: Final = "Maintenance"
_ENDS: Final = ("done", "refused", "unknown", "overdue")
_OF_OFFERING: Final = {
    metrics.NODE_FAILURES: _FAILURES,
    metrics.NODE_JOIN: ((),),
    metrics.NODE_REMOVALS: _AGES,
    metrics.LOST_NODE_SECONDS: _LOST,
    metrics.TIME_TO_TARGET: _TIMES,
}
"""The labels of each metric that counts by offering: 35 counters and 5 histograms."""


def samples(model: ReadModel, figures: Figures) -> Iterator[Sample]:
    """Yield every series."""
    for pool in model.pools.values():
        yield from _pool(pool, figures.nodes.active)
    for quota in model.quotas.values():
        yield from _quota(quota)
    offerings = [each for each in model.capacity.values() if _exists(each)]
    for offering in offerings:
        yield from _offering(offering)
    yield from _figures(figures, offerings)
    yield from _real_machines(model, figures)


def _pool(item: NodePoolObject, active_nodes: Levels) -> Iterator[Sample]:
    path = pool_path(item.key)
    spec = item.spec
    instance_type = spec.instance_type if spec.instance_type in INSTANCE_TYPES else UNKNOWN
    yield Sample(metrics.INFO, (*path, item.zone, instance_type, spec.compute_class.value), 1)
    yield Sample(metrics.TARGET_NODES, path, spec.target)
    yield Sample(metrics.GRANTED_NODES, path, item.kept)
    yield Sample(metrics.CURRENT_NODES, path, item.current)
    active = active_nodes.values.get(path, 0)
    yield Sample(metrics.ACTIVE_NODES, path, active)
    yield Sample(metrics.IDLE_NODES, path, item.current - active)
    yield Sample(metrics.IN_PROGRESS_NODES, path, item.in_progress)
    yield Sample(metrics.QUEUED_NODES, path, item.grant - item.held)
    if item.queue_position:
        yield Sample(metrics.QUEUE_POSITION, path, item.queue_position)
    for condition in item.conditions.values():
        verdict = condition.type, condition.status, condition.reason
        yield Sample(metrics.STATUS_CONDITION, path + verdict, 1)
        yield Sample(metrics.CONDITION_SINCE, (*path, condition.type), condition.since.timestamp())


def _quota(item: QuotaObject) -> Iterator[Sample]:
    if item.instance_type not in INSTANCE_TYPES or (item.limit is None and not item.used):
        return
    ledger = item.org, item.zone, item.instance_type
    if item.limit is not None:
        yield Sample(metrics.QUOTA_LIMIT_NODES, ledger, item.limit)
    yield Sample(metrics.QUOTA_USED_NODES, ledger, item.used)


def _offering(item: CapacityObject) -> Iterator[Sample]:
    """Yield the machines in service, wiped ones too; `_figures` counts the others by cause."""
    counts = {
        "free": item.free,
        "assigned": item.assigned,
        "reclaimed": item.reclaimed,
        "zap": item.zap,
    }
    for machine_state, count in counts.items():
        if count or machine_state in ("free", "assigned"):
            yield Sample(
                metrics.MACHINES, (item.zone, item.instance_type, machine_state, ""), count
            )


def _real_machines(model: ReadModel, figures: Figures) -> Iterator[Sample]:
    """Yield the problems of real machines; a cell without real machines has no series.

    A machine that is declared and was never added is out of service as `onboard`.
    """
    conditions: Counter[Labels] = Counter()
    onboard: Counter[Labels] = Counter()
    for key, real in model.real.items():
        offering = real.zone, real.instance_type
        conditions[*offering, _MAINTENANCE] += real.maintained is not None
        for type_ in _PROBLEMS:
            conditions[*offering, type_] += type_ in real.problems
        if key not in model.machines:
            onboard[*offering, ONBOARD, min(real.problems, default="")] += 1
    for metric, counts in ((metrics.REAL_MACHINES, conditions), (metrics.MACHINES, onboard)):
        for labels, count in sorted(counts.items()):
            yield Sample(metric, labels, count)
    zones = sorted({zone for zone, _, _ in conditions})
    known = [(zone, outcome) for zone in zones for outcome in _ENDS]
    yield from figures.power_requests.samples(metrics.POWER_REQUESTS, known)


def _exists(item: CapacityObject) -> bool:
    """Return whether an offering has machines, and has an instance type that exists."""
    counts = (item.free, item.assigned, item.reclaimed, item.triage, item.zap)
    return item.instance_type in INSTANCE_TYPES and any(counts)


def _figures(figures: Figures, offerings: Sequence[CapacityObject]) -> Iterator[Sample]:
    """Yield the counts since the log began; each count that may ever occur starts at 0."""

    def list_labels(metric: Metric) -> Iterator[Labels]:
        for each in offerings:
            for rest in _OF_OFFERING[metric]:
                yield (each.zone, each.instance_type, *rest)

    pools, nodes = figures.pools, figures.nodes
    yield from nodes.unhealthy.samples(metrics.UNHEALTHY_NODES)
    yield from nodes.preempting.samples(metrics.PREEMPTING_NODES)
    yield from pools.transitions.samples(metrics.CONDITION_TRANSITIONS, _TRANSITIONS)
    yield from pools.durations.samples(metrics.CONDITION_DURATION, _DURATIONS)
    yield from pools.time_to_target.samples(
        metrics.TIME_TO_TARGET, list_labels(metrics.TIME_TO_TARGET)
    )
    yield from figures.out_of_service.samples(metrics.MACHINES)
    yield from nodes.joins.samples(metrics.NODE_JOIN, list_labels(metrics.NODE_JOIN))
    yield from nodes.failures.samples(metrics.NODE_FAILURES, list_labels(metrics.NODE_FAILURES))
    yield from nodes.removals.samples(metrics.NODE_REMOVALS, list_labels(metrics.NODE_REMOVALS))
    yield from nodes.ages.samples(metrics.REMOVED_NODE_AGE, _AGES)
    yield from nodes.lost_seconds.samples(
        metrics.LOST_NODE_SECONDS, list_labels(metrics.LOST_NODE_SECONDS)
    )
    yield from figures.usage.samples()
    yield from figures.violations.samples(
        metrics.INVARIANT_VIOLATIONS, metrics.INVARIANT_LAST_POSITION, RULES
    )
