"""The Nodes that the NodePools under each limit may come to hold, and the two rules about them.

The audit in `tests/support/audit` checks grants against the messages that the publishing service
had read by then, so it keeps the whole log, which takes unbounded memory. These rules need only the
read model and the grants that may still be used, and they hold in the order of the log.
"""

from dataclasses import dataclass

from immutables import Map

from aggregator.figures.grants import NO_GRANTS, Grants, acknowledge_grant, add_grant
from aggregator.objects import NodePoolObject
from aggregator.read_model import ReadModel
from nodepool.contract import events as on
from nodepool.contract.keys import LedgerKey, PoolKey, ledger_key


@dataclass(frozen=True, slots=True)
class Limits:
    """The grants in use, and the Nodes that they allow.

    grants: the grants of each NodePool that the allocator may still use.
    reserved: how many Nodes the NodePools under each limit may come to hold together.
    """

    grants: Map[PoolKey, Grants] = Map()
    reserved: Map[LedgerKey, int] = Map()

    def usable(self, key: PoolKey) -> int:
        """Return how many Nodes a NodePool may have by grants that the allocator may still use."""
        return self.grants.get(key, NO_GRANTS).most

    def update_pool(
        self, before: NodePoolObject | None, after: NodePoolObject, grants: Grants | None = None
    ) -> "Limits":
        """Return the limits after a NodePool changed.

        before: None for a new NodePool.
        grants: the grants that may be used from now on; None if they stay the same.
        """
        known = self.grants.get(after.key, NO_GRANTS)
        kept = known if grants is None else grants
        change = _reserving(kept, after) - _reserving(known, before)
        if not change and kept is known:
            return self
        return Limits(
            self.grants if kept is known else self.grants.set(after.key, kept),
            _reserve_nodes(self.reserved, after, change),
        )

    def apply_verdict(
        self, before: NodePoolObject, after: NodePoolObject, event: on.QuotaChecked
    ) -> "Limits":
        """Return the limits after a verdict on quota; its grant counts for any generation."""
        if before.is_invalid:  # The allocator knows that it may use no grant.
            return self.update_pool(before, after)
        known = self.grants.get(after.key, NO_GRANTS)
        return self.update_pool(before, after, add_grant(known, event))

    def acknowledge(self, pool: NodePoolObject, event: on.GrantAcknowledged) -> "Limits":
        """Return the limits after the allocator gave up the Nodes beyond a smaller grant."""
        known = self.grants.get(pool.key, NO_GRANTS)
        return self.update_pool(pool, pool, acknowledge_grant(known, event))

    def remove_pool(self, pool: NodePoolObject) -> "Limits":
        """Return the limits without this NodePool."""
        known = self.grants.get(pool.key, NO_GRANTS)
        return Limits(
            self.grants.delete(pool.key) if pool.key in self.grants else self.grants,
            _reserve_nodes(self.reserved, pool, -_reserving(known, pool)),
        )

    def is_grant_passed(self, pool: NodePoolObject) -> bool:
        """Return whether a NodePool may get no more Nodes.

        A Node that the control plane gave back counts once the allocator has read that event.
        """
        return pool.held >= self.usable(pool.key) and not pool.has_lent

    def is_limit_passed(self, model: ReadModel, event: on.QuotaChecked, after: "Limits") -> bool:
        """Return whether a grant has made the reserved Nodes grow beyond the limit.

        A limit that falls below the reserved Nodes breaks no rule.

        A grant covers the Nodes that its NodePool had as far as the quota service had read. Some of
        these Nodes may have left since; then the count that was published before was no lower. A
        Node that the control plane gave back counts once the quota service has read so, also beyond
        the limit. So a grant of a NodePool that ever lent a Node is not checked, and the Nodes that
        such NodePools have above their grants do not count against other NodePools.

        model: before the event.
        after: the limits after the event.
        """
        key = ledger_key(event.org, event.zone, event.instance_type)
        published = model.quotas.get(key)
        allowed = max(event.limit or 0, published.used if published else 0)
        reserved = after.reserved.get(key, 0)
        if reserved <= max(allowed, self.reserved.get(key, 0)):
            return False
        lent = [pool for pool in model.pools.values() if pool.has_lent and pool.ledger == key]
        beyond = sum(max(0, pool.held - self.usable(pool.key)) for pool in lent)
        is_checked = event.key not in {pool.key for pool in lent}
        return is_checked and reserved - beyond > allowed


def _reserving(grants: Grants, pool: NodePoolObject | None) -> int:
    """Return how many Nodes a NodePool may come to hold: by grants still usable, or that it has."""
    return 0 if pool is None else max(grants.most, pool.held)


def _reserve_nodes(
    reserved: Map[LedgerKey, int], pool: NodePoolObject, change: int
) -> Map[LedgerKey, int]:
    """Return the reserved Nodes per limit after a NodePool may hold `change` more Nodes."""
    if not change:
        return reserved
    total = reserved.get(pool.ledger, 0) + change
    return reserved.set(pool.ledger, total) if total else reserved.delete(pool.ledger)
