"""Are there as many machines as are wanted, and where?"""

from nodepool.contract.commands import FindCapacity
from nodepool.contract.events import (
    CapacityChecked,
    CapacityCheckFailed,
    CapacityFound,
    CapacityReclaimed,
    ClusterRegistered,
    CWInsufficientCapacity,
    CWNodeAssigned,
    CWNodeCordoned,
    CWNodeDeleted,
    CWNodeRegistrationFailed,
    CWNodeUncordoned,
    MachineAdded,
    MachineReclaimed,
    MachineRepaired,
    MachineReturned,
    NodePoolDeleting,
    NodePoolValidated,
    NodePreemptionRequested,
    NodeReservationChanged,
    QuotaChecked,
    QuotaCheckFailed,
)

Hears = (
    FindCapacity
    | ClusterRegistered
    | NodePoolValidated
    | NodePoolDeleting
    | QuotaChecked
    | QuotaCheckFailed
    | CWNodeAssigned
    | CWNodeCordoned
    | CWNodeUncordoned
    | CWNodeDeleted
    | CWNodeRegistrationFailed
    | MachineAdded
    | MachineRepaired
    | MachineReclaimed
    | MachineReturned
    | NodePreemptionRequested
    | NodeReservationChanged
    | CapacityReclaimed
)
Says = CapacityChecked | CapacityCheckFailed | CapacityFound | CWInsufficientCapacity
