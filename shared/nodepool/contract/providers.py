"""What a provider of machines hears and says: the boundary between decisions and machines.

A provider has the machines of some zones: it powers them on, boots and verifies them, and says what
it observes. The `fleet` is the provider of simulated machines. `services.PROVIDERS` names all
providers, and the catalog says which of them has a zone.
"""

from nodepool.contract import events as on
from nodepool.contract.commands import (
    AddMachines,
    BreakMachine,
    CreatePod,
    DeletePod,
    RepairMachine,
    RunPod,
    StopPod,
)

ProviderHears = (
    on.ClusterRegistered
    | on.CWNodeAssigned
    | on.CWNodeRegistered
    | on.CWNodeRegistrationFailed
    | on.NodeUpdated
    | on.CWDrainNode
    | on.NodeReportRequested
    | on.CWNodeDeleted
)
"""What every provider hears."""
ProviderSays = (
    on.MachineAdded
    | on.MachineRepaired
    | on.MachineStateChanged
    | on.MachineBooted
    | on.MachineFailed
    | on.NodeVerified
    | on.NodeConditionChanged
    | on.NodeObserved
    | on.MachineUpdateFailed
)
"""What every provider may say of its own machines."""
SimulationHears = (
    AddMachines
    | BreakMachine
    | RepairMachine
    | RunPod
    | StopPod
    | CreatePod
    | DeletePod
    | on.NodePoolValidated
    | on.CWNodePoolDeleted
    | on.NodeTemplateChanged
)
"""What only the fleet hears: commands to simulated machines, and what their Pods depend on."""
SimulationSays = on.MachineBroken | on.HeartbeatsStopped | on.PodChanged | on.PodUpdateFailed
"""What only the fleet says: the faults that commands caused, and Pods where no agent is."""
