"""What is the NodePool's status now?"""

from nodepool.contract.events import (
    AllocationFailed,
    AllocationRecovered,
    CapacityChecked,
    CapacityCheckFailed,
    CapacityReclaimed,
    ClusterRegistered,
    CWDrainNode,
    CWNodeAssigned,
    CWNodeCordoned,
    CWNodeDeleted,
    CWNodePoolDeleted,
    CWNodePoolNodesRemoved,
    CWNodePoolNodesRemoveError,
    CWNodePoolQuotaCheckFailed,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    CWNodeUncordoned,
    GrantAcknowledged,
    MachineAdded,
    MachineBroken,
    MachineReclaimed,
    MachineRepaired,
    MachineReturned,
    MachineStateChanged,
    NodeActivityChanged,
    NodeConditionChanged,
    NodeConditionReported,
    NodePoolDeleting,
    NodePoolValidated,
    NodeRemovalRecovered,
    NodeReportRequested,
    NodeReservationChanged,
    NodeTemplateChanged,
    NodeUpdated,
    QuotaChecked,
    QuotaDeleted,
    QuotaReleased,
    QuotaSet,
)

CheckFailed = (
    CWNodePoolQuotaCheckFailed | CapacityCheckFailed | AllocationFailed | CWNodePoolNodesRemoveError
)
"""A condition of a NodePool could not be determined."""
Recovered = AllocationRecovered | NodeRemovalRecovered
"""What could not be determined can be determined again."""
NodeChanged = (
    CWNodeRegistered | NodeUpdated | NodeActivityChanged | CWDrainNode | NodeReportRequested
)
"""A Node of a NodePool is other than it was."""
CordonChanged = CWNodeCordoned | CWNodeUncordoned
"""A Node is cordoned for a cause other than its removal, or no longer."""
Reported = NodeConditionChanged | NodeConditionReported
"""A condition of a Node changed, as its machine or its cluster of Kubernetes reports it."""
NodeLeft = CWNodeDeleted | CWNodeRegistrationFailed
"""A Node is no longer part of its NodePool."""
QuotaCounted = QuotaSet | QuotaDeleted | QuotaChecked | QuotaReleased
"""A limit, or what counts against it, may be other than it was."""
MachineReported = (
    MachineStateChanged
    | MachineAdded
    | MachineBroken
    | MachineRepaired
    | MachineReclaimed
    | MachineReturned
)
"""A machine that is no Node, or may be none, is other than it was."""

Hears = (
    NodePoolValidated
    | NodePoolDeleting
    | CWNodePoolDeleted
    | QuotaCounted
    | GrantAcknowledged
    | CapacityChecked
    | CheckFailed
    | Recovered
    | CWNodeAssigned
    | NodeTemplateChanged
    | NodeChanged
    | NodeReservationChanged
    | CordonChanged
    | Reported
    | NodeLeft
    | CWNodePoolNodesRemoved
    | MachineReported
    | CapacityReclaimed
    | ClusterRegistered
)
