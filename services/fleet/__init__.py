"""What do the machines do? A simulated data centre, at the edge of the system."""

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
from nodepool.contract.providers import (
    ProviderHears,
    ProviderSays,
    SimulationHears,
    SimulationSays,
)

Decides = (
    AddMachines
    | BreakMachine
    | RepairMachine
    | RunPod
    | StopPod
    | CreatePod
    | DeletePod
    | on.CWNodeRegistered
    | on.NodeUpdated
    | on.CWDrainNode
    | on.CWNodeDeleted
    | on.NodeReportRequested
)
"""The messages that lead to events at once; the others only change the state."""
Hears = Decides | ProviderHears | SimulationHears
Says = ProviderSays | SimulationSays
