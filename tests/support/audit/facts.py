"""What is known from a log about NodePools, machines, Nodes and limits; rules check against it."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from typing import Generic, NamedTuple, TypeVar

from nodepool.contract.events import (
    CapacityChecked,
    GrantAcknowledged,
    NodeActionRequested,
    NodePoolValidated,
    QuotaChecked,
)
from nodepool.contract.messages import OfMachine, OfNode, OfPool
from nodepool.contract.model import NodePhase, NodePoolSpec
from nodepool.contract.pods import Pod

T = TypeVar("T")
Offering = tuple[str, str]
"""Zone and instance type: what machines are offered by."""
Ledger = tuple[str, str, str]
"""Organisation, zone and instance type: what one limit is for."""
TRIAGE = "triage"
"""The holder of a machine that failed and is not repaired yet."""
RECLAIMED = "reclaimed"
"""The holder of a machine that is held back."""
ZAP = "zap"
"""The holder of a machine that is being wiped."""
NOBODY = ("", TRIAGE, RECLAIMED, ZAP)
"""The holders of machines that are no Nodes."""


class Violation(AssertionError):
    """A log breaks a rule."""


class Origin(NamedTuple):
    """Where an event lies in the log, and what it is an output of.

    position: its own position.
    cause: the position of the input that its service processed; 0 where it names none.
    command: the id of the command that it goes back to; empty where it names none.
    """

    position: int
    cause: int
    command: str


class History(Generic[T]):
    """Values with the position in the log at which each was stated, in that order."""

    def __init__(self) -> None:
        self._positions: list[int] = []
        self._values: list[T] = []

    def add(self, position: int, value: T) -> None:
        """States a new value; positions only grow."""
        self._positions.append(position)
        self._values.append(value)

    def as_of(self, position: float) -> T | None:
        """The last value stated up to a position; None where there is none."""
        count = bisect_right(self._positions, position)
        return self._values[count - 1] if count else None

    def entries(self) -> Iterator[tuple[int, T]]:
        """Every value with its position, in order."""
        return zip(self._positions, self._values, strict=True)

    def since(self, position: int) -> list[T]:
        """The last value stated up to a position, and every later one."""
        return self._values[max(0, bisect_right(self._positions, position) - 1) :]

    @property
    def is_empty(self) -> bool:
        """Whether no value was ever stated."""
        return not self._values

    @property
    def last(self) -> T:
        """The newest value; IndexError where there is none."""
        return self._values[-1]


@dataclass
class Machine:
    """A machine; `holder` is a NodePool's uid, or names why it is no Node; empty if it is free.

    taken_out: where its provider took it out of service while it was free or held back; 0 unless
        it is out of service since then.
    assignment: the number of its last assignment; 0 before the first.
    wipes: whether it is wiped after each stay.
    unwiped: whether it was new, or a stay has begun, since it was wiped.
    was_lost: whether its last stay ended because it went to triage.
    zapped: whether it was being wiped, as it was known at each position.
    """

    zone: str
    instance_type: str
    labels: dict[str, str]
    holder: str = ""
    taken_out: int = 0
    assignment: int = 0
    wipes: bool = False
    unwiped: bool = False
    was_lost: bool = False
    zapped: History[bool] = field(default_factory=History)

    def hold(self, holder: str, position: int) -> None:
        """Note who holds it now; a machine that nobody holds is wiped first if it has to be."""
        if self.holder == RECLAIMED and self.taken_out and not holder:
            holder = TRIAGE
        elif not self.holder and holder == TRIAGE:
            self.taken_out = position
        elif holder != RECLAIMED:
            self.taken_out = 0
        self.holder = ZAP if self.unwiped and not holder else holder
        if self.wipes:
            self.zapped.add(position, self.holder == ZAP)

    @property
    def offering(self) -> Offering:
        """Zone and instance type."""
        return self.zone, self.instance_type

    @property
    def may_be_given_away(self) -> bool:
        """Return whether it is free, or was free before it was taken out of service."""
        return self.was_free(0)

    def was_free(self, position: int) -> bool:
        """Return whether a service that has read the log up to a position may give it away."""
        return not self.holder or (self.holder == TRIAGE and self.taken_out > position)


class Acknowledged(NamedTuple):
    """An acknowledgement of grants.

    message: what the allocator said.
    read: up to which position the allocator had read then.
    gives_all_back: whether its NodePool was being deleted by then.
    """

    message: GrantAcknowledged
    read: int
    gives_all_back: bool

    def usable(self, grant: QuotaChecked) -> int:
        """Return how many Nodes the allocator may still assign by a grant."""
        last = self.message
        if grant.number != last.number or grant.generation > last.generation:
            return grant.granted
        return min(grant.granted, last.granted)


@dataclass
class Pool:
    """A NodePool, and the events about it.

    versions: its specs with the validator's verdicts.
    grants: the grants of the quota service.
    checks: the capacity checks; None for one that failed.
    acknowledged: the grants that the allocator has acknowledged.
    assignments, departures: the positions at which it was given Nodes, and at which Nodes left it.
    lent: how many of its Nodes are reserved for the control plane, with each position at which
        that changed.
    returned: the assignments of its Nodes that the control plane gave back, with the position at
        which it did.
    deleting_since: the position at which its deletion began.
    emptied: whether its deletion has removed all Nodes.
    waiting: its Pods that wait for a Node, by name.
    """

    key: str
    uid: str
    ledger: Ledger
    versions: History[NodePoolValidated] = field(default_factory=History)
    grants: History[QuotaChecked] = field(default_factory=History)
    checks: History[CapacityChecked | None] = field(default_factory=History)
    acknowledged: History[Acknowledged] = field(default_factory=History)
    assignments: list[int] = field(default_factory=list)
    departures: list[int] = field(default_factory=list)
    lent: History[int] = field(default_factory=History)
    returned: dict[int, int] = field(default_factory=dict)
    deleting_since: int | None = None
    emptied: bool = False
    waiting: History[Mapping[str, Pod]] = field(default_factory=History)

    @property
    def spec(self) -> NodePoolSpec:
        """The newest spec, valid or not."""
        return self.versions.last.spec

    @property
    def generation(self) -> int:
        """The generation of the newest spec."""
        return self.versions.last.generation

    @property
    def zone(self) -> str:
        """The zone of its machines."""
        return self.ledger[1]

    @property
    def offering(self) -> Offering:
        """Zone and instance type of its machines."""
        return self.ledger[1:]

    @property
    def held(self) -> int:
        """How many Nodes it holds: all that were assigned, but those for the control plane."""
        return self.present - (0 if self.lent.is_empty else self.lent.last)

    @property
    def present(self) -> int:
        """How many Nodes it has, those that are reserved for the control plane included."""
        return len(self.assignments) - len(self.departures)

    def held_as_of(self, position: int) -> int:
        """How many Nodes it holds, counting only departures and reservations up to a position."""
        lent = self.lent.as_of(position) or 0
        return len(self.assignments) - bisect_right(self.departures, position) - lent

    def held_at(self, position: int) -> int:
        """How many Nodes it held at a position."""
        later = len(self.assignments) - bisect_right(self.assignments, position)
        return self.held_as_of(position) - later

    def lend(self, position: int, change: int) -> None:
        """Notes that so many more of its Nodes are reserved for the control plane."""
        self.lent.add(position, (0 if self.lent.is_empty else self.lent.last) + change)

    @property
    def reserved(self) -> int:
        """The most Nodes it may come to hold: by grants that may still be used, or that it has."""
        return self.reserved_for(inf)

    def reserved_for(self, read: float) -> int:
        """Return the same without the Nodes that the control plane gave back since a position.

        read: up to which position the service had read that decides by it; infinite for all.
        """
        held = self.held - sum(position > read for position in self.returned.values())
        return max(self.usable_as_of(inf), held)

    def usable_as_of(self, position: float) -> int:
        """Return how many Nodes its grants allow, acknowledged as they were at a position."""
        last = self.acknowledged.as_of(position)
        if last is None:
            return max((grant.granted for grant in self.grants.since(0)), default=0)
        if last.gives_all_back:
            return 0
        return max(map(last.usable, self.grants.since(last.read)), default=0)

    def is_deleting(self, position: int) -> bool:
        """Whether its deletion had begun at this position."""
        return self.deleting_since is not None and self.deleting_since <= position


@dataclass
class Lock:
    """A lock of a Node.

    job, number: the Slurm job, and the position of the command that took it.
    taken: when the log stored that it is pending.
    is_held: whether the Node was said to be locked.
    reports: the reports of its machine that know of it: position, and whether no Pod was left that
        does not tolerate it.
    """

    job: str
    number: int
    taken: datetime
    is_held: bool = False
    reports: list[tuple[int, bool]] = field(default_factory=list)


class PodFact(NamedTuple):
    """A Pod of a NodePool as it was said last: its number, its phase, and its Node's assignment."""

    number: int
    phase: str
    assignment: int = 0


@dataclass
class Stay:
    """One machine's time in one NodePool, from its assignment until it leaves.

    machine: the key of the machine.
    assigned: when it was assigned.
    phase: BOOTING until it is registered, DELETED once it has left.
    booted, failed: what the machine reported.
    reported: whether an agent has reported it.
    removals: the requests to delete it (True), and their cancellations (False).
    was_kept: whether it was kept since the last of these requests.
    cordon: how often its cordon was ordered.
    asked: when its cordon or drain was ordered last.
    answered: whether its machine has reported its last cordon.
    preempted: position and time of a preemption without a timetable.
    warned: position and time of the warning that it will be preempted.
    in_progress, overdue: how far its preemption is.
    working: whether Pods ran on it when it was last observed.
    grace: the longest grace period of these Pods for which a drain waits, as far as it is known to
        have begun.
    goes_with_pool: whether it is to be deleted because its NodePool is.
    problems: whether it has each problem that was reported of it.
    silent_since: since when it was reported to be silent; None while it is not.
    asked_as: the number of the last question whether it is still silent; 0 for none.
    confirmed: whether such a question was answered since the silence began.
    was_unhealthy, was_asked: whether it ever had a problem, or a command asked anything for it.
    asked_for: what commands asked for it last.
    is_drain_forced: whether a command asked for a drain that no Pod may block, and no reboot
        followed.
    is_unverified: whether its last boot is still to be verified.
    began: when each problem began last. rebooted: when its last reboot ended; None without one.
    failed_again: whether a reboot or a verification of it failed.
    was_forced: whether it was rebooted by command, whatever ran there.
    restarting_since: when its last reboot or verification began.
    lock: the lock of a Slurm job; None without one.
    lock_ended: where the last lock ended that was held, if a deletion of the Node ended it.
    ended: the position at which it was deleted; 0 while it is not.
    number: the number of the assignment.
    batch: the input that led to the assignment; Nodes with the same one are equally new.
    joined: where it was registered; 0 before that.
    left: the position at which it left, for whatever reason; 0 before that.
    is_lent: whether it is reserved for the control plane.
    """

    pool: Pool
    machine: str
    assigned: datetime
    phase: NodePhase = NodePhase.BOOTING
    booted: bool = False
    failed: bool = False
    reported: bool = False
    removals: History[bool] = field(default_factory=History)
    was_kept: bool = False
    cordon: int = 0
    asked: datetime | None = None
    answered: History[bool] = field(default_factory=History)
    preempted: tuple[int, datetime] | None = None
    warned: tuple[int, datetime] | None = None
    in_progress: bool = False
    overdue: bool = False
    working: bool = False
    grace: History[timedelta] = field(default_factory=History)
    goes_with_pool: bool = False
    problems: History[dict[str, bool]] = field(default_factory=History)
    silent_since: History[datetime | None] = field(default_factory=History)
    asked_as: int = 0
    confirmed: History[bool] = field(default_factory=History)
    was_unhealthy: bool = False
    was_asked: bool = False
    asked_for: NodeActionRequested | None = None
    is_drain_forced: bool = False
    is_unverified: bool = False
    began: dict[str, datetime] = field(default_factory=dict)
    rebooted: datetime | None = None
    failed_again: bool = False
    was_forced: bool = False
    restarting_since: datetime | None = None
    lock: Lock | None = None
    lock_ended: Origin | None = None
    ended: int = 0
    number: int = 0
    batch: int = 0
    joined: int = 0
    left: int = 0
    is_lent: bool = False

    @property
    def is_registered(self) -> bool:
        """Whether it has joined its cluster."""
        return self.phase is not NodePhase.BOOTING

    def is_meant_by(self, message: OfNode) -> bool:
        """Whether an event of its assignment names its machine and its NodePool."""
        return (self.machine, self.pool.key) == (message.machine_key, message.key)

    def has_left(self, position: int) -> bool:
        """Whether it had left at this position."""
        return 0 < self.left <= position

    def has_problem(self, position: int) -> bool:
        """Whether it had a problem at this position."""
        return any((self.problems.as_of(position) or {}).values())

    def is_preempted(self, position: int) -> bool:
        """Whether it had been warned at this position."""
        return self.warned is not None and self.warned[0] <= position

    def is_leaving(self, position: int) -> bool:
        """Whether its removal had been requested, or announced by a warning, at this position."""
        at_once = self.preempted is not None and self.preempted[0] <= position
        return at_once or bool(self.removals.as_of(position)) or self.is_preempted(position)


class Facts:
    """Everything read so far.

    machines: by key.
    pools: by uid, those that are deleted included.
    uids: the uid of each NodePool that exists, by key.
    stays: by assignment, those that have ended included.
    limits: how many Nodes a ledger may have.
    limited: every limit that a ledger has had; 0 while there was none.
    outcomes: the outcome of each command, by path, name and id.
    times: when each entry was stored, by position.
    to_reclaim: how many machines of an offering are to be held back.
    giving_way: the Nodes that have to give way, by assignment, those that have left included.
    preempted: those Nodes, and the Nodes that commands preempt.
    chosen: the Nodes that have to give way by one decision, by the position of its cause.
    activity: whether each Node was active, by assignment.
    sick: whether the machine of each Node goes to triage, by assignment.
    acknowledgements: the Nodes whose preemption commands acknowledge, by the positions of these.
    acknowledged: where accepted acknowledgements of each Node lie, by NodePool and Node.
    advice: the targets that the autoscaler has said, by uid and generation.
    pods: the Pods of NodePools that exist, by NodePool and name.
    agents: where each cluster was connected to Kubernetes, by organisation and name.
    taints_production: whether Nodes in production have the taint of their reservation, a setting.
    """

    def __init__(self, *, taints_production: bool = True) -> None:
        self.taints_production = taints_production
        self.machines: dict[str, Machine] = {}
        self.pools: dict[str, Pool] = {}
        self.uids: dict[str, str] = {}
        self.stays: dict[int, Stay] = {}
        self.limits: dict[Ledger, int] = {}
        self.limited: dict[Ledger, History[int]] = {}
        self.outcomes: dict[tuple[str, str, str], str] = {}
        self.times: dict[int, datetime] = {}
        self.to_reclaim: dict[Offering, int] = {}
        self.giving_way: dict[int, Stay] = {}
        self.preempted: dict[int, Stay] = {}
        self.chosen: dict[int, list[Stay]] = {}
        self.activity: dict[int, History[bool]] = {}
        self.sick: dict[int, History[bool]] = {}
        self.acknowledgements: dict[int, str] = {}
        self.acknowledged: dict[tuple[str, str], int] = {}
        self.advice: dict[tuple[str, int], set[int]] = {}
        self.pods: dict[tuple[str, str], PodFact] = {}
        self.agents: dict[tuple[str, str], int] = {}

    def machine(self, key: str) -> Machine | None:
        """Return a machine; None if it was never added."""
        return self.machines.get(key)

    def last_assignment(self, _machine: str) -> int:
        """Return the largest number of all assignments."""
        return max(self.stays, default=0)

    def node(self, message: OfNode) -> Stay | None:
        """Return the Node whose assignment an event names; None if it left, or never was."""
        stay = self.stays.get(message.assignment)
        if stay is None or stay.phase is NodePhase.DELETED:
            return None
        return stay if stay.is_meant_by(message) else None

    def pool(self, key: str) -> Pool | None:
        """The NodePool that has this key now."""
        uid = self.uids.get(key)
        return self.pools[uid] if uid is not None else None

    def existing_pools(self) -> Iterator[Pool]:
        """The NodePools that exist now."""
        return (self.pools[uid] for uid in self.uids.values())

    def existing_pool(self, uid: str, message: OfPool) -> Pool:
        """The NodePool that a message is about; a violation where it does not exist."""
        pool = self.pools.get(uid)
        if pool is None or pool.key != message.key or self.uids.get(pool.key) != uid:
            raise Violation(f"NodePool {message.key} of uid {uid} does not exist")
        return pool

    def stays_in(self, pool: Pool) -> list[Stay]:
        """The Nodes that a NodePool holds."""
        return [
            stay
            for stay in self.stays.values()
            if stay.pool is pool and stay.phase != NodePhase.DELETED
        ]

    def stay(self, message: OfNode) -> Stay:
        """The stay that an event is about; a violation where its machine or NodePool is another."""
        stay = self.stays[message.assignment]
        if not stay.is_meant_by(message):
            raise Violation(
                f"assignment {message.assignment} is {stay.machine} in {stay.pool.key}, "
                f"not {message.machine_key} in {message.key}"
            )
        return stay

    def reported_stay(self, message: OfMachine | OfNode, assignment: int) -> Stay:
        """The stay that a report is of; a violation where the machine is another."""
        stay = self.stays[assignment]
        if stay.machine != message.machine_key:
            raise Violation(f"assignment {assignment} is {stay.machine}, not {message.machine_key}")
        return stay

    def reserved(self, ledger: Ledger, read: float = inf) -> int:
        """Return the most Nodes that all NodePools of a ledger may come to hold.

        read: as of `Pool.reserved_for`.
        """
        pools = [pool for pool in self.existing_pools() if pool.ledger == ledger]
        return sum(pool.reserved_for(read) for pool in pools)
