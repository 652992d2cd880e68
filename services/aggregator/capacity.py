"""The machines of an offering in the read model after one of them changed hands."""

from collections.abc import Mapping
from typing import Literal

from aggregator.objects import CapacityObject
from nodepool.contract.keys import OfferingKey
from nodepool.service import Context
from nodepool.state.inventory import TRIAGE, Machine

MachineState = Literal["free", "assigned", "triage"]


def recounted(
    objects: Mapping[OfferingKey, CapacityObject],
    before: Machine | None,
    after: Machine,
    context: Context,
) -> CapacityObject:
    """The counts of the machine's offering; `before` is None for a machine that is new."""
    item = objects.get(after.offering)
    counts: dict[MachineState, int] = {"free": 0, "assigned": 0, "triage": 0}
    if item is not None:
        counts = {"free": item.free, "assigned": item.assigned, "triage": item.triage}
    counts[_state(after)] += 1
    if before is not None:
        counts[_state(before)] -= 1
    return CapacityObject(after.zone, after.instance_type, context.position, **counts)


def _state(machine: Machine) -> MachineState:
    if not machine.holder:
        return "free"
    return "triage" if machine.holder == TRIAGE else "assigned"
