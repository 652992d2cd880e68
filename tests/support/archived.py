"""An archive in a folder, made from messages in memory as the archiver makes it from a log."""

from collections.abc import Sequence
from pathlib import Path

from nodepool.archive.storage.archive import Archive
from nodepool.archive.storage.segments import Segment
from nodepool.archive.storage.store import Store
from nodepool.contract.log import Entry


async def archive_entries(
    folder: Path, entries: Sequence[Entry], log: str = "world", most: int = 500
) -> Archive:
    """Adds messages to an archive, at most so many of a day to a segment."""
    archive = await Archive.open(Store(str(folder)), log, entries[0].position if entries else 1)
    segment = Segment()
    for entry in entries[archive.head.last :]:
        if segment.count == most or segment.day not in (None, entry.time.date()):
            await archive.append(*segment.close(log, archive.head.sha256))
            segment = Segment()
        segment.add(entry)
    if segment.count:
        await archive.append(*segment.close(log, archive.head.sha256))
    return archive
