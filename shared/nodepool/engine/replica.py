"""One replica of a service: what it has read, what it would output, and what the log made of that.

No I/O in here: the runtime on NATS and the in-memory world drive the same replica. A replica folds
what the log holds, proposes outputs to what is open as one commit, and is told whether the commit
was stored. A refused one is undone by going back to the state kept from before it.
"""

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

from nodepool.contract.events import Wake
from nodepool.contract.log import Entry
from nodepool.contract.messages import (
    Envelope,
    Message,
    Unreadable,
    address_of,
    decode,
    envelope_of,
    subject_of,
    unknown_command,
)
from nodepool.engine.correlation import Thread, Threads
from nodepool.service import (
    OUTPUTS_MAX,
    Context,
    Failure,
    Service,
    Step,
    commit_subject,
    replay,
    step,
)

S = TypeVar("S")
INPUTS_MAX = 400
"""The most inputs one commit settles: enough to pay the fsync once, few enough to stay quick."""
CLOCK = "clock"
"""Who rings: the service token in the subject of a `Wake`."""
LETTER_MAX = 4_096
"""How much of an unanswerable message its dead letter shows, in bytes; the log holds the rest."""
QUIET_MAX = 1_000
"""The most inputs without an output that a replica lets pass before it moves its cursor."""


class Input(Generic[S]):
    """An entry that a service hears, read when first needed."""

    __slots__ = ("_envelope", "_read", "entry", "service")

    def __init__(self, entry: Entry, service: Service[S]) -> None:
        self.entry = entry
        self.service = service
        self._read = False
        self._envelope: Envelope[Message] | Unreadable | None = None

    @property
    def envelope(self) -> Envelope[Message] | Unreadable | None:
        """The message; None for one the service does not know, which readers pass over."""
        if not self._read:
            self._read = True
            position, _, subject, content, headers = self.entry
            kind = self.service.inputs.get(subject.rpartition(".")[2])
            if kind is not None:
                self._envelope = decode(kind, subject, content, dict(headers), position)
            elif self.service.is_unknown_command(subject):
                self._envelope = unknown_command(subject, content, dict(headers), position)
        return self._envelope

    @property
    def message(self) -> Message | Unreadable | None:
        """What is asked."""
        envelope = self.envelope
        return envelope.data if isinstance(envelope, Envelope) else envelope

    @property
    def now(self) -> Context:
        """The moment that this input is, for whoever outputs it."""
        envelope = self.envelope
        return Context(self.entry.position, self.entry.time, envelope.id if envelope else "")


class Processed(NamedTuple, Generic[S]):
    """A input, what is said to it, and the failure there was."""

    input: Input[S]
    envelopes: tuple[Envelope[Message], ...]
    failure: Failure | None


class Outgoing(NamedTuple):
    """One message of a commit, as bytes."""

    subject: str
    id: str
    content: bytes


@dataclass(frozen=True)
class Proposal(Generic[S]):
    """A commit to be: all outputs to the inputs up to `position`, under one condition.

    `expected_sequence` is the position of the commit record that must still be the service's last.
    One that is not `worth_storing` says nothing: its inputs stay open until one is.
    """

    service: str
    processed: tuple[Processed[S], ...]
    position: int
    expected_sequence: int
    state: S
    worth_storing: bool

    @property
    def messages(self) -> list[Outgoing]:
        """Everything said, in the order in which it is to lie in the log; dead letters included."""
        return [outgoing for processed in self.processed for outgoing in self._said(processed)]

    def _said(self, processed: Processed[S]) -> Iterator[Outgoing]:
        for envelope in processed.envelopes:
            subject = subject_of(envelope.data, self.service)
            yield Outgoing(subject, envelope.id, envelope.encode())
        if processed.failure is not None:
            entry = processed.input.entry
            subject = f"np.dead.{self.service}"
            id = f"{entry.position}.{self.service}.dead"
            yield Outgoing(subject, id, _dead_letter(entry, processed.failure))

    @property
    def subject(self) -> str:
        """Where the commit record that ends the batch goes."""
        return commit_subject(self.service)

    def record(self) -> bytes:
        """The content of the commit record."""
        return json.dumps({"position": self.position}).encode()


class Replica(Generic[S]):
    """A service at one place in the log; see the module."""

    def __init__(
        self,
        service: Service[S],
        state: S | None = None,
        committed: int = 0,
        expected_sequence: int = 0,
    ) -> None:
        self.service = service
        self.safe = service.initial if state is None else state
        self.state = self.safe
        self.committed = committed
        self.expected_sequence = expected_sequence
        self.read_to = committed
        self._open: deque[Input[S]] = deque()
        self._passed = 0
        self._recorded: list[Entry] = []
        self._refused = False
        self._threads = Threads()
        self._own = f"np.evt.{service.name}."
        self._commit = commit_subject(service.name)

    @property
    def open(self) -> int:
        """How many inputs are read and not yet looked at."""
        return len(self._open) - self._passed

    @property
    def quiet(self) -> int:
        """How many inputs were looked at, had no output, and lie beyond the cursor."""
        return self._passed

    @property
    def is_behind(self) -> bool:
        """Whether a commit was refused and the one that came before it is not read yet."""
        return self._refused

    def read(self, entry: Entry) -> bool:
        """Takes the next entry of the log; True when another replica committed it."""
        self.read_to = entry.position
        if entry.subject == self._commit:
            return self._follow_commit(entry)
        if entry.subject.startswith(self._own):
            if entry.position > self.expected_sequence:
                self._recorded.append(entry)
        elif entry.position > self.committed:
            self._open.append(Input(entry, self.service))
        return False

    def _follow_commit(self, record: Entry) -> bool:
        if record.position <= self.expected_sequence:
            return False
        # A record that is none of ours settles nothing, and yet is what the next commit follows.
        named = committed_position(record)
        position = self.committed if named is None or named < self.committed else named
        recorded = self._by_cause()
        state = self.safe
        while self._open and self._open[0].entry.position <= position:
            input = self._open.popleft()
            message = input.message
            if message is not None:
                self._follow(input)
                outputs = tuple(recorded.pop(input.entry.position, ()))
                state = replay(self.service, state, message, outputs, input.now)
        self.committed, self.expected_sequence, self._refused = position, record.position, False
        self.safe = self.state = state
        self._passed = 0
        return True

    def _by_cause(self) -> dict[int, list[Message]]:
        # Whoever else spoke on our subject named no open input, and is passed over.
        found: dict[int, list[Message]] = {}
        for entry in self._recorded:
            address = address_of(entry.subject)
            kind = self.service.outputs.get(address.name) if address else None
            if kind is not None:
                envelope = decode(kind, entry.subject, entry.content, {}, entry.position)
                if isinstance(envelope, Envelope) and envelope.causeposition is not None:
                    found.setdefault(envelope.causeposition, []).append(envelope.data)
        self._recorded.clear()
        return found

    def propose(self, *, even_if_quiet: bool = False) -> Proposal[S] | None:
        """Answers open inputs; None where there are none, or while the log is ahead.

        `even_if_quiet` asks for a commit that only moves the cursor.
        """
        if self._refused or not self._open:
            return None
        processed: list[Processed[S]] = []
        said = 0
        while self._passed < len(self._open) and len(processed) < INPUTS_MAX:
            input = self._open[self._passed]
            found = self._step(input)
            if said + len(found.outputs) > OUTPUTS_MAX:
                break
            self.state = found.state
            self._passed += 1
            said += len(found.outputs) + (found.failure is not None)
            envelopes = _envelopes(input, found, self._threads)
            processed.append(Processed(input, envelopes, found.failure))
        return Proposal(
            service=self.service.name,
            processed=tuple(processed),
            position=self._open[self._passed - 1].entry.position,
            expected_sequence=self.expected_sequence,
            state=self.state,
            worth_storing=bool(said) or even_if_quiet or self._passed >= QUIET_MAX,
        )

    def _step(self, input: Input[S]) -> Step[S]:
        message = input.message
        if message is None:
            return Step(self.state, ())
        self._follow(input)
        return step(self.service, self.state, message, input.now)

    def _follow(self, input: Input[S]) -> None:
        envelope = input.envelope
        if Wake.__name__ in self.service.inputs and isinstance(envelope, Envelope):
            thread = Thread(envelope.correlationid, envelope.traceparent)
            self._threads.note(envelope.data, thread)

    def accepted(self, proposal: Proposal[S], position: int) -> None:
        """The proposal is stored; its commit record lies at `position`."""
        while self._open and self._open[0].entry.position <= proposal.position:
            self._open.popleft()
        self.committed, self.expected_sequence = proposal.position, position
        self.safe = self.state = proposal.state
        self._passed = 0
        self._recorded.clear()

    def conflicted(self) -> None:
        """Another replica spoke first: back to the kept state, until its commit is read."""
        self.in_doubt()
        self._refused = True

    def in_doubt(self) -> None:
        """Nobody knows whether the proposal is stored; what is read next will tell."""
        self.state = self.safe
        self._passed = 0

    def due(self) -> datetime | None:
        """The next moment at which the service wants to be woken."""
        return self.service.wakes(self.state)


def committed_position(record: Entry) -> int | None:
    """The position of the last input that a commit record settles; None for no such record."""
    try:
        position = json.loads(record.content)["position"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return position if type(position) is int and 0 <= position < record.position else None


def _envelopes(input: Input[S], found: Step[S], threads: Threads) -> tuple[Envelope[Message], ...]:
    asked = input.envelope
    name = input.service.name
    position = input.entry.position
    if asked is None or not found.outputs:
        return ()
    trace = asked.traceparent if isinstance(asked, Envelope) else None
    told = Thread(asked.correlationid, trace)
    rung = isinstance(asked, Envelope) and isinstance(asked.data, Wake)
    return tuple(
        envelope_of(type(output)).model_construct(
            id=f"{position}.{name}.{index}",
            type=type(output).__name__,
            source=name,
            subject="/".join(output.path),
            time=input.entry.time,
            traceparent=thread.traceparent,
            correlationid=thread.correlationid,
            causationid=asked.id,
            causeposition=position,
            data=output,
        )
        for index, output in enumerate(found.outputs)
        for thread in (threads.of(output) if rung else told,)
    )


def _dead_letter(entry: Entry, failure: Failure) -> bytes:
    letter = {
        "position": entry.position,
        "subject": entry.subject,
        "time": entry.time.isoformat(),
        "field": failure.field,
        "cause": failure.cause,
        "content": entry.content[:LETTER_MAX].decode(errors="replace"),
    }
    return json.dumps(letter).encode()


def wake(service: str, due: datetime, after: int) -> Envelope[Message]:
    """The message that rings for `service`; two replicas that ring for the same make one message.

    `after` is the position last read: a ring that came too early for the log may be rung again.
    """
    return envelope_of(Wake).model_construct(
        id=f"{service}.{due.timestamp():.6f}.{after}",
        type=Wake.__name__,
        source=CLOCK,
        subject=service,
        time=due,
        data=Wake(service=service, due=due),
    )
