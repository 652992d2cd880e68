"""Is this NodePool valid?"""

from nodepool.contract.commands import (
    ApplyNodePool,
    DeleteNodePool,
    RegisterCluster,
    ScaleNodePool,
)
from nodepool.contract.events import (
    ClusterRegistered,
    CWInstanceTypeNotInZone,
    CWInvalidInstanceType,
    CWNodePoolCreated,
    CWNodePoolDeleted,
    CWNodePoolNodesRemoved,
    NodePoolAutoscaled,
    NodePoolDeleting,
    NodePoolUpdateFailed,
    NodePoolValidated,
)

Hears = (
    RegisterCluster
    | ApplyNodePool
    | ScaleNodePool
    | DeleteNodePool
    | NodePoolAutoscaled
    | CWNodePoolNodesRemoved
)
Says = (
    ClusterRegistered
    | NodePoolValidated
    | NodePoolDeleting
    | NodePoolUpdateFailed
    | CWNodePoolCreated
    | CWNodePoolDeleted
    | CWInvalidInstanceType
    | CWInstanceTypeNotInZone
)
