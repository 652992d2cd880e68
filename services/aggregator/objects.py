"""The objects of the read model, and the fields that are kept of each object."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

from immutables import Map

from aggregator.real_machines import RealMachine
from nodepool.contract.commands import MachineFault
from nodepool.contract.conditions import AtTarget, Condition, ConditionStatus, Validated
from nodepool.contract.cordons import CORDON_REASON, split_causes
from nodepool.contract.events import SpecFault
from nodepool.contract.health import READY, cordon_cause, is_problem
from nodepool.contract.keys import LedgerKey, PoolKey, ledger_key, pool_path
from nodepool.contract.model import (
    NodeAction,
    NodePhase,
    NodePoolSpec,
    RemovalReason,
    Taint,
)
from nodepool.contract.node_states import MachineState
from nodepool.contract.phases import RESTARTING
from nodepool.contract.pods import BlockingPod
from nodepool.contract.reboots import RebootedFor
from nodepool.placement.machines import Machine
from nodepool.placement.racks import Counts, domain_of

_NOT_READY: Final = cordon_cause(READY)


@dataclass(frozen=True, slots=True)
class Autoscaled:
    """Why and when the autoscaler set the target of a NodePool, and the position in the log."""

    message: str
    since: datetime
    position: int


class Progressing(NamedTuple):
    """The type of a condition that exists only while it is True, and since when it is True."""

    type: str
    since: datetime


@dataclass(frozen=True, slots=True)
class NodePoolObject:
    """A NodePool and its status.

    key, uid, zone, created: the fields that never change.
    generation, labels, annotations, spec: the desired state.
    version: the position of its last change.
    deleting: since when it is being deleted; None while it stays.
    in_progress: how many Nodes are assigned to it and have not joined its cluster yet.
    current: how many of its Nodes have joined, without the Nodes that are reserved for the control
        plane.
    granted: how many Nodes its quota allows.
    beyond: how many Nodes the control plane gave back beyond its grant.
    is_capped: whether it scales down to its grant because of them, as its target does not fit.
    domains: the number of its current Nodes in each NVLink domain, if its type comes in racks.
    lost: the domains of its machines that went to triage from a rack and are not its Nodes again,
        for as long as the NodePool has the rack.
    fault: why its spec is invalid.
    conditions: its conditions by type; `aggregator.status` adds the messages that contain numbers.
    accepted: the deprecated condition Accepted.
    progressing: which of Reconciling and Stalled it shows, and since when; None for neither.
    autoscaled: why the autoscaler set its target; None if a command set its target.
    spot_awaited: how many spot Nodes are being preempted for it.
    queue_position: the position in the queue of its first Node that waits for a machine; 0 if there
        are enough machines.
    machines_needed: how many machines must become free until it has all its Nodes; 0 if there are
        enough machines.
    missing: how many Nodes it lacked when Capacity was last evaluated; 0 for none.
    specified: when its newest generation was stored.
    targeted: when its target changed last.
    checked: when a check last decided on its newest generation for the first time, or after a
        failure, so that the next check is due.
    observed: the newest generation that every check has evaluated; 0 for none.
    progressed: when its Nodes, its grant, or its Capacity last changed; None for never.
    profiles: how many of its Nodes were booted with each profile.
    away: how many of its Nodes are reserved for the control plane.
    has_lent: whether any of its Nodes was ever reserved for the control plane.
    allocation_error: why the allocator could not decide on its Nodes; empty after a success.
    node_error: why its Nodes could not be updated or removed; empty after a success.
    deletion_error: why its deletion could not be ended; empty before a failure.
    busy: while it loses Nodes, its Nodes that boot, are active or leave; only `projection` fills
        this.
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
    beyond: int = 0
    is_capped: bool = False
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
    targeted: datetime | None = None
    checked: datetime | None = None
    observed: int = 0
    progressed: datetime | None = None
    profiles: Map[str, int] = Map()
    away: int = 0
    has_lent: bool = False
    allocation_error: str = ""
    node_error: str = ""
    deletion_error: str = ""
    lost: Map[str, str] = Map()
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
    def present(self) -> int:
        """Return how many Nodes it has, including the Nodes reserved for the control plane."""
        return self.held + self.away

    @property
    def is_invalid(self) -> bool:
        """Return whether its spec is invalid, so that quota grants it no more Nodes than it has."""
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
        """Return the larger of its grant and its Nodes, including the Nodes beyond the grant."""
        return max(self.granted, self.held)

    @property
    def kept(self) -> int:
        """Return the larger of its grant and its Nodes.

        The Nodes that the control plane gave back beyond the grant do not count.
        """
        return max(self.granted, self.held - self.beyond)

    @property
    def wanted(self) -> int:
        """Return how many Nodes it wants to keep.

        That is its target, or less if it has more Nodes than its grant.
        """
        has_more = self.is_capped and self.kept < self.held
        return min(self.spec.target, self.kept) if has_more else self.spec.target

    @property
    def is_granted(self) -> bool:
        """Return whether its quota allows its whole target."""
        return self.spec.target <= self.granted

    @property
    def queued(self) -> int:
        """Return how many Nodes are granted and have no machine yet; a deletion awaits no Node.

        Before quota has judged a lower target, the grant may be larger than the target.
        """
        awaited = min(self.granted, self.spec.target) - self.held
        return 0 if self.deleting is not None else max(0, awaited)

    @property
    def at_target(self) -> AtTarget:
        """Return how the Nodes that have joined compare with the target, or the Nodes to keep.

        `aggregator.verdicts` shows InternalError instead while an error stands. While the NodePool
        is being deleted, NodesRemoved shows the error, and AtTarget stays PendingDelete.
        """
        if self.deleting is not None:
            return AtTarget.PENDING_DELETE
        if self.current > self.wanted:
            return AtTarget.OVER_TARGET
        is_met = self.current == self.spec.target
        return AtTarget.TARGET_MET if is_met else AtTarget.UNDER_TARGET

    @property
    def is_shrinking(self) -> bool:
        """Return whether it loses Nodes, so that its status names the Nodes that it waits for."""
        return self.at_target in (AtTarget.PENDING_DELETE, AtTarget.OVER_TARGET)


class ReportedCondition(NamedTuple):
    """A reported condition of a Node, and since when the condition has its status."""

    type: str
    status: ConditionStatus
    reason: str
    message: str
    since: datetime


@dataclass(frozen=True, slots=True)
class NodeObject:
    """A Node of a NodePool.

    name, zone, instance_type: the name, zone and instance type of its machine.
    pool: its NodePool.
    assignment: the number of the assignment of its machine to the NodePool.
    created: when it was assigned.
    version: the position of its last change.
    phase: where it is between its assignment and its deletion.
    unschedulable: whether it is cordoned.
    cordon: the number of its last cordon.
    cordoned_since: when its cordon, a cause of it, or whether it answers changed last; None if
        unknown.
    lock: the number of the lock that a Slurm job has on it, or waits for; 0 without one.
    forced: whether its drain waits for no Pod.
    labels, annotations, taints: its own in its cluster; before it has joined, only the labels of
        its machine.
    template: the revision of the template with its other labels, annotations and taints; 0 if it
        has no template.
    registered: when it joined its cluster; None before.
    active, work, active_since: whether workloads run on it, which workloads, and since when.
    blocking: the first of the Pods that a drain waits for.
    blocking_count: the number of all Pods that a drain waits for.
    removal, removal_since: why it will leave, and since when; None for a Node that stays.
    preempted_since: when its preemption was announced or, without a timetable, when it was marked;
        None if it is not preempted.
    asked_since: since when it is to give way; None if it is not.
    warned: whether its preemption has begun, which the lifecycle service may still have to hear.
    progressed: when the lifecycle service last said anything about the Node while it leaves.
    answer_by: when its machine is given up unless it answers its cordon or drain; None if unknown.
    action: the action that it waits for, or that is under way.
    action_since: when this wait, or this action, began.
    boot: how often it was rebooted.
    rebooted_for: what it was rebooted for, with the end of each last reboot; none while it reboots.
    reported: the reported conditions, by type.
    profile: the node configuration that it was booted with; empty if unknown.
    request: the number of the unanswered `NodeReportRequested`; 0 if none is unanswered.
    silence_due: when the lifecycle service has to say next what follows from its silence; None if
        nothing follows yet, or another service has to answer first.
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
    asked_since: datetime | None = None
    warned: bool = False
    progressed: datetime | None = None
    answer_by: datetime | None = None
    action: NodeAction | None = None
    action_since: datetime | None = None
    boot: int = 0
    rebooted_for: tuple[RebootedFor, ...] = ()
    reported: tuple[ReportedCondition, ...] = ()
    profile: str = ""
    request: int = 0
    silence_due: datetime | None = None
    usable: bool = True
    cordoned_since: datetime | None = None

    @property
    def cordon_reason(self) -> str:
        """Return why it is cordoned; empty if it is not."""
        return self.annotations.get(CORDON_REASON, "")

    @property
    def is_registered(self) -> bool:
        """Return whether it has joined its cluster."""
        return self.registered is not None

    @property
    def is_busy(self) -> bool:
        """Return whether it boots, workloads run on it, or it will leave."""
        return not self.is_registered or self.active or self.is_leaving

    @property
    def is_silent(self) -> bool:
        """Return whether its machine, or its kubelet, does not answer."""
        return any(each.type == READY and is_problem(READY, each.status) for each in self.reported)

    @property
    def is_leaving(self) -> bool:
        """Return whether it will leave."""
        return self.removal is not None or self.asked_since is not None

    @property
    def is_unwarned(self) -> bool:
        """Return whether it stays and is to give way, and its preemption has not begun."""
        return self.asked_since is not None and not self.warned and self.removal is None

    @property
    def is_unmarked(self) -> bool:
        """Return whether its preemption has begun, and the lifecycle service has not marked it."""
        return self.warned and self.removal is None

    @property
    def is_unsure(self) -> bool:
        """Return whether it is to give way and does not answer, so that it may be lost.

        Nobody counts on its machine once its cordon says that its silence lasts.
        """
        if self.asked_since is None or self.phase is NodePhase.REBOOTING or not self.is_silent:
            return False
        return _NOT_READY not in split_causes(self.cordon_reason)

    @property
    def domain(self) -> str:
        """Return its NVLink domain, from its assignment on; empty if it has none."""
        return domain_of(self.labels)

    @property
    def action_condition(self) -> str:
        """Return the type of the condition that names its action; empty without an action.

        A drained Node keeps its action until it is uncordoned, but nothing waits there any more,
        unless its machine has yet to answer the cordon.
        """
        is_idle = self.phase is NodePhase.CORDONED and not self.active
        is_drained = is_idle and self.answer_by is None
        if self.action is None or (self.action is NodeAction.DRAIN and is_drained):
            return ""
        outside = self.phase in RESTARTING
        return "PhaseState" if outside else "PendingPhaseState"


@dataclass(frozen=True, slots=True)
class QuotaObject:
    """A limit, and how many Nodes count against it.

    org, zone, instance_type: the scope of the limit.
    limit: the maximum number of Nodes; None if the limit was never set.
    used: how many Nodes count against the limit.
    version: the position of its last change.
    given_up: when a NodePool last gave up quota, which the quota service then has to release; None
        if no NodePool did.
    """

    org: str
    zone: str
    instance_type: str
    limit: int | None
    used: int
    version: int
    given_up: datetime | None = None


@dataclass(frozen=True, slots=True)
class CapacityObject:
    """The machines of one type in one zone.

    version: the position of its last change.
    free, assigned, triage: how many machines are free, are Nodes, and are out of service.
    reclaimed: how many machines an operator holds back.
    to_reclaim: how many machines the operator wants to hold back.
    giving_way: how many of these Nodes are to give way.
    preempting_since: when the last of these Nodes was asked, or its preemption began; else None.
    zap: how many machines are being wiped.
    unwarned: how many of the Nodes that are to give way stay and have not been warned.
    unmarked: how many of them were warned, and are not marked by the lifecycle service yet.
    unsure: how many of them do not answer, so that their machines may be lost.
    """

    zone: str
    instance_type: str
    version: int
    free: int = 0
    assigned: int = 0
    triage: int = 0
    reclaimed: int = 0
    to_reclaim: int = 0
    giving_way: int = 0
    preempting_since: datetime | None = None
    zap: int = 0
    unwarned: int = 0
    unmarked: int = 0
    unsure: int = 0


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults of a simulated machine.

    fault: how the machine fails at its next boots, `times` times.
    failing: how the machine fails in this stay; empty if it does not fail.
    """

    fault: MachineFault
    times: int = 0
    failing: str = ""


@dataclass(frozen=True, slots=True)
class MachineStatus:
    """The status of a machine apart from its record in the inventory.

    version: the position of its last change.
    added: when it was added.
    cause: why it is out of service, as a sentence; empty if it is in service.
    state: its place in the data centre while it is out of service.
    faults: the faults of a simulated machine; None if the machine works.
    """

    version: int
    added: datetime
    cause: str = ""
    state: MachineState = MachineState.TRIAGE
    faults: Faults | None = None


@dataclass(frozen=True, slots=True)
class MachineObject:
    """A machine, free, assigned, in triage, reclaimed or being wiped, with its status.

    real: what else is known of it if it is real; None for a simulated machine.
    """

    machine: Machine
    status: MachineStatus
    real: RealMachine | None = None

    @property
    def version(self) -> int:
        """The position of the last change of the machine."""
        return max(self.status.version, self.real.version if self.real is not None else 0)


@dataclass(frozen=True, slots=True)
class ClusterObject:
    """A cluster.

    org, cluster, zone: its organisation, its name and its zone.
    registered: when it was first registered.
    version: the position of its last change.
    kubernetes: whether an agent connects it to Kubernetes.
    kubernetes_uid: the UID of the Kubernetes cluster; empty if unknown.
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
