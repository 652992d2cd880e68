"""Finding what other programs have written into the buckets of the read model."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from nodepool.contract.log import Entry
from nodepool.nats.log.api import leaders_message
from nodepool.nats.log.publisher import Bus
from nodepool.nats.log.reader import read_to_end
from nodepool.nats.log.streams import STREAM, StreamInfo, stream_info
from nodepool.nats.objects.stored_objects import (
    Finding,
    ObjectKey,
    Report,
    StoredObject,
    StoredObjects,
    key_of_object,
    stored_object,
    stream_of,
    subject_of_object,
)
from nodepool.nats.wire.errors import Conflict, InDoubt, ServerRefusal, StreamChanged
from nodepool.nats.wire.library import NatsError

INSPECT_S = 3.0
"""The pause between two inspections."""
SLICE = 100
"""After examining this many objects, the inspection sleeps for four times as long as that took."""
UNDECIDED_MAX = 1_000
"""How many objects of a newer version are looked at again in one inspection."""
PATIENCE = 2
"""After how many inspections an object of a newer version counts as wrong. Only another replica may
have written it; by then this writer would have read its commit and stopped writing."""


class Written(Protocol):
    """What an inspection needs from the writer.

    stored: what the writer knows of the stored objects.
    report: called with the faults that are found.
    """

    bus: Bus
    stored: StoredObjects
    report: Report

    @property
    def buckets(self) -> Sequence[str]:
        """The buckets to inspect."""
        ...

    @property
    def is_writing(self) -> bool:
        """Return whether the writer writes, and knows which objects are stored."""
        ...

    def invalidate(self) -> None:
        """Read the stored objects again and compare them with the state."""
        ...

    def examine(
        self, key: ObjectKey, stored: StoredObject, content: bytes, log_end: int
    ) -> Finding:
        """Return the Finding for a stored object; mark a wrong object to be written again."""
        ...


class Inspection:
    """Compares the buckets, every few seconds, with what one writer knows about them.

    Every object that this writer did not write is read once and examined, including its content:
    at first all objects, and later only objects that another program has written.
    """

    def __init__(self, writer: Written) -> None:
        self._writer = writer
        self._connection = writer.bus.connection
        self._stored = writer.stored
        self._report = writer.report
        self._undecided: dict[ObjectKey, int] = {}

    async def run(self) -> None:
        """Inspect until cancelled; an error of the bus only delays the next inspection."""
        while True:
            await asyncio.sleep(INSPECT_S)
            try:
                await self._inspect()
            except (StreamChanged, Conflict, InDoubt, ServerRefusal, NatsError, OSError):
                continue

    async def _inspect(self) -> None:
        for bucket in self._writer.buckets:
            extent = self._stored.extents[bucket]
            if not self._writer.is_writing:
                self._undecided = dict.fromkeys(self._undecided, 0)
                return
            known = extent.known
            info = await stream_info(self._connection, f"KV_{bucket}")
            if info is None or self._has_changed(bucket, known, info):
                self._writer.invalidate()
            if info is not None and info.last > extent.known:
                await self._examine_all(bucket, info.last)
        await self._examine_undecided()

    def _has_changed(self, bucket: str, known: int, info: StreamInfo) -> bool:
        """Return whether the bucket is another one, or holds fewer messages than it should."""
        extent = self._stored.extents[bucket]
        if extent.created != info.created or info.last < extent.known:
            is_first = not extent.created
            extent.begin(info.created)
            return not is_first
        if not known == extent.known == info.last:
            return False  # A write is in flight, so the count says nothing.
        wanted = self._stored.count(bucket, asyncio.get_running_loop().time())
        if info.messages in wanted:
            return False
        self._report(f"objects are missing in {bucket}", max(0, wanted.start - info.messages))
        return True

    async def _examine_all(self, bucket: str, last: int) -> None:
        """Examine the objects in a bucket up to position `last` that are not known yet."""
        extent, log_end, wrong = self._stored.extents[bucket], await self._log_end(), 0
        start = extent.known + 1
        reading = read_to_end(self._connection, *stream_of(bucket), start=start, end=last)
        async for entries in reading:
            for first in range(0, len(entries), SLICE):
                began = asyncio.get_running_loop().time()
                for entry in entries[first : first + SLICE]:
                    if not extent.is_known(entry.position):
                        wrong += self._examine(bucket, entry, log_end)
                await asyncio.sleep(4 * (asyncio.get_running_loop().time() - began))
                if not self._writer.is_writing:
                    return
            extent.note_examination(entries[-1].position)
        extent.note_examination(last)
        if wrong:
            self._report(f"objects in {bucket} are not what was written", wrong)

    def _examine(self, bucket: str, entry: Entry, log_end: int) -> bool:
        """Return whether an object is wrong; an object that this writer wrote since is not."""
        key = key_of_object(bucket, entry.subject)
        stored = stored_object(entry.headers, entry.position)
        if entry.position < self._stored.get(key).position:
            self._undecided.pop(key, None)
            return False
        finding = self._writer.examine(key, stored, entry.content, log_end)
        if finding is Finding.NEWER:
            self._undecided.setdefault(key, 0)
        else:
            self._undecided.pop(key, None)
        return finding is Finding.WRONG

    async def _examine_undecided(self) -> None:
        """Examine objects again whose version was newer than the writer's state."""
        keys = list(self._undecided)[:UNDECIDED_MAX]
        log_end = await self._log_end() if keys else 0
        for key in keys:
            bucket = key[0]
            self._undecided[key] += 1
            end = log_end if self._undecided[key] < PATIENCE else 0
            entry = await leaders_message(self._connection, f"KV_{bucket}", subject_of_object(key))
            if entry is None:
                del self._undecided[key]
            elif self._writer.is_writing and self._examine(bucket, entry, end):
                self._report(f"objects in {bucket} are not what was written", 1)

    async def _log_end(self) -> int:
        info = await stream_info(self._connection, STREAM)
        return info.last if info is not None else 0
