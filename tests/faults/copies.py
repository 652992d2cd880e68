"""What each server of a cluster holds of the log, read again from its beginning."""

import asyncio
from collections.abc import Sequence

from nats.errors import Error as NatsError

from faults.cluster import SIZE
from nodepool.contract.log import Entry
from nodepool.nats.log import api
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import Conflict, InDoubt, ServerRefusal

FAULTS = (InDoubt, Conflict, ServerRefusal, NatsError, OSError)
"""What any request may raise while servers of a cluster come and go."""
PATIENCE_S = 60.0
PAUSE_S = 0.1
_OF_IDLE_SERVICES = ("np.commit.", "np.evt.clock.")
STALL_S = 5.0
"""A server that delivers nothing for so long has no more."""


async def leader(connection: Connection) -> int:
    """The number of the server that leads the log; -1 while there is none."""
    return _leader_in(await api.request(connection, f"$JS.API.STREAM.INFO.{STREAM}"))


def _leader_in(info: api.Json) -> int:
    cluster = info["cluster"]
    assert isinstance(cluster, dict)
    name = str(cluster.get("leader", ""))
    return int(name.removeprefix("s")) if name else -1


async def copies(connection: Connection) -> list[list[Entry]]:
    """The log as each server holds it, the first server first.

    A copy that lacks messages, or in which the server cannot read them, ends before these.
    """
    return [await copy_of(connection, number) for number in range(SIZE)]


async def copy_of(
    connection: Connection, server: int, patience_s: float = PATIENCE_S
) -> list[Entry]:
    """The log as this server holds it; TimeoutError where no consumer comes to be there.

    A consumer of one replica is on a server with a copy that is chosen at random, stays there, and
    delivers what lies in that copy. So consumers are created until there is one on this server; see
    https://docs.nats.io/nats-concepts/jetstream/consumers.
    """
    async with asyncio.timeout(patience_s):
        while True:
            try:
                entries = await _read_on(connection, server)
            except FAULTS:
                entries = None
            if entries is not None:
                return entries
            await asyncio.sleep(PAUSE_S)


async def _read_on(connection: Connection, server: int) -> list[Entry] | None:
    """Return what the log holds now; None if the consumer is, or was lost, on another server.

    The copy ends with a whole commit, however much of the next commit is delivered with it.
    """
    last = await api.last_position(connection, STREAM)
    reader = Reader(connection, STREAM, [])
    await reader.open()
    try:
        consumer = reader.consumer
        assert consumer is not None, "an open reader has a consumer"
        info = await api.request(connection, f"$JS.API.CONSUMER.INFO.{STREAM}.{consumer.name}")
        if _leader_in(info) != server:
            return None
        entries: list[Entry] = []
        while reader.pending or reader.last < last:
            new = await reader.next(timeout_s=STALL_S)
            if not new:
                break
            entries += new
        if reader.consumer is not consumer:
            return None
        return [entry for entry in entries if entry.position <= last]
    finally:
        await reader.close()


def lost(live: Sequence[Entry], copy: Sequence[Entry]) -> str:
    """What of that which was read live a copy of the log does not hold as it was; "" for nothing.

    A copy may hold more commit records and wakes: services go on while it is read.
    """
    for number, entry in enumerate(live):
        if number >= len(copy):
            return f"it ends before position {entry.position}, {entry.subject}"
        if copy[number][:4] != entry[:4]:
            return f"it holds {_shown(copy[number])} in the place of {_shown(entry)}"
    for entry in copy[len(live) :]:
        if not entry.subject.startswith(_OF_IDLE_SERVICES):
            return f"it holds {_shown(entry)}, which was never delivered"
    return ""


def _shown(entry: Entry) -> str:
    return f"{entry.position} {entry.time} {entry.subject} {entry.content[:200]!r}"
