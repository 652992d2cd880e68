"""The Nodes of a NodePool as the allocator knows them, and how many of them are leaving."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple, assert_never

from immutables import Map

from nodepool.contract.model import RemovalReason
from nodepool.contract.timetable import GONE_AFTER
from nodepool.state.maps import put


@dataclass(frozen=True, slots=True)
class Member:
    """A Node of a NodePool.

    assignment: the number of the machine's assignment; a later assignment has a higher number.
    registered: whether it joined its cluster.
    active: whether workloads run on it.
    blocked: whether a Pod runs on it that a drain for a scale-down waits for.
    cordoned: whether it is cordoned as unhealthy or by command.
    removal: why it is leaving; None if it stays.
    removed_in: the number of the last removal that it was part of; 0 before its first removal.
    requests: how often its deletion was requested.
    domain: the NVLink domain of its machine if its type comes in racks; empty otherwise.
    triage: whether its machine goes to triage when it leaves.
    grace_s: how many seconds its workloads may take to end.
    drained_by: when its drain ends at the latest, if its Pods end; None before the drain.
    batch: the position of the input that led to its assignment; Nodes with the same position are
        equally new.
    idle_only: whether lifecycle keeps the Node if it turns out to be active.
    is_cancelled: whether its removal was cancelled, and lifecycle has not answered yet.
    is_reserved: whether it is reserved for the control plane, so that its NodePool cannot use it.
    is_preempted: whether a preemption limits its stay, even if it leaves for another reason.
    is_unhealthy: whether lifecycle replaces it as unhealthy, unless it leaves for another reason.
    is_asked: whether it was asked to give way, and its preemption has not begun.
    """

    assignment: int
    registered: bool = False
    active: bool = False
    cordoned: bool = False
    removal: RemovalReason | None = None
    removed_in: int = 0
    requests: int = 0
    domain: str = ""
    blocked: bool = False
    triage: bool = False
    grace_s: int = 0
    drained_by: datetime | None = None
    batch: int = 0
    idle_only: bool = False
    is_cancelled: bool = False
    is_reserved: bool = False
    is_preempted: bool = False
    is_unhealthy: bool = False
    is_asked: bool = False

    @property
    def is_busy_victim(self) -> bool:
        """Return whether a scale-down waits for its Pods, and lifecycle may not keep it instead."""
        is_victim = self.removal is RemovalReason.SCALE_DOWN
        return is_victim and self.active and not self.idle_only

    @property
    def kind(self) -> tuple[RemovalReason | None, bool, bool]:
        """Return what a NodePool counts: Nodes of the same kind count alike."""
        return self.removal, self.is_busy_victim, self.is_cancelled

    @property
    def grace(self) -> timedelta:
        """Return how long its workloads may take to end."""
        return timedelta(seconds=self.grace_s)

    @property
    def lingers(self) -> bool:
        """Return whether its workloads may take longer to end than a preemption."""
        return self.grace > GONE_AFTER

    @property
    def returns(self) -> bool:
        """Return whether its machine certainly comes back, and no later than after a preemption.

        This holds if the Node leaves and no Pod can delay it. The machine of an unhealthy Node goes
        to triage.
        """
        match self.removal:
            case None | RemovalReason.UNHEALTHY:
                return False
            case RemovalReason.SCALE_DOWN:
                return not (self.triage or self.blocked or self.lingers)
            case RemovalReason.POOL_DELETED:
                return not (self.triage or (self.lingers and not self.is_preempted))
            case RemovalReason.PREEMPTED:
                return not self.triage
            case _:
                assert_never(self.removal)

    @property
    def returns_by(self) -> datetime | None:
        """Return when its machine certainly comes back after a long drain; None otherwise."""
        is_awaited = self.removal is RemovalReason.SCALE_DOWN and self.blocked
        is_drained = self.removal in (RemovalReason.SCALE_DOWN, RemovalReason.POOL_DELETED)
        if self.returns or self.triage or is_awaited or not is_drained:
            return None
        return self.drained_by

    @property
    def may_give_way(self) -> bool:
        """Return whether its preemption would bring its machine back, or bring it back sooner."""
        if self.removal in (RemovalReason.UNHEALTHY, RemovalReason.PREEMPTED):
            return False
        return not (self.triage or self.returns)

    @property
    def may_stay(self) -> bool:
        """Return whether its request to give way can be taken back and makes its machine come.

        A Node of a deleted NodePool leaves anyway, but its Pods may take longer to end.
        """
        is_hurried = self.removal is RemovalReason.POOL_DELETED and self.lingers
        return self.is_asked and (is_hurried or self.removal is RemovalReason.PREEMPTED)

    def comes_anyway(self, before: "Member") -> bool:
        """Return whether its machine newly comes back, and not because it was asked for.

        It may come back only after a long drain.
        """
        is_new = self.returns or (self.returns_by is not None and before.returns_by is None)
        return is_new and not (before.returns or self.is_asked)

    def is_new_supply(self, before: "Member") -> bool:
        """Return whether this Node, or another Node in its place, may newly have to give way."""
        was_coming = before.returns or before.returns_by not in (None, self.returns_by)
        is_missing = was_coming and not self.returns
        # The Nodes of a deleted NodePool may give way only once they are asked to leave.
        is_asked = self.removal is not before.removal
        return is_missing or (self.may_give_way and (is_asked or not before.may_give_way))


NOBODY: Final = Member(0)
"""Stands for a Node that does not exist."""


class Counts(NamedTuple):
    """Numbers of Nodes, and of the racks that the Nodes of each NVLink domain form.

    A rack consists of Nodes of one domain. The last rack of a domain may lack Nodes. In a type that
    does not come in racks, each Node is a rack.

    held: all Nodes that the NodePool can use.
    staying: Nodes that do not leave.
    spareable: Nodes that leave for a scale-down; no other leaving Node can still be kept.
    deleted: Nodes that leave because the NodePool is deleted.
    busy_victims: Nodes that leave for a scale-down that waits for their Pods.
    cancelled: Nodes whose removal was cancelled, before lifecycle has said whether they stay.
    racks, racks_staying: the racks that all Nodes form, and that the Nodes that stay form.
    split: domains in which a part of a rack stays while other Nodes leave for a scale-down.
    """

    held: int = 0
    staying: int = 0
    spareable: int = 0
    deleted: int = 0
    busy_victims: int = 0
    cancelled: int = 0
    racks: int = 0
    racks_staying: int = 0
    split: int = 0

    @classmethod
    def of(cls, member: Member) -> "Counts":
        """Return a Node as a number of Nodes."""
        removal = member.removal
        return cls(
            1,
            removal is None,
            removal is RemovalReason.SCALE_DOWN,
            removal is RemovalReason.POOL_DELETED,
            member.is_busy_victim,
            member.is_cancelled,
        )

    def plus(self, other: "Counts", sign: int) -> "Counts":
        """Return the numbers with the other numbers added, or subtracted if `sign` is -1."""
        return Counts(*(mine + sign * more for mine, more in zip(self, other, strict=True)))

    def in_racks(self, size: int) -> "Counts":
        """Return the numbers of one domain, in which `size` Nodes form a rack."""
        is_split = self.staying % size > 0 and self.spareable > 0
        return Counts(*self[:6], -(-self.held // size), -(-self.staying // size), is_split)


NO_NODES: Final = Counts()


@dataclass(frozen=True, slots=True)
class Members:
    """The Nodes of one NodePool by name.

    size: how many Nodes form a rack.
    nodes: the Nodes that the NodePool holds and can use.
    reserved: the Nodes that are reserved for the control plane; no count includes these Nodes.
    counts, domains: the numbers of `nodes`, in all and in each NVLink domain.
    """

    size: int = 1
    nodes: Map[str, Member] = Map()
    reserved: Map[str, Member] = Map()
    counts: Counts = NO_NODES
    domains: Map[str, Counts] = Map()

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[tuple[str, Member]]:
        return iter(self.nodes.items())

    def __getitem__(self, node: str) -> Member:
        return self.nodes[node] if node in self.nodes else self.reserved[node]

    @property
    def every(self) -> dict[str, Member]:
        """All Nodes, including the Nodes that are reserved for the control plane."""
        return {**self.nodes, **self.reserved}

    @property
    def is_empty(self) -> bool:
        """Return whether there is no Node, not even a reserved one."""
        return not self.nodes and not self.reserved

    @property
    def reserved_victims(self) -> tuple[str, ...]:
        """The names of the reserved Nodes that leave for a scale-down.

        The allocator chose these Nodes before it heard of their reservation.
        """
        scale_down = RemovalReason.SCALE_DOWN
        reserved = self.reserved.items()
        return tuple(sorted(node for node, each in reserved if each.removal is scale_down))

    @property
    def is_unanswered(self) -> bool:
        """Return whether a Node, reserved or not, may leave although its removal was cancelled."""
        reserved = self.reserved.values()
        return self.counts.cancelled > 0 or any(each.is_cancelled for each in reserved)

    def get(self, node: str, assignment: int) -> Member | None:
        """Return the Node of this name and assignment; None if there is no such Node."""
        member = self.nodes.get(node) or self.reserved.get(node)
        return member if member is not None and member.assignment == assignment else None

    def put(self, node: str, member: Member | None) -> "Members":
        """Return the members with this Node in the place of any of its name; None for no Node."""
        is_reserved = member is not None and member.is_reserved
        before, after = self.nodes.get(node), None if is_reserved else member
        reserved = put(self.reserved, node, member if is_reserved else None)
        counts, domains = self.counts, self.domains
        if before is None or after is None or before.kind != after.kind:
            for each, sign in ((before, -1), (after, 1)):
                if each is not None:
                    old = domains.get(each.domain, NO_NODES)
                    new = old.plus(Counts.of(each), sign)
                    domains = put(domains, each.domain, new if new.held else None)
                    more, less = new.in_racks(self.size), old.in_racks(self.size)
                    counts = counts.plus(more, 1).plus(less, -1)
        return Members(self.size, put(self.nodes, node, after), reserved, counts, domains)
