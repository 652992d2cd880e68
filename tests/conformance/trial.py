"""A provider of machines on trial: it reads and writes the log, and the test says all else there.

`conformance.scenarios` are the stories. A story runs on each `Trial`: over a log in memory, where
time passes at once, and with a real process on a real server.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import count
from typing import ClassVar, Protocol, TypeVar

from conformance.requests import CLUSTER, ORG, POOL, deleted
from nodepool.contract import events
from nodepool.contract.commands import MachineFault
from nodepool.contract.decode import Unreadable, decode
from nodepool.contract.events import CWNodeAssigned, MachineAdded, MachineBooted, MachineWiped
from nodepool.contract.keys import machine_parts
from nodepool.contract.log import Entry
from nodepool.contract.messages import Event, Message, ProviderEvent, wrap
from nodepool.contract.providers import ProviderDuty, ProviderRule
from nodepool.contract.subjects import address_of, subject_of
from support.providers.monitor import Monitor

P = TypeVar("P", bound=ProviderEvent)


class Machines(Protocol):
    """The machines of a provider, as its world has them: how a story adds, breaks and mends them.

    zone, instance_type: those of all machines.
    """

    zone: ClassVar[str]
    instance_type: ClassVar[str]

    def add(self, trial: "Trial", *, wipes: bool = False) -> None:
        """Adds one machine, whose boot, verification and wipe take less than a second.

        wipes: whether it is wiped after each stay.
        """

    def break_machine(self, trial: "Trial", machine: str, fault: MachineFault) -> None:
        """Breaks a machine, at once if it is a Node and the fault is one of Nodes."""

    def mend(self, trial: "Trial", machine: str, fault: MachineFault) -> None:
        """Ends a fault that `break_machine` began."""

    def repair(self, trial: "Trial", machine: str) -> None:
        """Brings a machine in triage back into service."""


class Trial(ABC):
    """One provider, and a log in which the test plays every service.

    provider: its name.
    machines: its machines.
    """

    def __init__(self, provider: str, machines: Machines) -> None:
        self.provider, self.machines = provider, machines
        self.said: list[ProviderEvent] = []
        self.broken: list[ProviderRule] = []
        self.monitor = Monitor(provider)
        self._numbers = count(1)
        self._read = 0
        self._awaited = 0

    # What a trial has to do.

    @abstractmethod
    def store(self, subject: str, content: bytes) -> None:
        """Stores a message in the log."""

    @abstractmethod
    def entries(self) -> Sequence[Entry]:
        """The whole log, once the provider has had some time, or has nothing to do."""

    @abstractmethod
    def may_go_on(self) -> bool:
        """Lets a little time pass; False if enough time has passed."""

    @abstractmethod
    def restart(self) -> None:
        """Ends the provider without a warning, and starts it again."""

    # What a story says and reads.

    def number(self) -> int:
        """A number that is higher than all before."""
        return next(self._numbers)

    def tell(self, *messages: Message) -> None:
        """Stores messages as the services that say them, or as a sender of commands."""
        for message in messages:
            speaker = message.speaker if isinstance(message, Event) else ""
            envelope = wrap(message, id=f"t{self.number()}", source=speaker or "trial")
            self.store(subject_of(message, speaker), envelope.encode())
        self.read()

    def read(self) -> None:
        """Reads what is new in the log."""
        entries = self.entries()
        for entry in entries[self._read :]:
            self._note(entry)
        self._read = len(entries)

    def _note(self, entry: Entry) -> None:
        address = address_of(entry.subject)
        kind = getattr(events, address.name, None) if address is not None else None
        if address is None or kind is None or address.kind != "evt":
            return
        envelope = decode(kind, entry.subject, entry.content, {}, entry.position)
        assert not isinstance(envelope, Unreadable), envelope
        cause = envelope.causeposition or 0
        self.broken += self.monitor.read(entry.position, cause, address.service, envelope.data)
        if address.service == self.provider and isinstance(envelope.data, ProviderEvent):
            self.said.append(envelope.data)

    def expect(self, kind: type[P], machine: str = "", **fields: object) -> P:
        """The next event of this class with these values that the provider says, or has said.

        Each event is found once, and none before an event that was found.
        """
        while True:
            self.read()
            for number in range(self._awaited, len(self.said)):
                event = self.said[number]
                if isinstance(event, kind) and _fits(event, machine, fields):
                    self._awaited = number + 1
                    return event
            if not self.may_go_on():
                told = "\n".join(map(repr, self.said))
                raise AssertionError(f"no {kind.__name__} of {machine} {fields} after:\n{told}")

    def settle(self) -> None:
        """Returns once the provider has had the time to say everything that it still would say.

        Another machine boots: that takes as long as anything that may be under way.
        """
        spare = self.add_machine()
        stay = self.assign(spare)
        self.expect(MachineBooted, spare)
        self.tell(deleted(stay))

    def add_machine(self, *, wipes: bool = False) -> str:
        """The name of a new machine that is free, and wiped after each stay if asked."""
        self.machines.add(self, wipes=wipes)
        added = self.expect(MachineAdded, wipes=wipes)
        if added.unwiped:
            self.expect(MachineWiped, added.machine, assignment=0)
        return added.machine

    def assign(self, machine: str, cluster: str = CLUSTER) -> CWNodeAssigned:
        """The stay of a machine that is assigned to a NodePool of this cluster."""
        stay = self.assignment_of(machine, cluster, self.machines.zone)
        self.tell(stay)
        return stay

    def assignment_of(self, machine: str, cluster: str, zone: str) -> CWNodeAssigned:
        """The next assignment, of any machine, which no service has said yet."""
        return CWNodeAssigned(
            org=ORG,
            cluster=cluster,
            pool=POOL,
            node=machine,
            zone=zone,
            assignment=self.number(),
            uid="u",
            instance_type=self.machines.instance_type,
            message="assigned",
        )

    def wiped_after(self, machine: str) -> list[int]:
        """The stays after which a machine was wiped."""
        wiped = [event for event in self.said if isinstance(event, MachineWiped)]
        return [each.assignment for each in wiped if each.machine == machine and each.assignment]

    def said_of(self, machine: str) -> list[str]:
        """The names of all events about a machine."""
        return [type(event).__name__ for event in self.said if event.machine == machine]

    def owed(self) -> list[tuple[str, ProviderDuty]]:
        """What the provider owes, by the name of the machine."""
        self.read()
        return [(machine_parts(key)[1], duty) for key, duty in self.monitor.list_owed()]


def _fits(event: ProviderEvent, machine: str, fields: dict[str, object]) -> bool:
    is_of_machine = not machine or event.machine == machine
    return is_of_machine and all(getattr(event, name) == value for name, value in fields.items())
