"""What the aggregator knows after each event."""

from dataclasses import replace
from typing import assert_never

from aggregator import Hears, pools
from aggregator.changes import (
    cluster_registered,
    cordon_changed,
    grant_acknowledged,
    node_assigned,
    node_changed,
    node_joined,
    node_left,
    node_reported,
    pool_changed,
    pool_deleted,
    pool_specified,
    quota_counted,
    removal_failed,
)
from aggregator.invariants import IMPOSSIBLE, broken
from aggregator.known import State
from aggregator.machine_changes import capacity_reclaimed, machine_reported
from aggregator.reservations import reservation_changed
from aggregator.templates import published
from nodepool.contract.events import (
    AllocationFailed,
    AllocationRecovered,
    CapacityChecked,
    CapacityCheckFailed,
    CapacityReclaimed,
    ClusterRegistered,
    CWDrainNode,
    CWNodeAssigned,
    CWNodeCordoned,
    CWNodeDeleted,
    CWNodePoolDeleted,
    CWNodePoolNodesRemoved,
    CWNodePoolNodesRemoveError,
    CWNodePoolQuotaCheckFailed,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    CWNodeUncordoned,
    GrantAcknowledged,
    NodeActivityChanged,
    NodeConditionChanged,
    NodeConditionReported,
    NodePoolDeleting,
    NodePoolValidated,
    NodeRemovalRecovered,
    NodeReportRequested,
    NodeReservationChanged,
    NodeTemplateChanged,
    NodeUpdated,
    QuotaChecked,
    QuotaDeleted,
    QuotaReleased,
    QuotaSet,
)
from nodepool.contract.messages import OfMachine
from nodepool.service import Context

__all__ = ["State", "evolve"]


def evolve(state: State, message: Hears, context: Context) -> State:
    """The state after an event; what cannot have happened changes nothing but figures."""
    rule = broken(state, message)
    if rule:
        state = replace(state, violations=state.violations.add(rule, context.position))
        return state if rule in IMPOSSIBLE else _evolved(state, message, context)
    return _evolved(state, message, context)


def _evolved(state: State, message: Hears, context: Context) -> State:
    """The state after an event; frequent ones come first, since each case costs time."""
    match message:
        case NodeUpdated() | NodeActivityChanged() | CWDrainNode() | NodeReportRequested():
            return node_changed(state, message, context)
        case NodeConditionChanged() | NodeConditionReported():
            return node_reported(state, message, context)
        case CWNodeAssigned():
            return node_assigned(state, message, context)
        case CWNodeRegistered():
            return node_joined(state, message, context)
        case CWNodeDeleted() | CWNodeRegistrationFailed():
            return node_left(state, message, context)
        case OfMachine():
            return machine_reported(state, message, context)
        case CapacityReclaimed():
            return capacity_reclaimed(state, message, context)
        case CapacityChecked():
            return pool_changed(state, message, pools.checked, context)
        case QuotaChecked() | QuotaSet() | QuotaDeleted() | QuotaReleased():
            return quota_counted(state, message, context)
        case NodePoolValidated():
            return pool_specified(state, message, context)
        case NodeTemplateChanged():
            return replace(state, templates=published(state.templates, message))
        case NodePoolDeleting():
            return pool_changed(state, message, pools.deleting, context)
        case CWNodePoolNodesRemoved():
            return pool_changed(state, message, pools.nodes_removed, context)
        case CWNodePoolDeleted():
            return pool_deleted(state, message)
        case ClusterRegistered():
            return cluster_registered(state, message, context)
        case AllocationRecovered() | NodeRemovalRecovered():
            return pool_changed(state, message, pools.recovered, context)
        case CWNodePoolQuotaCheckFailed() | CapacityCheckFailed() | AllocationFailed():
            return pool_changed(state, message, pools.check_failed, context)
        case CWNodePoolNodesRemoveError():
            return removal_failed(state, message, context)
        case GrantAcknowledged():
            return grant_acknowledged(state, message, context)
        case CWNodeCordoned() | CWNodeUncordoned():
            return cordon_changed(state, message, context)
        case NodeReservationChanged():
            return reservation_changed(state, message, context)
        case _:
            assert_never(message)
