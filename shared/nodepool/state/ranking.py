"""The order in which NodePools that wait for machines are served."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from nodepool.contract.keys import PoolKey
from nodepool.contract.model import ComputeClass, NodePoolSpec

Rank = tuple[bool, int, datetime, PoolKey]
"""Whether its class is `spot`, its priority negated, since when it waits, and its key."""


def rank(spec: NodePoolSpec, since: datetime, key: PoolKey) -> Rank:
    """The rank of a NodePool: by class, then priority, then time; the smallest is served first."""
    return spec.compute_class is ComputeClass.SPOT, -spec.priority, since, key


@dataclass(frozen=True, slots=True)
class Ranking:
    """The NodePools that wait, in the order in which they are served; a change makes a new one."""

    ranks: tuple[Rank, ...] = ()

    def __len__(self) -> int:
        return len(self.ranks)

    def __iter__(self) -> Iterator[PoolKey]:
        return (key for *_, key in self.ranks)

    def moved(self, before: Rank | None, after: Rank | None) -> "Ranking":
        """The ranking with one NodePool moved from one rank to another; None is no rank."""
        if before == after:
            return self
        ranks = list(self.ranks)
        if before is not None:
            place = bisect_left(ranks, before)
            assert ranks[place : place + 1] == [before], f"{before[-1]} does not wait at its rank"
            del ranks[place]
        if after is not None:
            insort(ranks, after)
        return Ranking(tuple(ranks))
