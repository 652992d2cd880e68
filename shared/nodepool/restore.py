"""Snapshots of a service's state on the bus, so that a restart need not read the whole log.

A snapshot is many chunks and, last of all, a manifest: until that is stored the one before counts.
"""

import asyncio
import hashlib
import json
import os
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import TypeVar

from nodepool.bus import SNAPSHOTS, Connection, Publisher, ask, last_of, publish
from nodepool.replica import Replica
from nodepool.service import Service
from nodepool.snapshot import dump, load

S = TypeVar("S")
CHUNK_BYTES = 256 << 10
"""How much plain text one chunk packs; well below the server's payload limit once packed."""
LINES_A_TURN = 200
"""After so many lines the service gets a turn: a snapshot must not delay its answers."""
READS_AT_ONCE = 16


async def save(
    connection: Connection, publisher: Publisher, service: Service[S], replica: Replica[S]
) -> int:
    """Stores what the replica has settled; the number of bytes stored."""
    state, settled, fence = replica.safe, replica.settled, replica.fence
    name, id = service.name, os.urandom(6).hex()
    digest, stored, count = hashlib.sha256(), 0, 0
    before = await _manifest(connection, name)
    async for chunk in _chunks(state):
        digest.update(chunk)
        packed = zlib.compress(chunk, 1)
        await publisher.publish(f"np-snapshot.{name}.{id}.{count}", packed)
        stored, count = stored + len(packed), count + 1
    manifest = {
        "id": id,
        "chunks": count,
        "settled": settled,
        "fence": fence,
        "sha256": digest.hexdigest(),
    }
    await publish(connection, f"np-snapshot.{name}.manifest", json.dumps(manifest).encode())
    if before is not None:
        gone = f"np-snapshot.{name}.{before['id']}.>"
        await ask(connection, f"$JS.API.STREAM.PURGE.{SNAPSHOTS}", {"filter": gone})
    return stored


async def _chunks(state: object) -> AsyncIterator[bytes]:
    buffer, size = [], 0
    for number, line in enumerate(dump(state)):
        buffer.append(line)
        size += len(line) + 1
        if size >= CHUNK_BYTES:
            yield b"\n".join(buffer) + b"\n"
            buffer, size = [], 0
        if number % LINES_A_TURN == LINES_A_TURN - 1:
            await asyncio.sleep(0)
    yield b"\n".join(buffer)


async def _manifest(connection: Connection, name: str) -> dict[str, object] | None:
    entry = await last_of(connection, SNAPSHOTS, f"np-snapshot.{name}.manifest")
    if entry is None:
        return None
    found: dict[str, object] = json.loads(entry.content)
    return found


async def restored(connection: Connection, service: Service[S]) -> Replica[S]:
    """A replica at the newest usable snapshot; at the log's start where there is none.

    A snapshot that is damaged, or was taken of a state of another shape, is passed over.
    """
    manifest = await _manifest(connection, service.name)
    if manifest is None:
        return Replica(service)
    content = await _content(connection, service.name, manifest)
    if content is None or hashlib.sha256(content).hexdigest() != manifest["sha256"]:
        return Replica(service)
    try:
        state = load(type(service.initial), _lines(content))
    except (ValueError, TypeError, KeyError, AssertionError):
        return Replica(service)
    settled, fence = int(str(manifest["settled"])), int(str(manifest["fence"]))
    return Replica(service, state, settled, fence)


def _lines(content: bytes) -> Iterator[bytes]:
    return iter(content.splitlines())


async def _content(connection: Connection, name: str, manifest: dict[str, object]) -> bytes | None:
    count, id = int(str(manifest["chunks"])), manifest["id"]
    room = asyncio.Semaphore(READS_AT_ONCE)

    async def chunk(number: int) -> bytes | None:
        async with room:
            subject = f"np-snapshot.{name}.{id}.{number}"
            entry = await last_of(connection, SNAPSHOTS, subject)
            return None if entry is None else zlib.decompress(entry.content)

    try:
        found = await asyncio.gather(*(chunk(number) for number in range(count)))
    except zlib.error:
        return None
    if any(part is None for part in found):
        return None
    return b"".join(part for part in found if part is not None)
