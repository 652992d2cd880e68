"""The Nodes of a NodePool as the allocator knows them, and how many of them are leaving."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple, assert_never

from immutables import Map

from nodepool.contract.model import RemovalReason
from nodepool.contract.timetable import GONE_AFTER


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
    domain: the NVLink domain of its machine; empty if the machine has no domain.
    triage: whether its machine goes to triage when it leaves.
    grace_s: how many seconds its workloads may take to end.
    drained_by: when its drain ends at the latest, if its Pods end; None before the drain.
    batch: the position of the input that led to its assignment; Nodes with the same position are
        equally new.
    idle_only: whether lifecycle keeps the Node if it turns out to be active.
    is_cancelled: whether its removal was cancelled, and lifecycle has not answered yet.
    is_reserved: whether it is reserved for the control plane, so that its NodePool cannot use it.
    is_preempted: whether a preemption limits its stay, even if it leaves for another reason.
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

    @property
    def is_busy_victim(self) -> bool:
        """Whether a scale-down waits for its Pods, and lifecycle may not keep it instead."""
        is_victim = self.removal is RemovalReason.SCALE_DOWN
        return is_victim and self.active and not self.idle_only

    @property
    def is_idle(self) -> bool:
        """Whether it stays and no workload runs on it."""
        return self.removal is None and not self.active

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
        """Whether its machine certainly comes back, and no later than after a preemption.

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
        """Whether its preemption would bring its machine back, or bring it back sooner."""
        if self.removal is RemovalReason.SCALE_DOWN:
            return not (self.triage or self.returns)
        return self.removal is None and not self.triage

    def is_new_supply(self, before: "Member") -> bool:
        """Return whether this Node, or another Node in its place, may newly have to give way."""
        was_coming = before.returns or before.returns_by not in (None, self.returns_by)
        is_missing = was_coming and not self.returns
        return is_missing or (self.may_give_way and not before.may_give_way)


NOBODY: Final = Member(0)
"""Stands for a Node that does not exist."""


class Domain(NamedTuple):
    """The Nodes of a NodePool in one NVLink domain.

    held: how many Nodes there are.
    staying: how many Nodes stay.
    spareable: how many Nodes leave for a scale-down, and so can still be kept.
    """

    held: int = 0
    staying: int = 0
    spareable: int = 0


@dataclass(frozen=True, slots=True)
class Racks:
    """The racks that the Nodes of a NodePool form.

    A rack has `size` Nodes of one domain. The last rack of a domain may have fewer.

    domains: the Nodes of each NVLink domain.
    held: how many racks there are, including racks that lack Nodes.
    staying: how many racks the Nodes that stay form.
    split: in how many domains a part of a rack stays while other Nodes leave for a scale-down.
    """

    size: int
    domains: Map[str, Domain] = Map()
    held: int = 0
    staying: int = 0
    split: int = 0

    def having(self, member: Member) -> "Racks":
        """Return the racks with this Node."""
        return self._changed(member, 1)

    def without(self, member: Member) -> "Racks":
        """Return the racks without this Node."""
        return self._changed(member, -1)

    def _changed(self, member: Member, change: int) -> "Racks":
        before = self.domains.get(member.domain, Domain())
        after = Domain(
            before.held + change,
            before.staying + change * (member.removal is None),
            before.spareable + change * (member.removal is RemovalReason.SCALE_DOWN),
        )
        domains = self.domains
        domains = domains.set(member.domain, after) if after.held else domains.delete(member.domain)
        return Racks(
            self.size,
            domains,
            self.held + self._racks(after.held) - self._racks(before.held),
            self.staying + self._racks(after.staying) - self._racks(before.staying),
            self.split + self._is_split(after) - self._is_split(before),
        )

    def _racks(self, nodes: int) -> int:
        return -(-nodes // self.size)

    def _is_split(self, domain: Domain) -> bool:
        return domain.staying % self.size > 0 and domain.spareable > 0


@dataclass(frozen=True, slots=True)
class Members:
    """The Nodes of one NodePool by name, and counts of the Nodes in `nodes`.

    nodes: the Nodes that the NodePool holds and can use.
    reserved: the Nodes that are reserved for the control plane; no count includes these Nodes.
    leaving: Nodes that leave, for any reason.
    spareable: Nodes that leave for a scale-down; no other leaving Node can still be kept.
    deleted: Nodes that leave because the NodePool is deleted.
    busy_victims: Nodes that leave for a scale-down that waits for their Pods.
    idle: Nodes that stay and on which no workload runs.
    cancelled: Nodes whose removal was cancelled, before lifecycle has said whether they stay.
    racks: the racks that the Nodes form; None for a type that does not come in racks.
    """

    nodes: Map[str, Member] = Map()
    reserved: Map[str, Member] = Map()
    leaving: int = 0
    spareable: int = 0
    deleted: int = 0
    busy_victims: int = 0
    idle: int = 0
    cancelled: int = 0
    racks: Racks | None = None

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
        """Whether there is no Node, not even a reserved one."""
        return not self.nodes and not self.reserved

    @property
    def reserved_victims(self) -> tuple[str, ...]:
        """Return the names of the reserved Nodes that leave for a scale-down.

        The allocator chose these Nodes before it heard of their reservation.
        """
        scale_down = RemovalReason.SCALE_DOWN
        reserved = self.reserved.items()
        return tuple(sorted(node for node, each in reserved if each.removal is scale_down))

    @property
    def is_unanswered(self) -> bool:
        """Return whether a Node, reserved or not, may leave although its removal was cancelled."""
        return self.cancelled > 0 or any(each.is_cancelled for each in self.reserved.values())

    def get(self, node: str, assignment: int) -> Member | None:
        """Return the Node of this name and assignment; None if there is no such Node."""
        member = self.nodes.get(node) or self.reserved.get(node)
        return member if member is not None and member.assignment == assignment else None

    def put(self, node: str, member: Member) -> "Members":
        """Return the members with this Node, which replaces any known Node of the same name."""
        rest = self.drop(node) if member.is_reserved or node in self.reserved else self
        if member.is_reserved:
            return replace(rest, reserved=rest.reserved.set(node, member))
        return rest._counted(rest.nodes.get(node), member, rest.nodes.set(node, member))

    def drop(self, node: str) -> "Members":
        """Return the members without this Node."""
        if node in self.reserved:
            return replace(self, reserved=self.reserved.delete(node))
        return self._counted(self.nodes[node], None, self.nodes.delete(node))

    def _counted(
        self, before: Member | None, after: Member | None, nodes: Map[str, Member]
    ) -> "Members":
        was = before.removal if before is not None else None
        now = after.removal if after is not None else None
        scale_down, pool_deleted = RemovalReason.SCALE_DOWN, RemovalReason.POOL_DELETED
        racks = self.racks
        if racks is not None:
            racks = racks.without(before) if before is not None else racks
            racks = racks.having(after) if after is not None else racks
        gone, new = before or NOBODY, after or NOBODY
        return Members(
            nodes,
            self.reserved,
            self.leaving + (now is not None) - (was is not None),
            self.spareable + (now is scale_down) - (was is scale_down),
            self.deleted + (now is pool_deleted) - (was is pool_deleted),
            self.busy_victims + new.is_busy_victim - gone.is_busy_victim,
            self.idle + (after is not None and new.is_idle) - (before is not None and gone.is_idle),
            self.cancelled + new.is_cancelled - gone.is_cancelled,
            racks,
        )
