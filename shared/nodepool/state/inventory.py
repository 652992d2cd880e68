"""Which machines there are and who holds them, and the order in which NodePools are served."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from immutables import Map

from nodepool.contract.affinity import Affinity, machine_labels, matches
from nodepool.contract.catalog import INSTANCE_TYPES, ZONES
from nodepool.contract.events import MachineAdded
from nodepool.contract.model import ComputeClass, NodePoolSpec
from nodepool.state.persistent import Queue

TRIAGE = "triage"
Rank = tuple[int, int, datetime, str]


def rank(spec: NodePoolSpec, since: datetime, key: str) -> Rank:
    """Where a NodePool stands: class, then priority, then first come; smaller is served first."""
    return spec.compute_class is ComputeClass.SPOT, -spec.priority, since, key


def offering(zone: str, instance_type: str) -> str:
    """The text that names all machines of one type in one zone."""
    return f"{zone}/{instance_type}"


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine and who holds it: a NodePool's key, `TRIAGE`, or nobody."""

    zone: str
    name: str
    instance_type: str
    labels: Mapping[str, str]
    holder: str = ""
    assignment: int = 0

    @property
    def offering(self) -> str:
        """The offering it belongs to."""
        return offering(self.zone, self.instance_type)


@dataclass(frozen=True, slots=True)
class Inventory:
    """Machines by `zone/machine`; the free ones of each offering in the order they became free."""

    machines: Map[str, Machine] = Map()
    free: Map[str, Queue] = Map()

    def add(self, said: MachineAdded) -> "Inventory":
        """The inventory with a new machine, free; one that is known already stays as it is."""
        if said.machine_key in self.machines:
            return self
        machine = Machine(said.zone, said.machine, said.instance_type, said.labels)
        return self._with(said.machine_key, machine)

    def assign(self, key: str, holder: str, assignment: int) -> "Inventory":
        """The inventory with this free machine held by a NodePool."""
        machine = self.machines[key]
        assert not machine.holder, f"{key} is held by {machine.holder}, not free for {holder}"
        return self._with(key, replace(machine, holder=holder, assignment=assignment))

    def release(self, key: str, assignment: int) -> "Inventory":
        """The inventory with this machine free, if this stay is still its last."""
        return self._leave(key, assignment, "")

    def triage(self, key: str, assignment: int) -> "Inventory":
        """The inventory with this machine out of service, if this stay is still its last."""
        return self._leave(key, assignment, TRIAGE)

    def repair(self, key: str) -> "Inventory":
        """The inventory with this machine free again, if it was out of service."""
        machine = self.machines.get(key)
        if machine is None or machine.holder != TRIAGE:
            return self
        return self._with(key, replace(machine, holder=""))

    def _leave(self, key: str, assignment: int, holder: str) -> "Inventory":
        machine = self.machines.get(key)
        if machine is None or machine.assignment != assignment or not machine.holder:
            return self
        return self._with(key, replace(machine, holder=holder))

    def _with(self, key: str, machine: Machine) -> "Inventory":
        queue = self.free.get(machine.offering, Queue())
        queue = queue.drop(key) if machine.holder else queue.put(key)
        return Inventory(self.machines.set(key, machine), self.free.set(machine.offering, queue))

    def count(self, name: str) -> int:
        """How many machines of an offering are free."""
        return len(self.free.get(name, ()))

    def fitting(self, name: str, affinity: Affinity | None) -> Iterator[str]:
        """The free machines of an offering that satisfy the affinity, longest free first."""
        for key in self.free.get(name, ()):
            if affinity is None or matches(affinity, labels_of(self.machines[key])):
                yield key


def labels_of(machine: Machine) -> dict[str, str]:
    """Every label a machine carries before it belongs to a NodePool."""
    kind, zone = INSTANCE_TYPES[machine.instance_type], ZONES[machine.zone]
    return {
        **machine_labels(kind, zone),
        **machine.labels,
        "kubernetes.io/hostname": machine.name,
    }
