"""How many Nodes would be right for a NodePool with `autoscaling: true`?"""

from nodepool.contract import events as on

LimitChanged = on.QuotaSet | on.QuotaDeleted | on.QuotaReleased | on.QuotaChecked
"""A limit, or what counts against it, may be other than it was."""

Hears = (
    on.NodePoolValidated
    | on.NodePoolDeleting
    | on.CWNodePoolDeleted
    | on.CWNodeAssigned
    | on.CWNodeRegistered
    | on.CWNodeRegistrationFailed
    | on.NodeUpdated
    | on.NodeActivityChanged
    | on.NodeReservationChanged
    | on.CWNodeDeleted
    | on.PodChanged
    | on.PodsWaitingReported
    | on.ClusterRegistered
    | LimitChanged
)
Says = on.NodePoolAutoscaled | on.AutoscalingFailed
