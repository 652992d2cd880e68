"""The lock that a Slurm job takes on a Node, as part of the state of the Node.

See https://docs.coreweave.com/products/cks/clusters/scheduling/workload-scheduling.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from lifecycle.deadlines import LOCK_WITHIN, USUALLY
from nodepool.contract.events import AnswerAwaited, NodeLockChanged
from nodepool.contract.keys import SLURM_JOB
from nodepool.contract.model import LOCK, LOCK_TAINT, Taint
from nodepool.contract.observations import NodeSeen
from nodepool.state.values import replace


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock that is pending or held.

    job: the id of the Slurm job.
    number: the position of the command that took the lock.
    since: when the lock was taken.
    ask_after: when the time that the machine has to answer begins, unless `asked` is set.
    asked: when that time began; never before the taint was published.
    grace_s: the longest grace period of the Pods that the lock evicts, in seconds.
    is_clear: whether the machine knows of the lock and has reported that the last Pod that does not
        tolerate the lock is gone.
    is_held: whether the job was told that it holds the lock; if not, the lock is pending.
    """

    job: str
    number: int
    since: datetime
    ask_after: datetime
    asked: datetime | None = None
    grace_s: int = 0
    is_clear: bool = False
    is_held: bool = False

    @property
    def due(self) -> datetime | None:
        """When the time of the machine begins, or ends once it has begun; None for a held lock."""
        if self.is_held or self.asked is None:
            return None if self.is_held else self.ask_after
        return self.asked + timedelta(seconds=self.grace_s) + LOCK_WITHIN

    def is_over(self, now: datetime) -> bool:
        """Return whether the lock is released because its machine did not answer in time."""
        return self.asked is not None and self.due is not None and self.due <= now

    @property
    def work(self) -> str:
        """The name of the workload that the lock stands for."""
        return f"{SLURM_JOB}{self.job}"


def begin_lock(job: str, number: int, now: datetime) -> Lock:
    """Return a new lock, which is pending."""
    return Lock(job, number, now, now + USUALLY)


def await_answer(lock: Lock | None, event: AnswerAwaited) -> Lock | None:
    """Return the lock whose time begins, or is to begin at another moment."""
    if lock is None or lock.number != event.lock:
        return lock
    if event.is_final:
        return replace(lock, asked=event.answer_by - LOCK_WITHIN)
    return replace(lock, ask_after=event.answer_by)


def change_lock(lock: Lock | None, event: NodeLockChanged, now: datetime) -> Lock | None:
    """Return the lock of a Node after this event; None without a lock."""
    is_same = lock is not None and lock.number == event.number
    match event.lock:
        case "pending":
            return lock if is_same else begin_lock(event.job, event.number, now)
        case "locked":
            return replace(lock, is_held=True) if lock is not None and is_same else lock
        case "released":
            return None if is_same else lock


def observe_pods(lock: Lock | None, report: NodeSeen) -> Lock | None:
    """Return the lock after a report of its machine, if the machine knew of the lock.

    However many reports come, the lock gets no more time than the longest grace period.
    """
    if lock is None or lock.is_held or report.lock != lock.number:
        return lock
    left = [pod.grace_s for pod in report.pods if not pod.tolerates(LOCK_TAINT)]
    if not left:
        return replace(lock, is_clear=True)
    return replace(lock, is_clear=False, grace_s=max(left))


def lock_annotations(lock: Lock | None) -> Mapping[str, str]:
    """Return the annotation of a Node with this lock."""
    return {} if lock is None else {LOCK: "locked" if lock.is_held else "pending"}


def lock_taints(lock: Lock | None) -> tuple[Taint, ...]:
    """Return the taint of a Node with this lock."""
    return () if lock is None else (LOCK_TAINT,)


def is_job(work: str) -> bool:
    """Return whether the workload of this name is a Slurm job, and no Pod."""
    return work.startswith(SLURM_JOB)
