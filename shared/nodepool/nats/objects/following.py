"""Follows the objects of the read model, as a program at the edge does."""

import asyncio
from datetime import datetime
from typing import Final

from nodepool.contract.log import LogId
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import StreamInfo, stream_info, verify_log
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import ConnectionClosed, StreamChanged

LOOK_S: Final = 0.5
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
    """Return a reader of objects that ends if the bucket was created again, or the log changed."""
    stream = f"KV_{bucket}"

    async def verify(_read_to: int, _read_at: datetime | None) -> None:
        info = await stream_info(connection, stream)
        if info is None or info.created != found.created:
            raise StreamChanged(f"the bucket {bucket} is gone, or was made anew")
        await verify_log(connection, log, 0)

    return Reader(connection, stream, [subjects], newest=True, verify=verify)


async def until_closed(connection: Connection) -> None:
    """Raise ConnectionClosed once a connection is closed for good."""
    while not connection.is_closed:  # noqa: ASYNC110  # The client has no callback for it.
        await asyncio.sleep(LOOK_S)
    raise ConnectionClosed(connection.fault)
