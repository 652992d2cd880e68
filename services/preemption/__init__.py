"""Which spot Node is taken back, and when?"""

from nodepool.contract import events as on
from nodepool.contract.commands import PreemptNode
from nodepool.contract.commands_spot import AcknowledgePreemption

Decides = PreemptNode | AcknowledgePreemption | on.CWNodeDeleted
"""The messages that lead to events at once; the others only change the state."""
Hears = (
    Decides
    | on.NodePreemptionRequested
    | on.CWNodeAssigned
    | on.CWNodeRegistered
    | on.CWNodeRegistrationFailed
    | on.CWNodeDeletionRequestSuccess
    | on.NodeActivityChanged
    | on.NodeKept
    | on.NodePreemptionWithdrawn
    | on.CWDrainNode
    | on.NodePoolDeleting
    | on.CWNodePoolDeleted
)
Says = (
    on.NodePreempted
    | on.PreemptionPending
    | on.PreemptionInProgress
    | on.PreemptionFailed
    | on.DeletedForPreemption
)
