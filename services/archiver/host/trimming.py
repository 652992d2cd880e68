"""Looks for the floor of the log, and trims the log there."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Final

from archiver.host.patience import Patience as StorePatience
from archiver.host.settings import ArchiverSettings
from nodepool.archive.floor import Extent, Holder, Patience, find_floor, is_set_due, list_holders
from nodepool.archive.storage.archive import Archive
from nodepool.contract import archive_metrics
from nodepool.contract.metrics import Sample
from nodepool.host.logs import Logger
from nodepool.nats.log.streams import STREAM, StreamInfo, stream_info
from nodepool.nats.log.trimming import trim
from nodepool.nats.objects.floor_facts import SetReader, find_facts
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import ServerRefusal

LOOK_S: Final = 30.0
"""The longest pause between two looks, in seconds."""
OLD_LOG: Final = "the log denies every purge, as logs of early releases do: see deploy/RETENTION.md"


class Trimming:
    """Knows who needs the log from where on, and trims it if the settings say so.

    Several archivers at once do no harm: trimming twice at a position removes nothing more.

    read_back: returns up to which position the archive was read back.
    set_due: is set when the log cannot be trimmed further without another snapshot set.
    holders: who holds the log, as of the last look; empty before the first.
    log: the log as of the last look.
    trimmed: where this process has trimmed the log last; 0 if it has not.
    fault: why the log was not trimmed though it is to be, as one line; empty if it was.
    """

    def __init__(
        self,
        settings: ArchiverSettings,
        patience: StorePatience,
        read_back: Callable[[], int],
        set_due: asyncio.Event,
        log: Logger,
    ) -> None:
        self.holders: Sequence[Holder] = ()
        self.log: Extent | None = None
        self.trimmed = 0
        self.fault = ""
        self._settings, self._patience = settings, patience
        self._read_back, self._set_due, self._lines = read_back, set_due, log

    def samples(self) -> Iterator[Sample]:
        """Yield the samples of a scrape, which runs in its own thread."""
        holders, log = self.holders, self.log
        yield Sample(archive_metrics.TRIMS, (), self._settings.trims)
        if log is not None:
            yield Sample(archive_metrics.LOG_FIRST, (), log.first)
            yield Sample(archive_metrics.LOG_SIZE, (), log.bytes)
            yield Sample(archive_metrics.FLOOR, (), find_floor(holders).first)
        for holder in holders:
            yield Sample(archive_metrics.HOLDER, (holder.name,), holder.first)

    async def run(self, connection: Connection, archive: Archive) -> None:
        """Look, and trim, until the task is cancelled; raise the errors of the bus."""
        clock, waiting = asyncio.get_running_loop().time, Patience()
        delay_s, sets = self._settings.trim_delay_seconds, SetReader(archive.store)
        while True:
            info = await stream_info(connection, STREAM)
            if info is not None and info.log == archive.log:
                floor = await self._look(connection, info, sets)
                waiting, due = waiting.wait(floor, clock(), delay_s)
                if self._settings.trims and due > info.first:
                    await self._trim(connection, archive, due, info)
            await asyncio.sleep(min(LOOK_S, delay_s / 2))

    async def _look(self, connection: Connection, info: StreamInfo, sets: SetReader) -> int:
        found, keep = await self._patience.insist(sets.newest), self._settings.keep
        facts = await find_facts(connection, info, found, self._read_back(), keep)
        self.holders = list_holders(facts, keep)
        self.log = facts.log  # Last: a scrape reads the floor once it is there.
        if self._settings.trims and is_set_due(self.holders, facts.log, keep):
            self._set_due.set()
        return find_floor(self.holders).first

    async def _trim(
        self, connection: Connection, archive: Archive, floor: int, info: StreamInfo
    ) -> None:
        if not info.is_purgeable:
            self._note_fault(OLD_LOG)
            return
        head = archive.head
        ended = datetime.fromisoformat(head.ended) if head.ended else None
        try:
            purged = await trim(connection, info.log, floor, head.last, ended)
        except (ServerRefusal, ValueError) as error:
            self._note_fault(str(error))
            return
        self.trimmed, self.fault = floor, ""
        self._lines.info("log trimmed", first=floor, messages=purged)

    def _note_fault(self, fault: str) -> None:
        if fault != self.fault:
            self._lines.warning("log not trimmed", cause=fault)
        self.fault = fault
