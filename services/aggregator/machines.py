"""A machine of the read model after an event about it, and the counts of its offering."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, get_args

from immutables import Map

from aggregator.objects import CapacityObject, Faults, MachineStatus
from nodepool.contract import events as on
from nodepool.contract.health import NodeFault
from nodepool.contract.keys import MachineKey, OfferingKey
from nodepool.contract.node_states import MachineState as Outside
from nodepool.placement.machines import RECLAIMED, TRIAGE, Machine
from nodepool.service import Context
from nodepool.state.tallies import Labels

IMMEDIATE = frozenset(("hang", *get_args(NodeFault)))
"""The faults that take effect at once if the machine is a Node."""
MachineState = Literal["free", "assigned", "triage", "reclaimed"]
MachineEvent = (
    on.MachineAdded
    | on.MachineRepaired
    | on.MachineReclaimed
    | on.MachineReturned
    | on.CWNodeAssigned
    | on.CWNodeDeleted
    | on.CWNodeRegistrationFailed
)
"""The events with which a machine changes hands."""


def recounted(
    objects: Mapping[OfferingKey, CapacityObject],
    before: Machine | None,
    after: Machine,
    context: Context,
) -> CapacityObject:
    """Return the counts of the machine's offering; `before` is None for a new machine."""
    item = objects.get(after.offering)
    if item is None:
        item = CapacityObject(after.zone, after.instance_type, context.position)
    counts: dict[MachineState, int] = {
        "free": item.free,
        "assigned": item.assigned,
        "triage": item.triage,
        "reclaimed": item.reclaimed,
    }
    counts[state_of(after)] += 1
    if before is not None:
        counts[state_of(before)] -= 1
    return replace(
        item,
        version=context.position,
        free=counts["free"],
        assigned=counts["assigned"],
        triage=counts["triage"],
        reclaimed=counts["reclaimed"],
    )


def reclaimed(
    before: CapacityObject | None, event: on.CapacityReclaimed, context: Context
) -> CapacityObject:
    """Return the counts of an offering with another number of machines to hold back."""
    if before is None:
        before = CapacityObject(event.zone, event.instance_type, context.position)
    return replace(before, version=context.position, to_reclaim=event.count)


def changed_hands(
    before: MachineStatus | None,
    after: Machine,
    event: MachineEvent,
    context: Context,
    failure: str = "",
) -> MachineStatus:
    """Return the status of a machine that was added, assigned, given back, repaired or reclaimed.

    failure: why the machine goes to triage, if it does, in one word.
    """
    if before is None:
        return MachineStatus(version=context.position, added=context.time)
    faults = before.faults
    if faults is not None:
        faults = _in_stay(faults) if isinstance(event, on.CWNodeAssigned) else _after_stay(faults)
    cause = ""
    if isinstance(event, on.CWNodeDeleted | on.CWNodeRegistrationFailed) and after.holder == TRIAGE:
        cause = event.message
    return replace(
        before,
        version=context.position,
        cause=cause,
        failure=failure if after.holder == TRIAGE else "",
        state=Outside.TRIAGE,
        faults=faults,
    )


def broken(
    before: MachineStatus, event: on.MachineBroken, *, joined: bool, context: Context
) -> MachineStatus:
    """Return the status of a machine that will fail; a Node (`joined`) may fail at once."""
    failing = before.faults.failing if before.faults is not None else ""
    faults: Faults | None = Faults(event.fault, event.times, failing)
    if not event.times:
        is_over = failing in ("", "hang", event.fault)
        faults = Faults(event.fault, 0, failing) if not is_over else None
    elif joined and event.fault in IMMEDIATE and failing != event.fault:
        faults = Faults(event.fault, event.times - 1, event.fault)
    return replace(before, version=context.position, faults=faults)


def moved(
    known: Map[MachineKey, MachineStatus], event: on.MachineStateChanged, context: Context
) -> Map[MachineKey, MachineStatus]:
    """Return the machines with this machine in another state outside of any NodePool."""
    key, status = event.machine_key, known.get(event.machine_key)
    if status is None:
        return known
    return known.set(key, replace(status, state=event.state, version=context.position))


def _in_stay(faults: Faults) -> Faults:
    return replace(faults, times=faults.times - 1, failing=faults.fault)


def _after_stay(faults: Faults) -> Faults | None:
    return replace(faults, failing="") if faults.times else None


def out_of_service(machine: Machine | None, status: MachineStatus | None) -> Labels | None:
    """Return the labels that count a machine out of service; None for any other machine."""
    if machine is None or status is None or machine.holder != TRIAGE:
        return None
    return machine.zone, machine.instance_type, status.state.value, status.failure


def state_of(machine: Machine) -> MachineState:
    """Return the state of a machine."""
    if not machine.holder:
        return "free"
    if machine.holder == RECLAIMED:
        return "reclaimed"
    return "triage" if machine.holder == TRIAGE else "assigned"
