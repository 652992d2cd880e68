"""The machines of the read model after an event, and the counts of their offering."""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, get_args

from aggregator import MachineReported, RealMachineSeen
from aggregator.objects import CapacityObject, Faults, MachineStatus, NodeObject
from aggregator.read_model import ReadModel
from aggregator.real_machines import fold_real_machine, note_move
from nodepool.contract import events as on
from nodepool.contract.commands import WipeFault
from nodepool.contract.health import NodeFault
from nodepool.contract.keys import offering_key
from nodepool.contract.node_states import MachineState as Outside
from nodepool.placement.machines import RECLAIMED, TRIAGE, ZAP, Inventory, Machine
from nodepool.service import Context
from nodepool.state.maps import put
from nodepool.state.values import replace

IMMEDIATE = frozenset(("hang", *get_args(NodeFault)))
"""The faults that take effect at once if the machine is a Node."""
MachineState = Literal["free", "assigned", "triage", "reclaimed", "zap"]
PLACES: Final[Mapping[str, MachineState]] = MappingProxyType(
    {"": "free", TRIAGE: "triage", RECLAIMED: "reclaimed", ZAP: "zap"}
)
"""The state of a machine by its holder; every other holder is a NodePool."""
MachineEvent = (
    on.MachineAdded
    | on.MachineRepaired
    | on.MachineWiped
    | on.MachineStateChanged
    | on.MachineReclaimed
    | on.MachineReturned
    | on.CWNodeAssigned
    | on.CWNodeDeleted
    | on.CWNodeRegistrationFailed
)
"""The events with which a machine changes hands."""


def machine_reported(model: ReadModel, event: MachineReported, context: Context) -> ReadModel:
    """Return the read model after a change of a machine that is no Node, or may be no Node."""
    real = model.real.get(event.machine_key)
    if real is not None and isinstance(event, on.MachineWiped | on.MachineStateChanged):
        real = note_move(real, event, context)
        model = replace(model, real=model.real.set(event.machine_key, real))
    if not isinstance(event, on.MachineBroken | on.MachineStateChanged):
        return with_inventory(model, event, model.inventory.fold_change(event), context)
    before = model.machines.get(event.machine_key)
    if before is None:
        return model
    if isinstance(event, on.MachineStateChanged):
        model = with_inventory(model, event, model.inventory.fold_change(event), context)
        machine = model.inventory.machines[event.machine_key]
        if machine.holder != TRIAGE and not machine.out:
            return model
        before = model.machines[event.machine_key]
        cause = event.cause or before.cause
        after = replace(before, state=event.state, version=context.position, cause=cause)
    else:
        holder = model.node_on(event.machine_key)
        node = model.nodes.get(holder) if holder is not None else None
        joined = node is not None and node.is_registered
        faults = _faults_of_broken(before.faults, event, joined=joined)
        after = replace(before, faults=faults, version=context.position)
    return replace(model, machines=model.machines.set(event.machine_key, after))


def real_machine_seen(model: ReadModel, event: RealMachineSeen, context: Context) -> ReadModel:
    """Return the read model after an event that only real machines have.

    A machine that was never added is removed when the inventory does not have it any more.
    """
    key = event.machine_key
    before = model.real.get(key)
    after = fold_real_machine(before, event, context)
    if after is not None and after.declared is None and key not in model.machines:
        after = None
    return model if after is before else replace(model, real=put(model.real, key, after))


def with_inventory(
    model: ReadModel, event: MachineEvent, inventory: Inventory, context: Context
) -> ReadModel:
    """Return the read model with this inventory, and with the objects that follow from it.

    inventory: at most the machine of the event differs from the inventory of the read model.
    """
    if inventory is model.inventory:
        return model
    key = event.machine_key
    before, after = model.machine(key), inventory.machines[key]
    item = _recount_offering(model.capacity.get(after.offering), before, after, context)
    status = _changed_hands(model.machines.get(key), after, event, context)
    return replace(
        model,
        inventory=inventory,
        capacity=model.capacity.set(after.offering, item),
        machines=model.machines.set(key, status),
    )


def capacity_reclaimed(
    model: ReadModel, event: on.CapacityReclaimed, context: Context
) -> ReadModel:
    """Return the read model in which an operator wants another number of machines held back."""
    key, position = offering_key(event.zone, event.instance_type), context.position
    before = model.capacity.get(key) or CapacityObject(event.zone, event.instance_type, position)
    after = replace(before, version=position, to_reclaim=event.count)
    return replace(model, capacity=model.capacity.set(key, after))


def count_giving_way(
    model: ReadModel, before: NodeObject, after: NodeObject | None, context: Context
) -> ReadModel:
    """Return the read model after a change of a Node that may have to give way; None if it left."""
    old, new = _stage(before), _stage(after)
    if old == new:
        return model
    key = offering_key(before.zone, before.instance_type)
    item = model.capacity[key]
    has_moved = new.asked_since is not None and new[:-1] != old[:-1]
    item = replace(
        item,
        version=context.position,
        giving_way=item.giving_way + (new.asked_since is not None) - (old.asked_since is not None),
        preempting_since=context.time if has_moved else item.preempting_since,
        # A snapshot of an earlier release has Nodes that it did not count.
        unwarned=max(0, item.unwarned + new.is_unwarned - old.is_unwarned),
        unmarked=max(0, item.unmarked + new.is_unmarked - old.is_unmarked),
        unsure=max(0, item.unsure + new.is_unsure - old.is_unsure),
    )
    return replace(model, capacity=model.capacity.set(key, item))


class _Stage(NamedTuple):
    """The state of a Node that the capacity of its offering counts while the Node may give way."""

    asked_since: datetime | None = None
    preempted_since: datetime | None = None
    is_unwarned: bool = False
    is_unmarked: bool = False
    is_unsure: bool = False


def _stage(node: NodeObject | None) -> _Stage:
    if node is None:
        return _Stage()
    since = node.asked_since, node.preempted_since
    return _Stage(*since, node.is_unwarned, node.is_unmarked, node.is_unsure)


def state_of(machine: Machine) -> MachineState:
    """Return the state of a machine."""
    return PLACES.get(machine.holder, "assigned")


def _recount_offering(
    item: CapacityObject | None, before: Machine | None, after: Machine, context: Context
) -> CapacityObject:
    """Return the counts of the machine's offering; `before` is None for a new machine."""
    if item is None:
        item = CapacityObject(after.zone, after.instance_type, context.position)
    counts: dict[MachineState, int] = {
        "free": item.free,
        "assigned": item.assigned,
        "triage": item.triage,
        "reclaimed": item.reclaimed,
        "zap": item.zap,
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
        zap=counts["zap"],
    )


def _changed_hands(
    before: MachineStatus | None, after: Machine, event: MachineEvent, context: Context
) -> MachineStatus:
    """Return the status of a machine that was added or has changed hands."""
    if before is None:
        return MachineStatus(version=context.position, added=context.time)
    faults = before.faults
    if faults is not None and _shows_fault(faults, after, event):
        faults = replace(faults, times=faults.times - 1, failing=faults.fault)
    elif faults is not None:
        faults = replace(faults, failing="") if faults.times else None
    status = replace(before, version=context.position, faults=faults)
    is_out = after.out or after.holder == TRIAGE
    if is_out and isinstance(event, on.MachineReclaimed | on.MachineReturned):
        return status
    cause = ""
    if isinstance(event, on.CWNodeDeleted | on.CWNodeRegistrationFailed) and is_out:
        cause = event.message
    return replace(status, cause=cause, state=Outside.TRIAGE)


def _shows_fault(faults: Faults, after: Machine, event: MachineEvent) -> bool:
    """Return whether a fault shows now: at the start of a boot, or of a wipe."""
    if faults.fault in get_args(WipeFault):
        return after.holder == ZAP and faults.times > 0
    return isinstance(event, on.CWNodeAssigned)


def _faults_of_broken(
    before: Faults | None, event: on.MachineBroken, *, joined: bool
) -> Faults | None:
    """Return the faults of a machine that will fail; a Node (`joined`) may fail at once."""
    failing = before.failing if before is not None else ""
    if not event.times:
        is_over = failing in ("", "hang", event.fault)
        return None if is_over else Faults(event.fault, 0, failing)
    if joined and event.fault in IMMEDIATE and failing != event.fault:
        return Faults(event.fault, event.times - 1, event.fault)
    return Faults(event.fault, event.times, failing)
