"""Snapshots of a service's state on the bus, so that a restart does not read the whole log.

A snapshot consists of any number of chunks and a manifest, which is stored last. Until the manifest
is stored, the previous snapshot is valid. Any program may have written into the stream, so every
size is checked before that much is read.
"""

import asyncio
import hashlib
import os
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Generic, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nodepool.contract.log import LogId
from nodepool.engine.folded import Folded
from nodepool.engine.replica import Replica
from nodepool.engine.snapshot import Loader, dump
from nodepool.nats.log.api import leaders_message, leaders_message_at, publish, request
from nodepool.nats.log.publisher import Bus
from nodepool.nats.log.streams import SNAPSHOTS, STREAM, provision_stream, stream_info, streams
from nodepool.nats.wire.client import BusClient
from nodepool.service import I, O, S, Service, commit_subject

CHUNK_BYTES = 256 << 10
"""The size of a chunk before compression; compressed, it is well below the payload limit."""
BYTES_MAX = 512 << 20
"""The largest snapshot before compression: some six times the snapshot of 100,000 Nodes."""
LINE_BYTES_MAX = 16 << 20
"""The longest line of a snapshot."""
MANIFEST_BYTES_MAX = 1_000
LINES_PER_TURN = 50
"""After this many lines, saving sleeps for as long as they took, so that no commit is delayed."""
READS_MAX = 16
"""How many chunks are read at the same time."""
EXPIRING = {"Nats-TTL": "1s"}
"""What replaces a chunk that is not needed any more goes away by itself: a service has no right to
remove what others have stored."""

_Position = Annotated[int, Field(ge=0, lt=1 << 63)]


class Manifest(BaseModel):
    """The message that completes a snapshot.

    id: names the chunks of this snapshot.
    log: the identity of the log that the state was made from.
    chunks, bytes: how many chunks there are, and the bytes in all of them before compression.
    committed, expected_sequence: the values of the replica at the moment of the snapshot.
    sha256: the digest of all chunks before compression.
    time: when the log stored the commit record at `expected_sequence`, in ISO 8601; empty in a
        manifest of an early release. A log that was set back and has grown since has another time.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    id: Annotated[str, Field(pattern="^[0-9a-f]{12}$")]
    log: Annotated[str, Field(max_length=100)]
    chunks: Annotated[int, Field(ge=1)]
    bytes: Annotated[int, Field(ge=1, le=BYTES_MAX)]
    committed: _Position
    expected_sequence: _Position
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    time: Annotated[str, Field(max_length=40)] = ""


class Restored(NamedTuple, Generic[S, I, O]):
    """A replica, and why the stored snapshot was not used; empty if it was, or if there is none."""

    replica: Replica[S, I, O]
    cause: str


async def _trust() -> None:
    """Trust that the log is the log that the replica has read."""


@dataclass(frozen=True, slots=True)
class Storing:
    """Where snapshots are stored, and which log they belong to.

    verify: raises an error unless the log is the one that the replica has read.
    replaces_newer: whether to replace a stored snapshot even if it has a later position.
    """

    bus: Bus
    verify: Callable[[], Awaitable[None]] = _trust
    replaces_newer: bool = False


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
    name, id = service.name, os.urandom(6).hex()
    digest, size, positions = hashlib.sha256(), 0, list[int]()
    before = await leaders_message(connection, SNAPSHOTS, _manifest_subject(name))
    older = await _chunk_subjects(connection, name)
    async for chunk in _chunks(folded):
        digest.update(chunk)
        size += len(chunk)
        subject = _chunk_subject(name, id, len(positions))
        positions.append(await bus.publisher.publish(subject, zlib.compress(chunk, 1)))
    manifest = Manifest(
        id=id,
        log=bus.log,
        chunks=len(positions),
        bytes=size,
        committed=committed,
        expected_sequence=expected,
        sha256=digest.hexdigest(),
        time=record.time.isoformat() if record else "",
    )
    await storing.verify()
    # If two snapshots are saved at once, only one may become valid: it removes older chunks.
    condition = {"Nats-Expected-Last-Subject-Sequence": str(before.position if before else 0)}
    content = manifest.model_dump_json().encode()
    await publish(connection, _manifest_subject(name), content, headers=condition)
    for subject in older:
        await bus.publisher.publish(subject, b"", EXPIRING)
    return committed


async def _chunk_subjects(connection: BusClient, service: str) -> list[str]:
    """Return the subject of each chunk that a service has stored."""
    asked = {"subjects_filter": f"np-snapshot.{service}.*.*"}
    info = await request(connection, f"$JS.API.STREAM.INFO.{SNAPSHOTS}", asked)
    state = info["state"]
    assert isinstance(state, dict), "a stream's info has a state"
    return list(state.get("subjects") or ())


async def _newer(storing: Storing, service: str) -> int:
    """Return the position of a stored snapshot that an older one may not replace; 0 for none."""
    if storing.replaces_newer:
        return 0
    return await stored_position(storing.bus.connection, service, storing.bus.log)


async def restore(
    connection: BusClient, service: Service[S, I, O], log: LogId
) -> Restored[S, I, O]:
    """Return a replica at the newest usable snapshot; at the log's start if there is none.

    A snapshot is not used if it is damaged, of another log, or of a state of another shape.
    """
    try:
        manifest = await _manifest(connection, service.name)
        if manifest is None:
            return Restored(Replica(service, log=log), "")
        await _check_log(connection, service.name, manifest, log)
        folded = await _read_folded(connection, service, manifest)
    except ValueError as error:
        return Restored(Replica(service, log=log), str(error))
    committed, expected = manifest.committed, manifest.expected_sequence
    return Restored(Replica(service, folded, committed, expected, log=log), "")


async def stored_position(connection: BusClient, service: str, log: LogId) -> int:
    """Return the position up to which a service's stored snapshot goes; 0 if none is usable."""
    if await stream_info(connection, SNAPSHOTS) is None:
        return 0
    try:
        manifest = await _manifest(connection, service)
    except ValueError:
        return 0
    return manifest.committed if manifest is not None and manifest.log == log else 0


def _manifest_subject(service: str) -> str:
    return f"np-snapshot.{service}.manifest"


def _chunk_subject(service: str, id: str, number: int) -> str:
    return f"np-snapshot.{service}.{id}.{number}"


async def _chunks(folded: Folded[S]) -> AsyncIterator[bytes]:
    """Yield the lines in chunks, cut anywhere: a chunk must fit the bus however long a line is."""
    buffer, clock = bytearray(), asyncio.get_running_loop().time
    began = clock()
    for number, line in enumerate(dump(folded)):
        buffer += line
        buffer += b"\n"
        while len(buffer) >= CHUNK_BYTES:
            yield bytes(buffer[:CHUNK_BYTES])
            del buffer[:CHUNK_BYTES]
        if number % LINES_PER_TURN == LINES_PER_TURN - 1:
            await asyncio.sleep(clock() - began)
            began = clock()
    if buffer:
        yield bytes(buffer)


async def _manifest(connection: BusClient, service: str) -> Manifest | None:
    """Return the stored manifest, None if there is none; raise ValueError for an invalid one."""
    entry = await leaders_message(connection, SNAPSHOTS, _manifest_subject(service))
    if entry is None:
        return None
    if len(entry.content) > MANIFEST_BYTES_MAX:
        raise ValueError(f"its manifest has {len(entry.content)} bytes")
    try:
        manifest = Manifest.model_validate_json(entry.content)
    except ValidationError as error:
        fields = ", ".join(".".join(map(str, fault["loc"])) for fault in error.errors())
        raise ValueError(f"its manifest cannot be read: {fields or 'no JSON'}") from error
    if manifest.chunks != -(-manifest.bytes // CHUNK_BYTES):
        raise ValueError(f"its manifest names {manifest.chunks} chunks of {manifest.bytes} bytes")
    return manifest


async def _check_log(connection: BusClient, service: str, manifest: Manifest, log: LogId) -> None:
    """Raise ValueError unless the log holds the last commit record before the snapshot."""
    if manifest.log != log:
        raise ValueError(f"it is of the log {manifest.log!r}, and this is {log}")
    record = await leaders_message_at(connection, STREAM, manifest.expected_sequence)
    if record is None or record.subject != commit_subject(service):
        raise ValueError(f"the log has no commit of {service} at {manifest.expected_sequence}")
    if manifest.time and record.time.isoformat() != manifest.time:
        text = f"the commit of {service} at {manifest.expected_sequence} is another one"
        raise ValueError(f"{text}: the log was set back and has grown since")


async def _read_folded(
    connection: BusClient, service: Service[S, I, O], manifest: Manifest
) -> Folded[S]:
    """Return the state in a snapshot; raise ValueError if its chunks do not match the manifest."""
    loader, digest, size = Loader(type(service.initial)), hashlib.sha256(), 0
    rest = b""
    async for chunk in _stored_chunks(connection, service.name, manifest):
        digest.update(chunk)
        size += len(chunk)
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            loader.add(line)
        if len(rest) > LINE_BYTES_MAX:
            raise ValueError(f"a line has more than {LINE_BYTES_MAX} bytes")
    if rest or size != manifest.bytes or digest.hexdigest() != manifest.sha256:
        raise ValueError("its chunks are not those that were saved")
    return loader.build_folded()


async def _stored_chunks(
    connection: BusClient, service: str, manifest: Manifest
) -> AsyncIterator[bytes]:
    """Yield the chunks in order, reading some ahead; raise ValueError if a chunk is invalid."""

    async def read(number: int) -> bytes:
        subject = _chunk_subject(service, manifest.id, number)
        entry = await leaders_message(connection, SNAPSHOTS, subject)
        if entry is None:
            raise ValueError(f"chunk {number} of {manifest.chunks} is missing")
        return _unpack_chunk(entry.content, number)

    for first in range(0, manifest.chunks, READS_MAX):
        numbers = range(first, min(first + READS_MAX, manifest.chunks))
        for chunk in await asyncio.gather(*map(read, numbers)):
            yield chunk


def _unpack_chunk(content: bytes, number: int) -> bytes:
    decompression = zlib.decompressobj()
    try:
        # One byte above the limit shows that the content is too large.
        chunk = decompression.decompress(content, CHUNK_BYTES + 1)
    except zlib.error as error:
        raise ValueError(f"chunk {number} cannot be decompressed") from error
    if len(chunk) > CHUNK_BYTES or not decompression.eof:
        raise ValueError(f"chunk {number} is cut short, or has more than {CHUNK_BYTES} bytes")
    return chunk
