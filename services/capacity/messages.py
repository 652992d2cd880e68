"""What the capacity service hears and says."""

from nodepool.contract.events import (
    CapacityChecked,
    CapacityCheckFailed,
    CWInsufficientCapacity,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodePoolDeleted,
    CWNodeRegistrationFailed,
    MachineAdded,
    MachineRepaired,
    NodePoolDeleting,
    NodePoolValidated,
    QuotaChecked,
)

Hears = (
    NodePoolValidated
    | NodePoolDeleting
    | QuotaChecked
    | CWNodeAssigned
    | CWNodeDeleted
    | CWNodeRegistrationFailed
    | CWNodePoolDeleted
    | MachineAdded
    | MachineRepaired
)
Says = CapacityChecked | CapacityCheckFailed | CWInsufficientCapacity
