"""The machines of the inventory, each with its declaration and its controller."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, KeysView
from dataclasses import dataclass

from metal.declaring import build_declaration
from metal.host.redfish.controller import Controller
from metal.host.redfish.controllers import Controllers
from metal.inventory.inventory import Inventory, KnownMachine
from nodepool.contract.events import MachineDeclared
from nodepool.contract.keys import MachineKey


@dataclass(frozen=True, slots=True)
class Managed:
    """A machine of the inventory, how it is declared, and its controller."""

    known: KnownMachine
    declaration: MachineDeclared
    controller: Controller


class ManagedMachines:
    """The machines of the inventory in force. inventory: None before the first."""

    def __init__(self, controllers: Controllers) -> None:
        self.inventory: Inventory | None = None
        self._controllers = controllers
        self._machines: dict[MachineKey, Managed] = {}
        self._behind: defaultdict[str, set[MachineKey]] = defaultdict(set)
        self._closing: set[asyncio.Task[None]] = set()

    def get(self, key: MachineKey) -> Managed | None:
        """Return a machine; None if the inventory does not have it."""
        return self._machines.get(key)

    def list_beside(self, key: MachineKey) -> Collection[MachineKey]:
        """Return a machine, and those behind the same controller."""
        managed = self._machines.get(key)
        return self._behind[managed.known.place.address] if managed is not None else {key}

    def keys(self) -> KeysView[MachineKey]:
        """Return the keys of all machines."""
        return self._machines.keys()

    def replace(self, inventory: Inventory) -> None:
        """Take over an inventory; a controller whose place has changed is opened again."""
        before, self._machines = self._machines, {}
        self._behind.clear()
        for key, known in inventory.machines.items():
            old = before.get(key)
            if old is not None and old.known.place == known.place:
                controller = before.pop(key).controller
            else:
                controller = self._controllers.open(known.place)
            self._machines[key] = Managed(known, build_declaration(known), controller)
            self._behind[known.place.address].add(key)
        for left in before.values():
            task = asyncio.create_task(self._controllers.close(left.controller))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        self.inventory = inventory
