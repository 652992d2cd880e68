"""Rules for the health of Nodes: none is cordoned, rebooted or replaced without a cause.

* A Node that stays is cordoned for a problem that was reported, or because a command asked for it.
* It is rebooted once nothing runs there, unless a command forces it.
* A drain that a command forces waits for no Pod.
* Its last boot is verified before it is in production, if its machine says that this is due.
* A problem that a reboot cures may end up to ten minutes after the boot; no Node that reboots or is
  verified is replaced for such a problem before.
* It is replaced for a problem where its NodePool or a command allows that, or because a reboot or a
  verification failed or took too long, or it did not answer for as long as any machine may take.
"""

from datetime import datetime, timedelta

from nodepool.contract.events import (
    CWNodeCordoned,
    CWNodeDeleted,
    MachineBooted,
    MachineFailed,
    NodeActionRequested,
    NodeConditionChanged,
    NodeConditionReported,
    NodeUpdated,
    NodeVerified,
)
from nodepool.contract.health import BY_TYPE, Remedy, is_problem
from nodepool.contract.messages import Message
from nodepool.contract.model import NodePhase
from nodepool.contract.phases import RESTARTING
from support.audit.facts import Facts, Origin, Stay, Violation

ANSWER_MAX = timedelta(minutes=30)
"""How long a machine may take to answer a cordon or a drain, or to reboot."""
SETTLES_WITHIN = timedelta(minutes=10)
"""How long after a boot a problem that the reboot cures may last."""


def note(facts: Facts, message: Message, origin: Origin) -> None:
    """Notes what is reported of the health of a Node, and what was asked for it."""
    match message:
        case NodeConditionChanged() | NodeConditionReported():
            stay = facts.reported_stay(message, message.assignment)
            problems = dict(stay.problems.as_of(origin.position) or {})
            begins = is_problem(message.type, message.status)
            if begins and not problems.get(message.type):
                stay.began[message.type] = facts.times[origin.position]
            problems[message.type] = begins
            stay.problems.add(origin.position, problems)
            stay.was_unhealthy = stay.was_unhealthy or problems[message.type]
        case NodeActionRequested(drain=drain):
            stay = facts.stay(message)
            stay.asked_for, stay.was_asked = message, True
            stay.is_drain_forced = drain == "forced"
        case MachineFailed(boot=boot) if boot:
            facts.reported_stay(message, message.assignment).failed_again = True
        case MachineBooted(verifying=verifies, boot=boot):
            stay = facts.reported_stay(message, message.assignment)
            stay.is_unverified = verifies
            stay.rebooted = facts.times[origin.position] if boot else None
        case NodeVerified(passed=passed):
            stay = facts.reported_stay(message, message.assignment)
            stay.failed_again = stay.failed_again or not passed
            stay.is_unverified = stay.is_unverified and not passed
        case _:
            pass


def check_update(facts: Facts, stay: Stay, event: NodeUpdated, origin: Origin) -> None:
    """Checks a Node that is to look otherwise from now on."""
    phase = event.phase
    if phase is NodePhase.PRODUCTION and stay.phase is not phase and stay.is_unverified:
        raise Violation(f"{stay.machine} is in production before it is verified")
    is_leaving = stay.is_leaving(origin.cause)
    # Whether the others of its rack are a cause is checked once all is quiet.
    of_rack = any("RackUnavailable" in text for text in event.annotations.values())
    has_cause = is_leaving or stay.was_unhealthy or stay.was_asked or of_rack
    if phase is NodePhase.CORDONED and not has_cause:
        raise Violation(f"{stay.machine} is cordoned without a cause")
    if phase is NodePhase.REBOOTING and stay.phase is not phase:
        asked = stay.asked_for
        if stay.working and not (asked is not None and asked.reboot == "forced"):
            raise Violation(f"{stay.machine} is rebooted while Pods run on it")
        if not (asked is not None and asked.reboot) and not stay.has_problem(origin.cause):
            raise Violation(f"{stay.machine} is rebooted without a cause")
        stay.is_drain_forced = False
        stay.working, stay.was_forced = False, stay.was_forced or bool(asked and asked.reboot)
    if phase in RESTARTING and stay.phase is not phase:
        stay.restarting_since = facts.times[origin.position]


def check_replaced(facts: Facts, stay: Stay, event: CWNodeDeleted, origin: Origin) -> None:
    """Checks a Node that is deleted as unhealthy."""
    now = facts.times[origin.cause]
    if stay.failed_again:
        return
    version = stay.pool.versions.as_of(origin.cause)
    assert version is not None, "a Node has a NodePool"
    evicts = not version.spec.lifecycle.disable_unhealthy_node_eviction
    asked = stay.asked_for
    is_asked = asked is not None and bool(asked.drain)
    since = stay.restarting_since if stay.phase in RESTARTING else stay.asked
    if since is not None and now - since >= ANSWER_MAX:
        is_treated = evicts or is_asked or bool(asked and asked.reboot)
        is_silent = stay.silent_since.as_of(origin.cause) is not None
        has_answered = stay.phase is NodePhase.CORDONED and stay.answered.as_of(origin.cause)
        if has_answered and not (is_silent and is_treated):
            raise Violation(f"{stay.machine} is given up, though it answered its cordon")
        return
    if not stay.has_problem(origin.cause):
        raise Violation(f"{stay.machine} is replaced and has no problem: {event.message}")
    if not (evicts or is_asked):
        raise Violation(f"{stay.machine} is replaced, which its NodePool does not allow")
    if stay.working:
        raise Violation(f"{stay.machine} is replaced while Pods run on it")
    if stay.phase in RESTARTING and _may_be_cured(stay, origin, now):
        raise Violation(f"{stay.machine} is replaced for a problem that its reboot may have cured")


def check_cordoned(facts: Facts, stay: Stay, event: CWNodeCordoned, origin: Origin) -> None:
    """Checks the causes of a cordon."""
    now, since = facts.times[origin.cause], stay.restarting_since
    is_late = since is not None and now - since >= ANSWER_MAX
    if event.triage and not is_late and _may_be_cured(stay, origin, now):
        raise Violation(f"{stay.machine} needs triage for a problem that its reboot may have cured")


def _may_be_cured(stay: Stay, origin: Origin, now: datetime) -> bool:
    """Whether each problem of a Node that has just rebooted is one that the reboot may cure."""
    rebooted = stay.rebooted
    if rebooted is None or now - rebooted >= SETTLES_WITHIN:
        return False
    problems = stay.problems.as_of(origin.cause) or {}
    left = [type_ for type_, lasts in problems.items() if lasts]
    return all(
        BY_TYPE[type_].remedy is not Remedy.TRIAGE and stay.began[type_] < rebooted
        for type_ in left
    )
