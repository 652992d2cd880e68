"""The Capacity Finder: how likely each zone has the requested number of spot Nodes.

A query selects instance types, and a number of Nodes of each type. A zone's tag for a selection is
the first tag in this list that applies:

* SKU unavailable: the zone does not offer the type.
* Likely available: enough machines are free, without the machines that NodePools wait for.
* Possibly available: enough machines are free, but waiting NodePools may take some of them.
* Limited availability: too few machines are free, but at least one is, and the zone has enough
  machines in service.
* Not available: no machine is free, or the zone has fewer machines in service than requested.

Machines that an operator has reclaimed, or must still get, are neither free nor in service.

In the same zone, a higher number of Nodes never gets a better tag. The tag of a zone as a whole is
its worst tag. Zones are sorted by their worst tag, then by their next worst tag, and so on. Among
equals, zones in which the organisation has a cluster come first; then zones are sorted by name.
"""

from collections.abc import Iterator

from capacity.state import State
from nodepool.contract import grammar
from nodepool.contract.availability import Availability, CapacitySelection, ZoneAvailability
from nodepool.contract.catalog import INSTANCE_TYPES, ZONES, Access, is_offered, type_fault
from nodepool.contract.commands import FindCapacity
from nodepool.contract.events import CapacityFound
from nodepool.contract.keys import offering_key
from nodepool.contract.outcomes import CommandOutcome, build_acceptance, build_refusal

Order = tuple[list[int], bool, str]
"""The ranks of a zone's tags, worst first; whether the organisation has no cluster there; name."""


def answer(state: State, query: FindCapacity) -> Iterator[CapacityFound | CommandOutcome]:
    """Yield what was found, and then the outcome; only the outcome if the query is refused."""
    refusal = _refuse_malformed(query)
    if refusal is not None:
        yield refusal
        return
    found = found_zones(state, query.org, query.selections)
    yield CapacityFound(org=query.org, selections=query.selections, zones=found)
    yield build_acceptance(query, "done")


def found_zones(
    state: State, org: str, selections: tuple[CapacitySelection, ...]
) -> tuple[ZoneAvailability, ...]:
    """Every General Access zone with its tags, the best first."""
    own = state.zones.get(org, ())
    names = (zone.name for zone in ZONES.values() if zone.access is Access.GENERAL)
    zones = (_zone(state, name, selections, has_cluster=name in own) for name in names)
    return tuple(sorted(zones, key=order))


def order(zone: ZoneAvailability) -> Order:
    """Return the rank of a zone; the smallest rank is the best, and no two are equal."""
    return sorted((tag.rank for tag in zone.tags), reverse=True), not zone.has_cluster, zone.zone


def _zone(
    state: State, zone: str, selections: tuple[CapacitySelection, ...], *, has_cluster: bool
) -> ZoneAvailability:
    tags = tuple(_tag(state, zone, selection) for selection in selections)
    worst = max(tags, key=lambda tag: tag.rank)
    return ZoneAvailability(zone=zone, availability=worst, has_cluster=has_cluster, tags=tags)


def _tag(state: State, zone: str, selection: CapacitySelection) -> Availability:
    if not is_offered(selection.instance_type, zone):
        return Availability.SKU_UNAVAILABLE
    key = offering_key(zone, selection.instance_type)
    stock, demand = state.stock(key), state.ranking(key).demand
    healthy = stock.in_service - stock.outstanding
    return tag(selection.count, free=stock.free_for_pools, demand=demand, healthy=healthy)


def tag(count: int, *, free: int, demand: int, healthy: int) -> Availability:
    """How likely a zone that offers a type has `count` Nodes of it.

    free: the machines that are free.
    demand: how many machines the NodePools want that wait already.
    healthy: the machines in service, the free ones included.
    """
    if count <= free - demand:
        return Availability.LIKELY
    if count <= free:
        return Availability.POSSIBLE
    if free and count <= healthy:
        return Availability.LIMITED
    return Availability.NOT_AVAILABLE


def _refuse_malformed(query: FindCapacity) -> CommandOutcome | None:
    """Return why a query has no answer; None where it has one."""
    if reason := grammar.organisation(query.org):
        return build_refusal(query, "org", reason)
    seen: set[str] = set()
    for number, selection in enumerate(query.selections):
        if reason := _fault(selection.instance_type, seen):
            return build_refusal(query, f"selections[{number}].instanceType", reason)
        seen.add(selection.instance_type)
    return None


def _fault(instance_type: str, seen: set[str]) -> str | None:
    if reason := type_fault(instance_type):
        return reason
    if INSTANCE_TYPES[instance_type].superchip:
        return f"{instance_type} is a Superchip instance type, which is not offered as spot"
    if instance_type in seen:
        return f"{instance_type} is selected twice; select each type once, with the sum of Nodes"
    return None
