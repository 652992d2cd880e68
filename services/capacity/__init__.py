"""Are there as many machines as are wanted, and where?"""

from nodepool.contract import events as on
from nodepool.contract.commands import FindCapacity

Hears = (
    FindCapacity
    | on.ClusterRegistered
    | on.NodePoolValidated
    | on.NodePoolDeleting
    | on.QuotaChecked
    | on.QuotaCheckFailed
    | on.CWNodeAssigned
    | on.CWNodeCordoned
    | on.CWNodeUncordoned
    | on.CWNodeDeleted
    | on.CWNodeRegistrationFailed
    | on.MachineAdded
    | on.MachineRepaired
    | on.MachineReclaimed
    | on.MachineReturned
    | on.NodePreemptionRequested
    | on.NodeReservationChanged
    | on.CapacityReclaimed
)
Says = on.CapacityChecked | on.CapacityCheckFailed | on.CapacityFound | on.CWInsufficientCapacity
