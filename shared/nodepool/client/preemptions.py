"""The preemptions of a cluster's spot Nodes, computed from the messages of the log."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from nodepool.contract.decode import decode
from nodepool.contract.events import (
    CWDrainNode,
    CWNodeDeleted,
    CWNodeRegistrationFailed,
    NodePreempted,
    NodePreemptionRequested,
    NodePreemptionWithdrawn,
    PreemptionPending,
)
from nodepool.contract.log import Entry
from nodepool.contract.messages import Envelope, Event, OfNode
from nodepool.contract.subjects import address_of
from nodepool.contract.timetable import DRAIN_AFTER, GONE_AFTER

PREEMPTIONS_MAX: Final = 20_000
"""The most preemptions, and the most ends of stays, to keep while the log is read: the newest."""
REQUESTED: Final = "Requested"
"""The cause of a preemption that a command requested."""
KINDS: Final[Mapping[str, type[Event]]] = {
    kind.__name__: kind
    for kind in (
        NodePreemptionRequested,
        NodePreemptionWithdrawn,
        PreemptionPending,
        NodePreempted,
        CWDrainNode,
        CWNodeDeleted,
        CWNodeRegistrationFailed,
    )
}
"""The messages that preemptions are computed from, by name."""


@dataclass(frozen=True, slots=True)
class Preemption:
    """The preemption of one Node.

    node, pool: the Node, and its NodePool.
    position: the position in the log at which the preemption began.
    began: when the Node was warned; without a timetable, when it was told to leave at once.
    has_timetable: whether the Node is warned first. A Node that still boots, or already leaves,
        is not warned.
    cause: `Requested`, `Reclaimed` or `DefaultPoolShort`.
    beneficiary: the NodePool that lacked Nodes at the request, if it belongs to the same
        organisation. Later the Node may be needed for another NodePool.
    drained: when the Node's drain began; None before that.
    gone: when the Node had left, or its registration had failed; None before that.
    lost: how many of the Node's Pods still ran when its time was over.
    """

    node: str
    pool: str
    position: int
    began: datetime
    has_timetable: bool = True
    cause: str = REQUESTED
    beneficiary: str = ""
    drained: datetime | None = None
    gone: datetime | None = None
    lost: int = 0

    @property
    def drain_late(self) -> timedelta | None:
        """How late the drain began; None if it has not begun, or began before it was due."""
        return _late(self.began + DRAIN_AFTER, self.drained if self.has_timetable else None)

    @property
    def end_late(self) -> timedelta | None:
        """How late the Node left; None if it has not left, or left before its time was over."""
        return _late(self.began + GONE_AFTER, self.gone if self.has_timetable else None)


def _late(due: datetime, came: datetime | None) -> timedelta | None:
    return came - due if came is not None and came >= due else None


class Preemptions:
    """The preemptions found while the log is read, oldest first; if too many, only the newest."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], Preemption] = {}
        self._requests: dict[tuple[str, int], NodePreemptionRequested] = {}
        self._ends: dict[tuple[str, int], tuple[datetime, int]] = {}

    def read(self, entries: Iterable[Entry]) -> None:
        """Fold messages in the order of the log; ignore messages that are not in `KINDS`."""
        for entry in entries:
            address = address_of(entry.subject)
            kind = KINDS.get(address.name) if address is not None else None
            if kind is None:
                continue
            envelope = decode(kind, entry.subject, entry.content, {}, entry.position)
            if isinstance(envelope, Envelope):
                self._take(envelope.data, entry)

    def all(self) -> list[Preemption]:
        """Return the preemptions, in the order in which they began."""
        return list(self._known.values())

    def _take(self, event: Event, entry: Entry) -> None:
        match event:
            case NodePreemptionRequested():
                self._requests[event.node, event.assignment] = event
            case NodePreemptionWithdrawn():
                self._requests.pop((event.node, event.assignment), None)
            case PreemptionPending(since=since):
                self._begin(event, Preemption(event.node, event.pool, entry.position, since))
            case NodePreempted():
                begun = Preemption(event.node, event.pool, entry.position, entry.time)
                self._begin(event, replace(begun, has_timetable=False))
            case CWDrainNode():
                known = self._known.get((event.node, event.assignment))
                if known is not None and known.drained is None:
                    self._known[event.node, event.assignment] = replace(known, drained=entry.time)
            case CWNodeDeleted(lost=lost):
                self._end(event, entry.time, lost)
            case CWNodeRegistrationFailed():
                self._end(event, entry.time)

    def _end(self, event: OfNode, gone: datetime, lost: int = 0) -> None:
        """Take the end of a stay, which also ends a preemption of that stay."""
        key = (event.node, event.assignment)
        known = self._known.get(key)
        if known is not None:
            self._known[key] = replace(known, gone=gone, lost=lost)
        # The preemption service may publish the begin of a preemption before it reads this event.
        self._ends[key] = (gone, lost)
        if len(self._ends) > PREEMPTIONS_MAX:
            oldest = next(iter(self._ends))
            del self._ends[oldest]
            self._requests.pop(oldest, None)

    def _begin(self, event: OfNode, preemption: Preemption) -> None:
        """Store a preemption, or the timetable of a preemption that began without a timetable."""
        key = (event.node, event.assignment)
        request = self._requests.pop(key, None)
        if request is not None:
            beneficiary = request.beneficiary
            preemption = replace(preemption, cause=request.cause, beneficiary=beneficiary)
        elif key in self._known:
            before = self._known.pop(key)
            preemption = replace(preemption, cause=before.cause, beneficiary=before.beneficiary)
        if key in self._ends:
            gone, lost = self._ends[key]
            preemption = replace(preemption, gone=gone, lost=lost)
        self._known[key] = preemption
        if len(self._known) > PREEMPTIONS_MAX:
            del self._known[next(iter(self._known))]
