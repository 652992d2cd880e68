"""Are there as many machines as are wanted, and where?"""

from nodepool.contract.events import (
    CapacityChecked,
    CapacityCheckFailed,
    CWInsufficientCapacity,
    CWNodeAssigned,
    CWNodeDeleted,
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
    | MachineAdded
    | MachineRepaired
)
Says = CapacityChecked | CapacityCheckFailed | CWInsufficientCapacity
