"""Snapshots of a service's state on the bus, so that a restart need not read the whole log.

A snapshot is many chunks and, last of all, a manifest: until that is stored the one before counts.
"""

import asyncio
import hashlib
import json
import os
import zlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass
from typing import TypeVar

from nodepool.contract.log import Entry
from nodepool.engine.replica import Replica, committed_position
from nodepool.engine.snapshot import dump, load
from nodepool.nats.bus import (
    ANSWER_S,
    EPOCH,
    SNAPSHOTS,
    STREAM,
    Connection,
    Publisher,
    ask,
    last_of,
    publish,
)
from nodepool.service import Service, commit_subject

S = TypeVar("S")
CHUNK_BYTES = 256 << 10
"""How much plain text one chunk packs; well below the server's payload limit once packed."""
LINES_A_TURN = 200
"""After so many lines the service gets a turn: a snapshot must not delay its outputs."""
READS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class _Manifest:
    """What ends a snapshot: how many chunks it has, their digest, and where in the log it is."""

    id: str
    chunks: int
    committed: int
    expected_sequence: int
    sha256: str


async def save(
    connection: Connection, publisher: Publisher, service: Service[S], replica: Replica[S]
) -> int:
    """Stores what the replica has committed; the number of bytes stored."""
    state, committed, expected_sequence = replica.safe, replica.committed, replica.expected_sequence
    name, id = service.name, os.urandom(6).hex()
    digest, stored, count = hashlib.sha256(), 0, 0
    before = await _manifest(connection, name)
    async for chunk in _chunks(state):
        digest.update(chunk)
        packed = zlib.compress(chunk, 1)
        await publisher.publish(f"np-snapshot.{name}.{id}.{count}", packed)
        stored, count = stored + len(packed), count + 1
    manifest = _Manifest(id, count, committed, expected_sequence, digest.hexdigest())
    content = json.dumps(asdict(manifest)).encode()
    await publish(connection, f"np-snapshot.{name}.manifest", content)
    if before is not None:
        gone = f"np-snapshot.{name}.{before.id}.>"
        await ask(connection, f"$JS.API.STREAM.PURGE.{SNAPSHOTS}", {"filter": gone})
    return stored


async def _chunks(state: object) -> AsyncIterator[bytes]:
    """The lines of a state, cut anywhere: a chunk must fit the bus however long a line is."""
    buffer = bytearray()
    for number, line in enumerate(dump(state)):
        buffer += line
        buffer += b"\n"
        while len(buffer) >= CHUNK_BYTES:
            yield bytes(buffer[:CHUNK_BYTES])
            del buffer[:CHUNK_BYTES]
        if number % LINES_A_TURN == LINES_A_TURN - 1:
            await asyncio.sleep(0)
    yield bytes(buffer)


async def _manifest(connection: Connection, name: str) -> _Manifest | None:
    entry = await last_of(connection, SNAPSHOTS, f"np-snapshot.{name}.manifest")
    if entry is None:
        return None
    try:
        found = json.loads(entry.content)
        counts = (int(found["chunks"]), int(found["committed"]), int(found["expected_sequence"]))
        return _Manifest(str(found["id"]), *counts, str(found["sha256"]))
    except (ValueError, TypeError, LookupError):
        return None


async def restored(connection: Connection, service: Service[S]) -> Replica[S]:
    """A replica at the newest usable snapshot; at the log's start where there is none.

    A snapshot that is damaged, of another log, or of a state of another shape is passed over.
    """
    manifest = await _manifest(connection, service.name)
    if manifest is None or not await _is_of_this_log(connection, service.name, manifest):
        return Replica(service)
    content = await _content(connection, service.name, manifest)
    if content is None or hashlib.sha256(content).hexdigest() != manifest.sha256:
        return Replica(service)
    try:
        state = load(type(service.initial), _lines(content))
    except (ValueError, TypeError, LookupError, AssertionError):
        return Replica(service)
    return Replica(service, state, manifest.committed, manifest.expected_sequence)


async def _is_of_this_log(connection: Connection, name: str, manifest: _Manifest) -> bool:
    """Whether the log holds the commit after which the snapshot was taken."""
    body = json.dumps({"seq": manifest.expected_sequence}).encode()
    record = await connection.request(f"$JS.API.DIRECT.GET.{STREAM}", body, timeout=ANSWER_S)
    subject = commit_subject(name)
    if (record.headers or {}).get("Nats-Subject") != subject:
        return False
    entry = Entry(manifest.expected_sequence, EPOCH, subject, record.data, {})
    return committed_position(entry) == manifest.committed


def _lines(content: bytes) -> Iterator[bytes]:
    return iter(content.splitlines())


async def _content(connection: Connection, name: str, manifest: _Manifest) -> bytes | None:
    room = asyncio.Semaphore(READS_AT_ONCE)

    async def chunk(number: int) -> bytes | None:
        async with room:
            subject = f"np-snapshot.{name}.{manifest.id}.{number}"
            entry = await last_of(connection, SNAPSHOTS, subject)
            return None if entry is None else zlib.decompress(entry.content)

    try:
        found = await asyncio.gather(*(chunk(number) for number in range(manifest.chunks)))
    except zlib.error:
        return None
    if any(part is None for part in found):
        return None
    return b"".join(part for part in found if part is not None)
