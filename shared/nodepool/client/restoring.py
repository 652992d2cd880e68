"""Restoring the log from a backup, on a server without a log, or in place of the server's log."""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

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

_REBUILT = (SNAPSHOTS, *(f"KV_{bucket}" for bucket in BUCKETS))
"""The streams that are made from the log; after a restore they would not match the new log."""
_IS_THERE = 10130
"""The API's error code if a stream can be restored, except that it already exists."""


async def restore(session: Session, folder: Path, *, force: bool = False) -> Backup:
    """Restore the log from a backup, on a server that has no log; the services must be stopped.

    force: deletes an existing log for good, with all streams that are made from it. The log is
        deleted only after these checks: the backup is whole, and the server accepts it.
    Raises ClientError if the backup is not whole, or if something prevents the restore.
    """
    made = await asyncio.to_thread(check_backup, folder)
    info = {"config": _restorable(made.info), "state": made.info["state"]}
    snapshots = made.snapshots
    with translate_errors(session.url):
        sizes = await _sizes(session.connection)
        await _check_nothing_reads(session.connection, sizes)
        if STREAM in sizes and not force:
            raise ClientError("there is a log already; --force deletes it for good")
        needed = _number(info["state"], "bytes")
        needed += _number(snapshots.info["state"], "bytes") if snapshots is not None else 0
        await _check_server(session.connection, info, sizes, needed)
        for stream in reversed(sizes):
            await api.request(session.connection, f"$JS.API.STREAM.DELETE.{stream}")
        try:
            chunks, size = _chunks(folder / CONTENT), _number(info["state"], "bytes")
            if snapshots is not None:  # First: a log without them would be of no use.
                await _restore_snapshots(session.connection, snapshots, folder)
            state = await backups.restore(session.connection, STREAM, info, chunks, size)
        except (InDoubt, ServerRefusal) as error:
            lost = " and the one that was there is deleted" if STREAM in sizes else ""
            text = f"the log is not restored{lost}: {error}; see to that, and restore again"
            raise ClientError(text) from None
    if int(str(state["last_seq"])) != made.last:
        raise ClientError(f"the server has restored up to {state['last_seq']}, not {made.last}")
    return made


async def _restore_snapshots(connection: Connection, part: Part, folder: Path) -> None:
    info = {"config": _restorable(part.info), "state": part.info["state"]}
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


def _chunks(path: Path) -> Iterator[bytes]:
    with open_file(path) as file:
        while chunk := file.read(backups.CHUNK_BYTES):
            yield chunk


def _restorable(info: Mapping[str, Mapping[str, object]]) -> Mapping[str, object]:
    """Return the configuration for a single server; services set the number of copies later."""
    config = dict(info["config"])
    config["num_replicas"] = 1
    config.pop("placement", None)
    config.pop("sealed", None)  # A sealed stream would accept no messages.
    config.pop("deny_purge", None)  # A log of an early release could never be trimmed.
    return config


def _number(part: object, name: str, otherwise: int = 0) -> int:
    return int(part.get(name, otherwise)) if isinstance(part, dict) else otherwise
