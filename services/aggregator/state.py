"""The state of the aggregator after each event."""

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
from nodepool.contract import events as on
from nodepool.contract.messages import OfMachine
from nodepool.service import Context

__all__ = ["State", "evolve"]


def evolve(state: State, message: Hears, context: Context) -> State:
    """Return the state after an event; an impossible event changes only figures."""
    rule = broken(state, message)
    if rule:
        state = replace(state, violations=state.violations.add(rule, context.position))
        return state if rule in IMPOSSIBLE else _evolved(state, message, context)
    return _evolved(state, message, context)


def _evolved(state: State, message: Hears, context: Context) -> State:
    """Return the state after an event; frequent events come first, since each case takes time."""
    match message:
        case (
            on.NodeUpdated()
            | on.NodeActivityChanged()
            | on.CWDrainNode()
            | on.NodeReportRequested()
        ):
            return node_changed(state, message, context)
        case on.NodeConditionChanged() | on.NodeConditionReported():
            return node_reported(state, message, context)
        case on.CWNodeAssigned():
            return node_assigned(state, message, context)
        case on.CWNodeRegistered():
            return node_joined(state, message, context)
        case on.CWNodeDeleted() | on.CWNodeRegistrationFailed():
            return node_left(state, message, context)
        case OfMachine():
            return machine_reported(state, message, context)
        case on.CapacityReclaimed():
            return capacity_reclaimed(state, message, context)
        case on.CapacityChecked():
            return pool_changed(state, message, pools.checked, context)
        case on.QuotaChecked() | on.QuotaSet() | on.QuotaDeleted() | on.QuotaReleased():
            return quota_counted(state, message, context)
        case on.NodePoolValidated():
            return pool_specified(state, message, context)
        case on.NodeTemplateChanged():
            return replace(state, templates=published(state.templates, message))
        case on.NodePoolDeleting():
            return pool_changed(state, message, pools.deleting, context)
        case on.CWNodePoolNodesRemoved():
            return pool_changed(state, message, pools.nodes_removed, context)
        case on.CWNodePoolDeleted():
            return pool_deleted(state, message)
        case on.ClusterRegistered():
            return cluster_registered(state, message, context)
        case on.AllocationRecovered() | on.NodeRemovalRecovered():
            return pool_changed(state, message, pools.recovered, context)
        case on.CWNodePoolQuotaCheckFailed() | on.CapacityCheckFailed() | on.AllocationFailed():
            return pool_changed(state, message, pools.check_failed, context)
        case on.CWNodePoolNodesRemoveError():
            return removal_failed(state, message, context)
        case on.GrantAcknowledged():
            return grant_acknowledged(state, message, context)
        case on.CWNodeCordoned() | on.CWNodeUncordoned():
            return cordon_changed(state, message, context)
        case on.NodeReservationChanged():
            return reservation_changed(state, message, context)
        case _:
            assert_never(message)
