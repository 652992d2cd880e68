"""The fleet on trial: its machines are simulated, and commands add, break and mend them."""

from typing import ClassVar

from conformance.trial import Trial
from nodepool.contract.commands import AddMachines, BreakMachine, MachineFault, RepairMachine
from support.constants import H100, ZONE

BOOT_S, VERIFY_S, WIPE_S = 0.3, 0.3, 0.3
SILENT_S = 1.0
"""How long a machine of the fleet is silent until its Node gets Ready=Unknown."""


class FleetMachines:
    """Machines that the fleet simulates."""

    zone: ClassVar[str] = ZONE
    instance_type: ClassVar[str] = H100

    def add(self, trial: Trial, *, wipes: bool = False) -> None:
        """Adds one machine, which is wiped after each stay if asked."""
        trial.tell(
            AddMachines(
                zone=self.zone,
                instance_type=self.instance_type,
                count=1,
                boot_seconds=BOOT_S,
                verify_seconds=VERIFY_S,
                wipe_seconds=WIPE_S if wipes else 0,
            )
        )

    def break_machine(self, trial: Trial, machine: str, fault: MachineFault) -> None:
        """Breaks a machine once."""
        trial.tell(BreakMachine(zone=self.zone, machine=machine, fault=fault, cause="broken"))

    def mend(self, trial: Trial, machine: str, fault: MachineFault) -> None:
        """Ends a fault of a machine."""
        trial.tell(BreakMachine(zone=self.zone, machine=machine, fault=fault, times=0))

    def repair(self, trial: Trial, machine: str) -> None:
        """Repairs a machine in triage."""
        trial.tell(RepairMachine(zone=self.zone, machine=machine))
