"""May the organisation have so many Nodes?"""

from nodepool.contract.commands import SetQuota
from nodepool.contract.events import (
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodePoolDeleted,
    CWNodePoolQuotaCheckFailed,
    CWNodeRegistrationFailed,
    CWOverQuota,
    GrantAcknowledged,
    NodePoolDeleting,
    NodePoolValidated,
    QuotaChecked,
    QuotaReleased,
    QuotaSet,
)

Hears = (
    SetQuota
    | NodePoolValidated
    | NodePoolDeleting
    | CWNodePoolDeleted
    | GrantAcknowledged
    | CWNodeAssigned
    | CWNodeDeleted
    | CWNodeRegistrationFailed
)
Says = QuotaSet | QuotaChecked | QuotaReleased | CWOverQuota | CWNodePoolQuotaCheckFailed
