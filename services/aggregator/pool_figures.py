"""The figures about NodePools since the log began, and what must be known to count them.

There are at most 21 series of transitions, and 15 series of how long a status lasted, for any
number of NodePools. Each offering has four histograms of time to target, by class and direction.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from immutables import Map

from aggregator.grants import NO_GRANTS, Grants
from aggregator.objects import NodePoolObject
from aggregator.waits import Wait, delivered, wait_after
from nodepool.contract.conditions import Condition
from nodepool.contract.keys import LedgerKey, PoolKey
from nodepool.contract.metrics import CONDITION_DURATION, TIME_TO_TARGET
from nodepool.service import Context
from nodepool.state.tallies import Counters, Histograms


class _Counted(NamedTuple):
    transitions: Counters
    durations: Histograms
    time_to_target: Histograms


@dataclass(frozen=True, slots=True)
class PoolFigures:
    """The figures about NodePools, each with the name of its metric, and the state behind them.

    waits: since when each NodePool waits to be at its target; only NodePools that wait.
    grants: the grants that the allocator may still use.
    reserved: how many Nodes the NodePools under each limit may come to hold together.
    """

    transitions: Counters = Counters()
    durations: Histograms = Histograms()
    time_to_target: Histograms = Histograms()
    waits: Map[PoolKey, Wait] = Map()
    grants: Map[PoolKey, Grants] = Map()
    reserved: Map[LedgerKey, int] = Map()

    def usable(self, key: PoolKey) -> int:
        """Return how many Nodes a NodePool may have by grants that the allocator may still use."""
        return self.grants.get(key, NO_GRANTS).most

    def changed(
        self,
        before: NodePoolObject | None,
        after: NodePoolObject,
        context: Context,
        grants: Grants | None = None,
    ) -> "PoolFigures":
        """Return the figures after a NodePool changed.

        before: None for a new NodePool.
        grants: the grants that may be used from now on; None if they stay the same.
        """
        key = after.key
        known = self.grants.get(key, NO_GRANTS)
        granted = known if grants is None else grants
        change = _reserving(granted, after) - _reserving(known, before)
        is_checked = before is None or after.conditions is not before.conditions
        if not is_checked and not change and granted is known:
            return self
        wait = self.waits.get(key)
        waits, counted = self.waits, _Counted(self.transitions, self.durations, self.time_to_target)
        if is_checked:
            ended = delivered(before, after, wait)
            counted = self._counted(before, after, context, ended)
            waits = _with_wait(waits, key, wait, wait_after(wait, after, context))
        return replace(
            self,
            transitions=counted.transitions,
            durations=counted.durations,
            time_to_target=counted.time_to_target,
            waits=waits,
            grants=self.grants if granted is known else self.grants.set(key, granted),
            reserved=_reserved(self.reserved, after, change),
        )

    def _counted(
        self,
        before: NodePoolObject | None,
        after: NodePoolObject,
        context: Context,
        ended: Wait | None,
    ) -> _Counted:
        transitions, durations, waits = self.transitions, self.durations, self.time_to_target
        is_same = before is not None and before.uid == after.uid
        known = before.conditions if before is not None and is_same else Map[str, Condition]()
        for kind, condition in after.conditions.items():
            old = known.get(kind)
            if old is not None and old.status == condition.status:
                continue
            transitions = transitions.add(kind, condition.status, condition.reason)
            if old is not None:
                seconds = (context.time - old.since).total_seconds()
                durations = durations.observe(CONDITION_DURATION, seconds, kind, old.status)
        if ended is not None:
            seconds = (context.time - ended.since).total_seconds()
            labels = after.zone, after.spec.instance_type, after.spec.compute_class.value
            waits = waits.observe(TIME_TO_TARGET, seconds, *labels, ended.direction)
        return _Counted(transitions, durations, waits)

    def deleted(self, pool: NodePoolObject) -> "PoolFigures":
        """Return the figures without this NodePool."""
        key = pool.key
        known = self.grants.get(key, NO_GRANTS)
        return replace(
            self,
            waits=_with_wait(self.waits, key, self.waits.get(key), None),
            grants=self.grants.delete(key) if key in self.grants else self.grants,
            reserved=_reserved(self.reserved, pool, -_reserving(known, pool)),
        )


def _with_wait(
    waits: Map[PoolKey, Wait], key: PoolKey, before: Wait | None, after: Wait | None
) -> Map[PoolKey, Wait]:
    if after is before:
        return waits
    return waits.delete(key) if after is None else waits.set(key, after)


def _reserving(grants: Grants, pool: NodePoolObject | None) -> int:
    """Return how many Nodes a NodePool may come to hold: by grants still usable, or that it has."""
    return 0 if pool is None else max(grants.most, pool.held)


def _reserved(
    reserved: Map[LedgerKey, int], pool: NodePoolObject, change: int
) -> Map[LedgerKey, int]:
    """Return the reserved Nodes per limit after a NodePool may hold `change` more Nodes."""
    if not change:
        return reserved
    total = reserved.get(pool.ledger, 0) + change
    return reserved.set(pool.ledger, total) if total else reserved.delete(pool.ledger)
