"""Where is each Node on its way?"""

from nodepool.contract.commands import CordonNode, DrainNode, RebootNode, ReserveNode, UncordonNode
from nodepool.contract.commands_slurm import LockNode, UnlockNode
from nodepool.contract.events import (
    AnswerAwaited,
    ClusterRegistered,
    CWDrainNode,
    CWNodeAssigned,
    CWNodeCordoned,
    CWNodeDeleted,
    CWNodeDeletionRequestSuccess,
    CWNodePoolDeleted,
    CWNodePoolMetadata,
    CWNodePoolNodesRemoveError,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    CWNodeUncordoned,
    CWRegistrationFailedEvent,
    MachineBooted,
    MachineFailed,
    NodeActionRequested,
    NodeActivityChanged,
    NodeConditionChanged,
    NodeConditionReported,
    NodeKept,
    NodeLockChanged,
    NodeObserved,
    NodePoolValidated,
    NodePreempted,
    NodeRemovalCancelled,
    NodeRemovalRecovered,
    NodeReported,
    NodeReportRequested,
    NodeReservationChanged,
    NodeSilent,
    NodeTemplateChanged,
    NodeUpdated,
    NodeUpdateFailed,
    NodeVerified,
    PreemptionInProgress,
    PreemptionOverdue,
    PreemptionPending,
)

Observed = NodeObserved | NodeReported
"""What runs on a Node and how it is marked, as its machine or its cluster of Kubernetes says."""
ConditionObserved = NodeConditionChanged | NodeConditionReported
"""A condition of a Node changed, as its machine or its cluster of Kubernetes says."""
HealthChange = (
    ConditionObserved
    | NodeActionRequested
    | CWNodeCordoned
    | CWNodeUncordoned
    | NodeSilent
    | NodeReportRequested
)
"""The messages that change nothing of a Node but its health."""
Hears = (
    ClusterRegistered
    | NodePoolValidated
    | CWNodePoolDeleted
    | CWNodeAssigned
    | CWNodeDeletionRequestSuccess
    | NodeRemovalCancelled
    | MachineBooted
    | MachineFailed
    | NodeVerified
    | ConditionObserved
    | Observed
    | NodePreempted
    | PreemptionPending
    | PreemptionInProgress
    | PreemptionOverdue
    | CordonNode
    | UncordonNode
    | DrainNode
    | RebootNode
    | ReserveNode
    | LockNode
    | UnlockNode
)
Says = (
    NodeTemplateChanged
    | NodeUpdated
    | NodeActivityChanged
    | NodeReservationChanged
    | NodeKept
    | NodeLockChanged
    | AnswerAwaited
    | NodeSilent
    | NodeReportRequested
    | CWNodeRegistered
    | CWNodeRegistrationFailed
    | CWRegistrationFailedEvent
    | CWNodeCordoned
    | CWNodeUncordoned
    | NodeActionRequested
    | CWDrainNode
    | CWNodeDeleted
    | CWNodePoolMetadata
    | CWNodePoolNodesRemoveError
    | NodeRemovalRecovered
    | NodeUpdateFailed
)
