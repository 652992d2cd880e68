"""How many Nodes would be right for a NodePool with `autoscaling: true`?"""

from nodepool.contract.events import (
    AutoscalingFailed,
    ClusterRegistered,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodePoolDeleted,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    NodeActivityChanged,
    NodePoolAutoscaled,
    NodePoolDeleting,
    NodePoolValidated,
    NodeReservationChanged,
    NodeUpdated,
    PodChanged,
    PodsWaitingReported,
    QuotaChecked,
    QuotaDeleted,
    QuotaReleased,
    QuotaSet,
)

LimitChanged = QuotaSet | QuotaDeleted | QuotaReleased | QuotaChecked
"""A limit, or what counts against it, may be other than it was."""

Hears = (
    NodePoolValidated
    | NodePoolDeleting
    | CWNodePoolDeleted
    | CWNodeAssigned
    | CWNodeRegistered
    | CWNodeRegistrationFailed
    | NodeUpdated
    | NodeActivityChanged
    | NodeReservationChanged
    | CWNodeDeleted
    | PodChanged
    | PodsWaitingReported
    | ClusterRegistered
    | LimitChanged
)
Says = NodePoolAutoscaled | AutoscalingFailed
