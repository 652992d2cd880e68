"""Which machines there are, and which NodePool holds each of them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import NamedTuple, assert_never

from immutables import Map

from nodepool.contract.affinity import Affinity, machine_labels
from nodepool.contract.catalog import INSTANCE_TYPES, ZONES
from nodepool.contract.events import (
    CWNodeDeleted,
    CWNodeRegistrationFailed,
    MachineAdded,
    MachineReclaimed,
    MachineRepaired,
    MachineReturned,
)
from nodepool.contract.keys import MachineKey, OfferingKey, offering_key
from nodepool.placement.label_index import LabelIndex
from nodepool.placement.racks import Counts, deliveries, domain_of
from nodepool.state.queue import Queue

MachineChanged = MachineAdded | MachineRepaired | MachineReclaimed | MachineReturned
"""The messages about a machine that is not a Node."""
TRIAGE = "triage"
"""The holder of a machine that is out of service."""
RECLAIMED = "reclaimed"
"""The holder of a machine that an operator holds back."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine; `holder` is a NodePool's key, `TRIAGE`, `RECLAIMED`, or empty for a free one.

    assignment: the number of its last stay. since: when its NodePool began to wait for it.
    """

    zone: str
    name: str
    instance_type: str
    labels: Mapping[str, str]
    holder: str = ""
    assignment: int = 0
    since: datetime | None = None

    @property
    def offering(self) -> OfferingKey:
        """The offering that the machine belongs to."""
        return offering_key(self.zone, self.instance_type)

    @property
    def comes_in_racks(self) -> bool:
        """Whether the machine is only available together with all machines of its rack."""
        return INSTANCE_TYPES[self.instance_type].rack_size > 0

    @property
    def domain(self) -> str:
        """The NVLink domain of the machine; empty if it has none."""
        return domain_of(self.labels)


class _Shelf(NamedTuple):
    """The free machines of an offering in order, the place of each machine, and their labels."""

    keys: Sequence[MachineKey]
    places: Mapping[MachineKey, int]
    labels: LabelIndex


@dataclass(frozen=True)
class Inventory:
    """All machines, and the free machines of each offering in the order in which they became free.

    racks: the free machines of types that come in racks, again, by their NVLink domain.
    reclaimed: the machines that are held back, in the order in which they were reclaimed.

    Results about the free machines are cached, so an affinity is evaluated only once until the free
    machines change.
    """

    machines: Map[MachineKey, Machine] = Map()
    free: Map[OfferingKey, Queue[MachineKey]] = Map()
    racks: Map[OfferingKey, Map[str, Queue[MachineKey]]] = Map()
    reclaimed: Map[OfferingKey, Queue[MachineKey]] = Map()

    def changed(self, event: MachineChanged) -> "Inventory":
        """Return the inventory after a message about a machine that is no Node."""
        match event:
            case MachineAdded():
                return self.add(event)
            case MachineRepaired(machine_key=key):
                return self.repair(key)
            case MachineReclaimed(machine_key=key):
                return self.reclaim(key)
            case MachineReturned(machine_key=key):
                return self.give_back(key)
            case _:
                assert_never(event)

    def add(self, event: MachineAdded) -> "Inventory":
        """Return the inventory with a new machine, free; a known machine stays as it is."""
        if event.machine_key in self.machines:
            return self
        machine = Machine(event.zone, event.machine, event.instance_type, event.labels)
        return self._with(event.machine_key, machine)

    def assign(
        self, key: MachineKey, holder: str, assignment: int, since: datetime | None = None
    ) -> "Inventory":
        """Return the inventory with this free machine held by a NodePool that waited for it."""
        machine = self.machines[key]
        assert not machine.holder, f"{key} is held by {machine.holder}, not free for {holder}"
        return self._with(key, replace(machine, holder=holder, assignment=assignment, since=since))

    def depart(self, event: CWNodeDeleted | CWNodeRegistrationFailed) -> "Inventory":
        """Return the inventory without this Node: its machine is free, or in triage if it failed.

        Return the same value if the event is not about the last stay of the machine.
        """
        failed = isinstance(event, CWNodeRegistrationFailed) or event.triage
        return self._leave(event.machine_key, event.assignment, TRIAGE if failed else "")

    def repair(self, key: MachineKey) -> "Inventory":
        """Return the inventory with this machine free again, if it was out of service."""
        machine = self.machines.get(key)
        if machine is None or machine.holder != TRIAGE:
            return self
        return self._with(key, replace(machine, holder=""))

    def reclaim(self, key: MachineKey) -> "Inventory":
        """Return the inventory with this free machine held back."""
        machine = self.machines[key]
        assert not machine.holder, f"{key} is held by {machine.holder}, and cannot be reclaimed"
        queue: Queue[MachineKey] = self.reclaimed.get(machine.offering, Queue())
        after = self._with(key, replace(machine, holder=RECLAIMED))
        return replace(after, reclaimed=after.reclaimed.set(machine.offering, queue.put(key)))

    def give_back(self, key: MachineKey) -> "Inventory":
        """Return the inventory with this machine, which was held back, free again."""
        machine = self.machines[key]
        assert machine.holder == RECLAIMED, f"{key} is not held back"
        queue = self.reclaimed[machine.offering].drop(key)
        after = self._with(key, replace(machine, holder=""))
        return replace(after, reclaimed=after.reclaimed.set(machine.offering, queue))

    def _leave(self, key: MachineKey, assignment: int, holder: str) -> "Inventory":
        machine = self.machines.get(key)
        if machine is None or machine.assignment != assignment or not machine.holder:
            return self
        return self._with(key, replace(machine, holder=holder))

    def _with(self, key: MachineKey, machine: Machine) -> "Inventory":
        queue: Queue[MachineKey] = self.free.get(machine.offering, Queue())
        queue = queue.drop(key) if machine.holder else queue.put(key)
        racks = self._in_rack(key, machine) if machine.comes_in_racks else self.racks
        free = self.free.set(machine.offering, queue)
        return Inventory(self.machines.set(key, machine), free, racks, self.reclaimed)

    def _in_rack(
        self, key: MachineKey, machine: Machine
    ) -> Map[OfferingKey, Map[str, Queue[MachineKey]]]:
        domains = self.racks.get(machine.offering, Map())
        queue: Queue[MachineKey] = domains.get(machine.domain, Queue())
        queue = queue.drop(key) if machine.holder else queue.put(key)
        if len(queue):
            domains = domains.set(machine.domain, queue)
        elif machine.domain in domains:
            domains = domains.delete(machine.domain)
        return self.racks.set(machine.offering, domains)

    def count(self, offering: OfferingKey) -> int:
        """Return how many machines of an offering are free."""
        return len(self.free.get(offering, ()))

    def reclaimed_count(self, offering: OfferingKey) -> int:
        """Return how many machines of an offering are held back."""
        return len(self.reclaimed.get(offering, ()))

    def shelf(self, offering: OfferingKey) -> "FreeMachines":
        """Return the free machines of an offering, to share out among NodePools."""
        return FreeMachines(self, offering)

    def indexed(self, offering: OfferingKey) -> _Shelf:
        """Return the free machines of an offering with an index of their labels."""
        if offering not in self._shelves:
            keys = tuple(self.free.get(offering, ()))
            labels = [labels_of(self.machines[key]) for key in keys]
            index = LabelIndex(len(keys), lambda name: [each.get(name) for each in labels])
            places = {key: place for place, key in enumerate(keys)}
            self._shelves[offering] = _Shelf(keys, places, index)
        return self._shelves[offering]

    @cached_property
    def _shelves(self) -> dict[OfferingKey, _Shelf]:
        return {}


class FreeMachines:
    """The free machines of an offering while they are distributed, longest free first.

    left: how many machines are left.
    """

    def __init__(self, inventory: Inventory, offering: OfferingKey) -> None:
        self.left = inventory.count(offering)
        self._inventory = inventory
        self._offering = offering
        self._in_order = iter(inventory.free.get(offering, ()))
        self._taken: set[MachineKey] = set()
        self._gone = 0
        self._unmarked: list[MachineKey] = []
        self._gone_of = Counter[str]()

    def count(self, affinity: Affinity | None) -> int:
        """Return how many of the machines left satisfy an affinity; None accepts all of them."""
        return self.left if affinity is None else self._fitting(affinity).bit_count()

    def take(self, affinity: Affinity | None, count: int) -> list[MachineKey]:
        """Take at most `count` of the machines left that satisfy an affinity."""
        if affinity is None:
            # Most NodePools have no affinity. For them, only the machines that they get are read.
            left = (key for key in self._in_order if key not in self._taken)
            keys = list(islice(left, count))
            self._unmarked += keys
        else:
            keys = self._first(self._fitting(affinity), count)
        self._taken.update(keys)
        self.left -= len(keys)
        return keys

    def by_domain(self, affinity: Affinity | None) -> dict[str, int]:
        """Return how many of the machines left satisfy an affinity, per NVLink domain."""
        queues = self._inventory.racks.get(self._offering, Map())
        if affinity is None:
            gone = self._gone_of
            return {domain: len(queue) - gone[domain] for domain, queue in queues.items()}
        fits = self._fits(affinity)
        return {domain: sum(map(fits, queue)) for domain, queue in queues.items()}

    def take_of(self, domain: str, affinity: Affinity | None, count: int) -> list[MachineKey]:
        """Take at most `count` of the machines left in a domain that satisfy an affinity."""
        queue = self._inventory.racks.get(self._offering, Map()).get(domain, Queue())
        left = (key for key in queue if key not in self._taken)
        keys = list(islice(filter(self._fits(affinity), left), count))
        self._unmarked += keys
        self._taken.update(keys)
        self._gone_of[domain] += len(keys)
        self.left -= len(keys)
        return keys

    def _fits(self, affinity: Affinity | None) -> Callable[[MachineKey], bool]:
        """Return a test for machines that are left and satisfy an affinity; None accepts all."""
        if affinity is None:
            return lambda _: True
        fitting, places = self._fitting(affinity), self._inventory.indexed(self._offering).places
        return lambda key: bool(fitting >> places[key] & 1)

    def _fitting(self, affinity: Affinity) -> int:
        shelf = self._inventory.indexed(self._offering)
        for key in self._unmarked:
            self._gone |= 1 << shelf.places[key]
        self._unmarked.clear()
        return shelf.labels.accepted(affinity) & ~self._gone

    def _first(self, fitting: int, count: int) -> list[MachineKey]:
        keys = self._inventory.indexed(self._offering).keys
        taken: list[MachineKey] = []
        while fitting and len(taken) < count:
            first = fitting & -fitting
            taken.append(keys[first.bit_length() - 1])
            self._gone |= first
            fitting ^= first
        return taken


def take_racks(
    free: FreeMachines, affinity: Affinity | None, size: int, goal: int, held: Counts
) -> list[MachineKey]:
    """Take the machines that a NodePool can be given of a type that comes in racks.

    size: the number of machines in a rack.
    goal, held: how many Nodes it may have in all, and has of each NVLink domain.
    """
    parts = deliveries(size, goal, held, free.by_domain(affinity))
    return [key for part in parts for key in free.take_of(part.domain, affinity, part.machines)]


def labels_of(machine: Machine) -> dict[str, str]:
    """Return every label that a machine carries before it belongs to a NodePool."""
    kind, zone = INSTANCE_TYPES[machine.instance_type], ZONES[machine.zone]
    return {
        **machine_labels(kind, zone),
        **machine.labels,
        "kubernetes.io/hostname": machine.name,
    }
