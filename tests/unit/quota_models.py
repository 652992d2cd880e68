"""What the quota service relies on, modelled: NodePools that come and go, an allocator, a line."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from nodepool.contract.conditions import Quota, Validated
from nodepool.contract.events import (
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodePoolDeleted,
    GrantAcknowledged,
    NodePoolDeleting,
    NodePoolValidated,
    NodeReservationChanged,
    QuotaChecked,
    QuotaCheckFailed,
)
from nodepool.contract.messages import Message
from unit.quota_service import (
    acknowledged,
    assigned,
    deleting,
    node_deleted,
    pool_deleted,
    reserved,
    specified,
    uid_of,
)


@dataclass
class ValidatorModel:
    """NodePools that are created, changed and deleted.

    lives: by name, how many NodePools were deleted before the present one.
    generations: by name, the generation of the spec; 0 where there is no NodePool.
    deleting: the names of those in deletion.
    newest: by name, the newest version of each.
    """

    lives: Counter[str] = field(default_factory=Counter)
    generations: Counter[str] = field(default_factory=Counter)
    deleting: set[str] = field(default_factory=set)
    newest: dict[str, NodePoolValidated] = field(default_factory=dict)

    def specify(self, pool: str, target: int) -> Iterator[NodePoolValidated]:
        """Creates a NodePool or changes its target, unless it is in deletion."""
        if pool not in self.deleting:
            yield self._next(pool, target, Validated.VALID)

    def relabel(self, pool: str) -> Iterator[NodePoolValidated]:
        """Changes something beside the spec of a NodePool."""
        if self._is_active(pool):
            yield self.newest[pool]

    def invalidate(self, pool: str, target: int) -> Iterator[NodePoolValidated]:
        """Changes the spec of a NodePool to an invalid one."""
        if self._is_active(pool):
            yield self._next(pool, target, Validated.INVALID)

    def delete(self, pool: str) -> Iterator[NodePoolDeleting]:
        """Begins the deletion of a NodePool."""
        if self._is_active(pool):
            self.deleting.add(pool)
            yield deleting(pool, uid=self._uid(pool))

    def forget(self, pool: str, uid: str) -> Iterator[CWNodePoolDeleted]:
        """Ends the deletion of the NodePool with this uid, which has no Nodes any more."""
        if pool in self.deleting and uid == self._uid(pool):
            yield pool_deleted(pool, uid)
            self.deleting.discard(pool)
            self.generations[pool] = 0
            self.lives[pool] += 1

    def _next(self, pool: str, target: int, reason: Validated) -> NodePoolValidated:
        self.generations[pool] += 1
        uid, generation = self._uid(pool), self.generations[pool]
        self.newest[pool] = specified(pool, target, generation, uid=uid, reason=reason)
        return self.newest[pool]

    def _is_active(self, pool: str) -> bool:
        return self.generations[pool] > 0 and pool not in self.deleting

    def _uid(self, pool: str) -> str:
        return uid_of(pool, self.lives[pool] + 1)


@dataclass
class LineModel:
    """The NodePools that wait, longest waiting first; and the target of each that is valid.

    It follows what the quota service hears and says, in that order.
    """

    names: list[str] = field(default_factory=list)
    targets: dict[str, int] = field(default_factory=dict)

    def process(self, message: Message) -> None:
        """Follows a message."""
        match message:
            case NodePoolValidated(pool=name, reason=Validated.VALID):
                target = message.spec.target
                if name in self.names and target > self.targets[name]:
                    self._leave(name)
                if name not in self.names:
                    self.names.append(name)
                self.targets[name] = target
            case NodePoolValidated(pool=name) | NodePoolDeleting(pool=name):
                self._leave(name)
                self.targets.pop(name, None)
            case QuotaChecked(pool=name, reason=Quota.UNDER):
                self._leave(name)
            case QuotaChecked(pool=name) | QuotaCheckFailed(pool=name):
                if name in self.targets and name not in self.names:
                    self.names.append(name)

    def _leave(self, name: str) -> None:
        if name in self.names:
            self.names.remove(name)


@dataclass(frozen=True)
class AllocatorPool:
    """A NodePool as an allocator has it at the point up to which it has read the log.

    target: how many Nodes it wants.
    invalid: whether its newest spec is invalid.
    granted: how many Nodes it may have.
    granted_for: the generation of that grant, which is not used for another generation.
    number: the number of that grant.
    outstanding: the largest grant that was not given back yet.
    held: how many Nodes it has.
    most: how many Nodes it keeps at most, if the control plane gave back Nodes beyond its grant;
        None for no bound.
    """

    uid: str = ""
    generation: int = 0
    target: int = 0
    invalid: bool = False
    granted: int = 0
    granted_for: int = 0
    number: int = 0
    outstanding: int = 0
    held: int = 0
    deleting: bool = False
    most: int | None = None

    @property
    def may_hold(self) -> int:
        """How many Nodes it is to have."""
        is_used = not (self.deleting or self.invalid) and self.granted_for == self.generation
        return self.granted if is_used else 0

    @property
    def surplus(self) -> int:
        """Return how many Nodes it has too many; an invalid spec removes none."""
        if self.deleting:
            return self.held
        wanted = self.target if self.most is None else min(self.target, self.most)
        return 0 if self.invalid else self.held - wanted

    @property
    def is_emptied(self) -> bool:
        """Whether it is in deletion and has no Nodes any more."""
        return self.deleting and not self.held


@dataclass
class AllocatorModel:
    """An allocator that follows grants: it assigns any number of Nodes that they allow.

    lent: the Nodes that are reserved for the control plane by their numbers, each with the name and
        the uid of its NodePool.
    back: the lent Nodes that were given back and that the allocator does not count yet.
    numbers: the number of each Node that is lent.
    """

    pools: dict[str, AllocatorPool] = field(default_factory=dict)
    lent: dict[int, tuple[str, str]] = field(default_factory=dict)
    back: dict[int, tuple[str, str]] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def pool(self, name: str) -> AllocatorPool:
        """The NodePool of this name; one without uid where there is none."""
        return self.pools.get(name, AllocatorPool())

    @property
    def relied_on(self) -> int:
        """How many Nodes all NodePools together have, or may still get."""
        return sum(max(pool.held, pool.may_hold) for pool in self.pools.values())

    def process(self, message: Message) -> Iterator[GrantAcknowledged]:
        """Follows a message; acknowledges a grant that became smaller, and a deletion."""
        match message:
            case NodePoolValidated(pool=name, uid=uid, generation=generation):
                known = self.pool(name)
                kept = known if known.uid == uid else AllocatorPool(uid)
                invalid = message.reason is Validated.INVALID
                target = kept.target if invalid else message.spec.target
                outstanding, kept = kept.outstanding, replace(kept, target=target, invalid=invalid)
                self.pools[name] = replace(kept, generation=generation)
                if invalid and not kept.deleting:
                    self.pools[name] = replace(self.pools[name], granted=0, outstanding=0)
                    if outstanding:
                        yield acknowledged(name, 0, kept.number, uid)
            case NodePoolDeleting(pool=name, uid=uid) if self.pool(name).uid == uid:
                pool = replace(self.pool(name), deleting=True, outstanding=0)
                self.pools[name] = pool
                yield acknowledged(name, 0, pool.number, uid, final=True)
            case QuotaChecked(pool=name, uid=uid) if self.pool(name).uid == uid:
                if not self.pool(name).deleting:
                    yield from self._follow(name, message)
            case NodeReservationChanged(pool=name, usable=True):
                _, uid = self.back.pop(message.assignment)
                if self.pool(name).uid == uid:
                    self._hold(name, 1)

    def assign(self, name: str, count: int) -> Iterator[CWNodeAssigned]:
        """Assigns at most so many Nodes to a NodePool that may have more."""
        pool = self.pool(name)
        for _ in range(min(count, pool.may_hold - pool.held)):
            self._hold(name, 1)
            yield assigned(name, uid=pool.uid)

    def remove(self, name: str, count: int) -> Iterator[CWNodeDeleted]:
        """Removes at most so many Nodes of a NodePool."""
        pool = self.pool(name)
        for _ in range(min(count, pool.held)):
            self._hold(name, -1)
            yield node_deleted(name, uid=pool.uid)

    def lend(self, name: str) -> Iterator[NodeReservationChanged]:
        """Reserves a Node of a NodePool for the control plane."""
        pool = self.pool(name)
        if pool.held and not pool.deleting:
            self._hold(name, -1)
            number = next(self.numbers)
            self.lent[number] = name, pool.uid
            yield reserved(name, number, usable=False)

    def take_back(self, name: str) -> Iterator[NodeReservationChanged]:
        """Gives a Node of a NodePool back; the allocator counts it once it reads of that."""
        pool = self.pool(name)
        lent = [number for number, of in self.lent.items() if of == (name, pool.uid)]
        if lent and not pool.deleting:
            self.back[lent[0]] = self.lent.pop(lent[0])
            yield reserved(name, lent[0], usable=True)

    def _follow(self, name: str, verdict: QuotaChecked) -> Iterator[GrantAcknowledged]:
        pool, number = self.pool(name), verdict.number
        granted = 0 if pool.invalid else verdict.granted
        outstanding = max(pool.outstanding, verdict.granted)
        most = granted if verdict.beyond and verdict.reason is not Quota.UNDER else None
        pool = replace(pool, granted=granted, granted_for=verdict.generation, number=number)
        pool = replace(pool, most=most)
        self.pools[name] = replace(pool, outstanding=granted)
        if granted < outstanding:
            yield acknowledged(name, granted, number, pool.uid)

    def _hold(self, name: str, change: int) -> None:
        pool = self.pool(name)
        self.pools[name] = replace(pool, held=pool.held + change)
