"""Rules for Pods and locks.

* A Pod that was created waits, runs on one Node, and is gone, in this order; its name is free then.
* No Node has more Pods than it may, nor more GPUs of either name in use than its machine has.
* What runs on a Node of the Pods that were created is what was said to run there.
* A Node is locked once its machine, knowing of the lock, has reported no Pod that does not tolerate
  it, and none comes until the lock is released. What a Node shows is its lock.
* A lock is released before its Node is gone; a scale-down does not take a Node from a job.
"""

from datetime import timedelta

from nodepool.contract.catalog import INSTANCE_TYPES
from nodepool.contract.events import (
    CWNodeDeleted,
    NodeLockChanged,
    NodeObserved,
    NodeReported,
    NodeUpdated,
    PodChanged,
)
from nodepool.contract.messages import Message
from nodepool.contract.model import RemovalReason
from nodepool.contract.pods import Pod
from support.audit.facts import Facts, Lock, Origin, PodFact, Stay, Violation

LOCK = "sunk.coreweave.com/lock"
PODS_MAX = 110
CREATED = "work-"
"""How the names of Pods begin that were created, and are bound to no Node by a command."""
NEXT = {
    "Pending": ("Running", "Gone"),
    "Running": ("Terminating", "Gone"),
    "Terminating": ("Terminating", "Gone"),
}
"""The phases that may follow on each."""


def check(facts: Facts, message: Message, origin: Origin) -> None:
    """Checks and notes what is said of Pods and locks."""
    match message:
        case PodChanged():
            _pod_changed(facts, message, origin)
        case NodeObserved():
            stay = facts.reported_stay(message, message.assignment)
            _fits(facts, stay, message.pods)
            _is_where_it_runs(facts, stay, message)
            _keeps_the_lock(stay, message, origin)
        case NodeReported():
            _keeps_the_lock(facts.reported_stay(message, message.assignment), message, origin)
        case NodeLockChanged():
            _lock_changed(facts, facts.stay(message), message, origin)
        case NodeUpdated():
            _shows_its_lock(facts.stay(message), message)
        case CWNodeDeleted():
            stay = facts.stay(message)
            stay.ended = origin.position
            if stay.lock is not None:
                raise Violation(f"{stay.machine} is deleted with the lock of {stay.lock.job}")
            ended, is_taken = stay.lock_ended, message.removal is RemovalReason.SCALE_DOWN
            if is_taken and ended and ended.cause == origin.cause and not message.triage:
                raise Violation(f"{stay.machine} is taken from a job by a scale-down")


def _pod_changed(facts: Facts, event: PodChanged, origin: Origin) -> None:
    key = event.key, event.name
    before = facts.pods.get(key)
    if event.phase == "Pending":
        if before is not None:
            raise Violation(f"Pod {event.name} is created while there is one")
        facts.pods[key] = PodFact(event.number, "Pending")
        return
    if before is None or before.number != event.number or event.phase not in NEXT[before.phase]:
        raise Violation(f"Pod {event.name} is {event.phase} after {before}")
    if event.phase == "Gone":
        del facts.pods[key]
        return
    if before.phase != "Pending" and before.assignment != event.assignment:
        raise Violation(f"Pod {event.name} is on two Nodes")
    if event.phase == "Running":
        stay = facts.stays[event.assignment]
        if stay.pool.key != event.key or (stay.ended and stay.ended <= origin.cause):
            raise Violation(f"Pod {event.name} runs on {stay.machine} of {stay.pool.key}")
    facts.pods[key] = PodFact(event.number, event.phase, event.assignment)


def _fits(facts: Facts, stay: Stay, pods: tuple[Pod, ...]) -> None:
    _, instance_type = facts.machines[stay.machine].offering
    most = INSTANCE_TYPES[instance_type].gpus
    gpus, accelerators = sum(pod.gpus for pod in pods), sum(pod.accelerators for pod in pods)
    if gpus > most or accelerators > most or len(pods) > PODS_MAX:
        numbers = f"{len(pods)} Pods, {gpus} GPUs, {accelerators} accelerators"
        raise Violation(f"{stay.machine} has {numbers}, more than fit")


def _is_where_it_runs(facts: Facts, stay: Stay, report: NodeObserved) -> None:
    for pod in report.pods:
        if pod.name.startswith(CREATED):
            known = facts.pods.get((stay.pool.key, pod.name))
            if known is None or known.assignment != report.assignment:
                raise Violation(f"Pod {pod.name} is on {stay.machine}, and is {known}")


def _keeps_the_lock(stay: Stay, report: NodeObserved | NodeReported, origin: Origin) -> None:
    repelled = [pod.name for pod in report.pods if not _tolerates(pod)]
    if stay.lock is not None and report.lock == stay.lock.number:
        stay.lock.reports.append((origin.position, not repelled))
        if stay.lock.is_held and repelled:
            raise Violation(f"{stay.machine} is locked, and {repelled} run there")


LOCK_ANSWER_MAX = timedelta(minutes=30)
"""How long a machine may take to answer a lock, from the moment at which that is published."""


def _tolerates(pod: Pod) -> bool:
    return any(toleration.key in (LOCK, "") for toleration in pod.tolerations)


def _lock_changed(facts: Facts, stay: Stay, event: NodeLockChanged, origin: Origin) -> None:
    lock = stay.lock
    if lock is None:
        if event.lock != "pending" or event.number > origin.cause:
            raise Violation(f"{stay.machine} has no lock that is {event.lock}")
        if stay.is_lent:
            raise Violation(f"{stay.machine} is locked, and reserved for the control plane")
        stay.lock = Lock(event.job, event.number, facts.times[origin.position])
        return
    if (lock.job, lock.number) != (event.job, event.number):
        raise Violation(f"{stay.machine} is locked by {lock.job}, not by {event.job}")
    if event.lock == "released":
        waited = facts.times[origin.position] - lock.taken
        if event.message.endswith("did not answer in time") and waited < LOCK_ANSWER_MAX:
            raise Violation(f"the lock of {stay.machine} is given up after {waited}")
        is_taken = lock.is_held and event.message.endswith("is deleted")
        stay.lock, stay.lock_ended = None, origin if is_taken else None
    elif event.lock == "locked" and not lock.is_held:
        known = [is_clear for position, is_clear in lock.reports if position <= origin.cause]
        if not known or not known[-1]:
            raise Violation(f"{stay.machine} is locked before its Pods were gone")
        lock.is_held = True
    elif event.lock == "pending" and lock.is_held:
        raise Violation(f"{stay.machine} is locked, and its lock is pending again")


def _shows_its_lock(stay: Stay, event: NodeUpdated) -> None:
    lock = stay.lock
    shown = event.annotations.get(LOCK), event.lock, any(t.key == LOCK for t in event.taints)
    state = None if lock is None else "locked" if lock.is_held else "pending"
    if shown != (state, 0 if lock is None else lock.number, lock is not None):
        raise Violation(f"{stay.machine} shows the lock {shown}, which is {state}")
