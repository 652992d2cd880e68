"""Which spot Node is taken back, and when?"""

from nodepool.contract.commands import PreemptNode
from nodepool.contract.events import (
    CWNodeDeleted,
    CWNodeRegistered,
    DeletedForPreemption,
    NodePreempted,
    PreemptionInProgress,
    PreemptionOverdue,
    PreemptionPending,
)

Hears = PreemptNode | CWNodeRegistered | CWNodeDeleted
Says = (
    NodePreempted
    | PreemptionPending
    | PreemptionInProgress
    | PreemptionOverdue
    | DeletedForPreemption
)
