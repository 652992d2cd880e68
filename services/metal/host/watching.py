"""Reads the inventory file when the process starts, and whenever the file changes."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from metal.host.inventory_file import InventoryError, read_inventory
from metal.host.replica import MetalReplica
from metal.host.settings import MetalSettings
from metal.inventory.inventory import Inventory

LOOK_S: Final = 1.0
"""How often the file is looked at."""


class InventoryWatch:
    """Reads the inventory; a file with a fault is refused whole, and the last inventory stays.

    fault: why the file as it is now is refused, as one line; empty if it is in force.
    """

    def __init__(
        self,
        settings: MetalSettings,
        replica: MetalReplica,
        on_change: Callable[[Inventory], None],
    ) -> None:
        self.fault = ""
        self._path = settings.inventory
        self._read_file = partial(read_inventory, settings.inventory, settings.network)
        self._log, self._figures = replica.log, replica.figures
        self._on_change = on_change
        self._mark: object = None
        self._asked = asyncio.Event()

    async def run(self) -> None:
        """Read the file whenever it changes, and at SIGHUP, until cancelled."""
        loop = asyncio.get_running_loop()
        with suppress(RuntimeError, ValueError):  # Only a main thread gets signals.
            loop.add_signal_handler(signal.SIGHUP, self._asked.set)
        while True:
            mark = await asyncio.to_thread(self._look)
            if mark != self._mark or self._asked.is_set():
                self._mark = mark
                self._asked.clear()
                await self._read()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._asked.wait()

    def _look(self) -> object:
        """Return a mark that changes with the content of the file."""
        try:
            found = self._path.stat()
        except OSError as error:
            return error.errno
        return found.st_mtime_ns, found.st_size, found.st_ino

    async def _read(self) -> None:
        try:
            inventory = await asyncio.to_thread(self._read_file)
        except InventoryError as error:
            self.fault = error.faults[0]
            self._figures.count_inventory(is_refused=True)
            self._log.error("inventory refused", faults=error.faults, path=str(self._path))
            return
        self.fault = ""
        self._figures.count_inventory(is_refused=False)
        self._log.info("inventory read", machines=len(inventory.machines), path=str(self._path))
        self._on_change(inventory)
