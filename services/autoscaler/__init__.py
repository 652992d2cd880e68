"""How many Nodes would be right for a NodePool with `autoscaling: true`?"""

from nodepool.contract.events import (
    AutoscalingFailed,
    CWNodeDeleted,
    CWNodePoolDeleted,
    CWNodeRegistered,
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
    | CWNodeRegistered
    | NodeUpdated
    | NodeActivityChanged
    | CWNodeDeleted
    | PodChanged
)
Says = NodePoolAutoscaled | AutoscalingFailed
