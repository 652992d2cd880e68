"""One consumer of the log for all services of a process.

The services of a process want most messages of the log, and many of the same messages. So a process
reads the end of the log once, and its feed hands each message to every service that wants it. A
service reads alone until it has read as far as the feed, and again whenever its own connection or
the feed is in trouble. So nothing but its own connection decides whether a service may trust the
log, no service misses a message, and no service keeps the others from reading.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from nodepool.contract.log import Entry, LogId
from nodepool.nats.log.consumers import REPLICA, SERVICE
from nodepool.nats.log.reader import BUFFER_MAX, HEARTBEAT_S, Reader
from nodepool.nats.log.streams import STREAM
from nodepool.nats.log.verification import FAULTS, Verify
from nodepool.nats.wire.client import BusClient
from nodepool.nats.wire.waiting import until_first


class Feed:
    """The shared reader of a process, and the members that it hands messages to.

    position: the position of the last message that was handed to the members.
    """

    def __init__(self) -> None:
        self.position = 0
        self._reader: Reader | None = None
        self._log: LogId | None = None
        self._members: list[Member] = []
        self._changed = asyncio.Event()

    async def run(self, reader: Reader, log: LogId) -> None:
        """Hand on what a reader of all subjects reads, until cancelled; raise what ends reading.

        log: the identity of the log that it reads.
        """
        try:
            await reader.open()
            self.position, self._reader, self._log = reader.last, reader, log
            await until_first(self._hand_on(reader), self._show_members(reader))
        finally:
            self._reader = self._log = None
            self.part_all()
            await reader.close()

    def reads(self, log: LogId) -> bool:
        """Return whether the feed reads this log now, and hears the server."""
        reader = self._reader
        return (
            self._log == log and reader is not None and reader.is_reading and not reader.is_silent
        )

    def add(self, member: "Member") -> None:
        """Hand each further message to a member, which has read as far as the feed."""
        self._members.append(member)
        self._changed.set()

    def remove(self, member: "Member") -> None:
        """Hand no further message to a member."""
        self._members.remove(member)
        self._changed.set()

    def part_all(self) -> None:
        """Let each member read alone."""
        for member in tuple(self._members):
            member.part()

    async def _hand_on(self, reader: Reader) -> None:
        while True:
            entries = await reader.next(HEARTBEAT_S)
            if entries:
                self.position = entries[-1].position
            for member in tuple(self._members):
                member.hear(entries, reader)

    async def _show_members(self, reader: Reader) -> None:
        """Keep the services that read by the feed in the metadata of its consumer."""
        others, shown = dict(reader.metadata), None
        while True:
            own = [member.metadata for member in self._members]
            joined = {key: ",".join(each[key] for each in own) for key in (SERVICE, REPLICA)}
            reader.metadata = {**others, **(joined if own else {})}
            consumer = reader.consumer
            if consumer is not None and shown != (consumer, reader.metadata):
                with suppress(*FAULTS):
                    await consumer.show(reader.metadata)
                    shown = consumer, reader.metadata
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._changed.wait()
            self._changed.clear()


class Member(Reader):
    """A reader of the log for one service, which leaves reading to a feed while it can.

    log: the identity of the log that it reads.

    It joins the feed once it has read as far as the feed has handed on; only a reader without
    filters knows how far it has read. From then on, the next message of the feed is its next one.
    """

    def __init__(
        self,
        feed: Feed,
        log: LogId,
        client: BusClient,
        filters: Sequence[str],
        *,
        start: int,
        wants: Callable[[str], bool],
        verify: Verify,
    ) -> None:
        super().__init__(client, STREAM, filters, start=start, wants=wants, verify=verify)
        self._feed = feed
        self._log = log
        self._is_wanted = wants
        self._alone = asyncio.Event()
        self._alone.set()

    @property
    def is_joined(self) -> bool:
        """Return whether all messages come from the feed."""
        return not self._alone.is_set()

    async def close(self) -> None:
        """Stop reading."""
        self.part()
        await super().close()

    async def take(self) -> list[Entry]:
        """Return the messages that have arrived, as `Reader.take` does; join the feed if ready."""
        entries = await super().take()
        self._join_if_level()
        return entries

    def hear(self, entries: Sequence[Entry], reader: Reader) -> None:
        """Take messages that the reader of the feed has read, and what it knows of the server."""
        if entries and entries[-1].position > self.last:
            new = [entry for entry in entries if entry.position > self.last]
            self.last, self._last_time = new[-1].position, new[-1].time
            if wanted := [entry for entry in new if self._is_wanted(entry.subject)]:
                self._buffer.extend(wanted)
                self.arrived.set()
        self._remaining, self.heard_at = reader.pending, reader.heard_at
        if len(self._buffer) > 2 * BUFFER_MAX:
            self.part()

    def part(self) -> None:
        """Read alone, from the message after the last one on."""
        if self.is_joined:
            self._alone.set()
            self._feed.remove(self)

    def _join_if_level(self) -> None:
        consumer, filtering = self.consumer, self._filtering
        if self.is_joined or consumer is None or not (self.is_reading and filtering):
            return
        if not self._feed.reads(self._log):
            return
        if filtering.filtered and not self._remaining:
            consumer.give_up(filtered=False)
        elif not filtering.filtered and self.last >= self._feed.position:
            self._alone.clear()
            self._feed.add(self)
            consumer.give_up()

    async def _await_turn(self) -> None:
        await self._alone.wait()

    def _doubt(self) -> None:
        self.part()
        super()._doubt()

    def _hurry(self) -> None:
        self.part()
        super()._hurry()
