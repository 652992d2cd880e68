"""The order in which NodePools that wait for machines of an offering are served.

Each Node that a NodePool lacks is one position. Across all organisations, positions are served by
class and then by the start of the wait. Within one organisation, its NodePools fill its positions
by priority. If a NodePool takes the position of another NodePool, the other NodePool gets one
of its later positions.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, TypeVar

from immutables import Map

from nodepool.contract.keys import PoolKey, pool_path
from nodepool.contract.model import ComputeClass, NodePoolSpec
from nodepool.placement.waits import Run
from nodepool.state.maps import put

Place = tuple[bool, datetime, PoolKey]
"""Whether the class is `spot`, the start of the wait, and the NodePool that has the positions."""
Order = tuple[int, datetime, PoolKey]
"""The negated priority, the start of the wait, and the NodePool; the lowest order fills first."""
T = TypeVar("T", Place, Order)


class Waiting(NamedTuple):
    """A NodePool that waits.

    since: the start of its wait.
    runs: its positions, earliest first.
    is_choosy: whether it may lack Nodes even if as many machines are free as it wants: its affinity
        may not accept these machines, or the machines may not complete its racks.
    group: the group in which its priority counts: NodePools of its organisation and class.
    """

    key: PoolKey
    is_spot: bool
    priority: int
    since: datetime
    runs: tuple[Run, ...]
    is_choosy: bool = False
    group: str = ""

    @classmethod
    def of(
        cls, key: PoolKey, spec: NodePoolSpec, since: datetime, runs: tuple[Run, ...]
    ) -> "Waiting":
        """Return the NodePool with this spec as it waits."""
        is_spot = spec.compute_class is ComputeClass.SPOT
        is_choosy = spec.affinity is not None or spec.rack_size > 0
        group = f"{pool_path(key)[0]}{'/spot' if is_spot else ''}"
        return cls(key, is_spot, spec.priority, since, runs, is_choosy, group)

    @property
    def nodes(self) -> int:
        """Return how many Nodes it lacks."""
        runs = self.runs
        return runs[0].nodes if len(runs) == 1 else sum(run.nodes for run in runs)

    @property
    def order(self) -> Order:
        """The sort key of the NodePool within its group."""
        return -self.priority, self.since, self.key

    @property
    def places(self) -> list[Place]:
        """The place of each of its runs among all positions."""
        return [(self.is_spot, run.since, self.key) for run in self.runs]


class Turn(NamedTuple):
    """A NodePool that takes at most `nodes` machines now."""

    key: PoolKey
    nodes: int


@dataclass(frozen=True, slots=True)
class Ranking:
    """The NodePools that wait for an offering; a change makes a new ranking.

    waiting: every NodePool that waits.
    places: the places of all positions, in the order in which they are served.
    orders: the order of the NodePools of each group.
    demand: how many machines the NodePools want in total.
    choosy: how many of the NodePools are `Waiting.is_choosy`.
    """

    waiting: Map[PoolKey, Waiting] = Map()
    places: tuple[Place, ...] = ()
    orders: Map[str, tuple[Order, ...]] = Map()
    demand: int = 0
    choosy: int = 0

    def __len__(self) -> int:
        return len(self.waiting)

    def __iter__(self) -> Iterator[PoolKey]:
        """Yield each NodePool that waits, in the order in which they are served first."""
        return iter(dict.fromkeys(turn.key for turn in self.turns()))

    @property
    def has_default(self) -> bool:
        """Return whether a NodePool of class `default` waits."""
        return bool(self.places) and not self.places[0][0]

    def move(self, before: Waiting | None, after: Waiting | None) -> "Ranking":
        """Return the ranking with another state of a NodePool; None stands for no wait."""
        if before == after:
            return self
        known = before or after
        assert known is not None
        places, orders = self.places, self.orders
        old, new = before.places if before else [], after.places if after else []
        if old != new:
            places = _change_ranks(places, old, new)
        if before is None or after is None or before[:4] != after[:4]:
            orders = _change_orders(
                _change_orders(orders, before, is_new=False), after, is_new=True
            )
        return Ranking(
            put(self.waiting, known.key, after),
            places,
            orders,
            self.demand + _nodes(after) - _nodes(before),
            self.choosy + bool(after and after.is_choosy) - bool(before and before.is_choosy),
        )

    def turns(self) -> Generator[Turn, int | None, None]:
        """Yield the turns of the NodePools.

        The caller may send how many machines the NodePool took. A NodePool that took fewer than it
        was offered has no more turns: no machine fits it. Without an answer it took all of them.
        """
        walk = _Walk(self)
        for _, since, key in self.places:
            count = next(run.nodes for run in self.waiting[key].runs if run.since == since)
            yield from walk.fill_positions(key, count)

    def find_next_position(self, key: PoolKey) -> tuple[PoolKey, datetime] | None:
        """Return the position that a NodePool fills with its next machine; None if it waits not.

        It is the earliest position of a NodePool of its group that comes after it there, or of
        itself: its owner, and the start of the wait.
        """
        pool = self.waiting.get(key)
        if pool is None:
            return None
        own = pool.runs[0].since
        order = self.orders[pool.group]
        if own == pool.since and order[-1][0] == -pool.priority:
            return key, own
        first = bisect_left(order, pool.order)
        return min(
            ((self.waiting[other].runs[0].since, other) for *_, other in order[first:]),
            default=(own, key),
        )[::-1]


class _Walk:
    """The positions of a ranking while they are filled.

    left: how many more machines each NodePool that had a turn takes.
    heads: the NodePools of each group that may still have a turn.
    debts: for each NodePool, the NodePools whose positions it took; they own its next positions.
    """

    def __init__(self, ranking: Ranking) -> None:
        self._ranking = ranking
        self._left: dict[PoolKey, int] = {}
        self._heads: dict[str, deque[Order]] = {}
        self._debts: dict[PoolKey, deque[tuple[PoolKey, int]]] = {}

    def fill_positions(self, key: PoolKey, count: int) -> Generator[Turn, int | None, None]:
        """Fill positions of a NodePool; the NodePools whose positions it took own the first."""
        owners = [(key, count)]
        while owners:
            owner, count = owners.pop()
            debts = self._debts.get(owner)
            if not debts:
                yield from self._fill(owner, count)
                continue
            creditor, owed = debts.popleft()
            if owed > count:
                debts.appendleft((creditor, owed - count))
            elif owed < count:
                owners.append((owner, count - owed))
            owners.append((creditor, min(owed, count)))

    def _fill(self, owner: PoolKey, count: int) -> Generator[Turn, int | None, None]:
        waiting = self._ranking.waiting
        pool = waiting[owner]
        group, order = pool.group, pool.order
        heads = self._heads.get(group)
        if heads is None:
            heads = self._heads[group] = deque(self._ranking.orders[group])
        while count > 0 and heads and heads[0] <= order:
            key = heads[0][-1]
            left = self._left.get(key)
            left = waiting[key].nodes if left is None else left
            most = min(count, left)
            taken = yield Turn(key, most)
            taken = most if taken is None else taken
            self._left[key] = left - taken
            if key != owner and taken:
                self._debts.setdefault(key, deque()).append((owner, min(taken, count)))
            if taken < most or left <= taken:
                heads.popleft()
            count -= taken


def _change_orders(
    orders: Map[str, tuple[Order, ...]], pool: Waiting | None, *, is_new: bool
) -> Map[str, tuple[Order, ...]]:
    """Return the orders with a NodePool that is new there, or without it."""
    if pool is None:
        return orders
    group, own = pool.group, [pool.order]
    order = orders.get(group, ())
    order = _change_ranks(order, [], own) if is_new else _change_ranks(order, own, [])
    return put(orders, group, order or None)


def _nodes(pool: Waiting | None) -> int:
    return pool.nodes if pool is not None else 0


def _change_ranks(ranks: tuple[T, ...], before: list[T], after: list[T]) -> tuple[T, ...]:
    """Return sorted ranks without some of them, and with others."""
    changed = list(ranks)
    for rank in before:
        place = bisect_left(changed, rank)
        assert changed[place : place + 1] == [rank], f"{rank[-1]} does not wait at its rank"
        del changed[place]
    for rank in after:
        insort(changed, rank)
    return tuple(changed)
