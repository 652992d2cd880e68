"""Which spot Node is taken back, and when?"""

from nodepool.contract.commands import PreemptNode
from nodepool.contract.commands_spot import AcknowledgePreemption
from nodepool.contract.events import (
    CWDrainNode,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodeDeletionRequestSuccess,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    DeletedForPreemption,
    NodeActivityChanged,
    NodeKept,
    NodePreempted,
    NodePreemptionRequested,
    PreemptionFailed,
    PreemptionInProgress,
    PreemptionOverdue,
    PreemptionPending,
)

Hears = (
    PreemptNode
    | AcknowledgePreemption
    | NodePreemptionRequested
    | CWNodeAssigned
    | CWNodeRegistered
    | CWNodeRegistrationFailed
    | CWNodeDeletionRequestSuccess
    | NodeActivityChanged
    | NodeKept
    | CWDrainNode
    | CWNodeDeleted
)
Says = (
    NodePreempted
    | PreemptionPending
    | PreemptionInProgress
    | PreemptionOverdue
    | PreemptionFailed
    | DeletedForPreemption
)
