"""Whom to give up: which Nodes leave when a NodePool shrinks."""

from collections.abc import Mapping
from dataclasses import dataclass

from nodepool.contract.model import RemovalReason, ScaleDownStrategy


@dataclass(frozen=True, slots=True)
class Member:
    """A Node of a NodePool as the allocator knows it; a higher `assignment` came later.

    `requests` counts how often it was asked to leave.
    """

    assignment: int
    registered: bool = False
    active: bool = False
    removal: RemovalReason | None = None
    requests: int = 0


def victims(
    members: Mapping[str, Member], count: int, strategy: ScaleDownStrategy
) -> tuple[str, ...]:
    """At most `count` Nodes to remove, first to go first (SEMANTICS, section 5).

    Not yet registered ones, then idle ones, then with PreferIdle active ones; among equals the
    newest, then by name. Nodes that are leaving already are not among them.
    """
    staying = ((node, member) for node, member in members.items() if member.removal is None)
    ranked = sorted(
        (_dispensable(member), -member.assignment, node)
        for node, member in staying
        if strategy is ScaleDownStrategy.PREFER_IDLE or not member.active
    )
    return tuple(node for *_, node in ranked[:count])


def _dispensable(member: Member) -> int:
    if not member.registered:
        return 0
    return 2 if member.active else 1


def reprieved(members: Mapping[str, Member], count: int) -> tuple[str, ...]:
    """At most `count` Nodes being removed for scale-down to keep after all, best to keep first."""
    leaving = (
        (-_dispensable(member), member.assignment, node)
        for node, member in members.items()
        if member.removal is RemovalReason.SCALE_DOWN
    )
    return tuple(node for *_, node in sorted(leaving)[:count])
