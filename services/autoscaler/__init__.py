"""How many Nodes would be right for a NodePool with `autoscaling: true`?"""

from nodepool.contract import events as on

LimitChanged = on.QuotaSet | on.QuotaDeleted | on.QuotaReleased | on.QuotaChecked
"""A limit, or the number of Nodes that count against it, may have changed."""
NodeChanged = (
    on.CWNodeAssigned
    | on.CWNodeRegistered
    | on.CWNodeRegistrationFailed
    | on.NodeUpdated
    | on.NodeActivityChanged
    | on.NodeReservationChanged
    | on.CWNodeDeleted
)
"""A Node came, changed or left."""

Hears = (
    on.NodePoolValidated
    | on.NodePoolDeleting
    | on.CWNodePoolDeleted
    | NodeChanged
    | on.PodChanged
    | on.PodsWaitingReported
    | on.ClusterRegistered
    | LimitChanged
)
Says = on.NodePoolAutoscaled | on.AutoscalingFailed
