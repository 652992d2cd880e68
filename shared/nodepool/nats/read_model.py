"""The read model on the bus: objects written so that an older one never replaces a newer one."""

import asyncio
from collections.abc import Iterable
from typing import Generic, NamedTuple

from nats.errors import Error as NatsError
from pydantic_core import to_json

from nodepool.contract.log import Entry
from nodepool.nats.api import REPLY_TIMEOUT_S, last_message
from nodepool.nats.connection import Connection
from nodepool.nats.errors import Conflict, InDoubt, ServerRefusal
from nodepool.nats.publisher import Publisher
from nodepool.nats.reader import Reader
from nodepool.nats.stored_objects import (
    TOMBSTONE_S,
    VERSION,
    ObjectKey,
    StoredObject,
    StoredObjects,
    key_of_object,
    stored_object,
    subject_of_object,
)
from nodepool.service import I, Projection, S

WRITES_MAX = 512
"""How many objects are written at the same time."""
RETRY_S = 0.1
"""The pause after a write that failed."""


class _Write(NamedTuple):
    """A write in flight; `stored` will be its sequence in the bucket."""

    key: ObjectKey
    subject: str
    written: StoredObject
    stored: "asyncio.Future[int]"


class ReadModelWriter(Generic[S, I]):
    """Writes the objects of a projection that have changed, each in its newest version only.

    Every write is conditional on the sequence of the one that it replaces, so two writers cannot
    undo each other. What lies in the buckets is read before the first write, and again whenever it
    may have changed unseen. Memory is bounded by the objects there are, see `StoredObjects`.
    """

    def __init__(
        self, connection: Connection, publisher: Publisher, projection: Projection[S, I]
    ) -> None:
        self._connection = connection
        self._publisher = publisher
        self._projection = projection
        self._stored = StoredObjects()
        self._changed: dict[ObjectKey, None] = {}
        self._wake = asyncio.Event()
        self._state: S | None = None
        self._committed = 0
        self._is_current = False
        self._suspended = True

    @property
    def suspended(self) -> bool:
        """Whether writing waits for the next `update`."""
        return self._suspended

    @property
    def is_current(self) -> bool:
        """Whether what lies in the buckets is known; if not it is read before the next write."""
        return self._is_current

    @property
    def unwritten(self) -> int:
        """How many objects have changed and are not written yet."""
        return len(self._changed)

    def update(self, state: S, messages: Iterable[I], committed: int) -> None:
        """Takes the newest state, and writes what these messages may have changed in it soon.

        `committed` is the position up to which the state is committed: the version of a deletion.
        """
        for message in messages:
            for key in self._projection.touched(state, message):
                self._changed[key] = None
        self._state, self._committed, self._suspended = state, committed, False
        if self._changed:
            self._wake.set()

    def suspend(self) -> None:
        """Writes nothing until the next `update`, because another replica has a newer state."""
        self._suspended = True

    def invalidate(self) -> None:
        """Reads what lies in the buckets again, compares it with the state, writes what differs."""
        self._is_current = False
        self._wake.set()

    async def run(self) -> None:
        """Writes for ever; an error of the bus only delays it."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.flush()
            except (InDoubt, ServerRefusal, NatsError, OSError):
                self._is_current = False
                await asyncio.sleep(RETRY_S)
                self._wake.set()

    async def flush(self) -> None:
        """Writes every object that has changed so far; returns early when suspended.

        Raises InDoubt, ServerRefusal or an error of the client; then `invalidate` and try again.
        """
        while not self._suspended:
            if not self._is_current:
                await self._compare()
            while self._changed:
                await self._write_some()
            if self._is_current:
                return

    async def _compare(self) -> None:
        """Reads the buckets, and marks every object that differs from the state as changed."""
        self._stored.clear()
        now = asyncio.get_running_loop().time()
        for bucket in self._projection.buckets:
            for entry in await _read_bucket(self._connection, bucket):
                key = key_of_object(bucket, entry.subject)
                self._stored.note(key, stored_object(entry.headers, entry.position), now)
        self._is_current = True
        state = self._state
        if state is None:
            return
        projection = self._projection
        wanted = {(b, key) for b in projection.buckets for key in projection.keys(state, b)}
        for key in sorted(wanted | self._stored.live()):
            item = projection.get(state, *key)
            if item is None or self._stored.get(key).version != item.version:
                self._changed[key] = None

    async def _write_some(self) -> None:
        """Writes up to WRITES_MAX objects; raises the first error once all have ended."""
        writes: list[_Write] = []
        for key in list(self._changed)[:WRITES_MAX]:
            del self._changed[key]
            write = await self._send(key)
            if write is not None:
                writes.append(write)
        if writes:
            await asyncio.wait([write.stored for write in writes], timeout=REPLY_TIMEOUT_S)
        errors = [error for write in writes if (error := await self._finish(write)) is not None]
        if errors:
            raise errors[0]

    async def _send(self, key: ObjectKey) -> _Write | None:
        """Sends an object where it is newer than the stored one; None where nothing is to do."""
        state = self._state
        assert state is not None, "an object is written of a state"
        item = self._projection.get(state, *key)
        stored = self._stored.get(key)
        version = item.version if item is not None else self._committed
        if version <= stored.version or (item is None and stored.deleted):
            return None
        subject = subject_of_object(key)
        headers = {
            "Nats-Expected-Last-Subject-Sequence": str(stored.position),
            VERSION: str(version),
        }
        content = b""
        if item is not None:
            content = to_json(self._projection.render(item))
        else:
            headers |= {"KV-Operation": "DEL", "Nats-TTL": f"{TOMBSTONE_S}s"}
        future = await self._publisher.send(subject, content, headers)
        return _Write(key, subject, StoredObject(0, version, deleted=item is None), future)

    async def _finish(self, write: _Write) -> Exception | None:
        """Notes the result of a write; the error where it is not certain, or refused."""
        future, now = write.stored, asyncio.get_running_loop().time()
        if not future.done():
            future.cancel()
            return InDoubt(f"{write.subject} may or may not be stored: no reply")
        error = future.exception()
        if error is None:
            self._stored.note(write.key, write.written._replace(position=future.result()), now)
        elif isinstance(error, Conflict):
            # Another replica wrote this object. It is written again if ours is the newer one.
            await self._reread(write, now)
            self._changed[write.key] = None
        elif isinstance(error, Exception):
            return error
        return None

    async def _reread(self, write: _Write, now: float) -> None:
        """Reads one object; where even older ones are gone, the bucket has been made anew."""
        entry = await last_message(self._connection, f"KV_{write.key[0]}", write.subject)
        if (entry.position if entry else 0) < self._stored.get(write.key).position:
            self._is_current = False
        if entry is None:
            self._stored.note_missing(write.key)
        else:
            self._stored.note(write.key, stored_object(entry.headers, entry.position), now)


async def _read_bucket(connection: Connection, bucket: str) -> list[Entry]:
    """The newest write of every object of a bucket."""
    reader = Reader(connection, f"KV_{bucket}", [f"$KV.{bucket}.>"], newest=True)
    await reader.open()
    entries: list[Entry] = []
    while reader.pending:
        entries += await reader.next(timeout_s=5)
    await reader.close()
    return entries
