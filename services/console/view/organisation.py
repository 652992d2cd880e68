"""The Nodes that an organisation may have, has and waits for, by type and zone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from console.view.model import Fleet, Place, Pool
from console.view.words import Word
from nodepool.contract.documents import Document, field, items, text
from nodepool.explanation.facts import Facts

_ORDER: Final = {role: place for place, role in enumerate(("owner", "editor", "viewer", "agent"))}
HOLDERS_MAX: Final = 8
"""The most NodePools that a quota names."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A NodePool that uses a quota: how many Nodes it reserves, and how many it waits for."""

    place: Place
    reserved: int
    waits: int


@dataclass(frozen=True, slots=True)
class QuotaLine:
    """A quota: `limit` is None if it was never set.

    holders: NodePools that use it or wait for it, those that wait first; hidden: how many more.
    """

    instance_type: str
    zone: str
    limit: int | None
    used: int
    waiting: int
    holders: tuple[Holder, ...]
    hidden: int = 0

    @property
    def left(self) -> int | None:
        """How many more Nodes the quota allows; None without a limit."""
        return None if self.limit is None else max(0, self.limit - self.used)

    @property
    def word(self) -> Word:
        """The state of the quota: whether a NodePool waits for it, or it was lowered below use."""
        if self.limit is None:
            return Word("act", "No quota")
        if self.waiting:
            return Word("act", "Over quota")
        if self.used > self.limit:
            return Word("act", f"{self.used - self.limit:,} over limit")
        return Word("ok", "Room") if self.left else Word("idle", "Used up")


@dataclass(frozen=True, slots=True)
class User:
    """A user: its name, its role, and the cluster of an agent."""

    name: str
    role: str
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class Users:
    """The users of an organisation, those who may do most first; total: how many there are."""

    shown: tuple[User, ...]
    total: int


def read_users(answer: object) -> Users:
    """Return the users in an answer of the gateway."""
    found = [
        User(text(each, "user"), text(each, "role"), text(each, "cluster"))
        for each in items(answer, "items")
    ]
    found.sort(key=lambda each: (_ORDER.get(each.role, len(_ORDER)), each.name))
    total = field(answer, "total")
    return Users(tuple(found), total if isinstance(total, int) else len(found))


def list_quotas(fleet: Fleet) -> tuple[QuotaLine, ...]:
    """Return each quota, and each type and zone that NodePools want without a quota."""
    known = {(text(each, "zone"), text(each, "instanceType")): each for each in fleet.quotas}
    wanted = {(pool.zone, pool.facts.instance_type) for pool in fleet.pools.values()}
    lines = [
        _line(zone, instance_type, known.get((zone, instance_type)), [*fleet.pools.values()])
        for zone, instance_type in sorted(known.keys() | wanted)
        if zone and instance_type
    ]
    asked = [line for line in lines if line.limit is not None or line.holders]
    return tuple(sorted(asked, key=lambda line: -line.waiting))


def _line(
    zone: str, instance_type: str, quota: Document | None, pools: Sequence[Pool]
) -> QuotaLine:
    own = [p for p in pools if (p.zone, p.facts.instance_type) == (zone, instance_type)]
    # An invalid NodePool without Nodes has no part in a quota.
    holders = [each for each in map(_holder, own) if each.reserved or each.waits]
    holders.sort(key=lambda each: (-each.waits, -each.reserved, each.place))
    limit, used = field(quota, "limit"), field(quota, "used")
    return QuotaLine(
        instance_type,
        zone,
        limit if isinstance(limit, int) else None,
        used if isinstance(used, int) else 0,
        sum(each.waits for each in holders),
        tuple(holders[:HOLDERS_MAX]),
        max(0, len(holders) - HOLDERS_MAX),
    )


def _holder(pool: Pool) -> Holder:
    facts = pool.facts
    held = facts.current + facts.in_progress
    granted = facts.granted if facts.granted is not None else held
    check = facts.checks.get("Quota")
    is_short = check is not None and check.status == "False" and not facts.deleting
    reserved = max(held, granted)
    return Holder(pool.place, reserved, max(0, facts.target - reserved) if is_short else 0)


@dataclass(frozen=True, slots=True)
class Room:
    """The Nodes that a quota allows one NodePool to have.

    limit: the quota; None if it was never set.
    others: the number of Nodes that other NodePools use of the quota.
    left: the highest target that fits. A target up to the Nodes that the NodePool has always fits,
        without the Nodes that the control plane gave back beyond the grant.
    """

    limit: int | None
    others: int
    left: int


def find_room(fleet: Fleet, zone: str, instance_type: str, pool: Place | None = None) -> Room:
    """Return how many Nodes a quota allows a NodePool, or a new one without `pool`."""
    known = fleet.pools.get(pool) if pool is not None else None
    own = _holder(known).reserved if known is not None else 0
    held = _count_kept(known.facts) if known is not None else 0
    for line in list_quotas(fleet):
        if (line.zone, line.instance_type) == (zone, instance_type) and line.limit is not None:
            others = max(0, line.used - own)
            return Room(line.limit, others, max(held, line.limit - others))
    return Room(None, 0, held)


def _count_kept(facts: Facts) -> int:
    """Return the highest target that fits under any limit, see `Room.left`."""
    return facts.held if facts.granted is None else min(facts.held, facts.granted)


def describe_room(fleet: Fleet, zone: str, instance_type: str, pool: Place | None = None) -> str:
    """Return how many Nodes a quota allows, as a sentence; empty without a type."""
    if not instance_type:
        return ""
    room = find_room(fleet, zone, instance_type, pool)
    if room.limit is None:
        return f"No quota is set for {instance_type} in {zone or 'this zone'}."
    others = room.others
    used = f"as other NodePools use {others:,}" if others else "as no other NodePool uses it"
    return f"The quota of {room.limit:,} has room for {max(0, room.limit - others):,}, {used}."
