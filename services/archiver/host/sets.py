"""Copies the snapshots of all services into the archive, as one set."""

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Final

from archiver.host.patience import Patience
from nodepool.archive.manifests import Object, Snapshot, SnapshotSet, digest_of, read_document
from nodepool.archive.names import moment_of, part_name, period_of, set_name
from nodepool.archive.storage.archive import Archive
from nodepool.contract.log import SNAPSHOTS
from nodepool.contract.services import EVERY
from nodepool.nats.log.api import leaders_message
from nodepool.nats.log.streams import STREAM, stream_info
from nodepool.nats.objects.snapshots import (
    Manifest,
    chunk_subject,
    manifest_subject,
    stored_manifest,
    stored_subjects,
    unpack_chunk,
)
from nodepool.nats.wire.connection import Connection

LOOK_S: Final = 30.0
"""How often it is checked whether a set is due, in seconds."""
WAIT_S: Final = 1.0
"""The pause in seconds between two checks whether the segments have reached a set, and between two
attempts to copy a snapshot."""
PART_CHUNKS: Final = 64
"""How many chunks a part has; together they have at most 16 MB."""
ATTEMPTS: Final = 5
"""How often a snapshot is copied that its service replaces meanwhile."""


class SnapshotSets:
    """Makes a set at the first start, in each period, and whenever the log needs one to be trimmed.

    A set is of use with the messages that follow its snapshots, so its manifest is stored once the
    segments go as far as the newest of its snapshots.

    due: set when another set is due before the next period.
    made: called with the time of the newest set.
    """

    def __init__(
        self,
        connection: Connection,
        archive: Archive,
        hours: int,
        due: asyncio.Event,
        patience: Patience,
        made: Callable[[datetime], None],
    ) -> None:
        self._connection, self._archive = connection, archive
        self._hours, self._due, self._patience, self._made = hours, due, patience, made
        self._period = ""

    async def run(self) -> None:
        """Make the sets that are due until the task is cancelled; raise the errors of the bus."""
        while True:
            info = await stream_info(self._connection, STREAM)
            if info is not None and info.log == self._archive.log:
                period = period_of(info.time, self._hours)
                if period != self._period and await self._make(period, info.time):
                    self._period = period
                if self._due.is_set():
                    await self._make(moment_of(info.time), info.time)
            self._due.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._due.wait()

    async def _make(self, period: str, now: datetime) -> bool:
        """Make the set of a period unless there is one; return False if there is no snapshot."""
        insist, store = self._patience.insist, self._archive.store
        name = set_name(period)
        content = await insist(lambda: store.get(name))
        if content is None:
            new = await self._copy_all(period, now)
            if not new.snapshots:  # The log is new, and its segments say all.
                return False
            while self._archive.head.last < new.newest:  # noqa: ASYNC110  # A recorder adds to it.
                await asyncio.sleep(WAIT_S)
            content = new.to_bytes()
            await insist(lambda: store.create(name, new.to_bytes()))
        with suppress(ValueError):  # Reading the whole archive back finds a damaged set.
            self._made(datetime.fromisoformat(read_document(SnapshotSet, content).made))
        return True

    async def _copy_all(self, period: str, now: datetime) -> SnapshotSet:
        # The server counts a request for a missing message as an error, and this request as none.
        present = await stored_subjects(self._connection, manifest_subject("*"))
        snapshots = dict[str, Snapshot]()
        for service in EVERY:
            if manifest_subject(service) in present:
                snapshot = await self._copy(period, service)
                if snapshot is not None:
                    snapshots[service] = snapshot
        return SnapshotSet(log=self._archive.log, made=now.isoformat(), snapshots=snapshots)

    async def _copy(self, period: str, service: str) -> Snapshot | None:
        """Copy the newest snapshot of a service; return None if there is none that can be used."""
        for _ in range(ATTEMPTS):
            try:
                manifest = await stored_manifest(self._connection, service)
                if manifest is None or manifest.log != self._archive.log:
                    return None
                return await self._copy_parts(period, service, manifest)
            except ValueError:  # The service has saved another one meanwhile.
                await asyncio.sleep(WAIT_S)
        return None

    async def _copy_parts(self, period: str, service: str, manifest: Manifest) -> Snapshot:
        """Copy a snapshot in parts; raise ValueError if a chunk of it is gone or damaged."""
        digest, parts = hashlib.sha256(), list[Object]()
        for first in range(0, manifest.chunks, PART_CHUNKS):
            chunks = list[bytes]()
            for number in range(first, min(first + PART_CHUNKS, manifest.chunks)):
                subject = chunk_subject(service, manifest.id, number)
                entry = await leaders_message(self._connection, SNAPSHOTS, subject)
                if entry is None:
                    raise ValueError(f"{subject} is gone")
                digest.update(unpack_chunk(entry.content, number))
                chunks.append(entry.content)
            parts.append(await self._put(period, service, len(parts), b"".join(chunks)))
        if digest.hexdigest() != manifest.sha256:
            raise ValueError(f"the chunks of {service} are not those of its manifest")
        return Snapshot(
            committed=manifest.committed,
            expected_sequence=manifest.expected_sequence,
            bytes=manifest.bytes,
            sha256=manifest.sha256,
            time=manifest.time,
            parts=tuple(parts),
        )

    async def _put(self, period: str, service: str, number: int, content: bytes) -> Object:
        sha256 = digest_of(content)
        name = part_name(period, service, number, sha256)
        part = Object(name=name, bytes=len(content), sha256=sha256)
        return await self._patience.insist(lambda: self._archive.put(part, content))
