"""How an operator holds machines back from all NodePools, and gives them back."""

from collections.abc import Iterator
from itertools import islice

from immutables import Map

from allocator.state import State
from nodepool.contract.catalog import INSTANCE_TYPES, offered, type_fault, zone_fault
from nodepool.contract.commands_spot import ReclaimCapacity, ReturnCapacity
from nodepool.contract.events import CapacityReclaimed, MachineReclaimed, MachineReturned
from nodepool.contract.keys import OfferingKey, machine_parts, offering_key, offering_parts
from nodepool.contract.outcomes import CommandOutcome, accepted, refused
from nodepool.state.inventory import FreeMachines, take_racks

Reclaim = ReclaimCapacity | ReturnCapacity


def outcome(state: State, command: Reclaim) -> Iterator[CapacityReclaimed | CommandOutcome]:
    """The outcome of a command and, if it is accepted, how many are to be held back now."""
    fault = _malformed(command) or _excess(state, command)
    if fault is not None:
        yield refused(command, *fault)
        return
    zone, kind, count = command.zone, command.instance_type, command.count
    before = state.supply(offering_key(zone, kind)).to_reclaim
    after = before + (count if isinstance(command, ReclaimCapacity) else -count)
    yield accepted(command, "done")
    yield CapacityReclaimed(zone=zone, instance_type=kind, count=after)


def _malformed(command: Reclaim) -> tuple[str, str] | None:
    """The field that is wrong whatever there is, and why; None where none is."""
    zone, kind = command.zone, command.instance_type
    if reason := zone_fault(zone):
        return "zone", reason
    if reason := type_fault(kind):
        return "instanceType", reason
    if not offered(kind, zone):
        return "instanceType", f"{kind} is not offered in {zone}"
    rack = INSTANCE_TYPES[kind].rack_size
    if rack and command.count % rack:
        return (
            "count",
            f"{command.count} is not a multiple of {rack}, the Nodes of a rack of {kind}",
        )
    return None


def _excess(state: State, command: Reclaim) -> tuple[str, str] | None:
    """Why there are not so many to reclaim, or to return; None where there are."""
    offering = offering_key(command.zone, command.instance_type)
    where = f"of {command.instance_type} in {command.zone}"
    if isinstance(command, ReturnCapacity):
        most = state.supply(offering).to_reclaim
        if command.count <= most:
            return None
        return "count", f"{command.count} is more than the {most} machines {where} held back"
    free, pending = state.inventory.count(offering), state.outstanding(offering)
    spot = sum(len(state.pools[key].members) for key in state.supply(offering).spot)
    most = max(0, free + spot - pending)
    if command.count <= most:
        return None
    message = (
        f"{command.count} is more than the {most} machines {where} that can be reclaimed: "
        f"{free} free and {spot} spot Nodes"
    )
    return "count", f"{message}, less {pending} still to be reclaimed" if pending else message


def held_back(
    state: State, offering: OfferingKey, free: FreeMachines
) -> Iterator[MachineReclaimed | MachineReturned]:
    """The free machines that are still to be held back, or those that are held back too many."""
    zone, kind = offering_parts(offering)
    surplus = state.inventory.reclaimed_count(offering) - state.supply(offering).to_reclaim
    if surplus > 0:
        for key in islice(state.inventory.reclaimed[offering], surplus):
            yield MachineReturned(zone=zone, machine=machine_parts(key)[1], instance_type=kind)
    count = state.outstanding(offering)
    if not count:
        return  # Such as of a type that is not in the catalog.
    size = INSTANCE_TYPES[kind].rack_size
    keys = take_racks(free, None, size, count, Map()) if size else free.take(None, count)
    for key in keys:
        yield MachineReclaimed(zone=zone, machine=machine_parts(key)[1], instance_type=kind)
