"""How many of an offering's free machines each waiting NodePool could have."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import NamedTuple

from immutables import Map

from capacity.pool import Pool
from capacity.state import State
from nodepool.contract.affinity import Affinity
from nodepool.contract.conditions import Capacity
from nodepool.contract.exceptions import passing_over
from nodepool.contract.keys import OfferingKey, PoolKey
from nodepool.contract.model import ComputeClass
from nodepool.placement.line import MachineLine
from nodepool.placement.machines import FreeMachines, take_racks
from nodepool.placement.racks import deliveries
from nodepool.placement.ranking import Ranking
from nodepool.placement.reclaims import take_reclaimed


class Share(NamedTuple):
    """How many machines a NodePool could have, and whether these are enough, or why not.

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


def share_of(state: State, pool: Pool) -> Share:
    """Return what a NodePool can have, after the NodePools that are served before it."""
    offering, free = state.offering(pool.offering), state.free(pool.offering)
    if not pool.shortfall:
        return Share(pool.key, Capacity.SUFFICIENT, free)
    if free >= offering.demand and not offering.restricted:
        return Share(pool.key, Capacity.SUFFICIENT, free - offering.demand + pool.shortfall)
    found = shares(state, pool.offering, {}, pool.key)
    return next(share for share in found if share.key == pool.key)


def shares(
    state: State, key: OfferingKey, failed: dict[PoolKey, str], own: PoolKey | None = None
) -> Iterator[Share]:
    """Return the share of each NodePool that wants machines, or that wanted more than there were.

    NodePools that wait are served in their order from the free machines, after an operator.
    NodePools that were short and want no more Nodes have enough. A NodePool that fails is passed
    over, and `failed` then has the cause; the exception of the NodePool `own` is raised.
    """
    offering = state.offering(key)
    parts = _served(state, key, failed, own)
    _promise(state, key, parts, failed, own)
    parts = {each: part for each, part in parts.items() if each not in failed}
    _place(offering.waiting, parts)
    if state.giving_way.get(key):
        _count_losses(offering.waiting, parts)
    for pool_key, part in parts.items():
        if own is not None and pool_key != own:
            continue
        share: Share | None = None
        with _passing_over(pool_key, failed, own):
            share = part.share
        if share is not None:
            yield share
    for pool_key in offering.short:
        pool = state.pools[pool_key]
        if pool.may_grow and not pool.shortfall:
            yield Share(pool_key, Capacity.SUFFICIENT, 0)


def _served(
    state: State, key: OfferingKey, failed: dict[PoolKey, str], own: PoolKey | None
) -> "dict[PoolKey, _Part]":
    """Return the parts of all NodePools that wait, which took the free machines in their turns."""
    waiting, parts = state.offering(key).waiting, dict[PoolKey, _Part]()
    free = _free(state, key)
    # If any machine fits, the turns after the last free machine only tell an order.
    walks_all = own is None or not isinstance(free, _Counted)
    turns, taken = waiting.turns(), None
    while free.left or walks_all:
        try:
            pool_key, count = turns.send(taken)
        except StopIteration:
            break
        taken = 0
        part = parts.setdefault(pool_key, _Part(state.pools[pool_key]))
        with _passing_over(pool_key, failed, own):
            taken = part.take(free, count)
    for pool_key in waiting.waiting:
        if pool_key not in parts:
            parts[pool_key] = _Part(state.pools[pool_key])
    return parts


def _passing_over(
    key: PoolKey, failed: dict[PoolKey, str], own: PoolKey | None
) -> AbstractContextManager[None]:
    """Return what notes the failure of a NodePool; what `own` raises is raised."""
    return nullcontext() if key == own else passing_over(key, failed)


def _promise(
    state: State,
    key: OfferingKey,
    parts: "Mapping[PoolKey, _Part]",
    failed: dict[PoolKey, str],
    own: PoolKey | None,
) -> None:
    """Set how many of the spot Nodes that give way are for each NodePool of class `default`.

    A machine that goes to triage afterwards is for no NodePool. An operator comes first, for the
    machines that are still to be reclaimed and are not free. NodePools with a node affinity choose
    before NodePools without: the rest fits the latter, too.
    """
    keys = sorted(each for each in state.giving_way.get(key, ()) if each not in state.to_triage)
    if not keys:
        return
    needs: list[tuple[_Part | None, Affinity | None, int]] = []
    reclaimed = state.outstanding(key) - state.inventory.count(key)
    needs.append((None, None, max(0, reclaimed)))
    met = {pool_key: part.taken for pool_key, part in parts.items()}
    for pool_key, count in state.offering(key).waiting.turns():
        part = parts.get(pool_key)
        if part is None or pool_key in failed or part.pool.spec.compute_class is ComputeClass.SPOT:
            continue
        taken = min(count, met[pool_key])
        met[pool_key] -= taken
        needs.append((part, part.pool.spec.affinity, count - taken))
    machines = [state.inventory.machines[machine] for machine in keys]
    line = MachineLine(machines)
    for part, affinity, count in sorted(needs, key=lambda need: need[1] is None):
        if part is None:
            line.take(affinity, count)
            continue
        with _passing_over(part.pool.key, failed, own):
            places = line.take(affinity, count)
            part.preempted += len(places)
            for place in places:
                if (loser := parts.get(PoolKey(machines[place].holder))) is not None:
                    loser.losing += 1


def _place(waiting: Ranking, parts: "Mapping[PoolKey, _Part]") -> None:
    """Set the positions of what waits, and how many machines each NodePool still waits for.

    Those are as many as its last position, without what comes for it and for what is before it. A
    NodePool that loses a Node to another keeps its place, and lacks one more from then on.
    """
    if all(part.is_enough for part in parts.values()):
        return
    ahead = coming = 0
    for key, count in waiting.turns():
        part = parts.get(key)
        if part is not None and not part.position:
            part.position = ahead + 1
            coming += part.taken + part.preempted - part.losing
        ahead += count
        if part is not None:
            unmet = part.pool.shortfall - part.taken - part.preempted
            part.needed = max(unmet, ahead - coming)


def _count_losses(waiting: Ranking, parts: "Mapping[PoolKey, _Part]") -> None:
    """Add the machines that what waits behind a NodePool takes before the NodePool's lost Nodes.

    If the NodePool has all Nodes before it loses some, the loss begins a new wait behind all that
    waits already.
    """
    losing = {key for key, part in parts.items() if part.losing}
    total, last = 0, dict[PoolKey, int]()
    for key, count in waiting.turns():
        total += count
        if key in losing:
            last[key] = total
    for key, position in last.items():
        parts[key].needed += min(parts[key].losing, total - position)


class _Counted:
    """Interchangeable free machines, of which only the number matters."""

    def __init__(self, left: int) -> None:
        self.left = left

    def count(self, _affinity: Affinity | None) -> int:
        """Return how many are left."""
        return self.left

    def take(self, _affinity: Affinity | None, count: int) -> range:
        """Take so many machines."""
        self.left -= count
        return range(count)


def _free(state: State, key: OfferingKey) -> FreeMachines | _Counted:
    """Return the free machines after an operator; only counted where that is enough."""
    if not state.offering(key).restricted:
        return _Counted(state.free(key))
    free = state.inventory.shelf(key)
    take_reclaimed(state.inventory, key, state.to_reclaim.get(key, 0), free)
    return free


class _Part:
    """The machines that a NodePool takes in its turns.

    taken: how many machines it took.
    fitting: how many machines it could have taken in its last turn.
    most: how many machines it could have taken without its affinity.
    preempted: how many spot Nodes give way to it.
    losing: how many of its Nodes give way to another NodePool.
    position: the position of its first missing Node among all missing Nodes.
    needed: how many machines must become free for it and for all that is served before it.
    free: how many machines of each NVLink domain it could take, for a type that comes in racks.
    """

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.taken = self.fitting = self.most = self.preempted = self.losing = 0
        self.position = self.needed = 0
        self.free: Mapping[str, int] = MappingProxyType({})
        self._domains = pool.domains

    def take(self, free: FreeMachines | _Counted, count: int) -> int:
        """Take at most `count` machines, of a type in racks those that complete racks."""
        affinity, size = self.pool.spec.affinity, self.pool.rack_size
        if size and isinstance(free, FreeMachines):
            return self._take_racks(free, size, count)
        self.fitting = free.count(affinity) if free.left else 0
        self.most += min(free.left, count)
        taken = len(free.take(affinity, min(count, self.fitting)))
        self.taken += taken
        return taken

    def _take_racks(self, free: FreeMachines, size: int, count: int) -> int:
        """Take the machines that complete racks, if need be of more than `count`."""
        affinity, held = self.pool.spec.affinity, Counter(self._domains)
        fitting = free.by_domain(affinity)
        self.free = self.free or fitting
        without = fitting if affinity is None else free.by_domain(None)
        goal = min(self.pool.allowed, held.total() - (-count // size) * size)
        self.most += sum(part.machines for part in deliveries(size, goal, held, without))
        parts = tuple(deliveries(size, goal, held, fitting))
        taken = len(take_racks(free, affinity, size, goal, self._domains))
        held.update({part.domain: part.machines for part in parts})
        self._domains = Map(held)
        self.taken += taken
        return taken

    @property
    def is_enough(self) -> bool:
        """Whether the NodePool took as many machines as it wants."""
        return self.taken >= self.pool.shortfall

    @property
    def share(self) -> Share:
        """The share of the NodePool after all its turns."""
        pool, reason = self.pool, reason_of(self.pool, self.taken, self.most)
        is_enough = reason is Capacity.SUFFICIENT and not pool.rack_size
        available = max(self.taken, self.fitting) if is_enough else self.taken
        share = Share(pool.key, reason, available, self.free, self.preempted)
        if reason is Capacity.SUFFICIENT:
            return share
        return share._replace(position=self.position, needed=self.needed)


def reason_of(pool: Pool, available: int, most: int) -> Capacity:
    """Return the reason of a verdict from how many Nodes can be had, with and without affinity."""
    if available >= pool.shortfall:
        return Capacity.SUFFICIENT
    # The affinity is the reason if more machines would be available without it.
    affinity = most > available
    if available:
        return Capacity.PARTIAL_NODE_AFFINITY if affinity else Capacity.PARTIAL
    return Capacity.NONE_AVAILABLE_NODE_AFFINITY if affinity else Capacity.NONE_AVAILABLE
