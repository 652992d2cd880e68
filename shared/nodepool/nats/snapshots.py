"""Snapshots of a service's state on the bus, so that a restart need not read the whole log.

A snapshot is any number of chunks and, stored last, a manifest. Until the manifest is stored, the
snapshot before it is the valid one.
"""

import asyncio
import hashlib
import json
import os
import zlib
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass

from nodepool.engine.folded import Folded
from nodepool.engine.proposal import committed_position
from nodepool.engine.replica import Replica
from nodepool.engine.snapshot import dump, load
from nodepool.nats.api import last_message, message_at, publish, request
from nodepool.nats.connection import Connection
from nodepool.nats.publisher import Publisher
from nodepool.nats.streams import SNAPSHOTS, STREAM
from nodepool.service import I, O, S, Service, commit_subject

CHUNK_BYTES = 256 << 10
"""The size of a chunk before compression, well below the server's payload limit after it."""
LINES_PER_TURN = 200
"""After so many lines other tasks get a turn, so that a snapshot does not delay commits."""
READS_MAX = 16
"""How many chunks are read at the same time."""


@dataclass(frozen=True, slots=True)
class _Manifest:
    """What completes a snapshot.

    id: names the chunks of this snapshot.
    chunks: how many there are.
    committed, expected_sequence: the replica's, at the moment of the snapshot.
    sha256: the digest of all chunks before compression.
    """

    id: str
    chunks: int
    committed: int
    expected_sequence: int
    sha256: str


async def save(
    connection: Connection,
    publisher: Publisher,
    service: Service[S, I, O],
    replica: Replica[S, I, O],
) -> int:
    """Stores the committed state of a replica; the number of bytes stored.

    Raises Conflict, InDoubt, ServerRefusal or an error of the client; the snapshot before this one
    then stays valid.
    """
    folded, committed, expected_sequence = (
        replica.safe,
        replica.committed,
        replica.expected_sequence,
    )
    name, id = service.name, os.urandom(6).hex()
    digest, stored, count = hashlib.sha256(), 0, 0
    before = await _manifest(connection, name)
    async for chunk in _chunks(folded):
        digest.update(chunk)
        packed = zlib.compress(chunk, 1)
        await publisher.publish(_chunk_subject(name, id, count), packed)
        stored, count = stored + len(packed), count + 1
    manifest = _Manifest(id, count, committed, expected_sequence, digest.hexdigest())
    await publish(connection, _manifest_subject(name), json.dumps(asdict(manifest)).encode())
    if before is not None:
        old = {"filter": f"np-snapshot.{name}.{before.id}.>"}
        await request(connection, f"$JS.API.STREAM.PURGE.{SNAPSHOTS}", old)
    return stored


async def restore(connection: Connection, service: Service[S, I, O]) -> Replica[S, I, O]:
    """A replica at the newest usable snapshot; at the log's start where there is none.

    A snapshot that is damaged, of another log, or of a state of another shape is not used.
    """
    manifest = await _manifest(connection, service.name)
    if manifest is None or not await _is_of_this_log(connection, service.name, manifest):
        return Replica(service)
    content = await _content(connection, service.name, manifest)
    if content is None or hashlib.sha256(content).hexdigest() != manifest.sha256:
        return Replica(service)
    try:
        folded = load(type(service.initial), content.splitlines())
    except (ValueError, TypeError, LookupError, AssertionError):
        return Replica(service)
    return Replica(service, folded, manifest.committed, manifest.expected_sequence)


def _manifest_subject(service: str) -> str:
    return f"np-snapshot.{service}.manifest"


def _chunk_subject(service: str, id: str, number: int) -> str:
    return f"np-snapshot.{service}.{id}.{number}"


async def _chunks(folded: Folded[S]) -> AsyncIterator[bytes]:
    """The lines, cut anywhere: a chunk must fit the bus however long a line is."""
    buffer = bytearray()
    for number, line in enumerate(dump(folded)):
        buffer += line
        buffer += b"\n"
        while len(buffer) >= CHUNK_BYTES:
            yield bytes(buffer[:CHUNK_BYTES])
            del buffer[:CHUNK_BYTES]
        if number % LINES_PER_TURN == LINES_PER_TURN - 1:
            await asyncio.sleep(0)
    yield bytes(buffer)


async def _manifest(connection: Connection, service: str) -> _Manifest | None:
    entry = await last_message(connection, SNAPSHOTS, _manifest_subject(service))
    if entry is None:
        return None
    try:
        fields = json.loads(entry.content)
        return _Manifest(
            id=str(fields["id"]),
            chunks=int(fields["chunks"]),
            committed=int(fields["committed"]),
            expected_sequence=int(fields["expected_sequence"]),
            sha256=str(fields["sha256"]),
        )
    except (ValueError, TypeError, LookupError):
        return None


async def _is_of_this_log(connection: Connection, service: str, manifest: _Manifest) -> bool:
    """Whether the log holds the commit record after which the snapshot was taken."""
    record = await message_at(connection, STREAM, manifest.expected_sequence)
    if record is None or record.subject != commit_subject(service):
        return False
    return committed_position(record) == manifest.committed


async def _content(connection: Connection, service: str, manifest: _Manifest) -> bytes | None:
    """All chunks in one; None where one is missing or cannot be decompressed."""
    slots = asyncio.Semaphore(READS_MAX)

    async def read(number: int) -> bytes | None:
        async with slots:
            subject = _chunk_subject(service, manifest.id, number)
            entry = await last_message(connection, SNAPSHOTS, subject)
            return None if entry is None else zlib.decompress(entry.content)

    try:
        chunks = await asyncio.gather(*(read(number) for number in range(manifest.chunks)))
    except zlib.error:
        return None
    whole = [chunk for chunk in chunks if chunk is not None]
    return b"".join(whole) if len(whole) == manifest.chunks else None
