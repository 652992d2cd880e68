"""Reads a log entry by entry, and checks each entry against all those before it.

An audit reads what lies in the log and nothing else. It shares the message classes with the
services, and the rules of `nodepool.contract.invariants`, by which no service decides.
"""

import json
from collections.abc import Callable, Iterable

from nodepool.contract import commands, events
from nodepool.contract.commands_spot import AcknowledgePreemption
from nodepool.contract.decode import Unreadable, decode
from nodepool.contract.invariants import broken_rule
from nodepool.contract.log import Entry
from nodepool.contract.messages import Command, Envelope, Event, Message
from nodepool.contract.services import PROVIDERS
from nodepool.contract.subjects import address_of
from support.audit import (
    assignment,
    autoscaling,
    commits,
    counts,
    machines,
    node_pools,
    nodes,
    outcomes,
    pods,
    preemption,
    quota,
    racks,
    silence,
    spot,
    taints,
    words,
)
from support.audit.facts import Facts, Origin, Violation
from support.providers.monitor import Monitor
from support.reference.history import History, Stored

Rule = Callable[[Facts, Message, Origin], None]


def check_invariants(facts: Facts, message: Message, _origin: Origin) -> None:
    """Check the rules that follow from the log alone."""
    rule = broken_rule(facts, message)
    if rule:
        raise Violation(f"{rule} in {'/'.join(message.path)}")


RULES: tuple[Rule, ...] = (
    check_invariants,
    counts.check,
    outcomes.check,
    node_pools.check,
    quota.check,
    assignment.check,
    machines.check,
    nodes.check,
    pods.check,
    preemption.check,
    spot.check,
    autoscaling.check,
    racks.check,
    silence.check,
    taints.check,
    words.check,
)
"""Each rule handles the events that concern it and ignores the others."""
EVENTS: dict[str, type[Event]] = {
    name: kind
    for name, kind in vars(events).items()
    if isinstance(kind, type) and issubclass(kind, Event)
}
COMMANDS: dict[str, type[Command]] = {
    name: kind
    for name, kind in vars(commands).items()
    if isinstance(kind, type) and issubclass(kind, Command)
}


class Auditor:
    """What is known of a log up to `position`.

    history: every message of it.
    providers: what each provider of machines has heard and said.
    noise: the positions of entries to ignore, which a test has stored and no service.
    """

    def __init__(self, *, taints_production: bool = True) -> None:
        self.facts = Facts(taints_production=taints_production)
        self.history = History()
        self.noise: set[int] = set()
        self.position = 0
        self.providers = [Monitor(name) for name in PROVIDERS]
        self._commits = commits.Commits()

    def read(self, entry: Entry) -> None:
        """Takes the next entry of the log; raises `Violation` where it breaks a rule."""
        self.position = entry.position
        self.facts.times[entry.position] = entry.time
        is_noise = entry.position in self.noise
        try:
            if not is_noise:
                self._check(entry)
        except Violation as violation:
            name = entry.subject.rpartition(".")[2]
            raise Violation(f"{entry.position} {name}: {violation}") from None
        finally:
            self._commits.note(entry, is_noise=is_noise)

    def check_duties(self) -> None:
        """Raises `Violation` where a provider owes a report, once it had time enough for all."""
        for monitor in self.providers:
            for machine, duty in monitor.list_owed():
                raise Violation(f"{monitor.provider} breaks {duty} of {machine}")

    def _check(self, entry: Entry) -> None:
        if entry.subject.startswith(commits.SUBJECT):
            self._commits.check_record(entry)
            self._note_skipped(entry)
        if entry.subject.startswith("np.dead."):
            self._note_failure(entry)
        if entry.subject.startswith("np.cmd."):
            self._note_command(entry)
        envelope = _event(entry)
        if envelope is not None:
            self._commits.check_id(envelope.id)
            self._note(entry, envelope)
            self._check_event(entry.position, entry.subject.split(".")[2], envelope)

    def _note(self, entry: Entry, envelope: Envelope[Event]) -> None:
        cause, id = envelope.causeposition or 0, envelope.correlationid or ""
        speaker = entry.subject.split(".")[2]
        stored = Stored(entry.position, entry.time, cause, speaker, id, envelope.data)
        self.history.add(stored)

    def _note_command(self, entry: Entry) -> None:
        kind = COMMANDS.get(entry.subject.rpartition(".")[2])
        if kind is not None:
            headers = dict(entry.headers)
            envelope = decode(kind, entry.subject, entry.content, headers, entry.position)
            if not isinstance(envelope, Unreadable):
                position, time, id = entry.position, entry.time, envelope.id
                self.history.add(Stored(position, time, 0, "cmd", id, envelope.data))
                if isinstance(envelope.data, AcknowledgePreemption):
                    self.facts.acknowledgements[position] = envelope.data.node

    def _note_skipped(self, entry: Entry) -> None:
        """Note the input that a service passed over, if its commit record names such an input."""
        record = json.loads(entry.content)
        if record.get("skipped"):
            service = entry.subject.removeprefix(commits.SUBJECT)
            self.history.skipped.add((service, record["position"]))

    def _note_failure(self, entry: Entry) -> None:
        """A failure of a service, unless it is about what only a test has stored."""
        letter = json.loads(entry.content)
        service, position = entry.subject.rpartition(".")[2], letter["position"]
        if position not in self.noise and position in self.history.by_position:
            self.history.failed.append((service, position, letter["cause"]))

    def _check_providers(self, position: int, speaker: str, envelope: Envelope[Event]) -> None:
        cause, message = envelope.causeposition or 0, envelope.data
        for monitor in self.providers:
            broken = monitor.read(position, cause, speaker, message)
            if broken:
                raise Violation(f"{monitor.provider} breaks {', '.join(broken)}")

    def _check_event(self, position: int, speaker: str, envelope: Envelope[Event]) -> None:
        self._check_providers(position, speaker, envelope)
        origin = Origin(position, envelope.causeposition or 0, envelope.correlationid or "")
        try:
            for rule in RULES:
                rule(self.facts, envelope.data, origin)
        except KeyError as unknown:
            raise Violation(f"{unknown} is not in the log before") from None


def _event(entry: Entry) -> Envelope[Event] | None:
    """The event in an entry; None for an entry of another kind."""
    address = address_of(entry.subject)
    kind = EVENTS.get(address.name) if address is not None else None
    if kind is None or address is None or address.kind != "evt":
        return None
    envelope = decode(kind, entry.subject, entry.content, {}, entry.position)
    if isinstance(envelope, Unreadable):
        raise Violation(f"{envelope.field} cannot be read: {envelope.cause}")
    return envelope


def violations(entries: Iterable[Entry]) -> list[str]:
    """Every violation in a log, in the order of the log."""
    auditor = Auditor()
    broken: list[str] = []
    for entry in entries:
        try:
            auditor.read(entry)
        except Violation as violation:
            broken.append(str(violation))
    return broken
