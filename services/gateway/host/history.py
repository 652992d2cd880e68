"""Reads pages of events from the log: one message after the other, without a consumer."""

import json
from dataclasses import asdict
from typing import Final

from gateway.host.audit import read_audit
from gateway.host.intake import Reply
from gateway.host.pages import Extent, page_of, page_of_messages
from gateway.host.waiting import FairPlaces
from gateway.refusals import Refusal
from nodepool.client.events import ObjectEvent, object_events, regards
from nodepool.contract.cluster_events import SINGLY_MAX, event_kinds, subjects_of_events
from nodepool.contract.keys import token
from nodepool.contract.moments import rfc3339
from nodepool.contract.queries import ANSWER_BYTES_MAX, Audit, Events, Messages
from nodepool.contract.suggest import did_you_mean
from nodepool.nats.log import api
from nodepool.nats.log.pages import READS_MAX, newest_of, position_before, read_page
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import InDoubt, ServerRefusal
from nodepool.nats.wire.library import NatsError

READERS_MAX: Final = 4
"""How many pages are read at the same time."""
WAITING_MAX: Final = 64
"""How many queries of an organisation wait for a page; a further one is refused."""


class History:
    """Reads pages of the log on the connection of the session."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self._places = FairPlaces(READERS_MAX, WAITING_MAX)

    async def read(self, query: Events | Messages | Audit, org: str) -> Reply:
        """Return a page of events or of commands of an organisation."""
        try:
            async with self._places.place(org) as has_place:
                if not has_place:
                    error = f"{WAITING_MAX} queries of {org} wait for the log"
                    return Refusal("TooManyRequests", error, "wait for their answers first")
                if self.connection is None:
                    error = "the gateway is not connected"
                    return Refusal("Unavailable", error, "ask again in a moment")
                if fault := find_wildcard(query):
                    return fault
                if isinstance(query, Audit):
                    return await read_audit(self.connection, query, org)
                if isinstance(query, Messages):
                    return await _read_messages(self.connection, query, org)
                return await self._read(self.connection, query, org)
        except (InDoubt, ServerRefusal, NatsError, OSError):
            return Refusal("Unavailable", "the log does not answer", "ask again in a moment")

    async def _read(self, connection: Connection, query: Events, org: str) -> Reply:
        pool = token(query.pool) if query.pool else "*"
        subject = f"np.evt.*.{token(org)}.{token(query.cluster)}.{pool}.*"
        log = Extent(*await api.bounds(connection, STREAM))
        items: list[bytes] = []
        size, after, at_end = 0, query.after, False
        if query.since is not None:
            after = max(after, await position_before(connection, query.since, log.end))
        start = after
        for _ in range(READS_MAX):
            if len(items) >= query.limit or size > ANSWER_BYTES_MAX // 2:
                break
            entry = await api.leaders_next_message(connection, STREAM, subject, after + 1)
            if entry is None:
                after, at_end = max(after, log.end), True
                break
            after = entry.position
            for event in object_events(entry):
                if regards(event, query.pool, query.node):
                    items.append(_encode(event))
                    size += len(items[-1])
        return page_of(items, log, start=start, after=after, at_end=at_end)


async def _read_messages(connection: Connection, query: Messages, org: str) -> Reply:
    """Return a page of events as they are in the log."""
    if refusal := find_unknown(query):
        return refusal
    subjects = subjects_of_events(query.names, org, query.cluster, query.pool)
    if query.last:
        page = await newest_of(connection, subjects)
    else:
        page = await read_page(
            connection,
            subjects,
            query.names,
            after=query.after,
            since=query.since,
            limit=query.limit,
            size=ANSWER_BYTES_MAX // 2,
        )
    return page_of_messages(
        page.entries,
        (page.log, page.time),
        Extent(page.first, page.end),
        start=query.after,
        after=page.after,
        at_end=page.at_end,
    )


def find_unknown(query: Messages) -> Refusal | None:
    """Return the refusal of names that are no events, or too many; None for other names."""
    unknown = next((name for name in query.names if name not in event_kinds()), None)
    if unknown is not None:
        error = f"{unknown!a} is no event{did_you_mean(unknown, event_kinds())}"
        return Refusal("Invalid", error, "see the events in shared/asyncapi.yaml", "names")
    if query.last and len(query.names) > SINGLY_MAX:
        error = f"the newest of {len(query.names)} names are asked for"
        return Refusal("Invalid", error, f"name at most {SINGLY_MAX}", "names")
    return None


def find_wildcard(query: Events | Messages | Audit) -> Refusal | None:
    """Return the refusal of names that would be more than one token of a subject."""
    for field in ("cluster", "pool"):
        name = getattr(query, field)
        if name and not all(each.isalnum() or each in "-_." for each in name):
            fix = "use letters, digits, '-', '_' or '.'"
            return Refusal("Invalid", f"{name!a} is not a valid name", fix, field)
    return None


def _encode(event: ObjectEvent) -> bytes:
    return json.dumps({**asdict(event), "time": rfc3339(event.time)}).encode()
