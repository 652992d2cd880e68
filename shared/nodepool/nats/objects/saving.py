"""Saving snapshots: first a whole one, then chunks with what has changed since.

What a snapshot costs thus follows from what has happened since the previous one, however large the
state is. Once changes of the same entries have made a snapshot much longer than its state, the next
one is whole again.
"""

import asyncio
import hashlib
import os
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from nodepool.contract.log import Entry
from nodepool.engine.folded import Folded
from nodepool.engine.replica import Replica
from nodepool.engine.snapshot import count_lines, dump, dump_changes
from nodepool.nats.log.api import leaders_message, leaders_message_at, publish
from nodepool.nats.log.publisher import Bus
from nodepool.nats.log.streams import SNAPSHOTS, STREAM, provision_stream, streams
from nodepool.nats.objects.snapshots import (
    BYTES_MAX,
    CHUNK_BYTES,
    RELEASE_MAX,
    Manifest,
    Newest,
    Saved,
    chunk_subject,
    manifest_subject,
    stored_position,
    stored_subjects,
)
from nodepool.service import I, O, S, Service

TURN_S = 0.003
"""After this time, saving sleeps for as long, so that no commit is delayed."""
EXPIRING = {"Nats-TTL": "1s"}
"""The server removes these messages after a second. They overwrite chunks that are not needed any
more, because a service has no right to remove what others have stored."""
LINES_MAX = 2
"""A snapshot with this many times the lines of the state is followed by a whole one."""


@dataclass(slots=True)
class Effort:
    """What saving has cost: the seconds in which the event loop did nothing else."""

    seconds: float = 0.0


async def _trust() -> None:
    """Trust that the log is the log that the replica has read."""


@dataclass(frozen=True, slots=True)
class Storing:
    """Where snapshots are stored, and which log they belong to.

    verify: raises an error unless the log is the one that the replica has read.
    replaces_newer: whether to replace a stored snapshot even if it has a later position.
    newest: the snapshot that the next one may add to.
    effort: what saving costs.
    release: the version of this program.
    """

    bus: Bus
    verify: Callable[[], Awaitable[None]] = _trust
    replaces_newer: bool = False
    newest: Newest[Any] | None = None
    effort: Effort | None = None
    release: str = ""


async def save(storing: Storing, service: Service[S, I, O], replica: Replica[S, I, O]) -> int:
    """Store the committed state of a replica; return the position of the stored snapshot.

    A stored snapshot with a later position is kept. Older snapshots are removed, also those that
    were never completed. Raises Conflict if another replica has saved at the same time, InDoubt,
    ServerRefusal, StreamChanged or an error of the client; the previous snapshot then stays valid.
    """
    folded, committed, expected = replica.safe, replica.committed, replica.expected_sequence
    bus, connection = storing.bus, storing.bus.connection
    await provision_stream(connection, SNAPSHOTS, streams(bus.replicas)[SNAPSHOTS])
    if (stored := await _newer(storing, service.name)) >= committed > 0:
        return stored
    record = await leaders_message_at(connection, STREAM, expected) if expected else None
    newest, effort = storing.newest or Newest[S](), storing.effort or Effort()
    before = await leaders_message(connection, SNAPSHOTS, manifest_subject(service.name))
    draft = _Draft(service.name, folded, _find_base(newest, folded, before))
    chunks = chunk_subject(service.name, "*", "*")
    older = () if draft.adds else await stored_subjects(connection, chunks)
    newest.saved = None  # If this fails, some chunks may be stored, and the next one is whole.
    await draft.publish(bus, effort)
    manifest = Manifest(
        id=draft.id,
        log=bus.log,
        chunks=draft.chunks,
        bytes=draft.bytes,
        committed=committed,
        expected_sequence=expected,
        sha256=draft.digest.hexdigest(),
        time=record.time.isoformat() if record else "",
        release=storing.release[:RELEASE_MAX],
    )
    await storing.verify()
    # If two snapshots are saved at once, only one may become valid: it removes older chunks.
    condition = {"Nats-Expected-Last-Subject-Sequence": str(before.position if before else 0)}
    content = manifest.model_dump_json().encode()
    await publish(connection, manifest_subject(service.name), content, headers=condition)
    newest.saved = Saved(manifest, folded, draft.lines, draft.digest)
    for subject in older:
        await bus.publisher.publish(subject, b"", EXPIRING)
    return committed


async def _newer(storing: Storing, service: str) -> int:
    """Return the position of a stored snapshot that an older one may not replace; 0 for none."""
    if storing.replaces_newer:
        return 0
    return await stored_position(storing.bus.connection, service, storing.bus.log)


def _find_base(newest: Newest[S], folded: Folded[S], stored: Entry | None) -> Saved[S] | None:
    """Return the snapshot to add to; None if the next one must be whole.

    stored: the manifest that is stored. Another replica may have stored it.
    """
    saved = newest.saved
    if saved is None or stored is None:
        return None
    if stored.content != saved.manifest.model_dump_json().encode():
        return None
    is_short = saved.lines <= LINES_MAX * count_lines(folded)
    return saved if is_short and saved.manifest.bytes < BYTES_MAX // 2 else None


class _Draft:
    """A snapshot that is being stored.

    id, chunks, bytes, digest: as in its manifest, as far as it is stored.
    lines: how many lines it has.
    adds: whether it adds to another one; otherwise it is whole.
    """

    def __init__(self, service: str, folded: Folded[Any], base: Saved[Any] | None) -> None:
        self.id, self.chunks, self.bytes = os.urandom(6).hex(), 0, 0
        self.digest, self.lines = hashlib.sha256(), 0
        self._service, self.adds = service, base is not None
        if base is None:
            self._content = dump(folded)
        else:
            manifest = base.manifest
            self.id, self.chunks, self.bytes = manifest.id, manifest.chunks, manifest.bytes
            self.digest, self.lines = base.digest.copy(), base.lines
            self._content = dump_changes(base.folded, folded)

    async def publish(self, bus: Bus, effort: Effort) -> None:
        """Store all chunks; raise the errors of the publisher."""
        async for chunk in _cut(self._count(self._content), effort):
            self.digest.update(chunk)
            self.bytes += len(chunk)
            subject = chunk_subject(self._service, self.id, self.chunks)
            await bus.publisher.publish(subject, zlib.compress(chunk, 1))
            self.chunks += 1

    def _count(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        for line in lines:
            self.lines += bool(line)
            yield line


async def _cut(lines: Iterable[bytes], effort: Effort) -> AsyncIterator[bytes]:
    """Yield the lines in chunks, cut anywhere: a chunk must fit the bus however long a line is."""
    buffer, began = bytearray(), perf_counter()
    for line in lines:
        if line:
            buffer += line
            buffer += b"\n"
        while len(buffer) >= CHUNK_BYTES:
            effort.seconds += perf_counter() - began
            yield bytes(buffer[:CHUNK_BYTES])
            del buffer[:CHUNK_BYTES]
            began = perf_counter()
        took_s = perf_counter() - began
        if took_s >= TURN_S:
            effort.seconds += took_s
            await asyncio.sleep(took_s)
            began = perf_counter()
    effort.seconds += perf_counter() - began
    if buffer:
        yield bytes(buffer)
