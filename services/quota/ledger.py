"""One limit, what is reserved under it, and the NodePools that it is for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from nodepool.contract.keys import PoolKey
from nodepool.state.queue import Queue
from quota.line import Line
from quota.pool import Pool

RENEWALS_PER_SECOND: Final = 100
"""How many verdicts of a ledger are renewed in a second because a number in them has changed."""
NO_POOLS: Final[Queue[PoolKey]] = Queue()
NO_LINE: Final = Line()
EARLIEST = datetime.min.replace(tzinfo=UTC)
"""Earlier than any NodePool."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """One limit, and what is reserved under it.

    limit: the most Nodes; None where none is set.
    used: what all NodePools together have reserved.
    holders: how many NodePools have something reserved.
    pools: the NodePools that may be granted Nodes.
    waiting: those that may not have all they want, longest waiting first; and those to be checked.
    unchecked: those without a verdict since their newest version, or since the limit was unset.
    exceeding: those whose grant is still to shrink to what they hold, since the limit was lowered
        below what is reserved.
    """

    limit: int | None = None
    used: int = 0
    holders: int = 0
    pools: Queue[PoolKey] = Queue()
    waiting: Line = NO_LINE
    unchecked: Queue[PoolKey] = Queue()
    exceeding: Queue[PoolKey] = Queue()

    @property
    def is_unused(self) -> bool:
        """Whether it is as if it had never been."""
        return self.limit is None and not self.holders and not self.pools

    @property
    def renewal_s(self) -> int:
        """After how many seconds verdicts are renewed whose numbers have changed."""
        return len(self.waiting) // RENEWALS_PER_SECOND

    def next(self) -> PoolKey | None:
        """The NodePool to check next; None where all have the verdict that they should have.

        It is the first in line that fits, so that nobody is served before one that waits longer.
        """
        fits = None if self.limit is None else self.waiting.first(self.limit - self.used)
        return fits or self.exceeding.head or self.unchecked.head

    def limited(self, limit: int | None, by_creation: Callable[[], Queue[PoolKey]]) -> "Ledger":
        """The ledger with this limit; if it was lowered below what is reserved, grants shrink.

        No limit reserves as little as one of 0, and is another reason, also where nobody waits.

        by_creation: returns all its NodePools in the order in which they are then checked.
        """
        most = limit or 0
        is_lowered = most < (self.limit or 0)
        is_exceeded = is_lowered and most < self.used
        pools = by_creation() if is_exceeded or limit is None else NO_POOLS
        exceeding = pools if is_exceeded else self.exceeding
        unchecked = pools if limit is None else self.unchecked
        return replace(self, limit=limit, exceeding=exceeding, unchecked=unchecked)

    def with_pool(self, before: int, pool: Pool) -> "Ledger":
        """The ledger with another state of a NodePool that had so many Nodes reserved before."""
        key = pool.key
        ledger = replace(
            self,
            used=self.used + pool.reserved - before,
            holders=self.holders + (pool.reserved > 0) - (before > 0),
        )
        if pool.eligible:
            waiting = self.waiting.put(key, pool.lacks) if key in self.waiting else self.waiting
            return replace(ledger, pools=self.pools.put(key), waiting=waiting)
        return replace(ledger.done(key), pools=self.pools.drop(key), waiting=self.waiting.drop(key))

    def joined(self, pool: Pool, *, keeps_place: bool) -> "Ledger":
        """The ledger with a new version of a NodePool to be checked, at the end of the line."""
        waiting = self.waiting if keeps_place else self.waiting.drop(pool.key)
        waiting = waiting.put(pool.key, pool.lacks)
        return replace(self, waiting=waiting, unchecked=self.unchecked.put(pool.key))

    def by_creation(self, pools: Mapping[PoolKey, Pool]) -> Queue[PoolKey]:
        """Return its NodePools that may be granted Nodes, the oldest one first."""
        queue = NO_POOLS
        for key in sorted(self.pools, key=lambda key: pools[key].created or EARLIEST):
            queue = queue.put(key)
        return queue

    def done(self, key: PoolKey) -> "Ledger":
        """The ledger without the duty to check this NodePool."""
        return replace(self, unchecked=self.unchecked.drop(key), exceeding=self.exceeding.drop(key))

    def waits(self, pool: Pool, *, waits: bool) -> "Ledger":
        """The ledger with a NodePool in line, at its place or at the end, or not in line."""
        key = pool.key
        waiting = self.waiting.put(key, pool.lacks) if waits else self.waiting.drop(key)
        return replace(self.done(key), waiting=waiting)
