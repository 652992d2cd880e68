"""A stream read by position, over lost connections and restarted servers.

Nothing is acknowledged: the position of the last message received is the only state, so no
redelivery can break the order. The client's own ordered consumer is not used, for it stays silent
for many seconds after a server restart.
"""

import asyncio
import json
import os
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from nodepool.contract.log import Entry
from nodepool.nats.api import request
from nodepool.nats.back_off import pause_s
from nodepool.nats.connection import RETRY_MAX_S, RETRY_S, Connection
from nodepool.nats.consumers import consumer_config, delivery_of
from nodepool.nats.errors import Conflict, InDoubt, ServerRefusal, StreamChanged
from nodepool.nats.filtering import Filtering

if TYPE_CHECKING:
    from nats.aio.subscription import Subscription

PULL = 2_048
"""The most messages that one pull request brings."""
BUFFER_MAX = 8_192
"""The most messages that are requested or received, and not yet taken."""
ASK_S = 0.1
"""The pause between two requests for the state of the stream."""
HEARTBEAT_S = 1.0
"""A consumer without a sign of life for three times as long is created anew."""
PULL_S = 30.0
"""How long a pull request stays open."""


class Reader:
    """The messages of a stream in their order, from a position on.

    stream, filters: what to read; the filters must not overlap.
    start: the first position to read.
    newest: begin with the newest message of each subject instead, as for a key-value bucket.
    wants: the same as `filters`, as a Python function; a reader that has it does without filters
      where that costs less, as described in `nodepool.nats.filtering`.
    verify: awaited with the last position whenever a consumer is there; where it raises
      StreamChanged, reading ends, and `open`, `take` and `next` raise that. Without it a reader
      waits for a stream that is gone.

    After a gap, a lost connection or silence the consumer is created anew after the last position,
    so a message is neither lost nor seen twice.
    """

    def __init__(
        self,
        client: Connection,
        stream: str,
        filters: Sequence[str],
        *,
        start: int = 1,
        newest: bool = False,
        wants: Callable[[str], bool] | None = None,
        verify: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        self._client = client
        self._stream = stream
        self._filters = list(filters)
        self._last = start - 1
        self._newest = newest
        self._wants = wants
        self._verify = verify
        self._changed: StreamChanged | None = None
        self._filtering = Filtering() if wants is not None else None
        self._asking: asyncio.Task[None] | None = None
        self._buffer: deque[Entry] = deque()
        self._arrived = asyncio.Event()
        self._last_sign_of_life = 0.0
        self._requested = self._received = self._remaining = 0
        self._inbox = ""
        self._subscription: Subscription | None = None
        self._consumer = ""
        self._creating: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def pending(self) -> int:
        """How many messages lie in the stream beyond those that were handed over.

        While it reads without its filters, those count that it will drop.
        """
        return self._remaining + len(self._buffer)

    @property
    def last(self) -> int:
        """The position of the last message received."""
        return self._last

    @property
    def arrived(self) -> asyncio.Event:
        """Set when messages have arrived; the caller of `take` clears it."""
        return self._arrived

    async def open(self) -> None:
        """Starts to read; returns when the server has the consumer."""
        self._client.on_reconnect.append(self._restart)
        self._creating = asyncio.create_task(self._create())
        await self._creating
        self._raise_change()
        self._watching = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Stops reading; what was received and not handed over is dropped."""
        self._closed = True
        if self._restart in self._client.on_reconnect:
            self._client.on_reconnect.remove(self._restart)
        for task in (self._creating, self._watching, self._asking):
            if task is not None:
                task.cancel()
        self._arrived.set()
        await self._drop_consumer()

    async def _drop_consumer(self) -> None:
        """Has the server forget the consumer; it does so by itself, but only after a while."""
        subscription, consumer = self._subscription, self._consumer
        self._subscription, self._consumer = None, ""  # Nothing may be pulled meanwhile.
        if subscription is not None:
            with suppress(NatsError, OSError):
                await subscription.unsubscribe()
                if consumer and self._client.is_connected:
                    await self._client.publish(f"$JS.API.CONSUMER.DELETE.{self._stream}.{consumer}")

    async def next(self, timeout_s: float | None = None) -> list[Entry]:
        """The messages that have arrived, at least one; none after `timeout_s` seconds."""
        if self._closed:
            await asyncio.sleep(0)  # So that a task which reads on can be cancelled.
        elif not self._buffer:
            self._arrived.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._arrived.wait()
        return await self.take()

    async def take(self) -> list[Entry]:
        """The messages that have arrived, without waiting; raises what `verify` raised."""
        self._raise_change()
        entries, self._buffer = list(self._buffer), deque()
        await self._pull()
        return entries

    def _raise_change(self) -> None:
        if self._changed is not None:
            raise self._changed

    def _restart(self, *, filtered: bool | None = None) -> None:
        """Reads on with a new consumer, with filters or without; None for what costs less."""
        if not self._closed and (self._creating is None or self._creating.done()):
            self._creating = asyncio.create_task(self._create(filtered=filtered))

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            silent_s = loop.time() - self._last_sign_of_life
            if self._client.is_connected and silent_s > 3 * HEARTBEAT_S:
                self._restart()

    async def _create(self, *, filtered: bool | None = None) -> None:
        """Creates a consumer that starts after the last position; tries until it succeeds."""
        failures = 0
        while not self._closed:
            try:
                await self._begin(filtered=filtered)
                return
            except StreamChanged as change:
                self._changed, self._closed = change, True
                self._arrived.set()
            except (Conflict, ServerRefusal, InDoubt, NatsError, OSError):
                failures += 1
                await asyncio.sleep(pause_s(failures, RETRY_S, RETRY_MAX_S, random.random()))

    async def _begin(self, *, filtered: bool | None) -> None:
        try:
            if self._filtering is None:
                await self._create_consumer(self._filters)
            else:
                await self._begin_at_less_cost(self._filtering, filtered)
        except ServerRefusal:
            await self._check()  # Perhaps there is no stream any more.
            raise
        # A consumer goes with its stream, so this one is of the stream that is checked, or is gone.
        await self._check()
        await self._pull()

    async def _begin_at_less_cost(self, filtering: Filtering, filtered: bool | None) -> None:
        behind, subjects = await self._distance()
        if filtering.begins(behind, subjects, filtered):
            await self._create_consumer(self._filters)
            if filtering.keeps(behind, self._remaining):
                return
        await self._create_consumer([])

    async def _distance(self) -> tuple[int, int]:
        """How many positions the end of the stream is away, and how many subjects it has."""
        info = await request(self._client, f"$JS.API.STREAM.INFO.{self._stream}")
        state = info["state"]
        assert isinstance(state, dict), "a stream's info has a state"
        return int(state["last_seq"]) - self._last, int(state.get("num_subjects", 0))

    async def _check(self) -> None:
        if self._verify is not None:
            await self._verify(self._last)

    async def _create_consumer(self, filters: Sequence[str]) -> None:
        name = f"r{os.urandom(8).hex()}"
        await self._drop_consumer()
        self._inbox = self._client.new_inbox()
        self._last_sign_of_life = asyncio.get_running_loop().time()
        self._requested = self._received = 0
        self._subscription = await self._client.subscribe(
            self._inbox, cb=self._receive, pending_msgs_limit=0, pending_bytes_limit=0
        )
        config = consumer_config(name, filters, self._last + 1, newest=self._newest)
        body = {"stream_name": self._stream, "action": "create", "config": config}
        info = await request(self._client, f"$JS.API.CONSUMER.CREATE.{self._stream}.{name}", body)
        self._remaining = int(str(info.get("num_pending", 0)))
        self._consumer = name

    async def _pull(self) -> None:
        """Requests more while the buffer has room for it."""
        while self._consumer and self._outstanding() <= BUFFER_MAX - PULL:
            self._requested += PULL
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}"
            expires, beat = int(PULL_S * 1e9), int(HEARTBEAT_S * 1e9)
            body = {"batch": PULL, "expires": expires, "idle_heartbeat": beat}
            try:
                await self._client.publish(subject, json.dumps(body).encode(), reply=self._inbox)
            except (NatsError, OSError):
                return

    def _outstanding(self) -> int:
        return self._requested - self._received + len(self._buffer)

    async def _receive(self, message: Msg) -> None:
        if not message.reply:
            await self._receive_status(message)
            return
        if (delivery := delivery_of(message.reply)).consumer != self._consumer:
            return  # Of a consumer that was given up.
        self._last_sign_of_life = asyncio.get_running_loop().time()
        self._received += 1
        if delivery.number != self._received:
            self._restart()
            return
        if delivery.position <= self._last:
            return
        self._last, self._remaining = delivery.position, delivery.remaining
        if self._filtering is not None and not await self._kept(self._filtering, message.subject):
            return
        headers = message.headers or {}
        self._buffer.append(
            Entry(delivery.position, delivery.time, message.subject, message.data, headers)
        )
        self._arrived.set()

    async def _kept(self, filtering: Filtering, subject: str) -> bool:
        """Whether a message is wanted; one that is not makes room for another right away."""
        if not (kept := filtering.filtered or self._wants is None or self._wants(subject)):
            filtering.dropped()
            if self._requested - self._received <= PULL:
                await self._pull()
        if filtering.asks(self._remaining) and (self._asking is None or self._asking.done()):
            self._asking = asyncio.create_task(self._ask(filtering))
        return kept

    async def _ask(self, filtering: Filtering) -> None:
        """Gives up the filters or takes them up, where the distance to the end says so."""
        with suppress(Conflict, ServerRefusal, InDoubt, NatsError, OSError):
            behind, subjects = await self._distance()
            if filtering.changes(behind, subjects, self._remaining):
                self._restart(filtered=not filtering.filtered)
        await asyncio.sleep(ASK_S)

    async def _receive_status(self, message: Msg) -> None:
        headers = message.headers or {}
        self._last_sign_of_life = asyncio.get_running_loop().time()
        match headers.get("Status"):
            case "100":  # A heartbeat.
                return
            case "408" | "409" if "Nats-Pending-Messages" in headers:
                # The pull request has ended; what it did not bring may be requested again.
                self._requested -= int(headers["Nats-Pending-Messages"])
                await self._pull()
            case _:
                self._restart()
