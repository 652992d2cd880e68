"""A NodePool of the read model after an event about it: its conditions and its counts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from aggregator import CheckFailed, NodeLeft, Recovered
from aggregator.objects import Autoscaled, NodePoolObject, Progressing
from aggregator.profiles import counted_profiles, profile_of
from nodepool.contract.conditions import (
    AtTarget,
    Capacity,
    Condition,
    NodesRemoved,
    Quota,
    Reason,
    Validated,
    accepted,
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
    NodeRemovalRecovered,
    NodeReservationChanged,
    QuotaChecked,
)
from nodepool.contract.model import RemovalReason
from nodepool.contract.progress import progressing
from nodepool.service import Context
from nodepool.state.racks import counted, domain_of


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
    is_new = before.specified is None or before.generation != event.generation
    pool = replace(
        before,
        specified=context.time if is_new else before.specified,
        generation=event.generation,
        labels=event.labels,
        annotations=event.annotations,
        spec=event.spec,
        fault=event.fault,
        granted=0 if event.reason is Validated.INVALID else before.granted,
        autoscaled=_autoscaled(before, event, context),
    )
    return _counted(_with_condition(pool, event.reason, event.message, context), context)


def _autoscaled(
    before: NodePoolObject, event: NodePoolValidated, context: Context
) -> Autoscaled | None:
    """Why the autoscaler has set the target, since when it has."""
    known = before.autoscaled
    if not event.autoscaled:
        return None
    if known is not None and before.spec.target == event.spec.target:
        return known
    return Autoscaled(event.autoscaled, context.time, context.position)


def deleting(pool: NodePoolObject, event: NodePoolDeleting, context: Context) -> NodePoolObject:
    """The NodePool on its way out."""
    return _counted(
        replace(
            pool,
            deleting=event.since,
            granted=0,
            spot_awaited=0,
            queue_position=0,
            machines_needed=0,
        ),
        context,
    )


def checked(
    pool: NodePoolObject, event: QuotaChecked | CapacityChecked, context: Context
) -> NodePoolObject:
    """The NodePool after a verdict.

    A verdict on another generation changes nothing but the grant, and a verdict that comes too late
    for a NodePool that is being deleted changes nothing: the NodePool is not checked any more.
    """
    if event.uid != pool.uid or pool.deleting is not None:
        return pool
    if isinstance(event, QuotaChecked) and event.granted != pool.granted and not pool.is_invalid:
        pool = replace(pool, granted=event.granted, version=context.position)
    if event.generation != pool.generation:
        return pool
    if isinstance(event, CapacityChecked):
        pool = _with_queue(pool, event, context)
    return _with_condition(pool, event.reason, event.message, context)


def _with_queue(pool: NodePoolObject, event: CapacityChecked, context: Context) -> NodePoolObject:
    """Return the NodePool with its place among those that wait for machines."""
    before = (pool.spot_awaited, pool.queue_position, pool.machines_needed)
    if before == (event.preempted, event.position, event.needed):
        return pool
    return replace(
        pool,
        spot_awaited=event.preempted,
        queue_position=event.position,
        machines_needed=event.needed,
        version=context.position,
    )


def check_failed(pool: NodePoolObject, event: CheckFailed, context: Context) -> NodePoolObject:
    """The NodePool with a condition that could not be determined.

    While it is being deleted that is the removal of its Nodes; nothing else is determined then.
    """
    if event.uid not in ("", pool.uid):
        return pool
    reason: Reason | None
    match event:
        case CWNodePoolQuotaCheckFailed():
            reason = Quota.INTERNAL_ERROR if pool.deleting is None else None
        case CapacityCheckFailed():
            reason = Capacity.INTERNAL_ERROR if pool.deleting is None else None
        case AllocationFailed():
            deleting = pool.deleting is not None
            reason = NodesRemoved.INTERNAL_ERROR if deleting else AtTarget.INTERNAL_ERROR
        case CWNodePoolNodesRemoveError():
            reason = None if pool.deleting is None else NodesRemoved.INTERNAL_ERROR
        case _:
            assert_never(event)
    return pool if reason is None else _with_condition(pool, reason, event.message, context)


def recovered(pool: NodePoolObject, event: Recovered, context: Context) -> NodePoolObject:
    """The NodePool with the conditions that follow from its counts."""
    if event.uid not in ("", pool.uid):
        return pool
    if isinstance(event, NodeRemovalRecovered) and pool.deleting is None:
        return pool
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
    if event.uid != pool.uid:
        return pool
    profiles = counted_profiles(pool.profiles, profile_of(pool.spec), 1)
    return _counted(replace(pool, profiles=profiles), context, in_progress=1)


def node_registered(
    pool: NodePoolObject, event: CWNodeRegistered, context: Context
) -> NodePoolObject:
    """The NodePool with one Node current that was in progress."""
    pool = _in_domain(pool, domain_of(event.labels), 1)
    return _counted(pool, context, in_progress=-1, current=1)


def node_left(
    pool: NodePoolObject,
    event: NodeLeft,
    context: Context,
    *,
    domain: str,
    profile: str = "",
    usable: bool = True,
) -> NodePoolObject:
    """The NodePool with one Node less, current or in progress, of this NVLink domain."""
    if event.uid != pool.uid:
        return pool
    pool = replace(pool, profiles=counted_profiles(pool.profiles, profile, -1))
    if not usable:
        return _counted(replace(pool, away=pool.away - 1), context)
    if isinstance(event, CWNodeDeleted) and event.registered:
        return _counted(_in_domain(pool, domain, -1), context, current=-1)
    return _counted(pool, context, in_progress=-1)


def node_reserved(
    pool: NodePoolObject, event: NodeReservationChanged, context: Context, *, domain: str
) -> NodePoolObject:
    """Return the NodePool with one current Node fewer, or one more if the Node is usable again."""
    change = 1 if event.usable else -1
    pool = replace(_in_domain(pool, domain, change), away=pool.away - change)
    return _counted(pool, context, current=change)


def changed_while_shrinking(pool: NodePoolObject, context: Context) -> NodePoolObject:
    """The NodePool after a change of a Node that it may wait for."""
    return replace(pool, version=context.position)


def _in_domain(pool: NodePoolObject, domain: str, change: int) -> NodePoolObject:
    """The NodePool with so many current Nodes more of a domain, if its type comes in racks."""
    if not pool.spec.rack_size:
        return pool
    return replace(pool, domains=counted(pool.domains, domain, change))


def _with_condition(
    pool: NodePoolObject, reason: Reason, message: str, context: Context
) -> NodePoolObject:
    kind = type(reason).__name__
    before = pool.conditions.get(kind)
    position = context.position
    after = changed(before, reason, message, pool.generation, context.time, position)
    if after is before:
        return pool
    conditions = pool.conditions.set(kind, after)
    kept = accepted(pool.accepted, conditions, context.time, refused=pool.fault == "Zone")
    return replace(
        pool,
        conditions=conditions,
        accepted=kept,
        progressing=_progressing(pool, conditions, context),
        version=context.position,
    )


def _progressing(
    pool: NodePoolObject, conditions: Mapping[str, Condition], context: Context
) -> Progressing | None:
    deleting = pool.deleting is not None
    condition = progressing(conditions, pool.generation, deleting=deleting)
    if condition is None:
        return None
    before = pool.progressing
    is_kept = before is not None and before.type == condition.type
    return before if is_kept else Progressing(condition.type, context.time)


def _counted(
    pool: NodePoolObject, context: Context, *, in_progress: int = 0, current: int = 0
) -> NodePoolObject:
    """The NodePool with its counts changed by so many, and the conditions that follow from them.

    These have no message here: it follows from the counts as well, and is made where it is shown.
    """
    pool = replace(
        pool,
        in_progress=pool.in_progress + in_progress,
        current=pool.current + current,
        version=context.position,
    )
    assert min(pool.current, pool.in_progress) >= 0, f"{pool.key} counts fewer than no Nodes"
    pool = _with_condition(pool, pool.at_target, "", context)
    if pool.deleting is None:
        return pool
    return _with_condition(pool, NodesRemoved.PENDING, "", context)
