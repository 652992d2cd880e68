"""Departures as a second specification: what is said of Nodes and NodePools that go.

* Each deletion that removes Nodes announces it, and gives back the grant in the same step; nothing
  warns of a NodePool that is being deleted.
* A Node that goes with its NodePool shows that as its reason. No two taints of a Node are alike.
* The last event of a preemption follows from the preemption, not from a removal before it, and
  every spot Node may be preempted.

From the log: what the speaker of an event had read when it said it.
"""

from collections import Counter
from collections.abc import Iterator

from nodepool.contract.commands import PreemptNode
from nodepool.contract.events import (
    AllocationFailed,
    CommandRefused,
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
    DeletedForPreemption,
    GrantAcknowledged,
    NodePoolDeleting,
    NodePreempted,
    NodeUpdated,
    PreemptionPending,
)
from nodepool.contract.model import ComputeClass, NodePhase, RemovalReason
from support.reference.history import History, Stored

GROWTH = (CWNodeRequestQueued, CWNodePoolScaledUp, CWNodePoolScaledDown, CWNodeDeliverFail)
"""What is never said of a NodePool that is being deleted."""


def faults(history: History) -> Iterator[str]:
    """Everything about departures that was said and should not have been, or the reverse."""
    yield from Deletions(history).faults
    yield from _reasons(history)
    yield from _last_events(history)
    yield from _refused_preemptions(history)


class Deletions:
    """The NodePools that are being deleted; `faults` is what was wrong about their deletion."""

    def __init__(self, history: History) -> None:
        self.faults: list[str] = []
        self._members: Counter[str] = Counter()
        self._unannounced: dict[str, bool] = {}
        self._granted: dict[str, int] = {}
        for stored in history.seen_by("allocator"):
            if stored.speaker != "allocator":
                self._step_ended()
            self._counted(stored)
            self._announced(stored)

    def _step_ended(self) -> None:
        """A step in which a deletion began has given back the grant; a failed one does it later."""
        for key, position in self._granted.items():
            self.faults.append(f"{key} keeps its grant at {position}")
        self._granted.clear()

    def _counted(self, stored: Stored) -> None:
        event = stored.message
        match event:
            case CWNodeAssigned():
                self._members[event.key] += 1
            case CWNodeDeleted() | CWNodeRegistrationFailed():
                self._members[event.key] -= 1
            case NodePoolDeleting():
                self._unannounced[event.key] = self._members[event.key] > 0
                self._granted[event.key] = stored.position
            case GrantAcknowledged(granted=0):
                self._granted.pop(event.key, None)
            case AllocationFailed():
                self._granted.pop(event.key, None)
                # Until it is tried again, the last Node may go by itself.
                if event.key in self._unannounced:
                    self._unannounced[event.key] = False
            case CWNodePoolDeleted():
                self._unannounced.pop(event.key, None)
                self._members.pop(event.key, None)
            case _:
                pass

    def _announced(self, stored: Stored) -> None:
        event = stored.message
        match event:
            case CWNodePoolRemoveNodes() if event.key in self._unannounced:
                self._unannounced[event.key] = False
            case CWNodePoolNodesRemoved(removal=RemovalReason.POOL_DELETED):
                if self._unannounced.get(event.key):
                    at = stored.position
                    self.faults.append(
                        f"{event.key} is emptied at {at} without CWNodePoolRemoveNodes"
                    )
            case _ if isinstance(event, GROWTH) and event.key in self._unannounced:
                text = f"{event.key} is being deleted at {stored.position}: {event.message}"
                self.faults.append(text)
            case _:
                pass


def _reasons(history: History) -> Iterator[str]:
    chosen: dict[int, RemovalReason] = {}
    shown: dict[int, RemovalReason | None] = {}
    at_once: dict[int, bool] = {}
    failed = {position for service, position, _ in history.failed if service == "lifecycle"}
    for stored in history.seen_by("lifecycle"):
        event = stored.message
        if isinstance(event, CWNodeRegistered | NodeUpdated):
            shown[event.assignment] = getattr(event, "removal", None)
            restarts = event.phase in (NodePhase.REBOOTING, NodePhase.VERIFYING)
            at_once[event.assignment] = restarts
            taints = Counter((taint.key, taint.effect) for taint in event.taints)
            for taint, count in taints.items():
                if count > 1:
                    yield f"{event.node} at {stored.position} has the taint {taint} {count} times"
        elif isinstance(event, CWNodeDeletionRequestSuccess) and stored.position not in failed:
            chosen[event.assignment] = event.removal
        elif isinstance(event, CWNodeDeleted) and event.registered:
            reason = shown.get(event.assignment)
            is_deleted = chosen.get(event.assignment) is RemovalReason.POOL_DELETED
            goes_at_once = at_once.get(event.assignment, False)
            if is_deleted and not goes_at_once and reason in (None, RemovalReason.SCALE_DOWN):
                yield f"{event.node} at {stored.position} goes with its NodePool and shows {reason}"


def _last_events(history: History) -> Iterator[str]:
    preempted: set[int] = set()
    left: dict[int, bool] = {}
    for stored in history.seen_by("lifecycle"):
        event = stored.message
        if isinstance(event, PreemptionPending | NodePreempted):
            preempted.add(event.assignment)
        elif isinstance(event, CWNodeDeleted):
            left[stored.position] = event.assignment in preempted
    for stored in history.messages:
        event = stored.message
        if isinstance(event, DeletedForPreemption) and not left.get(stored.cause):
            yield f"{event.node} at {stored.position} was not deleted for its preemption"


def _refused_preemptions(history: History) -> Iterator[str]:
    spot: dict[str, str] = {}
    answered: set[str] = set()
    for stored in history.seen_by("preemption"):
        event = stored.message
        match event:
            case CWNodeAssigned(compute_class=ComputeClass.SPOT):
                spot[f"{event.org}/{event.cluster}/{event.node}"] = event.key
            case CWNodeAssigned() | CWNodeDeleted() | CWNodeRegistrationFailed():
                spot.pop(f"{event.org}/{event.cluster}/{event.node}", None)
            case CommandRefused(command="PreemptNode", reason="NotFound"):
                if stored.id in answered:
                    continue  # A command that is sent again has the outcome that it had.
                answered.add(stored.id)
                command = history.command_at(stored.cause)
                if isinstance(command, PreemptNode):
                    node = f"{command.org}/{command.cluster}/{command.node}"
                    if spot.get(node) == command.key:
                        yield f"{node} at {stored.position} is a spot Node: {event.message}"
            case _:
                pass
