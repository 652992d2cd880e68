"""Snapshots of a service's state on the bus, so that a restart does not read the whole log.

A snapshot consists of any number of chunks and a manifest, which is stored last. Until the manifest
is stored, the previous snapshot is valid. The next snapshot may add chunks with what has changed
since, see `nodepool.nats.objects.saving`. Any program may have written into the stream, so every
size is checked before that much is read.
"""

import asyncio
import re
import zlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Generic, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nodepool.contract.log import LogId
from nodepool.engine.chunks import ChunkLoader
from nodepool.engine.folded import Folded
from nodepool.engine.replica import Replica
from nodepool.engine.snapshot import AnotherShape
from nodepool.nats.log.api import leaders_message, leaders_message_at
from nodepool.nats.log.streams import SNAPSHOTS, STREAM, stream_info, whole_stream_info
from nodepool.nats.wire.client import BusClient
from nodepool.service import I, O, S, Service, commit_subject

if TYPE_CHECKING:
    from hashlib import _Hash

CHUNK_BYTES = 256 << 10
"""The size of a chunk before compression; compressed, it is well below the payload limit."""
BYTES_MAX = 512 << 20
"""The largest snapshot before compression: some six times the snapshot of 100,000 Nodes."""
MANIFEST_BYTES_MAX = 1_000
RELEASE_MAX = 100
"""The most characters of a version."""
READS_MAX = 16
"""How many chunks are read at the same time."""

_Position = Annotated[int, Field(ge=0, lt=1 << 63)]


class Manifest(BaseModel):
    """The message that completes a snapshot.

    id: names the chunks of this snapshot.
    log: the identity of the log that the state was made from.
    chunks, bytes: how many chunks there are, and the bytes in all of them before compression. A
        chunk may be short if chunks with changes follow.
    committed, expected_sequence: the values of the replica at the moment of the snapshot.
    sha256: the digest of all chunks before compression.
    time: when the log stored the commit record at `expected_sequence`, in ISO 8601; empty in a
        manifest of an early release. A log that was set back and has grown since has another time.
    release: the version of the program that has saved it; empty in a manifest of an early release.
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
    release: Annotated[str, Field(max_length=RELEASE_MAX)] = ""


class Saved(NamedTuple, Generic[S]):
    """A stored snapshot, with all that is needed to add to it.

    folded: what it makes.
    lines: how many lines it has; more than `folded` needs once some have changed others.
    digest: of all its chunks.
    """

    manifest: Manifest
    folded: Folded[S]
    lines: int
    digest: "_Hash"


@dataclass(slots=True)
class Newest(Generic[S]):
    """The newest snapshot of a service, if a session has read or saved it; None if it has not."""

    saved: Saved[S] | None = None


class Restored(NamedTuple, Generic[S, I, O]):
    """A replica, and what became of the stored snapshot.

    cause: why the snapshot was not used; empty if it was, or if there is none.
    notes: what the conversion of a snapshot of another shape has changed; None if it has its shape.
    """

    replica: Replica[S, I, O]
    cause: str
    notes: Sequence[str] | None = None


async def restore(
    connection: BusClient,
    service: Service[S, I, O],
    log: LogId,
    newest: Newest[S] | None = None,
    release: str = "",
) -> Restored[S, I, O]:
    """Return a replica at the newest usable snapshot; at the log's start if there is none.

    newest: where to note the snapshot that is used, if the next one may add to it.
    release: the version of this program.

    A snapshot is not used if it is damaged, of another log, or of a state of another shape. Only
    if the log has lost its head, which then has to be in the snapshot, is another shape converted.
    """
    notes: Sequence[str] | None = None
    try:
        manifest = await stored_manifest(connection, service.name)
        if manifest is None:
            return Restored(Replica(service, log=log), "")
        await _check_log(connection, service.name, manifest, log)
        try:
            saved = await _read_saved(connection, service, manifest)
        except AnotherShape:
            if await _is_log_whole(connection):
                raise
            saved, notes = await _convert_saved(connection, service, manifest, release)
    except ValueError as error:
        return Restored(Replica(service, log=log), str(error))
    if newest is not None and notes is None:
        newest.saved = saved
    committed, expected = manifest.committed, manifest.expected_sequence
    return Restored(Replica(service, saved.folded, committed, expected, log=log), "", notes)


async def _is_log_whole(connection: BusClient) -> bool:
    info = await stream_info(connection, STREAM)
    return info is None or info.first <= 1


async def _convert_saved(
    connection: BusClient, service: Service[S, I, O], manifest: Manifest, release: str
) -> tuple[Saved[S], Sequence[str] | None]:
    """Return a snapshot of another shape as one of this release, and what that has changed.

    Raises ValueError if that is not safe. The fields of a newer release would be dropped.
    """
    numbers = [re.match(r"(\d+)\.(\d+)\.(\d+)", each) for each in (manifest.release, release)]
    saved_by, own = ([*map(int, found.groups())] if found else None for found in numbers)
    if saved_by and own and saved_by > own:
        text = f"{_of(manifest)} has saved it, and this is {release}: it is of another shape"
        raise ValueError(f"{text}; go on with that one, or restore the backup from before it")
    loader = ChunkLoader(type(service.initial), converts=True)
    try:
        saved = await _read_saved(connection, service, manifest, loader)
    except AnotherShape as error:
        raise ValueError(f"{error}; go on with {_of(manifest)}, which has saved it") from error
    return saved, loader.notes


def _of(manifest: Manifest) -> str:
    return f"release {manifest.release}" if manifest.release else "the earlier release"


async def stored_position(connection: BusClient, service: str, log: LogId) -> int:
    """Return the position up to which a service's stored snapshot goes; 0 if none is usable."""
    if not await stored_subjects(connection, manifest_subject(service)):
        return 0
    try:
        manifest = await stored_manifest(connection, service)
    except ValueError:
        return 0
    return manifest.committed if manifest is not None and manifest.log == log else 0


async def stored_subjects(connection: BusClient, filter: str) -> Sequence[str]:
    """Return the subjects of stored manifests and chunks; none if there is no stream.

    The server counts a request for a missing message as an error. This request is no error.
    """
    info = await whole_stream_info(connection, SNAPSHOTS, filter)
    state = info["state"] if info is not None else {}
    assert isinstance(state, dict), "a stream's info has a state"
    return list(state.get("subjects") or ())


def manifest_subject(service: str) -> str:
    """Return the subject of the manifest of a service's snapshot."""
    return f"np-snapshot.{service}.manifest"


def chunk_subject(service: str, id: str, number: int | str) -> str:
    """Return the subject of a chunk; of all chunks with `*` for `id` and `number`."""
    return f"np-snapshot.{service}.{id}.{number}"


async def stored_manifest(connection: BusClient, service: str) -> Manifest | None:
    """Return the stored manifest, None if there is none; raise ValueError for an invalid one."""
    entry = await leaders_message(connection, SNAPSHOTS, manifest_subject(service))
    if entry is None:
        return None
    if len(entry.content) > MANIFEST_BYTES_MAX:
        raise ValueError(f"its manifest has {len(entry.content)} bytes")
    try:
        manifest = Manifest.model_validate_json(entry.content)
    except ValidationError as error:
        fields = ", ".join(".".join(map(str, fault["loc"])) for fault in error.errors())
        raise ValueError(f"its manifest cannot be read: {fields or 'no JSON'}") from error
    if not -(-manifest.bytes // CHUNK_BYTES) <= manifest.chunks <= manifest.bytes:
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


async def _read_saved(
    connection: BusClient,
    service: Service[S, I, O],
    manifest: Manifest,
    loader: ChunkLoader[S] | None = None,
) -> Saved[S]:
    """Return a snapshot and its state; raise ValueError if its chunks do not match the manifest.

    loader: reads them; raises AnotherShape by default if they are not those of this release.
    """
    loader = loader or ChunkLoader(type(service.initial))
    async for chunk in _stored_chunks(connection, service.name, manifest):
        loader.add(chunk)
        if loader.bytes > manifest.bytes:
            break
    folded = loader.build(manifest.bytes, manifest.sha256)
    return Saved(manifest, folded, loader.lines, loader.digest)


async def _stored_chunks(
    connection: BusClient, service: str, manifest: Manifest
) -> AsyncIterator[bytes]:
    """Yield the chunks in order, reading some ahead; raise ValueError if a chunk is invalid."""

    async def read(number: int) -> bytes:
        subject = chunk_subject(service, manifest.id, number)
        entry = await leaders_message(connection, SNAPSHOTS, subject)
        if entry is None:
            raise ValueError(f"chunk {number} of {manifest.chunks} is missing")
        return unpack_chunk(entry.content, number)

    for first in range(0, manifest.chunks, READS_MAX):
        numbers = range(first, min(first + READS_MAX, manifest.chunks))
        for chunk in await asyncio.gather(*map(read, numbers)):
            yield chunk


def unpack_chunk(content: bytes, number: int) -> bytes:
    """Return a chunk before compression; raise ValueError if it is damaged or too large."""
    decompression = zlib.decompressobj()
    try:
        # One byte above the limit shows that the content is too large.
        chunk = decompression.decompress(content, CHUNK_BYTES + 1)
    except zlib.error as error:
        raise ValueError(f"chunk {number} cannot be decompressed") from error
    if len(chunk) > CHUNK_BYTES or not decompression.eof:
        raise ValueError(f"chunk {number} is cut short, or has more than {CHUNK_BYTES} bytes")
    return chunk
