"""How each event about a machine changes the state of the aggregator, and its counts."""

from dataclasses import replace
from typing import NamedTuple

from immutables import Map

from aggregator import MachineReported, machines
from aggregator.known import State
from aggregator.objects import CapacityObject, MachineStatus
from nodepool.contract.events import CapacityReclaimed, MachineBroken, MachineStateChanged
from nodepool.contract.keys import MachineKey, OfferingKey, offering_key
from nodepool.placement.machines import Inventory, Machine
from nodepool.service import Context
from nodepool.state.tallies import Levels


def machine_reported(state: State, event: MachineReported, context: Context) -> State:
    """Return the state after a change of a machine that is no Node, or may be no Node."""
    if isinstance(event, MachineBroken):
        return _machine_broken(state, event, context)
    if isinstance(event, MachineStateChanged):
        known = machines.moved(state.machines, event, context)
        key = event.machine_key
        machine = state.inventory.machines.get(key)
        counts = _with_machine(state, key, machine, known.get(key))
        return replace(state, machines=known, out_of_service=counts)
    inventory = state.inventory.changed(event)
    if inventory is state.inventory:
        return state
    parts = moved(state, event, inventory, context)
    return replace(
        state,
        inventory=parts.inventory,
        capacity=parts.capacity,
        machines=parts.machines,
        out_of_service=parts.out_of_service,
    )


class Moved(NamedTuple):
    """The parts of a state that change when a machine moves."""

    inventory: Inventory
    capacity: Map[OfferingKey, CapacityObject]
    machines: Map[MachineKey, MachineStatus]
    out_of_service: Levels


def moved(
    state: State,
    event: machines.MachineEvent,
    inventory: Inventory,
    context: Context,
    failure: str = "",
) -> Moved:
    """Return the parts of the state that follow from this inventory.

    inventory: at most the machine of the event differs from the inventory of the state.
    failure: why the machine goes to triage, if it does.
    """
    if inventory is state.inventory:
        return Moved(inventory, state.capacity, state.machines, state.out_of_service)
    key = event.machine_key
    before, after = state.inventory.machines.get(key), inventory.machines[key]
    item = machines.recounted(state.capacity, before, after, context)
    status = machines.changed_hands(state.machines.get(key), after, event, context, failure)
    return Moved(
        inventory,
        state.capacity.set(after.offering, item),
        state.machines.set(key, status),
        _with_machine(state, key, after, status),
    )


def _with_machine(
    state: State, key: MachineKey, machine: Machine | None, status: MachineStatus | None
) -> Levels:
    """Return how many machines are out of service after this machine changed as given."""
    before = machines.out_of_service(state.inventory.machines.get(key), state.machines.get(key))
    after = machines.out_of_service(machine, status)
    return state.out_of_service.moved(before, after)


def capacity_reclaimed(state: State, event: CapacityReclaimed, context: Context) -> State:
    """Return the state in which an operator wants another number of machines of an offering."""
    key = offering_key(event.zone, event.instance_type)
    item = machines.reclaimed(state.capacity.get(key), event, context)
    return replace(state, capacity=state.capacity.set(key, item))


def _machine_broken(state: State, event: MachineBroken, context: Context) -> State:
    key = event.machine_key
    before = state.machines.get(key)
    if before is None:
        return state
    holder = state.node_on(key)
    node = state.nodes.get(holder) if holder is not None else None
    joined = node is not None and node.registered is not None
    after = machines.broken(before, event, joined=joined, context=context)
    return replace(state, machines=state.machines.set(key, after))
