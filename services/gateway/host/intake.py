"""Takes messages of one endpoint, one organisation after the other, and replies to each."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from gateway.host.telemetry import Telemetry
from gateway.refusals import Refusal
from gateway.turns import Turns
from nodepool.contract.door import REQUEST_INFO
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.endpoints import Endpoint
from nodepool.nats.wire.library import Msg, NatsError

QUEUED_MAX: Final = 512
"""How many messages of an organisation wait at an endpoint; a further one is refused."""
PENDING_MAX: Final = 8_192
PENDING_BYTES_MAX: Final = 64 << 20
"""How many messages and bytes wait to be put into the queues; further ones are lost."""
QUEUE: Final = "gateway"
"""The queue group of all replicas."""
PER_TURN: Final = 32
"""After taking this many messages, other tasks get a turn."""

Reply = bytes | Refusal
Handle = Callable[["Arrival"], Awaitable[Reply]]


class Arrival(NamedTuple):
    """A message, its organisation by the subject, and when it arrived by a monotonic clock."""

    message: Msg
    org: str
    at: float

    @property
    def request_info(self) -> str | None:
        """What the server says about the sender."""
        return (self.message.headers or {}).get(REQUEST_INFO)


class Intake:
    """An endpoint at work.

    handle: returns the reply to a message.
    running: how many messages are in work at the same time.
    """

    def __init__(
        self, endpoint: Endpoint, handle: Handle, telemetry: Telemetry, *, running: int
    ) -> None:
        self.endpoint = endpoint
        self._handle = handle
        self._telemetry = telemetry
        self._running_max = running
        self._turns: Turns[Arrival] = Turns(QUEUED_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        # The endpoint subscribes to everything below a subject, and the organisation comes first.
        self._org_at = endpoint.subject.count(".")

    @property
    def waiting(self) -> int:
        """Return how many messages wait or are in work."""
        return len(self._turns) + len(self._tasks)

    async def open(self, connection: Connection) -> None:
        """Subscribe to the endpoint."""
        await connection.subscribe(
            self.endpoint.subject,
            queue=self.endpoint.queue_group,
            cb=self._receive,
            pending_msgs_limit=PENDING_MAX,
            pending_bytes_limit=PENDING_BYTES_MAX,
        )

    async def _receive(self, message: Msg) -> None:
        parts = message.subject.split(".", self._org_at + 1)
        org = parts[self._org_at] if len(parts) > self._org_at else ""
        arrival = Arrival(message, org, time.monotonic())
        if self._turns.put(org, arrival):
            self._wake.set()
            return
        error = f"{QUEUED_MAX} messages of {org} wait already"
        await self._reply(arrival, Refusal("TooManyRequests", error, "send again in a moment"))

    async def run(self) -> None:
        """Take messages until the task is cancelled; then those in work are given up."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._take_all()
        finally:
            for task in self._tasks:
                task.cancel()

    async def _take_all(self) -> None:
        taken = 0
        while (arrival := self._turns.next()) is not None:
            while len(self._tasks) >= self._running_max:
                await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            task = asyncio.create_task(self._serve(arrival))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            taken += 1
            if taken % PER_TURN == 0:
                await asyncio.sleep(0)

    async def _serve(self, arrival: Arrival) -> None:
        try:
            reply = await self._handle(arrival)
        except Exception:  # A bug; the sender must not see what it is.
            self._telemetry.log.error("failed", subject=arrival.message.subject, exc_info=True)
            reply = Refusal("Unavailable", "the gateway has failed", "tell the operator")
        await self._reply(arrival, reply)

    async def _reply(self, arrival: Arrival, reply: Reply) -> None:
        seconds = time.monotonic() - arrival.at
        result = reply.reason if isinstance(reply, Refusal) else ""
        self.endpoint.count(seconds, result)
        self._telemetry.count(self.endpoint.name, arrival.message.subject, result, seconds)
        message = arrival.message
        if not message.reply:
            return
        try:
            if isinstance(reply, Refusal):
                content, headers = reply.content, reply.headers
                await message._client.publish(message.reply, content, headers=headers)
            else:
                await message._client.publish(message.reply, reply)
        except (NatsError, OSError) as error:
            self._telemetry.log.warning("not replied", cause=str(error))
