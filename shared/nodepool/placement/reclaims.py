"""Machines that an operator has reclaimed, or will receive before any NodePool does."""

from collections import Counter

from immutables import Map

from nodepool.contract.catalog import INSTANCE_TYPES
from nodepool.contract.keys import MachineKey, OfferingKey, offering_parts
from nodepool.placement.machines import FreeMachines, Inventory, take_racks
from nodepool.placement.racks import Counts, deliveries


def outstanding(inventory: Inventory, offering: OfferingKey, goal: int) -> int:
    """Return how many more machines must be held back to reach `goal`."""
    return max(0, goal - inventory.reclaimed_count(offering)) if goal else 0


def take_reclaimed(
    inventory: Inventory, offering: OfferingKey, goal: int, free: FreeMachines
) -> list[MachineKey]:
    """Take the free machines that must still be held back to reach `goal`.

    Of a type that comes in racks, take only machines that complete racks.
    """
    count = outstanding(inventory, offering, goal)
    if not count:
        return []  # Also the case for a type that is not in the catalog.
    size = _rack_size(offering)
    if not size:
        return free.take(None, count)
    return take_racks(free, None, size, goal, _held(inventory, offering))


def reclaimable(inventory: Inventory, offering: OfferingKey) -> int:
    """Return how many free machines could be held back; of a type in racks, only whole racks."""
    free, size = inventory.count(offering), _rack_size(offering)
    if not size:
        return free
    held, shelf = _held(inventory, offering), inventory.shelf(offering)
    most = free + sum(-(-count // size) * size for count in held.values())
    return sum(part.machines for part in deliveries(size, most, held, shelf.by_domain(None)))


def _rack_size(offering: OfferingKey) -> int:
    return INSTANCE_TYPES[offering_parts(offering)[1]].rack_size


def _held(inventory: Inventory, offering: OfferingKey) -> Counts:
    """Return how many machines of each NVLink domain are held back."""
    keys = inventory.reclaimed.get(offering, ())
    return Map(Counter(inventory.machines[key].domain for key in keys))
