"""What metrics show of the fleet once it is quiet, computed from all of the log at once.

No rule that always holds was broken, whatever the services went through. Each event that is counted
was counted once, and so was each second in which a Node could not be used.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from aggregator.read_model import ReadModel
from aggregator.state import State
from nodepool.contract import metrics
from nodepool.contract.events import (
    CWDrainNode,
    CWNodeCordoned,
    CWNodeDeleted,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    CWNodeUncordoned,
    NodeActivityChanged,
    NodePreempted,
    NodeReservationChanged,
    NodeUpdated,
    PreemptionPending,
)
from nodepool.contract.messages import OfNode
from nodepool.contract.metrics import Histogram, Metric
from nodepool.contract.model import NodePhase, RemovalReason
from nodepool.engine.world import World
from support.audit.facts import TRIAGE, Facts
from support.grown import from_nothing, grown
from support.reference.history import History

Shown = Mapping[Metric, Mapping[tuple[str, ...], float | Histogram]]
"""The series of each metric by their labels."""


@dataclass
class Stay:
    """A Node as far as it can be used.

    since: from when on it cannot; None while it can.
    lost: for how long it could not, before that.
    lent: whether it is reserved for the control plane, and neither active nor idle.
    """

    key: str
    registered: bool = False
    active: bool = False
    lent: bool = False
    cordoned: bool = False
    phase: NodePhase = NodePhase.BOOTING
    removal: RemovalReason | None = None
    since: datetime | None = None
    lost: timedelta = timedelta()

    def follow(self, message: OfNode, now: datetime) -> None:
        """Takes the next message about it."""
        match message:
            case CWNodeRegistered(phase=phase):
                self.registered, self.phase = True, phase
            case NodeUpdated(phase=phase, removal=removal):
                self.phase, self.removal = phase, removal
            case NodeActivityChanged(active=active):
                self.active = active
            case NodeReservationChanged(usable=usable):
                self.lent = not usable
            case CWDrainNode():
                self.phase = NodePhase.DRAINING
            case CWNodeCordoned() | CWNodeUncordoned():
                self.cordoned = isinstance(message, CWNodeCordoned)
            case CWNodeDeleted() | CWNodeRegistrationFailed():
                self.registered = False
        is_usable = not self.registered or not (
            self.cordoned
            or self.removal is RemovalReason.PREEMPTED
            or self.phase in (NodePhase.REBOOTING, NodePhase.VERIFYING)
        )
        if is_usable and self.since is not None:
            self.lost, self.since = self.lost + (now - self.since), None
        elif not is_usable and self.since is None:
            self.since = now


def faults(world: World, history: History, facts: Facts) -> Iterator[str]:
    """Each figure that is not what the log makes it, as a sentence."""
    yield from _first_counts(world)
    shown = _shown(world)
    for (rule,), count in shown.get(metrics.INVARIANT_VIOLATIONS, {}).items():
        position = shown[metrics.INVARIANT_LAST_POSITION][rule,]
        yield f"the rule {rule} was broken {count} times, last at {position}"
    yield from _events(shown, history)
    yield from _stays(shown, history)
    yield from _reserved(world, facts)
    triage = sum(machine.holder == TRIAGE for machine in facts.machines.values())
    yield from _compared("machines in triage", _total(shown, metrics.MACHINES, triage=True), triage)


def _shown(world: World) -> Shown:
    shown: dict[Metric, dict[tuple[str, ...], float | Histogram]] = {}
    for service in world.services:
        for metric, labels, value in grown(service.samples(world.state(service.name))):
            shown.setdefault(metric, {})[labels] = value
    return shown


def _first_counts(world: World) -> Iterator[str]:
    """Each counter that was not there before its first count."""
    for service in world.services:
        state = world.state(service.name)
        before = service.initial
        if isinstance(state, State):
            before = State(ReadModel(capacity=state.read_model.capacity))
        for metric, labels in from_nothing(service.samples(state), service.samples(before)):
            yield f"the counter {metric.name} of {', '.join(labels)} did not begin at 0"


def _total(shown: Shown, metric: Metric, *, triage: bool = False) -> float:
    """The sum of a metric over its series; of a histogram, of how many it counts."""
    series = shown.get(metric, {}).items()
    chosen = (item for labels, item in series if not triage or labels[-1])
    return sum(sum(item.counts) if isinstance(item, Histogram) else item for item in chosen)


def _events(shown: Shown, history: History) -> Iterator[str]:
    messages = [stored.message for stored in history.messages]
    counts = Counter(type(message) for message in messages)
    begun = {
        message.assignment
        for message in messages
        if isinstance(message, NodePreempted | PreemptionPending)
    }
    deleted = counts[CWNodeDeleted]
    for metric, count in (
        (metrics.NODE_JOIN, counts[CWNodeRegistered]),
        (metrics.NODE_REMOVALS, deleted),
        (metrics.REMOVED_NODE_AGE, deleted),
        (metrics.PREEMPTIONS, len(begun)),
    ):
        yield from _compared(metric.name, _total(shown, metric), count)


def _stays(shown: Shown, history: History) -> Iterator[str]:
    stays: dict[int, Stay] = {}
    for stored in history.messages:
        message = stored.message
        if isinstance(message, OfNode):
            stay = stays.setdefault(message.assignment, Stay(message.key))
            stay.follow(message, stored.time)
    lost = sum((stay.lost for stay in stays.values()), timedelta()).total_seconds()
    shown_s = _total(shown, metrics.LOST_NODE_SECONDS)
    if abs(lost - shown_s) > 0.001:
        yield f"{shown_s} seconds of Nodes were lost as shown, and {lost} were"
    there = [stay for stay in stays.values() if stay.registered]
    for stay in there:
        if stay.cordoned and stay.phase is NodePhase.PRODUCTION:
            yield f"a Node of {stay.key} is in production, and the end of its cordon is unpublished"
    unhealthy = Counter(stay.key for stay in there if stay.cordoned)
    preempting = Counter(s.key for s in there if s.removal is RemovalReason.PREEMPTED)
    active = Counter(stay.key for stay in there if stay.active and not stay.lent)
    idle = Counter(stay.key for stay in there if not (stay.active or stay.lent))
    for metric, counted in (
        (metrics.ACTIVE_NODES, active),
        (metrics.IDLE_NODES, idle),
        (metrics.UNHEALTHY_NODES, unhealthy),
        (metrics.PREEMPTING_NODES, preempting),
    ):
        yield from _compared(metric.name, _by_pool(shown, metric), dict(counted))


def _by_pool(shown: Shown, metric: Metric) -> dict[str, float]:
    counts: Counter[str] = Counter()
    for labels, value in shown.get(metric, {}).items():
        assert not isinstance(value, Histogram)
        counts["/".join(labels[:3])] += int(value)
    return {pool: count for pool, count in counts.items() if count}


def _reserved(world: World, facts: Facts) -> Iterator[str]:
    state = world.state("aggregator")
    assert isinstance(state, State)
    ledgers = {pool.ledger for pool in facts.existing_pools()}
    counted = {"/".join(ledger): facts.reserved(ledger) for ledger in ledgers}
    reserved = {str(key): count for key, count in state.figures.limits.reserved.items()}
    yield from _compared("reserved", reserved, {k: n for k, n in counted.items() if n})


def _compared(name: str, shown: object, counted: object) -> Iterator[str]:
    if shown != counted:
        yield f"{name}: {shown} are shown, and {counted} there are"
