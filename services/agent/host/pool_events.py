"""What the log says last of a NodePool, asked of the leader of its stream."""

from agent.place import Place
from agent.pool_view import Deletion, Origin
from nodepool.client.accepted import DELETED, VALIDATED
from nodepool.contract.decode import decode
from nodepool.contract.events import CWNodePoolDeleted, NodePoolValidated
from nodepool.contract.keys import token
from nodepool.contract.log import Entry
from nodepool.contract.messages import Envelope
from nodepool.nats import api
from nodepool.nats.connection import Connection
from nodepool.nats.errors import InDoubt
from nodepool.nats.streams import STREAM


class PoolEvents:
    """The newest events about the NodePools of one cluster.

    connection: where to ask; without one, and where no reply comes, its methods raise an error of
      the bus.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self.connection: Connection | None = None

    async def end(self) -> int:
        """The position of the newest message of the log."""
        return await api.last_position(self._connected(), STREAM)

    async def deletion_of(self, pool: str) -> Deletion:
        """What the log says last of the deletion of a NodePool of this name."""
        entry = await self.newest(DELETED, pool)
        if entry is None:
            return Deletion()
        read = decode(CWNodePoolDeleted, entry.subject, entry.content, {}, entry.position)
        return Deletion(entry.position, read.data.uid if isinstance(read, Envelope) else "")

    async def origin_of(self, pool: str) -> Origin:
        """Which command a NodePool follows from, also where that did not change its spec."""
        entry = await self.newest(VALIDATED, pool)
        if entry is None:
            return Origin("", 0)
        read = decode(NodePoolValidated, entry.subject, entry.content, {}, entry.position)
        id = read.correlationid if isinstance(read, Envelope) else None
        return Origin(id or "", entry.position)

    async def newest(self, event: tuple[str, str], pool: str) -> Entry | None:
        """The newest event of a kind, by its service and name; None where there is none."""
        (service, name), place = event, self._place
        path = ".".join(map(token, (place.org, place.cluster, pool)))
        subject = f"np.evt.{service}.{path}.{name}"
        return await api.leaders_message(self._connected(), STREAM, subject)

    def _connected(self) -> Connection:
        if self.connection is None:
            raise InDoubt("the bus is not connected")
        return self.connection
