"""Restoring the log from a backup, on a server without a log, or in place of the server's log."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from nodepool.client.backup import (
    CONTENT,
    SNAPSHOTS_CONTENT,
    Backup,
    Part,
    check_backup,
)
from nodepool.client.errors import ClientError, translate_errors
from nodepool.client.session import Session
from nodepool.contract.buckets import BUCKETS
from nodepool.nats.log import api, backups
from nodepool.nats.log.figures import storage_of
from nodepool.nats.log.replicas import replicas_at_work
from nodepool.nats.log.streams import SNAPSHOTS, STREAM, whole_stream_info
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import InDoubt, ServerRefusal
from nodepool.nats.wire.files import open_file

RESTORED: Final = "nodepool.restored"
"""The key of the metadata of a log that says up to which position it was to be restored."""
_REBUILT = (SNAPSHOTS, *(f"KV_{bucket}" for bucket in BUCKETS))
"""The streams that are made from the log; after a restore they would not match the new log."""
_IS_THERE = 10130
"""The API's error code if a stream can be restored, except that it already exists."""


class Content(NamedTuple):
    """A log that can be restored.

    config, state: of its stream, as the server reports them.
    chunks: the content, as the server has it in a backup.
    last: its last position.
    beside: how many bytes are stored beside it.
    """

    config: Mapping[str, object]
    state: Mapping[str, object]
    chunks: AsyncIterable[bytes]
    last: int
    beside: int = 0


async def restore(session: Session, folder: Path, *, force: bool = False) -> Backup:
    """Restore the log from a backup, on a server that has no log; the services must be stopped.

    force: deletes an existing log for good, with all streams that are made from it. The log is
        deleted only after these checks: the backup is whole, and the server accepts it.
    Raises ClientError if the backup is not whole, or if something prevents the restore.
    """
    made = await asyncio.to_thread(check_backup, folder)
    snapshots = made.snapshots
    content = Content(
        made.info["config"],
        made.info["state"],
        _chunks(folder / CONTENT),
        made.last,
        beside=_number(snapshots.info["state"], "bytes") if snapshots is not None else 0,
    )

    async def prepare(connection: Connection) -> None:
        if snapshots is not None:  # First: a log without them would be of no use.
            await _restore_snapshots(connection, snapshots, folder)

    await restore_content(session, content, force=force, prepare=prepare)
    return made


async def restore_content(
    session: Session,
    content: Content,
    *,
    force: bool,
    prepare: Callable[[Connection], Awaitable[None]],
) -> None:
    """Make the log; `prepare` is done right before that, on a server without any of the streams.

    force: as in `restore`. Raises ClientError if something prevents the restore.
    """
    config = _restorable(content.config) | {"metadata": _marked(content)}
    info = {"config": config, "state": content.state}
    size = _number(content.state, "bytes")
    with translate_errors(session.url):
        connection = session.connection
        sizes = await _sizes(connection)
        await _check_nothing_reads(connection, sizes)
        if STREAM in sizes and not (force or await _is_half(connection)):
            raise ClientError("there is a log already; --force deletes it for good")
        await _check_server(connection, info, sizes, size + content.beside)
        for stream in reversed(sizes):
            await api.request(connection, f"$JS.API.STREAM.DELETE.{stream}")
        try:
            await prepare(connection)
            state = await backups.restore(connection, STREAM, info, content.chunks, size)
        except (InDoubt, ServerRefusal) as error:
            lost = " and the one that was there is deleted" if STREAM in sizes else ""
            text = f"the log is not restored{lost}: {error}; see to that, and restore again"
            raise ClientError(text) from None
    if int(str(state["last_seq"])) != content.last:
        text = f"the server has restored up to {state['last_seq']}, not {content.last}"
        raise ClientError(f"{text}; restore again")


def _marked(content: Content) -> Mapping[str, object]:
    given = content.config.get("metadata")
    return {**(given if isinstance(given, Mapping) else {}), RESTORED: str(content.last)}


async def _is_half(connection: Connection) -> bool:
    """Return whether the log is what a server has left that was killed while it restored it."""
    info = await whole_stream_info(connection, STREAM) or {}
    config, state = info.get("config"), info.get("state")
    metadata = config.get("metadata") if isinstance(config, dict) else None
    wanted = metadata.get(RESTORED) if isinstance(metadata, dict) else None
    is_known = isinstance(wanted, str) and wanted.isdecimal()
    return is_known and _number(state, "last_seq") < int(str(wanted))


async def _restore_snapshots(connection: Connection, part: Part, folder: Path) -> None:
    info = {"config": _restorable(part.info["config"]), "state": part.info["state"]}
    chunks, size = _chunks(folder / SNAPSHOTS_CONTENT), _number(part.info["state"], "bytes")
    await backups.restore(connection, SNAPSHOTS, info, chunks, size)


async def _sizes(connection: Connection) -> dict[str, int]:
    """Return the size in bytes of the log, and of each stream that is made from it, by name."""
    sizes = {}
    for stream in (STREAM, *_REBUILT):
        info = await whole_stream_info(connection, stream)
        if info is not None:
            sizes[stream] = _number(info.get("state"), "bytes")
    return sizes


async def _check_nothing_reads(connection: Connection, sizes: Mapping[str, int]) -> None:
    replicas = await replicas_at_work(connection) if STREAM in sizes else {}
    if replicas:
        names = ", ".join(sorted({replica.service for replica in replicas}))
        raise ClientError(f"stop the services first; at work are {names}")


async def _check_server(
    connection: Connection,
    info: Mapping[str, Mapping[str, object]],
    sizes: Mapping[str, int],
    needed: int,
) -> None:
    """Raise ClientError if the server would not take the log; nothing is deleted before.

    needed: how many bytes the log has, with its snapshots.
    """
    api.check_limits(connection)
    account = await api.request(connection, "$JS.API.INFO")
    used, most = storage_of(account, 1)
    used -= sum(sizes.values())
    if most is not None and most < used + needed:
        text = f"the log needs {needed} bytes, and the account has {max(0, most - used)} left"
        raise ClientError(f"{text}; give it more storage, or restore on another server")
    if STREAM in sizes:
        # The server checks the new stream before it notices that the stream already exists.
        try:
            await api.request(connection, f"$JS.API.STREAM.RESTORE.{STREAM}", info)
        except ServerRefusal as refusal:
            if refusal.code != _IS_THERE:
                text = f"nothing is restored, and nothing deleted: {refusal}"
                raise ClientError(text) from None


async def _chunks(path: Path) -> AsyncGenerator[bytes, None]:
    with open_file(path) as file:
        while chunk := file.read(backups.CHUNK_BYTES):
            yield chunk


def _restorable(config: Mapping[str, object]) -> dict[str, object]:
    """Return the configuration for a single server; services set the number of copies later."""
    restorable = dict(config) | {"num_replicas": 1}
    restorable.pop("placement", None)
    restorable.pop("sealed", None)  # A sealed stream would accept no messages.
    restorable.pop("deny_purge", None)  # A log of an early release could never be trimmed.
    return restorable


def _number(part: object, name: str, otherwise: int = 0) -> int:
    return int(part.get(name, otherwise)) if isinstance(part, Mapping) else otherwise
