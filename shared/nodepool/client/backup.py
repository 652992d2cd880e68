"""Backups of the log: a backup is a folder, which is either complete or does not exist.

A log that was trimmed lacks the messages with which services began, so the backup of such a log
also holds their snapshots. They are copied first: so they never go further than the log, and the
floor of the log keeps it from being trimmed beyond them.
"""

import asyncio
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from nodepool.client.errors import ClientError, translate_errors
from nodepool.client.session import Session
from nodepool.nats.log import backups
from nodepool.nats.log.streams import SNAPSHOTS, STREAM, stream_info, whole_stream_info
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import InDoubt
from nodepool.nats.wire.files import open_file, read_given

FORMAT = 1
WITH_SNAPSHOTS = 2
"""The format of a backup that holds snapshots, which an earlier release would not restore."""
MANIFEST = "manifest.json"
CONTENT = "log.snapshot"
SNAPSHOTS_CONTENT = "snapshots.snapshot"
NUMBER_END = 1 << 63
"""The server counts with signed 64-bit numbers."""
MANIFEST_BYTES_MAX = 1 << 20
"""A larger description is damaged; the description of a real log has about a kilobyte."""


@dataclass(frozen=True, slots=True)
class Part:
    """The content of a stream as the server gives it out.

    bytes, sha256: its size and its checksum.
    info: the `config` and `state` of the stream.
    """

    bytes: int
    sha256: str
    info: Mapping[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup holds.

    made: when the backup was made.
    last: the position of the newest message in the backup.
    messages: the number of messages.
    bytes: the size of its content on disk.
    sha256: the checksum of the content.
    info: the stream's `config` and `state`, as the server reports them.
    snapshots: the snapshots of the services, if the log was trimmed.
    """

    made: str
    last: int
    messages: int
    bytes: int
    sha256: str
    info: Mapping[str, Mapping[str, object]]
    snapshots: Part | None = None


async def back_up(session: Session, folder: Path) -> Backup:
    """Store the current log in a new folder, while the services keep running.

    Raises ClientError if the folder exists or cannot be written. The folder appears once all of it
    is on disk, so a folder that exists is whole.
    """
    # No thread begins or finishes the folder: it would continue during the cleanup below.
    part = _begin(folder)
    try:
        made = await _write(session, part)
        _finish(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return made


async def _write(session: Session, part: Path) -> Backup:
    """Write the log and its description into the unfinished folder."""
    with translate_errors(session.url):
        now = await stream_info(session.connection, STREAM)
    snapshots = None
    if now is not None and now.first > 1:
        snapshots = await _write_stream(session, SNAPSHOTS, part / SNAPSHOTS_CONTENT)
    log = await _write_stream(session, STREAM, part / CONTENT)
    state = log.info["state"]
    if int(str(state["first_seq"])) > 1 and snapshots is None:
        raise ClientError("the backup is not made: the log was trimmed meanwhile; make another one")
    made = Backup(
        datetime.now(UTC).isoformat(timespec="seconds"),
        int(str(state["last_seq"])),
        int(str(state["messages"])),
        log.bytes,
        log.sha256,
        log.info,
        snapshots,
    )
    _write_manifest(part, made)
    return made


async def _write_stream(session: Session, stream: str, path: Path) -> Part:
    """Write the content of a stream into a file."""
    digest, size = hashlib.sha256(), 0
    with _prefix_file_errors("the backup is not made"), path.open("wb") as file:

        async def write(chunk: bytes) -> None:
            nonlocal size
            digest.update(chunk)
            size += len(chunk)
            with _prefix_file_errors("the backup is not made"):
                await asyncio.to_thread(file.write, chunk)

        with translate_errors(session.url):
            info = await _snapshot(session.connection, stream, write)
        file.flush()
        os.fsync(file.fileno())
    return Part(size, digest.hexdigest(), _parts(info))


async def _snapshot(
    connection: Connection, stream: str, write: backups.Write
) -> Mapping[str, object]:
    try:
        info = await whole_stream_info(connection, stream)
        size = int(str(_parts(info)["state"]["bytes"])) if info is not None else 0
        return await backups.snapshot(connection, stream, size, write)
    except InDoubt as error:
        raise ClientError(f"the backup is not made: {error}") from None


def check_backup(folder: Path) -> Backup:
    """Return the backup in a folder; raise ClientError if the backup is not whole."""
    made = _read_manifest(folder)
    _check_content(folder / CONTENT, made)
    if made.snapshots is not None:
        _check_content(folder / SNAPSHOTS_CONTENT, made.snapshots)
    return made


def _check_content(path: Path, made: Backup | Part) -> None:
    try:
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size != made.bytes:
                text = f"{path} has {size} bytes instead of {made.bytes}; restore another backup"
                raise ClientError(text)
            digest = hashlib.file_digest(file, "sha256")
    except OSError as error:
        raise ClientError(f"cannot read {path}: {error.strerror}") from None
    if digest.hexdigest() != made.sha256:
        raise ClientError(f"{path} is damaged: its checksum differs; restore another backup")


def _read_manifest(folder: Path) -> Backup:
    """Return the description in a folder, which anybody may have written; raise ClientError."""
    # This parser limits how deep values are nested. It is imported here because it loads slowly.
    from pydantic import TypeAdapter, ValidationError
    from pydantic_core import from_json, to_json

    path = folder / MANIFEST
    try:
        text = read_given(path, MANIFEST_BYTES_MAX)
        if len(text) > MANIFEST_BYTES_MAX:
            raise ValueError("too large")
        content = from_json(text, allow_inf_nan=False)
        if content.pop("format") not in (FORMAT, WITH_SNAPSHOTS):
            raise ClientError(f"{folder} is of a newer release; restore it with that one")
        described = {**content, "info": _parts(content["info"])}
        if content.get("snapshots") is not None:
            described["snapshots"] = _described(content["snapshots"])
        made = TypeAdapter(Backup).validate_json(to_json(described), strict=True)
        datetime.fromisoformat(made.made)
        for name in ("bytes", "last_seq"):
            if not 0 <= int(str(made.info["state"][name])) < NUMBER_END:
                raise ValueError(f"{name} is out of range")
    except OSError as error:
        raise ClientError(f"{folder} is no backup: {error.strerror}: {error.filename}") from None
    except (ValidationError, ValueError, TypeError, KeyError, AttributeError):
        raise ClientError(f"{path} is damaged; restore another backup") from None
    return made


def _described(part: Mapping[str, object]) -> Mapping[str, object]:
    info = part["info"]
    if not isinstance(info, Mapping):
        raise TypeError("no info of a stream")
    return {**part, "info": _parts(info)}


def _parts(info: Mapping[str, object]) -> Mapping[str, Mapping[str, object]]:
    """Return the configuration and state of a stream; raise TypeError if the info lacks them."""
    parts = {name: part for name in ("config", "state") if isinstance(part := info[name], Mapping)}
    if len(parts) < 2:
        raise TypeError("no info of a stream")
    return parts


def _begin(folder: Path) -> Path:
    """Create a temporary folder for the unfinished backup, in the parent of the final folder."""
    if folder.exists():
        raise ClientError(f"{folder} exists already; name a folder that does not")
    with _prefix_file_errors(f"cannot write in {folder.parent}"):
        return Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))


def _write_manifest(part: Path, made: Backup) -> None:
    content = asdict(made)
    if made.snapshots is None:
        del content["snapshots"]
    content["format"] = FORMAT if made.snapshots is None else WITH_SNAPSHOTS
    with (
        _prefix_file_errors("the backup is not made"),
        (part / MANIFEST).open("w", encoding="utf-8") as file,
    ):
        json.dump(content, file, indent=2)
        file.flush()
        os.fsync(file.fileno())


def _finish(part: Path, folder: Path) -> None:
    with _prefix_file_errors("the backup is not made"):
        _sync(part)
        part.rename(folder)
        _sync(folder.parent)


@contextmanager
def _prefix_file_errors(text: str) -> Iterator[None]:
    """Turn an error of a file into a ClientError that begins with this text."""
    try:
        yield
    except OSError as error:
        raise ClientError(f"{text}: {error.strerror}") from None


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
