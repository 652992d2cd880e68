"""A Node on its way through a NodePool, and how each message about it changes it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import assert_never

from lifecycle.lock import Lock
from lifecycle.lock import changed as changed_lock
from lifecycle.lock import observed as observed_lock
from lifecycle.workload import Workload, workloads
from nodepool.contract.events import (
    AnswerAwaited,
    CWDrainNode,
    CWNodeDeletionRequestSuccess,
    CWNodeRegistered,
    MachineBooted,
    MachineFailed,
    NodeActivityChanged,
    NodeKept,
    NodeLockChanged,
    NodeObserved,
    NodePreempted,
    NodeRemovalCancelled,
    NodeUpdated,
    PreemptionInProgress,
    PreemptionOverdue,
    PreemptionPending,
)
from nodepool.contract.keys import PoolKey
from nodepool.contract.model import NodePhase, RemovalReason

ANSWER_WITHIN = timedelta(minutes=30)
"""How long a machine may take to answer a cordon or a drain, unless a setting says otherwise."""
USUALLY = timedelta(seconds=1)
"""A machine that answers within this, as it usually does, has no deadline published."""


@dataclass(frozen=True, slots=True)
class Node:
    """One stay of a machine in a NodePool.

    It holds all that its next step depends on, so a step that failed is taken later.

    name: the name of the machine, and of the Node.
    assignment: the number of the stay.
    topology: the labels that the machine has of its own.
    boot_by: when its registration fails if the machine has not booted.
    booted, boot_fault: what its machine reported: that it has booted, or why it could not join.
    revision: of the template that it looks like; 0 before it is registered.
    workloads: the Pods that make it active, as its machine reported last, by name.
    published: those that were published last.
    removal: why it leaves; None while it stays.
    idle_only: whether it is kept if it turns out to be active.
    request: the number of the last request to delete it.
    cancelled: whether its NodePool wants it again; this counts for a scale-down only.
    cordon: how often it was cordoned.
    observed: the number of the cordon that its machine reported last; 0 for none.
    forced: whether no Pod may delay the drain that began last.
    evicted_at: when its drain for a preemption began; None without one.
    has_timetable: whether it is preempted by a timetable, which ends its stay whatever happens.
    overdue: whether the time that its preemption may take is over.
    ask_after: when the time of its machine begins, if it has not answered by then.
    answer_by: when it is given up, if its machine has not answered by then.
    lock: the lock that a Slurm job has on it, or waits for.
    """

    name: str
    pool: PoolKey
    assignment: int
    topology: Mapping[str, str]
    boot_by: datetime
    booted: bool = False
    boot_fault: str = ""
    revision: int = 0
    phase: NodePhase = NodePhase.BOOTING
    workloads: tuple[Workload, ...] = ()
    published: tuple[Workload, ...] = ()
    removal: RemovalReason | None = None
    idle_only: bool = False
    request: int = 0
    cancelled: bool = False
    cordon: int = 0
    observed: int = 0
    forced: bool = False
    evicted_at: datetime | None = None
    has_timetable: bool = False
    overdue: bool = False
    ask_after: datetime | None = None
    answer_by: datetime | None = None
    lock: Lock | None = None

    @property
    def booting(self) -> bool:
        """Whether it has not joined its cluster yet."""
        return self.phase is NodePhase.BOOTING

    @property
    def cordoned(self) -> bool:
        """Whether nothing new may be scheduled on it."""
        return is_cordoned(self.phase)

    @property
    def is_forced(self) -> bool:
        """Whether no Pod may block its removal."""
        return self.removal in (RemovalReason.POOL_DELETED, RemovalReason.PREEMPTED)

    @property
    def is_kept(self) -> bool:
        """Whether it was to leave for a scale-down, and is to stay after all."""
        return self.cancelled and self.removal is RemovalReason.SCALE_DOWN

    @property
    def is_to_be_forced(self) -> bool:
        """Whether no Pod may delay its drain from now on, and the last drain does not say so.

        A preemption by a timetable waits for the moment at which that drains the Node.
        """
        if self.removal is RemovalReason.PREEMPTED and self.has_timetable:
            return self.evicted_at is not None and not self.forced
        return self.is_forced and not self.forced

    @property
    def has_answered(self) -> bool:
        """Whether the last report of its machine includes its last cordon.

        Only such a report shows all Pods that ran before the cordon took hold.
        """
        return self.cordoned and self.observed == self.cordon

    @property
    def due(self) -> datetime | None:
        """When its machine or its lock is given up, or the time to answer begins; or never."""
        if self.booting:
            return self.boot_by
        lock_due = None if self.lock is None else self.lock.due
        moments = (self.answer_by or self.ask_after, lock_due)
        return min((moment for moment in moments if moment is not None), default=None)

    @property
    def work(self) -> tuple[Workload, ...]:
        """What makes it active: its workloads, and the Slurm job that has its lock."""
        if self.lock is None:
            return self.workloads
        return (Workload(self.lock.work, self.lock.since, blocks=True), *self.workloads)

    @property
    def holding(self) -> tuple[Workload, ...]:
        """What its drain waits for; a lock holds up nothing that no Pod may block."""
        return self.workloads if self.is_forced else self.work


NodeChange = (
    MachineBooted
    | MachineFailed
    | CWNodeRegistered
    | NodeUpdated
    | NodeObserved
    | NodeActivityChanged
    | AnswerAwaited
    | CWDrainNode
    | CWNodeDeletionRequestSuccess
    | NodeRemovalCancelled
    | NodeKept
    | NodeLockChanged
    | NodePreempted
    | PreemptionPending
    | PreemptionInProgress
    | PreemptionOverdue
)
"""The messages that change a Node while it stays."""


def is_cordoned(phase: NodePhase) -> bool:
    """Whether nothing new may be scheduled on a Node in this phase."""
    return phase in (NodePhase.CORDONED, NodePhase.DRAINING)


def changed(  # noqa: C901  # It lists the messages.
    node: Node, message: NodeChange, now: datetime
) -> Node:
    """The Node after a message about it that the log stored at `now`."""
    match message:
        case MachineBooted():
            return replace(node, booted=True)
        case MachineFailed(cause=cause):
            return replace(node, boot_fault=cause)
        case CWNodeRegistered():
            return replace(node, phase=NodePhase.PRODUCTION)
        case NodeUpdated():
            return _updated(node, message, now)
        case AnswerAwaited():
            return _awaited(node, message)
        case NodeObserved():
            return _observed(node, message, now)
        case NodeLockChanged():
            return replace(node, lock=changed_lock(node.lock, message, now))
        case NodeActivityChanged():
            return replace(node, published=node.work)
        case CWDrainNode(force=force):
            return _asked(replace(node, phase=NodePhase.DRAINING, forced=force), now)
        case CWNodeDeletionRequestSuccess() | NodeRemovalCancelled() | NodeKept():
            return _requested(node, message)
        case NodePreempted() | PreemptionPending() | PreemptionInProgress() | PreemptionOverdue():
            return _preempted(node, message)
        case _:
            assert_never(message)


def _awaited(node: Node, event: AnswerAwaited) -> Node:
    if event.is_final:
        return replace(node, ask_after=None, answer_by=event.answer_by)
    return replace(node, ask_after=event.answer_by)


def _updated(node: Node, event: NodeUpdated, now: datetime) -> Node:
    begins = event.cordon > node.cordon
    node = replace(node, phase=event.phase, removal=event.removal, cordon=event.cordon)
    if not node.cordoned:
        return replace(node, forced=False, ask_after=None, answer_by=None)
    return _asked(node, now) if begins else node


def _asked(node: Node, now: datetime, grace_s: int = 0) -> Node:
    """The Node, whose machine is to do something now that takes so many seconds.

    When that is stored, and the machine can hear of it, is not known here: the replica may be late.
    So its time begins at the `Wake` for this very moment, which is stored after that.
    """
    if node.removal is RemovalReason.PREEMPTED:
        return replace(node, ask_after=None, answer_by=None)
    return replace(node, ask_after=now + USUALLY + timedelta(seconds=grace_s), answer_by=None)


def _observed(node: Node, report: NodeObserved, now: datetime) -> Node:
    working = [pod for pod in report.pods if pod.counts_as_work]
    node = replace(
        node,
        workloads=workloads(node.workloads, working, now),
        observed=report.cordon if report.unschedulable else 0,
        lock=observed_lock(node.lock, report, now),
    )
    is_blocked = not node.is_forced and any(workload.blocks for workload in node.workloads)
    if node.phase is NodePhase.DRAINING and node.workloads and not is_blocked:
        return _asked(node, now, max(pod.grace_s for pod in working))
    # Nothing more is awaited of its machine: the next step is not its own, or a Pod is awaited.
    return replace(node, ask_after=None, answer_by=None) if node.has_answered else node


def _requested(
    node: Node, event: CWNodeDeletionRequestSuccess | NodeRemovalCancelled | NodeKept
) -> Node:
    """The Node as one that is to leave, or to stay after all."""
    # A preemption has its own timetable, which neither a scale-down nor a deletion shortens.
    if node.removal is RemovalReason.PREEMPTED:
        return node
    match event:
        case CWNodeDeletionRequestSuccess(removal=removal, idle_only=idle_only, request=request):
            return replace(
                node, removal=removal, idle_only=idle_only, request=request, cancelled=False
            )
        case NodeRemovalCancelled():
            return replace(node, cancelled=True)
        case NodeKept(request=request):
            is_kept = node.is_kept and request == node.request
            return replace(node, removal=None, cancelled=False) if is_kept else node
        case _:
            assert_never(event)


def _preempted(
    node: Node,
    event: NodePreempted | PreemptionPending | PreemptionInProgress | PreemptionOverdue,
) -> Node:
    """The Node as one that leaves for certain; one that goes with its pool does so anyway."""
    match event:
        case NodePreempted():
            # One in production was kept in the meantime; its preemption then gets a timetable.
            is_spareable = node.cordoned and node.removal is RemovalReason.SCALE_DOWN
            if not node.booting and not is_spareable:
                return node
            return replace(node, removal=RemovalReason.PREEMPTED, idle_only=False)
        case PreemptionPending():
            if node.removal is RemovalReason.POOL_DELETED:
                return node
            return replace(
                node,
                removal=RemovalReason.PREEMPTED,
                idle_only=False,
                has_timetable=True,
                ask_after=None,
                answer_by=None,
            )
        case PreemptionInProgress(evicted_at=moment):
            return replace(node, evicted_at=moment)
        case PreemptionOverdue():
            return replace(node, overdue=node.removal is not None)
        case _:
            assert_never(event)
