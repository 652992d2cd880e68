"""The process of real machines as a provider on trial; an emulator stands for the hardware.

The machines and their controllers live in a thread of their own, since a trial runs no event loop
while its story waits.
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import pytest

from bus.harness import PATIENCE_S
from conformance.trial import Trial
from nodepool.contract.commands import MachineFault
from nodepool.contract.commands_metal import VerifyMachine
from nodepool.local.server import NatsServer
from redfish.emulator import Emulator, emulator
from redfish.front import fronted
from redfish.power import switch_off
from redfish.program import zones_of_metal
from redfish.site import MEMORY_GIB, Rig, Site
from support.constants import H100, ZONE

T = TypeVar("T")
STARTING: Final = "MemoryInitializationStarted"
"""The progress of a boot that is stuck."""
XID: Final = "NVRM: Xid (PCI:0000:18:00): 48"


class MetalMachines:
    """Machines of a site, each with a controller of its own."""

    zone: ClassVar[str] = ZONE
    instance_type: ClassVar[str] = H100

    def __init__(self, site: Site, machines: Emulator) -> None:
        self.site = site
        self._machines = machines
        self._fronts = AsyncExitStack()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(2 * PATIENCE_S)

    def close(self) -> None:
        """Ends all controllers."""
        self._do(self._fronts.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def add(self, trial: Trial, *, wipes: bool = False) -> None:
        """Declares one more machine in the inventory."""
        front = self._do(self._fronts.enter_async_context(fronted(self._machines.machine())))
        self.site.add(front).is_wiped = wipes
        self.site.declare()

    def break_machine(self, trial: Trial, machine: str, fault: MachineFault) -> None:
        """Breaks a machine as its controller shows it."""
        rig = self.site.rigs[machine]
        match fault:
            case "boot":
                rig.front.forgets_boot = True
            case "registration" | "silence" | "hang":
                rig.progress = STARTING
            case "verification":
                rig.memory_gib = MEMORY_GIB // 2
            case "wipe":
                rig.ends_wipe = False
            case "xid":
                rig.add_entry(XID)
            case _:
                raise AssertionError(f"no story breaks {fault}")

    def mend(self, trial: Trial, machine: str, fault: MachineFault) -> None:
        """Ends a fault; what a log has shown ends with the power, which comes back."""
        rig = self.site.rigs[machine]
        _heal(rig)
        if fault == "xid":
            self._do(switch_off(rig.front))

    def repair(self, trial: Trial, machine: str) -> None:
        """Repairs a machine, and has it verified."""
        _heal(self.site.rigs[machine])
        trial.tell(VerifyMachine(zone=ZONE, machine=machine))


def _heal(rig: Rig) -> None:
    rig.front.forgets_boot = False
    rig.progress, rig.memory_gib, rig.ends_wipe = "", MEMORY_GIB, True


@contextmanager
def metal_machines(server: NatsServer, folder: Path) -> Iterator[MetalMachines]:
    """Machines for one story, and a catalog in which their zone belongs to `metal`."""
    with emulator(folder) as emulated, pytest.MonkeyPatch.context() as patched:
        patched.setattr("nodepool.contract.catalog.ZONES", zones_of_metal())
        machines = MetalMachines(Site(server, folder, folder, wipes=False), emulated)
        try:
            yield machines
        finally:
            machines.close()
