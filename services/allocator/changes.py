"""How a message changes a NodePool or one of its Nodes."""

from dataclasses import replace
from datetime import datetime
from typing import assert_never

from allocator.members import Member, Members, Racks
from allocator.pool import Grant, Pool, Stage
from nodepool.contract import events as on
from nodepool.contract.conditions import Validated
from nodepool.contract.model import RemovalReason

Announced = (
    on.GrantAcknowledged
    | on.AllocationFailed
    | on.AllocationRecovered
    | on.CWNodePoolScaledUp
    | on.CWNodeRequestQueued
    | on.CWNodePoolRemoveNodes
    | on.CWNodePoolNodesRemoved
    | on.CWNodePoolScaledDown
    | on.CWNodeDeliverFail
)
"""The allocator's own events about a NodePool."""
MemberChanged = (
    on.CWNodeRegistered
    | on.CWNodeCordoned
    | on.CWNodeUncordoned
    | on.CWDrainNode
    | on.NodeActivityChanged
    | on.NodeUpdated
    | on.NodeReservationChanged
    | on.NodeKept
    | on.NodeRemovalCancelled
    | on.NodePreemptionRequested
    | on.NodePreempted
    | on.PreemptionPending
    | on.CWNodeDeletionRequestSuccess
)
"""The messages that change a Node while it stays."""
Left = on.CWNodeDeleted | on.CWNodeRegistrationFailed
"""The messages after which a Node is no longer in its NodePool."""


def specified(known: Pool | None, event: on.NodePoolValidated) -> Pool:
    """Return the NodePool with this desired state; a new NodePool if `known` is None."""
    valid = event.reason is Validated.VALID
    fault = event.message if event.fault == "Settings" else ""
    if known is None:
        size = event.spec.rack_size
        members = Members(racks=Racks(size) if size else None)
        known = Pool(
            event.key,
            event.uid,
            event.zone,
            event.generation,
            event.spec,
            valid,
            members=members,
            scaled=event.spec.target,
        )
    grant = known.grant
    if grant is not None and event.reason is Validated.INVALID:
        # An invalid NodePool may get no Node, so it gives its grant back.
        grant = grant._replace(nodes=0)
    return replace(
        known,
        generation=event.generation,
        spec=event.spec,
        grant=grant,
        wait=known.wait.with_target(event.spec.target, len(known.members)) if valid else known.wait,
        valid=valid,
        invalid=event.reason is Validated.INVALID,
        fault=fault,
        reported=known.reported if fault else "",
    )


def granted(pool: Pool, verdict: on.QuotaChecked) -> Pool:
    """Return the NodePool with a grant.

    A grant for an older generation is not used, but is given back. So is any grant of an invalid
    NodePool. If such a grant has the number of the last grant, it is given back already.
    """
    pool = replace(pool, quota_failed=False)
    known = pool.grant
    if pool.invalid and known is not None and known.number == verdict.number:
        return pool
    nodes = 0 if pool.invalid else verdict.granted
    grant = Grant(verdict.generation, nodes, verdict.number)
    return replace(pool, grant=grant, outstanding=max(pool.outstanding or 0, verdict.granted))


def announced(pool: Pool, event: Announced) -> Pool:
    """Return the NodePool after the allocator announced something about it."""
    match event:
        case on.GrantAcknowledged(granted=nodes):
            return replace(pool, outstanding=nodes if pool.stage is Stage.ACTIVE else None)
        case on.AllocationFailed(message=text):
            return replace(pool, failure=text)
        case on.AllocationRecovered():
            return replace(pool, failure="")
        case on.CWNodePoolScaledUp(after=after):
            return replace(pool, scaled=after)
        case on.CWNodeRequestQueued(granted=nodes):
            return replace(pool, requested=nodes)
        case on.CWNodePoolRemoveNodes():
            return replace(pool, removals=pool.removals + 1, removed=0)
        case on.CWNodePoolNodesRemoved(removal=removal):
            emptied = removal is RemovalReason.POOL_DELETED
            return replace(pool, stage=Stage.EMPTIED if emptied else pool.stage, removed=None)
        case on.CWNodePoolScaledDown(after=after):
            requested = min(pool.requested, after)
            return replace(pool, scaled=after, requested=requested, removed=None)
        case on.CWNodeDeliverFail(node=node):
            return _reported(pool, node)
        case _:
            assert_never(event)


def member_changed(  # noqa: C901  # It lists the messages.
    pool: Pool, member: Member, event: MemberChanged, now: datetime
) -> Member:
    """Return a Node of the NodePool after a message; the same object if nothing changed.

    now: when the log stored the message.
    """
    match event:
        case on.CWNodeRegistered():
            return replace(member, registered=True)
        case on.NodeActivityChanged(active=active, blocking_count=blocking, grace_s=grace_s):
            return replace(member, active=active, blocked=blocking > 0, grace_s=grace_s)
        case on.CWDrainNode():
            return replace(member, drained_by=member.drained_by or now + member.grace)
        case on.CWNodeCordoned(triage=triage):
            return replace(member, cordoned=True, triage=triage)
        case on.CWNodeUncordoned():
            return replace(member, cordoned=False, triage=False)
        case on.NodeKept(request=request):
            return _spared(member) if request == member.requests else member
        case on.NodeRemovalCancelled():
            return _cancelled(member)
        case on.NodeReservationChanged(usable=usable):
            return replace(member, is_reserved=not usable)
        case on.NodeUpdated(removal=removal):
            return _with_health(member, removal)
        case on.NodePreemptionRequested() | on.NodePreempted() | on.PreemptionPending():
            return _preempted(member)
        case on.CWNodeDeletionRequestSuccess(removal=removal, request=request):
            return replace(
                member,
                removal=removal,
                removed_in=pool.removals,
                requests=request,
                idle_only=event.idle_only,
                is_cancelled=False,
                drained_by=_drained_by(member),
            )
        case _:
            assert_never(event)


def left(pool: Pool, member: Member, event: Left) -> Pool:
    """Return the NodePool without this Node, which counts as removed if it was a victim.

    A victim counts whatever ended its stay, even if its removal was cancelled too late.
    """
    pool = replace(pool, members=pool.members.drop(event.node))
    if isinstance(event, on.CWNodeRegistrationFailed) and pool.stage is Stage.ACTIVE:
        pool = replace(pool, undelivered=(*pool.undelivered, (event.node, event.message)))
    if pool.removed is None:
        return pool
    is_chosen = member.removal is not None or member.is_cancelled
    is_victim = is_chosen and member.removed_in == pool.removals
    too_late = isinstance(event, on.CWNodeDeleted) and event.removal is RemovalReason.SCALE_DOWN
    if not (is_victim or too_late or pool.stage is Stage.DELETING):
        return pool
    return replace(pool, removed=pool.removed + 1, requested=max(0, pool.requested - 1))


def _reported(pool: Pool, node: str) -> Pool:
    """Return the NodePool after the report that `node` could not be delivered.

    node: empty if the settings of the NodePool are wrong, so that no Node can be delivered.
    """
    if not node:
        return replace(pool, reported=pool.fault)
    rest = list(pool.undelivered)
    rest.remove(next(each for each in rest if each[0] == node))
    return replace(pool, undelivered=tuple(rest))


def _drained_by(member: Member) -> datetime | None:
    """Return the end of a drain that goes on after a deletion is requested; None without one.

    A Pod that blocked the drain has its whole grace period in the next drain.
    """
    goes_on = member.removal is RemovalReason.SCALE_DOWN and not member.blocked
    return member.drained_by if goes_on else None


def _spared(member: Member) -> Member:
    """Return the Node as lifecycle keeps it, no victim any more.

    A preemption, or a deletion of the NodePool, goes on.
    """
    is_victim = member.removal is RemovalReason.SCALE_DOWN
    removal = None if is_victim else member.removal
    return replace(member, removal=removal, removed_in=0, is_cancelled=False)


def _cancelled(member: Member) -> Member:
    """Return the Node as one to keep; until lifecycle answers, it may leave all the same."""
    if member.removal is not RemovalReason.SCALE_DOWN:
        return member
    return replace(member, removal=None, is_cancelled=True)


def _with_health(member: Member, removal: RemovalReason | None) -> Member:
    """Return the Node as one that lifecycle replaces as unhealthy, or does not replace any more.

    A removal that the allocator asked for, and a preemption, stay what they are. A victim whose
    removal was cancelled still counts if it leaves before lifecycle answers.
    """
    if member.removal is None and removal is RemovalReason.UNHEALTHY:
        return replace(member, removal=removal)
    if member.removal is RemovalReason.UNHEALTHY and removal is None:
        return replace(member, removal=None)
    return member


def _preempted(member: Member) -> Member:
    """Return the Node as one that leaves for its preemption; a victim of a scale-down stays one.

    A Node of a deleted NodePool leaves for the deletion, but no later than its preemption allows.
    """
    member = replace(member, is_preempted=True)
    if member.removal in (RemovalReason.POOL_DELETED, RemovalReason.PREEMPTED):
        return member
    is_victim = member.removal is RemovalReason.SCALE_DOWN
    removed_in = member.removed_in if is_victim else 0
    return replace(
        member, removal=RemovalReason.PREEMPTED, removed_in=removed_in, is_cancelled=False
    )
