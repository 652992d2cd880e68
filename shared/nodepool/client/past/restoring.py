"""Restoring the log from an archive, after the loss of every disk, or as it was at a moment."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from importlib import import_module
from itertools import takewhile
from typing import NamedTuple

from nodepool.archive.manifests import SnapshotSet
from nodepool.archive.storage.records import Records
from nodepool.archive.storage.store import Store
from nodepool.client.errors import ClientError, translate_archive_errors
from nodepool.client.past.session import Moment
from nodepool.client.restoring import Content, restore_content
from nodepool.client.session import Session
from nodepool.contract.log import Entry
from nodepool.contract.services import EVERY, SERVICES
from nodepool.contract.subjects import is_output
from nodepool.engine.replica import BATCH_MAX
from nodepool.nats.log.packing import pack, state_of, stored_bytes
from nodepool.nats.log.streams import IDENTITY, STREAM, streams
from nodepool.nats.objects.copying import store_copy
from nodepool.nats.objects.snapshots import Manifest
from nodepool.nats.wire.connection import Connection


class Restored(NamedTuple):
    """What was restored.

    first, last: the positions of the first and the last message.
    time: when the last message was stored.
    is_branch: whether the archive goes on after that.
    """

    first: int
    last: int
    time: datetime
    is_branch: bool


async def restore_archive(
    session: Session, archive: str, *, at: Moment | None, days: int, force: bool
) -> Restored:
    """Make the log from an archive, with a snapshot of each service if it needs them.

    at: the position or the time up to which the log is restored; None for the end of the archive.
    days: how many days before that are restored at least.
    force: as in `restore`.
    Raises ClientError if the archive is not whole, or if something prevents the restore.
    """
    with translate_archive_errors():
        store = Store(archive)
        try:
            records = await Records.open(store)
            return await _restore(session, records, at, days, force=force)
        finally:
            await store.close()


async def _restore(
    session: Session, records: Records, at: Moment | None, days: int, *, force: bool
) -> Restored:
    last = await _last(records, at)
    time = await records.time_of(last)
    snapshots = await _usable(records, last)
    first = await _first(records, snapshots, time - timedelta(days=days))
    # Everything is read once before anything is deleted: the archive may be damaged.
    bytes = 0
    async with aclosing(_messages(records, first, last)) as batches:
        async for entries in batches:
            bytes += sum(map(stored_bytes, entries))
    state = state_of(first, last, bytes)
    config = {**streams()[STREAM], "metadata": {IDENTITY: records.log}}

    async def prepare(connection: Connection) -> None:
        if snapshots is not None:
            await _copy(connection, records, snapshots)

    async with aclosing(_messages(records, first, last)) as batches:
        content = Content(config, state, pack(state, batches), last)
        await restore_content(session, content, force=force, prepare=prepare)
    return Restored(first, last, time, is_branch=last < records.last)


async def _last(records: Records, at: Moment | None) -> int:
    """Return the last position to restore: never one inside a commit of a service.

    Others would have heard what the service does not know that it has said, and says again.
    """
    if at is None:
        last = records.last
    else:
        last = at if isinstance(at, int) else await records.position_before(at)
    if not records.first <= last <= records.last:
        known = f"positions {records.first} to {records.last}"
        raise ClientError(f"archive {records.store}: it has {known}, and not {at}")
    last = await _end_of_commit(records, last)
    if last < records.first:
        raise ClientError(f"archive {records.store}: it has only a part of a commit")
    return last


async def _end_of_commit(records: Records, last: int) -> int:
    """Return the last position up to `last` after which no service has said half of a commit.

    The outputs of a service are stored together with the commit record behind them. So what it has
    said at the end, without a record, is the beginning of a commit.
    """
    async with aclosing(_messages(records, last - BATCH_MAX, last)) as batches:
        tail = [entry async for entries in batches for entry in entries]
    said = takewhile(lambda entry: is_output(entry.subject), reversed(tail))
    # Nobody hears dead letters, so half of a commit that has no other message does no harm.
    events = [entry.position for entry in said if not entry.subject.startswith("np.dead.")]
    return events[-1] - 1 if events else last


def _all(_subject: str) -> bool:
    return True


def _messages(records: Records, first: int, last: int) -> AsyncGenerator[Sequence[Entry], None]:
    return records.entries(first, last, _all)


async def _usable(records: Records, last: int) -> SnapshotSet | None:
    """Return the newest set with a snapshot of each service that this release can read."""
    found = await records.newest_set(last, SERVICES)
    if found is None:
        return None
    try:
        for name, snapshot in found.snapshots.items():
            if name in EVERY:
                await records.load(import_module(f"{name}.decide").SERVICE, snapshot)
    except ValueError:  # It is of another release; services read the log from its start.
        return None
    return found


async def _first(records: Records, snapshots: SnapshotSet | None, time: datetime) -> int:
    """Return the first position to restore: services go on from their snapshots, and their commits.

    Raises ClientError if services need the start of the log, and the archive does not have it.
    """
    if snapshots is None:
        if records.first > 1:
            text = f"it begins at {records.first}, and has no snapshots that can be used"
            raise ClientError(f"archive {records.store}: {text}; name a later moment")
        return 1
    own = [each for name, each in snapshots.snapshots.items() if name in EVERY]
    needed = [min(each.committed + 1, each.expected_sequence) for each in own]
    return max(records.first, min(*needed, await records.position_before(time) + 1))


async def _copy(connection: Connection, records: Records, snapshots: SnapshotSet) -> None:
    for name, snapshot in snapshots.snapshots.items():
        manifest = Manifest(
            id=snapshot.sha256[:12],
            log=records.log,
            chunks=1,
            bytes=snapshot.bytes,
            committed=snapshot.committed,
            expected_sequence=snapshot.expected_sequence,
            sha256=snapshot.sha256,
            time=snapshot.time,
        )
        async with aclosing(records.chunks(snapshot)) as chunks:
            await store_copy(connection, name, manifest, chunks)
