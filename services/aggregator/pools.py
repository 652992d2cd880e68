"""A NodePool of the read model after an event about it: its conditions and its counts."""

from collections.abc import Iterable
from typing import assert_never

from immutables import Map

from aggregator import CheckFailed, NodeLeft, Recovered
from aggregator.objects import Autoscaled, NodeObject, NodePoolObject
from aggregator.profiles import counted_profiles, profile_of
from aggregator.verdicts import with_condition, with_counts
from nodepool.contract import events as on
from nodepool.contract.conditions import Capacity, NodesRemoved, Quota, Validated
from nodepool.contract.model import RemovalReason
from nodepool.contract.node_failures import NodeFailure, failure_of
from nodepool.placement.racks import change_count, domain_of
from nodepool.service import Context
from nodepool.state.maps import put
from nodepool.state.values import replace


def specify_pool(
    before: NodePoolObject | None, event: on.NodePoolValidated, context: Context
) -> NodePoolObject:
    """Return the NodePool with a new desired state or verdict; a new NodePool for a new uid."""
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
    has_target = before.targeted is not None and before.spec.target == event.spec.target
    pool = replace(
        before,
        specified=context.time if is_new else before.specified,
        targeted=before.targeted if has_target else context.time,
        generation=event.generation,
        labels=event.labels,
        annotations=event.annotations,
        spec=event.spec,
        fault=event.fault,
        granted=0 if event.reason is Validated.INVALID else before.granted,
        beyond=0 if event.reason is Validated.INVALID else before.beyond,
        autoscaled=_update_autoscaled(before, event, context),
        # The allocator decides on a new version at once, and reports a persistent error again.
        allocation_error="" if is_new else before.allocation_error,
    )
    if event.reason is not Validated.VALID:
        pool = _without_queue(pool)
    return with_counts(pool, context, (event.reason, event.message))


def _update_autoscaled(
    before: NodePoolObject, event: on.NodePoolValidated, context: Context
) -> Autoscaled | None:
    """Return why the autoscaler has set the target, and since when; None if it has not."""
    known = before.autoscaled
    if not event.autoscaled:
        return None
    if known is not None and before.spec.target == event.spec.target:
        return known
    return Autoscaled(event.autoscaled, context.time, context.position)


def deleting(pool: NodePoolObject, event: on.NodePoolDeleting, context: Context) -> NodePoolObject:
    """Return the NodePool at the start of its deletion."""
    # If the allocator cannot decide on the deletion, it reports that error again.
    pool = replace(pool, deleting=event.since, granted=0, beyond=0, allocation_error="")
    return with_counts(_without_queue(pool), context)


def apply_verdict(
    pool: NodePoolObject, event: on.QuotaChecked | on.CapacityChecked, context: Context
) -> NodePoolObject:
    """Return the NodePool after a verdict.

    A verdict on another generation changes nothing but the grant, and a verdict that comes too late
    for a NodePool that is being deleted changes nothing: the NodePool is not checked any more.
    """
    if event.uid != pool.uid or pool.deleting is not None:
        return pool
    if isinstance(event, on.QuotaChecked) and not pool.is_invalid:
        pool = _with_grant(pool, event, context)
    if event.generation != pool.generation:
        return pool
    if isinstance(event, on.CapacityChecked):
        pool = _with_queue(_with_supply(pool, event, context), event, context)
    return with_condition(pool, event.reason, event.message, context)


def _with_grant(pool: NodePoolObject, event: on.QuotaChecked, context: Context) -> NodePoolObject:
    """Return the NodePool with the grant of a verdict, and its number of Nodes beyond the grant."""
    is_capped = event.beyond > 0 and event.reason is not Quota.UNDER
    grant = event.granted, event.beyond, is_capped
    if grant == (pool.granted, pool.beyond, pool.is_capped):
        return pool
    after = replace(
        pool,
        granted=event.granted,
        beyond=event.beyond,
        is_capped=is_capped,
        progressed=context.time,
        version=context.position,
    )
    return after if after.at_target is pool.at_target else with_counts(after, context)


def _with_supply(
    pool: NodePoolObject, event: on.CapacityChecked, context: Context
) -> NodePoolObject:
    """Return the NodePool with the moment at which machines came or went for it."""
    known = pool.conditions.get(Capacity.__name__)
    if known is not None and (known.reason, known.message) == (event.reason, event.message):
        return pool
    return replace(pool, progressed=context.time, version=context.position)


def _with_queue(
    pool: NodePoolObject, event: on.CapacityChecked, context: Context
) -> NodePoolObject:
    """Return the NodePool with its place among those that wait for machines."""
    missing = 0 if event.reason is Capacity.SUFFICIENT else event.wanted
    before = (pool.spot_awaited, pool.queue_position, pool.machines_needed, pool.missing)
    if before == (event.preempted, event.position, event.needed, missing):
        return pool
    return replace(
        pool,
        spot_awaited=event.preempted,
        queue_position=event.position,
        machines_needed=event.needed,
        missing=missing,
        version=context.position,
    )


def _without_queue(pool: NodePoolObject) -> NodePoolObject:
    """Return the NodePool without a place in the queue: it gets no machine without its checks."""
    return replace(pool, spot_awaited=0, queue_position=0, machines_needed=0, missing=0)


def check_failed(pool: NodePoolObject, event: CheckFailed, context: Context) -> NodePoolObject:
    """Return the NodePool with a condition that could not be determined.

    A failed allocation, update or removal of Nodes shows in AtTarget; during a deletion it shows in
    NodesRemoved instead, and no other condition is determined. A Node whose machine does not answer
    is no such error: the Node is deleted all the same.

    Quota and capacity of an invalid NodePool are not checked. An error that is reported then is
    about an earlier generation, and no later check would clear its condition.
    """
    if event.uid != pool.uid:
        return pool
    match event:
        case on.AllocationFailed():
            return with_counts(replace(pool, allocation_error=event.message), context)
        case on.NodeUpdateFailed():
            return _with_node_error(pool, event.message, context)
        case on.CWNodePoolNodesRemoveError():
            if failure_of(event.message) == NodeFailure.UNANSWERED:
                return pool
            return _with_node_error(pool, event.message, context)
        case on.CWNodePoolQuotaCheckFailed() | on.CapacityCheckFailed() if not pool.is_checked:
            return pool
        case on.CWNodePoolQuotaCheckFailed():
            capacity = pool.conditions.get(Capacity.__name__)
            if capacity is not None and capacity.generation != pool.generation:
                pool = _without_queue(pool)
            return with_condition(pool, Quota.INTERNAL_ERROR, event.message, context)
        case on.CapacityCheckFailed():
            pool = _without_queue(pool)
            return with_condition(pool, Capacity.INTERNAL_ERROR, event.message, context)
        case _:
            assert_never(event)


def clear_error(pool: NodePoolObject, event: Recovered, context: Context) -> NodePoolObject:
    """Return the NodePool without an error, with the conditions that follow from its counts."""
    if event.uid != pool.uid:
        return pool
    if isinstance(event, on.NodeRemovalRecovered):
        return _with_node_error(pool, "", context)
    return with_counts(replace(pool, allocation_error=""), context)


def _with_node_error(pool: NodePoolObject, error: str, context: Context) -> NodePoolObject:
    """Return the NodePool with the error of its Nodes; empty after a success."""
    if error == pool.node_error:
        return pool
    return with_counts(replace(pool, node_error=error), context)


def nodes_removed(
    pool: NodePoolObject, event: on.CWNodePoolNodesRemoved, context: Context
) -> NodePoolObject:
    """Return the NodePool without Nodes, if its deletion removed them."""
    if event.removal is not RemovalReason.POOL_DELETED:
        return pool
    return with_condition(pool, NodesRemoved.COMPLETE, "All Nodes are removed.", context)


def update_failed(
    pool: NodePoolObject, event: on.NodePoolUpdateFailed, context: Context
) -> NodePoolObject:
    """Return the NodePool with a deletion that could not be ended after its last Node had left.

    Of a NodePool that stays, no condition fails: Validated shows a check that could not decide, and
    the target of the autoscaler is stored later.
    """
    if pool.deleting is None or event.message == pool.deletion_error:
        return pool
    return with_counts(replace(pool, deletion_error=event.message), context)


def node_assigned(
    pool: NodePoolObject, event: on.CWNodeAssigned, context: Context
) -> NodePoolObject:
    """Return the NodePool with one more Node in progress."""
    if event.uid != pool.uid:
        return pool
    profiles = counted_profiles(pool.profiles, profile_of(pool.spec), 1)
    lost = put(pool.lost, event.node, None)
    return with_counts(replace(pool, profiles=profiles, lost=lost), context, in_progress=1)


def node_registered(
    pool: NodePoolObject, event: on.CWNodeRegistered, context: Context
) -> NodePoolObject:
    """Return the NodePool after one Node in progress has become current."""
    pool = _in_domain(pool, domain_of(event.labels), 1)
    return with_counts(pool, context, in_progress=-1, current=1)


def node_left(
    pool: NodePoolObject,
    event: NodeLeft,
    context: Context,
    *,
    node: NodeObject,
    others: Iterable[NodeObject],
) -> NodePoolObject:
    """Return the NodePool without this Node, which was current or in progress.

    others: its other Nodes, at least those that `NodePoolObject.domains` does not count.
    """
    if event.uid != pool.uid:
        return pool
    is_lost = isinstance(event, on.CWNodeRegistrationFailed) or event.triage
    domain = node.domain if is_lost and pool.spec.rack_size else ""
    is_current = node.usable and isinstance(event, on.CWNodeDeleted) and event.registered
    pool = replace(
        _in_domain(pool, node.domain, -1) if is_current else pool,
        profiles=counted_profiles(pool.profiles, node.profile, -1),
        lost=put(pool.lost, node.name, domain or None),
        away=pool.away - (not node.usable),
    )
    pool = _forget_rack(pool, node.domain, others)
    if not node.usable:
        return with_counts(pool, context)
    return with_counts(pool, context, current=-is_current, in_progress=is_current - 1)


def _forget_rack(pool: NodePoolObject, domain: str, others: Iterable[NodeObject]) -> NodePoolObject:
    """Return the NodePool without the lost machines of a rack of which it has no Node any more.

    Such a rack is not completed: the NodePool gets whole racks instead.
    """
    if domain in pool.domains or domain not in pool.lost.values():
        return pool
    if any(other.domain == domain for other in others):
        return pool
    lost = {name: each for name, each in pool.lost.items() if each != domain}
    return replace(pool, lost=Map(lost))


def node_reserved(
    pool: NodePoolObject, event: on.NodeReservationChanged, context: Context, *, domain: str
) -> NodePoolObject:
    """Return the NodePool with one current Node fewer, or one more if the Node is usable again."""
    change = 1 if event.usable else -1
    pool = replace(_in_domain(pool, domain, change), away=pool.away - change, has_lent=True)
    return with_counts(pool, context, current=change)


def changed_while_shrinking(pool: NodePoolObject, context: Context) -> NodePoolObject:
    """Return the NodePool after a change of a Node that the NodePool may wait for."""
    return replace(pool, version=context.position)


def _in_domain(pool: NodePoolObject, domain: str, change: int) -> NodePoolObject:
    """Return the NodePool with `change` more current Nodes in a domain, if its type has racks."""
    if not pool.spec.rack_size:
        return pool
    return replace(pool, domains=change_count(pool.domains, domain, change))
