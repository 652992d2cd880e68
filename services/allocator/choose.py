"""Which Nodes leave when a NodePool shrinks, and which leaving Nodes stay if it grows again."""

from collections.abc import Iterable

from allocator.members import Member
from nodepool.contract.model import RemovalReason, ScaleDownStrategy

Place = tuple[int, int, str]
"""The place of a Node among a NodePool's Nodes that may leave; the lowest place leaves first."""


def victims(
    members: Iterable[tuple[str, Member]], count: int, strategy: ScaleDownStrategy
) -> tuple[str, ...]:
    """Return at most `count` Nodes to remove, in the order in which they leave.

    Nodes that leave already, such as Nodes that are preempted, count before a victim is chosen
    and are not victims. Only `PreferIdle` removes active Nodes.
    """
    ranked = sorted(
        place(node, member)
        for node, member in members
        if member.removal is None
        and (strategy is ScaleDownStrategy.PREFER_IDLE or not member.active)
    )
    return tuple(node for *_, node in ranked[:count])


def reprieved(members: Iterable[tuple[str, Member]], count: int) -> tuple[str, ...]:
    """Return at most `count` Nodes that leave for a scale-down and may stay, most useful first."""
    leaving = (
        place(node, member)
        for node, member in members
        if member.removal is RemovalReason.SCALE_DOWN
    )
    return tuple(node for *_, node in sorted(leaving, reverse=True)[:count])


def place(node: str, member: Member) -> Place:
    """Return the place of a Node: by what is lost with it, then the newest batch, then the name."""
    return cost(member), -member.batch, node


def cost(member: Member) -> int:
    """Return how much is lost with a Node: nothing before it registers, most while it is active."""
    if not member.registered:
        return 0
    return 1 + 2 * member.active + (not member.cordoned)
