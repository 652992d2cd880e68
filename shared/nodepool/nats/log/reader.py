"""A reader of a stream by position, which survives lost connections and restarted servers.

Nothing is acknowledged: the position of the last message received is the only state, so no
redelivery can break the order. The ordered consumer of nats-py is silent for long after a restart.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime

from nodepool.contract.exceptions import NO_FAILURE
from nodepool.contract.log import Entry
from nodepool.nats.log.api import extent
from nodepool.nats.log.consumers import (
    PULL,
    Consumer,
    Delivery,
    consume,
    consumer_config,
    delivery_of,
    ends_replies,
    missing_of,
)
from nodepool.nats.log.direct import read_on
from nodepool.nats.log.filtering import Filtering
from nodepool.nats.log.streams import stream_info
from nodepool.nats.log.verification import FAULTS, Verification, Verify
from nodepool.nats.wire.client import HURRIED_S, BusClient
from nodepool.nats.wire.errors import InDoubt, ServerRefusal, StreamChanged
from nodepool.nats.wire.library import Msg
from nodepool.nats.wire.waiting import RETRY_MAX_S, RETRY_S, cancel, until_first
from nodepool.state.back_off import pause_s

BUFFER_MAX = 8_192
"""The most messages that are requested or received, but not yet taken."""
ASK_S = 0.1
"""The pause between two requests for the state of the stream."""
HEARTBEAT_S = 1.0
"""The interval of heartbeats; a consumer that is silent for three intervals is created again."""
CREATED_S = 1.0
"""The wait of a reader that is being closed for the consumer that the reader has requested."""
SILENCE_S = 10.0
"""How long the server may take to send the messages that it has."""


class Reader:
    """The messages of a stream in their order, from a position on.

    stream, filters: what to read; the filters must not overlap.
    start: the first position to read.
    newest: begin with the newest message of each subject instead, as for a key-value bucket.
    wants: the same as `filters`, as a Python function; with it, the reader reads without filters
      if that costs less, as described in `nodepool.nats.log.filtering`.
    verify: awaited with the position and the time of the last message, whenever a consumer has been
      created and whenever messages seem to be missing; the time is None before the first message.
      If `verify` raises StreamChanged, reading ends, and `open`, `take` and `next` raise the same
      error. Without `verify`, a reader waits for a stream that is gone.

    consumer: the newest consumer, which may be given up already; None before the first one.
    metadata: what its consumers show of the reader.
    headers_only: whether to read messages without their content; to be set before `open`.
    last: the position of the last message received.
    arrived: set by messages; the caller of `take` clears it.
    heard_at: the last sign of life of the server, by Python's monotonic clock.

    After a gap, a lost connection or silence, the next consumer starts after the last position, so
    no message is lost or seen twice. That may take seconds after a cluster has lost a server. A
    reader with `wants` meanwhile reads on from the leader of the stream.
    """

    def __init__(
        self,
        client: BusClient,
        stream: str,
        filters: Sequence[str],
        *,
        start: int = 1,
        newest: bool = False,
        wants: Callable[[str], bool] | None = None,
        verify: Verify | None = None,
    ) -> None:
        self.consumer: Consumer | None = None
        self.metadata: Mapping[str, str] = {}
        self.headers_only = False
        self.last = start - 1
        self.arrived = asyncio.Event()
        self.heard_at = 0.0
        self._heard_on: float | None = None
        self.verification = Verification(client, verify, self._read_to, self.arrived.set)
        self._client = client
        self._stream = stream
        self._filters = list(filters)
        self._newest = newest
        self._wants = wants
        self._filtering = Filtering() if wants is not None else None
        self._last_time: datetime | None = None
        self._remaining = 0
        self._buffer: deque[Entry] = deque()
        self._reading: asyncio.Task[None] | None = None
        self._attempt: asyncio.Timeout | None = None
        self._opened, self._hurried, self._asks = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()

    @property
    def pending(self) -> int:
        """Return how many messages of the stream are not handed over yet.

        While the reader reads without filters, this includes messages that it will drop.
        """
        return self._remaining + len(self._buffer)

    @property
    def is_reading(self) -> bool:
        """Return whether a consumer delivers messages over a connection."""
        consumer = self.consumer
        return consumer is not None and not consumer.given_up.done() and self._client.is_connected

    @property
    def is_silent(self) -> bool:
        """Return whether the server, which sends heartbeats, has been silent for too long."""
        return time.monotonic() - self.heard_at > 3 * HEARTBEAT_S

    @property
    def away_s(self) -> float:
        """Return for how long the server was not heard, by a clock that runs while machines sleep.

        A new consumer counts once it is verified and has brought something.
        """
        return 0.0 if self._heard_on is None else time.time() - self._heard_on

    @property
    def oldest(self) -> datetime | None:
        """Return when the oldest message not handed over, or the message before it, was stored."""
        if self._buffer:
            with suppress(IndexError):  # Another thread may take it meanwhile.
                return self._buffer[0].time
        return self._last_time if self._remaining else None

    def _read_to(self) -> tuple[int, datetime | None]:
        return self.last, self._last_time

    async def open(self) -> None:
        """Start to read; return when the server has the consumer."""
        self._client.on_reconnect += (self.verification.distrust, self._hurry)
        self._client.on_server_lost.append(self._hurry)
        self._reading = asyncio.create_task(self._read())
        self._reading.add_done_callback(self._end)
        try:
            await self._opened.wait()
            self._raise_end()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop reading."""
        own = (self._hurry, self.verification.distrust)
        for listeners in (self._client.on_reconnect, self._client.on_server_lost):
            listeners[:] = [each for each in listeners if each not in own]
        if self._reading is not None:
            try:
                # The server may create a consumer only after a request to delete it: with nobody to
                # delete it later, it would look like that of a hanging replica for a minute.
                with suppress(TimeoutError):
                    async with asyncio.timeout(CREATED_S if self._client.is_connected else 0):
                        await self._settled.wait()
            finally:
                await cancel(self._reading)

    async def next(self, timeout_s: float | None = None) -> list[Entry]:
        """Return the messages that have arrived, at least one; [] after `timeout_s` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await asyncio.sleep(0)  # So that a task that reads in a loop can be cancelled.
                while not (self._buffer or self._has_ended):
                    self.arrived.clear()
                    await self.arrived.wait()
        return await self.take()

    async def take(self) -> list[Entry]:
        """Return the messages that have arrived, without waiting.

        Raises the error that ended reading: the error of `verify`, or one of NO_FAILURE.
        """
        self._raise_end()
        entries, self._buffer = list(self._buffer), deque()
        await self._pull()
        return entries

    @property
    def _has_ended(self) -> bool:
        return self._reading is not None and self._reading.done()

    def _raise_end(self) -> None:
        if self._reading is not None and self._has_ended and not self._reading.cancelled():
            self._reading.result()

    def _end(self, _reading: "asyncio.Task[None]") -> None:
        self._opened.set()
        self.arrived.set()

    # The tasks of a reader; reading ends with the first error.

    async def _read(self) -> None:
        work = [self._consume(), self._watch(), self.verification.run()]
        if self._wants is not None and self._filtering is not None:
            work += self._bridge(self._wants), self._choose(self._filtering)
        await until_first(*work)

    async def _consume(self) -> None:
        """Read from one consumer after another, each created after the last position."""
        failures, filtered = 0, None
        while True:
            await asyncio.sleep(pause_s(failures, RETRY_S, RETRY_MAX_S, random.random()))
            await self._await_turn()
            try:
                async with self._next_consumer(filtered) as consumer:
                    failures = 0
                    filtered = await consumer.given_up
            except FAULTS as fault:
                failures += 1
                if isinstance(fault, ServerRefusal):  # Perhaps there is no stream any more.
                    self.verification.distrust()

    async def _await_turn(self) -> None:
        """Wait until a consumer is wanted; a reader that is alone always wants a consumer."""

    async def _watch(self) -> None:
        """Give up a consumer that is silent."""
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            self.verification.awake()
            if self._client.is_connected and self.is_silent:
                self._doubt()

    async def _bridge(self, wants: Callable[[str], bool]) -> None:
        """Read without a consumer after a server was lost, until there is a consumer."""
        goes_on = lambda: self._is_between and len(self._buffer) < BUFFER_MAX  # noqa: E731
        while await self._hurried.wait():
            self._hurried.clear()
            async for entry in read_on(self._client, self._stream, self._read_to, goes_on):
                self.heard_at = time.monotonic()
                if wants(entry.subject):
                    self._hand_over(entry)
                # Last: if memory runs out before this line, the message is read again.
                self.last, self._last_time = entry.position, entry.time

    @property
    def _is_between(self) -> bool:
        """Return whether something was read, and no consumer is there to read on."""
        consumer = self.consumer
        return self._last_time is not None and consumer is not None and consumer.given_up.done()

    async def _choose(self, filtering: Filtering) -> None:
        """Start or stop to filter if the distance to the end of the stream makes that cheaper."""
        while await self._asks.wait():
            with suppress(*FAULTS):
                behind, subjects = await self._distance()
                if self.consumer and filtering.changes(behind, subjects, self._remaining):
                    self.consumer.give_up(filtered=not filtering.filtered)
            await asyncio.sleep(ASK_S)
            self._asks.clear()

    def _doubt(self) -> None:
        """Verify the stream again, and read on with another consumer."""
        self.verification.distrust()
        if self.consumer is not None:
            self.consumer.give_up()

    def _hurry(self) -> None:
        """Replace a consumer that may be lost with its server; read without until then."""
        if self._attempt is not None and not self._attempt.expired():
            self._attempt.reschedule(asyncio.get_running_loop().time())
        if self.consumer is not None:
            self.consumer.give_up()
        self._hurried.set()

    # Creating a consumer.

    @asynccontextmanager
    async def _next_consumer(self, filtered: bool | None) -> AsyncIterator[Consumer]:
        """Create a consumer that starts after the last position, for the time of the context."""
        async with AsyncExitStack() as stack:
            try:
                hurried_s = HURRIED_S if self._client.hurries else None
                async with asyncio.timeout(hurried_s) as self._attempt:
                    made = await self._create_at_less_cost(stack, filtered)
                    # A consumer is deleted with its stream: the verified stream has it, if any.
                    await self.verification.check()
            finally:
                self._attempt = None
            self.consumer = made
            await self._pull()
            self._opened.set()
            yield made

    async def _create_at_less_cost(self, stack: AsyncExitStack, filtered: bool | None) -> Consumer:
        filtering = self._filtering
        if filtering is None:
            return await self._create(stack, self._filters)
        behind, subjects = await self._distance()
        if filtering.begins(behind, subjects, filtered):
            made = await self._create(stack, self._filters)
            if filtering.keeps(behind, self._remaining):
                return made
            await stack.aclose()
        return await self._create(stack, [])

    async def _distance(self) -> tuple[int, int]:
        """Return how many positions the end of the stream is away, and how many subjects it has."""
        last, subjects = await extent(self._client, self._stream)
        return last - self.last, subjects

    async def _create(self, stack: AsyncExitStack, filters: Sequence[str]) -> Consumer:
        config = consumer_config(filters, self.last + 1, newest=self._newest)
        config["metadata"] = self.metadata
        if self.headers_only:
            config["headers_only"] = True
        opening = consume(self._client, self._stream, config, self._receive)
        self._settled.clear()
        try:
            made = await stack.enter_async_context(opening)
        finally:
            self._settled.set()
        self._remaining, self.heard_at = made.pending, time.monotonic()
        return made

    # Receiving.

    async def _pull(self) -> None:
        """Request more messages while the buffer has room for them."""
        if self.consumer is not None:
            await self.consumer.pull(BUFFER_MAX - len(self._buffer), HEARTBEAT_S)

    async def _receive(self, consumer: Consumer, message: Msg) -> None:
        try:
            if not consumer.given_up.done():
                await (self._take_in if message.reply else self._note_status)(consumer, message)
                if ends_replies(message):
                    consumer.give_up()
        except (StreamChanged, *NO_FAILURE) as error:  # The client would skip to the next message.
            if not consumer.given_up.done():
                consumer.given_up.set_exception(error)

    def _hear(self) -> None:
        self.heard_at, self._heard_on = time.monotonic(), time.time()

    async def _note_status(self, consumer: Consumer, message: Msg) -> None:
        self._hear()
        missing = missing_of(message.headers or {})
        if missing is None:
            self._doubt()
        else:
            consumer.requested -= missing
            await self._pull()

    async def _take_in(self, consumer: Consumer, message: Msg) -> None:
        delivery = delivery_of(message.reply)
        if delivery.consumer != consumer.name:
            return
        self._hear()
        is_next = consumer.took(delivery)
        if not (is_next and (self._follows(delivery) or await self.verification.accepts_a_gap())):
            consumer.give_up()
        if consumer.given_up.done() or delivery.position <= self.last:
            return
        self.last, self._remaining = delivery.position, delivery.remaining
        self._last_time = delivery.time
        if self._filtering is not None and not await self._keep_or_replace(
            self._filtering, message.subject
        ):
            return
        headers = message.headers or {}
        self._hand_over(
            Entry(delivery.position, delivery.time, message.subject, message.data, headers)
        )

    def _follows(self, delivery: Delivery) -> bool:
        """Return whether a message directly follows the last message; no server reports gaps."""
        if self._filtering is None:
            return True
        if self._filtering.filtered:
            return delivery.remaining >= self._remaining - 1
        return delivery.position <= self.last + 1

    async def _keep_or_replace(self, filtering: Filtering, subject: str) -> bool:
        """Return whether a message is wanted; if not, request another message in its place."""
        if not (kept := filtering.filtered or self._wants is None or self._wants(subject)):
            filtering.count_drop()
            if self.consumer is not None and self.consumer.requested <= PULL:
                await self._pull()
        if filtering.asks(self._remaining):
            self._asks.set()
        return kept

    def _hand_over(self, entry: Entry) -> None:
        self._buffer.append(entry)
        self.arrived.set()


async def read_to_end(
    client: BusClient,
    stream: str,
    filters: Sequence[str],
    *,
    start: int = 1,
    end: int | None = None,
) -> AsyncGenerator[list[Entry], None]:
    """Yield the messages that a stream holds now from position `start` on.

    end: the position with which reading may end, although messages may follow all the time.

    Raises StreamChanged if the stream is gone, and InDoubt if the server falls silent.
    """

    async def verify(_read_to: int, _read_at: datetime | None) -> None:
        if await stream_info(client, stream) is None:
            raise StreamChanged(f"the stream {stream} is gone")

    reader = Reader(client, stream, filters, start=start, verify=verify)
    try:
        await reader.open()
        while reader.pending:
            entries = await reader.next(SILENCE_S)
            if entries:
                yield entries
                if end is not None and entries[-1].position >= end:
                    break
            elif reader.pending:  # The last messages may have expired meanwhile.
                raise InDoubt("the server has stopped sending what it has")
    finally:
        await reader.close()
