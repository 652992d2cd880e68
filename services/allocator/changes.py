"""How a message changes a Node."""

from datetime import datetime
from typing import assert_never

from allocator.members import Member
from nodepool.contract import events as on
from nodepool.contract.model import RemovalReason
from nodepool.state.values import replace

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
    | on.NodePreemptionWithdrawn
    | on.NodePreempted
    | on.PreemptionPending
    | on.CWNodeDeletionRequestSuccess
)
"""The messages that change a Node while it stays."""


def change_member(  # noqa: C901, PLR0912  # It lists the messages.
    member: Member, event: MemberChanged, removals: int, now: datetime
) -> Member:
    """Return a Node after a message; the same object if nothing changed.

    removals: how many removals its NodePool has begun. now: when the log stored the message.
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
            return _spare_node(member) if request == member.requests else member
        case on.NodeRemovalCancelled():
            return _cancel_removal(member)
        case on.NodeReservationChanged(usable=usable):
            return replace(member, is_reserved=not usable)
        case on.NodeUpdated(removal=removal):
            return _with_health(member, removal)
        case on.NodePreemptionRequested():
            return _ask_node(member)
        case on.NodePreemptionWithdrawn():
            return _withdraw_request(member)
        case on.NodePreempted() | on.PreemptionPending():
            return _preempt_node(member)
        case on.CWNodeDeletionRequestSuccess():
            return _delete_node(member, event, removals)
        case _:
            assert_never(event)


def _delete_node(member: Member, event: on.CWNodeDeletionRequestSuccess, removals: int) -> Member:
    """Return the Node as one that its NodePool has asked to leave."""
    return replace(
        member,
        removal=event.removal,
        removed_in=removals,
        requests=event.request,
        idle_only=event.idle_only,
        is_cancelled=False,
        drained_by=_drained_by(member),
    )


def _drained_by(member: Member) -> datetime | None:
    """Return the end of a drain that goes on after a deletion is requested; None without one.

    A Pod that blocked the drain has its whole grace period in the next drain.
    """
    goes_on = member.removal is RemovalReason.SCALE_DOWN and not member.blocked
    return member.drained_by if goes_on else None


def _spare_node(member: Member) -> Member:
    """Return the Node as lifecycle keeps it, no victim any more.

    A preemption, or a deletion of the NodePool, goes on.
    """
    is_victim = member.removal is RemovalReason.SCALE_DOWN
    removal = None if is_victim else member.removal
    return replace(member, removal=removal, removed_in=0, is_cancelled=False)


def _cancel_removal(member: Member) -> Member:
    """Return the Node as one to keep, unless it is unhealthy.

    Until lifecycle answers, it may leave all the same.
    """
    if member.removal is not RemovalReason.SCALE_DOWN:
        return member
    removal = RemovalReason.UNHEALTHY if member.is_unhealthy else None
    return replace(member, removal=removal, is_cancelled=True)


def _with_health(member: Member, removal: RemovalReason | None) -> Member:
    """Return the Node as one that lifecycle replaces as unhealthy, or does not replace any more.

    A removal that the allocator asked for, and a preemption, stay what they are. A victim whose
    removal was cancelled still counts if it leaves before lifecycle answers.
    """
    is_unhealthy = removal is RemovalReason.UNHEALTHY
    if is_unhealthy is not member.is_unhealthy:
        member = replace(member, is_unhealthy=is_unhealthy)
    if member.removal is None and is_unhealthy:
        return replace(member, removal=removal)
    if member.removal is RemovalReason.UNHEALTHY and removal is None:
        return replace(member, removal=None)
    return member


def _ask_node(member: Member) -> Member:
    """Return the Node as one that is asked to give way; a victim of a scale-down stays one.

    A Node of a deleted NodePool leaves for the deletion, but no later than its preemption allows.
    """
    is_going = member.removal is RemovalReason.POOL_DELETED
    removal = member.removal if is_going else RemovalReason.PREEMPTED
    return replace(member, removal=removal, is_preempted=True, is_asked=True)


def _withdraw_request(member: Member) -> Member:
    """Return the Node as it would be without the request to give way, if nothing came of it."""
    if not member.is_asked:
        return member
    if member.removal is RemovalReason.POOL_DELETED:
        return replace(member, is_preempted=False, is_asked=False)
    removal = RemovalReason.UNHEALTHY if member.is_unhealthy else None
    if member.removed_in and not member.is_cancelled:
        removal = RemovalReason.SCALE_DOWN
    return replace(member, removal=removal, is_preempted=False, is_asked=False)


def _preempt_node(member: Member) -> Member:
    """Return the Node as one whose preemption has begun; a victim of a scale-down stays one.

    A Node of a deleted NodePool leaves for the deletion, but no later than its preemption allows.
    """
    member = replace(member, is_preempted=True, is_asked=False)
    if member.removal is RemovalReason.POOL_DELETED:
        return member
    removed_in = 0 if member.is_cancelled else member.removed_in
    return replace(
        member, removal=RemovalReason.PREEMPTED, removed_in=removed_in, is_cancelled=False
    )
