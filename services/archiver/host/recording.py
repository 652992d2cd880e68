"""Writes the log into the archive, segment by segment."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final

from archiver.closing import FULL, Filling, Limits, Ration, is_full, is_quiet
from archiver.host.patience import Patience
from nodepool.archive.manifests import Manifest
from nodepool.archive.storage.archive import Archive
from nodepool.archive.storage.errors import ArchiveError
from nodepool.archive.storage.segments import Segment
from nodepool.contract.log import Entry
from nodepool.contract.subjects import is_output
from nodepool.nats.log.reader import Reader

LOOK_S: Final = 0.5
"""How often it is checked whether a segment is complete, in seconds, while no message arrives."""


class Recorder:
    """Reads the log after the end of the archive.

    Messages are read only as fast as the store takes them. One segment is held in memory,
    compressed, beside what the reader has received.

    stored: called with the manifest of each segment that was stored and read back.
    """

    def __init__(
        self,
        archive: Archive,
        reader: Reader,
        limits: Limits,
        patience: Patience,
        stored: Callable[[Manifest], None],
    ) -> None:
        self._archive, self._reader = archive, reader
        self._limits, self._patience, self._stored = limits, patience, stored
        self._segment, self._filling, self._ration = Segment(), Filling(), Ration()
        self._next = archive.head.last + 1

    @property
    def waiting(self) -> int:
        """How many messages of the log are not in the archive."""
        return self._reader.pending + self._segment.count

    @property
    def oldest(self) -> datetime | None:
        """When the oldest message that waits was stored in the log; None if none waits."""
        first = self._segment.first
        return first.time if first is not None else self._reader.oldest

    async def run(self) -> None:
        """Write until another program has added to the archive: then it is read on from there.

        Raises ArchiveError if the log lacks a message, or the archive is damaged, and the errors of
        the reader.
        """
        clock = asyncio.get_running_loop().time
        self._ration = Ration(at=clock())
        while True:
            for entry in await self._reader.next(LOOK_S):
                if not self._takes(entry) and not await self._close():
                    return
                self._add(entry, clock())
            if self._is_complete(clock()) and not await self._close():
                return

    def _takes(self, entry: Entry) -> bool:
        """Return whether the segment has room for a message, which must be of the same day."""
        if self._segment.day not in (None, entry.time.date()):
            return False
        if self._filling.bytes < self._limits.bytes:
            return True
        return self._in_commit and self._filling.bytes < FULL * self._limits.bytes

    @property
    def _in_commit(self) -> bool:
        last = self._segment.last
        return last is not None and is_output(last.subject)

    def _add(self, entry: Entry, now: float) -> None:
        if entry.position != self._next:
            text = f"the log has {entry.position} where {self._next} is next"
            raise ArchiveError(f"archive {self._archive.store}: messages are missing: {text}")
        self._next += 1
        self._filling = self._filling.add(self._segment.add(entry), now)

    async def _close(self) -> bool:
        """Store the segment and read it back; return False if another program came first."""
        archive, patience = self._archive, self._patience
        manifest, content = self._segment.close(archive.log, archive.head.sha256)
        stored = await patience.insist(lambda: archive.append(manifest, content))
        if stored is None:
            return False
        await patience.insist(lambda: archive.read_back(stored.object))
        self._segment, self._filling = Segment(), Filling()
        self._stored(stored)
        return True

    def _is_complete(self, now: float) -> bool:
        if is_full(self._filling, self._limits, now, in_commit=self._in_commit):
            return True
        if self._reader.pending or not is_quiet(self._filling, self._limits, now):
            return False
        ration = self._ration.take(now)
        self._ration = ration or self._ration
        return ration is not None
