"""Where is each Node on its way?"""

from nodepool.contract import events as on
from nodepool.contract.commands import CordonNode, DrainNode, RebootNode, ReserveNode, UncordonNode
from nodepool.contract.commands_slurm import LockNode, UnlockNode
from nodepool.contract.observations import ConditionSeen, NodeSeen

Decides = (
    on.CWNodeDeletionRequestSuccess
    | on.NodeRemovalCancelled
    | on.MachineBooted
    | on.MachineFailed
    | on.NodeVerified
    | ConditionSeen
    | NodeSeen
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
    | on.NodeAnswered
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
