"""Reads the inventory file when the process starts, and whenever the file changes.

A file that somebody is still writing may be a valid inventory of fewer machines. So a file is read
once it is the same at two looks in a row, and taken over if it is the same after it was read.
"""

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from metal.host.figures import Figures
from metal.host.inventory_file import InventoryError
from metal.inventory.inventory import Inventory
from nodepool.host.logs import Logger

LOOK_S: Final = 1.0
"""The pause between two looks at the file, in seconds."""


class InventoryWatch:
    """Reads the inventory; a file with a fault is refused whole, and the last inventory stays.

    read: returns the inventory in a file; raises InventoryError if it cannot be used.
    on_change: is called with each inventory that is in force from now on.
    fault: why the file as it is now is refused, as one line; empty if it is in force.
    """

    def __init__(
        self,
        path: Path,
        read: Callable[[Path], Inventory],
        log: Logger,
        figures: Figures,
        on_change: Callable[[Inventory], None],
    ) -> None:
        self.fault = ""
        self._path = path
        self._read_file = read
        self._log, self._figures = log, figures
        self._on_change = on_change
        # The marks of the file: at the last look, and when it was last taken over or refused.
        self._seen: object = None
        self._judged: object = None
        self._asked = asyncio.Event()

    async def run(self) -> None:
        """Read the file whenever it changes, and at SIGHUP, until cancelled."""
        loop = asyncio.get_running_loop()
        with suppress(RuntimeError, ValueError):  # Only a main thread gets signals.
            loop.add_signal_handler(signal.SIGHUP, self._asked.set)
        while True:
            await self.look()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._asked.wait()

    async def look(self) -> None:
        """Look at the file once, and read it if it is new and has not changed since the last look.

        After SIGHUP, read it at once.
        """
        mark = await asyncio.to_thread(self._mark)
        is_settled = mark == self._seen != self._judged
        self._seen = mark
        if is_settled or self._asked.is_set():
            self._asked.clear()
            await self._read(mark)

    def _mark(self) -> object:
        """Return a mark that changes with the content of the file."""
        try:
            found = self._path.stat()
        except OSError as error:
            return error.errno
        return found.st_mtime_ns, found.st_size, found.st_ino

    async def _read(self, mark: object) -> None:
        inventory: Inventory | InventoryError
        try:
            inventory = await asyncio.to_thread(self._read_file, self._path)
        except InventoryError as error:
            inventory = error
        self._seen = await asyncio.to_thread(self._mark)
        if self._seen != mark:
            return
        self._judged = mark
        if isinstance(inventory, InventoryError):
            self.fault = inventory.faults[0]
            self._figures.count_inventory(is_refused=True)
            self._log.error("inventory refused", faults=inventory.faults, path=str(self._path))
            return
        self.fault = ""
        self._figures.count_inventory(is_refused=False)
        self._log.info("inventory read", machines=len(inventory.machines), path=str(self._path))
        self._on_change(inventory)
