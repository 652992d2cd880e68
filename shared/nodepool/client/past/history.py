"""The messages of the log up to a moment: those in the archive, and after them those on the bus."""

import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from nodepool.archive.storage.records import Records
from nodepool.client.errors import ClientError, translate_archive_errors, translate_errors
from nodepool.client.session import Session
from nodepool.contract.log import Entry, LogId
from nodepool.nats.log.streams import STREAM, stream_info
from nodepool.nats.log.verification import verify_log
from nodepool.nats.wire.errors import LogChanged

Wants = Callable[[str], bool]
TICK: Final = timedelta(microseconds=1)


class Extent(NamedTuple):
    """What of a log can be read.

    log: which log it is.
    first, last: the positions of the first and the last message.
    end: the time up to which nothing is missing.
    """

    log: LogId
    first: int
    last: int
    end: datetime


class History:
    """The messages up to a moment; whoever opens it says up to which, or else all are part of it.

    records: the archive; None if there is none.
    live: a session with the bus, which is open; None if the archive holds all that is wanted.
    extent: what of the log can be read.
    position, time: the last message that is part of the history, and the moment.
    uses_snapshots: whether the snapshots on the bus may be read, and not only those of the archive.
    """

    def __init__(self, records: Records | None, live: Session | None, extent: Extent) -> None:
        self.records, self.live, self.extent = records, live, extent
        self.position, self.time = extent.last, extent.end
        self.uses_snapshots = True

    @classmethod
    async def open(cls, records: Records | None, live: Session | None) -> "History":
        """Return all messages; raise ClientError if archive and bus do not fit."""
        return cls(records, live, await _extent(records, live))

    @property
    def archived(self) -> int:
        """The last position that is read from the archive; 0 if none is."""
        return self.records.last if self.records is not None else 0

    async def entries(
        self, first: int, filters: Sequence[str], wants: Wants | None = None
    ) -> AsyncGenerator[Sequence[Entry], None]:
        """Yield the messages that match a filter from a position to the moment, some at a time.

        wants: says the same as the filters, if the caller has a faster way than theirs.
        """
        if self.records is not None:
            found = self.records.entries(first, self.position, wants or matching(filters))
            async with aclosing(found) as batches:
                with translate_archive_errors():
                    async for entries in batches:
                        yield entries
        async with aclosing(self.recent(first, filters)) as batches:
            async for entries in batches:
                yield entries

    async def recent(
        self, first: int, filters: Sequence[str] = ()
    ) -> AsyncGenerator[Sequence[Entry], None]:
        """Yield the messages as `entries` does, but only those that the archive does not have."""
        start = max(first, self.archived + 1)
        if self.live is None or start > self.position:
            return
        async with self.live.reader(STREAM, filters, start=start) as reader:
            while reader.pending:
                read = await self.live.read(reader, endless=False)
                yield [entry for entry in read if entry.position <= self.position]
                if read[-1].position >= self.position:
                    return

    async def newest(
        self, first: int, filters: Sequence[str]
    ) -> AsyncGenerator[Sequence[Entry], None]:
        """Yield the messages that match a filter, the newest first, back to a position."""
        async with aclosing(self.recent(first, filters)) as batches:
            recent = [entry async for entries in batches for entry in entries]
        yield recent[::-1]
        if self.records is not None:
            found = self.records.newest(self.position, first, matching(filters))
            async with aclosing(found) as older:
                with translate_archive_errors():
                    async for entries in older:
                        yield entries[::-1]

    async def position_before(self, time: datetime) -> int:
        """Return the position of the last message that was stored at a time or before it."""
        records = self.records
        if records is not None and (self.live is None or is_archived(records, time)):
            with translate_archive_errors():
                return await records.position_before(time)
        assert self.live is not None, "one of them has the messages"
        return await self.live.position_at(time + TICK) - 1

    async def first_since(self, time: datetime) -> int:
        """Return the position of the first message that was stored at a time or after it."""
        return await self.position_before(time - TICK) + 1

    async def time_of(self, position: int) -> datetime:
        """Return when the message at a position was stored, which must be there."""
        entry = await self.message_at(position)
        assert entry is not None, "the position lies in the history"
        return entry.time

    async def message_at(self, position: int) -> Entry | None:
        """Return the message at a position; None if the history does not have it."""
        if self.records is not None and self.records.first <= position <= self.archived:
            found = self.records.entries(position, position, lambda _subject: True)
            async with aclosing(found) as batches:
                with translate_archive_errors():
                    async for entries in batches:
                        return entries[0]
        if self.live is None or not 0 < position <= self.position:
            return None
        return await self.live.message_at(position)


async def _extent(records: Records | None, live: Session | None) -> Extent:
    """Return what of the log can be read; raise ClientError if archive and bus do not fit."""
    ended = records.end.ended if records is not None and records.end is not None else ""
    end = datetime.fromisoformat(ended) if ended else datetime.min.replace(tzinfo=UTC)
    if live is None:
        assert records is not None, "one of them has the messages"
        return Extent(LogId(records.log), records.first, records.last, end)
    with translate_errors(live.url):
        await live.last_position()  # Waits if the control plane is still starting.
        info = await stream_info(live.connection, STREAM)
    assert info is not None, "it has a last position"
    if records is None:
        return Extent(info.log, info.first, info.last, info.time)
    if info.log != records.log:
        text = f"it holds the log {records.log}, and the bus has the log {info.log}"
        raise ClientError(f"archive {records.store}: {text}; name the archive of this log")
    if records.end is not None:
        with translate_errors(live.url):
            try:
                await verify_log(live.connection, info.log, records.last, end, is_whole=True)
            except LogChanged as error:
                text = f"the log on the bus does not go on after the archive: {error}"
                raise ClientError(f"{text}; name a moment that the archive holds") from None
    first = records.first if records.last else info.first
    return Extent(info.log, first, info.last, info.time)


def is_archived(records: Records, at: int | datetime) -> bool:
    """Return whether an archive is known to hold all messages up to a position or a time."""
    if records.end is None:
        return False
    if isinstance(at, int):
        return at <= records.last
    return at < datetime.fromisoformat(records.end.ended)


def matching(filters: Sequence[str]) -> Wants:
    """Return what says whether a subject matches one of the filters, which may have wildcards."""
    patterns = (
        re.escape(each).replace(r"\*", r"[^.]+").replace("*", "[^.]+").replace(">", ".+")
        for each in filters
    )
    pattern = re.compile("|".join(patterns))
    return lambda subject: pattern.fullmatch(subject) is not None
