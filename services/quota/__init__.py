"""May the organisation have so many Nodes?"""

from nodepool.contract.commands import DeleteQuota, SetQuota
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
    NodeReservationChanged,
    QuotaChecked,
    QuotaCheckFailed,
    QuotaDeleted,
    QuotaReleased,
    QuotaSet,
)

Hears = (
    SetQuota
    | DeleteQuota
    | NodePoolValidated
    | NodePoolDeleting
    | CWNodePoolDeleted
    | GrantAcknowledged
    | CWNodeAssigned
    | CWNodeDeleted
    | CWNodeRegistrationFailed
    | NodeReservationChanged
)
Says = (
    QuotaSet
    | QuotaDeleted
    | QuotaChecked
    | QuotaCheckFailed
    | QuotaReleased
    | CWOverQuota
    | CWNodePoolQuotaCheckFailed
)
