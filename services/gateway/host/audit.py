"""Reads pages of commands from the log, each with its sender and its outcome."""

from dataclasses import replace
from typing import Final

from gateway.host.intake import Reply
from gateway.host.pages import Extent, page_of
from gateway.refusals import Refusal
from nodepool.client.audit import (
    OUTCOMES,
    CommandRecord,
    Done,
    Place,
    change_position,
    command_record,
    encode_record,
    outcome_of,
)
from nodepool.contract.log import Entry
from nodepool.contract.queries import ANSWER_BYTES_MAX, Audit
from nodepool.nats.log import api
from nodepool.nats.log.pages import READS_MAX, position_before
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.connection import Connection

TRIES: Final = 3
"""How many later outcomes of one kind, about the same object, are read to find that of a command.

Outcomes follow their commands closely, unless services are behind: then a command has none yet.
"""


async def read_audit(connection: Connection, query: Audit, org: str) -> Reply:
    """Return a page of commands of an organisation."""
    log = _Log(connection)
    extent = Extent(*await api.bounds(connection, STREAM))
    place = Place(org, query.cluster, query.pool)
    if refusal := find_unnamed(query):
        return refusal
    if query.last:
        record = await _find_last(log, place)
        items = [encode_record(record)] if record is not None else []
        return page_of(items, extent, start=0, after=extent.end, at_end=True)
    items, size, after, at_end = list[bytes](), 0, query.after, False
    if query.since is not None:
        after = max(after, await position_before(connection, query.since, extent.end))
    start = after
    while len(items) < query.limit and size <= ANSWER_BYTES_MAX // 2 and log.reads < READS_MAX:
        entry = await log.next(f"np.cmd.{place.filter}.*", after)
        if entry is None:
            after, at_end = max(after, extent.end), True
            break
        after = entry.position
        record = command_record(entry)
        if record is not None:
            outcome = await _find_outcome(log, entry)
            items.append(encode_record(replace(record, outcome=outcome)))
            size += len(items[-1])
    return page_of(items, extent, start=start, after=after, at_end=at_end)


def find_unnamed(query: Audit) -> Refusal | None:
    """Return the refusal of a query for the last change of a NodePool that it does not name."""
    if not query.last or (query.cluster and query.pool):
        return None
    field = "pool" if query.cluster else "cluster"
    return Refusal("Invalid", f"{field} is missing", "name the NodePool and its cluster", field)


class _Log:
    """Counts what is read for a page."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.reads = 0

    async def next(self, subject: str, after: int) -> Entry | None:
        """Return the first message of a subject after a position."""
        self.reads += 1
        return await api.leaders_next_message(self.connection, STREAM, subject, after + 1)


async def _find_outcome(log: _Log, command: Entry) -> Done | None:
    path, _, _ = command.subject.removeprefix("np.cmd.").rpartition(".")
    for name in OUTCOMES:
        after = command.position
        for _ in range(TRIES):
            entry = await log.next(f"np.evt.*.{path}.{name}", after)
            found = outcome_of(entry) if entry is not None else None
            if entry is None or found is None:
                break
            position, outcome = found
            if position == command.position:
                return outcome
            after = entry.position
    return None


async def _find_last(log: _Log, place: Place) -> CommandRecord | None:
    """Return the command that changed a NodePool last."""
    events = [
        await api.leaders_message(log.connection, STREAM, f"np.evt.validator.{place.filter}.{name}")
        for name in ("NodePoolValidated", "NodePoolDeleting")
    ]
    position = change_position(*events)
    entry = await api.leaders_message_at(log.connection, STREAM, position)
    return command_record(entry) if entry is not None else None
