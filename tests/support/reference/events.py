"""Events as a second specification: what is said once, what has to be said, and what never is.

* An event is not said again while nothing changed: the same reason and message for the same
  NodePool need a new verdict, a new generation or a new limit in between.
* Warnings about quota and capacity follow the reason, the generation and the limit, not each number.
* A setting that cannot be delivered is warned of once, and again after it was mended.
* Each deletion that removes Nodes announces it; nothing warns of a NodePool that is being deleted.
* The last event of a preemption follows from the preemption, not from a removal before it.
* No service fails on what another one says.

From the log: what the speaker of an event had read when it said it.
"""

from collections import Counter
from collections.abc import Iterator

from nodepool.contract.commands import ApplyNodePool, PreemptNode, ScaleNodePool
from nodepool.contract.events import (
    CapacityChecked,
    CommandAccepted,
    CommandRefused,
    CWInsufficientCapacity,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodeDeletionRequestSuccess,
    CWNodeDeliverFail,
    CWNodePoolDeleted,
    CWNodePoolNodesRemoved,
    CWNodePoolRemoveNodes,
    CWNodePoolScaledDown,
    CWNodePoolScaledUp,
    CWNodeRegistered,
    CWNodeRegistrationFailed,
    CWNodeRequestQueued,
    CWOverQuota,
    DeletedForPreemption,
    GrantAcknowledged,
    KubernetesEvent,
    NodePoolDeleting,
    NodePoolValidated,
    NodePreempted,
    NodeUpdated,
    PreemptionPending,
    QuotaChecked,
    QuotaDeleted,
    QuotaSet,
)
from nodepool.contract.messages import OfPool
from nodepool.contract.model import RemovalReason
from support.reference.history import History, Said
from support.simulation.bugs import INJECTED

SPEAKERS = ("validator", "quota", "capacity", "allocator", "lifecycle")
GROWTH = (CWNodeRequestQueued, CWNodePoolScaledUp, CWNodePoolScaledDown, CWNodeDeliverFail)
"""What is never said of a NodePool that is being deleted."""


def faults(history: History) -> Iterator[str]:
    """Everything that was said and should not have been, or the other way round."""
    for service, position, cause in history.failed:
        if INJECTED not in cause:
            yield f"{service} cannot process the entry {position}: {cause}"
    for speaker in SPEAKERS:
        yield from _repeated(history, speaker)
    yield from _warnings(history, "quota", QuotaChecked, CWOverQuota)
    yield from _warnings(history, "capacity", CapacityChecked, CWInsufficientCapacity)
    yield from _undeliverable(history)
    yield from _deletions(history)
    yield from _reasons(history)
    yield from _preemptions(history)
    yield from _versions(history)


def _repeated(history: History, speaker: str) -> Iterator[str]:
    """Warnings about a NodePool as a whole that repeat the last one of their kind."""
    last: dict[tuple[str, str], tuple[str, int]] = {}
    changes: Counter[str] = Counter()
    for said in history.seen_by(speaker):
        event = said.message
        if isinstance(event, QuotaSet | QuotaDeleted):
            changes[""] += 1
        is_own = said.speaker == speaker
        if isinstance(event, KubernetesEvent) and is_own and event.severity == "Warning":
            if not event.node:
                place = event.key, type(event).__name__
                now = event.message, changes[event.key] + changes[""]
                if last.get(place) == now:
                    yield f"{event.key} at {said.position}: {place[1]} is repeated: {event.message}"
                last[place] = now
        elif isinstance(event, OfPool) and (
            is_own or isinstance(event, NodePoolValidated | CWNodePoolDeleted)
        ):
            changes[event.key] += 1


def _warnings(
    history: History,
    speaker: str,
    verdict: type[QuotaChecked | CapacityChecked],
    warning: type[KubernetesEvent],
) -> Iterator[str]:
    """Each reason that is not good is warned of once for a generation and a limit."""
    about: dict[str, tuple[object, ...]] = {}
    warned: dict[str, tuple[object, ...]] = {}
    owed: dict[str, str] = {}
    for said in history.seen_by(speaker):
        event = said.message
        if isinstance(event, CWNodePoolDeleted | NodePoolDeleting):
            for known in (about, warned, owed):
                known.pop(event.key, None)
        elif isinstance(event, verdict):
            good = event.reason in ("Under", "Sufficient")
            limit = event.limit if isinstance(event, QuotaChecked) else event.granted
            about[event.key] = event.generation, event.reason, limit
            if good:
                warned.pop(event.key, None)
                owed.pop(event.key, None)
            elif event.reason not in warned.get(event.key, ()):
                owed[event.key] = event.message
        elif isinstance(event, warning):
            if warned.get(event.key) == about.get(event.key):
                yield f"{event.key} at {said.position}: {warning.__name__} is said for a number"
            warned[event.key] = about.get(event.key, ())
            owed.pop(event.key, None)
    for key, message in owed.items():
        yield f"{key} has no {warning.__name__}: {message}"


def _undeliverable(history: History) -> Iterator[str]:
    """A NodePool's settings are warned of when they become wrong, or wrong in another way."""
    wrong: dict[str, str] = {}
    owed: dict[str, str] = {}
    for said in history.seen_by("allocator"):
        event = said.message
        match event:
            case NodePoolValidated():
                text = event.message if event.fault == "Settings" else ""
                if text and wrong.get(event.key) != text:
                    owed[event.key] = text
                wrong[event.key] = text
            case CWNodePoolDeleted():
                wrong.pop(event.key, None)
                owed.pop(event.key, None)
            case CWNodeDeliverFail(node=""):
                if owed.pop(event.key, None) is None:
                    yield f"{event.key} at {said.position}: CWNodeDeliverFail is repeated"
            case _:
                pass
    for key, text in owed.items():
        yield f"{key} has no CWNodeDeliverFail: {text}"


def _deletions(history: History) -> Iterator[str]:
    """A deletion is announced where there are Nodes, gives back the grant, and warns of nothing."""
    members: Counter[str] = Counter()
    deleting: dict[str, bool] = {}
    granted: dict[str, Said] = {}
    for said in history.seen_by("allocator"):
        event = said.message
        if granted and said.speaker != "allocator":
            yield from (f"{key} keeps its grant at {at.position}" for key, at in granted.items())
            granted.clear()
        match event:
            case CWNodeAssigned():
                members[event.key] += 1
            case CWNodeDeleted() | CWNodeRegistrationFailed():
                members[event.key] -= 1
            case NodePoolDeleting():
                deleting[event.key] = members[event.key] > 0
                granted[event.key] = said
            case GrantAcknowledged(granted=0):
                granted.pop(event.key, None)
            case CWNodePoolRemoveNodes() if event.key in deleting:
                deleting[event.key] = False
            case CWNodePoolNodesRemoved(removal=RemovalReason.POOL_DELETED):
                if deleting.get(event.key):
                    yield f"{event.key} is emptied at {said.position} without CWNodePoolRemoveNodes"
            case CWNodePoolDeleted():
                deleting.pop(event.key, None)
                members.pop(event.key, None)
            case _ if isinstance(event, GROWTH) and event.key in deleting:
                yield f"{event.key} is being deleted at {said.position}: {event.message}"
            case _:
                pass


def _reasons(history: History) -> Iterator[str]:
    """A Node of a deleted NodePool shows that as the reason; no two taints are alike."""
    chosen: dict[int, RemovalReason] = {}
    shown: dict[int, RemovalReason | None] = {}
    for said in history.seen_by("lifecycle"):
        event = said.message
        if isinstance(event, CWNodeRegistered | NodeUpdated):
            shown[event.assignment] = getattr(event, "removal", None)
            taints = Counter((taint.key, taint.effect) for taint in event.taints)
            for taint, count in taints.items():
                if count > 1:
                    yield f"{event.node} at {said.position} has the taint {taint} {count} times"
        elif isinstance(event, CWNodeDeletionRequestSuccess):
            chosen[event.assignment] = event.removal
        elif isinstance(event, CWNodeDeleted) and event.registered:
            reason = shown.get(event.assignment)
            is_deleted = chosen.get(event.assignment) is RemovalReason.POOL_DELETED
            if is_deleted and reason in (None, RemovalReason.SCALE_DOWN):
                yield f"{event.node} at {said.position} goes with its NodePool and shows {reason}"


def _preemptions(history: History) -> Iterator[str]:
    """Every spot Node may be preempted, and its last event tells why it left."""
    preempted: set[int] = set()
    left: dict[str, bool] = {}
    for said in history.seen_by("lifecycle"):
        event = said.message
        if isinstance(event, PreemptionPending | NodePreempted):
            preempted.add(event.assignment)
        elif isinstance(event, CWNodeDeleted):
            left[f"{event.key}/{event.node}"] = event.assignment in preempted
    for said in history.messages:
        event = said.message
        if isinstance(event, DeletedForPreemption) and not left.get(f"{event.key}/{event.node}"):
            yield f"{event.node} at {said.position} was not deleted for its preemption"
    spot: dict[str, str] = {}
    versions: dict[str, NodePoolValidated] = {}
    for said in history.seen_by("preemption"):
        event = said.message
        match event:
            case NodePoolValidated():
                versions[event.key] = event
            case CWNodeAssigned():
                if versions[event.key].spec.compute_class == "spot":
                    spot[f"{event.org}/{event.cluster}/{event.node}"] = event.key
            case CWNodeDeleted() | CWNodeRegistrationFailed():
                spot.pop(f"{event.org}/{event.cluster}/{event.node}", None)
            case CommandRefused(command="PreemptNode", reason="NotFound"):
                command = _command(history, said.cause)
                if isinstance(command, PreemptNode):
                    node = f"{command.org}/{command.cluster}/{command.node}"
                    if spot.get(node) == command.key:
                        yield f"{node} at {said.position} is a spot Node: {event.message}"
            case _:
                pass


def _versions(history: History) -> Iterator[str]:
    """No command was made from a version that did not exist yet."""
    for said in history.messages:
        if isinstance(said.message, CommandAccepted):
            command = _command(history, said.cause)
            version: str | None = None
            if isinstance(command, ApplyNodePool):
                version = command.metadata.resource_version
            elif isinstance(command, ScaleNodePool):
                version = command.resource_version
            if version is not None and int(version) >= said.cause:
                yield f"the version {version} is from the future at {said.cause}"


def _command(history: History, position: int) -> object:
    said = history.by_position.get(position)
    return said.message if said is not None and said.speaker == "cmd" else None
