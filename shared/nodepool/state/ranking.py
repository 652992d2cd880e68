"""The order in which NodePools are served with machines, and who waits in that order."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from nodepool.contract.keys import PoolKey
from nodepool.contract.model import ComputeClass, NodePoolSpec

Rank = tuple[bool, int, datetime, PoolKey]
"""Whether it is of the class `spot`, the negated priority, since when it waits, and its key."""


def rank(spec: NodePoolSpec, since: datetime, key: PoolKey) -> Rank:
    """Where a NodePool stands: class, then priority, then first come; smaller is served first."""
    return spec.compute_class is ComputeClass.SPOT, -spec.priority, since, key


@dataclass(frozen=True, slots=True)
class Ranking:
    """The NodePools that wait, first to be served first; a change makes a new ranking."""

    ranks: tuple[Rank, ...] = ()

    def __len__(self) -> int:
        return len(self.ranks)

    def __iter__(self) -> Iterator[PoolKey]:
        return (key for *_, key in self.ranks)

    def moved(self, before: Rank | None, after: Rank | None) -> "Ranking":
        """The ranking with one NodePool moved from a place to another; None is no place."""
        if before == after:
            return self
        ranks = list(self.ranks)
        if before is not None:
            del ranks[bisect_left(ranks, before)]
        if after is not None:
            insort(ranks, after)
        return Ranking(tuple(ranks))
