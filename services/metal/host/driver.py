"""The driver of real machines: it reads the inventory, sends power requests, and polls."""

import asyncio
from functools import partial
from typing import Final

from metal import Hears, Says
from metal.host.addresses import Addresses
from metal.host.boot_server import BootServer
from metal.host.inventory_file import read_inventory
from metal.host.managed import ManagedMachines
from metal.host.polling import Poller
from metal.host.redfish.controllers import Controllers
from metal.host.replica import MetalReplica
from metal.host.sending import Sender
from metal.host.settings import MetalSettings
from metal.host.watching import InventoryWatch
from metal.inventory.inventory import Inventory
from metal.state import State
from nodepool.host.runtime import Runtime
from nodepool.nats.wire.waiting import until_first

HOST: Final = "0.0.0.0"  # Machines reach the port from their own network.


class Driver:
    """What connects a replica of `metal` to the controllers of its machines."""

    def __init__(self, runtime: Runtime[State, Hears, Says], settings: MetalSettings) -> None:
        self._runtime = runtime
        self._settings = settings
        self._watch: InventoryWatch | None = None
        self._has_inventory = False

    @property
    def obstacle(self) -> str | None:
        """Return why no machine is driven, as one line; None if they are."""
        if self._has_inventory:
            return None
        fault = self._watch.fault if self._watch is not None else ""
        return fault or "reading the inventory"

    async def run(self, stop: asyncio.Event) -> None:
        """Drive the machines until `stop` is set; then let requests under way end."""
        settings, replica = self._settings, MetalReplica(self._runtime)
        addresses = Addresses(settings.report_url, settings.report_key)
        async with Controllers(settings.limits) as controllers:
            machines = ManagedMachines(controllers)
            poller = Poller(replica, machines, settings.limits, settings.poll_s)
            sender = Sender(replica, machines, settings.limits, addresses, poller)

            def take_over(inventory: Inventory) -> None:
                machines.replace(inventory)
                poller.begin()
                self._has_inventory = True

            read = partial(read_inventory, network=settings.network)
            self._watch = InventoryWatch(
                settings.inventory, read, replica.log, replica.figures, take_over
            )
            # The sender comes first: no other call may come between a commit and its requests.
            self._runtime.on_stored.extend((sender.hear, poller.hear))
            server = BootServer(replica, machines, addresses)
            try:
                if settings.report_port >= 0:
                    port = await server.open(HOST, settings.report_port)
                    replica.log.info("answering boots", port=port)
                await until_first(stop.wait(), self._watch.run(), poller.run())
            finally:
                try:
                    await sender.finish()
                finally:
                    await server.close()
