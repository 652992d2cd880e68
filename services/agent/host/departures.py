"""Reads from the log which stays of Nodes have ended."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from agent.host.streams import LOOK_S
from agent.place import Place
from nodepool.contract.decode import decode
from nodepool.contract.events import CWNodeDeleted, CWNodeRegistrationFailed
from nodepool.contract.keys import token
from nodepool.contract.log import Entry, LogId
from nodepool.contract.messages import Envelope
from nodepool.nats.log import api
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM, verify_log
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import InDoubt

FRESH_S: Final = 2.0
"""How long the last read counts as complete."""
KINDS: Final[Mapping[str, type[CWNodeDeleted | CWNodeRegistrationFailed]]] = {
    "CWNodeDeleted": CWNodeDeleted,
    "CWNodeRegistrationFailed": CWNodeRegistrationFailed,
}


class Departures:
    """The ends of stays in one cluster, read from the log only as far back as needed.

    They are needed if the read model has no deletion mark for a Node: marks expire, and the read
    model may be rebuilt. Thousands of questions at the same time cause one read.
    """

    def __init__(self, place: Place) -> None:
        path = ".".join(map(token, (place.org, place.cluster)))
        self._filters = [f"np.evt.{kind.speaker}.{path}.*.{name}" for name, kind in KINDS.items()]
        self._ended: dict[str, int] = {}
        self._from = self._to = 0
        self._fresh_until = float("-inf")
        self._turn = asyncio.Lock()
        self._connection: Connection | None = None
        self._log = LogId("")

    def begin(self, connection: Connection, log: LogId) -> None:
        """Read this log on this connection from now on."""
        self._connection, self._log = connection, log
        self._ended.clear()
        self._from = self._to = 0
        self._fresh_until = float("-inf")

    async def has_ended(
        self, node: str, assignment: int, since: int, oldest: Callable[[], int]
    ) -> bool:
        """Whether the log says after the position `since` that a stay of a Node has ended.

        oldest: from where to read, if anything has to be; raises an error of the bus.
        """
        if self._connection is None:
            raise InDoubt("the bus is not connected")
        async with self._turn:
            clock = asyncio.get_running_loop().time
            if not self._from or since < self._from:
                first = max(1, min(since, oldest()))
                await self._read(self._connection, first)
                self._from, self._fresh_until = first, clock() + FRESH_S
            elif clock() >= self._fresh_until:
                await self._read(self._connection, self._to + 1)
                self._fresh_until = clock() + FRESH_S
        return self._ended.get(node, 0) >= assignment

    async def _read(self, connection: Connection, first: int) -> None:
        """Read from a position to the current end of the log."""
        end = await api.last_position(connection, STREAM)
        if end < first:
            return
        verify = partial(verify_log, connection, self._log)
        reader = Reader(connection, STREAM, self._filters, start=first, verify=verify)
        await reader.open()
        try:
            while reader.pending:
                for entry in await reader.next(LOOK_S):
                    self._take(entry)
        finally:
            await reader.close()
        self._to = end

    def _take(self, entry: Entry) -> None:
        kind = KINDS[entry.subject.rpartition(".")[2]]
        envelope = decode(kind, entry.subject, entry.content, {}, entry.position)
        if isinstance(envelope, Envelope):
            node, assignment = envelope.data.node, envelope.data.assignment
            self._ended[node] = max(assignment, self._ended.get(node, 0))
