"""What do the machines do? A simulated data centre, at the edge of the system."""

from nodepool.contract.commands import (
    AddMachines,
    BreakMachine,
    CreatePod,
    DeletePod,
    RepairMachine,
    RunPod,
    StopPod,
)
from nodepool.contract.events import (
    ClusterRegistered,
    CWDrainNode,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodePoolDeleted,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    HeartbeatsStopped,
    MachineAdded,
    MachineBooted,
    MachineBroken,
    MachineFailed,
    MachineRepaired,
    MachineStateChanged,
    MachineUpdateFailed,
    NodeConditionChanged,
    NodeObserved,
    NodePoolValidated,
    NodeReportRequested,
    NodeTemplateChanged,
    NodeUpdated,
    NodeVerified,
    PodChanged,
    PodUpdateFailed,
)

Hears = (
    AddMachines
    | BreakMachine
    | RepairMachine
    | RunPod
    | StopPod
    | CreatePod
    | DeletePod
    | ClusterRegistered
    | NodePoolValidated
    | CWNodePoolDeleted
    | NodeTemplateChanged
    | CWNodeAssigned
    | CWNodeRegistered
    | CWNodeRegistrationFailed
    | NodeUpdated
    | CWDrainNode
    | CWNodeDeleted
    | NodeReportRequested
)
Says = (
    MachineAdded
    | MachineBroken
    | MachineRepaired
    | MachineStateChanged
    | MachineBooted
    | MachineFailed
    | NodeVerified
    | HeartbeatsStopped
    | NodeConditionChanged
    | NodeObserved
    | PodChanged
    | MachineUpdateFailed
    | PodUpdateFailed
)
