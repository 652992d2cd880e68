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
    NodeUpdated,
    PodChanged,
    PodsWaitingReported,
)

Hears = (
    NodePoolValidated
    | NodePoolDeleting
    | CWNodePoolDeleted
    | CWNodeAssigned
    | CWNodeRegistered
    | CWNodeRegistrationFailed
    | NodeUpdated
    | NodeActivityChanged
    | CWNodeDeleted
    | PodChanged
    | PodsWaitingReported
    | ClusterRegistered
)
Says = NodePoolAutoscaled | AutoscalingFailed
