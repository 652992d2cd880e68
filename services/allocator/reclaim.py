"""How an operator reclaims machines, so that no NodePool gets them, and returns them."""

from collections.abc import Iterator
from datetime import datetime

from allocator.give_way import coming, victims
from allocator.state import State
from nodepool.contract.catalog import INSTANCE_TYPES, is_offered, type_fault, zone_fault
from nodepool.contract.commands_spot import ReclaimCapacity, ReturnCapacity
from nodepool.contract.counting import format_count
from nodepool.contract.events import CapacityReclaimed, MachineReclaimed, MachineReturned
from nodepool.contract.keys import OfferingKey, PoolKey, machine_parts, offering_key, offering_parts
from nodepool.contract.outcomes import CommandOutcome, build_acceptance, build_refusal
from nodepool.placement.line import Line
from nodepool.placement.machines import RECLAIMED, ZAP
from nodepool.placement.plan import choose_returns, hold_back, reclaimable

Reclaim = ReclaimCapacity | ReturnCapacity


def outcome(
    state: State, command: Reclaim, now: datetime
) -> Iterator[CapacityReclaimed | CommandOutcome]:
    """Yield the outcome of a command and, if accepted, how many machines to hold back now."""
    fault = _find_fault(command) or _excess(state, command, now)
    if fault is not None:
        yield build_refusal(command, *fault)
        return
    zone, kind, count = command.zone, command.instance_type, command.count
    before = state.stock(offering_key(zone, kind)).to_reclaim
    after = before + (count if isinstance(command, ReclaimCapacity) else -count)
    yield build_acceptance(command, "done")
    yield CapacityReclaimed(zone=zone, instance_type=kind, count=after)


def _find_fault(command: Reclaim) -> tuple[str, str] | None:
    """Return the field that is wrong at any capacity, and why; None if no field is wrong."""
    zone, kind = command.zone, command.instance_type
    if reason := zone_fault(zone):
        return "zone", reason
    if reason := type_fault(kind):
        return "instanceType", reason
    if not is_offered(kind, zone):
        return "instanceType", f"{kind} is not offered in {zone}"
    rack = INSTANCE_TYPES[kind].rack_size
    if rack and command.count % rack:
        return (
            "count",
            f"{command.count} is not a multiple of {rack}, the Nodes of a rack of {kind}",
        )
    return None


def _excess(state: State, command: Reclaim, now: datetime) -> tuple[str, str] | None:
    """Return the field and the reason if a command asks for too many machines; None otherwise."""
    offering = offering_key(command.zone, command.instance_type)
    where = f"of {command.instance_type} in {command.zone}"
    if isinstance(command, ReturnCapacity):
        most = state.stock(offering).to_reclaim
        if command.count <= most:
            return None
        held = format_count(most, "machine")
        return "count", f"at most {held} {where} can be returned, not {command.count}"
    free, pending = reclaimable(state.inventory, offering), state.stock(offering).outstanding
    in_racks = INSTANCE_TYPES[command.instance_type].rack_size > 0
    spot, leave = (0, 0) if in_racks else _not_free(state, offering, now)
    wiped = 0 if in_racks else len(state.stock(offering).wiping)
    most = max(0, free + spot + leave + wiped - pending)
    if command.count <= most:
        return None
    there = f"{free} free and {format_count(spot, 'spot Node')}"
    if in_racks:
        there = f"{free} free in whole racks"
    elif leave:
        leaving = format_count(leave)
        there = f"{free} free, {format_count(spot, 'spot Node')} and, on the way out, {leaving}"
    if wiped:
        there = f"{there}, and {wiped} being wiped"
    message = (
        f"at most {format_count(most, 'machine')} {where} can be reclaimed, not {command.count}: "
    )
    less = f", less {pending} still to be reclaimed" if pending else ""
    return "count", f"{message}{there}{less}"


def _not_free(state: State, offering: OfferingKey, now: datetime) -> tuple[int, int]:
    """Return how many spot Nodes could be reclaimed, and how many other Nodes leave anyway.

    A Node whose machine goes to triage does not count. Neither does a Node that may take longer to
    leave than a preemption and cannot be preempted.
    """
    spot = state.supply(offering).spot
    machines = state.inventory.machines
    holders = [machines[key].holder for key in coming(state, offering, now)]
    leave = [holder for holder in holders if holder not in (RECLAIMED, ZAP)]
    of_spot = sum(PoolKey(holder) in spot for holder in leave)
    return of_spot + sum(1 for _ in victims(state, offering, now)), len(leave) - of_spot


def held_back(
    state: State, offering: OfferingKey, line: Line
) -> Iterator[MachineReclaimed | MachineReturned]:
    """Yield the returns of held-back machines that are too many, or the machines to hold back."""
    zone, kind = offering_parts(offering)
    for key in choose_returns(state.inventory, offering):
        yield MachineReturned(zone=zone, machine=machine_parts(key)[1], instance_type=kind)
    for key in hold_back(state.inventory, offering, line):
        yield MachineReclaimed(zone=zone, machine=machine_parts(key)[1], instance_type=kind)
