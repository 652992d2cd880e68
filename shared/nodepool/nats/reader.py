"""The messages of a stream read by position, over lost connections and restarted servers.

Nothing is acknowledged: what was handed over last is all there is to know, so no redelivery can
break the order.
"""

import asyncio
import json
import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from nodepool.contract.log import Entry

if TYPE_CHECKING:
    from nats.aio.subscription import Subscription

from nodepool.nats.bus import EPOCH, RETRY_S, Conflict, Connection, InDoubt, ServerRefusal, ask

PULL = 2_048
"""How many messages one pull asks for; at most `WAITING_MAX` more are on their way or waiting."""
WAITING_MAX = 8_192
BEHIND = 2_000
"""A reader further behind than this reads everything and sorts out itself what it wants.

For each message that it looks up for a consumer with several filters, the server goes through all
subjects of a block of the stream, unless that consumer is near the end: measured at 0.25 to 1 ms a
message among 5,000 subjects, against some microseconds without a filter.
"""
FAR_BEHIND = 4 * BEHIND
HEARTBEAT_S = 1.0
"""A pull that shows no sign of life for three times as long is made anew."""
PULL_S = 30.0


class Reader:
    """The messages of a stream in their order, from a position on; `next` hands them over.

    `wants` says in Python what `filters` say to the server; a reader that has it may leave the
    filters out while it is far behind. Nothing is acknowledged. On a gap, a lost connection or
    silence the consumer is made anew from the last position on, so neither a loss nor a repetition
    is ever seen.
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
    ) -> None:
        self._client = client
        self._stream = stream
        self._filters = list(filters)
        self._last = start - 1
        self._newest = newest
        self._wants = wants
        self._unfiltered = False
        self._buffer: deque[Entry] = deque()
        self._arrived = asyncio.Event()
        self._alive = 0.0
        self._asked = 0
        self._received = 0
        self._inbox = ""
        self._listening: Subscription | None = None
        self._subject = ""
        self._making: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._closed = False
        self._beyond = 0

    @property
    def pending(self) -> int:
        """How many messages lie in the stream beyond those that `next` has handed over."""
        return self._beyond + len(self._buffer)

    @property
    def last(self) -> int:
        """The position of the last message received."""
        return self._last

    async def open(self) -> None:
        """Begins to read; returns when the server knows of it."""
        self._client.on_back.append(self._again)
        self._making = asyncio.create_task(self._make())
        await self._making
        self._watching = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Ends reading; what was received and not handed over is dropped."""
        self._closed = True
        if self._again in self._client.on_back:
            self._client.on_back.remove(self._again)
        for task in (self._making, self._watching):
            if task is not None:
                task.cancel()
        self._arrived.set()
        gone = self._subject.rpartition(".")[2]
        if self._listening is not None and gone and self._client.is_connected:
            with suppress(NatsError, OSError):
                await self._listening.unsubscribe()
                await self._client.publish(f"$JS.API.CONSUMER.DELETE.{self._stream}.{gone}")

    async def next(self, timeout_s: float | None = None) -> list[Entry]:
        """The messages that have arrived, at least one; none after `timeout_s` seconds."""
        if not self._buffer and not self._closed:
            self._arrived.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._arrived.wait(), timeout_s)
        return await self.taken()

    async def taken(self) -> list[Entry]:
        """The messages that have arrived, without waiting."""
        found = list(self._buffer)
        self._buffer.clear()
        await self._pull()
        return found

    @property
    def arrived(self) -> asyncio.Event:
        """Set while messages wait to be taken; whoever takes them clears it."""
        return self._arrived

    def _again(self) -> None:
        if not self._closed and (self._making is None or self._making.done()):
            self._making = asyncio.create_task(self._make())

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            if self._client.is_connected and loop.time() - self._alive > 3 * HEARTBEAT_S:
                self._again()

    async def _make(self) -> None:
        """A consumer from the last position on; tries until there is one."""
        while not self._closed:
            try:
                await self._made()
                return
            except (Conflict, ServerRefusal, InDoubt, NatsError, OSError):
                await asyncio.sleep(RETRY_S)

    async def _made(self) -> None:
        await self._consumer(self._filters)
        self._unfiltered = self._wants is not None and self._beyond > BEHIND
        if self._unfiltered:
            await self._consumer([])
        await self._pull()

    async def _consumer(self, filters: Sequence[str]) -> None:
        inbox = self._client.new_inbox()
        name = f"r{os.urandom(8).hex()}"
        config: dict[str, object] = {
            "name": name,
            "ack_policy": "none",
            "filter_subjects": filters,
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": 60_000_000_000,
        }
        if self._newest and not self._last:
            config["deliver_policy"] = "last_per_subject"
        elif self._last:
            config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": self._last + 1}
        else:
            config["deliver_policy"] = "all"
        old, self._inbox = self._listening, inbox
        self._alive = asyncio.get_running_loop().time()
        self._subject = ""  # Nothing is to be pulled from a consumer before it is there.
        self._asked = self._received = 0
        if old is not None:
            with suppress(NatsError, OSError):
                await old.unsubscribe()
        self._listening = await self._client.subscribe(
            inbox, cb=self._receive, pending_msgs_limit=0, pending_bytes_limit=0
        )
        body = {"stream_name": self._stream, "action": "create", "config": config}
        info = await ask(self._client, f"$JS.API.CONSUMER.CREATE.{self._stream}.{name}", body)
        self._beyond = int(str(info.get("num_pending", 0)))
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{name}"

    async def _pull(self) -> None:
        """Asks for more while there is room for it."""
        while self._subject and self._outstanding() <= WAITING_MAX - PULL:
            self._asked += PULL
            expires, beat = int(PULL_S * 1e9), int(HEARTBEAT_S * 1e9)
            request = {"batch": PULL, "expires": expires, "idle_heartbeat": beat}
            try:
                await self._client.publish(
                    self._subject, json.dumps(request).encode(), reply=self._inbox
                )
            except (NatsError, OSError):
                return

    def _outstanding(self) -> int:
        return self._asked - self._received + len(self._buffer)

    async def _receive(self, message: Msg) -> None:
        if not message.reply:
            await self._status(message)
            return
        tokens = message.reply.split(".")
        first = 5 if len(tokens) == 9 else 7
        position, number = int(tokens[first]), int(tokens[first + 1])
        if tokens[first - 2] != self._subject.rpartition(".")[2]:
            return  # Of a consumer that was given up.
        self._alive = asyncio.get_running_loop().time()
        self._received += 1
        if number != self._received:
            self._again()
            return
        if position <= self._last:
            return
        self._last = position
        self._beyond = int(tokens[first + 3])
        if self._unfiltered:
            await self._sorted_out(message)
            if self._wants is not None and not self._wants(message.subject):
                return
        elif self._beyond > FAR_BEHIND and self._wants is not None:
            self._again()
        time = EPOCH + timedelta(microseconds=int(tokens[first + 2]) // 1000)
        headers = message.headers or {}
        self._buffer.append(Entry(position, time, message.subject, message.data, headers))
        self._arrived.set()

    async def _sorted_out(self, message: Msg) -> None:
        """Goes back to filters once nothing is left, and asks for more before `next` does."""
        if not self._beyond:
            self._again()
        elif self._asked - self._received <= PULL:
            await self._pull()

    async def _status(self, message: Msg) -> None:
        headers = message.headers or {}
        self._alive = asyncio.get_running_loop().time()
        match headers.get("Status"):
            case "100":
                return
            case "408" | "409" if "Nats-Pending-Messages" in headers:
                # The pull ran out of time; what it did not bring may be asked for again.
                self._asked -= int(headers["Nats-Pending-Messages"])
                await self._pull()
            case _:
                self._again()
