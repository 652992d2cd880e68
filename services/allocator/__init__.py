"""Which machine joins, and which Node leaves?"""

from nodepool.contract.events import (
    AllocationFailed,
    CapacityChecked,
    CapacityCheckFailed,
    CWNodeAssigned,
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
    GrantAcknowledged,
    MachineAdded,
    MachineRepaired,
    NodeActivityChanged,
    NodeKept,
    NodePoolDeleting,
    NodePoolValidated,
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
    | CWNodeDeleted
    | PreemptionPending
    | MachineAdded
    | MachineRepaired
)
Says = (
    GrantAcknowledged
    | AllocationFailed
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
