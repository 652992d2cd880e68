"""A Node on its way through a NodePool."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from lifecycle.health import HEALTHY, Health
from lifecycle.lock import USUALLY, Lock
from lifecycle.silence import Standing
from nodepool.contract.keys import PoolKey, cluster_of
from nodepool.contract.model import NodePhase, RemovalReason
from nodepool.contract.pods import Pod, PodClass

ANSWER_WITHIN = timedelta(minutes=30)
"""How long a machine may take to answer a cordon or a drain, unless a setting says otherwise."""


class Workload(NamedTuple):
    """A Pod or a Slurm job that makes its Node active.

    since: when it was observed first.
    blocks: whether a drain for a scale-down waits for it.
    grace_s: how long a drain awaits its end, in seconds; 0 for one that is not awaited.
    """

    name: str
    since: datetime
    blocks: bool
    grace_s: int = 0

    @classmethod
    def of(cls, pod: Pod, since: datetime) -> "Workload":
        """Return what a Pod that was observed first at `since` means for its Node."""
        blocks = pod.interruption is PodClass.BLOCKING and not pod.terminating
        grace_s = 0 if pod.interruption is PodClass.INTERRUPTABLE else pod.grace_s
        return cls(pod.name, since, blocks, grace_s)


@dataclass(frozen=True, slots=True)
class Node:
    """One stay of a machine in a NodePool.

    It holds all that its next step depends on, so a step that failed is taken later.

    name: the name of the machine, and of the Node.
    assignment: the number of the stay.
    topology: the labels that the machine has of its own.
    boot_by: when its registration fails if the machine has not booted.
    booted, boot_fault: what its machine reported: that it has booted, or why it could not join.
    reported: whether its agent has reported it, which shows that it is in its cluster.
    revision: of the template that it looks like; 0 before it is registered.
    workloads: the Pods that make it active, as its machine reported last, by name.
    published: those that were published last.
    removal: why it leaves; None while it stays.
    shown: why it leaves, as its last `NodeUpdated` says.
    idle_only: whether it is kept if it turns out to be active.
    request: the number of the last request to delete it.
    cancelled: whether its NodePool wants it again; this counts for a scale-down only.
    cordon: how often it was cordoned.
    observed: the number of the cordon that its machine reported last; 0 for none.
    forced: whether no Pod may delay the drain that began last.
    evicted_at: when its drain for a preemption began; None without one.
    has_timetable: whether it is preempted by a timetable, which ends its stay whatever happens.
    gone_by: when the time that its preemption may take is over; None while it is not preempted.
    ask_after: when the time of its machine begins, if it has not answered by then.
    answer_by: when it is given up, if its machine has not answered by then.
    has_grace: whether that time includes the grace periods of the Pods that its drain ends, from
        the report that showed all of them ending.
    usable: whether its NodePool can use it, as it was published last.
    lock: the lock that a Slurm job has on it, or waits for.
    health: what is known of its health, and what commands asked for it.
    """

    name: str
    pool: PoolKey
    assignment: int
    topology: Mapping[str, str]
    boot_by: datetime
    booted: bool = False
    boot_fault: str = ""
    reported: bool = False
    revision: int = 0
    phase: NodePhase = NodePhase.BOOTING
    workloads: tuple[Workload, ...] = ()
    published: tuple[Workload, ...] = ()
    removal: RemovalReason | None = None
    shown: RemovalReason | None = None
    idle_only: bool = False
    request: int = 0
    cancelled: bool = False
    cordon: int = 0
    observed: int = 0
    forced: bool = False
    evicted_at: datetime | None = None
    has_timetable: bool = False
    gone_by: datetime | None = None
    ask_after: datetime | None = None
    answer_by: datetime | None = None
    has_grace: bool = False
    usable: bool = True
    lock: Lock | None = None
    health: Health = HEALTHY

    @property
    def booting(self) -> bool:
        """Whether it has not joined its cluster yet."""
        return self.phase is NodePhase.BOOTING

    @property
    def cordoned(self) -> bool:
        """Whether it is in a phase that a cordon begins with."""
        return is_cordoned(self.phase)

    @property
    def unschedulable(self) -> bool:
        """Whether nothing new may be scheduled on it."""
        return is_unschedulable(self.phase, self.health.boot)

    @property
    def restarts(self) -> bool:
        """Whether it joined its cluster, and is rebooted or verified: no work runs there."""
        return self.phase in (NodePhase.REBOOTING, NodePhase.VERIFYING)

    @property
    def is_blocked(self) -> bool:
        """Whether a Pod or a Slurm job runs there for which a drain waits without end."""
        return any(workload.blocks for workload in self.work)

    @property
    def work(self) -> tuple[Workload, ...]:
        """What makes it active: its workloads, and the Slurm job that has its lock."""
        if self.lock is None:
            return self.workloads
        return (Workload(self.lock.work, self.lock.since, blocks=True), *self.workloads)

    @property
    def holding(self) -> tuple[Workload, ...]:
        """What its drain waits for; a lock delays nothing that no Pod may block."""
        return self.workloads if self.is_forced or self.forced else self.work

    @property
    def is_awaited(self) -> bool:
        """Whether its next step waits for its machine to answer."""
        return self.is_given_up_in_silence or self.health.is_pending

    @property
    def is_given_up_in_silence(self) -> bool:
        """Return whether its machine is given up if the machine is silent after an answer.

        A pending reservation alone waits for the end of work, and work may go on in silence.
        """
        return self.removal is not None or self.health.action is not None

    @property
    def is_asked(self) -> bool:
        """Return whether its machine has a deadline to answer, or gets a deadline later."""
        return self.ask_after is not None or self.answer_by is not None

    @property
    def is_forced(self) -> bool:
        """Whether no Pod may block its removal; of a preemption, once its drain has begun."""
        is_evicted = self.removal is RemovalReason.PREEMPTED and self.evicted_at is not None
        return self.removal is RemovalReason.POOL_DELETED or is_evicted

    @property
    def is_kept(self) -> bool:
        """Whether it was to leave for a scale-down, and is to stay after all."""
        return self.cancelled and self.removal is RemovalReason.SCALE_DOWN

    @property
    def is_to_be_forced(self) -> bool:
        """Whether no Pod may delay its drain from now on, and the last drain does not say so."""
        return self.is_forced and not self.forced

    @property
    def is_warned(self) -> bool:
        """Whether it is preempted by a timetable, of which the drain has not begun."""
        is_preempted = self.removal is RemovalReason.PREEMPTED
        return is_preempted and self.has_timetable and self.evicted_at is None

    @property
    def is_newly_silent(self) -> bool:
        """Whether it is not published yet how long its silence has.

        A boot, a reboot and a verification have times of their own.
        """
        silence = self.health.silence
        return silence is not None and silence.is_new and not (self.booting or self.restarts)

    def standing_in(self, zone: str) -> Standing | None:
        """Return what it counts for in its zone and in its cluster; None before it has joined."""
        if self.booting:
            return None
        is_silent = self.health.silence is not None and not self.restarts
        return Standing((zone, cluster_of(self.pool)), is_silent)

    @property
    def has_answered(self) -> bool:
        """Whether the last report of its machine includes its last cordon.

        Only such a report shows all Pods that ran before the cordon took hold. Where it is from an
        agent, it shows what the cluster knows, which is not what runs while the kubelet is silent.
        """
        is_stale = self.reported and self.health.is_silent
        return self.cordoned and self.observed == self.cordon and not is_stale

    def is_over(self, now: datetime) -> bool:
        """Whether it is preempted and goes now, whatever runs there."""
        return self._ends_by is not None and self._ends_by <= now

    @property
    def _ends_by(self) -> datetime | None:
        """Return when its preemption ends its stay; None where it is not preempted.

        Work that runs there although the preemption began without a timetable is to be warned
        first: the timetable follows. A NodePool that is deleted gives no such warning.
        """
        goes_with_pool = self.removal is RemovalReason.POOL_DELETED
        is_unwarned = bool(self.work) and not (self.has_timetable or goes_with_pool)
        return None if self.removal is None or is_unwarned else self.gone_by

    def begin_restart(self, now: datetime) -> "Node":
        """Return the Node, whose machine has to answer if it reboots or is verified from now on."""
        if not self.restarts:
            return self
        return replace(self, forced=False, ask_after=now + USUALLY, answer_by=None)

    @property
    def due(self) -> datetime | None:
        """When its machine or its lock is given up, its time to answer begins, or it goes.

        Also when the time of its silence is over.
        """
        if self.booting:
            return self.boot_by
        lock_due = None if self.lock is None else self.lock.due
        ask_at = None if self.health.silence is None else self.health.silence.ask_at
        moments = (self.answer_by or self.ask_after, lock_due, self._ends_by, ask_at)
        return min((moment for moment in moments if moment is not None), default=None)


def is_cordoned(phase: NodePhase) -> bool:
    """Whether this is a phase that a cordon begins with."""
    return phase in (NodePhase.CORDONED, NodePhase.DRAINING)


def is_unschedulable(phase: NodePhase, boot: int) -> bool:
    """Whether nothing new may be scheduled on a Node in this phase after so many reboots."""
    is_rebooted = phase is NodePhase.VERIFYING and boot > 0
    return is_cordoned(phase) or is_rebooted or phase is NodePhase.REBOOTING
