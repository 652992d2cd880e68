"""One reader of the log for all services of a process.

The services of a process want most messages of the log, and many of the same ones. So the process
reads the end of the log once, and hands each message to every service that wants it. Each service
also reads by itself until it has caught up with the shared reader: from its start, after it fell
behind, and while the shared reader does not read. So no service misses a message, and no service
keeps the others from reading.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from nodepool.contract.log import Entry, LogId, SharedEntry
from nodepool.nats.log.consumers import SERVICE, Consumer
from nodepool.nats.log.reader import BUFFER_MAX, Reader
from nodepool.nats.wire.errors import InDoubt

MakeReader = Callable[[int], Reader]
"""Makes a reader from a position on."""


class Feed:
    """The shared reader of a process, and the members that it hands messages to.

    reader, log: the reader, and the identity of its log; None while it does not read.
    """

    def __init__(self) -> None:
        self.reader: Reader | None = None
        self.log: LogId | None = None
        self._members: list[Member] = []

    async def run(self, reader: Reader, log: LogId, metadata: Mapping[str, str]) -> None:
        """Hand on what a reader of all subjects reads, until cancelled; raise what ends that."""
        reader.metadata = {**metadata, SERVICE: ""}
        try:
            await reader.open()
            self.reader, self.log = reader, log
            while True:
                entries = [SharedEntry(*entry) for entry in await reader.next()]
                for member in tuple(self._members):
                    member.hear(entries)
        finally:
            for member in tuple(self._members):
                member.end_hearing()
            self.reader = self.log = None
            await reader.close()

    def add(self, member: "Member") -> None:
        """Hand each further message to a member."""
        self._members.append(member)

    def remove(self, member: "Member") -> None:
        """Hand no further message to a member."""
        if member in self._members:
            self._members.remove(member)
            self.show_members()

    def show_members(self) -> None:
        """Name the services that read by the feed in the metadata of its consumer."""
        names = ",".join(sorted(member.name for member in self._members if member.is_joined))
        reader = self.reader
        if reader is not None and reader.metadata[SERVICE] != names:
            reader.metadata = {**reader.metadata, SERVICE: names}
            if reader.consumer is not None:
                reader.consumer.give_up()


class Member:
    """Reads the log for one service that shares a feed; it is used as a `Reader` is.

    name: the service.
    log: the identity of its log; it reads by the feed only while the feed reads the same log.
    make: makes its own reader.
    wants: whether the service wants the messages on a subject.
    start: the first position to read.

    Its own reader has caught up once nothing is left of what a consumer had to deliver that was
    created after the member began to hear the feed. From then on the feed has all that follows.
    """

    def __init__(
        self,
        feed: Feed,
        name: str,
        log: LogId,
        make: MakeReader,
        wants: Callable[[str], bool],
        *,
        start: int,
    ) -> None:
        self.name = name
        self.arrived = asyncio.Event()
        self.last = start - 1
        self._feed, self._log, self._make, self._wants = feed, log, make, wants
        self._taken = start - 1
        self._own: Reader | None = None
        self._old: Consumer | None = None
        self._is_hearing = False
        self._heard_at = time.monotonic()
        self._buffer: deque[Entry] = deque()

    @property
    def is_joined(self) -> bool:
        """Return whether all messages come from the feed."""
        return self._own is None and self._is_hearing

    @property
    def _reader(self) -> Reader | None:
        return self._own or self._feed.reader

    @property
    def pending(self) -> int:
        """Return how many messages of the log are not handed over yet."""
        reader = self._reader
        return len(self._buffer) + (reader.pending if reader is not None else 1)

    @property
    def oldest(self) -> datetime | None:
        """Return when the oldest message not handed over, or the message before it, was stored."""
        try:
            return self._buffer[0].time
        except IndexError:
            reader = self._reader
            return reader.oldest if reader is not None else None

    @property
    def heard_at(self) -> float:
        """Return the last sign of life of the server, by Python's monotonic clock."""
        reader = self._reader
        return max(self._heard_at, reader.heard_at if reader is not None else 0.0)

    @property
    def holds(self) -> bool:
        """Return whether the log is known to still hold the messages that were read."""
        reader = self._reader
        return reader is not None and reader.holds

    async def check(self) -> None:
        """Verify the log now; raise as `Reader.check` does, or InDoubt while nothing reads."""
        reader = self._reader
        if reader is None:
            raise InDoubt("the log is not read now")
        await reader.check()

    async def open(self) -> None:
        """Start to read; return when the server has the consumer."""
        self._feed.add(self)
        self._hear_from_now()
        self._own = self._make_own()
        await self._own.open()

    async def close(self) -> None:
        """Stop reading."""
        self._feed.remove(self)
        if self._own is not None:
            await self._own.close()

    async def take(self) -> list[Entry]:
        """Return the messages that have arrived, without waiting; raise as `Reader.take` does."""
        own = self._own
        if own is not None:
            found = await own.take()
            self.last = own.last
            await self._join_if_caught_up(own)
        else:
            found, self._buffer = list(self._buffer), deque()
            if not self._is_hearing:
                self._read_alone()
        entries = [entry for entry in found if entry.position > self._taken]
        if entries:
            self._taken = entries[-1].position
        return entries

    def hear(self, entries: Sequence[Entry]) -> None:
        """Take messages from the feed, as long as there is room for them."""
        if not self._is_hearing:
            return
        self._buffer.extend(entry for entry in entries if self._wants(entry.subject))
        if len(self._buffer) > 2 * BUFFER_MAX:
            self.end_hearing()
        elif self._own is None:
            self.last = entries[-1].position
            self.arrived.set()

    def end_hearing(self) -> None:
        """Read alone from the next turn on."""
        self._is_hearing, self._heard_at = False, self.heard_at
        self.arrived.set()

    def _hear_from_now(self) -> None:
        """Begin to hear the feed, if it reads this log; what the own reader has may be older."""
        self._is_hearing = self._feed.reader is not None and self._feed.log == self._log
        self._buffer.clear()
        if self._is_hearing and self._own is not None and self._own.consumer is not None:
            self._old = self._own.consumer
            self._old.give_up()

    async def _join_if_caught_up(self, own: Reader) -> None:
        consumer = own.consumer
        if own.pending or consumer is None or consumer.given_up.done():
            return
        if not self._is_hearing:
            self._hear_from_now()
        elif consumer is not self._old:
            self._own = self._old = None
            self._feed.show_members()
            self.arrived.set()
            await own.close()

    def _read_alone(self) -> None:
        self._own = self._make_own()
        self._own.begin()
        self._feed.show_members()

    def _make_own(self) -> Reader:
        own = self._make(self.last + 1)
        own.arrived = self.arrived
        return own
