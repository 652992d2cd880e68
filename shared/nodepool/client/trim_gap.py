"""Where the log begins and ends for a client, which never passes over messages in silence."""

import asyncio
from datetime import datetime
from typing import NamedTuple

from nodepool.client.errors import ClientError
from nodepool.nats.log import api
from nodepool.nats.log.streams import STREAM, stream_info
from nodepool.nats.log.verification import Verify
from nodepool.nats.wire.client import BusClient
from nodepool.nats.wire.errors import STREAM_NOT_FOUND, HeadMissing, ServerRefusal
from nodepool.nats.wire.waiting import RETRY_S


class Bounds(NamedTuple):
    """The positions of the oldest and of the newest message of a stream."""

    first: int
    last: int


class TrimGap(ClientError, HeadMissing):
    """Messages that were asked for were trimmed from the log; the archive has them."""

    def __init__(self, first: int, asked: int) -> None:
        gone = f"positions {asked} to {first - 1} are in its archive alone"
        super().__init__(f"trim gap: the log begins at position {first}; {gone}")


def find_gaps(client: BusClient) -> Verify:
    """Return a check that raises TrimGap if what a reader reads next was trimmed meanwhile.

    A reader that has heard nothing for as long as the log goes back cannot know whether it has
    missed anything, and says so too.
    """

    async def verify(read_to: int, _read_at: datetime | None) -> None:
        info = await stream_info(client, STREAM)
        if info is not None and info.first > read_to + 1:
            raise TrimGap(info.first, read_to + 1)

    return verify


async def await_bounds(client: BusClient, stream: str, timeout_s: float) -> Bounds:
    """Return where a stream begins and ends; the last position is 0 while it is empty.

    Waits for a stream that does not exist yet: a control plane that is starting creates it soon. A
    reader opened without this check would wait silently for a missing stream.
    """
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        try:
            return Bounds(*await api.bounds(client, stream))
        except ServerRefusal as refusal:
            left = deadline - asyncio.get_running_loop().time()
            if refusal.code != STREAM_NOT_FOUND or left <= 0:
                raise
        await asyncio.sleep(RETRY_S)


def begin_of(start: int, first: int) -> int:
    """Return where to begin to read a log that begins at `first`, after `start`.

    From position 1 on, what the log has is read. Raises TrimGap for any other position.
    """
    if start > 1:
        raise TrimGap(first, start)
    return first
