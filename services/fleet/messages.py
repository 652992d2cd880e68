"""What the fleet service hears and says."""

from nodepool.contract.commands import AddMachines, BreakMachine, RepairMachine, RunPod, StopPod
from nodepool.contract.events import (
    CWDrainNode,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    MachineAdded,
    MachineBooted,
    MachineFailed,
    MachineRepaired,
    NodeObserved,
    NodeUpdated,
)

Hears = (
    AddMachines
    | BreakMachine
    | RepairMachine
    | RunPod
    | StopPod
    | CWNodeAssigned
    | CWNodeRegistered
    | CWNodeRegistrationFailed
    | NodeUpdated
    | CWDrainNode
    | CWNodeDeleted
)
Says = MachineAdded | MachineRepaired | MachineBooted | MachineFailed | NodeObserved
