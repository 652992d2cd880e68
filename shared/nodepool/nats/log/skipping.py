"""Skipping an input that a service cannot get past: for an operator, when nothing else helps.

A service parks inputs that it cannot read or process. This module is for an input that crashes or
hangs the process. It reads only the id of that input.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from nodepool.contract.decode import build_unreadable
from nodepool.contract.log import Entry, LogId
from nodepool.contract.messages import Envelope, Message, wrap
from nodepool.engine.failures import refusal, unreadable
from nodepool.engine.folded import Folded
from nodepool.engine.proposal import Input, Processed, Proposal
from nodepool.engine.records import follow
from nodepool.nats.log.commits import Committer
from nodepool.nats.log.reader import read_to_end
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.client import BusClient
from nodepool.service import AnyService, commit_subject

CAUSE = "an operator has had the service pass over it"


@dataclass(frozen=True, slots=True)
class Standing:
    """The progress of a service, according to its commit records.

    committed: the position up to which all inputs are processed.
    expected_sequence: the position of its last commit record; 0 if it has no commit record.
    next: the first input after `committed`; None if there is no such input.
    """

    committed: int
    expected_sequence: int
    next: Entry | None


class Known(NamedTuple):
    """How far a service was at its snapshot: up to which position, and where that was committed."""

    committed: int = 0
    expected_sequence: int = 0


NOTHING: Final = Known()


async def standing_of(
    connection: BusClient, service: AnyService, log: LogId, known: Known = NOTHING
) -> Standing:
    """Return the progress of a service, by reading its commit records as its replicas do.

    known: where to begin; a log that was trimmed lacks earlier records.
    Raises InDoubt if the server falls silent, and StreamChanged if the log is gone.
    """
    committed, before = known
    is_chained = before > 0
    records = [commit_subject(service.name)]
    async with aclosing(read_to_end(connection, STREAM, records, start=before + 1)) as parts:
        async for record in _each(parts):
            followed = follow(
                record, log, committed=committed, before=before, is_chained=is_chained
            )
            before = record.position
            if followed is not None:
                committed, is_chained = followed.position, followed.is_chained
    filters = service.filters()
    async with aclosing(read_to_end(connection, STREAM, filters, start=committed + 1)) as parts:
        async for entry in _each(parts):
            if service.is_input(entry.subject):
                return Standing(committed, before, entry)
    return Standing(committed, before, None)


async def skip(connection: BusClient, service: AnyService, log: LogId, standing: Standing) -> int:
    """Make a service pass over its next input; return the position of the commit record.

    The input is parked as a dead letter, and a command is refused. Raises Conflict if the service
    has committed since, and so gets past the input; also InDoubt and ServerRefusal.
    """
    assert standing.next is not None, "there is nothing to pass over"
    proposal = Proposal(
        service=service.name,
        processed=(_passed_over(service, standing.next),),
        position=standing.next.position,
        expected_sequence=standing.expected_sequence,
        folded=Folded(None),
        worth_storing=True,
        log=log,
        skips=True,
    )
    return await Committer(connection).commit(proposal)


def _passed_over(service: AnyService, entry: Entry) -> Processed[Message]:
    position, time, subject, content, headers = entry
    message = build_unreadable(subject, content, headers, position, "", CAUSE)
    failure = replace(unreadable(message), is_bug=True)
    envelopes: tuple[Envelope[Message], ...] = ()
    if failure.is_command:
        outcome = refusal(failure)
        envelope: Envelope[Message] = wrap(
            outcome,
            id=f"{position}.{service.name}.0",
            source=service.name,
            time=time,
            traceparent=message.traceparent,
            tracestate=message.tracestate,
            correlationid=message.id,
            causationid=message.id,
            causeposition=position,
            actor=message.actor,
        )
        envelopes = (envelope,)
    return Processed(Input(entry, service.kind_at(subject)), envelopes, failure)


async def _each(parts: AsyncIterator[list[Entry]]) -> AsyncIterator[Entry]:
    async for entries in parts:
        for entry in entries:
            yield entry
