"""What the capacity service knows about a NodePool, and what it finds."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, Self

from immutables import Map

from nodepool.contract.conditions import Capacity
from nodepool.contract.events import CapacityChecked
from nodepool.contract.keys import PoolKey
from nodepool.placement.claims import Claimant
from nodepool.placement.racks import Counts
from nodepool.state.values import replace


class Share(NamedTuple):
    """How many machines a NodePool could have, and whether these are enough, or why not.

    available: how many machines it could have now.
    free: how many machines of each NVLink domain it could take, for a type that comes in racks.
    preempted: how many spot Nodes give way to it.
    position: the position of its first missing Node among all missing Nodes; 0 if it could have all
        its Nodes.
    needed: how many more machines must become free until it could have all its Nodes.
    """

    key: PoolKey
    reason: Capacity
    available: int
    free: Mapping[str, int] = MappingProxyType({})
    preempted: int = 0
    position: int = 0
    needed: int = 0


@dataclass(frozen=True)
class Pool(Claimant):
    """A NodePool that is not being deleted.

    domains: how many of its Nodes are in each NVLink domain.
    leaving: how many of these leave for a scale-down; empty for a type that does not come in racks.
    said: the last published verdict; None before the first verdict, after a failed check, and after
        it was invalid.
    warned: the reason in the last `CWInsufficientCapacity`, and how many Nodes the NodePool wanted
        and was allowed to have then; None while there are enough machines.
    lacked: how many Nodes could not be had at the worst `CWInsufficientCapacity` of each reason for
        the number of Nodes in `warned`; no number for a warning of a release that kept none.
    """

    domains: Counts = Map()
    leaving: Counts = Map()
    said: CapacityChecked | None = None
    warned: tuple[Capacity, int] | None = None
    lacked: Map[Capacity, int] = Map()

    @property
    def held(self) -> int:
        """Return how many Nodes it has."""
        return sum(self.domains.values())

    @property
    def is_checked(self) -> bool:
        """Return whether its last verdict still stands."""
        return self.said is not None

    @property
    def granted(self) -> int:
        """Return how many Nodes quota grants for the generation that was checked last."""
        return self.check.nodes if self.check is not None else 0

    def with_warning(self, verdict: CapacityChecked) -> Self:
        """Return the NodePool after the `CWInsufficientCapacity` for this verdict."""
        reason, goal, lacked = verdict.reason, self.goal or 0, verdict.wanted - verdict.available
        is_same = self.warned is not None and self.warned[1] == goal
        known: Map[Capacity, int] = self.lacked if is_same else Map()
        known = known.set(reason, max(lacked, known.get(reason, 0)))
        return replace(self, warned=(reason, goal), lacked=known)
