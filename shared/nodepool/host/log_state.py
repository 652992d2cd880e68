"""What a replica must know about the log besides its messages; the server is asked regularly."""

import asyncio

from nodepool.host.log_growth import LogGrowth
from nodepool.nats.log.streams import STREAM, stream_info
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import Conflict, HeadMissing, InDoubt, ServerRefusal
from nodepool.nats.wire.library import NatsError

LOOK_S = 2.0
"""The pause between two looks."""


class LogState:
    """Where the log begins and ends, and whether it takes messages, as of the last look.

    first, last: the positions of the oldest and of the newest message.
    fault: why the log takes no messages, as one line; empty if it takes messages.
    growth: how much is added to it.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.first = 1
        self.last = 0
        self.fault = ""
        self.growth = LogGrowth()

    async def run(self) -> None:
        """Look at the log until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Look at the log now; keep the last result if no reply comes."""
        try:
            info = await stream_info(self._connection, STREAM)
        except (Conflict, InDoubt, ServerRefusal, NatsError, OSError):
            return
        if info is not None:  # The reader of the log notices a missing log.
            self.first, self.last = info.first, info.last
            self.growth.look(info.first, info.last, info.bytes)
            self.fault = f"the log takes no messages: {info.fault}" if info.fault else ""


async def check_beginning(
    connection: Connection, service: str, committed: int, unused: str
) -> None:
    """Raise HeadMissing if a replica cannot read on, because the head of the log is cut.

    committed: the position up to which the replica is restored.
    unused: why the stored snapshot was not used; empty if it was used, or does not exist.
    """
    info = await stream_info(connection, STREAM)
    if info is None or info.first <= committed + 1:
        return
    has = f"has a snapshot only up to {committed}" if committed else "has no snapshot"
    has += f" ({unused})" if unused else ""
    text = f"trim gap: the log begins at position {info.first}, and {service} {has}"
    missing = f"positions {committed + 1} to {info.first - 1}, or a snapshot that goes further"
    raise HeadMissing(f"{text}: restore a backup with {missing}")
