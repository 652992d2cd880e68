"""The supply of an offering apart from free machines: machines of spot and leaving Nodes."""

from dataclasses import dataclass, replace
from datetime import datetime

from immutables import Map

from nodepool.contract.keys import MachineKey, OfferingKey, PoolKey
from nodepool.contract.timetable import GONE_AFTER


@dataclass(frozen=True, slots=True)
class Supply:
    """The supply of an offering apart from its free machines.

    to_reclaim: how many of its machines must be held back.
    spot: its spot NodePools.
    shrinking: the NodePools, of any class, with Nodes that must still be asked to leave.
    returning: the machines, of Nodes of any class, that certainly come back soon.
    lingering: the machines that certainly come back after a long drain, each with the drain's end.
    """

    to_reclaim: int = 0
    spot: Map[PoolKey, bool] = Map()
    shrinking: Map[PoolKey, bool] = Map()
    returning: Map[MachineKey, bool] = Map()
    lingering: Map[MachineKey, datetime] = Map()

    def with_pool(self, key: PoolKey) -> "Supply":
        """Return the supply with this spot NodePool."""
        return self if key in self.spot else replace(self, spot=self.spot.set(key, True))

    def without_pool(self, key: PoolKey) -> "Supply":
        """Return the supply without this spot NodePool."""
        return replace(self, spot=self.spot.delete(key)) if key in self.spot else self

    def with_shrinking(self, key: PoolKey, *, shrinks: bool) -> "Supply":
        """Return the supply with this NodePool among the shrinking NodePools, or not.

        shrinks: whether the NodePool has Nodes that are still to be asked to leave.
        """
        if shrinks is (key in self.shrinking):
            return self
        shrinking = self.shrinking
        shrinking = shrinking.set(key, True) if shrinks else shrinking.delete(key)
        return replace(self, shrinking=shrinking)

    def with_machine(self, key: MachineKey, *, returns: bool, by: datetime | None) -> "Supply":
        """Return the supply with what is certain of a machine.

        returns: whether it comes back as soon as after a preemption.
        by: when it comes back after a long drain; None without such a drain.
        """
        supply = self
        if by != self.lingering.get(key):
            lingering = self.lingering
            lingering = lingering.delete(key) if by is None else lingering.set(key, by)
            supply = replace(supply, lingering=lingering)
        if returns is (key in self.returning):
            return supply
        returning = self.returning
        returning = returning.set(key, True) if returns else returning.delete(key)
        return replace(supply, returning=returning)

    def returning_soon(self, now: datetime) -> list[MachineKey]:
        """Return the machines whose long drain ends no later than a preemption that begins now."""
        return [key for key, by in self.lingering.items() if by <= now + GONE_AFTER]


Supplies = Map[OfferingKey, Supply]
NONE = Supply()


def put(supplies: Supplies, offering: OfferingKey, supply: Supply) -> Supplies:
    """Return the supplies with this supply; drop an offering whose supply is empty."""
    if supply is supplies.get(offering, NONE):
        return supplies
    if supply != NONE:
        return supplies.set(offering, supply)
    return supplies.delete(offering) if offering in supplies else supplies
