"""Which machines are Nodes of one cluster, as the bus says it: what their kubelets go by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nodepool.contract.decode import decode
from nodepool.contract.events import (
    CWNodeAssigned,
    CWNodeDeleted,
    CWNodeRegistered,
    MachineBooted,
    MachineBroken,
)
from nodepool.contract.log import Entry
from nodepool.contract.messages import Envelope
from nodepool.contract.subjects import address_of, filters_of

Heard = CWNodeAssigned | CWNodeRegistered | CWNodeDeleted | MachineBooted | MachineBroken
KINDS: Mapping[str, type[Heard]] = {
    kind.__name__: kind
    for kind in (CWNodeAssigned, CWNodeRegistered, CWNodeDeleted, MachineBooted, MachineBroken)
}
SILENT = ("kubelet", "hang")
"""The faults of a machine whose kubelet says nothing."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine, and the stay in the cluster that it is in.

    assignment, instance_type: those of its stay; 0 where it is in none.
    boot: how often it was rebooted in its stay; None until it has booted first.
    registered: whether its Node has joined the cluster.
    faults: at how many of its next boots its kubelet is silent.
    silent: whether it is.
    """

    assignment: int = 0
    instance_type: str = ""
    boot: int | None = None
    registered: bool = False
    faults: int = 0
    silent: bool = False

    @property
    def is_up(self) -> bool:
        """Return whether its kubelet runs."""
        return self.assignment > 0 and self.boot is not None


def filters(org: str, cluster: str) -> Sequence[str]:
    """Return the subjects of the cluster's Node events, and of boots and faults of all machines."""
    nodes = (CWNodeAssigned, CWNodeRegistered, CWNodeDeleted)
    return [
        *(f"np.evt.{kind.speaker}.{org}.{cluster}.*.{kind.__name__}" for kind in nodes),
        *(each for kind in (MachineBooted, MachineBroken) for each in filters_of(kind)),
    ]


def read(entry: Entry) -> Heard | None:
    """Return the event in a log entry, or None if the entry holds no event of `KINDS`."""
    address = address_of(entry.subject)
    kind = KINDS.get(address.name) if address is not None else None
    if kind is None:
        return None
    envelope = decode(kind, entry.subject, entry.content, {}, entry.position)
    return envelope.data if isinstance(envelope, Envelope) else None


def name_of(event: Heard) -> str:
    """Return the name of the machine that an event is about."""
    return event.machine if isinstance(event, MachineBooted | MachineBroken) else event.node


def after(machine: Machine, event: Heard) -> Machine:
    """Return the machine after an event; ignore an event about another stay."""
    match event:
        case CWNodeAssigned():
            return replace(
                machine,
                assignment=event.assignment,
                instance_type=event.instance_type,
                boot=None,
                registered=False,
                silent=False,
            )
        case MachineBroken():
            return _break_machine(machine, event)
    if event.assignment != machine.assignment:
        return machine
    match event:
        case MachineBooted():
            left = max(0, machine.faults - 1)
            return replace(machine, boot=event.boot, faults=left, silent=machine.faults > 0)
        case CWNodeRegistered():
            return replace(machine, registered=True)
        case CWNodeDeleted():
            return Machine(faults=machine.faults)


def _break_machine(machine: Machine, event: MachineBroken) -> Machine:
    """Return the machine after a fault, which acts now if the kubelet runs, else at next boot."""
    if event.fault not in SILENT:
        return replace(machine, faults=0)
    if not event.times:
        return replace(machine, faults=0, silent=False)
    if machine.is_up and not machine.silent:
        return replace(machine, faults=event.times - 1, silent=True)
    return replace(machine, faults=event.times)
