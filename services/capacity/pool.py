"""What the capacity service knows about a NodePool and about an offering."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from immutables import Map

from nodepool.contract.conditions import Capacity
from nodepool.contract.events import CapacityChecked
from nodepool.contract.keys import OfferingKey, PoolKey
from nodepool.contract.model import ComputeClass, NodePoolSpec
from nodepool.placement.racks import Counts
from nodepool.placement.ranking import Ranking, Waiting
from nodepool.placement.waits import NO_WAIT, Wait
from nodepool.state.queue import Queue

RENEWALS_PER_SECOND: Final = 100
"""How many verdicts per second are renewed after a number in them changes; for types in racks."""


@dataclass(frozen=True, slots=True)
class Said:
    """The parts of the last verdict on a NodePool that decide whether a new verdict differs.

    generation, granted: the generation and the grant that were checked.
    reason: the reason of the condition.
    wanted, available, preempted: the numbers in its message; 0 if the message has no such number.
    text: its message, which names more numbers, for a type that comes in racks; empty otherwise.
    since: the start of the wait; None if there are enough machines.
    position, needed: its place among all that wait, and how many machines it waits for.
    """

    generation: int
    granted: int
    reason: Capacity
    wanted: int = 0
    available: int = 0
    text: str = ""
    preempted: int = 0
    since: datetime | None = None
    position: int = 0
    needed: int = 0

    def is_hardly_ahead_of(self, before: "Said") -> bool:
        """Whether nothing is new but that less than a tenth of the wait is over since then.

        Each machine moves everything that waits; so a NodePool far behind hears of it seldom.
        """
        moved = replace(self, position=before.position, needed=before.needed)
        return (
            moved == before
            and 0 <= (before.position - self.position) * 10 < before.position
            and 0 <= (before.needed - self.needed) * 10 < max(1, before.needed)
        )

    @classmethod
    def of(
        cls,
        generation: int,
        granted: int,
        reason: Capacity,
        wanted: int,
        available: int,
        text: str = "",
    ) -> "Said":
        """Return what a verdict of these numbers says."""
        if reason is Capacity.SUFFICIENT:
            return cls(generation, granted, reason)
        return cls(generation, granted, reason, wanted, available, text)

    @classmethod
    def by(cls, verdict: CapacityChecked, pool: "Pool") -> "Said":
        """Return what this verdict on a NodePool says."""
        said = cls.of(
            verdict.generation,
            verdict.granted,
            verdict.reason,
            verdict.wanted,
            verdict.available,
            verdict.message if pool.rack_size else "",
        )
        since = None if verdict.reason is Capacity.SUFFICIENT else verdict.since
        return replace(
            said,
            preempted=verdict.preempted,
            since=since,
            position=verdict.position,
            needed=verdict.needed,
        )


@dataclass(frozen=True, slots=True)
class Warned:
    """The content of the last `CWInsufficientCapacity`.

    reason: the reason of the verdict.
    allowed: how many Nodes the NodePool wanted and was allowed to have, in total.
    """

    reason: Capacity
    allowed: int


@dataclass(frozen=True, slots=True)
class Pool:
    """A NodePool that is not being deleted.

    offering: where its machines come from.
    generation, spec, valid: its desired state, and whether that state can be delivered.
    rack_size: how many Nodes form a rack; 0 for a type that does not come in racks.
    checked: the generation in its last quota check; 0 before the first check.
    quota_failed: whether its last quota check failed, so that no machine is kept for it until the
        next quota verdict.
    granted: how many Nodes the quota verdict for the generation `checked` grants.
    latest_grant: how many Nodes its last quota verdict grants, for any generation.
    held: how many Nodes it has.
    domains: how many of its Nodes are in each NVLink domain; empty for a type not in racks.
    wait: since when it waits for each of the Nodes that it lacks.
    said: the last published verdict; None before the first verdict, after a failed check, and after
        it was invalid.
    warned: the last warning; None while there are enough machines.
    """

    key: PoolKey
    uid: str
    offering: OfferingKey
    generation: int
    spec: NodePoolSpec
    valid: bool = True
    rack_size: int = 0
    checked: int = 0
    quota_failed: bool = False
    granted: int = 0
    latest_grant: int = 0
    held: int = 0
    domains: Counts = Map()
    wait: Wait = NO_WAIT
    said: Said | None = None
    warned: Warned | None = None

    @property
    def allowed(self) -> int:
        """How many Nodes it wants to have and may have."""
        return min(self.granted, self.latest_grant, self.spec.target)

    @property
    def missing(self) -> int:
        """How many of the allowed Nodes it does not have."""
        return max(0, self.allowed - self.held)

    @property
    def may_grow(self) -> bool:
        """Whether it is valid, and quota was checked for its current generation."""
        return self.valid and self.checked == self.generation

    @property
    def is_rechecked(self) -> bool:
        """Return whether it keeps its place until quota is checked for its changed spec.

        Until then, the allocator keeps machines for it as they become free, at most as many as its
        last checks allow. It keeps no machine for a spot NodePool or after a failed check.
        """
        is_spot = self.spec.compute_class is ComputeClass.SPOT
        is_known = self.valid and self.said is not None
        return is_known and not (self.may_grow or is_spot or self.quota_failed)

    @property
    def shortfall(self) -> int:
        """Return how many Nodes the NodePool still wants.

        While it is checked again, the number is at most the number of Nodes that it waited for.
        """
        if self.may_grow:
            return self.missing
        return min(self.missing, self.wait.lacks) if self.is_rechecked else 0

    @property
    def waiting(self) -> Waiting | None:
        """How it waits for the offering; None if it wants no more Nodes."""
        shortfall = self.shortfall
        if not shortfall:
            return None
        since = self.wait.since
        assert since is not None, f"{self.key} wants Nodes before its quota was checked"
        return Waiting.of(self.key, self.spec, since, self.wait.fitted(shortfall))

    @property
    def restricted(self) -> bool:
        """Whether it may lack Nodes even if as many machines are free as it wants.

        Its affinity may not accept these machines, or the machines may not complete its racks.
        """
        return self.shortfall > 0 and (self.spec.affinity is not None or self.rack_size > 0)


@dataclass(frozen=True, slots=True)
class Offering:
    """The demand for the machines of one type in one zone.

    waiting: the NodePools that want machines, in the order in which they are served.
    demand: how many machines these NodePools want in total.
    restricted: how many of these NodePools are `Pool.restricted`.
    short: the NodePools whose last verdict is that there are not enough machines, or whose last
        check failed.
    renewed: when the last verdict was published; None for a type that does not come in racks.
    """

    waiting: Ranking = Ranking()
    demand: int = 0
    restricted: int = 0
    short: Queue[PoolKey] = Queue()
    renewed: datetime | None = None

    @property
    def is_quiet(self) -> bool:
        """Whether no NodePool waits for the offering, or must still hear that its wait is over."""
        return not len(self.waiting) and not len(self.short)

    @property
    def renewable_at(self) -> datetime | None:
        """When its verdicts may be renewed; None if they may be renewed at once.

        For a type that comes in racks, each verdict names how many machines are free in each NVLink
        domain. So one machine changes the verdicts on all NodePools that wait.
        """
        seconds = len(self.waiting) // RENEWALS_PER_SECOND
        return self.renewed + timedelta(seconds=seconds) if self.renewed and seconds else None


def with_offering(
    offerings: Map[OfferingKey, Offering], key: OfferingKey, offering: Offering
) -> Map[OfferingKey, Offering]:
    """Return the offerings with this offering, or without it if nothing is known of it."""
    if not offering.is_quiet:
        return offerings.set(key, offering)
    return offerings.delete(key) if key in offerings else offerings
