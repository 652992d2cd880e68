"""Takes messages of one endpoint, one organisation after the other, and replies to each."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from typing import Final, NamedTuple

from gateway.host.telemetry import Telemetry
from gateway.refusals import Reason, Refusal
from gateway.turns import Turns
from nodepool.contract.door import REQUEST_INFO
from nodepool.contract.keys import token
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.endpoints import Endpoint
from nodepool.nats.wire.library import Msg, NatsError, Subscription
from nodepool.nats.wire.waiting import until_first

QUEUED_MAX: Final = 512
"""How many messages of an organisation wait at an endpoint; a further one is refused."""
PENDING_MAX: Final = 8_192
PENDING_BYTES_MAX: Final = 64 << 20
"""How many messages and bytes wait to be put into the queues; further ones are lost."""
QUEUE: Final = "gateway"
"""The queue group of all replicas."""
PER_TURN: Final = 32
"""After taking this many messages, other tasks get a turn."""

FLOODING: Final[Reason] = "TooManyRequests"
FLOOD: Final = 1_000
"""After refusing this many messages within `KEEP_S` seconds, an organisation is shut out."""
KEEP_S: Final = 0.5
"""How often it is looked which organisations there are, and which are let in again, in seconds."""
SHUT_S: Final = 1.0
"""How long an organisation that floods is shut out: the server tells senders at once that nobody
responds, and the gateway has no work with them."""
SHUT_MAX_S: Final = 16.0
"""How long an organisation is shut out at most: each flood soon after doubles the time."""
SOON_S: Final = 5.0
"""An organisation that has been let in for this many seconds no longer counts as flooding."""
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


class Shut(NamedTuple):
    """Until when an organisation is shut out by a monotonic clock, and for how many seconds."""

    until: float
    seconds: float

    @staticmethod
    def after(before: "Shut | None", now: float) -> "Shut":
        """Return how long to shut out an organisation that has perhaps been so before."""
        is_again = before is not None and not before.is_over(now)
        seconds = min(SHUT_MAX_S, 2 * before.seconds) if before and is_again else SHUT_S
        return Shut(now + seconds, seconds)

    def is_over(self, now: float) -> bool:
        """Return whether the organisation has been let in for so long that it begins anew."""
        return now >= self.until + SOON_S


class Intake:
    """An endpoint at work, with a subscription for each organisation.

    handle: returns the reply to a message.
    orgs: returns the organisations that there are.
    running: how many messages are in work at the same time.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        handle: Handle,
        telemetry: Telemetry,
        orgs: Callable[[], Collection[str]],
        *,
        running: int,
    ) -> None:
        self.endpoint = endpoint
        self._handle = handle
        self._telemetry = telemetry
        self._orgs = orgs
        self._running_max = running
        self._connection: Connection | None = None
        self._subscriptions: dict[str, Subscription] = {}
        self._shut: dict[str, Shut] = {}
        self._counted: set[str] = set()
        self._refused: Counter[str] = Counter()
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
        """Subscribe on a connection to what each organisation sends."""
        self._connection = connection
        self._subscriptions.clear()
        await self._let_in()

    async def _let_in(self) -> None:
        """Subscribe for new organisations and those that were shut out for long enough.

        What is counted of an organisation that is gone ends a moment after its subscription.
        """
        connection, orgs, now = self._connection, frozenset(self._orgs()), time.monotonic()
        if connection is None:
            return
        for org in self._counted - orgs - self._subscriptions.keys():
            self._telemetry.end_org(self.endpoint.name, org)
            self._counted.discard(org)
        self._shut = {org: shut for org, shut in self._shut.items() if not shut.is_over(now)}
        for org in self._subscriptions.keys() - orgs:
            await self._subscriptions.pop(org).unsubscribe()
        for org in orgs - self._subscriptions.keys():
            if org in self._shut and now < self._shut[org].until:
                continue
            self._telemetry.begin_org(self.endpoint.name, org)
            self._counted.add(org)
            self._subscriptions[org] = await connection.subscribe(
                f"{self.endpoint.subject.removesuffix('>')}{token(org)}.>",
                queue=self.endpoint.queue_group,
                cb=self._receive,
                pending_msgs_limit=PENDING_MAX,
                pending_bytes_limit=PENDING_BYTES_MAX,
            )

    async def _shut_out(self, org: str) -> None:
        """Unsubscribe from what an organisation sends; `_let_in` subscribes again."""
        subscription = self._subscriptions.pop(org, None)
        if subscription is not None:
            self._shut[org] = Shut.after(self._shut.get(org), time.monotonic())
            self._telemetry.log.warning("organisation floods", org=org, endpoint=self.endpoint.name)
            await subscription.unsubscribe()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(KEEP_S)
            self._refused.clear()
            await self._let_in()

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
            await until_first(self._take_forever(), self._keep())
        finally:
            self._connection = None
            for task in self._tasks:
                task.cancel()

    async def _take_forever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._take_all()

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
        message = arrival.message
        self._telemetry.count(self.endpoint.name, arrival.org, message.subject, result, seconds)
        if result == FLOODING:
            self._refused[arrival.org] += 1
            if self._refused[arrival.org] > FLOOD:
                await self._shut_out(arrival.org)
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
