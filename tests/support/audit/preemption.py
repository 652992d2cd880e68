"""Rules for preemption: spot Nodes only, one warning, and no step before its time."""

from datetime import timedelta

from nodepool.contract.events import (
    CommandAccepted,
    NodePreempted,
    PreemptionInProgress,
    PreemptionPending,
)
from nodepool.contract.messages import Message
from nodepool.contract.model import ComputeClass
from support.audit.facts import Facts, Origin, Stay, Violation

WARNING = timedelta(minutes=2)
"""From the warning to the drain."""
WINDOW = timedelta(minutes=7)
"""From the warning to the deletion of the Node, drained or not."""


PUBLISHED_WITHIN = timedelta(seconds=1)
"""From the moment that a warning names to its own time in the log."""


def check(facts: Facts, message: Message, origin: Origin) -> None:
    """Checks and notes a step of a preemption."""
    match message:
        case CommandAccepted(command="AcknowledgePreemption", dry_run=False):
            node = facts.acknowledgements[origin.cause]
            facts.acknowledged["/".join(message.path), node] = origin.cause
        case PreemptionPending():
            _warned(facts, message, origin)
        case NodePreempted():
            stay = facts.stay(message)
            stay.preempted = (origin.position, facts.times[origin.position])
            facts.preempted[message.assignment] = stay
        case PreemptionInProgress():
            stay = facts.stay(message)
            if not _is_acknowledged(facts, stay):
                _check_time(facts, stay, origin, WARNING)
            stay.in_progress = True


def _warned(facts: Facts, message: PreemptionPending, origin: Origin) -> None:
    stay, late = facts.stay(message), facts.times[origin.position] - message.since
    if not timedelta() <= late <= PUBLISHED_WITHIN:
        raise Violation(f"the warning of {stay.machine} is published {late} after its moment")
    if stay.warned is not None:
        raise Violation(f"{stay.machine} is warned twice")
    if stay.pool.spec.compute_class is not ComputeClass.SPOT:
        raise Violation(f"{stay.machine} is preempted and is not a spot Node")
    if stay.pool.is_deleting(origin.cause):
        raise Violation(f"{stay.machine} is warned, and goes with its NodePool")
    stay.warned = (origin.position, message.since)
    facts.preempted[message.assignment] = stay


def _is_acknowledged(facts: Facts, stay: Stay) -> bool:
    """Return whether a command asked for the drain during this stay, even before the warning."""
    return facts.acknowledged.get((stay.pool.key, stay.machine.rpartition("/")[2]), 0) > stay.batch


def _check_time(facts: Facts, stay: Stay, origin: Origin, after: timedelta) -> None:
    if not _has_come(facts, stay, origin, after):
        raise Violation(f"the preemption of {stay.machine} moves on early")


def _has_come(facts: Facts, stay: Stay, origin: Origin, after: timedelta) -> bool:
    begun = stay.warned or stay.preempted
    return begun is not None and facts.times[origin.cause] - begun[1] >= after


def is_over(facts: Facts, stay: Stay, origin: Origin) -> bool:
    """Whether the Node is preempted and goes now, whatever runs there."""
    return _has_come(facts, stay, origin, WINDOW)
