"""Many messages of different senders stored together, each with its own position.

The disk is synced once for each message that is stored alone, and once for an atomic batch, see
https://github.com/nats-io/nats-architecture-and-design/blob/main/adr/ADR-50.md.
"""

import asyncio
import os
from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from nodepool.contract.log import CONTENT_TYPE
from nodepool.nats.log.api import REPLY_TIMEOUT_S, publish_event, stored_position
from nodepool.nats.wire.client import BusClient
from nodepool.nats.wire.errors import Conflict, InDoubt, ServerRefusal
from nodepool.nats.wire.library import NatsError

BATCH_MESSAGES_MAX: Final = 500
"""The most messages of a batch; the server takes 1,000."""
BATCH_BYTES_MAX: Final = 1 << 20
"""No message is added to a batch that has this many bytes."""

NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class _Waiting(NamedTuple):
    subject: str
    content: bytes
    headers: Mapping[str, str]
    stored: "asyncio.Future[int]"


class Gatherer:
    """Stores messages; those that arrive while others are being stored are stored together.

    A message that arrives alone is stored at once. If the server refuses a batch, nothing of it is
    stored, and each of its messages is stored alone.
    """

    def __init__(self, connection: BusClient) -> None:
        self._connection = connection
        self._waiting: deque[_Waiting] = deque()
        self._task: asyncio.Task[None] | None = None

    async def publish(
        self, subject: str, content: bytes, headers: Mapping[str, str] = NO_HEADERS
    ) -> int:
        """Store a CloudEvent as structured JSON and return its position.

        headers: further headers of the message, with names of this project alone.

        Raises Conflict, InDoubt or ServerRefusal.
        """
        stored: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(subject, content, headers, stored))
        if self._task is None:
            self._task = asyncio.create_task(self._store_all())
        return await stored

    async def _store_all(self) -> None:
        try:
            while batch := self._take():
                try:
                    await self._store(batch)
                except (Conflict, ServerRefusal):
                    await asyncio.gather(*map(self._store_alone, batch))
                except InDoubt as error:
                    _fail(batch, error)
        finally:
            self._task = None

    def _take(self) -> Sequence[_Waiting]:
        """Remove and return what is to be stored next, without what is not awaited any more."""
        batch: list[_Waiting] = []
        size = 0
        while self._waiting and len(batch) < BATCH_MESSAGES_MAX and size < BATCH_BYTES_MAX:
            message = self._waiting.popleft()
            if not message.stored.done():
                batch.append(message)
                size += len(message.content)
        return batch

    async def _store(self, batch: Sequence[_Waiting]) -> None:
        if len(batch) == 1:
            await self._store_alone(*batch)
            return
        id, (*firsts, last) = os.urandom(8).hex(), batch
        try:
            for number, message in enumerate(firsts, 1):
                headers = {**message.headers, **_headers(id, number)}
                await self._connection.publish(message.subject, message.content, headers=headers)
            headers = {**last.headers, **_headers(id, len(batch)), "Nats-Batch-Commit": "1"}
            reply = await self._connection.request(
                last.subject, last.content, REPLY_TIMEOUT_S, headers=headers
            )
        except (NatsError, OSError, TimeoutError) as error:
            raise InDoubt(f"{len(batch)} messages may or may not be stored: {error}") from error
        first = stored_position(reply) - len(firsts)
        for position, message in enumerate(batch, first):
            if not message.stored.done():
                message.stored.set_result(position)

    async def _store_alone(self, message: _Waiting) -> None:
        try:
            position = await publish_event(
                self._connection, message.subject, message.content, message.headers
            )
        except (Conflict, InDoubt, ServerRefusal) as error:
            _fail([message], error)
        else:
            if not message.stored.done():
                message.stored.set_result(position)


def _fail(batch: Sequence[_Waiting], error: Exception) -> None:
    for message in batch:
        if not message.stored.done():
            message.stored.set_exception(error)


def _headers(id: str, number: int) -> dict[str, str]:
    return {
        "Nats-Batch-Id": id,
        "Nats-Batch-Sequence": str(number),
        "Content-Type": CONTENT_TYPE,
    }
