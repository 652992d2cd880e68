"""The objects of the read model: what is kept of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from immutables import Map

from aggregator.profiles import Profiles
from nodepool.contract.commands import MachineFault
from nodepool.contract.conditions import AtTarget, Condition, Validated
from nodepool.contract.events import SpecFault
from nodepool.contract.keys import LedgerKey, PoolKey, ledger_key, pool_path
from nodepool.contract.model import (
    ConditionStatus,
    NodeAction,
    NodePhase,
    NodePoolSpec,
    RemovalReason,
    Taint,
)
from nodepool.contract.node_states import MachineState
from nodepool.contract.pods import BlockingPod
from nodepool.state.inventory import Machine
from nodepool.state.racks import Counts


@dataclass(frozen=True, slots=True)
class Autoscaled:
    """Why the autoscaler has set the target of a NodePool, when, and where in the log."""

    message: str
    since: datetime
    position: int


class Progressing(NamedTuple):
    """The type of a condition that is there only while it is True, and since when it is."""

    type: str
    since: datetime


@dataclass(frozen=True, slots=True)
class NodePoolObject:
    """A NodePool and its status.

    key, uid, zone, created: what never changes of it.
    generation, labels, annotations, spec: the desired state.
    version: the position of its last change.
    deleting: since when it is being deleted; None for one that stays.
    in_progress: how many Nodes are assigned to it and have not joined its cluster yet.
    current: how many of its Nodes have joined, without the Nodes that are reserved for the control
        plane.
    granted: how many Nodes its quota allows it.
    domains: how many of its current Nodes are of which NVLink domain, if its type comes in racks.
    fault: what an invalid spec is wrong about.
    conditions: its conditions by type; `aggregator.status` has the messages that name numbers.
    accepted: the deprecated condition Accepted.
    progressing: which of Reconciling and Stalled it shows, and since when; None for neither.
    autoscaled: where its target is the autoscaler's; None where a command set it.
    spot_awaited: how many spot Nodes are being preempted for it.
    queue_position, machines_needed: the position of its first Node that waits for a machine, and
        how many machines have to become free until it has all; 0 where there are machines enough.
    missing: how many Nodes it lacked when Capacity was evaluated last; 0 for none.
    specified: when its newest generation was stored.
    observed: the newest generation that every check has ever evaluated; 0 for none.
    progressed: when its Nodes, its grant, or what Capacity says changed last; None for never.
    profiles: how many of its Nodes were booted with which profile.
    away: how many of its Nodes are reserved for the control plane.
    has_lent: whether any of its Nodes was ever reserved for the control plane.
    allocation_error: why the allocator could not decide on its Nodes; empty after a success.
    removal_error: why its Nodes could not be removed; empty after a success.
    busy: while it loses Nodes, those that are active or leave; none in the state, see `projection`.
    """

    key: PoolKey
    uid: str
    zone: str
    created: datetime
    generation: int
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    spec: NodePoolSpec
    version: int
    deleting: datetime | None = None
    in_progress: int = 0
    current: int = 0
    granted: int = 0
    domains: Counts = Map()
    fault: SpecFault = ""
    conditions: Map[str, Condition] = Map()
    accepted: Condition | None = None
    progressing: Progressing | None = None
    autoscaled: Autoscaled | None = None
    spot_awaited: int = 0
    queue_position: int = 0
    machines_needed: int = 0
    missing: int = 0
    specified: datetime | None = None
    observed: int = 0
    progressed: datetime | None = None
    profiles: Profiles = Map()
    away: int = 0
    has_lent: bool = False
    allocation_error: str = ""
    removal_error: str = ""
    busy: "tuple[NodeObject, ...]" = ()

    @property
    def ledger(self) -> LedgerKey:
        """Return the limit that its Nodes count against."""
        org, _, _ = pool_path(self.key)
        return ledger_key(org, self.zone, self.spec.instance_type)

    @property
    def held(self) -> int:
        """Return how many Nodes count against its grant: current Nodes and Nodes in progress."""
        return self.current + self.in_progress

    @property
    def is_invalid(self) -> bool:
        """Whether its spec is invalid, so that it is granted nothing beyond its Nodes."""
        condition = self.conditions.get(Validated.__name__)
        return condition is not None and condition.reason == Validated.INVALID

    @property
    def is_checked(self) -> bool:
        """Return whether quota and capacity are checked: it is valid and not being deleted."""
        condition = self.conditions.get(Validated.__name__)
        is_valid = condition is not None and condition.reason == Validated.VALID
        return is_valid and self.deleting is None

    @property
    def grant(self) -> int:
        """How many Nodes its grant is: what its quota allows it, and no fewer than it has."""
        return max(self.granted, self.held)

    @property
    def queued(self) -> int:
        """Return how many Nodes are granted and have no machine yet; a deletion awaits no Node."""
        return 0 if self.deleting is not None else self.grant - self.held

    @property
    def at_target(self) -> AtTarget:
        """How the Nodes that have joined compare with the target."""
        if self.deleting is not None:
            return AtTarget.PENDING_DELETE
        target = self.spec.target
        if self.current == target:
            return AtTarget.TARGET_MET
        return AtTarget.OVER_TARGET if self.current > target else AtTarget.UNDER_TARGET

    @property
    def is_shrinking(self) -> bool:
        """Whether it loses Nodes, so that its status names those that it waits for."""
        return self.at_target in (AtTarget.PENDING_DELETE, AtTarget.OVER_TARGET)


class ReportedCondition(NamedTuple):
    """A condition of a Node as it was reported, and since when it has its status."""

    type: str
    status: ConditionStatus
    reason: str
    message: str
    since: datetime


@dataclass(frozen=True, slots=True)
class NodeObject:
    """A Node of a NodePool.

    name, zone, instance_type: those of its machine.
    pool: the NodePool.
    assignment: the number of the machine's assignment to it.
    created: when it was assigned.
    version: the position of its last change.
    phase: where it is between its assignment and its deletion.
    unschedulable, cordon: whether it is cordoned, and the number of its last cordon.
    lock: the number of the lock that a Slurm job has on it, or waits for; 0 without one.
    forced: whether its drain waits for no Pod.
    labels, annotations, taints: those of the Node in its cluster; none before it has joined.
    template: the revision of the template that it has those of as well; 0 for none.
    registered: when it joined its cluster; None before.
    active, work, active_since: whether anything runs on it, what, and since when.
    blocking, blocking_count: the first of the Pods that a drain waits for, and how many there are.
    removal, removal_since: why it is to leave, and since when; None for a Node that stays.
    preempted_since: when it was shown as preempted, which may be later; None for other Nodes.
    action, action_since: the action that it waits for or that is under way, and when the wait, or
        the action, began.
    boot: how often it was rebooted.
    reported: the conditions that were reported of it, by type.
    profile: the node configuration that it was booted with; empty where that is not known.
    request: the number of the question how its condition Ready is; 0 where that is answered.
    usable: False while the Node is reserved for the control plane.
    """

    name: str
    zone: str
    pool: PoolKey
    instance_type: str
    assignment: int
    created: datetime
    version: int
    phase: NodePhase = NodePhase.BOOTING
    unschedulable: bool = False
    cordon: int = 0
    lock: int = 0
    forced: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    template: int = 0
    registered: datetime | None = None
    active: bool = False
    active_since: datetime | None = None
    work: str = ""
    blocking: tuple[BlockingPod, ...] = ()
    blocking_count: int = 0
    removal: RemovalReason | None = None
    removal_since: datetime | None = None
    preempted_since: datetime | None = None
    action: NodeAction | None = None
    action_since: datetime | None = None
    boot: int = 0
    reported: tuple[ReportedCondition, ...] = ()
    profile: str = ""
    request: int = 0
    usable: bool = True

    @property
    def is_busy(self) -> bool:
        """Whether anything runs on it, or it is to leave."""
        return self.active or self.removal is not None

    @property
    def action_condition(self) -> str:
        """Return the type of the condition that names its action; empty without an action."""
        if self.action is None:
            return ""
        outside = self.phase in (NodePhase.REBOOTING, NodePhase.VERIFYING)
        return "PhaseState" if outside else "PendingPhaseState"


@dataclass(frozen=True, slots=True)
class QuotaObject:
    """A limit, and how many Nodes count against it.

    org, zone, instance_type: what is limited.
    limit: the most Nodes; None where it was never set.
    used: how many Nodes count against it.
    version: the position of its last change.
    """

    org: str
    zone: str
    instance_type: str
    limit: int | None
    used: int
    version: int


@dataclass(frozen=True, slots=True)
class CapacityObject:
    """The machines of one type in one zone.

    version: the position of its last change.
    free, assigned, triage: how many are free, are Nodes, and are out of service.
    reclaimed: how many an operator holds back; of `to_reclaim` that are to be.
    """

    zone: str
    instance_type: str
    version: int
    free: int = 0
    assigned: int = 0
    triage: int = 0
    reclaimed: int = 0
    to_reclaim: int = 0


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults of a simulated machine.

    fault: how it fails the next `times` times that it boots.
    failing: how it fails in this stay; empty where it does not.
    """

    fault: MachineFault
    times: int = 0
    failing: str = ""


@dataclass(frozen=True, slots=True)
class MachineStatus:
    """The status of a machine apart from its record in the inventory.

    version: the position of its last change.
    added: when it was added.
    cause, failure: why it is in triage, as a sentence and in one word; empty for one that is not.
    state: where it is while it is out of service.
    faults: those of a simulated machine; None for one that works.
    """

    version: int
    added: datetime
    cause: str = ""
    failure: str = ""
    state: MachineState = MachineState.TRIAGE
    faults: Faults | None = None


@dataclass(frozen=True, slots=True)
class MachineObject:
    """A machine, free, assigned, in triage or reclaimed, with its status."""

    machine: Machine
    status: MachineStatus

    @property
    def version(self) -> int:
        """The position of its last change."""
        return self.status.version


@dataclass(frozen=True, slots=True)
class ClusterObject:
    """A cluster.

    org, cluster, zone: its organisation, its name and its zone.
    registered: when it was registered first.
    version: the position of its last change.
    kubernetes: whether an agent connects it to Kubernetes.
    kubernetes_uid: which one; empty where that is not known.
    """

    org: str
    cluster: str
    zone: str
    registered: datetime
    version: int
    kubernetes: bool = False
    kubernetes_uid: str = ""


AnyObject = (
    NodePoolObject | NodeObject | QuotaObject | CapacityObject | MachineObject | ClusterObject
)
