"""Asks the log: the newest events about a NodePool, and which stays of Nodes have ended."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from agent.actions import Place
from agent.pools.sides import Deletion, Origin
from nodepool.client.accepted import DELETED, VALIDATED
from nodepool.contract.decode import decode
from nodepool.contract.events import (
    CWNodeDeleted,
    CWNodePoolDeleted,
    CWNodeRegistrationFailed,
    NodePoolValidated,
)
from nodepool.contract.keys import token
from nodepool.contract.log import Entry, LogId
from nodepool.contract.messages import Envelope
from nodepool.nats.log import api
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM, verify_log
from nodepool.nats.objects.following import LOOK_S
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import InDoubt

CREATED: Final = ("validator", "CWNodePoolCreated")
ORIGINS_MAX: Final = 32
"""How many states of a NodePool to read after an agreement, in addition to the newest."""
FRESH_S: Final = 2.0
"""How long the last read counts as complete."""
ENDS: Final[Mapping[str, type[CWNodeDeleted | CWNodeRegistrationFailed]]] = {
    "CWNodeDeleted": CWNodeDeleted,
    "CWNodeRegistrationFailed": CWNodeRegistrationFailed,
}
"""The events that end the stay of a Node."""


class LogReader:
    """Asks the leader of the log about one cluster.

    Without a connection or a reply, the methods raise an error of the bus.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._connection: Connection | None = None
        self._log = LogId("")
        self._turn = asyncio.Lock()
        self.end()

    def begin(self, connection: Connection, log: LogId) -> None:
        """Ask about this log on this connection from now on."""
        # A read on an earlier connection may have ended after `end`.
        self.end()
        self._connection, self._log = connection, log

    def end(self) -> None:
        """Forget the connection, and what was read on it."""
        self._connection = None
        self._ended: dict[str, int] = {}
        self._from = self._to = 0
        self._fresh_until = float("-inf")

    async def newest_position(self) -> int:
        """Return the position of the newest message of the log."""
        return await api.last_position(self._require_connection(), STREAM)

    async def deletion_of(self, pool: str) -> Deletion:
        """Return the last deletion of a NodePool of this name in the log."""
        entry = await self.newest(DELETED, pool)
        if entry is None:
            return Deletion()
        read = decode(CWNodePoolDeleted, entry.subject, entry.content, {}, entry.position)
        return Deletion(entry.position, read.data.uid if isinstance(read, Envelope) else "")

    async def origins_of(self, pool: str, agreed: int) -> Sequence[Origin]:
        """Return the states of a NodePool after a position of the log, the oldest first.

        That is the first of them and the newest; of a NodePool that changes often, those in between
        are left out: a command that was sent after an agreement follows it soon.

        agreed: the position; 0 for the creation of the NodePool.
        """
        if not agreed:
            created = await self.newest(CREATED, pool)
            agreed = created.position if created is not None else 0
        entries: dict[int, Entry] = {}
        subject, position = self._subject(VALIDATED, pool), agreed
        while len(entries) < ORIGINS_MAX:
            entry = await api.leaders_next_message(
                self._require_connection(), STREAM, subject, position + 1
            )
            if entry is None:
                break
            entries[entry.position] = entry
            position = entry.position
        newest = await self.newest(VALIDATED, pool)
        if newest is not None:
            entries[newest.position] = newest
        return [origin_in(entry) for _, entry in sorted(entries.items())]

    async def newest(self, event: tuple[str, str], pool: str) -> Entry | None:
        """Return the newest event of a kind, given as service and name; None without an event."""
        return await api.leaders_message(
            self._require_connection(), STREAM, self._subject(event, pool)
        )

    def _subject(self, event: tuple[str, str], pool: str) -> str:
        (service, name), place = event, self._place
        path = ".".join(map(token, (place.org, place.cluster, pool)))
        return f"np.evt.{service}.{path}.{name}"

    def _require_connection(self) -> Connection:
        if self._connection is None:
            raise InDoubt("the bus is not connected")
        return self._connection

    async def has_ended(
        self, node: str, assignment: int, since: int, oldest: Callable[[], int]
    ) -> bool:
        """Return whether the log says after the position `since` that a stay of a Node has ended.

        The log is asked if the read model has no deletion mark of a Node: marks expire, and the
        read model may be rebuilt. Thousands of questions at the same time cause one read, only as
        far back as needed.

        oldest: from where to read, if anything has to be; raises an error of the bus.
        """
        connection = self._require_connection()
        async with self._turn:
            clock = asyncio.get_running_loop().time
            if not self._from or since < self._from:
                first = max(1, min(since, oldest()))
                await self._read(connection, first)
                self._from, self._fresh_until = first, clock() + FRESH_S
            elif clock() >= self._fresh_until:
                await self._read(connection, self._to + 1)
                self._fresh_until = clock() + FRESH_S
        return self._ended.get(node, 0) >= assignment

    async def _read(self, connection: Connection, first: int) -> None:
        """Read from a position to the current end of the log."""
        end = await api.last_position(connection, STREAM)
        if end < first:
            return
        verify = partial(verify_log, connection, self._log)
        path = ".".join(map(token, (self._place.org, self._place.cluster)))
        filters = [f"np.evt.{kind.speaker}.{path}.*.{name}" for name, kind in ENDS.items()]
        reader = Reader(connection, STREAM, filters, start=first, verify=verify)
        await reader.open()
        try:
            while reader.pending:
                for entry in await reader.next(LOOK_S):
                    self._take(entry)
        finally:
            await reader.close()
        self._to = end

    def _take(self, entry: Entry) -> None:
        kind = ENDS[entry.subject.rpartition(".")[2]]
        envelope = decode(kind, entry.subject, entry.content, {}, entry.position)
        if isinstance(envelope, Envelope):
            node, assignment = envelope.data.node, envelope.data.assignment
            self._ended[node] = max(assignment, self._ended.get(node, 0))


def origin_in(entry: Entry) -> Origin:
    """Return what an event says of its NodePool; no more than the position if it is unreadable."""
    read = decode(NodePoolValidated, entry.subject, entry.content, {}, entry.position)
    if not isinstance(read, Envelope):
        return Origin("", entry.position)
    return Origin(read.correlationid or "", entry.position, read.data.uid)
