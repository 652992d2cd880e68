"""What is the NodePool's status now?

`changes` folds each event into the read model, and `projection` shows it. `figures` has a state and
an `evolve` of its own, for metrics: it sees an event, and the read model before and after it. The
read model knows nothing of figures. `state` joins the two.
"""

from nodepool.contract import events as on
from nodepool.contract.observations import ConditionSeen

CheckFailed = (
    on.CWNodePoolQuotaCheckFailed
    | on.CapacityCheckFailed
    | on.AllocationFailed
    | on.CWNodePoolNodesRemoveError
    | on.NodeUpdateFailed
)
"""A condition of a NodePool could not be determined."""
Recovered = on.AllocationRecovered | on.NodeRemovalRecovered
"""A condition of a NodePool that could not be determined can be determined again."""
NodeChanged = (
    on.CWNodeRegistered
    | on.NodeUpdated
    | on.NodeActivityChanged
    | on.CWDrainNode
    | on.AnswerAwaited
    | on.NodeAnswered
    | on.NodeSilent
    | on.NodeReportRequested
    | on.NodePreemptionRequested
    | on.NodePreemptionWithdrawn
    | on.NodePreempted
    | on.PreemptionPending
)
"""A Node of a NodePool has changed."""
CordonChanged = on.CWNodeCordoned | on.CWNodeUncordoned
"""A cordon of a Node for a cause other than its removal has begun, changed or ended."""
NodeLeft = on.CWNodeDeleted | on.CWNodeRegistrationFailed
"""A Node is no longer part of its NodePool."""
QuotaCounted = on.QuotaSet | on.QuotaDeleted | on.QuotaChecked | on.QuotaReleased
"""A limit, or the number of Nodes that count against it, may have changed."""
MachineReported = (
    on.MachineStateChanged
    | on.MachineAdded
    | on.MachineBroken
    | on.MachineRepaired
    | on.MachineWiped
    | on.MachineReclaimed
    | on.MachineReturned
)
"""A machine has changed that is not a Node, or may not be a Node."""
RealMachineSeen = (
    on.MachineDeclared
    | on.MachineUndeclared
    | on.ControllerReported
    | on.PowerRequested
    | on.PowerAnswered
    | on.PowerOverdue
    | on.MachineMaintenanceChanged
    | on.MachineConditionChanged
)
"""Events that only real machines have."""

Hears = (
    on.NodePoolValidated
    | on.NodePoolDeleting
    | on.NodePoolUpdateFailed
    | on.CWNodePoolDeleted
    | QuotaCounted
    | on.GrantAcknowledged
    | on.CapacityChecked
    | CheckFailed
    | Recovered
    | on.CWNodeAssigned
    | on.NodeTemplateChanged
    | NodeChanged
    | on.NodeReservationChanged
    | CordonChanged
    | ConditionSeen
    | NodeLeft
    | on.CWNodePoolNodesRemoved
    | MachineReported
    | RealMachineSeen
    | on.CapacityReclaimed
    | on.ClusterRegistered
)
