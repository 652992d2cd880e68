"""How NodePools give up Nodes: those that are too many, and all of a deleted one."""

from collections.abc import Iterator

from allocator.choose import reprieved, victims
from allocator.pool import Pool, Stage
from nodepool.contract.events import (
    CWNodeDeletionRequestSuccess,
    CWNodePoolNodesRemoved,
    CWNodePoolRemoveNodes,
    CWNodePoolScaledDown,
    NodeRemovalCancelled,
)
from nodepool.contract.keys import pool_path
from nodepool.contract.messages import pool_fields
from nodepool.contract.model import RemovalReason, ScaleDownStrategy

Shrinking = (
    CWNodePoolRemoveNodes
    | CWNodeDeletionRequestSuccess
    | NodeRemovalCancelled
    | CWNodePoolNodesRemoved
    | CWNodePoolScaledDown
)


def shrunk(pool: Pool) -> Iterator[Shrinking]:
    """What is missing until a NodePool has no more Nodes than it wants."""
    match pool.stage:
        case Stage.DELETING:
            yield from _emptied(pool)
        case Stage.ACTIVE:
            yield from _fitted(pool)
            yield from _ended(pool)
        case Stage.EMPTIED:
            return


def _fitted(pool: Pool) -> Iterator[Shrinking]:
    if pool.surplus < 0 and pool.leaving:
        for node in reprieved(pool.members, -pool.surplus):
            yield _cancelled(pool, node)
    elif pool.surplus > 0:
        strategy = pool.spec.lifecycle.scale_down_strategy
        if pool.removed is None:
            yield _begun(pool, pool.surplus, strategy.value)
        idle_only = strategy is ScaleDownStrategy.IDLE_ONLY
        for node in victims(pool.members, pool.surplus, strategy):
            yield _removal(pool, node, RemovalReason.SCALE_DOWN, idle_only=idle_only)


def _ended(pool: Pool) -> Iterator[Shrinking]:
    """The end of a scale-down: the Nodes that were too many are gone."""
    before, removed, remaining = pool.scaled, pool.removed or 0, len(pool.members)
    if not pool.valid or pool.leaving or pool.surplus > 0:
        return
    if before is None or before <= pool.target:
        return
    if removed:
        yield CWNodePoolNodesRemoved(
            **pool_fields(pool.key),
            uid=pool.uid,
            count=removed,
            remaining=remaining,
            removal=RemovalReason.SCALE_DOWN,
            message=f"{removed} Nodes removed, {remaining} remain",
        )
    text = f"scaled down from {before} to {pool.target} Nodes"
    yield CWNodePoolScaledDown(
        **pool_fields(pool.key), before=before, after=pool.target, message=text
    )


def _emptied(pool: Pool) -> Iterator[Shrinking]:
    """A deleted NodePool gives up every Node, and is emptied once the last one is gone."""
    if not pool.members:
        _, _, name = pool_path(pool.key)
        yield CWNodePoolNodesRemoved(
            **pool_fields(pool.key),
            uid=pool.uid,
            count=pool.removed or 0,
            remaining=0,
            removal=RemovalReason.POOL_DELETED,
            message=f"all Nodes of NodePool {name} are removed",
        )
        return
    if pool.removed is None:
        yield _begun(pool, len(pool.members), "deletion of the NodePool")
    if pool.surplus:
        for node in sorted(node for node, member in pool.members if not pool.is_leaving(member)):
            yield _removal(pool, node, RemovalReason.POOL_DELETED, idle_only=False)


def _begun(pool: Pool, count: int, cause: str) -> CWNodePoolRemoveNodes:
    before = pool.scaled if pool.scaled is not None else len(pool.members)
    text = f"removing {count} Nodes ({cause})"
    return CWNodePoolRemoveNodes(**pool_fields(pool.key), count=count, before=before, message=text)


def _removal(
    pool: Pool, node: str, removal: RemovalReason, *, idle_only: bool
) -> CWNodeDeletionRequestSuccess:
    member = pool.members[node]
    return CWNodeDeletionRequestSuccess(
        **pool_fields(pool.key),
        node=node,
        zone=pool.zone,
        assignment=member.assignment,
        removal=removal,
        idle_only=idle_only,
        request=member.requests + 1,
        message=f"deletion of Node {node} requested",
    )


def _cancelled(pool: Pool, node: str) -> NodeRemovalCancelled:
    return NodeRemovalCancelled(
        **pool_fields(pool.key),
        zone=pool.zone,
        node=node,
        assignment=pool.members[node].assignment,
    )
