"""Which spot Node is taken back, and when?"""

from nodepool.contract.commands import PreemptNode
from nodepool.contract.events import (
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodeDeletionRequestSuccess,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    DeletedForPreemption,
    NodeKept,
    NodePreempted,
    PreemptionFailed,
    PreemptionInProgress,
    PreemptionOverdue,
    PreemptionPending,
)

Hears = (
    PreemptNode
    | CWNodeAssigned
    | CWNodeRegistered
    | CWNodeRegistrationFailed
    | CWNodeDeletionRequestSuccess
    | NodeKept
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
