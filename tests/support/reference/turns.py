"""Turns as a second specification: which NodePool gets a machine that several wait for.

* A machine goes to a NodePool of class `default` before one of class `spot`.
* Over all organisations, it goes to the organisation with the earliest position.
* Within the organisation, it goes to the NodePool with the highest priority.

A NodePool whose affinity does not accept the machine is passed over. The first machine of a rack
decides who gets the rack: a NodePool that wants no more racks is passed over. The other machines,
and those of a rack that a NodePool has in part, go to the same NodePool.

From the log: what the allocator had read when it assigned a machine.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from nodepool.contract.affinity import machine_labels
from nodepool.contract.catalog import INSTANCE_TYPES, ZONES
from nodepool.contract.conditions import Validated
from nodepool.contract.events import (
    CapacityChecked,
    CapacityCheckFailed,
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodePoolDeleted,
    CWNodeRegistrationFailed,
    NodePoolDeleting,
    NodePoolValidated,
    NodeReservationChanged,
    QuotaChecked,
    QuotaCheckFailed,
)
from nodepool.contract.messages import Message
from nodepool.contract.model import NodePoolSpec
from support.affinity import matches
from support.reference import racks
from support.reference.history import History, Stored
from support.reference.positions import Queued, Rival, fill, fill_own, position_of


@dataclass
class Wanting:
    """A NodePool as the allocator knows it.

    held: the labels of its Nodes by their assignments.
    lent: those that are reserved for the control plane, and that it does not hold.
    quota_failed: whether the last check of its quota failed: no machine is kept for it then.
    """

    version: NodePoolValidated
    deleting: bool = False
    grant: QuotaChecked | None = None
    check: CapacityChecked | None = None
    held: dict[int, Mapping[str, str]] = field(default_factory=dict)
    lent: dict[int, Mapping[str, str]] = field(default_factory=dict)
    quota_failed: bool = False
    queued: Queued = field(default_factory=Queued)

    @property
    def spec(self) -> NodePoolSpec:
        """Its spec."""
        return self.version.spec

    @property
    def is_checked(self) -> bool:
        """Whether every check of its newest version has passed."""
        grant, check, generation = self.grant, self.check, self.version.generation
        if grant is None or check is None:
            return False
        is_newest = grant.generation == check.generation == generation
        return is_newest and grant.granted == check.granted

    @property
    def lacks(self) -> int:
        """How many machines are its own as they come free."""
        grant, check = self.grant, self.check
        if grant is None or check is None or self.deleting:
            return 0
        if self.version.reason is not Validated.VALID:
            return 0
        if self.quota_failed and not self.is_checked:
            return 0
        allowed = min(grant.granted, check.granted, self.spec.target)
        lacks = max(0, allowed - len(self.held))
        return lacks if self.is_checked else min(lacks, len(self.queued.moments))

    def fits(self, event: CWNodeAssigned) -> bool:
        """Whether it could have the machine, or the rack that begins with it, instead."""
        size = racks.size_of(event.instance_type)
        if size:
            held, goal = racks.by_domain(self.held.values()), len(self.held) + self.lacks
            free = {event.labels.get(racks.DOMAIN, ""): size}
            if not racks.given(size, goal, held, free, ()):
                return False
        kind, zone = INSTANCE_TYPES[event.instance_type], ZONES[event.zone]
        labels = {**machine_labels(kind, zone), **event.labels}
        return matches(self.spec.affinity, {**labels, "kubernetes.io/hostname": event.node})


class TurnsModel:
    """The NodePools that wait, after a log; `faults` is what the allocator did wrong."""

    def __init__(self, history: History) -> None:
        self.pools: dict[str, Wanting] = {}
        self.faults: list[str] = []
        for stored in history.seen_by("allocator"):
            self._take(stored)

    def _take(self, stored: Stored) -> None:
        message = stored.message
        match message:
            case NodePoolValidated(uid=uid):
                pool = self.pools.setdefault(uid, Wanting(message))
                if pool.version.reason is Validated.INVALID:  # It had no position.
                    pool.queued.aim(len(pool.held), len(pool.held))
                pool.version = message
                if message.reason is Validated.VALID:
                    pool.queued.aim(pool.spec.target, len(pool.held))
            case NodePoolDeleting(uid=uid) if uid in self.pools:
                self.pools[uid].deleting = True
            case CWNodePoolDeleted(uid=uid):
                self.pools.pop(uid, None)
            case CWNodeAssigned(uid=uid) if uid in self.pools:
                self._assigned(self.pools[uid], message, stored)
            case CWNodeDeleted(uid=uid) | CWNodeRegistrationFailed(uid=uid) if uid in self.pools:
                self._left(self.pools[uid], message, stored)
            case NodeReservationChanged():
                self._reserved(message, stored)
            case _:
                self._checked(message, stored)

    def _checked(self, message: Message, stored: Stored) -> None:
        match message:
            case QuotaCheckFailed(key=key):
                for pool in self.pools.values():
                    pool.quota_failed = pool.quota_failed or pool.version.key == key
            case QuotaChecked(uid=uid) if uid in self.pools:
                self._granted(self.pools[uid], message, stored)
            case CapacityChecked(uid=uid) if uid in self.pools:
                self.pools[uid].check = message
            case CapacityCheckFailed(uid=uid) if uid in self.pools:
                self.pools[uid].check = None
            case _:
                pass

    def _reserved(self, event: NodeReservationChanged, stored: Stored) -> None:
        for pool in self.pools.values():
            if event.usable and event.assignment in pool.lent:
                pool.held[event.assignment] = pool.lent.pop(event.assignment)
                pool.queued.gain(len(pool.held))
            elif not event.usable and event.assignment in pool.held:
                pool.lent[event.assignment] = pool.held.pop(event.assignment)
                held = len(pool.held)
                pool.queued.lose(event.assignment, held, stored.time, never_joined=False)

    def _granted(self, pool: Wanting, verdict: QuotaChecked, stored: Stored) -> None:
        pool.grant, pool.quota_failed = verdict, False
        if verdict.generation == pool.version.generation and not pool.deleting:
            allowed = min(verdict.granted, pool.spec.target)
            pool.queued.grant(allowed, len(pool.held), stored.time)

    def _left(
        self, pool: Wanting, event: CWNodeDeleted | CWNodeRegistrationFailed, stored: Stored
    ) -> None:
        pool.lent.pop(event.assignment, None)
        if pool.held.pop(event.assignment, None) is None:
            return
        failed = isinstance(event, CWNodeRegistrationFailed)
        pool.queued.lose(event.assignment, len(pool.held), stored.time, never_joined=failed)

    def _rivals(self, pool: Wanting) -> Iterator[tuple[Wanting, Rival]]:
        """The NodePools that wait for the same machines, this one included."""
        offering = pool.version.zone, pool.spec.instance_type
        for each in self.pools.values():
            is_same = (each.version.zone, each.spec.instance_type) == offering
            if is_same and each.lacks and each.queued.start is not None:
                yield each, Rival(each.version.key, each.spec, each.queued, each.lacks)

    def _assigned(self, pool: Wanting, event: CWNodeAssigned, stored: Stored) -> None:
        pairs = list(self._rivals(pool))
        rivals = [rival for _, rival in pairs]
        own = next((rival for each, rival in pairs if each is pool), None)
        if own is not None:
            if _begins(pool, event):
                waiting = [
                    rival
                    for each, rival in pairs
                    if each is not pool and each.is_checked and each.fits(event)
                ]
                self._check(own, rivals, waiting, stored)
            fill(own, rivals, event.assignment)
        else:
            fill_own(pool.queued, event.assignment)
        pool.held[event.assignment] = event.labels

    def _check(self, own: Rival, rivals: list[Rival], waiting: list[Rival], stored: Stored) -> None:
        position, _ = position_of(own, rivals)
        for other in waiting:
            if other.is_spot is not own.is_spot:
                is_ahead = own.is_spot
            elif other.org == own.org:
                is_ahead = other.order < own.order
            else:
                is_ahead = (other.moments[0], other.key) < position
            if is_ahead:
                self.faults.append(
                    f"{own.key} is served at {stored.position} before {other.key}, "
                    "which has a higher rank"
                )


def _begins(pool: Wanting, event: CWNodeAssigned) -> bool:
    """Whether a machine comes by itself, or is the first of a rack that a NodePool gets."""
    domain = event.labels.get(racks.DOMAIN, "")
    held = racks.by_domain(pool.held.values())
    return not racks.size_of(event.instance_type) or (domain != "" and not held[domain])
