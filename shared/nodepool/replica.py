"""One replica of a service: what it has read, what it would answer, and what the log made of that.

No I/O in here: the runtime on NATS and the in-memory world drive the same replica. A replica folds
what the log holds, proposes answers to what is open as one commit, and is told whether the commit
was stored. A refused one is undone by going back to the state kept from before it.
"""

import json
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

from nodepool.events import Wake
from nodepool.messages import (
    Envelope,
    Message,
    Unreadable,
    address_of,
    decode,
    envelope_of,
    stray,
    subject_of,
)
from nodepool.service import (
    ANSWERS_MAX,
    Moment,
    Service,
    Step,
    Trouble,
    commit_subject,
    settle,
    step,
)
from nodepool.threads import Thread, Threads

S = TypeVar("S")
QUESTIONS_MAX = 400
"""The most questions one commit settles: enough to pay the fsync once, few enough to stay quick."""
CLOCK = "clock"
"""Who rings: the service token in the subject of a `Wake`."""
LETTER_MAX = 4_096
"""How much of an unanswerable message its dead letter shows, in bytes; the log holds the rest."""
QUIET_MAX = 1_000
"""The most questions without an answer that a replica lets pass before it moves its cursor."""


class Entry(NamedTuple):
    """One message as it lies in the log."""

    position: int
    time: datetime
    subject: str
    content: bytes
    headers: Mapping[str, str]


class Question(Generic[S]):
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
            kind = self.service.questions.get(subject.rpartition(".")[2])
            if kind is not None:
                self._envelope = decode(kind, subject, content, dict(headers), position)
            elif self.service.is_stray(subject):
                self._envelope = stray(subject, content, dict(headers), position)
        return self._envelope

    @property
    def message(self) -> Message | Unreadable | None:
        """What is asked."""
        envelope = self.envelope
        return envelope.data if isinstance(envelope, Envelope) else envelope

    @property
    def now(self) -> Moment:
        """The moment that this question is, for whoever answers it."""
        envelope = self.envelope
        return Moment(self.entry.position, self.entry.time, envelope.id if envelope else "")


class Answered(NamedTuple, Generic[S]):
    """A question, what is said to it, and the trouble there was."""

    question: Question[S]
    envelopes: tuple[Envelope[Message], ...]
    trouble: Trouble | None


class Outgoing(NamedTuple):
    """One message of a commit, as bytes."""

    subject: str
    id: str
    content: bytes


@dataclass(frozen=True)
class Proposal(Generic[S]):
    """A commit to be: all answers to the questions up to `position`, under one condition.

    `fence` is the position of the commit record that must still be the service's last. One that is
    not `worth_storing` says nothing: its questions stay open behind the cursor until one is.
    """

    service: str
    answered: tuple[Answered[S], ...]
    position: int
    fence: int
    state: S
    worth_storing: bool

    @property
    def messages(self) -> list[Outgoing]:
        """Everything said, in the order in which it is to lie in the log; dead letters included."""
        return [outgoing for answered in self.answered for outgoing in self._said(answered)]

    def _said(self, answered: Answered[S]) -> Iterator[Outgoing]:
        for envelope in answered.envelopes:
            subject = subject_of(envelope.data, self.service)
            yield Outgoing(subject, envelope.id, envelope.encode())
        if answered.trouble is not None:
            entry = answered.question.entry
            subject = f"np.dead.{self.service}"
            id = f"{entry.position}.{self.service}.dead"
            yield Outgoing(subject, id, _dead_letter(entry, answered.trouble))

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
        self, service: Service[S], state: S | None = None, settled: int = 0, fence: int = 0
    ) -> None:
        self.service = service
        self.safe = service.initial if state is None else state
        self.state = self.safe
        self.settled = settled
        self.fence = fence
        self.read_to = settled
        self._open: deque[Question[S]] = deque()
        self._passed = 0
        self._recorded: list[Entry] = []
        self._refused = False
        self._threads = Threads()
        self._own = f"np.evt.{service.name}."
        self._commit = commit_subject(service.name)

    @property
    def open(self) -> int:
        """How many questions are read and not yet looked at."""
        return len(self._open) - self._passed

    @property
    def quiet(self) -> int:
        """How many questions were looked at, had no answer, and lie beyond the cursor."""
        return self._passed

    @property
    def waits_for_the_log(self) -> bool:
        """Whether a commit was refused and the one that came before it is not read yet."""
        return self._refused

    def read(self, entry: Entry) -> bool:
        """Takes the next entry of the log; True when it settled something another replica said."""
        self.read_to = entry.position
        if entry.subject == self._commit:
            return self._settle(entry)
        if entry.subject.startswith(self._own):
            if entry.position > self.fence:
                self._recorded.append(entry)
        elif entry.position > self.settled:
            self._open.append(Question(entry, self.service))
        return False

    def _settle(self, record: Entry) -> bool:
        if record.position <= self.fence:
            return False
        # A record that is none of ours settles nothing, and yet is what the next commit follows.
        named = settled_by(record)
        position = self.settled if named is None or named < self.settled else named
        recorded = self._by_cause()
        state = self.safe
        while self._open and self._open[0].entry.position <= position:
            question = self._open.popleft()
            message = question.message
            if message is not None:
                self._follow(question)
                answers = tuple(recorded.pop(question.entry.position, ()))
                state = settle(self.service, state, message, answers, question.now)
        self.settled, self.fence, self._refused = position, record.position, False
        self.safe = self.state = state
        self._passed = 0
        return True

    def _by_cause(self) -> dict[int, list[Message]]:
        # Whoever else spoke on our subject named no open question, and is passed over.
        found: dict[int, list[Message]] = {}
        for entry in self._recorded:
            address = address_of(entry.subject)
            kind = self.service.answers.get(address.name) if address else None
            if kind is not None:
                envelope = decode(kind, entry.subject, entry.content, {}, entry.position)
                if isinstance(envelope, Envelope) and envelope.causeposition is not None:
                    found.setdefault(envelope.causeposition, []).append(envelope.data)
        self._recorded.clear()
        return found

    def propose(self, *, even_if_quiet: bool = False) -> Proposal[S] | None:
        """Answers open questions; None where there are none, or while the log is ahead.

        `even_if_quiet` asks for a commit that only moves the cursor.
        """
        if self._refused or not self._open:
            return None
        answered: list[Answered[S]] = []
        said = 0
        while self._passed < len(self._open) and len(answered) < QUESTIONS_MAX:
            question = self._open[self._passed]
            found = self._step(question)
            if said + len(found.answers) > ANSWERS_MAX:
                break
            self.state = found.state
            self._passed += 1
            said += len(found.answers) + (found.trouble is not None)
            envelopes = _envelopes(question, found, self._threads)
            answered.append(Answered(question, envelopes, found.trouble))
        return Proposal(
            service=self.service.name,
            answered=tuple(answered),
            position=self._open[self._passed - 1].entry.position,
            fence=self.fence,
            state=self.state,
            worth_storing=bool(said) or even_if_quiet or self._passed >= QUIET_MAX,
        )

    def _step(self, question: Question[S]) -> Step[S]:
        message = question.message
        if message is None:
            return Step(self.state, ())
        self._follow(question)
        return step(self.service, self.state, message, question.now)

    def _follow(self, question: Question[S]) -> None:
        envelope = question.envelope
        if Wake.__name__ in self.service.questions and isinstance(envelope, Envelope):
            thread = Thread(envelope.correlationid, envelope.traceparent)
            self._threads.note(envelope.data, thread)

    def accepted(self, proposal: Proposal[S], position: int) -> None:
        """The proposal is stored; its commit record lies at `position`."""
        while self._open and self._open[0].entry.position <= proposal.position:
            self._open.popleft()
        self.settled, self.fence = proposal.position, position
        self.safe = self.state = proposal.state
        self._passed = 0
        self._recorded.clear()

    def refused(self) -> None:
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


def settled_by(record: Entry) -> int | None:
    """The position of the last question that a commit record settles; None for no such record."""
    try:
        position = json.loads(record.content)["position"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return position if type(position) is int and 0 <= position < record.position else None


def _envelopes(
    question: Question[S], found: Step[S], threads: Threads
) -> tuple[Envelope[Message], ...]:
    asked = question.envelope
    name = question.service.name
    position = question.entry.position
    if asked is None or not found.answers:
        return ()
    trace = asked.traceparent if isinstance(asked, Envelope) else None
    told = Thread(asked.correlationid, trace)
    rung = isinstance(asked, Envelope) and isinstance(asked.data, Wake)
    return tuple(
        envelope_of(type(answer)).model_construct(
            id=f"{position}.{name}.{index}",
            type=type(answer).__name__,
            source=name,
            subject="/".join(answer.path),
            time=question.entry.time,
            traceparent=thread.traceparent,
            correlationid=thread.correlationid,
            causationid=asked.id,
            causeposition=position,
            data=answer,
        )
        for index, answer in enumerate(found.answers)
        for thread in (threads.of(answer) if rung else told,)
    )


def _dead_letter(entry: Entry, trouble: Trouble) -> bytes:
    letter = {
        "position": entry.position,
        "subject": entry.subject,
        "time": entry.time.isoformat(),
        "field": trouble.field,
        "cause": trouble.cause,
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
