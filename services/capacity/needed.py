"""How many machines must become free until each NodePool that waits has all its Nodes."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from immutables import Map

from capacity.pool import Pool
from capacity.state import State
from nodepool.contract.keys import MachineKey, OfferingKey, PoolKey
from nodepool.placement.plan import Part
from nodepool.placement.ranking import Ranking
from nodepool.state.values import replace

LAST: Final = datetime.max.replace(tzinfo=UTC)
"""The start of waits that have not begun."""


class Taking(Part):
    """What a NodePool takes of the free machines, and what comes for it.

    `Part` describes what it takes: `taken`, `most`, `first` and `last`.

    preempted: how many spot Nodes give way to it.
    misfits: how many of the spot Nodes that give way to what is served before it do not satisfy its
        affinity. What is served before it may take other machines first, and leave it these.
    position: the position of its first missing Node among all missing Nodes.
    needed: how many machines must become free for this NodePool, and for the NodePools and the
        operator that are served before it.
    """

    compares = True
    preempted = misfits = position = needed = 0


Takings = Mapping[PoolKey, Taking]


def find_losers(state: State, key: OfferingKey) -> dict[PoolKey, Pool]:
    """Return the NodePools that will lose Nodes and miss them, as they are after these losses.

    The Nodes that give way, or are replaced as unhealthy, leave whoever gets their machines. A
    NodePool that waits keeps its place, and lacks more Nodes there. For any other NodePool the loss
    begins a new wait, behind all that waits already.
    """
    machines = state.inventory.machines
    leaving = {*state.giving_way.get(key, ()), *state.leaving.lost(key)}
    lost = Counter(PoolKey(machines[each].holder) for each in leaving if each not in state.reserved)
    losers = dict[PoolKey, Pool]()
    for each, count in lost.items():
        pool = state.pools.get(each)
        if pool is None:
            continue
        held, wait = max(0, pool.held - count), pool.wait
        for left in reversed(range(held, pool.held)):
            wait = wait.after_loss(left, LAST)
        after = replace(pool, wait=wait, domains=Map({"": held}))
        if after.claim > pool.claim:
            losers[each] = after
    return losers


def find_giving(state: State, key: OfferingKey) -> Iterator[MachineKey]:
    """Yield the machines that come from Nodes that give way: none that goes to triage."""
    broken = state.leaving.to_triage
    return (each for each in state.giving_way.get(key, ()) if each not in broken)


def count_giving(state: State, key: OfferingKey) -> Counter[PoolKey]:
    """Return how many machines come from the Nodes of each NodePool that give way."""
    machines = state.inventory.machines
    return Counter(PoolKey(machines[each].holder) for each in find_giving(state, key))


def place(
    ranking: Ranking,
    claims: Takings,
    losers: Mapping[PoolKey, Pool],
    operator: int,
    coming: int,
    giving: Counter[PoolKey],
    own: PoolKey | None = None,
) -> None:
    """Set the position of each NodePool's first missing Node, and how many machines it waits for.

    operator: how many machines an operator lacks, who gets them first.
    coming: how many machines come for the operator or for nobody; the latter fit everybody.
    giving: how many machines come from the Nodes of each NodePool that give way.
    own: the only NodePool that is asked about; None for all of them.
    """
    if all(claim.taken >= claim.lacks for claim in claims.values()):
        return
    after = ranking
    for key, loser in losers.items():
        after = after.move(ranking.waiting.get(key), loser.waiting)
    at_once = _Line(ranking, operator, lambda key: claims[key].taken if key in claims else 0)
    later = at_once
    if losers or coming or any(claim.preempted for claim in claims.values()):
        later = _Line(after, operator - coming, lambda key: _comes(claims.get(key)))
    needs = _Needs(ranking, losers, at_once, later, max(0, coming - operator), giving)
    for key in claims if own is None else claims.keys() & {own}:
        claim = claims[key]
        claim.position = at_once.positions[key]
        claim.needed = needs.of(key, claim)


def _comes(claim: Taking | None) -> int:
    return 0 if claim is None else claim.taken + claim.preempted


class _Line:
    """The missing Nodes in the order in which they get machines.

    positions: the position of the first missing Node of each NodePool.
    ends: the position of its last missing Node.
    needed: how many machines must become free for all up to that position.
    totals: the same two numbers for all missing Nodes of its class and of what is served before.
    new: how many of the positions of each class are of waits that have not begun.
    """

    def __init__(self, ranking: Ranking, operator: int, comes: Callable[[PoolKey], int]) -> None:
        self.positions = dict[PoolKey, int]()
        self.ends = dict[PoolKey, int]()
        self.needed = dict[PoolKey, int]()
        self.totals = dict[bool, tuple[int, int]]()
        end, needed = 0, operator
        for key, count in ranking.turns():
            if key not in self.positions:
                self.positions[key] = end + 1
                needed -= comes(key)
            end, needed = end + count, needed + count
            self.ends[key], self.needed[key] = end, needed
            self.totals[ranking.waiting[key].is_spot] = end, needed


class _Needs:
    """How many machines NodePools wait for, some of which lose Nodes soon.

    A NodePool that has all its Nodes before it loses one waits behind all others for that Node.
    Then it takes the positions of NodePools with lower priorities, whose positions are the last.
    The machines that come for nobody may fill a NodePool before its loss, as added machines do. So
    may the machines of Nodes that other NodePools lose, if added machines come before them.

    at_once, later: what is missing now, and what is missing after the losses.
    spare: how many machines come for nobody, and fit everybody.
    giving: how many machines come from the Nodes of each NodePool that give way.
    """

    def __init__(
        self,
        ranking: Ranking,
        losers: Mapping[PoolKey, Pool],
        at_once: _Line,
        later: _Line,
        spare: int,
        giving: Counter[PoolKey],
    ) -> None:
        self._ranking, self._losers, self._spare = ranking, losers, spare
        self._giving = giving
        self._at_once, self._later = at_once, later
        self._new = Counter[bool]()
        self._by_group = dict[str, list[tuple[int, int]]]()
        for key, loser in losers.items():
            waiting = loser.waiting
            assert waiting is not None, f"{key} misses no Node"
            self._new[loser.is_spot] += sum(run.nodes for run in waiting.runs if run.since == LAST)
            if key in at_once.needed:
                priorities = self._by_group.setdefault(waiting.group, [])
                moment = at_once.needed[key] - self._count_before(key)
                priorities.append((waiting.priority, moment))
        self._takes_spot = any(not loser.is_spot for loser in losers.values())

    def _count_before(self, key: PoolKey) -> int:
        """Return how many machines may come before a NodePool loses its last Node."""
        return max(self._spare, self._giving.total() - self._giving[key])

    def of(self, key: PoolKey, claim: Taking) -> int:
        """Return how many machines a NodePool waits for; 0 where as many come as it lacks."""
        return max(0, self._balance(key, claim))

    def _balance(self, key: PoolKey, claim: Taking) -> int:
        """Return how many machines a NodePool waits for; negative where more come than it lacks.

        One that loses no Node has all once it gets all that it lacks, before or after the losses of
        others. A NodePool of class `default` may make up for its loss with any spot Node.
        """
        waiting = self._ranking.waiting[key]
        own = self._losers.get(key, claim.pool).claim - claim.taken - claim.preempted - self._spare
        now = max(claim.lacks - claim.taken, self._at_once.needed[key])
        needed = max(own, self._later.needed[key] + claim.misfits)
        if not self._losers:
            return min(needed, now)
        end, total = self._later.totals[waiting.is_spot]
        moments = [
            moment
            for priority, moment in self._by_group.get(waiting.group, ())
            if priority > waiting.priority
        ]
        is_at_risk = key in self._losers or (waiting.is_spot and self._takes_spot)
        if is_at_risk:
            moments.append(now - self._count_before(key))
        is_new = self._later.ends[key] > end - self._new[waiting.is_spot]
        if is_new or any(moment <= needed for moment in moments):
            needed = max(own, total + claim.misfits)
        return needed if is_at_risk else min(needed, now)
