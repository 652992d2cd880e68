"""Where is each Node on its way?"""

from nodepool.contract.commands import CordonNode, DrainNode, RebootNode, ReserveNode, UncordonNode
from nodepool.contract.commands_slurm import LockNode, UnlockNode
from nodepool.contract.events import (
    AnswerAwaited,
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
    NodeKept,
    NodeLockChanged,
    NodeObserved,
    NodePoolValidated,
    NodePreempted,
    NodeRemovalCancelled,
    NodeRemovalRecovered,
    NodeTemplateChanged,
    NodeUpdated,
    NodeUpdateFailed,
    NodeVerified,
    PreemptionInProgress,
    PreemptionOverdue,
    PreemptionPending,
)

Hears = (
    NodePoolValidated
    | CWNodePoolDeleted
    | CWNodeAssigned
    | CWNodeDeletionRequestSuccess
    | NodeRemovalCancelled
    | MachineBooted
    | MachineFailed
    | NodeVerified
    | NodeConditionChanged
    | NodeObserved
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
    | NodeKept
    | NodeLockChanged
    | AnswerAwaited
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
