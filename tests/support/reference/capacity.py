"""Capacity as a second specification: how many machines a NodePool could have now, and has.

* A NodePool wants what it was granted, at most its target, without what it holds. A
  NodePool that is invalid or is being deleted wants nothing.
* A NodePool whose generation has no verdict on its quota yet is not checked. It keeps its place for
  what its last checks allow, unless one of its checks failed.
* The free machines of its type and zone that its affinity accepts are had in order, after an
  operator who is still to have some. `positions` says which order.
* A wait starts with the verdict on quota that leaves a NodePool wanting Nodes, or more Nodes than
  before, or with the loss of a Node. An invalid version ends it.
* In the end, no machine is free that a NodePool wants.

From the log: which machines there are and which NodePool holds each. Which of several machines a
NodePool with an affinity is given is not laid down; verdicts on the way are only compared where no
NodePool of the offering has one.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from nodepool.contract.affinity import machine_labels
from nodepool.contract.catalog import INSTANCE_TYPES, ZONES
from nodepool.contract.conditions import HEALTHY, Capacity, Validated
from nodepool.contract.events import (
    CapacityChecked,
    CapacityCheckFailed,
    CapacityReclaimed,
    CWInsufficientCapacity,
    CWNodeAssigned,
    CWNodeCordoned,
    CWNodeDeleted,
    CWNodePoolDeleted,
    CWNodeRegistrationFailed,
    CWNodeUncordoned,
    MachineAdded,
    MachineReclaimed,
    MachineRepaired,
    MachineReturned,
    MachineStateChanged,
    MachineWiped,
    NodePoolDeleting,
    NodePoolValidated,
    NodePreempted,
    NodePreemptionRequested,
    NodePreemptionWithdrawn,
    NodeReservationChanged,
    NodeUpdated,
    PreemptionPending,
    QuotaChecked,
    QuotaCheckFailed,
)
from nodepool.contract.messages import Message
from nodepool.contract.model import ComputeClass, NodePoolSpec, RemovalReason
from nodepool.contract.node_states import MachineState
from support.affinity import matches
from support.audit.facts import NOBODY, RECLAIMED, TRIAGE, ZAP
from support.reference import racks
from support.reference.history import History, Stored
from support.reference.positions import Queued, Rival, fill, fill_own, shares


@dataclass
class Machine:
    """A machine; `holder` is a NodePool's uid, or names why it is no Node; empty if it is free.

    stay: the number of its last stay in a NodePool.
    sick: whether it goes to triage when it leaves.
    gives_way: whether it is a spot Node that is preempted, for others or by command.
    is_warned: whether that has begun, so that it is not taken back.
    lent: whether it is reserved for the control plane, so that its NodePool does not hold it.
    surplus: whether it leaves for a scale-down.
    wipes: whether it is wiped after each stay before it is free.
    unwiped: whether it has still to be wiped.
    """

    name: str
    zone: str
    kind: str
    labels: dict[str, str]
    holder: str = ""
    stay: int = 0
    sick: bool = False
    gives_way: bool = False
    is_warned: bool = False
    lent: bool = False
    surplus: bool = False
    wipes: bool = False
    unwiped: bool = False

    def give_back(self) -> None:
        """Free it, or let it be wiped first."""
        self.holder = ZAP if self.unwiped else ""


@dataclass
class Demand:
    """What a NodePool wants, and how it waits for that.

    granted, checked: the last grant for the generation that was the newest then, and its number.
    latest_grant: the last grant for whichever generation.
    is_known: whether it has a verdict that is newer than a failed check and than an invalid spec.
    quota_failed: whether its last check of quota failed.
    """

    version: NodePoolValidated
    deleting: bool = False
    granted: int = 0
    checked: int = 0
    latest_grant: int = 0
    is_known: bool = False
    quota_failed: bool = False
    held: int = 0
    queued: Queued = field(default_factory=Queued)

    @property
    def key(self) -> str:
        """The key of the NodePool."""
        return self.version.key

    @property
    def spec(self) -> NodePoolSpec:
        """Its spec."""
        return self.version.spec

    @property
    def offering(self) -> tuple[str, str]:
        """Zone and type of its machines."""
        return self.version.zone, self.spec.instance_type

    @property
    def goal(self) -> int:
        """How many Nodes it may have in all."""
        return min(self.granted, self.latest_grant, self.spec.target)

    @property
    def rival(self) -> Rival:
        """The NodePool as one that waits."""
        return Rival(self.key, self.spec, self.queued, self.claimed)

    @property
    def missing(self) -> int:
        """How many Nodes it has not got of those that it was granted."""
        return max(0, self.goal - self.held)

    @property
    def wanted(self) -> int:
        """How many Nodes it wants now."""
        return self.missing if self._is_active and self._is_checked else 0

    @property
    def claimed(self) -> int:
        """Return how many machines are kept for it as they come free.

        While it is checked again, they are no more than it waited for.
        """
        is_kept = self._is_active and self.is_known and not self.quota_failed
        if self._is_checked or not is_kept:
            return self.wanted
        return min(self.missing, len(self.queued.moments))

    def specify(self, version: NodePoolValidated) -> None:
        """Take another version; an invalid one had no position."""
        if self.version.reason is Validated.INVALID:
            self.queued.aim(self.held, self.held)
        self.version, is_valid = version, version.reason is Validated.VALID
        if is_valid:
            self.queued.aim(self.spec.target, self.held)
        self.is_known = self.is_known and is_valid

    @property
    def _is_active(self) -> bool:
        return not self.deleting and self.version.reason is Validated.VALID

    @property
    def _is_checked(self) -> bool:
        return self.checked == self.version.generation


class CapacityModel:
    """All machines and demands after a log; `faults` is what the capacity service did wrong."""

    def __init__(self, history: History) -> None:
        self.machines: dict[str, Machine] = {}
        self.demands: dict[str, Demand] = {}
        self.to_reclaim: dict[tuple[str, str], int] = {}
        self.faults: list[str] = []
        for stored in history.seen_by("capacity"):
            self._take(stored)

    def free(self, demand: Demand, *, fitting: bool = True) -> list[Machine]:
        """The free machines of its type and zone, those that its affinity accepts or all."""
        return [
            machine
            for machine in self.machines.values()
            if not machine.holder
            and (machine.zone, machine.kind) == demand.offering
            and (not fitting or accepts(demand.spec, machine))
        ]

    def reason(self, demand: Demand, available: int, free: int) -> Capacity:
        """The reason of its condition Capacity, with so many of the free machines to be had."""
        if available >= demand.wanted:
            return Capacity.SUFFICIENT
        by_affinity = demand.spec.affinity is not None and free > available
        if available:
            return Capacity.PARTIAL_NODE_AFFINITY if by_affinity else Capacity.PARTIAL
        if by_affinity:
            return Capacity.NONE_AVAILABLE_NODE_AFFINITY
        return Capacity.NONE_AVAILABLE

    def held_in(self, demand: Demand) -> Counter[str]:
        """How many of its machines are of which NVLink domain."""
        uid = demand.version.uid
        machines = self.machines.values()
        return racks.by_domain(
            each.labels for each in machines if each.holder == uid and not each.lent
        )

    def available(self, demand: Demand, *, fitting: bool = True) -> int:
        """How many of the free machines it could be given."""
        free, size = self.free(demand, fitting=fitting), racks.size_of(demand.spec.instance_type)
        if not size or not demand.wanted:
            return len(free)
        counts = racks.by_domain(each.labels for each in free)
        return self._given(demand, counts).total()

    def _given(self, demand: Demand, free: Mapping[str, int]) -> Counter[str]:
        """How many of so many free machines of a type in racks it could be given, by domain."""
        size, held = racks.size_of(demand.spec.instance_type), self.held_in(demand)
        goal = demand.held + demand.claimed
        return racks.given(size, goal, held, free, self._parts(demand))

    def _parts(self, demand: Demand) -> list[tuple[int, str]]:
        """What its racks lack that stay in part."""
        size, uid = racks.size_of(demand.spec.instance_type), demand.version.uid
        machines = [each for each in self.machines.values() if each.surplus and not each.lent]
        leaving = racks.by_domain(each.labels for each in machines if each.holder == uid)
        return racks.parts(size, demand.spec.target, self.held_in(demand), leaving)

    def message(
        self,
        demand: Demand,
        reason: Capacity,
        available: int,
        free: Mapping[str, int] | None = None,
    ) -> str:
        """The message of its condition Capacity; `free` counts the machines by their domain."""
        if reason is Capacity.SUFFICIENT:
            return HEALTHY[reason]
        zone, kind = demand.offering
        size = racks.size_of(kind)
        if free is None:
            free = racks.by_domain(each.labels for each in self.free(demand))
        in_racks = racks.why(size, demand.wanted, self._parts(demand), free) if size else ""
        which = " that satisfy the node affinity" if reason.endswith("NodeAffinity") else ""
        return (
            f"{available or 'none'} of {demand.wanted} wanted Nodes of {kind}{which} "
            f"can be had in {zone} now{in_racks}"
        )

    def _take(self, stored: Stored) -> None:
        message = stored.message
        match message:
            case NodePoolValidated(uid=uid):
                demand = self.demands.setdefault(uid, Demand(message))
                demand.specify(message)
            case NodePoolDeleting(uid=uid) if uid in self.demands:
                self.demands[uid].deleting = True
            case CWNodePoolDeleted(uid=uid):
                self.demands.pop(uid, None)
            case QuotaChecked(uid=uid) if uid in self.demands:
                self._granted(self.demands[uid], message, stored)
            case QuotaCheckFailed(key=key) | CapacityCheckFailed(key=key):
                self._failed(key, message)
            case CapacityChecked(uid=uid):
                self._checked(self.demands.get(uid), message, stored)
            case CWInsufficientCapacity(key=key):
                if not any(each.key == key and each.wanted for each in self.demands.values()):
                    self.faults.append(f"{key} is warned of capacity at {stored.position} in vain")
            case _:
                self._moved(stored)

    def _moved(self, stored: Stored) -> None:  # noqa: C901  # It lists the messages.
        message = stored.message
        match message:
            case MachineAdded(machine_key=key):
                labels = dict(message.labels)
                kind = message.instance_type
                machine = Machine(message.machine, message.zone, kind, labels)
                machine.wipes = message.wipes
                machine.unwiped = message.unwiped
                machine.give_back()
                self.machines[key] = machine
            case MachineRepaired(machine_key=key):
                if self.machines[key].holder == TRIAGE:
                    self.machines[key].give_back()
            case MachineStateChanged(machine_key=key, state=MachineState.ZAP_FAIL):
                if self.machines[key].holder == ZAP:
                    self.machines[key].holder = TRIAGE
            case MachineStateChanged(machine_key=key, state=MachineState.TRIAGE):
                if not self.machines[key].holder and self.machines[key].stay == message.assignment:
                    self.machines[key].holder = TRIAGE
            case MachineWiped(machine_key=key):
                self.machines[key].unwiped = False
                if self.machines[key].holder == ZAP:
                    self.machines[key].give_back()
            case MachineReclaimed(machine_key=key):
                self.machines[key].holder = RECLAIMED
            case MachineReturned(machine_key=key):
                self.machines[key].holder = ""
            case NodePreemptionRequested() | PreemptionPending() | NodePreempted():
                self._preempted(message)
            case NodePreemptionWithdrawn(machine_key=key):
                machine = self.machines[key]
                if machine.stay == message.assignment and not machine.is_warned:
                    machine.gives_way = False
            case NodeUpdated(machine_key=key, assignment=stay, removal=removal):
                if self.machines[key].stay == stay:
                    self.machines[key].surplus = removal is RemovalReason.SCALE_DOWN
            case CapacityReclaimed(zone=zone, instance_type=kind, count=count):
                self.to_reclaim[zone, kind] = count
            case _:
                self._held(message, stored.time)

    def _preempted(
        self, message: NodePreemptionRequested | PreemptionPending | NodePreempted
    ) -> None:
        machine = self.machines[message.machine_key]
        if machine.holder in NOBODY or machine.stay != message.assignment:
            return
        machine.gives_way = True
        machine.is_warned |= not isinstance(message, NodePreemptionRequested)

    def _held(self, message: Message, now: datetime) -> None:
        match message:
            case CWNodeAssigned(machine_key=key):
                self.machines[key].holder = message.uid
                self.machines[key].stay = message.assignment
                machine = self.machines[key]
                machine.sick = machine.lent = machine.surplus = False
                machine.unwiped = machine.wipes
                demand = self.demands[message.uid]
                if demand.claimed:
                    rivals = [each.rival for each in self._rivals(demand)]
                    fill(demand.rival, rivals, message.assignment)
                else:
                    fill_own(demand.queued, message.assignment)
                # The grant may have changed since the allocator read it.
                demand.queued.filled[message.assignment] = message.since
                demand.held += 1
            case CWNodeCordoned(machine_key=key, triage=triage):
                self.machines[key].sick = triage
            case CWNodeUncordoned(machine_key=key):
                self.machines[key].sick = False
            case CWNodeDeleted(machine_key=key) | CWNodeRegistrationFailed(machine_key=key):
                is_dead = isinstance(message, CWNodeRegistrationFailed)
                is_dead = is_dead or getattr(message, "triage", False)
                self.machines[key].give_back()
                if is_dead:
                    self.machines[key].holder = TRIAGE
                self.machines[key].gives_way = self.machines[key].is_warned = False
                if message.uid in self.demands and not self.machines[key].lent:
                    demand = self.demands[message.uid]
                    demand.held -= 1
                    failed = isinstance(message, CWNodeRegistrationFailed)
                    held = demand.held
                    demand.queued.lose(message.assignment, held, now, never_joined=failed)
            case NodeReservationChanged(machine_key=key, usable=usable):
                machine = self.machines[key]
                if machine.stay == message.assignment and machine.lent is usable:
                    machine.lent = not usable
                    self._lent(machine, 1 if usable else -1, now)
            case _:
                pass

    def _lent(self, machine: Machine, change: int, now: datetime) -> None:
        demand = self.demands.get(machine.holder)
        if demand is None:
            return
        demand.held += change
        if change > 0:
            demand.queued.gain(demand.held)
        else:
            demand.queued.lose(machine.stay, demand.held, now, never_joined=False)

    def _failed(self, key: str, event: QuotaCheckFailed | CapacityCheckFailed) -> None:
        for demand in self.demands.values():
            if demand.key == key and isinstance(event, QuotaCheckFailed):
                demand.quota_failed = True
            elif demand.key == key:
                demand.is_known = False

    def _granted(self, demand: Demand, verdict: QuotaChecked, stored: Stored) -> None:
        """A verdict on an older version of a NodePool does not check the newest version."""
        demand.latest_grant, demand.quota_failed = verdict.granted, False
        if verdict.generation != demand.version.generation:
            return
        demand.granted, demand.checked = verdict.granted, verdict.generation
        demand.queued.grant(demand.goal, demand.held, stored.time)

    def _rivals(self, demand: Demand) -> list[Demand]:
        """The NodePools that wait for the same machines, this one included."""
        return [
            each
            for each in self.demands.values()
            if each.offering == demand.offering and each.claimed
        ]

    def _giving_way(self, demand: Demand) -> int:
        """Return how many spot Nodes of its type and zone give way and are not for an operator.

        A machine that goes to triage afterwards does not count.
        """
        machines = [
            each for each in self.machines.values() if (each.zone, each.kind) == demand.offering
        ]
        at_hand = sum(each.holder in ("", RECLAIMED, ZAP) for each in machines)
        for_operator = max(0, self.to_reclaim.get(demand.offering, 0) - at_hand)
        return max(0, sum(each.gives_way and not each.sick for each in machines) - for_operator)

    def _checked(self, demand: Demand | None, verdict: CapacityChecked, stored: Stored) -> None:
        if demand is None or demand.deleting or demand.version.reason is not Validated.VALID:
            self.faults.append(f"{verdict.key} is checked, though it is invalid or being deleted")
            return
        demand.is_known = True
        start = demand.queued.start
        if start != verdict.since:
            self.faults.append(
                f"{demand.key} waits since {verdict.since} at {stored.position}, and has to wait "
                f"since {start}"
            )
        rivals = self._rivals(demand)
        if any(each.spec.affinity is not None for each in (*rivals, demand)):
            return
        size = racks.size_of(demand.spec.instance_type)
        if size and len({each.rival.org for each in (*rivals, demand)}) > 1:
            return  # `turns` compares the order of several organisations.
        free = self._free(demand)
        if size:
            free = self._left_for(demand, rivals, free)
            available, count = free.total(), 0
            if demand.wanted:
                available = self._given(demand, free).total()
        else:
            waiting = [each.rival for each in rivals]
            available = shares(waiting, free.total()).get(demand.key, (free.total(), 0))[0]
            count = self._promised(demand, waiting)
        reason = self.reason(demand, available, available)
        text = self.message(demand, reason, available, free)
        if count and reason is not Capacity.SUFFICIENT:
            verb = " is" if count == 1 else "s are"
            text += f"; {count} spot Node{verb} being preempted for it"
        if (verdict.reason, verdict.message) != (reason, text):
            self.faults.append(
                f"the capacity of {demand.key} is {verdict.reason} ({verdict.message}) at "
                f"{stored.position}, and has to be {reason} ({text})"
            )

    def _promised(self, demand: Demand, waiting: list[Rival]) -> int:
        """Return how many spot Nodes give way to it, after NodePools that are served before.

        Machines that are being wiped come before these, as if they were free.
        """
        if demand.spec.compute_class is ComputeClass.SPOT or not demand.wanted:
            return 0
        free = self._free(demand, ("", ZAP)).total()
        default = [each for each in waiting if not each.is_spot]
        with_coming = shares(default, free + self._giving_way(demand))
        return with_coming[demand.key][0] - shares(default, free)[demand.key][0]

    def _free(self, demand: Demand, holders: tuple[str, ...] = ("",)) -> Counter[str]:
        """The free machines of its type and zone, by domain, after an operator.

        holders: the holders of the machines that count as free.
        """
        free = racks.by_domain(
            each.labels
            for each in self.machines.values()
            if each.holder in holders and (each.zone, each.kind) == demand.offering
        )
        return self._without_reclaimed(demand, free)

    def _left_for(self, demand: Demand, rivals: list[Demand], free: Counter[str]) -> Counter[str]:
        """The machines of a type in racks, by domain, that earlier NodePools leave it."""
        for ahead in sorted(rivals, key=rank):
            if ahead is demand:
                break
            free = free - self._given(ahead, free)
        return free

    def _without_reclaimed(self, demand: Demand, free: Counter[str]) -> Counter[str]:
        """Those of the free machines that no operator is still to have."""
        held = racks.by_domain(
            each.labels
            for each in self.machines.values()
            if each.holder == RECLAIMED and (each.zone, each.kind) == demand.offering
        )
        goal, size = self.to_reclaim.get(demand.offering, 0), racks.size_of(demand.offering[1])
        if goal <= held.total():
            return free
        if size:
            parts = racks.parts(size, size * held.total(), held, {})  # An operator has any rack.
            return free - racks.given(size, goal, held, free, parts)
        return Counter({"": max(0, free.total() - goal + held.total())})


def rank(demand: Demand) -> tuple[bool, tuple[int, datetime, str]]:
    """The place of a NodePool of an organisation among those that wait for racks, lowest first.

    Every position is one of the organisation, so each takes all that it can before the next one.
    """
    return demand.rival.is_spot, demand.rival.order


def accepts(spec: NodePoolSpec, machine: Machine) -> bool:
    """Whether a NodePool's node affinity accepts a machine."""
    labels = {
        **machine_labels(INSTANCE_TYPES[machine.kind], ZONES[machine.zone]),
        **machine.labels,
        "kubernetes.io/hostname": machine.name,
    }
    return matches(spec.affinity, labels)


def faults(model: CapacityModel) -> Iterator[str]:
    """What was wrong on the way, and machines that are idle in the end though they are wanted."""
    yield from model.faults
    for demand in model.demands.values():
        free = model.available(demand)
        if demand.wanted and free:
            yield (
                f"{demand.key} wants {demand.wanted} more of {demand.granted} granted Nodes, "
                f"while {free} machines that it could have are free"
            )
        spot = spot_nodes(model, demand) if demand.wanted else []
        if spot and demand.spec.compute_class is not ComputeClass.SPOT:
            yield f"{demand.key} wants {demand.wanted} Nodes, while the spot Nodes {spot} stay"


def spot_nodes(model: CapacityModel, demand: Demand) -> list[str]:
    """The machines of spot Nodes that a NodePool could have instead."""
    holders = {
        uid for uid, each in model.demands.items() if each.spec.compute_class is ComputeClass.SPOT
    }
    return [
        machine.name
        for machine in model.machines.values()
        if machine.holder in holders
        and not machine.sick
        and not machine.lent
        and (machine.zone, machine.kind) == demand.offering
        and accepts(demand.spec, machine)
    ]
