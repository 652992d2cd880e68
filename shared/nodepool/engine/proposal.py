"""A proposed commit: the processed inputs, their outputs, and the commit record that ends it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple

from nodepool.contract.actors import WITHHELD
from nodepool.contract.decode import Unreadable, build_unreadable, decode, unknown_command
from nodepool.contract.events import Wake
from nodepool.contract.log import Entry, LogId
from nodepool.contract.messages import Envelope, Message, wrap
from nodepool.contract.outcomes import CommandOutcome
from nodepool.contract.subjects import subject_of
from nodepool.engine.correlation import Correlation, Correlations
from nodepool.engine.folded import Folded
from nodepool.engine.records import Record
from nodepool.service import AnyService, Context, Failure, I, O, S, commit_subject

LETTER_MAX = 4_096
"""The most bytes of the input, and characters of each of field and cause, in a dead letter."""


class Input(Generic[I]):
    """An entry of the log that is an input of a service, decoded on first use.

    kind: the class of the message; None for a command of an unknown name.
    is_excess: whether it is a command over the limit, which is refused unless it has an outcome.
    """

    __slots__ = ("_envelope", "entry", "is_excess", "kind")

    def __init__(
        self, entry: Entry, kind: type[I | Wake] | None, *, is_excess: bool = False
    ) -> None:
        self.entry = entry
        self.kind = kind
        self.is_excess = is_excess
        self._envelope: Envelope[I | Wake] | Unreadable | None = None

    @property
    def envelope(self) -> Envelope[I | Wake] | Unreadable:
        """The message in its envelope."""
        if self._envelope is None:
            self._envelope = read_input(self.entry, self.kind)
        return self._envelope

    def read_id_only(self) -> tuple["Input[I]", Unreadable]:
        """Return the command as an input of which only the id is read, and its message."""
        position, _, subject, content, headers = self.entry
        command = build_unreadable(subject, content, headers, position, "", "")
        item = Input[I](self.entry, self.kind)
        item._envelope = command
        return item, command

    @property
    def message(self) -> I | Wake | Unreadable:
        """The message itself."""
        envelope = self.envelope
        return envelope.data if isinstance(envelope, Envelope) else envelope

    def context_after(self, follows: int) -> Context:
        """Return where, when and under which id the log stored the input.

        follows: the last commit record before the input is processed.
        """
        message = self.message
        due = message.due if isinstance(message, Wake) else None
        return Context(self.entry.position, self.entry.time, self.envelope.id, due, follows)


def read_input(entry: Entry, kind: type[I | Wake] | None) -> Envelope[I | Wake] | Unreadable:
    """Return the input at an entry of the log; `kind` as for `Input`."""
    position, _, subject, content, headers = entry
    if kind is None:
        return unknown_command(subject, content, headers, position)
    return decode(kind, subject, content, headers, position)


class Processed(NamedTuple, Generic[I]):
    """An input, its outputs in their envelopes, and the failure if there was one."""

    input: Input[I]
    envelopes: tuple[Envelope[Message], ...]
    failure: Failure | None

    @property
    def parked(self) -> Failure | None:
        """The failure if it has a dead letter; a retry that failed again has no dead letter."""
        return self.failure if self.failure is not None and not self.failure.is_retry else None


class Outgoing(NamedTuple):
    """One message of a commit, as bytes."""

    subject: str
    id: str
    content: bytes


@dataclass(frozen=True)
class Proposal(Generic[S, I]):
    """A commit that is stored atomically.

    service: the name of the service.
    processed: the inputs up to `position`, with their outputs.
    position: the position of the last of these inputs.
    expected_sequence: the commit is stored only if the service's last commit record lies here.
    folded: the folded value of the replica once the commit is stored.
    log: the identity of the log that the commit is for.
    skips: whether the input at `position` is passed over: a `Wake` that is too old, or an input
        that an operator chose to skip.
    worth_storing: False for a commit without outputs, whose inputs can wait for the next commit.
    """

    service: str
    processed: tuple[Processed[I], ...]
    position: int
    expected_sequence: int
    folded: Folded[S]
    worth_storing: bool
    log: LogId
    skips: bool = False

    @property
    def wakes(self) -> list[Entry]:
        """Every `Wake` that led to outputs; its outputs must be published soon after it."""
        return [
            processed.input.entry
            for processed in self.processed
            if processed.envelopes and isinstance(processed.input.message, Wake)
        ]

    @property
    def messages(self) -> list[Outgoing]:
        """All outputs and dead letters, in their order in the log."""
        return [outgoing for processed in self.processed for outgoing in self._outgoing(processed)]

    def _outgoing(self, processed: Processed[I]) -> Iterator[Outgoing]:
        for envelope in processed.envelopes:
            subject = subject_of(envelope.data, self.service)
            yield Outgoing(subject, envelope.id, envelope.encode())
        if processed.parked is not None:
            entry = processed.input.entry
            subject = f"np.dead.{self.service}"
            id = f"{entry.position}.{self.service}.dead"
            failure = processed.parked
            cause = f"{failure.key}: {failure.cause}" if failure.key else failure.cause
            yield Outgoing(subject, id, dead_letter(entry, cause, failure.field))

    @property
    def subject(self) -> str:
        """The subject of the commit record, which ends the batch."""
        return commit_subject(self.service)

    def record(self) -> bytes:
        """Return the content of the commit record."""
        parts = (len(each.envelopes) + (each.parked is not None) for each in self.processed)
        outputs, before = sum(parts), self.expected_sequence
        return Record(self.position, outputs, before, self.log, self.skips).encode()


def envelopes_of(
    service: AnyService,
    item: Input[I],
    outputs: tuple[O | CommandOutcome, ...],
    correlations: Correlations,
) -> tuple[Envelope[Message], ...]:
    """Return the outputs of an input of a service, each in its envelope."""
    name = service.name
    cause = item.envelope
    of_cause = correlations.of_cause(cause)
    fired = isinstance(cause, Envelope) and isinstance(cause.data, Wake)
    position = item.entry.position
    return tuple(
        wrap(
            output,
            id=id,
            source=name,
            time=item.entry.time,
            traceparent=correlation.traceparent,
            tracestate=correlation.tracestate,
            correlationid=correlation.correlationid,
            causationid=None if correlation.actor == WITHHELD else cause.id,
            causeposition=position,
            actor=correlation.actor,
        )
        for index, output in enumerate(outputs)
        for id in (f"{position}.{name}.{index}",)
        for begun in (
            Correlation(id, actor=name)
            if service.acts_alone
            else correlations.of(output)
            if fired
            else of_cause,
        )
        for correlation in (begun.about(output.path[0]),)
    )


def dead_letter(entry: Entry, cause: str, field: str = "") -> bytes:
    """Return the dead letter of an entry that could not be processed or stored, with the cause."""
    # Both may quote the input, which may be too large for a dead letter.
    letter = {
        "position": entry.position,
        "subject": entry.subject,
        "time": entry.time.isoformat(),
        "field": field[:LETTER_MAX],
        "cause": cause[:LETTER_MAX],
        "content": entry.content[:LETTER_MAX].decode(errors="replace"),
    }
    return json.dumps(letter).encode()
