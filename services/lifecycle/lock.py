"""The lock that a Slurm job takes on a Node: a value that a Node holds.

See https://docs.coreweave.com/products/cks/clusters/scheduling/workload-scheduling.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from lifecycle import Observed
from nodepool.contract.events import AnswerAwaited, NodeLockChanged
from nodepool.contract.model import LOCK, LOCK_TAINT, Taint

USUALLY = timedelta(seconds=1)
"""A machine that answers within this, as it usually does, has no deadline published."""
ANSWER_WITHIN = timedelta(minutes=30)
"""How long a machine may take to show that it has evicted the Pods, beside their grace period.

A lock that is still pending then is released, so that the prolog of the job fails and does not wait
for a machine that hangs.
"""


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock that is pending or held.

    job: the id of the Slurm job.
    number: the position of the command that took it.
    since: when it was taken.
    ask_after: when the time of the machine to answer begins, unless `asked` names that moment.
    asked: when this time began: not before the taint was published.
    grace_s: the longest grace period of the Pods that end for it, in seconds.
    is_clear: whether the machine has reported, knowing of it, that the last Pod that does not
        tolerate it is gone.
    is_held: whether the job was told so; else it is pending.
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
        """When the time of its machine begins, or is over; None once it is held."""
        if self.is_held or self.asked is None:
            return None if self.is_held else self.ask_after
        return self.asked + timedelta(seconds=self.grace_s) + ANSWER_WITHIN

    def is_over(self, now: datetime) -> bool:
        """Whether it is released because its machine did not answer in time."""
        return self.asked is not None and self.due is not None and self.due <= now

    @property
    def work(self) -> str:
        """What runs on the Node because of it."""
        return f"Slurm job {self.job}"


def taken(job: str, number: int, now: datetime) -> Lock:
    """A new lock, which is pending."""
    return Lock(job, number, now, now + USUALLY)


def awaited(lock: Lock | None, event: AnswerAwaited) -> Lock | None:
    """Return the lock whose time begins, or is to begin at another moment."""
    if lock is None or lock.number != event.lock:
        return lock
    if event.is_final:
        return replace(lock, asked=event.answer_by - ANSWER_WITHIN)
    return replace(lock, ask_after=event.answer_by)


def changed(lock: Lock | None, event: NodeLockChanged, now: datetime) -> Lock | None:
    """The lock of a Node after this event; None for none."""
    is_same = lock is not None and lock.number == event.number
    match event.lock:
        case "pending":
            return lock if is_same else taken(event.job, event.number, now)
        case "locked":
            return replace(lock, is_held=True) if lock is not None and is_same else lock
        case "released":
            return None if is_same else lock


def observed(lock: Lock | None, report: Observed) -> Lock | None:
    """The lock after a report of its machine, which counts once that knows of the lock.

    However many reports come, it has no more time than the longest grace period they name.
    """
    if lock is None or lock.is_held or report.lock != lock.number:
        return lock
    left = [pod.grace_s for pod in report.pods if not pod.tolerates(LOCK_TAINT)]
    if not left:
        return replace(lock, is_clear=True)
    return replace(lock, is_clear=False, grace_s=max(left))


def lock_annotations(lock: Lock | None) -> Mapping[str, str]:
    """The annotation of a Node with this lock."""
    return {} if lock is None else {LOCK: "locked" if lock.is_held else "pending"}


def lock_taints(lock: Lock | None) -> tuple[Taint, ...]:
    """The taint of a Node with this lock."""
    return () if lock is None else (LOCK_TAINT,)
