"""A NodePool and an offering as far as capacity depends on them."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from immutables import Map

from nodepool.contract.conditions import Capacity
from nodepool.contract.events import CapacityChecked
from nodepool.contract.keys import OfferingKey, PoolKey
from nodepool.contract.model import ComputeClass, NodePoolSpec
from nodepool.state.queue import Queue
from nodepool.state.racks import Counts
from nodepool.state.ranking import Ranking, Waiting
from nodepool.state.waits import NO_WAIT, Wait

RENEWALS_PER_SECOND: Final = 100
"""How many verdicts of an offering in racks are renewed in a second for a number in them."""


@dataclass(frozen=True, slots=True)
class Said:
    """What the last verdict on a NodePool said, as far as another one would differ from it.

    generation, granted: what was checked.
    reason: the reason of the condition.
    wanted, available, preempted: the numbers in its message; 0 where it has none.
    text: its message, of a type that comes in racks, where that names more numbers.
    since: the start of the wait; None where there are machines enough.
    position, needed: its place among what waits, and the machines that it waits for.
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
    """What the last `CWInsufficientCapacity` was about: its reason, and the Nodes wanted in all."""

    reason: Capacity
    allowed: int


@dataclass(frozen=True, slots=True)
class Pool:
    """A NodePool that stays, as far as its capacity depends on it.

    offering: the machines that it can be given.
    generation, spec, valid: its desired state, and whether that can be delivered.
    rack_size: how many of its Nodes are a rack; 0 for a type that comes one by one.
    checked: the generation that its quota was checked for last; 0 before the first time.
    quota_failed: whether the last check of its quota failed, so that no machine is kept for it
        until its next verdict.
    granted: how many Nodes the verdict on that generation grants.
    latest_grant: how many Nodes its last verdict on quota grants, for whichever generation.
    held: the Nodes that it has.
    domains: how many of them are of which NVLink domain, where the type comes in racks.
    wait: since when it waits for each of the Nodes that it lacks.
    said: the verdict that was published last; None before the first, after a failed check, and once
        it was invalid.
    warned: the last warning; None while there are machines enough.
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
        """How many Nodes it has not got of those it is allowed."""
        return max(0, self.allowed - self.held)

    @property
    def may_grow(self) -> bool:
        """Whether it is valid, and quota was checked for what it wants now."""
        return self.valid and self.checked == self.generation

    @property
    def is_rechecked(self) -> bool:
        """Return whether it keeps its place until quota is checked for its changed spec.

        Until then the allocator keeps machines that come free for it, at most as many as its last
        checks allow. It keeps no machine for a spot NodePool, and no machine after a failed check.
        """
        is_spot = self.spec.compute_class is ComputeClass.SPOT
        is_known = self.valid and self.said is not None
        return is_known and not (self.may_grow or is_spot or self.quota_failed)

    @property
    def shortfall(self) -> int:
        """Return how many Nodes the NodePool still wants.

        While it is checked again, these are no more than it waited for.
        """
        if self.may_grow:
            return self.missing
        return min(self.missing, self.wait.lacks) if self.is_rechecked else 0

    @property
    def waiting(self) -> Waiting | None:
        """How it waits for the offering; None where it wants no more Nodes."""
        shortfall = self.shortfall
        if not shortfall:
            return None
        since = self.wait.since
        assert since is not None, f"{self.key} wants Nodes before its quota was checked"
        return Waiting.of(self.key, self.spec, since, self.wait.fitted(shortfall))

    @property
    def restricted(self) -> bool:
        """Whether as many free machines as it wants need not be enough for it.

        An affinity may not accept them, or they are of other racks.
        """
        return self.shortfall > 0 and (self.spec.affinity is not None or self.rack_size > 0)


@dataclass(frozen=True, slots=True)
class Offering:
    """The demand for the machines of one type in one zone.

    waiting: the NodePools that want machines, first to be served first.
    demand: how many machines they want in all.
    restricted: for how many of them so many machines need not be enough.
    short: the NodePools whose last verdict is that there are not enough machines, or whose last
        check failed.
    renewed: where the type comes in racks, when a verdict was published last.
    """

    waiting: Ranking = Ranking()
    demand: int = 0
    restricted: int = 0
    short: Queue[PoolKey] = Queue()
    renewed: datetime | None = None

    @property
    def is_quiet(self) -> bool:
        """Whether no NodePool waits for it or has to hear that it waits no more."""
        return not len(self.waiting) and not len(self.short)

    @property
    def renewable_at(self) -> datetime | None:
        """When its verdicts may be renewed; None for at once.

        Of a type that comes in racks, each names how many machines are free of which domains, so
        that one machine changes the verdicts on all NodePools that wait.
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
