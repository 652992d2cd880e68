"""A Node on its way through a NodePool."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from lifecycle.health import HEALTHY, Health
from lifecycle.lock import Lock
from nodepool.contract.keys import PoolKey
from nodepool.contract.model import NodeAction, NodePhase, RemovalReason
from nodepool.contract.pods import Pod, PodClass


class Workload(NamedTuple):
    """A Pod or a Slurm job that makes its Node active.

    since: when it was first observed.
    blocks: whether a drain for a scale-down waits for it.
    grace_s: how long a drain waits for its end, in seconds; 0 if no drain waits for it.
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


class Boot(NamedTuple):
    """The last boot of a Node, and the verification after the boot.

    number: how often the Node was rebooted in this stay; 0 at its first boot.
    is_done: whether the machine has reported the end of the boot.
    fault: why the machine could not boot, or could not join its cluster.
    verifies: whether a verification follows the boot.
    passed: whether the Node has passed the verification; None while that is not known.
    verification_fault: why the Node has not passed the verification.
    """

    number: int = 0
    is_done: bool = False
    fault: str = ""
    verifies: bool = False
    passed: bool | None = None
    verification_fault: str = ""


class Work(NamedTuple):
    """What runs on a Node.

    pods: the Pods that make the Node active, as last reported by its machine, sorted by name.
    lock: the lock that a Slurm job has on the Node, or waits for.
    published: the workloads in the last published event.
    """

    pods: tuple[Workload, ...] = ()
    lock: Lock | None = None
    published: tuple[Workload, ...] = ()

    @property
    def all(self) -> tuple[Workload, ...]:
        """The workloads that make the Node active: its Pods, and the job that has its lock."""
        lock = self.lock
        return self.pods if lock is None else (Workload(lock.work, lock.since, True), *self.pods)

    @property
    def is_blocking(self) -> bool:
        """Return whether a drain waits without end for a Pod or a Slurm job."""
        return any(workload.blocks for workload in self.all)


class Exit(NamedTuple):
    """How a Node leaves its NodePool.

    reason: why the Node leaves; None while it stays.
    shown: the reason that the last `NodeUpdated` shows.
    idle_only: whether the NodePool keeps the Node if the Node turns out to be active.
    request: the number of the last request to delete the Node.
    is_cancelled: whether the NodePool wants the Node again; this matters only for a scale-down.
    has_timetable: whether a preemption with a timetable ends the stay in any case.
    evicted_at: when the drain for a preemption began.
    gone_by: when the preemption must be over.
    """

    reason: RemovalReason | None = None
    shown: RemovalReason | None = None
    idle_only: bool = False
    request: int = 0
    is_cancelled: bool = False
    has_timetable: bool = False
    evicted_at: datetime | None = None
    gone_by: datetime | None = None

    @property
    def is_forced(self) -> bool:
        """Return whether no Pod may block the removal: in a preemption, only from its drain on."""
        is_evicted = self.reason is RemovalReason.PREEMPTED and self.evicted_at is not None
        return self.reason is RemovalReason.POOL_DELETED or is_evicted

    @property
    def is_spared(self) -> bool:
        """Return whether the Node was chosen by a scale-down that no longer needs the Node."""
        return self.is_cancelled and self.reason is RemovalReason.SCALE_DOWN

    @property
    def is_warned(self) -> bool:
        """Return whether the preemption has a timetable, and its drain has not begun."""
        is_preempted = self.reason is RemovalReason.PREEMPTED
        return is_preempted and self.has_timetable and self.evicted_at is None

    @property
    def is_for_health(self) -> bool:
        """Return whether the Node stays, or leaves as unhealthy: if it goes, it is replaced."""
        return self.reason in (None, RemovalReason.UNHEALTHY)


class Cordon(NamedTuple):
    """The cordon of a Node, and the drain after the cordon.

    number: how often the Node was cordoned.
    observed: the number of the cordon that its machine reported last; 0 for none.
    causes: the causes that the last `CWNodeCordoned` named; empty after the end of a cordon.
    is_for_triage: whether that event said that the machine goes to triage.
    is_drain_forced: whether no Pod may delay the drain that began last.
    is_drained: whether the Node was drained for a command before its machine fell silent.
    """

    number: int = 0
    observed: int = 0
    causes: str = ""
    is_for_triage: bool = False
    is_drain_forced: bool = False
    is_drained: bool = False


class Answer(NamedTuple):
    """The time that a machine has to complete the next step.

    ask_after: when this time begins, if the machine has not answered by then.
    by: when the machine is given up, if it has not answered by then.
    has_grace: whether the time includes the grace periods of the Pods that the drain ends, counted
        from the report that showed all of them ending.
    """

    ask_after: datetime | None = None
    by: datetime | None = None
    has_grace: bool = False

    @property
    def is_awaited(self) -> bool:
        """Return whether the machine has a deadline to answer, or gets a deadline later."""
        return self.ask_after is not None or self.by is not None


NO_ANSWER = Answer()


@dataclass(frozen=True, slots=True)
class Node:
    """One stay of a machine in a NodePool, with everything that its next step depends on.

    name: the name of the machine, and of the Node.
    assignment: the number of the stay.
    topology: the labels of the machine itself.
    boot_by: when its registration fails if the Node has not joined its cluster.
    is_reported: whether its agent has reported the Node, which shows that it is in its cluster.
    revision: the revision of the template that the Node has; 0 before its registration.
    is_deadline_shown: whether the time by which the machine has to answer was published.
    action: the action that is under way, or that the Node waits for, as last published.
    is_usable: whether the NodePool can use the Node, as last published.
    """

    name: str
    pool: PoolKey
    assignment: int
    topology: Mapping[str, str]
    boot_by: datetime
    phase: NodePhase = NodePhase.BOOTING
    is_reported: bool = False
    revision: int = 0
    boot: Boot = Boot()
    work: Work = Work()
    exit: Exit = Exit()
    cordon: Cordon = Cordon()
    answer: Answer = NO_ANSWER
    is_deadline_shown: bool = False
    health: Health = HEALTHY
    action: NodeAction | None = None
    is_usable: bool = True

    @property
    def is_booting(self) -> bool:
        """Return whether the Node has not joined its cluster yet."""
        return self.phase is NodePhase.BOOTING

    @property
    def is_cordoned(self) -> bool:
        """Return whether the Node is in a phase that begins with a cordon."""
        return self.phase in CORDONED

    @property
    def is_unschedulable(self) -> bool:
        """Return whether no new work may begin on the Node."""
        return is_unschedulable(self.phase, self.boot.number)

    @property
    def restarts(self) -> bool:
        """Return whether the Node is rebooted, or is verified after it joined its cluster."""
        return self.phase in (NodePhase.REBOOTING, NodePhase.VERIFYING)

    @property
    def has_work(self) -> bool:
        """Return whether work runs on the Node, in any phase; none runs while its machine boots."""
        is_off = self.is_booting or (self.phase is NodePhase.REBOOTING and not self.boot.is_done)
        return bool(self.work.all) and not is_off

    @property
    def holding(self) -> tuple[Workload, ...]:
        """The workloads that a drain waits for; a lock delays no forced drain."""
        is_forced = self.exit.is_forced or self.cordon.is_drain_forced
        return self.work.pods if is_forced else self.work.all

    @property
    def is_given_up_in_silence(self) -> bool:
        """Return whether its machine is given up if the machine falls silent after an answer.

        A pending reservation alone waits for the workloads to end, and they may run on while the
        machine is silent. A Node that a command has drained owes nothing more.
        """
        is_drained = self.cordon.is_drained and self.action is NodeAction.DRAIN
        return self.exit.reason is not None or (self.action is not None and not is_drained)

    @property
    def has_answered(self) -> bool:
        """Return whether the last report of its machine includes its last cordon.

        Only such a report includes all Pods that started before the cordon took effect. An agent
        reports what the cluster knows, which is out of date while the kubelet is silent.
        """
        is_stale = self.is_reported and self.health.is_silent
        return self.is_cordoned and self.cordon.observed == self.cordon.number and not is_stale

    @property
    def is_newly_silent(self) -> bool:
        """Return whether the Node is silent, and what follows from that is not published yet.

        A boot, a reboot and a verification have deadlines of their own.
        """
        silence = self.health.silence
        return silence is not None and silence.is_new and not (self.is_booting or self.restarts)

    @property
    def gone_by(self) -> datetime | None:
        """Return when its preemption ends its stay; None without a preemption.

        If work runs on a Node whose preemption began without a timetable, the Node first gets a
        timetable, which warns that work. The deletion of a NodePool gives no such warning.
        """
        goes_with_pool = self.exit.reason is RemovalReason.POOL_DELETED
        is_unwarned = bool(self.work.all) and not (self.exit.has_timetable or goes_with_pool)
        return None if self.exit.reason is None or is_unwarned else self.exit.gone_by

    def is_over(self, now: datetime) -> bool:
        """Return whether its preemption ends its stay now, whatever runs there."""
        return self.gone_by is not None and self.gone_by <= now

    @property
    def due(self) -> datetime | None:
        """The next moment at which a step, or a deadline, follows from the passage of time alone.

        See the deadlines in the module `table`.
        """
        if self.is_booting:
            return self.boot_by
        lock, silence = self.work.lock, self.health.silence
        moments = (
            self.answer.by or self.answer.ask_after,
            None if lock is None else lock.due,
            self.gone_by,
            None if silence is None else silence.ask_at,
            self.health.settles_at if self.restarts else None,
        )
        return min((moment for moment in moments if moment is not None), default=None)


CORDONED = (NodePhase.CORDONED, NodePhase.DRAINING)
"""The phases that begin with a cordon."""


def is_unschedulable(phase: NodePhase, reboots: int) -> bool:
    """Return whether no new work may begin on a Node in this phase after so many reboots."""
    is_rebooted = phase is NodePhase.VERIFYING and reboots > 0
    return phase in CORDONED or is_rebooted or phase is NodePhase.REBOOTING
