"""Follows the objects of the read model, as a program at the edge does."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final

from nodepool.contract.log import LogId
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import StreamInfo, stream_info
from nodepool.nats.log.verification import Verify, verify_log
from nodepool.nats.objects.stored_objects import EXPIRY_S, TOMBSTONE_S
from nodepool.nats.wire.client import BusClient
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import ConnectionClosed, StreamChanged

LOOK_S: Final = 0.5
AWAY_MAX_S: Final = TOMBSTONE_S - EXPIRY_S
"""After a longer absence, in seconds, the marks of deletions may be gone before they were read."""


class DeletionsMissed(StreamChanged):
    """Deletions of objects may have been missed: the objects have to be listed again."""


"""The interval in seconds between two checks for something that does not exist yet."""


async def present(connection: Connection, stream: str) -> StreamInfo:
    """Return a stream as soon as it exists; services that are starting create streams."""
    while True:
        info = await stream_info(connection, stream)
        if info is not None:
            return info
        await asyncio.sleep(LOOK_S)


def objects_reader(
    connection: Connection, bucket: str, subjects: str, log: LogId, found: StreamInfo
) -> Reader:
    """Return a reader of objects that ends once they have to be read anew.

    That is so if the bucket was created again, the log changed, or deletions may have been missed.
    """
    stream = f"KV_{bucket}"

    async def verify(read_to: int, read_at: datetime | None) -> None:
        info = await stream_info(connection, stream)
        if info is None or info.created != found.created:
            raise StreamChanged(f"the bucket {bucket} is gone, or was made anew")
        await find_missed(connection, stream, lambda: reader)(read_to, read_at)
        await verify_log(connection, log, 0)

    reader = Reader(connection, stream, [subjects], newest=True, verify=verify)
    return reader


def find_missed(client: BusClient, stream: str, reader: Callable[[], Reader]) -> Verify:
    """Return a check that raises DeletionsMissed if a reader of a bucket may have missed some.

    A reader that was away for long has missed nothing if nothing was written meanwhile.
    """

    async def verify(read_to: int, _read_at: datetime | None) -> None:
        away_s = reader().away_s
        if away_s <= AWAY_MAX_S:
            return
        info = await stream_info(client, stream)
        if info is not None and info.last > read_to:
            away = f"the server was not heard for {away_s:.0f} s"
            raise DeletionsMissed(f"deletions in {stream} may have been missed: {away}")

    return verify


async def until_closed(connection: Connection) -> None:
    """Raise ConnectionClosed once a connection is closed for good."""
    while not connection.is_closed:  # noqa: ASYNC110  # The client has no callback for it.
        await asyncio.sleep(LOOK_S)
    raise ConnectionClosed(connection.fault)
