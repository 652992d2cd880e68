"""Which spot Node is taken back, and when?"""

from nodepool.contract.commands import PreemptNode
from nodepool.contract.events import (
    CWNodeDeleted,
    CWNodeRegistered,
    DeletedForPreemption,
    PreemptionInProgress,
    PreemptionOverdue,
    PreemptionPending,
)

Hears = PreemptNode | CWNodeRegistered | CWNodeDeleted
Says = PreemptionPending | PreemptionInProgress | PreemptionOverdue | DeletedForPreemption
