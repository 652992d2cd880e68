"""Which Nodes leave when a NodePool shrinks, and which of them are spared when it grows again."""

from collections.abc import Iterable

from allocator.members import Member
from nodepool.contract.model import RemovalReason, ScaleDownStrategy


def victims(
    members: Iterable[tuple[str, Member]], count: int, strategy: ScaleDownStrategy
) -> tuple[str, ...]:
    """At most `count` Nodes to remove, in the order in which they are to go.

    First those that are not registered yet, then cordoned ones, then idle ones, then active ones;
    active ones, be they cordoned or not, with PreferIdle only; among equals the newest, then by
    name. Nodes that leave already, such as those that are preempted, count before any is chosen
    and are not among them.
    """
    staying = ((node, member) for node, member in members if member.removal is None)
    ranked = sorted(
        (cost(member), -member.assignment, node)
        for node, member in staying
        if strategy is ScaleDownStrategy.PREFER_IDLE or not member.active
    )
    return tuple(node for *_, node in ranked[:count])


def reprieved(members: Iterable[tuple[str, Member]], count: int) -> tuple[str, ...]:
    """At most `count` Nodes that are leaving for a scale-down and may stay, most useful first."""
    leaving = (
        (-cost(member), member.assignment, node)
        for node, member in members
        if member.removal is RemovalReason.SCALE_DOWN
    )
    return tuple(node for *_, node in sorted(leaving)[:count])


def cost(member: Member) -> int:
    """How much is lost with a Node: nothing before it is registered, and most while it works."""
    if not member.registered:
        return 0
    if member.cordoned:
        return 1
    return 3 if member.active else 2
