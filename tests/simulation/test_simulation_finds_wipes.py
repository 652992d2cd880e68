"""The simulation finds each fault that is put into what happens between two stays of a machine."""

from collections.abc import Iterable
from typing import Any

import pytest

from allocator import give_way
from fleet.decide import SERVICE as FLEET
from nodepool.contract.events import MachineStateChanged, MachineWiped
from nodepool.placement.machines import ZAP, Inventory
from nodepool.service import AnyService, Context
from nodepool.state.values import replace
from support.simulation.faults import Plant, violation_of, with_events
from support.simulation.profile import WIPED

depart, fold_change, coming_count = Inventory.depart, Inventory.fold_change, give_way.coming_count
UNWIPED = "MachineHeld in"
"""What is said of an assignment of a machine that is still to be wiped."""


def freed(after: Inventory, event: Any) -> Inventory:
    """An inventory in which the machine of an event is not wiped, but free."""
    machine = after.machines.get(event.machine_key)
    if machine is None or machine.holder != ZAP:
        return after
    return after._with(event.machine_key, replace(machine, holder=""))


def free_at_once(inventory: Inventory, event: Any) -> Inventory:
    """An inventory in which a machine is free as soon as its Node has left."""
    return freed(depart(inventory, event), event)


def free_once_repaired(inventory: Inventory, event: Any) -> Inventory:
    """An inventory in which a repaired machine is free, whether it is wiped or not."""
    return freed(fold_change(inventory, event), event)


def without_failed_wipes(inventory: Inventory, event: Any) -> Inventory:
    """An inventory in which a machine is being wiped, though its wipe has failed."""
    return inventory if isinstance(event, MachineStateChanged) else fold_change(inventory, event)


def without_wiped(state: Any, offering: Any, now: Any) -> int:
    """How many machines come, without those that are being wiped."""
    return coming_count(state, offering, now) - len(state.stock(offering).wiping)


def saying(*changes: int) -> AnyService:
    """The fleet that says each wipe so often, of the stay whose number is by so much higher."""

    def change(_state: Any, event: Any, _context: Context) -> Iterable[Any]:
        if not isinstance(event, MachineWiped):
            return (event,)
        return [event.model_copy(update={"assignment": event.assignment + by}) for by in changes]

    return with_events(FLEET, change)


PLANTS = {
    "a machine is free as soon as its Node has left": Plant(
        UNWIPED,
        WIPED,
        functions={"nodepool.placement.machines.Inventory.depart": free_at_once},
    ),
    "a machine is free as soon as it is repaired": Plant(
        UNWIPED,
        WIPED,
        functions={"nodepool.placement.machines.Inventory.fold_change": free_once_repaired},
    ),
    "a machine whose wipe has failed is waited for": Plant(
        "the machines do not add up",
        WIPED,
        functions={"nodepool.placement.machines.Inventory.fold_change": without_failed_wipes},
    ),
    "machines that are being wiped are not counted as coming": Plant(
        "of them are being wiped",
        WIPED,
        functions={"allocator.give_way.coming_count": without_wiped},
    ),
    "a wipe names an older stay": Plant("fleet breaks WipeNotRequested", WIPED, (saying(-1),)),
    "a wipe is reported twice": Plant("fleet breaks WipedTwice", WIPED, (saying(0, 0),)),
    "no wipe is reported": Plant("fleet breaks WipeNotReported", WIPED, (saying(),)),
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_fault_between_two_stays_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant = PLANTS[name]

    assert plant.text in violation_of(plant, monkeypatch)
