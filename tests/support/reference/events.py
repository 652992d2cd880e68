"""Events as a second specification: what is said once, what has to be said, and what never is.

* An event is not said again while nothing changed: the same reason and message for the same
  NodePool need a new verdict, a new generation or a new limit in between.
* Warnings about quota follow the reason, the generation and the limit, not each number.
* A lack of machines is warned of once for a reason and a number of Nodes that are wanted in all,
  and again when it is worse than at each of these warnings.
* A setting that cannot be delivered is warned of once, and again after it was mended.
* No service fails on what another one says, and no version of the future is accepted.

From the log: what the speaker of an event had read when it said it.
"""

from collections import Counter
from collections.abc import Iterator

from nodepool.contract.commands import ApplyNodePool, ScaleNodePool
from nodepool.contract.conditions import Capacity, Quota
from nodepool.contract.events import (
    AllocationFailed,
    CapacityChecked,
    CapacityCheckFailed,
    CommandAccepted,
    CWInsufficientCapacity,
    CWNodeDeliverFail,
    CWNodePoolDeleted,
    CWOverQuota,
    KubernetesEvent,
    NodePoolDeleting,
    NodePoolValidated,
    NodeUpdateFailed,
    QuotaChecked,
    QuotaCheckFailed,
    QuotaDeleted,
    QuotaSet,
)
from nodepool.contract.messages import OfPool
from support.constants import INJECTED
from support.reference.history import History

SPEAKERS = ("validator", "quota", "capacity", "allocator", "lifecycle")
FAILURES = (AllocationFailed, CapacityCheckFailed, NodeUpdateFailed, QuotaCheckFailed)
"""What a service says of each failure; a failure of the same cause is no change."""


def faults(history: History) -> Iterator[str]:
    """Everything that was said and should not have been, or the other way round."""
    for service, position, cause in history.failed:
        if INJECTED not in cause:
            yield f"{service} cannot process the entry {position}: {cause}"
    for speaker in SPEAKERS:
        yield from _repeated(history, speaker)
    yield from _over_quota(history)
    yield from _lacks(history)
    yield from _undeliverable(history)
    yield from _versions(history)


def _repeated(history: History, speaker: str) -> Iterator[str]:
    """Warnings about a NodePool as a whole that repeat the last one of their kind."""
    last: dict[tuple[str, str], tuple[str, int]] = {}
    changes: Counter[str] = Counter()
    for stored in history.seen_by(speaker):
        event = stored.message
        if isinstance(event, QuotaSet | QuotaDeleted):
            changes[""] += 1
        is_own = stored.speaker == speaker
        if isinstance(event, KubernetesEvent) and is_own and event.severity == "Warning":
            if not event.node:
                place = event.key, type(event).__name__
                now = event.message, changes[event.key] + changes[""]
                if last.get(place) == now:
                    text = f"{place[1]} is repeated: {event.message}"
                    yield f"{event.key} at {stored.position}: {text}"
                last[place] = now
        elif (
            isinstance(event, OfPool)
            and not isinstance(event, FAILURES)
            and (is_own or isinstance(event, NodePoolValidated | CWNodePoolDeleted))
        ):
            changes[event.key] += 1


def _over_quota(history: History) -> Iterator[str]:
    """Each reason that is not good is warned of once for a generation and a limit."""
    about: dict[str, tuple[object, ...]] = {}
    warned: dict[str, tuple[object, ...]] = {}
    owed: dict[str, str] = {}
    for stored in history.seen_by("quota"):
        event = stored.message
        if isinstance(event, CWNodePoolDeleted | NodePoolDeleting):
            for known in (about, warned, owed):
                known.pop(event.key, None)
        elif isinstance(event, QuotaChecked):
            about[event.key] = event.generation, event.reason, event.limit
            if event.reason is Quota.UNDER:
                warned.pop(event.key, None)
                owed.pop(event.key, None)
            elif event.reason not in warned.get(event.key, ()):
                owed[event.key] = event.message
        elif isinstance(event, CWOverQuota):
            if warned.get(event.key) == about.get(event.key):
                yield f"{event.key} at {stored.position}: CWOverQuota is said for a number"
            warned[event.key] = about.get(event.key, ())
            owed.pop(event.key, None)
    for key, message in owed.items():
        yield f"{key} has no CWOverQuota: {message}"


def _lacks(history: History) -> Iterator[str]:
    """Each lack of machines is warned of that is worse than each one that was warned of before."""
    targets: dict[tuple[str, int], int] = {}
    warned: dict[str, dict[tuple[int, Capacity], int]] = {}
    owed: dict[str, tuple[int, CapacityChecked]] = {}
    for stored in history.seen_by("capacity"):
        match event := stored.message:
            case NodePoolValidated(key=key, generation=generation):
                targets[key, generation] = event.spec.target
            case CWNodePoolDeleted(key=key) | NodePoolDeleting(key=key):
                warned.pop(key, None)
                owed.pop(key, None)
            case CapacityChecked(key=key, reason=reason):
                owed.pop(key, None)
                wanted = min(event.granted, targets[key, event.generation])
                if reason is Capacity.SUFFICIENT:
                    warned.pop(key, None)
                elif _lack(event) > warned.get(key, {}).get((wanted, reason), 0):
                    owed[key] = wanted, event
            case CWInsufficientCapacity(key=key) if key not in owed:
                yield f"{key} at {stored.position}: CWInsufficientCapacity is said for a number"
            case CWInsufficientCapacity(key=key):
                wanted, verdict = owed.pop(key)
                before = {
                    each: most for each, most in warned.get(key, {}).items() if wanted in each
                }
                warned[key] = {**before, (wanted, verdict.reason): _lack(verdict)}
            case _:
                pass
    for pool, (_, verdict) in owed.items():
        yield f"{pool} has no CWInsufficientCapacity: {verdict.message}"


def _lack(verdict: CapacityChecked) -> int:
    """Return how many wanted Nodes cannot be had."""
    return verdict.wanted - verdict.available


def _undeliverable(history: History) -> Iterator[str]:
    """A NodePool's settings are warned of when they become wrong, or wrong in another way."""
    owed: dict[str, str] = {}
    warned: dict[str, str] = {}
    for stored in history.seen_by("allocator"):
        event = stored.message
        match event:
            case NodePoolValidated(key=key, fault="Settings") if event.message != warned.get(key):
                owed[key] = event.message
            case NodePoolValidated(key=key, fault="Settings"):
                owed.pop(key, None)  # It was wrong in another way while the allocator failed.
            case NodePoolValidated(key=key) | CWNodePoolDeleted(key=key):
                owed.pop(key, None)
                warned.pop(key, None)
            case CWNodeDeliverFail(node="", key=key):
                if key not in owed:
                    yield f"{key} at {stored.position}: CWNodeDeliverFail is repeated"
                warned[key] = owed.pop(key, "")
            case _:
                pass
    for pool, text in owed.items():
        yield f"{pool} has no CWNodeDeliverFail: {text}"


def _versions(history: History) -> Iterator[str]:
    """No command was made from a version that did not exist yet."""
    for stored in history.messages:
        if isinstance(stored.message, CommandAccepted):
            command = history.command_at(stored.cause)
            version: str | None = None
            if isinstance(command, ApplyNodePool):
                version = command.metadata.resource_version
            elif isinstance(command, ScaleNodePool):
                version = command.resource_version
            if version is not None and int(version) >= stored.cause:
                yield f"the version {version} is from the future at {stored.cause}"
