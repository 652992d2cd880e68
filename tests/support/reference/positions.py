"""Positions of NodePools that wait for machines, as plain lists: a second specification.

Each Node that a NodePool lacks is one position. Positions are served by class, then by their
moment. The NodePools of one organisation and class fill its positions by priority, then by the
start of their wait; a NodePool that fills the position of another one gives it its own first.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from nodepool.contract.model import ComputeClass, NodePoolSpec

Moment = tuple[datetime, str]
"""The start of the wait of a position, and the key of the NodePool whose position it is."""


@dataclass
class Queued:
    """How one NodePool waits.

    start: when its wait began last; None before the first grant.
    moments: the start of the wait of each of its positions, in order.
    filled: the position that each of its Nodes fills, by assignment.
    allowed: how many Nodes it was granted, at most its target.
    """

    start: datetime | None = None
    moments: list[datetime] = field(default_factory=list)
    filled: dict[int, datetime | None] = field(default_factory=dict)
    allowed: int = 0

    def grant(self, allowed: int, held: int, now: datetime) -> None:
        """Take a grant of `allowed` Nodes, at most the target."""
        self.allowed, lacks = allowed, max(0, allowed - held)
        if lacks > len(self.moments):
            self.start, self.moments = now, [now] * lacks
        self.start = self.start or now
        del self.moments[lacks:]

    def aim(self, target: int, held: int) -> None:
        """Take a target: Nodes beyond it may leave without being missed."""
        self.allowed = min(self.allowed, target)
        self.gain(held)

    def gain(self, held: int) -> None:
        """Take a Node that comes back, after which the NodePool holds `held` Nodes."""
        del self.moments[max(0, self.allowed - held) :]

    def lose(self, assignment: int, held: int, now: datetime, *, never_joined: bool) -> None:
        """Take the end of a Node, after which the NodePool holds `held` Nodes."""
        position = self.filled.pop(assignment, None)
        if self.allowed - held <= len(self.moments):
            return
        if never_joined and position is not None:
            waited = self.start if self.moments and self.start else position
            self.start = min(waited, position)
            self.moments.append(position)
        elif self.moments:
            self.moments.append(self.moments[0])
        else:
            self.start, self.moments = now, [now]
        self.moments.sort()


@dataclass(frozen=True)
class Rival:
    """A NodePool that waits; `nodes` is how many machines it would take now."""

    key: str
    spec: NodePoolSpec
    queued: Queued
    nodes: int

    @property
    def org(self) -> str:
        """Its organisation."""
        return self.key.partition("/")[0]

    @property
    def is_spot(self) -> bool:
        """Whether it is served after every NodePool of class `default`."""
        return self.spec.compute_class is ComputeClass.SPOT

    @property
    def order(self) -> tuple[int, datetime, str]:
        """Its place in its organisation and class."""
        assert self.queued.start is not None
        return -self.spec.priority, self.queued.start, self.key

    @property
    def moments(self) -> list[datetime]:
        """The positions for the machines that it would take now."""
        assert self.queued.start is not None
        known = self.queued.moments[: self.nodes]
        last = known[-1] if known else self.queued.start
        return known + [last] * (self.nodes - len(known))

    def shares_with(self, other: "Rival") -> bool:
        """Whether both fill the same positions."""
        return (self.org, self.is_spot) == (other.org, other.is_spot)


def position_of(rival: Rival, rivals: Iterable[Rival]) -> tuple[Moment, Rival]:
    """Return the position that a NodePool fills next, and the NodePool whose position it is."""
    group = [each for each in rivals if each.shares_with(rival) and each.order >= rival.order]
    owner = min([*group, rival], key=lambda each: (each.moments[0], each.key))
    return (owner.moments[0], owner.key), owner


def fill(rival: Rival, rivals: Iterable[Rival], assignment: int) -> None:
    """Let a NodePool fill its next position with the Node of this assignment."""
    (moment, _), owner = position_of(rival, rivals)
    own = rival.queued.moments
    if owner.key != rival.key and moment in owner.queued.moments:
        owner.queued.moments.remove(moment)
        owner.queued.moments.append(own[0] if own else moment)
        owner.queued.moments.sort()
        del own[:1]
    elif moment in own:
        own.remove(moment)
    rival.queued.filled[assignment] = moment


def fill_own(queued: Queued, assignment: int) -> None:
    """Let a NodePool that does not wait now fill its own first position.

    Without a position, as after a lower target, the Node came for the last wait.
    """
    queued.filled[assignment] = queued.moments.pop(0) if queued.moments else queued.start


def shares(rivals: list[Rival], free: int) -> dict[str, tuple[int, int]]:
    """Return per NodePool how many of the free machines it takes, and how many positions it has.

    Each position takes one machine, which any NodePool can use.
    """
    taken = {rival.key: 0 for rival in rivals}
    for rival in _served(rivals)[:free]:
        taken[rival.key] += 1
    return {rival.key: (taken[rival.key], rival.nodes) for rival in rivals}


def _served(rivals: list[Rival]) -> list[Rival]:
    """Return the NodePool that takes each position, in the order in which they are served."""
    positions = sorted(
        (rival.is_spot, moment, rival.key, rival.org)
        for rival in rivals
        for moment in rival.moments
    )
    left = {rival.key: rival.nodes for rival in rivals}
    served: list[Rival] = []
    for is_spot, _, _, org in positions:
        group = [r for r in rivals if (r.is_spot, r.org) == (is_spot, org) and left[r.key]]
        first = min(group, key=lambda each: each.order)
        left[first.key] -= 1
        served.append(first)
    return served
