"""May the organisation have so many Nodes?"""

from nodepool.contract import events as on
from nodepool.contract.commands import DeleteQuota, SetQuota

Hears = (
    SetQuota
    | DeleteQuota
    | on.NodePoolValidated
    | on.NodePoolDeleting
    | on.CWNodePoolDeleted
    | on.GrantAcknowledged
    | on.CWNodeAssigned
    | on.CWNodeDeleted
    | on.CWNodeRegistrationFailed
    | on.NodeReservationChanged
)
Says = (
    on.QuotaSet
    | on.QuotaDeleted
    | on.QuotaChecked
    | on.QuotaCheckFailed
    | on.QuotaReleased
    | on.CWOverQuota
    | on.CWNodePoolQuotaCheckFailed
)
