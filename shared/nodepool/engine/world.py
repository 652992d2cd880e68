"""Run every service in one thread over a log in memory, with a clock that is moved by hand.

The replicas are the same as on NATS; only the log, the clock and the readers are replaced. Each
message is encoded and decoded, so a test result is also valid for the bytes on the bus.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from nodepool.contract.decode import Unreadable, decode
from nodepool.contract.log import NO_ID, Entry, LogId
from nodepool.contract.messages import Command, Envelope, Event, Message, wrap
from nodepool.contract.subjects import address_of, is_taken, subject_of
from nodepool.engine.proposal import Proposal
from nodepool.engine.replica import BATCH_MAX, Replica
from nodepool.engine.snapshot import dump
from nodepool.engine.wakes import FRESH, wake, wake_subject
from nodepool.service import AnyService, Object

STEPS_MAX = 200_000
"""A world that is not idle after this many rounds never will be."""
MESSAGES_MAX = 50_000
"""Services that store more messages than this while no time passes answer each other for ever."""
START = datetime(2026, 1, 1, tzinfo=UTC)
TICK = timedelta(microseconds=1)


@dataclass
class Log:
    """The stream as replicas see it: its identity, its positions, and conditional writes."""

    clock: datetime = START
    entries: list[Entry] = field(default_factory=list)
    last: dict[str, int] = field(default_factory=dict)
    id: LogId = NO_ID

    def append(self, subject: str, content: bytes, headers: Mapping[str, str] | None = None) -> int:
        """Store one message; return its position, or 0 if the log does not take its subject."""
        if not is_taken(subject):
            return 0
        self.clock += TICK
        position = len(self.entries) + 1
        self.entries.append(Entry(position, self.clock, subject, content, headers or {}))
        self.last[subject] = position
        return position

    def append_after(self, expected: int, subject: str, content: bytes) -> int | None:
        """Store one message if the last message on its subject lies at `expected`.

        Return its position as `append` does, or None if another message is the last. An `expected`
        of 0 stands for a subject without a message.
        """
        return self.append(subject, content) if self.last.get(subject, 0) == expected else None

    def is_old(self, wake: Entry) -> bool:
        """Return whether the outputs of this `Wake` would be published too late by now."""
        return self.clock - wake.time > FRESH

    def commit(self, proposal: Proposal[Any, Any]) -> int | None:
        """Store a proposal and its commit record; return None if another commit came first."""
        if self.last.get(proposal.subject, 0) != proposal.expected_sequence:
            return None
        messages = proposal.messages
        assert len(messages) < BATCH_MAX, f"{len(messages)} messages do not fit an atomic batch"
        for message in messages:
            self.append(message.subject, message.content)
        return self.append(proposal.subject, proposal.record())


@dataclass
class Host:
    """A replica and how far into the log it has read."""

    service: AnyService
    replica: Replica[Any, Any, Any]
    cursor: int = 0


class World:
    """The given services, with `replicas` replicas each, over one log."""

    def __init__(
        self, services: Sequence[AnyService], replicas: int = 1, log: Log | None = None
    ) -> None:
        self.services = tuple(services)
        self.log = Log(id=LogId("world")) if log is None else log
        self.hosts = [self.host(service) for service in self.services for _ in range(replicas)]
        self.sent = 0

    def host(self, service: AnyService) -> Host:
        """Return a replica that has not read any entry yet."""
        return Host(service, Replica(service, log=self.log.id))

    def send(self, command: Command, id: str = "") -> str:
        """Publish a command and return its id."""
        self.sent += 1
        id = id or f"c{self.sent}"
        envelope = wrap(command, id=id, source="world", time=self.log.clock)
        self.log.append(subject_of(command, ""), envelope.encode())
        return id

    def publish(self, subject: str, content: bytes, id: str = "") -> int:
        """Publish bytes as any client could, and return their position."""
        return self.log.append(subject, content, {"Nats-Msg-Id": id} if id else None)

    def read(self, host: Host, most: int = 1_000_000) -> int:
        """Let a replica read at most `most` entries; return how many it read."""
        until = min(len(self.log.entries), host.cursor + most)
        for entry in self.log.entries[host.cursor : until]:
            if host.service.wants(entry.subject):
                host.replica.read(entry)
        read, host.cursor = until - host.cursor, until
        return read

    def process(self, host: Host, *, even_if_quiet: bool = False) -> bool:
        """Let a replica process what it has read; return True if the log changed."""
        proposal = host.replica.propose(even_if_quiet=even_if_quiet, is_old=self.log.is_old)
        if proposal is None or not proposal.worth_storing:
            return False
        position = self.log.commit(proposal)
        if position is None:
            host.replica.note_conflict()
            return False
        host.replica.confirm_proposal(proposal, position)
        return True

    def fire(self, host: Host) -> bool:
        """Wake a replica for which something is due; return True if the log changed."""
        due = host.replica.due()
        if due is None or due > self.log.clock or host.replica.open:
            return False
        replica, name = host.replica, host.service.name
        message, subject = wake(name, due, replica.read_to).encode(), wake_subject(name)
        if self.log.append_after(replica.last_wake, subject, message) is not None:
            return True
        # Another replica was faster, or this one began at a snapshot: the next call fires it.
        replica.last_wake = self.log.last.get(subject, 0)
        return False

    def run_until_idle(self) -> None:
        """Let everything happen that does not need time to pass."""
        first = len(self.log.entries)
        for _ in range(STEPS_MAX):
            if len(self.log.entries) - first > MESSAGES_MAX:
                break
            moved = [self._moves(host) for host in self.hosts]
            if any(moved):
                continue
            fired = [self.fire(host) for host in self.hosts]
            if not any(fired):
                return
        raise AssertionError("the world is never idle")

    def _moves(self, host: Host) -> bool:
        """Let a replica read and process once; return False if there was nothing to do."""
        has_read = self.read(host) > 0
        before = host.replica.open
        has_stored = self.process(host)
        return has_read or has_stored or host.replica.open != before

    def pass_time(self, duration: timedelta) -> None:
        """Let time pass, from each moment at which something is due to the next."""
        self.run_until_idle()
        end = self.log.clock + duration
        for _ in range(STEPS_MAX):
            due = [moment for host in self.hosts if (moment := host.replica.due())]
            if not due or min(due) > end:
                self.log.clock = max(self.log.clock, end)
                return
            self.log.clock = max(self.log.clock, min(due))
            self.run_until_idle()
        raise AssertionError("there is always another moment")

    def messages(self, *kinds: type[Message]) -> list[Message]:
        """Return the messages of these classes in log order; without classes, all events.

        Wakes, commit records and dead letters are left out unless asked for.
        """
        return [envelope.data for envelope in self.envelopes(*kinds)]

    def envelopes(self, *kinds: type[Message]) -> list[Envelope[Message]]:
        """Return the same messages as `messages`, in their envelopes."""
        wanted = {kind.__name__: kind for kind in kinds} or _everything(self.services)
        envelopes: list[Envelope[Message]] = []
        for entry in self.log.entries:
            address = address_of(entry.subject)
            kind = wanted.get(address.name) if address is not None else None
            if kind is None:
                continue
            decoded = decode(kind, entry.subject, entry.content, {}, entry.position)
            if not isinstance(decoded, Unreadable):
                envelopes.append(decoded)
        return envelopes

    def state(self, service: str) -> object:
        """Return the state of the first replica of a service."""
        return next(host.replica.state for host in self.hosts if host.service.name == service)

    def objects(self, bucket: str) -> dict[str, Object]:
        """Return the objects of a bucket of the read model, by key."""
        for host in self.hosts:
            projection, state = host.service.projection, host.replica.state
            if projection is not None:
                keys = sorted(projection.keys(state, bucket))
                objects = {key: projection.get(state, bucket, key) for key in keys}
                return {key: item for key, item in objects.items() if item is not None}
        raise AssertionError("no service of this world has a read model")

    def replay_differs(self) -> list[str]:
        """Return the services for which a replay yields other bytes than the live run."""
        self.run_until_idle()
        for host in self.hosts:
            self.process(host, even_if_quiet=True)
        for host in self.hosts:
            self.read(host)
        return [host.service.name for host in self.hosts if not self._same(host)]

    def _same(self, host: Host) -> bool:
        again = self.host(host.service)
        self.read(again)
        return list(dump(again.replica.safe)) == list(dump(host.replica.safe))


def _everything(services: Iterable[AnyService]) -> dict[str, type[Message]]:
    return {
        name: kind
        for service in services
        for name, kind in service.outputs.items()
        if issubclass(kind, Event)
    }
