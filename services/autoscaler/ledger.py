"""A limit as the autoscaler knows it, so that it requests no Nodes that quota would not grant."""

from dataclasses import dataclass
from typing import Final

from nodepool.contract.keys import PoolKey
from nodepool.state.queue import Queue
from nodepool.state.values import replace

NO_POOLS: Final[Queue[PoolKey]] = Queue()


@dataclass(frozen=True, slots=True)
class Ledger:
    """One limit, and the Nodes that count against it.

    limit: the maximum number of Nodes; None for a limit that is not set, which allows no Nodes.
    used: how many Nodes count against the limit, as last published by the quota service.
    asked: how many more Nodes the autoscaler has requested that quota has not checked yet.
    full: the NodePools whose Pods need more Nodes than their targets, in order of arrival.
    """

    limit: int | None = None
    used: int = 0
    asked: int = 0
    full: Queue[PoolKey] = NO_POOLS

    def room_with(self, own: int) -> int:
        """Return how many more Nodes quota would grant now to a NodePool.

        own: how many of the used Nodes it has beyond its grant, which are room for its own target.
        """
        return max(0, self.left + own)

    @property
    def left(self) -> int:
        """Return how many Nodes the limit leaves; negative if more Nodes count than it allows."""
        return (self.limit or 0) - self.used - self.asked

    def with_full(self, key: PoolKey, *, is_full: bool) -> "Ledger":
        """Return the ledger with a NodePool among those that need more Nodes, or not."""
        full = self.full.put(key) if is_full else self.full.drop(key)
        return self if full is self.full else replace(self, full=full)


NONE: Final = Ledger()
