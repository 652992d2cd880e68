"""Rules for silent Nodes: which silence makes a Node unhealthy, and which does not.

* A Node is cordoned as NotReady only after it was silent for five minutes without a pause, and only
  after the service that observes it has confirmed that, when it was asked after that time.
* It is neither cordoned as NotReady nor replaced for that alone while most Nodes of its zone, or of
  its cluster, are silent: from 55 % on, and until there are fewer than half. Only then is its
  silence published as widespread.

From the log: what the lifecycle service had read when it decided.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from nodepool.contract.events import (
    CWNodeCordoned,
    CWNodeDeleted,
    NodeConditionChanged,
    NodeConditionReported,
    NodeReportRequested,
    NodeSilent,
)
from nodepool.contract.messages import Message
from nodepool.contract.model import NodePhase, RemovalReason
from support.audit.facts import Facts, Origin, Stay, Violation

UNHEALTHY_AFTER = timedelta(minutes=5)
"""How long a Node is silent until it is unhealthy."""
FEW = 3
"""Fewer silent Nodes than this are no fault of their zone."""
MOST = 0.55
"""The share of silent Nodes from which on the fault is that of their zone."""
HALF = 0.5
"""The share of silent Nodes from which on the fault remains that of their zone."""
Report = NodeConditionChanged | NodeConditionReported


def check(facts: Facts, message: Message, origin: Origin) -> None:
    """Checks and notes an event about a Node that is silent, or may be."""
    match message:
        case NodeConditionChanged(type="Ready") | NodeConditionReported(type="Ready"):
            _note(facts, facts.reported_stay(message, message.assignment), message, origin)
        case NodeSilent(is_widespread=True):
            stay = facts.stay(message)
            if not any(is_silent(facts, area, origin.cause, HALF) for area in areas_of(stay)):
                raise Violation(f"{stay.machine} is excused, and most Nodes around it answer")
        case NodeReportRequested(request=request):
            stay = facts.stay(message)
            since = stay.silent_since.as_of(origin.cause)
            if since is None:
                raise Violation(f"{stay.machine} is asked and is not silent")
            if facts.times[origin.cause] - since < UNHEALTHY_AFTER:
                raise Violation(f"{stay.machine} is asked after too short a silence")
            stay.asked_as = request
        case CWNodeCordoned(cause=cause) if "NotReady" in cause.split(","):
            _check(facts, facts.stay(message), origin, "is cordoned as NotReady")
        case CWNodeDeleted(removal=RemovalReason.UNHEALTHY) if "NotReady" in message.message:
            _check(facts, facts.stay(message), origin, "is replaced as NotReady")
        case _:
            pass


def _note(facts: Facts, stay: Stay, report: Report, origin: Origin) -> None:
    if report.status != "Unknown":
        stay.silent_since.add(origin.position, None)
        stay.confirmed.add(origin.position, False)
        return
    before = stay.silent_since.as_of(origin.position)
    if before is None:
        stay.silent_since.add(origin.position, facts.times[origin.position])
    elif report.request and report.request == stay.asked_as:
        stay.confirmed.add(origin.position, True)


def _check(facts: Facts, stay: Stay, origin: Origin, what: str) -> None:
    since = stay.silent_since.as_of(origin.cause)
    if since is None or facts.times[origin.cause] - since < UNHEALTHY_AFTER:
        raise Violation(f"{stay.machine} {what}, and is silent since {since}")
    if not stay.confirmed.as_of(origin.cause):
        raise Violation(f"{stay.machine} {what}, which nobody has confirmed")
    for area in areas_of(stay):
        if is_silent(facts, area, origin.cause):
            raise Violation(f"{stay.machine} {what}, while most Nodes of {area} are silent")


def areas_of(stay: Stay) -> tuple[str, str]:
    """The zone and the cluster of a Node."""
    return stay.machine.partition("/")[0], stay.pool.key.rpartition("/")[0]


def is_silent(facts: Facts, area: str, position: int, share: float = MOST) -> bool:
    """Whether so many Nodes of a zone or of a cluster were silent at this position."""
    silent = [each is not None for each in _silences(facts, area, position)]
    return sum(silent) >= max(FEW, share * len(silent))


def _silences(facts: Facts, area: str, position: int) -> Iterator[datetime | None]:
    """Since when each Node of a zone or a cluster is silent; None for each that is not."""
    for stay in facts.stays.values():
        if area in areas_of(stay) and stay.phase not in (NodePhase.BOOTING, NodePhase.DELETED):
            restarts = stay.phase in (NodePhase.REBOOTING, NodePhase.VERIFYING)
            yield None if restarts else stay.silent_since.as_of(position)
