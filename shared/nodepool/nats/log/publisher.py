"""Many single messages stored at the same time, each with its own reply."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from nodepool.contract.log import LogId
from nodepool.nats.log.api import REPLY_TIMEOUT_S, stored_position
from nodepool.nats.wire.client import BusClient, doubt_when_lost, fail
from nodepool.nats.wire.errors import Conflict, InDoubt, ServerRefusal
from nodepool.nats.wire.library import Msg, NatsError


class Publisher:
    """Publishes without waiting for each reply; at most `window` messages are in flight.

    Call `open` before the first message.
    """

    def __init__(self, connection: BusClient, window: int = 512) -> None:
        self._connection = connection
        self._window = asyncio.Semaphore(window)
        self._inbox = connection.new_inbox()
        self._prefix = len(self._inbox) + 1
        self._count = 0
        self._pending: dict[int, asyncio.Future[int]] = {}
        doubt_when_lost(connection, self._pending.values)

    async def open(self) -> None:
        """Subscribe to the replies."""
        await self._connection.subscribe(f"{self._inbox}.*", cb=self._receive)

    async def _receive(self, message: Msg) -> None:
        stored = self._pending.get(int(message.subject[self._prefix :]))
        if stored is None or stored.done():
            return
        try:
            stored.set_result(stored_position(message))
        except (Conflict, InDoubt, ServerRefusal) as error:
            fail(stored, error)

    async def send(
        self, subject: str, content: bytes, headers: Mapping[str, str] | None = None
    ) -> "asyncio.Future[int]":
        """Send a message as soon as the window allows; return a future with its position.

        The future fails with Conflict, InDoubt or ServerRefusal. Raises InDoubt if the message
        could not be sent at all.
        """
        await self._window.acquire()
        self._count += 1
        number = self._count
        stored = self._pending[number] = asyncio.get_running_loop().create_future()
        stored.add_done_callback(lambda _: self._forget(number))
        try:
            await self._connection.publish(
                subject, content, reply=f"{self._inbox}.{number}", headers=dict(headers or {})
            )
        except (NatsError, OSError) as error:
            stored.cancel()
            raise InDoubt(f"{subject} was not sent: {error}") from error
        return stored

    def _forget(self, number: int) -> None:
        del self._pending[number]
        self._window.release()

    async def publish(
        self, subject: str, content: bytes, headers: Mapping[str, str] | None = None
    ) -> int:
        """Store a message and return its position; raise Conflict, InDoubt or ServerRefusal."""
        stored = await self.send(subject, content, headers)
        try:
            async with asyncio.timeout(REPLY_TIMEOUT_S):
                return await stored
        except TimeoutError as error:
            raise InDoubt(f"{subject} may or may not be stored: no reply") from error


@dataclass(frozen=True, slots=True)
class Bus:
    """What it takes to write the read model and the snapshots of a log.

    log: the identity of the log whose positions are the versions of the objects.
    replicas: how many copies of a bucket the servers keep, if it must be created again.
    """

    connection: BusClient
    publisher: Publisher
    log: LogId
    replicas: int = 1
