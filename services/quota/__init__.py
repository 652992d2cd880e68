"""May the organisation have this many Nodes?"""

from nodepool.contract import events as on
from nodepool.contract.commands import DeleteQuota, SetQuota

Decides = SetQuota | DeleteQuota
"""The messages that lead to events at once; the others only change the state."""
Hears = (
    Decides
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
