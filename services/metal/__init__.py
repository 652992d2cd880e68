"""What becomes of real machines?

The modules of this package are pure. `metal.decide` decides about the machines as a provider of
them; `metal.host` reads the inventory file, and talks to the controllers over Redfish
(https://www.dmtf.org/standards/redfish).
"""

from nodepool.contract.commands_metal import MaintainMachine, SetMachinePower, VerifyMachine
from nodepool.contract.events import (
    ControllerReported,
    ControllerSilent,
    MachineCheckRequested,
    MachineConditionChanged,
    MachineDeclared,
    MachineMaintenanceChanged,
    MachinePowerWished,
    MachineUndeclared,
    PowerAnswered,
    PowerOverdue,
    PowerRequested,
    WipeEnded,
)
from nodepool.contract.providers import ProviderHears, ProviderSays

Decides = SetMachinePower | MaintainMachine | VerifyMachine
"""The messages that have an outcome; what follows from the others follows from the state."""
Hears = (
    Decides
    | ProviderHears
    | MachineDeclared
    | MachineUndeclared
    | ControllerReported
    | ControllerSilent
    | PowerAnswered
    | WipeEnded
)
Says = (
    ProviderSays
    | PowerRequested
    | PowerOverdue
    | MachineCheckRequested
    | MachinePowerWished
    | MachineMaintenanceChanged
    | MachineConditionChanged
)
