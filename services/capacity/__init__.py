"""Are there as many machines as are wanted, and where?"""

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
