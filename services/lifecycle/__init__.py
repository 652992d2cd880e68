"""Where is each Node on its way?"""

from nodepool.contract.commands import LockNode, UnlockNode
from nodepool.contract.events import (
    AnswerAwaited,
    CWDrainNode,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodeDeletionRequestSuccess,
    CWNodePoolDeleted,
    CWNodePoolMetadata,
    CWNodePoolNodesRemoveError,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    MachineBooted,
    MachineFailed,
    NodeActivityChanged,
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
    | NodeObserved
    | NodePreempted
    | PreemptionPending
    | PreemptionInProgress
    | PreemptionOverdue
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
    | CWDrainNode
    | CWNodeDeleted
    | CWNodePoolMetadata
    | CWNodePoolNodesRemoveError
    | NodeRemovalRecovered
    | NodeUpdateFailed
)
