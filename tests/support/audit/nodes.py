"""Rules for Nodes: removed only on request, and drained before they are deleted."""

from datetime import timedelta

from nodepool.contract.events import (
    CWDrainNode,
    CWNodeCordoned,
    CWNodeDeleted,
    CWNodeDeletionRequestSuccess,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    NodeKept,
    NodeRemovalCancelled,
    NodeReservationChanged,
    NodeUpdated,
)
from nodepool.contract.messages import Message
from nodepool.contract.model import NodePhase, RemovalReason
from nodepool.contract.phases import RESTARTING
from support.audit import health, preemption
from support.audit.facts import TRIAGE, Facts, Origin, Stay, Violation

BOOT_MAX = timedelta(minutes=30)
"""How long a machine may take to join its cluster before it is given up."""
CORDON_REASON = "node.coreweave.cloud/cordonReason"
"""The annotation of a Node that is cordoned for a cause of its own, and stays."""


def check(  # noqa: C901  # It lists the messages.
    facts: Facts, message: Message, origin: Origin
) -> None:
    """Checks and notes an event about a Node."""
    health.note(facts, message, origin)
    match message:
        case CWNodeDeletionRequestSuccess(removal=removal):
            stay = facts.stay(message)
            stay.removals.add(origin.position, True)
            stay.was_kept = False
            stay.goes_with_pool = removal is RemovalReason.POOL_DELETED
        case NodeRemovalCancelled():
            facts.stay(message).removals.add(origin.position, False)
        case NodeKept():
            facts.stay(message).was_kept = True
        case CWNodeRegistered():
            _registered(facts, message, origin)
            stay = facts.stay(message)
            stay.restarting_since = facts.times[origin.position]
            stay.joined = origin.position
        case CWNodeRegistrationFailed():
            _registration_failed(facts, facts.stay(message), origin)
        case NodeUpdated():
            stay = facts.stay(message)
            health.check_update(facts, stay, message, origin)
            stay.phase = message.phase
            if message.cordon > stay.cordon:
                stay.cordon, stay.asked = message.cordon, facts.times[origin.position]
                stay.answered.add(origin.position, False)
        case NodeReservationChanged(usable=usable):
            _lent(facts.stay(message), origin, is_lent=not usable)
        case CWNodeCordoned():
            health.check_cordoned(facts, facts.stay(message), message, origin)
        case CWDrainNode():
            _drained(facts.stay(message), message, origin)
            facts.stay(message).asked = facts.times[origin.position]
        case CWNodeDeleted(removal=RemovalReason.UNHEALTHY):
            stay = facts.stay(message)
            health.check_replaced(facts, stay, message, origin)
            stay.overdue = True
            _leave(facts, stay, origin, holder=TRIAGE)
        case CWNodeDeleted(triage=True):
            stay = facts.stay(message)
            if stay.has_problem(origin.cause) and not _is_silent(facts, stay, origin):
                _check_deletion(facts, stay, origin)
            else:
                _check_silence(facts, stay, origin)
            _leave(facts, stay, origin, holder=TRIAGE)
        case CWNodeDeleted():
            stay = facts.stay(message)
            _check_deletion(facts, stay, origin)
            _leave(facts, stay, origin, holder="")


def _registered(facts: Facts, event: CWNodeRegistered, origin: Origin) -> None:
    stay, phase = facts.stay(event), event.phase
    connected = facts.agents.get((event.org, event.cluster))
    if connected is not None and connected <= origin.cause and not stay.reported:
        raise Violation(f"{stay.machine} is registered before its agent has reported it")
    if not stay.booted:
        raise Violation(f"{stay.machine} is registered before it has booted")
    if phase not in (NodePhase.PRODUCTION, NodePhase.VERIFYING):
        raise Violation(f"{stay.machine} is registered as {phase}")
    stay.phase = phase


def _registration_failed(facts: Facts, stay: Stay, origin: Origin) -> None:
    if not stay.failed and facts.times[origin.cause] - stay.assigned < BOOT_MAX:
        raise Violation(f"{stay.machine} is given up early")
    _leave(facts, stay, origin, holder=TRIAGE)


def _drained(stay: Stay, message: CWDrainNode, origin: Origin) -> None:
    if stay.phase not in (NodePhase.CORDONED, NodePhase.DRAINING):
        raise Violation(f"{stay.machine} is drained when {stay.phase}")
    # A Node whose NodePool is being deleted goes without the timetable.
    if stay.is_preempted(origin.cause) and not (stay.in_progress or stay.goes_with_pool):
        raise Violation(f"{stay.machine} is drained while its preemption is pending")
    at_once = stay.preempted is not None and stay.warned is None and not stay.goes_with_pool
    if message.force and stay.working and at_once:
        raise Violation(f"{stay.machine} is preempted without a warning while Pods run on it")
    if stay.is_drain_forced and not message.force:
        raise Violation(f"{stay.machine} is drained for its Pods, and a command forces its drain")
    stay.phase = NodePhase.DRAINING


def _check_silence(facts: Facts, stay: Stay, origin: Origin) -> None:
    """A machine is given up for not answering only after all the time that it has for that."""
    if not stay.is_leaving(origin.cause):
        raise Violation(f"{stay.machine} is deleted without a request to remove it")
    if not _is_silent(facts, stay, origin):
        raise Violation(f"{stay.machine} is given up early, asked at {stay.asked}")
    stay.overdue = True


def _is_silent(facts: Facts, stay: Stay, origin: Origin) -> bool:
    """Return whether the time to answer is over, and in a drain the grace periods of its Pods.

    A machine that reports nothing more has no longer time for its Pods.
    """
    if stay.asked is None:
        return False
    now, silent_since = facts.times[origin.cause], stay.silent_since.as_of(origin.cause)
    if silent_since is not None and now - max(stay.asked, silent_since) >= health.ANSWER_MAX:
        return True
    known = stay.grace.as_of(origin.cause) if stay.phase is NodePhase.DRAINING else None
    return now - stay.asked >= (known or timedelta()) + health.ANSWER_MAX


def _check_deletion(facts: Facts, stay: Stay, origin: Origin) -> None:
    stay.overdue = stay.overdue or preemption.is_over(facts, stay, origin)
    if not stay.is_leaving(origin.cause):
        raise Violation(f"{stay.machine} is deleted without a request to remove it")
    restarts = stay.phase in RESTARTING
    if stay.is_registered and stay.phase != NodePhase.DRAINING and not (stay.overdue or restarts):
        raise Violation(f"{stay.machine} is deleted when {stay.phase}")
    begun = stay.in_progress or stay.overdue or stay.goes_with_pool or restarts
    if stay.is_preempted(origin.cause) and not begun:
        raise Violation(f"{stay.machine} is deleted for preemption early")
    if stay.working and not (stay.overdue or stay.phase is NodePhase.REBOOTING):
        raise Violation(f"{stay.machine} is deleted while Pods run on it")


def _lent(stay: Stay, origin: Origin, *, is_lent: bool) -> None:
    if stay.is_lent is is_lent:
        return
    stay.is_lent = is_lent
    stay.pool.lend(origin.position, 1 if is_lent else -1)
    if is_lent:
        stay.pool.returned.pop(stay.number, None)
    else:
        stay.pool.returned[stay.number] = origin.position


def _leave(facts: Facts, stay: Stay, origin: Origin, *, holder: str) -> None:
    _lent(stay, origin, is_lent=False)
    stay.pool.returned.pop(stay.number, None)
    stay.phase = NodePhase.DELETED
    stay.pool.departures.append(origin.position)
    stay.left = origin.position
    machine = facts.machines[stay.machine]
    machine.was_lost = holder == TRIAGE
    machine.hold(holder, origin.position)
