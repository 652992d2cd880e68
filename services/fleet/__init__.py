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
Hears = (
    Decides
    | on.ClusterRegistered
    | on.NodePoolValidated
    | on.CWNodePoolDeleted
    | on.NodeTemplateChanged
    | on.CWNodeAssigned
    | on.CWNodeRegistrationFailed
)
Says = (
    on.MachineAdded
    | on.MachineBroken
    | on.MachineRepaired
    | on.MachineStateChanged
    | on.MachineBooted
    | on.MachineFailed
    | on.NodeVerified
    | on.HeartbeatsStopped
    | on.NodeConditionChanged
    | on.NodeObserved
    | on.PodChanged
    | on.MachineUpdateFailed
    | on.PodUpdateFailed
)
