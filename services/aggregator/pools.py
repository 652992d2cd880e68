"""A NodePool of the read model after an event about it: its conditions and its counts."""

from dataclasses import replace
from typing import assert_never

from aggregator import CheckFailed, NodeLeft, Recovered
from aggregator.objects import NodePoolObject
from nodepool.contract.conditions import (
    HEALTHY,
    AtTarget,
    Capacity,
    NodesRemoved,
    Quota,
    Reason,
    changed,
)
from nodepool.contract.events import (
    AllocationFailed,
    CapacityChecked,
    CapacityCheckFailed,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodePoolNodesRemoved,
    CWNodePoolNodesRemoveError,
    CWNodePoolQuotaCheckFailed,
    CWNodeRegistered,
    NodePoolDeleting,
    NodePoolValidated,
    QuotaChecked,
)
from nodepool.contract.model import RemovalReason
from nodepool.service import Context

TARGET_MESSAGES = {
    AtTarget.UNDER_TARGET: "NodePool has {current} of {target} Nodes.",
    AtTarget.OVER_TARGET: "NodePool has {current} Nodes and wants {target}; {strategy} removes.",
    AtTarget.PENDING_DELETE: "NodePool is being deleted, {held} Nodes are still to be removed.",
}
"""The messages of AtTarget while the target is not met."""


def specified(
    before: NodePoolObject | None, event: NodePoolValidated, context: Context
) -> NodePoolObject:
    """The NodePool with a new desired state or verdict; a new one where the uid is new."""
    if before is None or before.uid != event.uid:
        before = NodePoolObject(
            key=event.key,
            uid=event.uid,
            zone=event.zone,
            created=event.created,
            generation=event.generation,
            labels=event.labels,
            annotations=event.annotations,
            spec=event.spec,
            version=context.position,
        )
    pool = replace(
        before,
        generation=event.generation,
        labels=event.labels,
        annotations=event.annotations,
        spec=event.spec,
        fault=event.fault,
    )
    return _counted(_with_condition(pool, event.reason, event.message, context), context)


def deleting(pool: NodePoolObject, event: NodePoolDeleting, context: Context) -> NodePoolObject:
    """The NodePool on its way out."""
    return _counted(replace(pool, deleting=event.since), context)


def checked(
    pool: NodePoolObject, event: QuotaChecked | CapacityChecked, context: Context
) -> NodePoolObject:
    """The NodePool after a verdict; a verdict on another generation of it changes nothing."""
    if (event.uid, event.generation) != (pool.uid, pool.generation):
        return pool
    return _with_condition(pool, event.reason, event.message, context)


def check_failed(pool: NodePoolObject, event: CheckFailed, context: Context) -> NodePoolObject:
    """The NodePool with a condition that could not be determined."""
    reason: Reason
    match event:
        case CWNodePoolQuotaCheckFailed():
            reason = Quota.INTERNAL_ERROR
        case CapacityCheckFailed():
            reason = Capacity.INTERNAL_ERROR
        case AllocationFailed():
            reason = AtTarget.INTERNAL_ERROR
        case CWNodePoolNodesRemoveError():
            if pool.deleting is None:
                return pool
            reason = NodesRemoved.INTERNAL_ERROR
        case _:
            assert_never(event)
    return _with_condition(pool, reason, event.message, context)


def recovered(pool: NodePoolObject, _event: Recovered, context: Context) -> NodePoolObject:
    """The NodePool with the conditions that follow from its counts."""
    return _counted(pool, context)


def nodes_removed(
    pool: NodePoolObject, event: CWNodePoolNodesRemoved, context: Context
) -> NodePoolObject:
    """The NodePool without Nodes, if they were removed because it is being deleted."""
    if event.removal is not RemovalReason.POOL_DELETED:
        return pool
    return _with_condition(pool, NodesRemoved.COMPLETE, "All Nodes are removed.", context)


def node_assigned(pool: NodePoolObject, event: CWNodeAssigned, context: Context) -> NodePoolObject:
    """The NodePool with one Node more in progress."""
    return _counted(pool, context, in_progress=1) if event.uid == pool.uid else pool


def node_registered(
    pool: NodePoolObject, _event: CWNodeRegistered, context: Context
) -> NodePoolObject:
    """The NodePool with one Node current that was in progress."""
    return _counted(pool, context, in_progress=-1, current=1)


def node_left(pool: NodePoolObject, event: NodeLeft, context: Context) -> NodePoolObject:
    """The NodePool with one Node less, current or in progress."""
    if event.uid != pool.uid:
        return pool
    if isinstance(event, CWNodeDeleted) and event.registered:
        return _counted(pool, context, current=-1)
    return _counted(pool, context, in_progress=-1)


def _with_condition(
    pool: NodePoolObject, reason: Reason, message: str, context: Context
) -> NodePoolObject:
    kind = type(reason).__name__
    before = pool.conditions.get(kind)
    after = changed(before, reason, message, pool.generation, context.time)
    if after is before:
        return pool
    return replace(pool, conditions=pool.conditions.set(kind, after), version=context.position)


def _counted(
    pool: NodePoolObject, context: Context, *, in_progress: int = 0, current: int = 0
) -> NodePoolObject:
    """The NodePool with its counts changed by so many, and the conditions that follow from them."""
    pool = replace(
        pool,
        in_progress=pool.in_progress + in_progress,
        current=pool.current + current,
        version=context.position,
    )
    assert min(pool.current, pool.in_progress) >= 0, f"{pool.key} counts fewer than no Nodes"
    reason = _at_target(pool)
    held = pool.current + pool.in_progress
    message = HEALTHY.get(reason) or TARGET_MESSAGES[reason].format(
        current=pool.current,
        target=pool.spec.target_nodes,
        held=held,
        strategy=pool.spec.lifecycle.scale_down_strategy.value,
    )
    pool = _with_condition(pool, reason, message, context)
    if pool.deleting is None:
        return pool
    message = f"{held} Nodes are still to be removed."
    return _with_condition(pool, NodesRemoved.PENDING, message, context)


def _at_target(pool: NodePoolObject) -> AtTarget:
    if pool.deleting is not None:
        return AtTarget.PENDING_DELETE
    target = pool.spec.target_nodes
    if pool.current == target:
        return AtTarget.TARGET_MET
    return AtTarget.OVER_TARGET if pool.current > target else AtTarget.UNDER_TARGET
