"""What do the machines do? A simulated data centre, at the edge of the system."""

from nodepool.contract.commands import AddMachines, BreakMachine, RepairMachine, RunPod, StopPod
from nodepool.contract.events import (
    CWDrainNode,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    MachineAdded,
    MachineBooted,
    MachineBroken,
    MachineFailed,
    MachineRepaired,
    NodeConditionChanged,
    NodeObserved,
    NodeUpdated,
    NodeVerified,
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
Says = (
    MachineAdded
    | MachineBroken
    | MachineRepaired
    | MachineBooted
    | MachineFailed
    | NodeVerified
    | NodeConditionChanged
    | NodeObserved
)
