"""Quota as a second specification: who may have how many Nodes, and in which order they are served.

* A check that failed leaves a NodePool where it was: it keeps its place, reserves what it reserved
  before, and is passed over, until a check succeeds or what it reserves too much is released.
* A limit counts all NodePools of an organisation, zone and instance type. Each reserves what it
  holds, or what it was granted, whichever is more; a larger grant of before counts until the
  allocator has acknowledged the smaller one. A NodePool that is being deleted reserves what it
  holds once the allocator has acknowledged that.
* A target that fits beside what the others reserve is granted whole. One that does not fit leaves
  the grant what it was, never above the target.
* A target that is not above the Nodes that a NodePool holds fits any limit. So does a target that
  its grant covers, which replaces lost Nodes, unless the grant must shrink.
* Where a limit is lowered below what is reserved, each grant shrinks to what its NodePool holds.
* A grant covers what its NodePool holds, once the allocator uses no larger grant any more. Nodes
  that come back from the control plane while no grant covers them count against the limit, but no
  grant grows for them, unless the target fits. A verdict names them. A grant grows for Nodes that
  fill up its last rack, since only whole racks leave.
* An invalid NodePool reserves what it holds, once the allocator has acknowledged that.
* The NodePool that waits longest is served first, unless it does not fit. A higher target puts a
  NodePool that waits behind all others, and an invalid NodePool does not wait; no other change
  moves it. NodePools that a lowered limit makes wait are ordered by creation.
* A NodePool may wait and give Nodes back, which the allocator has not acknowledged yet. A NodePool
  that needs more than it keeps is granted nothing while a NodePool that waits longer fits once all
  are given back. So the order of the acknowledgements decides nothing. The Nodes above its grant
  count as given back for this NodePool only; another NodePool does not count on them.

From the log: the order in which the quota service took its inputs, and when it looked at those
that wait, which it may do once for many changes. What a NodePool holds "at a change of the limit"
is what it held at any moment from that change to the verdict.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from nodepool.contract.conditions import HEALTHY, Quota, Validated
from nodepool.contract.events import (
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodePoolDeleted,
    CWNodeRegistrationFailed,
    GrantAcknowledged,
    NodePoolDeleting,
    NodePoolValidated,
    NodeReservationChanged,
    QuotaChecked,
    QuotaCheckFailed,
    QuotaDeleted,
    QuotaReleased,
    QuotaSet,
    Wake,
)
from nodepool.contract.messages import Message
from nodepool.engine import bounds
from support.reference.history import History, Stored
from support.reference.pools import LedgerName

Moment = tuple[int, datetime]
"""A position in the log; and the creation of a NodePool that a lowered limit made wait there."""
Place = tuple[Moment, Moment]
"""The first and the last place that a NodePool may claim among those that wait."""
NO_CREATION = datetime.min.replace(tzinfo=UTC)


class Grant(NamedTuple):
    """How many Nodes the allocator may assign by a grant of this number, for this generation."""

    number: int
    generation: int
    nodes: int


@dataclass
class Part:
    """A NodePool's part of a limit.

    version: its last version, as validated.
    seen: the position of that version.
    held: how many Nodes it has.
    beyond: how many of them came back when nothing was reserved for them.
    grant: what it may have.
    grants: each grant that may still be used, with its position.
    reason: of the last verdict; None before the first, and after a check that failed.
    place: its place among those that wait; None where it does not wait.
    shrunk: what it held since the limit was lowered; empty where its grant need not shrink.
    failed: whether its last check failed.
    kept: what it reserves until a release that failed is made; 0 where none did.
    published: what it reserved when that was published last.
    """

    version: NodePoolValidated
    seen: int
    deleting: bool = False
    held: int = 0
    beyond: int = 0
    grant: int = 0
    grants: list[tuple[int, Grant]] = field(default_factory=list)
    reason: Quota | None = None
    checked: int = 0
    place: Place | None = None
    shrunk: set[int] = field(default_factory=set)
    failed: bool = False
    kept: int = 0
    published: int = 0

    @property
    def key(self) -> str:
        """The key of the NodePool."""
        return self.version.key

    @property
    def target(self) -> int:
        """How many Nodes it wants."""
        return self.version.spec.target

    @property
    def eligible(self) -> bool:
        """Whether it may be granted anything."""
        return self.version.reason is Validated.VALID and not self.deleting

    @property
    def ledger(self) -> LedgerName:
        """The limit that it counts against."""
        return self.version.org, self.version.zone, self.version.spec.instance_type

    @property
    def covered(self) -> int:
        """What it may have under any limit."""
        return self.entitled if self.shrunk else max(self.grant, self.entitled)

    @property
    def entitled(self) -> int:
        """How many of its Nodes a grant covered."""
        return self.held - self.beyond

    @property
    def own_room(self) -> int:
        """What counts against the limit for Nodes that no grant covers."""
        is_checked = self.eligible and not self.failed
        return max(0, self.reserved - self._allowed) if self.beyond and is_checked else 0

    @property
    def _allowed(self) -> int:
        return max([self.entitled, *(grant.nodes for _, grant in self.grants)])

    def hold(self, held: int) -> None:
        """Have this number of Nodes."""
        size = self.version.spec.rack_size or 1
        self.held, self.beyond = held, max(0, held - -(-self._allowed // size) * size)

    @property
    def given_up(self) -> int:
        """How many Nodes above its grant it has."""
        return min(self.beyond, max(0, self.held - self.grant))

    @property
    def needed(self) -> int:
        """What it holds, or may still come to hold."""
        return max([self.held, *(grant.nodes for _, grant in self.grants)])

    @property
    def reserved(self) -> int:
        """What counts against the limit."""
        return max(self.needed, self.kept)

    @property
    def settled(self) -> int:
        """Return what counts against the limit once it has given its Nodes back."""
        waits = self.eligible and self.reason not in (None, Quota.UNDER)
        kept = self.own_room + max(self.grant, self.entitled)
        return min(self.reserved, kept) if waits else self.reserved


class QuotaModel:
    """All limits and parts after a log; `faults` is what the quota service did wrong on the way."""

    def __init__(self, history: History) -> None:
        self.limits: dict[LedgerName, int] = {}
        self.parts: dict[str, Part] = {}
        self.faults: list[str] = []
        self._wake: Stored | None = None
        self._broken: set[LedgerName] = set()
        self._outputs = 0
        self._away: set[int] = set()
        self._fitting: list[Part] = []
        for stored in history.seen_by("quota"):
            self._read(stored)
        self._check_wake()

    def others(self, part: Part) -> list[Part]:
        """The other NodePools that reserve something of the same limit."""
        return [
            other
            for other in self.parts.values()
            if other is not part and other.ledger == part.ledger and other.reserved
        ]

    def fits(self, part: Part) -> bool:
        """Whether its whole target fits beside what the others reserve."""
        limit = self.limits.get(part.ledger)
        used = sum(other.reserved for other in self.others(part))
        if limit is None:
            return False
        if part.target <= part.covered:
            return True
        return used + part.target <= limit and not self._gives_way(part, limit)

    def _gives_way(self, part: Part, limit: int) -> bool:
        """Return whether the room that it needs is for a NodePool that waits longer."""
        rivals = [other for other in self.parts.values() if other.ledger == part.ledger]
        room = limit - sum(other.reserved for other in rivals)
        if part.target - part.settled + part.own_room <= min(room, 0):
            return False
        begun = part.place[0] if part.place is not None else _at(part.seen)
        used = sum(other.settled for other in rivals)
        fits_without_own = part.target - part.reserved + part.own_room <= room
        if fits_without_own and not self._comes_first(rivals, begun, limit - used):
            return False
        return self._comes_first(rivals, begun, limit - used + part.own_room)

    @staticmethod
    def _comes_first(rivals: list[Part], begun: Moment, room: int) -> bool:
        """Return whether a NodePool that began to wait before a moment fits into the room."""
        return any(
            other.place is not None
            and other.place[1] < begun
            and other.eligible
            and not other.failed
            and (
                other.target <= other.covered
                or other.target - other.settled + other.own_room <= room
            )
            for other in rivals
        )

    def reason(self, part: Part) -> Quota:
        """The reason of its condition Quota."""
        if part.ledger not in self.limits:
            return Quota.NOT_SET
        return Quota.UNDER if self.fits(part) else Quota.OVER

    def message(self, part: Part) -> str:
        """The message of its condition Quota."""
        text, beyond = self._shortage(part), part.given_up
        if text == HEALTHY[Quota.UNDER] or not beyond:
            return text
        count = f"{beyond} Node{'' if beyond == 1 else 's'}"
        end = f"which scales down to {part.grant} by its scaleDownStrategy"
        return (
            f"{text}; the control plane gave back {count} beyond the grant of the NodePool, {end}"
        )

    def _shortage(self, part: Part) -> str:
        _, zone, kind = part.ledger
        others, limit = self.others(part), self.limits.get(part.ledger)
        field, target = "targetNodes", str(part.target)
        if (racks := part.version.spec.target_racks) is not None:
            field, target = "targetRacks", f"{racks} ({part.target} Nodes)"
        if limit is None:
            return f"no quota is set for {kind} in {zone}, and {field} is {target}"
        if self.fits(part):
            return HEALTHY[Quota.UNDER]
        used, count = sum(other.reserved for other in others), len(others)
        if part.target + used <= limit:
            quota = f"quota {limit} for {kind}"
            return (
                f"{field} {target} fits {quota}, but a NodePool that has waited longer comes first"
            )
        by = f" ({used} used by {count} other pool{'' if count == 1 else 's'})" if count else ""
        return f"{field} {target} exceeds quota {limit} for {kind}{by}"

    def _read(self, stored: Stored) -> None:
        if self._wake is not None and stored.cause != self._wake.position:
            self._check_wake()
        self._take(stored)
        if self._wake is not None and stored.cause == self._wake.position:
            self._outputs += 1

    def _take(self, stored: Stored) -> None:
        message = stored.message
        match message:
            case NodePoolValidated():
                self._validated(message, stored.position)
            case QuotaSet():
                self._limited((message.org, message.zone, message.instance_type), message.limit)
            case QuotaDeleted():
                ledger = message.org, message.zone, message.instance_type
                self._limited(ledger, 0)
                del self.limits[ledger]
            case Wake(service="quota"):
                self._wake, self._outputs, self._broken = stored, 0, set()
                self._fitting = [each for each in self.parts.values() if self._waits_in_vain(each)]
            case _:
                self._changed(stored)

    def _changed(self, stored: Stored) -> None:
        message = stored.message
        match message:
            case QuotaChecked():
                self._checked(message, stored)
            case NodePoolDeleting() if message.uid in self.parts:
                part = self.parts[message.uid]
                part.deleting, part.place = True, None
            case CWNodePoolDeleted() if message.uid in self.parts:
                part = self.parts[message.uid]
                part.held, part.beyond, part.grants = 0, 0, []
            case GrantAcknowledged() if message.uid in self.parts:
                self._acknowledged(self.parts[message.uid], message, stored.cause)
            case QuotaReleased():
                for part in self._existing(message.key):
                    self._released(part, message, stored)
            case QuotaCheckFailed():
                for part in self._existing(message.key):
                    self._failed(part, stored)
            case CWNodeAssigned():
                self._held(message.uid, 1)
            case _:
                self._left(message)

    def _left(self, message: Message) -> None:
        if isinstance(message, CWNodeDeleted | CWNodeRegistrationFailed):
            if message.assignment not in self._away:
                self._held(message.uid, -1)
            self._away.discard(message.assignment)
        elif isinstance(message, NodeReservationChanged):
            self._reserved(message)

    def _reserved(self, message: NodeReservationChanged) -> None:
        """Follow a Node that counts against the limit no more, or counts again."""
        if message.usable is (message.assignment not in self._away):
            return
        self._away ^= {message.assignment}
        for part in self._existing(message.key):
            self._held(part.version.uid, 1 if message.usable else -1)

    def _existing(self, key: str) -> list[Part]:
        """The NodePool with this key, which an event of the quota service is about."""
        return [part for part in self.parts.values() if part.key == key][-1:]

    def _acknowledged(self, part: Part, message: GrantAcknowledged, read: int) -> None:
        """Of the grants that the allocator had read, it may use the last one only."""
        used = [position for position, _ in part.grants if position <= read][-1:]
        number = message.number
        part.grants = [
            (position, grant._replace(nodes=min(grant.nodes, message.granted)))
            if (grant.number, grant.generation <= message.generation) == (number, True)
            else (position, grant)
            for position, grant in part.grants
            if [position] >= used
        ]
        if message.final:
            part.grants = []

    def _released(self, part: Part, message: QuotaReleased, stored: Stored) -> None:
        if message.granted != part.needed:
            self.faults.append(
                f"{part.key} releases all but {message.granted} Nodes at {stored.position}, and "
                f"needs {part.needed}"
            )
        part.kept, part.published = 0, part.needed
        self._forget_others(part.version)

    def _forget_others(self, version: NodePoolValidated) -> None:
        """Let no earlier NodePool of this name reserve anything any more."""
        for part in self.parts.values():
            if part.key == version.key and part.version.uid != version.uid:
                part.kept = 0

    def _failed(self, part: Part, stored: Stored) -> None:
        part.failed, part.reason, part.kept = True, None, part.published
        self._broken.add(part.ledger)
        if part.eligible and part.place is None:
            part.place = _at(min(part.seen, stored.cause)), _at(stored.cause)

    def _validated(self, version: NodePoolValidated, position: int) -> None:
        # A NodePool that is Invalid takes no place in the ledger from an earlier NodePool.
        if version.reason is Validated.VALID:
            self._forget_others(version)
        part = self.parts.get(version.uid)
        if part is None:
            self.parts[version.uid] = Part(version, position)
            return
        before, part.version, part.seen = part.version, version, position
        if not part.eligible:
            part.place, part.grant = None, 0
        elif part.place is not None and version.spec.target > before.spec.target:
            part.place = _at(position), _at(position)

    def _held(self, uid: str, change: int) -> None:
        part = self.parts.get(uid)
        if part is not None:
            part.hold(part.held + change)
            if part.shrunk:
                part.shrunk.add(part.entitled)

    def _limited(self, ledger: LedgerName, limit: int) -> None:
        parts = [part for part in self.parts.values() if part.ledger == ledger]
        lowered = limit < self.limits.get(ledger, 0)
        self.limits[ledger] = limit
        if lowered and sum(part.reserved for part in parts) > limit:
            for part in parts:
                if part.eligible:
                    part.shrunk = {part.entitled}

    def _checked(self, verdict: QuotaChecked, stored: Stored) -> None:
        part = self.parts.get(verdict.uid)
        if part is None or not part.eligible:
            self.faults.append(f"{verdict.key} is checked, though it is invalid or being deleted")
            return
        kept = min(max(part.grant, part.entitled), part.target)
        least = {min(kept, held) for held in part.shrunk} or {kept}
        granted = {part.target} if self.fits(part) else least
        if verdict.reason is not self.reason(part) or verdict.granted not in granted:
            is_, grants = f"{verdict.reason} with a grant of {verdict.granted}", sorted(granted)
            self.faults.append(
                f"{part.key} is {is_} at {stored.position}, and has to be "
                f"{self.reason(part)} with one of {grants}"
            )
        beyond = min(part.beyond, max(0, part.held - verdict.granted))
        if verdict.beyond != beyond:
            is_ = f"{verdict.beyond} Nodes above its grant at {stored.position}"
            self.faults.append(f"{part.key} has {is_}, and not {beyond}")
        self._granted(part, verdict, stored)

    def _granted(self, part: Part, verdict: QuotaChecked, stored: Stored) -> None:
        longer = [other for other in self.parts.values() if self._waits_longer(other, part)]
        part.grant = verdict.granted
        grant = Grant(verdict.number, verdict.generation, verdict.granted)
        part.grants.append((stored.position, grant))
        part.hold(part.held)
        is_lowered = bool(part.shrunk)
        part.reason, part.shrunk, part.failed = verdict.reason, set(), False
        part.published = max(part.published, part.needed)
        part.kept = part.kept if part.published > part.needed else 0
        part.checked = verdict.generation
        for other in longer:
            if not self.fits(other):
                self.faults.append(
                    f"{part.key} is granted {verdict.granted} Nodes at {stored.position}, which "
                    f"{other.key} waits for since {other.place}"
                )
        if verdict.reason is Quota.UNDER:
            part.place = None
        elif part.place is None:
            created = part.version.created if is_lowered else NO_CREATION
            part.place = (stored.cause, created), (stored.cause, created)

    def _waits_longer(self, other: Part, part: Part) -> bool:
        """Whether another NodePool waits longer than this one, for what it could have now."""
        if other is part or other.ledger != part.ledger or other.place is None or other.failed:
            return False
        first = part.place[0] if part.place is not None else _at(part.seen)
        return other.place[1] < first and self.fits(other)

    def _waits_in_vain(self, part: Part) -> bool:
        waits = part.place is not None and part.eligible and not part.failed
        return waits and part.ledger not in self._broken and self.fits(part)

    def _check_wake(self) -> None:
        """After a wake, no NodePool waits any more for what it could have had before it."""
        wake, self._wake = self._wake, None
        if wake is None or self._outputs >= bounds.OUTPUTS_MAX:
            return
        for part in self._fitting:
            if self.parts.get(part.version.uid) is part and self._waits_in_vain(part):
                text = f"{part.key} fits and still waits after the wake at {wake.position}"
                self.faults.append(text)


def _at(position: int) -> Moment:
    """Return the moment of a position at which a NodePool begins to wait for itself."""
    return position, NO_CREATION


def faults(model: QuotaModel) -> Iterator[str]:
    """What was wrong on the way, and NodePools that have not got in the end what they may have."""
    yield from model.faults
    for part in model.parts.values():
        if not part.eligible:
            continue
        reason = model.reason(part)
        if part.checked != part.version.generation or part.reason is not reason:
            yield f"{part.key} has to be {reason} in the end: {model.message(part)}"
        if part.grant < min(part.entitled, part.target):
            yield f"{part.key} holds {part.held} Nodes, and its grant is {part.grant} in the end"
        if part.shrunk and part.grant > max(part.shrunk):
            yield f"the grant of {part.key} did not shrink with the limit"
