"""Where is each Node on its way?"""

from nodepool.contract import events as on
from nodepool.contract.commands import CordonNode, DrainNode, RebootNode, ReserveNode, UncordonNode
from nodepool.contract.commands_slurm import LockNode, UnlockNode

Observed = on.NodeObserved | on.NodeReported
"""What runs on a Node and how it is marked, as its machine or its cluster of Kubernetes says."""
ConditionObserved = on.NodeConditionChanged | on.NodeConditionReported
"""A condition of a Node changed, as its machine or its cluster of Kubernetes says."""
HealthChange = (
    ConditionObserved
    | on.NodeActionRequested
    | on.CWNodeCordoned
    | on.CWNodeUncordoned
    | on.NodeSilent
    | on.NodeReportRequested
)
"""The messages that change nothing of a Node but its health."""
Decides = (
    on.CWNodeDeletionRequestSuccess
    | on.NodeRemovalCancelled
    | on.MachineBooted
    | on.MachineFailed
    | on.NodeVerified
    | ConditionObserved
    | Observed
    | on.NodePreempted
    | on.PreemptionPending
    | on.PreemptionInProgress
    | CordonNode
    | UncordonNode
    | DrainNode
    | RebootNode
    | ReserveNode
    | LockNode
    | UnlockNode
)
"""The messages that lead to events at once; the others only change the state."""
Hears = (
    Decides | on.ClusterRegistered | on.NodePoolValidated | on.CWNodePoolDeleted | on.CWNodeAssigned
)
Says = (
    on.NodeTemplateChanged
    | on.NodeUpdated
    | on.NodeActivityChanged
    | on.NodeReservationChanged
    | on.NodeKept
    | on.NodeLockChanged
    | on.AnswerAwaited
    | on.NodeSilent
    | on.NodeReportRequested
    | on.CWNodeRegistered
    | on.CWNodeRegistrationFailed
    | on.CWRegistrationFailedEvent
    | on.CWNodeCordoned
    | on.CWNodeUncordoned
    | on.NodeActionRequested
    | on.CWDrainNode
    | on.CWNodeDeleted
    | on.CWNodePoolMetadata
    | on.CWNodePoolNodesRemoveError
    | on.NodeRemovalRecovered
    | on.NodeUpdateFailed
)
