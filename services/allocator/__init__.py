"""Which machine joins, and which Node leaves?"""

from nodepool.contract.events import (
    AllocationFailed,
    AllocationRecovered,
    CapacityChecked,
    CapacityCheckFailed,
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
    MachineRepaired,
    NodeActivityChanged,
    NodeKept,
    NodePoolDeleting,
    NodePoolValidated,
    NodePreempted,
    NodeRemovalCancelled,
    PreemptionPending,
    QuotaChecked,
)

Hears = (
    NodePoolValidated
    | NodePoolDeleting
    | CWNodePoolDeleted
    | QuotaChecked
    | CapacityChecked
    | CapacityCheckFailed
    | CWNodeRegistered
    | CWNodeRegistrationFailed
    | NodeActivityChanged
    | NodeKept
    | CWNodeCordoned
    | CWNodeUncordoned
    | CWNodeDeleted
    | NodePreempted
    | PreemptionPending
    | MachineAdded
    | MachineRepaired
)
Says = (
    GrantAcknowledged
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
