"""Whether a stream is still the stream that was read so far."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime

from nodepool.contract.log import LogId
from nodepool.nats.log.api import leaders_message_at
from nodepool.nats.log.streams import STREAM, StreamInfo, stream_info
from nodepool.nats.wire.client import HURRIED_S, BusClient
from nodepool.nats.wire.errors import (
    Conflict,
    HeadMissing,
    InDoubt,
    LogChanged,
    ServerRefusal,
    StreamChanged,
)
from nodepool.nats.wire.library import NatsError
from nodepool.nats.wire.waiting import RETRY_S

Verify = Callable[[int, datetime | None], Awaitable[None]]
"""Raises StreamChanged unless a stream still holds the last message that was read, given by its
position and time; the time is None before the first message."""
FAULTS = (Conflict, ServerRefusal, InDoubt, NatsError, OSError)
FROZEN_S = 3.0
"""A process that has not run for this long was frozen, or its machine was."""


class Verification:
    """Verifies a stream for its reader: at once when asked, and in the background after `distrust`.

    verify: None to verify nothing.
    last: returns the position and the time of the last message that was read.
    done: called once the stream is verified.
    """

    def __init__(
        self,
        client: BusClient,
        verify: Verify | None,
        last: Callable[[], tuple[int, datetime | None]],
        done: Callable[[], None],
    ) -> None:
        self._client = client
        self._verify = verify
        self._last = last
        self._done = done
        self._holds = False
        self._distrusted = asyncio.Event()
        self._awake_at = time.monotonic()

    @property
    def holds(self) -> bool:
        """Return whether the stream is known to still hold the messages that were read.

        This is unknown after a lost connection and after a pause of this process: the stream may
        have changed meanwhile.
        """
        return self._holds and time.monotonic() - self._awake_at < FROZEN_S

    def awake(self) -> None:
        """Note that this process runs; after a pause the stream is verified again."""
        before, self._awake_at = self._awake_at, time.monotonic()
        if self._awake_at - before >= FROZEN_S:
            self.distrust()

    def distrust(self) -> None:
        """Verify the stream again: it may be another one, or have been set back."""
        self._holds = False
        self._distrusted.set()

    async def check(self) -> None:
        """Verify the stream now; raise StreamChanged, or one of FAULTS."""
        if self._verify is not None:
            try:
                await self._verify(*self._last())
            except StreamChanged:
                self._holds = False  # At once: the reader ends some turns of the loop later.
                raise
        self._holds = True
        self._distrusted.clear()
        self._done()

    async def accepts_a_gap(self) -> bool:
        """Return whether the missing messages never existed; False if that cannot be known now.

        Raises StreamChanged if the stream is no longer the stream that was read.
        """
        try:
            await self.check()
        except FAULTS:
            return False
        return True

    async def run(self) -> None:
        """Verify the stream whenever it is distrusted, until that raises StreamChanged.

        This needs no consumer, which may take longer to be there.
        """
        while True:
            await self._distrusted.wait()
            try:
                async with asyncio.timeout(HURRIED_S if self._client.hurries else None):
                    await self.check()
            except FAULTS:
                await asyncio.sleep(RETRY_S)


async def verify_log(
    client: BusClient,
    log: LogId,
    read_to: int,
    read_at: datetime | None = None,
    *,
    is_whole: bool = False,
) -> None:
    """Verify that the log is the same, and still holds what was read of it and what follows.

    read_to: the position of the last message read; 0 for none.
    read_at: the time of that message, which identifies it; None if the time is not known. A log
        that was set back and has grown since has another message there.
    is_whole: whether nothing may be missing between that message and the oldest one of the log.

    Raises LogChanged if the log fails the check.
    """
    info = await _find_log(client, log, read_to, is_whole=is_whole)
    if read_at is None or read_to < info.first:
        return
    message = await leaders_message_at(client, STREAM, read_to)
    if message is None:
        # The head of the log may have been cut off between the two questions.
        info = await _find_log(client, log, read_to, is_whole=is_whole)
        if read_to < info.first:
            return
    if message is None or message.time != read_at:
        text = f"the message at {read_to} is not the one that was read there"
        raise LogChanged(f"the log {log} was set back and has grown since: {text}")


async def _find_log(client: BusClient, log: LogId, read_to: int, *, is_whole: bool) -> StreamInfo:
    """Return what the server says of the log; raise LogChanged if that fails the check."""
    info = await stream_info(client, STREAM)
    if info is None:
        raise LogChanged(f"the log {log} is gone")
    if info.log != log:
        raise LogChanged(f"the log is {info.log}, and no longer {log}")
    if info.last < read_to:
        raise LogChanged(f"the log {log} ends at {info.last}, and was read to {read_to}")
    if is_whole and info.first > read_to + 1:
        text = f"the log {log} begins at position {info.first}, and was read to {read_to}"
        raise HeadMissing(f"trim gap: {text}")
    return info
