"""Which machine joins, and which Node leaves?"""

from nodepool.contract import events as on
from nodepool.contract.commands_spot import ReclaimCapacity, ReturnCapacity

Decides = ReclaimCapacity | ReturnCapacity | on.CapacityChecked
"""The messages that lead to events at once; the others only change the state."""
Hears = (
    Decides
    | on.NodePoolValidated
    | on.NodePoolDeleting
    | on.CWNodePoolDeleted
    | on.QuotaChecked
    | on.QuotaCheckFailed
    | on.CapacityCheckFailed
    | on.CWNodeRegistered
    | on.CWNodeRegistrationFailed
    | on.NodeActivityChanged
    | on.NodeUpdated
    | on.NodeReservationChanged
    | on.NodeKept
    | on.CWNodeCordoned
    | on.CWNodeUncordoned
    | on.CWDrainNode
    | on.CWNodeDeleted
    | on.NodePreempted
    | on.PreemptionPending
    | on.MachineAdded
    | on.MachineRepaired
    | on.MachineWiped
    | on.MachineStateChanged
)
Says = (
    on.GrantAcknowledged
    | on.CapacityReclaimed
    | on.CapacityReclaimFailed
    | on.MachineReclaimed
    | on.MachineReturned
    | on.NodePreemptionRequested
    | on.NodePreemptionWithdrawn
    | on.AllocationFailed
    | on.AllocationRecovered
    | on.NodeRemovalCancelled
    | on.CWNodePoolScaledUp
    | on.CWNodeRequestQueued
    | on.CWNodeAssigned
    | on.CWNodePoolRemoveNodes
    | on.CWNodeDeletionRequestSuccess
    | on.CWNodePoolNodesRemoved
    | on.CWNodePoolScaledDown
    | on.CWNodeDeliverFail
    | on.CWNodePoolNodesRequestFailed
)
