"""What should become of the real machines, and do they match the inventory?

The modules of this package are pure. `metal.decide` decides about the machines as a provider of
them; `metal.host` reads the inventory file, and talks to the controllers over Redfish
(https://www.dmtf.org/standards/redfish).
"""

from metal import messages as real
from nodepool.contract.providers import ProviderHears, ProviderSays

Decides = real.SetMachinePower | real.MaintainMachine | real.VerifyMachine
"""The messages that have an outcome; what follows from the others follows from the state."""
Hears = (
    Decides
    | ProviderHears
    | real.MachineDeclared
    | real.MachineUndeclared
    | real.ControllerReported
    | real.ControllerSilent
    | real.PowerAnswered
    | real.WipeEnded
)
Says = (
    ProviderSays
    | real.PowerRequested
    | real.PowerOverdue
    | real.MachineCheckRequested
    | real.MachinePowerWished
    | real.MachineMaintenanceChanged
    | real.MachineConditionChanged
)
