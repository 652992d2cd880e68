"""The labels of all counters and histograms of the aggregator, so that each series begins at 0.

There are 21 series of transitions, one per reason of a condition; 15 series of durations; 5 series
of ages; and for each offering the series of `of_offering`.
"""

from typing import Final

from aggregator.usability import PREEMPTION, VERIFICATION
from aggregator.waits import DIRECTIONS
from nodepool.contract.conditions import (
    AtTarget,
    Capacity,
    NodesRemoved,
    Quota,
    Validated,
    status_of,
)
from nodepool.contract.metrics import (
    LOST_NODE_SECONDS,
    NODE_FAILURES,
    NODE_JOIN,
    NODE_REMOVALS,
    TIME_TO_TARGET,
    Metric,
)
from nodepool.contract.model import ComputeClass, RemovalReason
from nodepool.contract.node_failures import CORDON_CAUSES, PROBLEMS, NodeFailure
from nodepool.state.tallies import Labels

REMOVALS: Final = tuple(reason.value for reason in RemovalReason)
TRANSITIONS: Final = tuple(
    (kind.__name__, status_of(reason), reason.value)
    for kind in (Validated, Quota, Capacity, AtTarget, NodesRemoved)
    for reason in kind
)
DURATIONS: Final = tuple(dict.fromkeys((kind, status) for kind, status, _ in TRANSITIONS))
AGES: Final = tuple((reason,) for reason in REMOVALS)
_FAILURES: Final = tuple((cause,) for cause in (*(it.value for it in NodeFailure), *PROBLEMS))
_LOST: Final = tuple(
    (cause,)
    for cause in dict.fromkeys(
        (*PROBLEMS, *CORDON_CAUSES, NodeFailure.OTHER.value, PREEMPTION, VERIFICATION)
    )
)
_TIMES: Final = tuple((each.value, way) for each in ComputeClass for way in DIRECTIONS)
_OF_OFFERING: Final = {
    NODE_FAILURES: _FAILURES,
    NODE_JOIN: ((),),
    NODE_REMOVALS: AGES,
    LOST_NODE_SECONDS: _LOST,
    TIME_TO_TARGET: _TIMES,
}


def of_offering(metric: Metric, zone: str, instance_type: str) -> tuple[Labels, ...]:
    """Return the labels of a metric for an offering that exists."""
    return tuple((zone, instance_type, *rest) for rest in _OF_OFFERING[metric])
