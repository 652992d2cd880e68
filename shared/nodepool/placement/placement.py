"""The NodePools and machines that one service knows, with every index, and how these change."""

from dataclasses import dataclass
from datetime import datetime
from typing import Generic, NamedTuple, Self, TypeVar

from immutables import Map

from nodepool.contract.events import CWNodeAssigned
from nodepool.contract.keys import OfferingKey, PoolKey
from nodepool.placement.claims import Claimant
from nodepool.placement.machines import Inventory, Stock
from nodepool.placement.ranking import Ranking
from nodepool.state.maps import put
from nodepool.state.values import replace
from nodepool.state.work import WithWork

P = TypeVar("P", bound=Claimant)
NOBODY_WAITS = Ranking()


class Position(NamedTuple):
    """The position that a Node fills.

    since: the start of the position; None for a NodePool that does not wait.
    owner: the NodePool that has the position; None for the NodePool of the Node.
    exchanged: the start of the position that the owner gets for it; None without an owner.
    """

    since: datetime | None
    owner: PoolKey | None = None
    exchanged: datetime | None = None


@dataclass(frozen=True, slots=True)
class Placement(WithWork[OfferingKey | PoolKey], Generic[P]):
    """The base class of the state of a service that places NodePools on machines.

    pools: every NodePool that the service knows.
    inventory: every machine, and the stock of each offering.
    waiting: the NodePools that wait for machines of each offering, in the order of service.
    """

    pools: Map[PoolKey, P] = Map()
    inventory: Inventory = Inventory()
    waiting: Map[OfferingKey, Ranking] = Map()

    def pool(self, key: PoolKey, uid: str) -> P | None:
        """Return the NodePool of this key if it has this uid; None otherwise."""
        pool = self.pools.get(key)
        return pool if pool is not None and pool.uid == uid else None

    def ranking(self, offering: OfferingKey) -> Ranking:
        """Return the NodePools that wait for an offering."""
        return self.waiting.get(offering, NOBODY_WAITS)

    def stock(self, offering: OfferingKey) -> Stock:
        """Return the machines of an offering that are not Nodes."""
        return self.inventory.stock(offering)

    def with_pool(self, pool: P) -> Self:
        """Return the state with this NodePool, in its place among the NodePools that wait."""
        before, after = self.pools.get(pool.key), pool.waiting
        ranking = self.ranking(pool.offering)
        moved = ranking.move(before.waiting if before is not None else None, after)
        pools = self.pools.set(pool.key, pool)
        if moved is ranking:
            return replace(self, pools=pools)
        return replace(
            self,
            pools=pools,
            waiting=put(self.waiting, pool.offering, moved if len(moved) else None),
        )

    def find_position(self, pool: P) -> Position:
        """Return the position that the next Node of a NodePool fills."""
        filled = self.ranking(pool.offering).find_next_position(pool.key)
        owner, since = filled if filled is not None else (pool.key, pool.wait.first)
        if owner == pool.key:
            return Position(since)
        return Position(since, owner, pool.wait.first)

    def with_node(self, event: CWNodeAssigned, pool: P | None) -> tuple[Self, P | None]:
        """Return the state in which a NodePool holds a machine, and the NodePool after that.

        The Node fills the position that the allocator found. If the position belongs to another
        NodePool, that NodePool gets the first position of this NodePool instead. The event says
        all of it: grants, priorities and positions may have changed since the allocator read them,
        and a service that has read these changes first must come to the same waits.
        """
        inventory = self.inventory.assign(
            event.machine_key, event.key, event.assignment, event.since
        )
        state = replace(self, inventory=inventory)
        if pool is None or event.since is None:
            return state, pool
        since, owner, exchanged = self._filled(event, pool)
        if since is None:
            return state, pool
        other = self.pools.get(owner) if owner is not None else None
        if other is not None and exchanged is not None:
            others = other.wait.exchange_position(since, exchanged)
            state = state.with_pool(replace(other, wait=others))
        return state, replace(pool, wait=pool.wait.fill_position(exchanged or since))

    def _filled(self, event: CWNodeAssigned, pool: P) -> Position:
        """Return the position that a Node fills, as its event has it or as far as can be known."""
        if event.owner is not None:
            owner = PoolKey(event.owner) if event.owner else None
            return Position(event.since, owner, event.exchanged)
        if event.since is not None and pool.wait.has_position(event.since):
            return Position(event.since)
        return self.find_position(pool)
