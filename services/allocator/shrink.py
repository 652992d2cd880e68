"""How NodePools give up Nodes: surplus Nodes, and all Nodes of a deleted NodePool."""

from collections.abc import Iterator
from itertools import chain

from allocator.choose import (
    Surplus,
    complete_racks,
    exchanged_racks,
    place,
    reprieved_racks,
    spareable_nodes,
    surplus_racks,
)
from allocator.members import Member
from allocator.pool import Pool, Stage
from nodepool.contract import events as on
from nodepool.contract.counting import format_count
from nodepool.contract.messages import pool_fields
from nodepool.contract.model import RemovalReason, ScaleDownStrategy

Shrinking = (
    on.CWNodePoolRemoveNodes
    | on.CWNodeDeletionRequestSuccess
    | on.NodeRemovalCancelled
    | on.CWNodePoolNodesRemoved
    | on.CWNodePoolScaledDown
)


def leaving_next(pool: Pool) -> list[str]:
    """Return the Nodes to ask to leave.

    `_empty_pool` asks them; `allocator.give_way` counts on their machines before it preempts.
    """
    if pool.stage is not Stage.ACTIVE:
        deleted = RemovalReason.POOL_DELETED
        every = pool.members.every.items()
        return sorted(node for node, each in every if each.removal is not deleted)
    return _surplus(pool).leaving


def _surplus(pool: Pool) -> Surplus:
    strategy = pool.spec.lifecycle.scale_down_strategy
    return surplus_racks(pool.members, pool.rack_size, pool.racks_wanted, strategy)


def shrunk(pool: Pool) -> Iterator[Shrinking]:
    """Yield the events that are missing until a NodePool has no more Nodes than it wants."""
    match pool.stage:
        case Stage.DELETING:
            yield from _empty_pool(pool)
        case Stage.ACTIVE:
            is_cancelled = False
            kept = (_cancel_removal(pool, node) for node in pool.members.reserved_victims)
            for event in chain(kept, _fit_racks(pool), _chosen_again(pool)):
                is_cancelled = is_cancelled or isinstance(event, on.NodeRemovalCancelled)
                yield event
            if not is_cancelled:
                yield from _end_removal(pool)
        case Stage.EMPTIED:
            return


def _fit_racks(pool: Pool) -> Iterator[Shrinking]:
    """Yield the removals of surplus racks, or keep as many Nodes that leave as are wanted again.

    The other Nodes of a rack that stays in part are kept, too. A NodePool that is not valid loses
    no further Node.
    """
    counts, strategy = pool.members.counts, pool.spec.lifecycle.scale_down_strategy
    leaving: list[str] = []
    if pool.valid and counts.racks_staying > pool.racks_wanted:
        surplus = _surplus(pool)
        leaving = surplus.leaving
        if pool.removed is None:
            yield _begun(pool, surplus.nodes, f"{strategy.value}{_name_grant(pool)}")
        idle_only = strategy is ScaleDownStrategy.IDLE_ONLY
        for node in leaving:
            yield _removal(pool, node, RemovalReason.SCALE_DOWN, idle_only=idle_only)
    if counts.spareable and (counts.racks_staying < pool.racks_wanted or counts.split):
        kept = reprieved_racks(pool.members, pool.rack_size, pool.racks_wanted, frozenset(leaving))
        for node in kept:
            yield _cancel_removal(pool, node)


def _chosen_again(pool: Pool) -> Iterator[Shrinking]:
    """Exchange victims that wait for their Pods: idle Nodes leave in the place of busy victims.

    With `IdleOnly` no busy victim leaves, whether an idle Node takes its place or not, and the
    other Nodes of its rack stay with it.
    """
    members, size = pool.members, pool.rack_size
    if not members.counts.busy_victims or not pool.valid:
        return
    busy = [(node, each) for node, each in members if each.is_busy_victim]
    leaving: tuple[str, ...] = ()
    if pool.spec.lifecycle.scale_down_strategy is ScaleDownStrategy.IDLE_ONLY:
        names = [node for node, _ in spareable_nodes(busy)]
        kept = (*names, *complete_racks(members, size, names))
    elif size > 1:
        leaving, kept = exchanged_racks(members, size)
    else:
        leaving, kept = _choose_exchange(pool, busy)
    for node in leaving:
        yield _removal(pool, node, RemovalReason.SCALE_DOWN, idle_only=False)
    for node in kept:
        yield _cancel_removal(pool, node)


def _choose_exchange(
    pool: Pool, busy: list[tuple[str, Member]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the idle Nodes that leave, and the busy victims whose place these Nodes take."""
    if pool.surplus:
        return (), ()
    idle = [each for each in pool.members if each[1].removal is None and not each[1].active]
    leaving = sorted(idle, key=place)[: len(busy)]
    kept = spareable_nodes(busy)[: len(leaving)]
    return tuple(node for node, _ in leaving), tuple(node for node, _ in kept)


def _end_removal(pool: Pool) -> Iterator[Shrinking]:
    """Yield the end of a removal, if no Node is too many and none may still leave for it."""
    is_open = pool.removed is not None
    if pool.has_too_many or pool.members.is_unanswered or (is_open and _has_asked_victim(pool)):
        return
    before = pool.scaled_from
    if is_open:
        yield _report_removed(pool, RemovalReason.SCALE_DOWN)
    if pool.has_open_scale_down:
        yield on.CWNodePoolScaledDown(
            **pool_fields(pool.key),
            before=before,
            after=pool.target,
            message=f"scaled down from {before} to {format_count(pool.target)}",
        )


def _has_asked_victim(pool: Pool) -> bool:
    """Return whether a victim was asked to give way and may leave before its preemption begins."""
    return any(
        each.is_asked and each.removed_in == pool.removals and not each.is_cancelled
        for each in pool.members.every.values()
    )


def _empty_pool(pool: Pool) -> Iterator[Shrinking]:
    """Yield the removals of all Nodes of a deleted NodePool; once they are gone, yield the end."""
    if pool.members.is_empty:
        yield _report_removed(pool, RemovalReason.POOL_DELETED)
        return
    if pool.removed is None:
        yield _begun(pool, len(pool.members.every), "deletion of the NodePool")
    if pool.surplus:
        for node in leaving_next(pool):
            yield _removal(pool, node, RemovalReason.POOL_DELETED, idle_only=False)


def _report_removed(pool: Pool, removal: RemovalReason) -> on.CWNodePoolNodesRemoved:
    """Return how many Nodes a removal has removed, and how many Nodes the NodePool still has."""
    count, remaining = pool.removed or 0, len(pool.members)
    return on.CWNodePoolNodesRemoved(
        **pool_fields(pool.key),
        uid=pool.uid,
        count=count,
        remaining=remaining,
        removal=removal,
        message=f"{format_count(count)} removed, {remaining} remain{'s' * (remaining == 1)}",
    )


def _begun(pool: Pool, count: int, cause: str) -> on.CWNodePoolRemoveNodes:
    text = f"removing {format_count(count)} ({cause})"
    # A Node that its reservation gives back may be one more than the NodePool ever wanted.
    before = max(pool.scaled, pool.held)
    return on.CWNodePoolRemoveNodes(
        **pool_fields(pool.key), count=count, before=before, message=text
    )


def _name_grant(pool: Pool) -> str:
    """Return a clause on the grant that the Nodes exceed; empty if they exceed the target."""
    if pool.target == pool.spec.target:
        return ""
    return f"; the control plane gave back Nodes beyond the grant of {pool.target}"


def _removal(
    pool: Pool, node: str, removal: RemovalReason, *, idle_only: bool
) -> on.CWNodeDeletionRequestSuccess:
    member = pool.members[node]
    return on.CWNodeDeletionRequestSuccess(
        **pool_fields(pool.key),
        node=node,
        zone=pool.zone,
        assignment=member.assignment,
        removal=removal,
        idle_only=idle_only,
        request=member.requests + 1,
        message=f"deletion of Node {node} requested",
    )


def _cancel_removal(pool: Pool, node: str) -> on.NodeRemovalCancelled:
    return on.NodeRemovalCancelled(
        **pool_fields(pool.key),
        zone=pool.zone,
        node=node,
        assignment=pool.members[node].assignment,
    )
