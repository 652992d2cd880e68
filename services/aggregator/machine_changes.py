"""How each event about a machine changes the read model, and the counts of its offering."""

from dataclasses import replace

from aggregator import MachineReported, machines
from aggregator.read_model import ReadModel
from nodepool.contract.events import CapacityReclaimed, MachineBroken, MachineStateChanged
from nodepool.contract.keys import offering_key
from nodepool.service import Context
from nodepool.state.inventory import Inventory


def machine_reported(model: ReadModel, event: MachineReported, context: Context) -> ReadModel:
    """Return the read model after a change of a machine that is no Node, or may be no Node."""
    if isinstance(event, MachineBroken):
        return _machine_broken(model, event, context)
    if isinstance(event, MachineStateChanged):
        return replace(model, machines=machines.moved(model.machines, event, context))
    return with_inventory(model, event, model.inventory.changed(event), context)


def with_inventory(
    model: ReadModel, event: machines.MachineEvent, inventory: Inventory, context: Context
) -> ReadModel:
    """Return the read model with this inventory, and with the objects that follow from it.

    inventory: at most the machine of the event differs from the inventory of the read model.
    """
    if inventory is model.inventory:
        return model
    key = event.machine_key
    before, after = model.inventory.machines.get(key), inventory.machines[key]
    item = machines.recounted(model.capacity, before, after, context)
    status = machines.changed_hands(model.machines.get(key), after, event, context)
    return replace(
        model,
        inventory=inventory,
        capacity=model.capacity.set(after.offering, item),
        machines=model.machines.set(key, status),
    )


def capacity_reclaimed(model: ReadModel, event: CapacityReclaimed, context: Context) -> ReadModel:
    """Return the read model in which an operator wants another number of machines held back."""
    key = offering_key(event.zone, event.instance_type)
    item = machines.reclaimed(model.capacity.get(key), event, context)
    return replace(model, capacity=model.capacity.set(key, item))


def _machine_broken(model: ReadModel, event: MachineBroken, context: Context) -> ReadModel:
    key = event.machine_key
    before = model.machines.get(key)
    if before is None:
        return model
    holder = model.node_on(key)
    node = model.nodes.get(holder) if holder is not None else None
    joined = node is not None and node.is_registered
    after = machines.broken(before, event, joined=joined, context=context)
    return replace(model, machines=model.machines.set(key, after))
