"""Hearing events as they are published, without JetStream."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Final

from nodepool.client.session import Session
from nodepool.contract.log import Entry
from nodepool.nats.wire.library import Msg, NatsError

HEARD_MAX: Final = 65_536
"""How many messages wait to be taken; the oldest is dropped for a further one."""


class Hearing:
    """The messages that have arrived on some subjects; they have no position in the log.

    A message is heard a moment before the log has it, and what is published while the connection is
    lost is not heard at all.
    """

    def __init__(self) -> None:
        self._messages: deque[Entry] = deque(maxlen=HEARD_MAX)
        self._arrived = asyncio.Event()

    async def receive(self, message: Msg) -> None:
        """Take a message of a subscription."""
        self._messages.append(Entry(0, datetime.now(UTC), message.subject, message.data, {}))
        self._arrived.set()

    async def next(self) -> Sequence[Entry]:
        """Return the messages that have arrived since the previous call, at least one."""
        await self._arrived.wait()
        self._arrived.clear()
        messages = list(self._messages)
        self._messages.clear()
        return messages

    def wake(self) -> None:
        """End the wait for messages: some may have been missed."""
        self._arrived.set()

    async def wait(self, timeout_s: float) -> bool:
        """Return whether a message arrives within the timeout; drop what has arrived."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                return bool(await self.next())
        return False


@asynccontextmanager
async def hear(session: Session, filters: Sequence[str]) -> AsyncIterator[Hearing]:
    """Hear what is published on some subjects, for the time of the context."""
    hearing = Hearing()
    subscriptions = [
        await session.connection.subscribe(subject, cb=hearing.receive) for subject in filters
    ]
    try:
        yield hearing
    finally:
        for subscription in subscriptions:
            with suppress(NatsError, OSError):
                await subscription.unsubscribe()
