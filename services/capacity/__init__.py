"""Are there as many machines as are wanted, and where?"""

from nodepool.contract.commands import FindCapacity
from nodepool.contract.events import (
    CapacityChecked,
    CapacityCheckFailed,
    CapacityFound,
    ClusterRegistered,
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
    FindCapacity
    | ClusterRegistered
    | NodePoolValidated
    | NodePoolDeleting
    | QuotaChecked
    | CWNodeAssigned
    | CWNodeDeleted
    | CWNodeRegistrationFailed
    | MachineAdded
    | MachineRepaired
)
Says = CapacityChecked | CapacityCheckFailed | CapacityFound | CWInsufficientCapacity
