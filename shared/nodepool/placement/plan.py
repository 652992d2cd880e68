"""What the machines of an offering are for: who takes them in which turn, and what is still needed.

An operator who reclaims machines comes first. Then NodePools take turns in the order of their
ranking. All machines are taken in racks; other types have racks of one machine.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import NamedTuple

from immutables import Map

from nodepool.contract.affinity import Affinity
from nodepool.contract.catalog import rack_size
from nodepool.contract.exceptions import passing_over
from nodepool.contract.keys import MachineKey, OfferingKey, PoolKey, offering_parts
from nodepool.placement.claims import Claimant
from nodepool.placement.line import Line
from nodepool.placement.machines import Inventory
from nodepool.placement.racks import Counts, Delivery, count_racks, deliveries, lacking
from nodepool.placement.ranking import Ranking


class Part:
    """What a NodePool takes of the free machines in its turns.

    lacks: how many machines it waits for.
    machines: the machines that it took in its last turn.
    taken: how many machines it took in all its turns.
    most: how many machines it could have taken in the same turns without its affinity. Without an
        affinity this is `taken`; with an affinity it is 0 unless `compares` is set.
    first, last: how many machines fitted in its first and in its last turn, by NVLink domain.
    """

    compares = False
    taken = most = 0
    first: Mapping[str, int] = MappingProxyType({})
    last: Mapping[str, int] = MappingProxyType({})

    def __init__(self, pool: Claimant) -> None:
        self.key, self.pool, self.lacks = pool.key, pool, pool.claim
        self.machines: list[MachineKey] = []
        self._held: dict[str, int] | None = None

    def take(self, line: Line, count: int) -> int:
        """Take `count` machines, if need be more, that complete racks; return how many.

        It takes fewer only if no more machines fit, now or in a later turn.
        """
        self.machines = []
        if not line.left:
            return 0
        if self._held is None:
            self._size, self._goal = self.pool.rack_size, self.pool.held + self.lacks
            self._held = dict(self.pool.domains)
        pool, held, size, goal = self.pool, self._held, self._size, self._goal
        affinity = pool.spec.affinity
        self.last = line.fitting(affinity)
        self.first = self.first or self.last
        racks = pool.spec.target // size
        parts = lacking(size, racks, held, pool.leaving) if size > 1 else ()
        given = deliveries(size, goal, held, self.last, parts, count)
        if self.compares and affinity is not None:
            others = deliveries(size, goal, held, line.fitting(None), parts, count)
            self.most += sum(part.machines for part in others)
        for domain, machines in given:
            self.machines += line.take(affinity, machines, domain)
            held[domain] = held.get(domain, 0) + machines
        taken = len(self.machines)
        self.taken += taken
        if affinity is None:
            self.most += taken
        return taken


def take_turns(
    ranking: Ranking,
    take: Callable[[PoolKey, int], int],
    line: Line | None,
    failed: dict[PoolKey, str],
    own: PoolKey | None = None,
) -> None:
    """Let NodePools take machines, turn by turn; `take` returns how many machines were taken.

    line: the turns end with its last machine; None for all turns.

    A NodePool that fails is passed over, and `failed` then has the cause; the exception of the
    NodePool `own` is raised.
    """
    turns, taken = ranking.turns(), None
    while line is None or line.left:
        try:
            key, count = turns.send(taken)
        except StopIteration:
            return
        taken = 0
        with pass_over(key, failed, own):
            taken = take(key, count)


def pass_over(
    key: PoolKey | None, failed: dict[PoolKey, str], own: PoolKey | None = None
) -> AbstractContextManager[None]:
    """Return what notes the failure of a NodePool; what `own` or an operator raises is raised."""
    return nullcontext() if key is None or key == own else passing_over(key, failed)


class Need(NamedTuple):
    """The need of a NodePool or an operator for machines.

    machines: how many machines are needed.
    beneficiary: the NodePool that needs the machines; None for an operator.
    affinity: the node affinity that the machines must satisfy; None if any machine fits.
    """

    machines: int
    beneficiary: PoolKey | None = None
    affinity: Affinity | None = None

    def without(self, machines: int) -> "Need":
        """Return the need for `machines` fewer machines."""
        return self._replace(machines=self.machines - machines)


def needs(
    ranking: Ranking, pools: Mapping[PoolKey, Claimant], operator: int, taken: Mapping[PoolKey, int]
) -> Iterator[Need]:
    """Yield the need of the operator, then the needs of the NodePools of class `default`.

    taken: how many machines each NodePool has taken already.
    """
    yield Need(operator)
    left = Counter(taken)
    for key, count in ranking.turns():
        pool = pools[key]
        if pool.is_spot:
            return
        met = min(count, left[key])
        left[key] -= met
        yield Need(count - met, key, pool.spec.affinity)


def meet(
    found: Iterable[Need],
    line: Line,
    failed: dict[PoolKey, str],
    own: PoolKey | None = None,
) -> list[tuple[Need, list[MachineKey]]]:
    """Return the machines for each need, in the order of the needs.

    The needs are met in their order, since NodePools get machines in this order. As many machines
    as a need without an affinity can have are kept for it, but needs with an affinity choose first:
    the rest fits, too.
    """
    listed = list(found)
    met: dict[int, list[MachineKey]] = {}
    kept: dict[int, int] = {}
    left = line.left
    for number, need in enumerate(listed):
        if need.affinity is None:
            kept[number] = min(need.machines, left)
            left -= kept[number]
            continue
        with pass_over(need.beneficiary, failed, own):
            met[number] = line.take(need.affinity, min(need.machines, left))
            left -= len(met[number])
    for number, count in kept.items():
        met[number] = line.take(None, count)
    return [(need, met[number]) for number, need in enumerate(listed) if number in met]


def hold_back(inventory: Inventory, offering: OfferingKey, line: Line) -> list[MachineKey]:
    """Take the free machines that must still be held back; only machines that complete racks."""
    stock = inventory.stock(offering)
    if not stock.outstanding:
        return []
    held = _held_back(inventory, offering)
    parts = _deliveries(offering, stock.to_reclaim, held, line.fitting(None))
    return [key for domain, count in parts for key in line.take(None, count, domain)]


def choose_returns(inventory: Inventory, offering: OfferingKey) -> list[MachineKey]:
    """Return the held-back machines to set free again: first those in service, in whole racks."""
    stock, machines = inventory.stock(offering), inventory.machines
    if not stock.returned:
        return []
    out = {machines[key].domain or key for key in stock.reclaimed if machines[key].out}
    in_order = sorted(stock.reclaimed, key=lambda key: (machines[key].domain or key) in out)
    return in_order[: stock.returned]


def reclaimable(inventory: Inventory, offering: OfferingKey) -> int:
    """Return how many free machines could be held back."""
    size, held = _rack_size(offering), _held_back(inventory, offering)
    most = inventory.stock(offering).count + count_racks(size, held.values()) * size
    free = inventory.line(offering).fitting(None)
    return sum(part.machines for part in _deliveries(offering, most, held, free))


def _deliveries(
    offering: OfferingKey, goal: int, held: Counts, free: Mapping[str, int]
) -> list[Delivery]:
    """Return what an operator can be given, who completes any rack: each may be of one machine."""
    size, racks = _rack_size(offering), sum(held.values())
    return deliveries(size, goal, held, free, lacking(size, racks, held), goal)


def _rack_size(offering: OfferingKey) -> int:
    return rack_size(offering_parts(offering)[1]) or 1


def _held_back(inventory: Inventory, offering: OfferingKey) -> Counts:
    """Return how many machines of each NVLink domain are held back."""
    keys = inventory.stock(offering).reclaimed
    return Map(Counter(inventory.machines[key].domain for key in keys))
