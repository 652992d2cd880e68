"""A stream read by position, over lost connections and restarted servers.

Nothing is acknowledged: the position of the last message received is the only state, so no
redelivery can break the order. The client's own ordered consumer is not used, for it stays silent
for many seconds after a server restart.
"""

import asyncio
import json
import os
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from nodepool.contract.log import Entry
from nodepool.nats.api import request
from nodepool.nats.connection import RETRY_S, Connection
from nodepool.nats.errors import Conflict, InDoubt, ServerRefusal, StreamChanged

if TYPE_CHECKING:
    from nats.aio.subscription import Subscription

PULL = 2_048
"""The most messages that one pull request brings."""
BUFFER_MAX = 8_192
"""The most messages that are requested or received, and not yet taken."""
BEHIND = 2_000
"""A reader further behind than this reads without filters and drops what it does not want.

For each message that it looks up for a consumer with several filters, the server goes through all
subjects of a block of the stream, unless that consumer is near the end: measured at 0.25 to 1 ms a
message among 5,000 subjects, against some microseconds without a filter.
"""
FAR_BEHIND = 4 * BEHIND
"""A reader with filters that falls further behind than this begins anew without them."""
HEARTBEAT_S = 1.0
"""A consumer without a sign of life for three times as long is created anew."""
PULL_S = 30.0
"""How long a pull request stays open."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Reader:
    """The messages of a stream in their order, from a position on.

    stream, filters: what to read; the filters must not overlap.
    start: the first position to read.
    newest: begin with the newest message of each subject instead, as for a key-value bucket.
    wants: the same as `filters`, as a Python function; a reader that has it may leave the filters
      out while it is far behind.
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
        self._unfiltered = False
        self._buffer: deque[Entry] = deque()
        self._arrived = asyncio.Event()
        self._last_sign_of_life = 0.0
        self._requested = 0
        self._received = 0
        self._remaining = 0
        self._inbox = ""
        self._subscription: Subscription | None = None
        self._consumer = ""
        self._creating: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def pending(self) -> int:
        """How many messages lie in the stream beyond those that were handed over."""
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
        for task in (self._creating, self._watching):
            if task is not None:
                task.cancel()
        self._arrived.set()
        if self._subscription is not None and self._consumer and self._client.is_connected:
            delete = f"$JS.API.CONSUMER.DELETE.{self._stream}.{self._consumer}"
            with suppress(NatsError, OSError):
                await self._subscription.unsubscribe()
                await self._client.publish(delete)

    async def next(self, timeout_s: float | None = None) -> list[Entry]:
        """The messages that have arrived, at least one; none after `timeout_s` seconds."""
        if not self._buffer and not self._closed:
            self._arrived.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._arrived.wait(), timeout_s)
        return await self.take()

    async def take(self) -> list[Entry]:
        """The messages that have arrived, without waiting; raises what `verify` raised."""
        self._raise_change()
        entries = list(self._buffer)
        self._buffer.clear()
        await self._pull()
        return entries

    def _raise_change(self) -> None:
        if self._changed is not None:
            raise self._changed

    def _restart(self) -> None:
        if not self._closed and (self._creating is None or self._creating.done()):
            self._creating = asyncio.create_task(self._create())

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            silent_s = loop.time() - self._last_sign_of_life
            if self._client.is_connected and silent_s > 3 * HEARTBEAT_S:
                self._restart()

    async def _create(self) -> None:
        """Creates a consumer that starts after the last position; tries until it succeeds."""
        while not self._closed:
            try:
                await self._begin()
                return
            except StreamChanged as change:
                self._changed = change
                self._closed = True
                self._arrived.set()
            except (Conflict, ServerRefusal, InDoubt, NatsError, OSError):
                await asyncio.sleep(RETRY_S)

    async def _begin(self) -> None:
        try:
            await self._create_consumer(self._filters)
            self._unfiltered = self._wants is not None and self._remaining > BEHIND
            if self._unfiltered:
                await self._create_consumer([])
        except ServerRefusal:
            await self._check()  # Perhaps there is no stream any more.
            raise
        # A consumer goes with its stream, so this one is of the stream that is checked, or is gone.
        await self._check()
        await self._pull()

    async def _check(self) -> None:
        if self._verify is not None:
            await self._verify(self._last)

    async def _create_consumer(self, filters: Sequence[str]) -> None:
        name = f"r{os.urandom(8).hex()}"
        old, self._inbox = self._subscription, self._client.new_inbox()
        self._last_sign_of_life = asyncio.get_running_loop().time()
        self._consumer = ""  # Nothing may be pulled before the server has the consumer.
        self._requested = self._received = 0
        if old is not None:
            with suppress(NatsError, OSError):
                await old.unsubscribe()
        self._subscription = await self._client.subscribe(
            self._inbox, cb=self._receive, pending_msgs_limit=0, pending_bytes_limit=0
        )
        config = {"name": name, "filter_subjects": filters, **self._config()}
        body = {"stream_name": self._stream, "action": "create", "config": config}
        info = await request(self._client, f"$JS.API.CONSUMER.CREATE.{self._stream}.{name}", body)
        self._remaining = int(str(info.get("num_pending", 0)))
        self._consumer = name

    def _config(self) -> dict[str, object]:
        if self._last:
            start = {"deliver_policy": "by_start_sequence", "opt_start_seq": self._last + 1}
        else:
            start = {"deliver_policy": "last_per_subject" if self._newest else "all"}
        return {
            **start,
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": 60_000_000_000,
        }

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
        # $JS.ACK[.<domain>.<account>].<stream>.<consumer>.<deliveries>.<position>.<number>.<time>
        # .<remaining>: nine tokens, or more with the domain.
        tokens = message.reply.split(".")
        first = 5 if len(tokens) == 9 else 7
        if tokens[first - 2] != self._consumer:
            return  # Of a consumer that was given up.
        position, number = int(tokens[first]), int(tokens[first + 1])
        self._last_sign_of_life = asyncio.get_running_loop().time()
        self._received += 1
        if number != self._received:
            self._restart()
            return
        if position <= self._last:
            return
        self._last = position
        self._remaining = int(tokens[first + 3])
        if self._unfiltered:
            await self._advance_unfiltered()
            if self._wants is not None and not self._wants(message.subject):
                return
        elif self._remaining > FAR_BEHIND and self._wants is not None:
            self._restart()
        time = _EPOCH + timedelta(microseconds=int(tokens[first + 2]) // 1000)
        headers = message.headers or {}
        self._buffer.append(Entry(position, time, message.subject, message.data, headers))
        self._arrived.set()

    async def _advance_unfiltered(self) -> None:
        """Goes back to filters at the stream's end; else requests more before the caller does."""
        if not self._remaining:
            self._restart()
        elif self._requested - self._received <= PULL:
            await self._pull()

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
