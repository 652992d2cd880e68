"""A ledger: one limit, the Nodes reserved under it, and the NodePools that it applies to."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from immutables import Map

from nodepool.contract.keys import PoolKey
from nodepool.state.maps import put
from nodepool.state.queue import Queue
from nodepool.state.values import replace
from quota.line import Line
from quota.pool import Pool

RENEWALS_PER_SECOND: Final = 100
"""How many verdicts of a ledger are renewed per second after a number in them has changed."""
NO_POOLS: Final[Queue[PoolKey]] = Queue()
NO_LINE: Final = Line()
EARLIEST = datetime.min.replace(tzinfo=UTC)
"""A moment before the creation of any NodePool."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """One limit, and the Nodes reserved under it.

    limit: the most Nodes; None if no limit is set.
    used: how many Nodes all NodePools together have reserved.
    holders: how many NodePools have Nodes reserved.
    pools: the NodePools that may be granted Nodes.
    waiting: NodePools whose target does not fit, and NodePools with a new version to check; the
        NodePool with the longest wait comes first.
    unchecked: NodePools that need a verdict: their version is new, the limit was deleted, or their
        grant does not cover their Nodes.
    exceeding: NodePools whose grant must still shrink to their entitled Nodes, because the limit
        was lowered below the number of reserved Nodes.
    returning: how many Nodes each NodePool in line gives back, once its grant is confirmed.
    returned: the sum of `returning`.
    own_room: how much of `used` is for Nodes that came back to each NodePool and that no grant
        covers; only the target of that NodePool may use this room.
    """

    limit: int | None = None
    used: int = 0
    holders: int = 0
    pools: Queue[PoolKey] = Queue()
    waiting: Line = NO_LINE
    unchecked: Queue[PoolKey] = Queue()
    exceeding: Queue[PoolKey] = Queue()
    returning: Map[PoolKey, int] = Map()
    returned: int = 0
    own_room: Map[PoolKey, int] = Map()

    @property
    def is_unused(self) -> bool:
        """Return whether it has no limit, no reserved Nodes and no NodePools."""
        return self.limit is None and not self.holders and not self.pools

    @property
    def renewal_s(self) -> int:
        """Return how many seconds after a number changes the verdicts that name it are renewed."""
        return len(self.waiting) // RENEWALS_PER_SECOND

    def next(self) -> PoolKey | None:
        """Return the NodePool to check next; None if every NodePool has its due verdict.

        The first NodePool in line that fits is served first. If it fits only after others have
        confirmed that they give Nodes back, no NodePool behind it takes this room before.
        """
        fits = None if self.limit is None else self._first(self.limit - self.used)
        return fits or self.exceeding.head or self.unchecked.head

    def fits(self, pool: Pool) -> bool:
        """Return whether the target of a NodePool fits into what others leave of the limit.

        A target that needs more Nodes than its NodePool keeps fits only if no NodePool that waits
        longer fits after all Nodes are given back. So the order in which grants are confirmed
        decides nothing. If it needs its `own_room`, a NodePool that waits longer comes first if it
        fits once the Nodes that take this room are gone.
        """
        if self.limit is None:
            return False
        room, needs = self.limit - self.used, pool.target - pool.reserved
        if needs > room or needs + pool.returning + pool.own_room <= min(room, 0):
            return needs <= room
        most = room + self.returned
        if needs + pool.own_room <= room and not self._is_behind(pool, most):
            return True
        return not self._is_behind(pool, most + pool.own_room)

    def _is_behind(self, pool: Pool, room: int) -> bool:
        """Return whether a NodePool that has waited longer than this one fits into the room."""
        first, places = self.waiting.first(room), self.waiting.places
        return first is not None and places[first] < places.get(pool.key, self.waiting.tail)

    def _first(self, room: int) -> PoolKey | None:
        """Return the first NodePool in line that fits; each NodePool may use its `own_room`."""
        firsts = [key for key in self.own_room if self._fits_with_own(key, room)]
        first = self._first_for_all(room)
        if first is not None:
            firsts.append(first)
        return min(firsts, key=self.waiting.places.__getitem__, default=None)

    def _fits_with_own(self, key: PoolKey, room: int) -> bool:
        """Return whether a NodePool fits with its `own_room`, and no NodePool before it fits."""
        if not self.waiting.takes_part(key):
            return False
        own = self.own_room[key] + self.returning.get(key, 0)
        most = room + self.returned + self.own_room[key]
        return self.waiting.lacks(key) - own <= room and self.waiting.first(most) == key

    def _first_for_all(self, room: int) -> PoolKey | None:
        """Return the first NodePool in line that fits into the room for all.

        If the first one waits for Nodes that others give back, return one that needs no room.
        """
        first = self.waiting.first(room + self.returned)
        if first is None or self.waiting.lacks(first) - self.returning.get(first, 0) <= room:
            return first
        return self.waiting.first(min(room, 0))

    def set_limit(self, limit: int | None, by_creation: Callable[[], Queue[PoolKey]]) -> "Ledger":
        """Return the ledger with this limit; grants shrink if it fell below the reserved Nodes.

        A missing limit allows as little as a limit of 0, but gives verdicts another reason. So all
        NodePools are checked again, even if no NodePool waits.

        by_creation: returns all NodePools of the ledger in the order in which they are checked.
        """
        most = limit or 0
        is_lowered = most < (self.limit or 0)
        is_exceeded = is_lowered and most < self.used
        exceeding = by_creation() if is_exceeded else self.exceeding
        unchecked = by_creation() if limit is None else self.unchecked
        return replace(self, limit=limit, exceeding=exceeding, unchecked=unchecked)

    def with_pool(self, before: int, pool: Pool) -> "Ledger":
        """Return the ledger with a changed NodePool that had `before` Nodes reserved until now."""
        key = pool.key
        ledger = replace(
            self._with_returning(key, pool.returning),
            own_room=put(self.own_room, key, pool.own_room or None),
            used=self.used + pool.reserved - before,
            holders=self.holders + (pool.reserved > 0) - (before > 0),
        )
        if pool.eligible:
            ledger = replace(ledger, pools=self.pools.put(key))
            return ledger._in_line(pool) if key in self.waiting else ledger
        return replace(ledger.done(key)._not_in_line(key), pools=self.pools.drop(key))

    def _with_returning(self, key: PoolKey, count: int) -> "Ledger":
        """Return the ledger in which a NodePool gives back `count` Nodes."""
        before = self.returning.get(key, 0)
        if count == before:
            return self
        returning = self.returning.set(key, count) if count else self.returning.delete(key)
        return replace(self, returning=returning, returned=self.returned + count - before)

    def join_line(self, pool: Pool, *, keeps_place: bool) -> "Ledger":
        """Return the ledger with a new version of a NodePool in line and due to be checked.

        keeps_place: whether a NodePool in line keeps its place; if not, it moves to the end.
        """
        ledger = self if keeps_place else self._not_in_line(pool.key)
        return replace(ledger._in_line(pool), unchecked=self.unchecked.put(pool.key))

    def by_creation(self, pools: Mapping[PoolKey, Pool]) -> Queue[PoolKey]:
        """Return its NodePools that may be granted Nodes, the oldest one first."""
        queue = NO_POOLS
        for key in sorted(self.pools, key=lambda key: pools[key].created or EARLIEST):
            queue = queue.put(key)
        return queue

    def done(self, key: PoolKey) -> "Ledger":
        """Return the ledger without the duty to check this NodePool."""
        return replace(self, unchecked=self.unchecked.drop(key), exceeding=self.exceeding.drop(key))

    def waits(self, pool: Pool, *, waits: bool) -> "Ledger":
        """Return the ledger with a NodePool in line or not in line, and not due for a check.

        A NodePool that is in line already keeps its place; any other NodePool joins at the end.
        """
        ledger = self.done(pool.key)
        return ledger._in_line(pool) if waits else ledger._not_in_line(pool.key)

    def _in_line(self, pool: Pool) -> "Ledger":
        """Return the ledger with a NodePool in line, at its place or at the end."""
        return replace(self, waiting=self.waiting.put(pool.key, pool.lacks))

    def _not_in_line(self, key: PoolKey) -> "Ledger":
        return replace(self, waiting=self.waiting.drop(key))
