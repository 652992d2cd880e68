"""Is this NodePool valid?"""

from nodepool.contract import events as on
from nodepool.contract.commands import (
    ApplyNodePool,
    DeleteNodePool,
    RegisterCluster,
    ScaleNodePool,
)

Hears = (
    RegisterCluster
    | ApplyNodePool
    | ScaleNodePool
    | DeleteNodePool
    | on.NodePoolAutoscaled
    | on.CWNodePoolNodesRemoved
)
Says = (
    on.ClusterRegistered
    | on.NodePoolValidated
    | on.NodePoolDeleting
    | on.NodePoolUpdateFailed
    | on.CWNodePoolCreated
    | on.CWNodePoolDeleted
    | on.CWInvalidInstanceType
    | on.CWInstanceTypeNotInZone
)
