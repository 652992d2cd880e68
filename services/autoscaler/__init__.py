"""How many Nodes would be right for a NodePool with `autoscaling: true`?"""

from nodepool.contract.events import (
    AutoscalingFailed,
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
)
Says = NodePoolAutoscaled | AutoscalingFailed
