"""The buckets of the read model: reading a whole bucket, and creating it again."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from nodepool.contract.log import Entry, LogId
from nodepool.nats.connection import Connection
from nodepool.nats.errors import StreamChanged
from nodepool.nats.publisher import Publisher
from nodepool.nats.reader import Reader
from nodepool.nats.streams import StreamInfo, provision_stream, stream_info, streams


@dataclass(frozen=True, slots=True)
class Bus:
    """How the buckets of the read model are created and read.

    log: the identity of the log whose positions are the versions of the objects.
    replicas: how many copies of a bucket the servers keep, if it must be created again.
    """

    connection: Connection
    publisher: Publisher
    log: LogId
    replicas: int = 1


async def restore_bucket(bus: Bus, bucket: str) -> StreamInfo | None:
    """Return the stream of a bucket; create the bucket and return None if it was gone."""
    name = f"KV_{bucket}"
    info = await stream_info(bus.connection, name)
    if info is None:
        await provision_stream(bus.connection, name, streams(bus.replicas)[name])
    return info


async def read_bucket(
    connection: Connection, bucket: str, *, start: int = 1
) -> AsyncIterator[list[Entry]]:
    """Yield the newest write of each object of a bucket, from position `start`, in write order.

    Raises StreamChanged if the bucket is gone.
    """
    verify = partial(_verify, connection, bucket)
    reader = Reader(connection, f"KV_{bucket}", [f"$KV.{bucket}.>"], start=start, verify=verify)
    try:
        await reader.open()
        while reader.pending:
            if entries := await reader.next(timeout_s=5):
                yield entries
    finally:
        await reader.close()


async def _verify(
    connection: Connection, bucket: str, _read_to: int, _read_at: datetime | None
) -> None:
    if await stream_info(connection, f"KV_{bucket}") is None:
        raise StreamChanged(f"the bucket {bucket} is gone")
