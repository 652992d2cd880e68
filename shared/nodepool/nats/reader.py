"""A reader of a stream by position, which survives lost connections and restarted servers.

Nothing is acknowledged: the position of the last message received is the only state, so no
redelivery can break the order. The ordered consumer of nats-py is silent for long after a restart.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from nats.aio.msg import Msg

from nodepool.contract.exceptions import NO_FAILURE
from nodepool.contract.log import Entry
from nodepool.nats.api import extent
from nodepool.nats.connection import RETRY_MAX_S, RETRY_S, Connection
from nodepool.nats.consumers import Delivery, delivery_of, missing_of
from nodepool.nats.direct import read_on
from nodepool.nats.errors import ServerRefusal, StreamChanged
from nodepool.nats.filtering import Filtering
from nodepool.nats.membership import HURRIED_S
from nodepool.nats.pulling import PULL, PullConsumer
from nodepool.nats.verification import FAULTS, Verification, Verify
from nodepool.state.back_off import pause_s

BUFFER_MAX = 8_192
"""The most messages that are requested or received, but not yet taken."""
ASK_S = 0.1
"""The pause between two requests for the state of the stream."""
HEARTBEAT_S = 1.0
"""The interval of heartbeats; a consumer that is silent for three intervals is created again."""


class Reader:
    """The messages of a stream in their order, from a position on.

    stream, filters: what to read; the filters must not overlap.
    start: the first position to read.
    newest: begin with the newest message of each subject instead, as for a key-value bucket.
    wants: the same as `filters`, as a Python function; with it, the reader reads without filters
      if that costs less, as described in `nodepool.nats.filtering`.
    verify: awaited with the position and the time of the last message, whenever a consumer has been
      created and whenever messages seem to be missing; the time is None before the first message.
      If `verify` raises StreamChanged, reading ends, and `open`, `take` and `next` raise the same
      error. Without `verify`, a reader waits for a stream that is gone.

    After a gap, a lost connection or silence, the consumer is created again after the last
    position, so no message is lost or seen twice. That may take seconds after a cluster has lost a
    server. A reader with `wants` meanwhile reads on from any replica of the stream.
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
        verify: Verify | None = None,
    ) -> None:
        self._client = client
        self._stream = stream
        self._filters = list(filters)
        self._last = start - 1
        self._newest = newest
        self._wants = wants
        self.metadata: Mapping[str, str] = {}  # The metadata of the consumer.
        self._end_of_reading: Exception | None = None
        self._filtering = Filtering() if wants is not None else None
        self._asking: asyncio.Task[None] | None = None
        self._buffer: deque[Entry] = deque()
        self.arrived = asyncio.Event()  # Set by messages; the caller of `take` clears it.
        self._last_time: datetime | None = None
        self.heard_at = 0.0  # The last sign of life of the server, by Python's monotonic clock.
        self._remaining = 0
        self.consumer = PullConsumer(client, stream, self._receive, self._restart)
        self._attempt: asyncio.Timeout | None = None
        self._bridging: asyncio.Task[None] | None = None
        self._creating: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._closed = False
        self.verification = Verification(client, verify, self._read_to, self._end, self.arrived.set)

    @property
    def pending(self) -> int:
        """How many messages of the stream are not handed over yet.

        While the reader reads without filters, this includes messages that it will drop.
        """
        return self._remaining + len(self._buffer)

    @property
    def last(self) -> int:
        """The position of the last message received."""
        return self._last

    @property
    def oldest(self) -> datetime | None:
        """When the oldest message not handed over, or the message before it, was stored."""
        if self._buffer:
            with suppress(IndexError):  # Another thread may take it meanwhile.
                return self._buffer[0].time
        return self._last_time if self._remaining else None

    def _read_to(self) -> tuple[int, datetime | None]:
        return self._last, self._last_time

    async def open(self) -> None:
        """Start to read; return when the server has the consumer."""
        self._client.on_reconnect.append(self.verification.distrust)
        self._client.on_reconnect.append(self._hurry)
        self._client.on_server_lost.append(self._hurry)
        self._creating = asyncio.create_task(self._create())
        await self._creating
        self._raise_end()
        self.verification.awake()
        self._watching = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Stop reading; drop the messages that were received but not handed over."""
        self._closed = True
        self.verification.close()
        own = (self._hurry, self.verification.distrust)
        for listeners in (self._client.on_reconnect, self._client.on_server_lost):
            listeners[:] = [each for each in listeners if each not in own]
        for task in (self._creating, self._watching, self._asking, self._bridging):
            if task is not None:
                task.cancel()
        self.arrived.set()
        await self.consumer.drop()

    async def next(self, timeout_s: float | None = None) -> list[Entry]:
        """Return the messages that have arrived, at least one; [] after `timeout_s` seconds."""
        if self._closed:
            await asyncio.sleep(0)  # So that a task that reads in a loop can be cancelled.
        elif not self._buffer:
            self.arrived.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
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

    def _raise_end(self) -> None:
        if self._end_of_reading is not None:
            raise self._end_of_reading

    def _restart(self, *, filtered: bool | None = None) -> None:
        """Read on with a new consumer, filtered or not; None chooses the cheaper way."""
        if not self._closed and not self._is_creating:
            self._creating = asyncio.create_task(self._create(filtered=filtered))

    @property
    def _is_creating(self) -> bool:
        return self._creating is not None and not self._creating.done()

    def _hurry(self) -> None:
        """Replace a consumer that may be lost with its server; use direct gets until then."""
        if self._attempt is not None and not self._attempt.expired():
            self._attempt.reschedule(asyncio.get_running_loop().time())
        self._restart()
        if self._wants and self._last_time and (not self._bridging or self._bridging.done()):
            self._bridging = asyncio.create_task(self._bridge(self._wants))

    async def _bridge(self, wants: Callable[[str], bool]) -> None:
        goes_on = lambda: self._is_creating and len(self._buffer) < BUFFER_MAX  # noqa: E731
        async for entry in read_on(self._client, self._stream, self._read_to, goes_on):
            self.heard_at = time.monotonic()
            if wants(entry.subject):
                self._hand_over(entry)
            # Last: if memory runs out before this line, the message is read again.
            self._last, self._last_time = entry.position, entry.time

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            self.verification.awake()
            silent_s = time.monotonic() - self.heard_at
            if self._client.is_connected and silent_s > 3 * HEARTBEAT_S:
                self.verification.distrust()
                self._restart()

    async def _create(self, *, filtered: bool | None = None) -> None:
        """Create a consumer that starts after the last position; retry until that succeeds."""
        failures = 0
        while not self._closed:
            try:
                hurried_s = HURRIED_S if self._client.hurries else None
                async with asyncio.timeout(hurried_s) as self._attempt:
                    await self._begin(filtered=filtered)
                return
            except StreamChanged as change:
                await self._end(change)
            except FAULTS:
                failures, self._attempt = failures + 1, None  # Never cut a pause short.
                await asyncio.sleep(pause_s(failures, RETRY_S, RETRY_MAX_S, random.random()))
            finally:
                self._attempt = None

    async def _end(self, error: Exception) -> None:
        self._end_of_reading, self._closed = error, True
        self.arrived.set()
        await self.consumer.drop()

    async def _begin(self, *, filtered: bool | None) -> None:
        try:
            if self._filtering is None:
                await self._create_consumer(self._filters)
            else:
                await self._begin_at_less_cost(self._filtering, filtered)
        except ServerRefusal:
            await self.verification.check()  # Perhaps there is no stream any more.
            raise
        # A consumer is deleted with its stream, so it belongs to the verified stream, or is gone.
        await self.verification.check()
        await self._pull()

    async def _begin_at_less_cost(self, filtering: Filtering, filtered: bool | None) -> None:
        behind, subjects = await self._distance()
        if filtering.begins(behind, subjects, filtered):
            await self._create_consumer(self._filters)
            if filtering.keeps(behind, self._remaining):
                return
        await self._create_consumer([])

    async def _distance(self) -> tuple[int, int]:
        """Return how many positions the end of the stream is away, and how many subjects it has."""
        last, subjects = await extent(self._client, self._stream)
        return last - self._last, subjects

    async def _create_consumer(self, filters: Sequence[str]) -> None:
        self._remaining = await self.consumer.create(
            filters, self._last + 1, self.metadata, newest=self._newest
        )
        self.heard_at = time.monotonic()

    async def _pull(self) -> None:
        """Request more messages while the buffer has room for them."""
        await self.consumer.pull(BUFFER_MAX - len(self._buffer), HEARTBEAT_S)

    async def _receive(self, message: Msg) -> None:
        try:
            await self._take_in(message)
        except NO_FAILURE as error:  # The client would skip to the next message.
            await self._end(error)

    async def _take_in(self, message: Msg) -> None:
        if not message.reply:
            await self._receive_status(message)
            return
        if not self.consumer.is_of(delivery := delivery_of(message.reply)):
            return
        self.heard_at = time.monotonic()
        if not self.consumer.took(delivery):
            self._restart()
            return
        if not self._follows(delivery) and not await self.verification.accepts_a_gap():
            self._restart()
            return
        if delivery.position <= self._last:
            return
        self._last, self._remaining = delivery.position, delivery.remaining
        self._last_time = delivery.time
        if self._filtering is not None and not await self._kept(self._filtering, message.subject):
            return
        headers = message.headers or {}
        self._hand_over(
            Entry(delivery.position, delivery.time, message.subject, message.data, headers)
        )

    def _follows(self, delivery: Delivery) -> bool:
        """Return whether no message is missing before this one: the server does not report gaps."""
        if self._filtering is None:
            return True
        if self._filtering.filtered:
            return delivery.remaining >= self._remaining - 1
        return delivery.position <= self._last + 1

    def _hand_over(self, entry: Entry) -> None:
        self._buffer.append(entry)
        self.arrived.set()

    async def _kept(self, filtering: Filtering, subject: str) -> bool:
        """Return whether a message is wanted; replace an unwanted message at once by another."""
        if not (kept := filtering.filtered or self._wants is None or self._wants(subject)):
            filtering.dropped()
            if self.consumer.requested <= PULL:
                await self._pull()
        if filtering.asks(self._remaining) and (self._asking is None or self._asking.done()):
            self._asking = asyncio.create_task(self._ask(filtering))
        return kept

    async def _ask(self, filtering: Filtering) -> None:
        """Start or stop to filter if the distance to the end of the stream makes that cheaper."""
        with suppress(*FAULTS):
            behind, subjects = await self._distance()
            if filtering.changes(behind, subjects, self._remaining):
                self._restart(filtered=not filtering.filtered)
        await asyncio.sleep(ASK_S)

    async def _receive_status(self, message: Msg) -> None:
        self.heard_at = time.monotonic()
        missing = missing_of(message.headers or {})
        if missing is None:
            self.verification.distrust()
            self._restart()
        else:
            self.consumer.missed(missing)
            await self._pull()
