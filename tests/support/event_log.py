"""What tests assert on events: lines of text about a NodePool, outcomes, and dead letters."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import cast

from nodepool.contract.decode import Unreadable, decode
from nodepool.contract.events import (
    CommandAccepted,
    CommandRefused,
    KubernetesEvent,
    MachineAdded,
    NodeLockChanged,
    PodChanged,
)
from nodepool.contract.keys import PoolPath
from nodepool.contract.log import Entry
from nodepool.contract.messages import Envelope, Event, Message, OfPool
from nodepool.contract.subjects import address_of
from nodepool.service import AnyService
from support.constants import ZONE
from support.paths import machine_path, pool_path
from support.texts import MachineNumbers, dead_letter_text, message_text, outcome_text


class EventLog(ABC):
    """The events in a log, decoded once each as the log grows.

    In texts, machines have numbers in place of names, as `MachineNumbers` gives them.
    """

    def __init__(self, services: Sequence[AnyService]) -> None:
        self._kinds = {name: kind for service in services for name, kind in service.outputs.items()}
        self._envelopes: list[Envelope[Message]] = []
        self._machines = MachineNumbers()
        self._decoded = 0
        self._recording_from = 0

    @abstractmethod
    def entries(self) -> Sequence[Entry]:
        """The log, from its beginning."""

    def envelopes(self) -> Sequence[Envelope[Message]]:
        """Every event of a service, in the order of the log."""
        entries = self.entries()
        for entry in entries[self._decoded :]:
            self._decode(entry)
        self._decoded = len(entries)
        return self._envelopes

    def _decode(self, entry: Entry) -> None:
        address = address_of(entry.subject)
        kind = self._kinds.get(address.name) if address is not None else None
        if kind is None or not issubclass(kind, Event):
            return
        envelope = decode(kind, entry.subject, entry.content, {}, entry.position)
        if isinstance(envelope, Unreadable):
            return
        self._envelopes.append(cast("Envelope[Message]", envelope))
        if isinstance(envelope.data, MachineAdded):
            self._machines.add(envelope.data.machine)

    def start_recording(self) -> None:
        """Leaves every event so far out of what the methods below return for a NodePool."""
        self._recording_from = len(self.envelopes())

    def envelopes_of(self, pool: str) -> list[Envelope[Message]]:
        """The recorded messages about a NodePool in their envelopes, without outcomes."""
        key = "/".join(pool_path(pool))
        return [
            envelope
            for envelope in self.envelopes()[self._recording_from :]
            if isinstance(envelope.data, OfPool)
            and envelope.data.key == key
            and not isinstance(envelope.data, CommandAccepted | CommandRefused)
        ]

    def messages(self, pool: str) -> list[str]:
        """The recorded messages about a NodePool, one line each."""
        return [self.text(envelope.data) for envelope in self.envelopes_of(pool)]

    def events(self, pool: str) -> list[str]:
        """The Kubernetes events among them: what users see of a NodePool and its Nodes."""
        messages = (envelope.data for envelope in self.envelopes_of(pool))
        return [self.text(message) for message in messages if isinstance(message, KubernetesEvent)]

    def pod_changes(self, pool: str) -> list[str]:
        """The recorded changes of the Pods of a NodePool: name, phase, Node, and why it ends."""
        messages = (envelope.data for envelope in self.envelopes_of(pool))
        changes = (message for message in messages if isinstance(message, PodChanged))
        return [self.text(change).removeprefix("PodChanged ") for change in changes]

    def lock_changes(self, pool: str) -> list[str]:
        """The recorded changes of locks in a NodePool: Node, state and job, and why it is over."""
        messages = (envelope.data for envelope in self.envelopes_of(pool))
        changes = (message for message in messages if isinstance(message, NodeLockChanged))
        return [
            self.text(change).removeprefix("NodeLockChanged ")
            + (f": {self._machines.replace(change.message)}" if change.lock == "released" else "")
            for change in changes
        ]

    def event_messages(self, pool: str, name: str) -> list[str]:
        """The field `message` of the recorded Kubernetes events with this name."""
        messages = (envelope.data for envelope in self.envelopes_of(pool))
        return [
            self._machines.replace(message.message)
            for message in messages
            if isinstance(message, KubernetesEvent) and type(message).__name__ == name
        ]

    def text(self, message: Message) -> str:
        """A message in one line."""
        return self._machines.replace(message_text(message))

    def outcomes(self, command: str) -> list[str]:
        """The outcomes of the command with this id, one line each."""
        return [
            outcome_text(envelope.data)
            for envelope in self.envelopes()
            if isinstance(envelope.data, CommandAccepted | CommandRefused)
            and envelope.correlationid == command
        ]

    def dead_letters(self) -> list[str]:
        """Every dead letter: `service: name of the message`."""
        return [
            dead_letter_text(entry.subject, entry.content)
            for entry in self.entries()
            if entry.subject.startswith("np.dead.")
        ]

    def machine_name(self, node: str) -> str:
        """The name of the machine with this number, or of this name."""
        self.envelopes()
        return self._machines.name_of(node)

    def machine_path(self, node: str) -> PoolPath:
        """The path of commands to a machine of the first zone."""
        return machine_path(f"{ZONE}/{self.machine_name(node)}")

    def with_machine_numbers(self, text: str) -> str:
        """The text with numbers in place of the names of machines."""
        self.envelopes()
        return self._machines.replace(text)
