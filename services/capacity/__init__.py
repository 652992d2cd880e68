"""Are there as many machines as are granted, and where?"""

from nodepool.contract import events as on
from nodepool.contract.commands import FindCapacity

Decides = FindCapacity | on.QuotaChecked
"""The messages that lead to events at once; the others only change the state."""
Hears = (
    Decides
    | on.ClusterRegistered
    | on.NodePoolValidated
    | on.NodePoolDeleting
    | on.QuotaCheckFailed
    | on.CWNodeAssigned
    | on.NodeUpdated
    | on.NodeActivityChanged
    | on.CWNodeCordoned
    | on.CWNodeUncordoned
    | on.CWNodeDeleted
    | on.CWNodeRegistrationFailed
    | on.MachineAdded
    | on.MachineRepaired
    | on.MachineWiped
    | on.MachineStateChanged
    | on.MachineReclaimed
    | on.MachineReturned
    | on.NodePreemptionRequested
    | on.PreemptionPending
    | on.NodePreempted
    | on.NodePreemptionWithdrawn
    | on.NodeReservationChanged
    | on.CapacityReclaimed
)
Says = on.CapacityChecked | on.CapacityCheckFailed | on.CapacityFound | on.CWInsufficientCapacity
