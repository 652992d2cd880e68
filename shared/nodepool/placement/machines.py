"""Which machines there are, and which NodePool holds each of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import assert_never

from immutables import Map

from nodepool.contract.affinity import machine_labels
from nodepool.contract.catalog import INSTANCE_TYPES, ZONES
from nodepool.contract.events import (
    CWNodeDeleted,
    CWNodeRegistrationFailed,
    MachineAdded,
    MachineReclaimed,
    MachineRepaired,
    MachineReturned,
    MachineStateChanged,
    MachineWiped,
)
from nodepool.contract.keys import MachineKey, OfferingKey, offering_key
from nodepool.contract.node_states import MachineState
from nodepool.placement.line import Line, Shelf
from nodepool.placement.racks import domain_of
from nodepool.state.maps import put
from nodepool.state.queue import Queue
from nodepool.state.values import replace

MachineChanged = (
    MachineAdded
    | MachineRepaired
    | MachineWiped
    | MachineStateChanged
    | MachineReclaimed
    | MachineReturned
)
"""The messages about a machine that is not a Node."""
TRIAGE = "triage"
"""The holder of a machine that is out of service."""
RECLAIMED = "reclaimed"
"""The holder of a machine that an operator holds back."""
ZAP = "zap"
"""The holder of a machine that is being wiped."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine; `holder` is a NodePool's key, or names one of the places above; free if empty.

    assignment: the number of its last stay. since: when its NodePool began to wait for it.
    wipes: whether its provider wipes it after each stay.
    unwiped: whether it is new, or a stay has begun, since it was wiped; then it is never free.
    out: whether its provider has taken it out of service while an operator holds it back.
    """

    zone: str
    name: str
    instance_type: str
    labels: Mapping[str, str]
    holder: str = ""
    assignment: int = 0
    since: datetime | None = None
    wipes: bool = False
    unwiped: bool = False
    out: bool = False

    @property
    def offering(self) -> OfferingKey:
        """The offering that the machine belongs to."""
        return offering_key(self.zone, self.instance_type)

    @property
    def domain(self) -> str:
        """The NVLink domain of a machine of a type that comes in racks; empty for other types."""
        return domain_of(self.labels) if INSTANCE_TYPES[self.instance_type].rack_size else ""

    @property
    def is_in_service(self) -> bool:
        """Return whether the machine is free, is being wiped, or is a Node."""
        return self.holder not in (TRIAGE, RECLAIMED)

    @property
    def is_node(self) -> bool:
        """Return whether a NodePool has the machine."""
        return self.holder not in ("", ZAP, TRIAGE, RECLAIMED)

    @property
    def may_be_given_away(self) -> bool:
        """Return whether the allocator may know the machine as free.

        The allocator may not have read yet that the provider took the machine out of service.
        """
        return self.holder in ("", TRIAGE)

    @property
    def next_holder(self) -> str:
        """The holder once nothing else holds it: it is wiped if it has to be, or is free."""
        return ZAP if self.unwiped else ""


@dataclass(frozen=True, slots=True)
class Stock:
    """The machines of an offering that are not Nodes.

    free: the free machines of each NVLink domain, in the order in which they became free.
    count: how many machines are free.
    in_service: how many machines are free, are being wiped, or are Nodes.
    reclaimed: the machines that are held back, in the order in which they were reclaimed.
    to_reclaim: how many machines an operator wants to hold back.
    wiping: the machines that are being wiped, in the order in which their wipes began.
    """

    free: Map[str, Queue[MachineKey]] = Map()
    count: int = 0
    in_service: int = 0
    reclaimed: Queue[MachineKey] = Queue()
    to_reclaim: int = 0
    wiping: Queue[MachineKey] = Queue()

    @property
    def outstanding(self) -> int:
        """Return how many more machines to hold back; they go to no NodePool."""
        return max(0, self.to_reclaim - len(self.reclaimed))

    @property
    def returned(self) -> int:
        """Return how many held-back machines to set free again."""
        return max(0, len(self.reclaimed) - self.to_reclaim)

    @property
    def free_for_pools(self) -> int:
        """Return how many free machines remain for NodePools after an operator took the rest."""
        return max(0, self.count - self.outstanding)

    def move(self, key: MachineKey, before: Machine | None, after: Machine) -> "Stock":
        """Return the stock after a machine, new if `before` is None, changed hands."""
        queue, reclaimed = self.free.get(after.domain, Queue()), self.reclaimed
        queue = queue.drop(key) if after.holder else queue.put(key)
        is_held_back = after.holder == RECLAIMED
        known = (before,) if before is not None else ()
        return Stock(
            put(self.free, after.domain, queue if len(queue) else None),
            self.count + (not after.holder) - sum(not each.holder for each in known),
            self.in_service + after.is_in_service - sum(each.is_in_service for each in known),
            reclaimed.put(key) if is_held_back else reclaimed.drop(key),
            self.to_reclaim,
            self.wiping.put(key) if after.holder == ZAP else self.wiping.drop(key),
        )


NO_STOCK = Stock()


@dataclass(frozen=True)
class Inventory:
    """All machines, and the stock of each offering.

    The index of the labels of free machines is cached, so an affinity is evaluated only once until
    the machines change.
    """

    machines: Map[MachineKey, Machine] = Map()
    stocks: Map[OfferingKey, Stock] = Map()

    def fold_change(self, event: MachineChanged) -> "Inventory":
        """Return the inventory after a message about a machine that is no Node.

        A known machine is not added again, and only a machine in triage is repaired. A wipe counts
        only after the last stay of the machine, and frees it only if it was being wiped. A machine
        that a NodePool has got meanwhile is not taken out of service; one that an operator holds
        back is out of service once it is returned. That does not depend on which of the two came
        first: the allocator folds its own decisions before it reads what the log has before them.
        """
        key = event.machine_key
        machine = self.machines.get(key)
        match event:
            case MachineAdded(zone=zone, machine=name, instance_type=kind, labels=labels):
                added = Machine(zone, name, kind, labels, wipes=event.wipes, unwiped=event.unwiped)
                added = replace(added, holder=added.next_holder)
                return self if machine is not None else self._with(key, added)
            case MachineRepaired():
                return self if machine is None else self._repair(key, machine)
            case MachineWiped(assignment=assignment):
                return self._wipe(key, assignment)
            case MachineStateChanged():
                return self if machine is None else self._take_out(key, machine, event)
            case MachineReclaimed():
                chosen = self.machines[key]
                assert chosen.may_be_given_away, f"{key} is held by {chosen.holder}"
                out = chosen.holder == TRIAGE
                return self._with(key, replace(chosen, holder=RECLAIMED, out=out))
            case MachineReturned():
                held = self.machines[key]
                assert held.holder == RECLAIMED, f"{key} is not held back"
                return self._with(key, replace(held, holder=TRIAGE if held.out else "", out=False))
            case _:
                assert_never(event)

    def assign(
        self, key: MachineKey, holder: str, assignment: int, since: datetime | None = None
    ) -> "Inventory":
        """Return the inventory with this free machine held by a NodePool that waited for it."""
        machine = self.machines[key]
        assert machine.may_be_given_away, f"{key} is held by {machine.holder}"
        return self._with(
            key,
            replace(
                machine, holder=holder, assignment=assignment, since=since, unwiped=machine.wipes
            ),
        )

    def depart(self, event: CWNodeDeleted | CWNodeRegistrationFailed) -> "Inventory":
        """Return the inventory without this Node: its machine is in triage if it failed.

        Any other machine is wiped if it has to be, or is free. Return the same value if the event
        is not about the last stay of the machine, or if that stay has ended.
        """
        machine = self.machines.get(event.machine_key)
        if machine is None or machine.assignment != event.assignment or not machine.is_node:
            return self
        failed = isinstance(event, CWNodeRegistrationFailed) or event.triage
        return self._with_holder(event.machine_key, TRIAGE if failed else machine.next_holder)

    def reclaim(self, offering: OfferingKey, count: int) -> "Inventory":
        """Return the inventory of which an operator wants to hold back so many machines."""
        stock = replace(self.stock(offering), to_reclaim=count)
        return Inventory(self.machines, put(self.stocks, offering, stock))

    def stock(self, offering: OfferingKey) -> Stock:
        """Return the stock of an offering."""
        return self.stocks.get(offering, NO_STOCK)

    def line(self, offering: OfferingKey) -> Line:
        """Return the free machines of an offering, longest free first, to share them out."""
        return Line(self.stock(offering).free, lambda: self._shelf(offering))

    def line_of(self, keys: Sequence[MachineKey]) -> Line:
        """Return these machines, regardless of racks, to share them out in this order."""
        return Line({"": keys}, lambda: Shelf.of({"": keys}, self._labels_of))

    def _repair(self, key: MachineKey, machine: Machine) -> "Inventory":
        if machine.holder == RECLAIMED and machine.out:
            return self._with(key, replace(machine, out=False))
        return self._with_holder(key, machine.next_holder) if machine.holder == TRIAGE else self

    def _take_out(
        self, key: MachineKey, machine: Machine, event: MachineStateChanged
    ) -> "Inventory":
        """Return the inventory after a wipe that failed, or a free machine that is taken out."""
        if event.state is MachineState.ZAP_FAIL and machine.holder == ZAP:
            return self._with_holder(key, TRIAGE)
        if event.state is not MachineState.TRIAGE or machine.assignment != event.assignment:
            return self
        if machine.holder == RECLAIMED:
            return self._with(key, replace(machine, out=True))
        return self if machine.holder else self._with_holder(key, TRIAGE)

    def _wipe(self, key: MachineKey, assignment: int) -> "Inventory":
        """Return the inventory after the wipe that follows this stay of a machine, 0 before any.

        A machine in triage stays there. A Node is not wiped, whatever its provider says.
        """
        machine = self.machines.get(key)
        if machine is None or machine.assignment != assignment or not machine.unwiped:
            return self
        if machine.holder not in (ZAP, TRIAGE):
            return self
        holder = "" if machine.holder == ZAP else machine.holder
        return self._with(key, replace(machine, holder=holder, unwiped=False))

    def _with_holder(self, key: MachineKey, holder: str) -> "Inventory":
        return self._with(key, replace(self.machines[key], holder=holder))

    def _with(self, key: MachineKey, machine: Machine) -> "Inventory":
        stock = self.stock(machine.offering).move(key, self.machines.get(key), machine)
        return Inventory(self.machines.set(key, machine), self.stocks.set(machine.offering, stock))

    def _shelf(self, offering: OfferingKey) -> Shelf:
        if offering not in self._shelves:
            self._shelves[offering] = Shelf.of(self.stock(offering).free, self._labels_of)
        return self._shelves[offering]

    @cached_property
    def _shelves(self) -> dict[OfferingKey, Shelf]:
        return {}

    def _labels_of(self, key: MachineKey) -> dict[str, str]:
        return labels_of(self.machines[key])


def labels_of(machine: Machine) -> dict[str, str]:
    """Return every label that a machine carries before it belongs to a NodePool."""
    kind, zone = INSTANCE_TYPES[machine.instance_type], ZONES[machine.zone]
    return {
        **machine_labels(kind, zone),
        **machine.labels,
        "kubernetes.io/hostname": machine.name,
    }
