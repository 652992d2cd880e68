"""The NodePools and machines that one service knows, with every index, and how these change."""

from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Self, TypeVar

from immutables import Map

from nodepool.contract.events import CWNodeAssigned
from nodepool.contract.keys import OfferingKey, PoolKey
from nodepool.placement.claims import Claimant
from nodepool.placement.machines import Inventory, Stock
from nodepool.placement.ranking import Ranking
from nodepool.placement.waits import exchange_positions
from nodepool.state.maps import put
from nodepool.state.values import replace
from nodepool.state.work import WithWork

P = TypeVar("P", bound=Claimant)
NOBODY_WAITS = Ranking()


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

    def find_position(self, pool: P) -> tuple[PoolKey, datetime | None]:
        """Return the position that the next Node of a NodePool fills: its owner and its start.

        The start is None if the NodePool does not wait.
        """
        filled = self.ranking(pool.offering).find_next_position(pool.key)
        return filled if filled is not None else (pool.key, pool.wait.first)

    def with_node(self, event: CWNodeAssigned, pool: P | None) -> tuple[Self, P | None]:
        """Return the state in which a NodePool holds a machine, and the NodePool after that.

        The Node fills a position. If the position belongs to another NodePool, that NodePool gets
        the first position of this NodePool instead. The machine keeps the start of the wait as the
        event has it: the grant of the NodePool may have changed since the allocator read it. So may
        its positions, because Nodes that failed have come back: the Node fills the position that
        the allocator has filled.
        """
        inventory = self.inventory.assign(
            event.machine_key, event.key, event.assignment, event.since
        )
        state = replace(self, inventory=inventory)
        if pool is None:
            return state, pool
        owner, since = self.find_position(pool)
        if since is None:
            return state, pool
        filled = event.since
        if filled is not None and filled != since and pool.wait.has_position(filled):
            owner, since = pool.key, filled
        if owner == pool.key:
            return state, replace(pool, wait=pool.wait.without_position(since))
        wait, other = exchange_positions(pool.wait, self.pools[owner].wait, since)
        state = state.with_pool(replace(self.pools[owner], wait=other))
        return state, replace(pool, wait=wait)
