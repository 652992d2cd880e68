"""Reads the newest events about a NodePool from the leader of the stream of the log."""

from collections.abc import Sequence
from typing import Final

from agent.place import Place
from agent.pool_view import Deletion, Origin
from nodepool.client.accepted import DELETED, VALIDATED
from nodepool.contract.decode import decode
from nodepool.contract.events import CWNodePoolDeleted, NodePoolValidated
from nodepool.contract.keys import token
from nodepool.contract.log import Entry
from nodepool.contract.messages import Envelope
from nodepool.contract.model import spec_document
from nodepool.nats.log import api
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import InDoubt

CREATED: Final = ("validator", "CWNodePoolCreated")
ORIGINS_MAX: Final = 32
"""How many states of a NodePool to read after an agreement, in addition to the newest."""


class PoolEvents:
    """The newest events about the NodePools of one cluster.

    connection: the connection to the bus. Without a connection or a reply, the methods raise an
      error of the bus.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self.connection: Connection | None = None

    async def end(self) -> int:
        """Return the position of the newest message of the log."""
        return await api.last_position(self._connected(), STREAM)

    async def deletion_of(self, pool: str) -> Deletion:
        """Return the last deletion of a NodePool of this name in the log."""
        entry = await self.newest(DELETED, pool)
        if entry is None:
            return Deletion()
        read = decode(CWNodePoolDeleted, entry.subject, entry.content, {}, entry.position)
        return Deletion(entry.position, read.data.uid if isinstance(read, Envelope) else "")

    async def origins_of(self, pool: str, agreed: int | None) -> Sequence[Origin]:
        """Return the states of a NodePool after a position of the log, the oldest first.

        That is the first of them and the newest; of a NodePool that changes often, those in between
        are left out: a command that was sent after an agreement follows it soon.

        agreed: the position; None for the creation of the NodePool.
        """
        if agreed is None:
            created = await self.newest(CREATED, pool)
            agreed = created.position if created is not None else 0
        entries: dict[int, Entry] = {}
        subject, position = self._subject(VALIDATED, pool), agreed
        while len(entries) < ORIGINS_MAX:
            entry = await api.leaders_next_message(self._connected(), STREAM, subject, position + 1)
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
        return await api.leaders_message(self._connected(), STREAM, self._subject(event, pool))

    def _subject(self, event: tuple[str, str], pool: str) -> str:
        (service, name), place = event, self._place
        path = ".".join(map(token, (place.org, place.cluster, pool)))
        return f"np.evt.{service}.{path}.{name}"

    def _connected(self) -> Connection:
        if self.connection is None:
            raise InDoubt("the bus is not connected")
        return self.connection


def origin_in(entry: Entry) -> Origin:
    """Return what an event says of its NodePool; no more than the position if it is unreadable."""
    read = decode(NodePoolValidated, entry.subject, entry.content, {}, entry.position)
    if not isinstance(read, Envelope):
        return Origin("", entry.position)
    event = read.data
    spec = spec_document(event.spec)
    return Origin(read.correlationid or "", entry.position, event.uid, spec, event.labels)
