"""What is the NodePool's status now?"""

from nodepool.contract.events import (
    AllocationFailed,
    CapacityChecked,
    CapacityCheckFailed,
    CWDrainNode,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodePoolDeleted,
    CWNodePoolNodesRemoved,
    CWNodePoolNodesRemoveError,
    CWNodePoolQuotaCheckFailed,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    MachineAdded,
    MachineRepaired,
    NodeActivityChanged,
    NodePoolDeleting,
    NodePoolValidated,
    NodeUpdated,
    QuotaChecked,
    QuotaReleased,
    QuotaSet,
)

CheckFailed = (
    CWNodePoolQuotaCheckFailed | CapacityCheckFailed | AllocationFailed | CWNodePoolNodesRemoveError
)
"""A condition of a NodePool could not be determined."""
NodeChanged = CWNodeRegistered | NodeUpdated | NodeActivityChanged | CWDrainNode
"""A Node of a NodePool is other than it was."""
NodeLeft = CWNodeDeleted | CWNodeRegistrationFailed
"""A Node is no longer part of its NodePool."""
QuotaCounted = QuotaSet | QuotaChecked | QuotaReleased
"""A limit, or what counts against it, may be other than it was."""

Hears = (
    NodePoolValidated
    | NodePoolDeleting
    | CWNodePoolDeleted
    | QuotaCounted
    | CapacityChecked
    | CheckFailed
    | CWNodeAssigned
    | NodeChanged
    | NodeLeft
    | CWNodePoolNodesRemoved
    | MachineAdded
    | MachineRepaired
)
