"""Which machine joins, and which Node leaves?"""

from nodepool.contract.commands_spot import ReclaimCapacity, ReturnCapacity
from nodepool.contract.events import (
    AllocationFailed,
    AllocationRecovered,
    CapacityChecked,
    CapacityCheckFailed,
    CapacityReclaimed,
    CapacityReclaimFailed,
    CWDrainNode,
    CWNodeAssigned,
    CWNodeCordoned,
    CWNodeDeleted,
    CWNodeDeletionRequestSuccess,
    CWNodeDeliverFail,
    CWNodePoolDeleted,
    CWNodePoolNodesRemoved,
    CWNodePoolNodesRequestFailed,
    CWNodePoolRemoveNodes,
    CWNodePoolScaledDown,
    CWNodePoolScaledUp,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    CWNodeRequestQueued,
    CWNodeUncordoned,
    GrantAcknowledged,
    MachineAdded,
    MachineReclaimed,
    MachineRepaired,
    MachineReturned,
    NodeActivityChanged,
    NodeKept,
    NodePoolDeleting,
    NodePoolValidated,
    NodePreempted,
    NodePreemptionRequested,
    NodeRemovalCancelled,
    NodeReservationChanged,
    NodeUpdated,
    PreemptionPending,
    QuotaChecked,
    QuotaCheckFailed,
)

Hears = (
    ReclaimCapacity
    | ReturnCapacity
    | NodePoolValidated
    | NodePoolDeleting
    | CWNodePoolDeleted
    | QuotaChecked
    | QuotaCheckFailed
    | CapacityChecked
    | CapacityCheckFailed
    | CWNodeRegistered
    | CWNodeRegistrationFailed
    | NodeActivityChanged
    | NodeUpdated
    | NodeReservationChanged
    | NodeKept
    | CWNodeCordoned
    | CWNodeUncordoned
    | CWDrainNode
    | CWNodeDeleted
    | NodePreempted
    | PreemptionPending
    | MachineAdded
    | MachineRepaired
)
Says = (
    GrantAcknowledged
    | CapacityReclaimed
    | CapacityReclaimFailed
    | MachineReclaimed
    | MachineReturned
    | NodePreemptionRequested
    | AllocationFailed
    | AllocationRecovered
    | NodeRemovalCancelled
    | CWNodePoolScaledUp
    | CWNodeRequestQueued
    | CWNodeAssigned
    | CWNodePoolRemoveNodes
    | CWNodeDeletionRequestSuccess
    | CWNodePoolNodesRemoved
    | CWNodePoolScaledDown
    | CWNodeDeliverFail
    | CWNodePoolNodesRequestFailed
)
