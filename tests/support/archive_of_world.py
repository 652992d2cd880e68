"""An archive in a folder, made from messages in memory as the archiver makes it from a log."""

import hashlib
import zlib
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import aggregator.decide
from nodepool.archive.manifests import Object, Snapshot, SnapshotSet, digest_of
from nodepool.archive.names import part_name, period_of, set_name
from nodepool.archive.storage.archive import Archive
from nodepool.archive.storage.segments import Segment
from nodepool.archive.storage.store import Store
from nodepool.contract.log import Entry, LogId
from nodepool.engine.replica import Replica
from nodepool.engine.snapshot import dump


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


CHUNK_BYTES = 10_000
"""The size of a chunk of a snapshot before compression."""


async def archive_snapshot(archive: Archive, entries: Sequence[Entry], read_to: int) -> datetime:
    """Adds a set with the snapshot of the aggregator, once it has read so many messages; when."""
    service = aggregator.decide.SERVICE
    replica = Replica(service, log=LogId(archive.log))
    for entry in entries[:read_to]:
        if service.wants(entry.subject):
            replica.read(entry)
    while (proposal := replica.propose(even_if_quiet=True)) is not None:
        replica.confirm_proposal(proposal, read_to)
    time = entries[read_to - 1].time
    period, text = period_of(time, 1), b"".join(line + b"\n" for line in dump(replica.safe))
    parts = list[Object]()
    for first in range(0, len(text), 3 * CHUNK_BYTES):
        part = text[first : first + 3 * CHUNK_BYTES]
        chunks = range(0, len(part), CHUNK_BYTES)
        content = b"".join(zlib.compress(part[at : at + CHUNK_BYTES]) for at in chunks)
        sha256 = digest_of(content)
        name = part_name(period, service.name, len(parts), sha256)
        parts.append(
            await archive.put(Object(name=name, bytes=len(content), sha256=sha256), content)
        )
    snapshot = Snapshot(
        committed=replica.committed,
        expected_sequence=read_to,
        bytes=len(text),
        sha256=hashlib.sha256(text).hexdigest(),
        time=time.isoformat(),
        parts=tuple(parts),
    )
    found = SnapshotSet(log=archive.log, made=time.isoformat(), snapshots={service.name: snapshot})
    await archive.store.create(set_name(period), found.to_bytes())
    return time
