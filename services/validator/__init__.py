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
    NodePoolDeleting,
    NodePoolValidated,
)

Hears = RegisterCluster | ApplyNodePool | ScaleNodePool | DeleteNodePool | CWNodePoolNodesRemoved
Says = (
    ClusterRegistered
    | NodePoolValidated
    | NodePoolDeleting
    | CWNodePoolCreated
    | CWNodePoolDeleted
    | CWInvalidInstanceType
    | CWInstanceTypeNotInZone
)
