"""The log of a world as an archive in a folder: segments, and snapshot sets of its replicas."""

import hashlib
import zlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

from nodepool.archive.manifests import Object, Snapshot, SnapshotSet, digest_of
from nodepool.archive.names import part_name, period_of, set_name
from nodepool.archive.storage.archive import Archive
from nodepool.archive.storage.segments import Segment
from nodepool.archive.storage.store import Store
from nodepool.contract.log import Entry
from nodepool.engine.replica import Replica
from nodepool.engine.snapshot import dump

LENGTH_MAX = 400
"""The most messages of a segment."""
CHUNK_BYTES = 20_000
"""Small, so that there are several chunks."""


class Archiving:
    """Archives a log in memory, in segments of random lengths."""

    def __init__(self, folder: Path, log: str, seed: int = 0, most: int = LENGTH_MAX) -> None:
        self.log, self._store = log, Store(str(folder))
        self._random, self._most = Random(seed), most
        self._archive: Archive | None = None

    async def add(self, entries: Sequence[Entry]) -> None:
        """Add all messages of the log that the archive does not have; it begins with the first."""
        archive = self._archive or await Archive.open(self._store, self.log, entries[0].position)
        self._archive = archive
        segment, length = Segment(), self._random.randint(1, self._most)
        for entry in entries:
            if entry.position <= archive.head.last:
                continue
            is_other_day = segment.day not in (None, entry.time.date())
            if segment.count == length or is_other_day:
                await archive.append(*segment.close(self.log, archive.head.sha256))
                segment, length = Segment(), self._random.randint(1, self._most)
            segment.add(entry)
        if segment.count:
            await archive.append(*segment.close(self.log, archive.head.sha256))

    async def add_set(
        self, replicas: Iterable[Replica[Any, Any, Any]], log: Sequence[Entry], now: datetime
    ) -> None:
        """Add the snapshots of these replicas of a log as the set of this hour."""
        assert self._archive is not None, "segments are added first"
        period, snapshots = period_of(now, 1), dict[str, Snapshot]()
        for replica in replicas:
            service = replica.service.name
            content = b"".join(line + b"\n" for line in dump(replica.safe))
            chunks = [
                zlib.compress(content[start : start + CHUNK_BYTES])
                for start in range(0, len(content), CHUNK_BYTES)
            ]
            parts = list[Object]()
            for number, first in enumerate(range(0, len(chunks), 2)):
                part = b"".join(chunks[first : first + 2])
                name = part_name(period, service, number, digest_of(part))
                object = Object(name=name, bytes=len(part), sha256=digest_of(part))
                parts.append(await self._archive.put(object, part))
            snapshots[service] = Snapshot(
                committed=replica.committed,
                expected_sequence=replica.expected_sequence,
                bytes=len(content),
                sha256=hashlib.sha256(content).hexdigest(),
                time=log[replica.expected_sequence - 1].time.isoformat(),
                parts=tuple(parts),
            )
        made = SnapshotSet(log=self.log, made=now.isoformat(), snapshots=snapshots)
        is_new = await self._store.create(set_name(period), made.to_bytes())
        assert is_new, "the hour has no set yet"


async def archive_entries(
    folder: Path, entries: Sequence[Entry], log: str = "world", most: int = LENGTH_MAX
) -> Archiving:
    """An archive of these messages."""
    archiving = Archiving(folder, log, most=most)
    await archiving.add(entries)
    return archiving
