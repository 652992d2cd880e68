"""The read model on the bus: objects written so that an older one never replaces a newer one."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Generic, NamedTuple

from nats.errors import Error as NatsError

from nodepool.contract.exceptions import NO_FAILURE, describe
from nodepool.nats.api import REPLY_TIMEOUT_S, last_message
from nodepool.nats.buckets import Bus, read_bucket, restore_bucket
from nodepool.nats.errors import Conflict, InDoubt, ServerRefusal, StreamChanged
from nodepool.nats.inspection import Inspection, Report
from nodepool.nats.parking import Parking, is_about_object, storing_fault
from nodepool.nats.rendering import Rendering
from nodepool.nats.stored_objects import (
    Finding,
    ObjectKey,
    StoredObject,
    StoredObjects,
    headers_of,
    key_of_object,
    replaces,
    stored_object,
    subject_of_object,
)
from nodepool.nats.unwritten import Unwritten
from nodepool.service import I, Projection, S

WRITES_MAX = 512
"""How many objects are written at the same time."""
RETRY_S = 0.1
RETRY_MAX_S = 10.0
"""The first and the longest pause after a failed write; each failure in a row doubles the pause."""
KEYS_PER_TURN = 500
"""After comparing this many objects, other tasks get a turn, so that no commit is delayed."""


class _Write(NamedTuple):
    """A write in flight; `stored` is its future sequence in the bucket."""

    key: ObjectKey
    subject: str
    content: bytes
    written: StoredObject
    stored: "asyncio.Future[int]"


class ReadModelWriter(Generic[S, I]):
    """Writes the objects of a projection that have changed, each in its newest version only.

    unwritten: the objects that wait to be written.

    Every write is conditional on the sequence of the write that it replaces, so two writers cannot
    undo each other's writes. The buckets are read before the first write, and again whenever they
    may have changed unnoticed. Memory is bounded by the existing objects, see `StoredObjects`.

    An object that cannot be stored is parked and does not delay other objects. It is tried again
    when it changes, and whenever the buckets are read again.
    """

    def __init__(
        self, bus: Bus, projection: Projection[S, I], parking: Parking, report: Report
    ) -> None:
        """`report` hears of objects that are not what some writer of this log has written."""
        self._bus = bus
        self._connection = bus.connection
        self._publisher = bus.publisher
        self._rendering = Rendering(projection, bus.log)
        self._parking = parking
        self._report = report
        self._stored = StoredObjects()
        self._wrong: set[ObjectKey] = set()
        self._inspection = Inspection(
            bus.connection, projection.buckets, self._stored, self, report
        )
        self.unwritten = Unwritten()
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()
        self._suspended = True

    @property
    def suspended(self) -> bool:
        """Whether writing waits for the next `update`."""
        return self._suspended

    @property
    def is_current(self) -> bool:
        """Whether the content of the buckets is known; if not, the next write reads them first."""
        return self.unwritten.is_known

    def update(self, state: S, messages: Iterable[I], committed: int) -> None:
        """Take the newest state; soon write the objects that these messages may have changed.

        `committed` is the position up to which the state is committed: the version of a deletion.
        """
        self._rendering.update(state, committed)
        for message in messages:
            for key in self._rendering.touched(message):
                self.unwritten.add(key)
        self._suspended = False
        if self.unwritten:
            self._wake.set()

    def suspend(self) -> None:
        """Write nothing until the next `update`, because another replica has a newer state."""
        self._suspended = True

    def invalidate(self) -> None:
        """Read the buckets again, compare them with the state, and write the objects that differ.

        A pause after a failure ends, because conditions have changed since.
        """
        self.unwritten.lost()
        self._wake.set()
        self._hurry.set()

    @property
    def is_writing(self) -> bool:
        """Whether this writer writes, and knows which objects are stored."""
        return self.is_current and not self._suspended

    async def inspect(self) -> None:
        """Find what other programs have written, until cancelled; have it written again."""
        await self._inspection.run()

    async def run(self) -> None:
        """Write until cancelled; after an error of the bus retry, with a longer pause each time."""
        pause_s = RETRY_S
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._hurry.clear()
            try:
                await self.flush()
                pause_s, self.unwritten.fault = RETRY_S, ""
                continue
            except ServerRefusal:
                pass  # Nothing was stored, so the known objects are still correct.
            except (InDoubt, StreamChanged, NatsError, OSError):
                self.unwritten.lost()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._hurry.wait()
            pause_s = min(2 * pause_s, RETRY_MAX_S)
            self._wake.set()

    async def flush(self) -> None:
        """Write every object that has changed so far; return early when suspended.

        Raises InDoubt, ServerRefusal or an error of the client; then `invalidate` and try again.
        """
        while not self._suspended:
            if not self.is_current:
                await self._compare()
            while self.unwritten:
                try:
                    await self._write_some()
                finally:
                    self.unwritten.landed()
            if self.is_current:
                return

    async def _compare(self) -> None:
        """Read the buckets, and mark every object that differs from the state as changed."""
        self._stored.clear()
        others, now = 0, asyncio.get_running_loop().time()
        for bucket in self._rendering.buckets:
            info = await restore_bucket(self._bus, bucket)
            if info is None:
                self._report(f"bucket {bucket} was gone", 1)
            async for entries in read_bucket(self._connection, bucket):
                for number, entry in enumerate(entries, 1):
                    stored = stored_object(entry.headers, entry.position)
                    key = key_of_object(bucket, entry.subject)
                    age_s = (info.time - entry.time).total_seconds() if info else 0.0
                    self._stored.note_read(key, stored, now, max(age_s, 0.0))
                    others += stored.log not in ("", self._bus.log) and not stored.deleted
                    if number % KEYS_PER_TURN == 0:
                        await asyncio.sleep(0)
        if others:
            self._report("objects of another log", others)
        since = self.unwritten.known()
        for number, key in enumerate(chain(self._rendering.keys(), self._stored.live()), 1):
            if self._rendering.differs(key, self._stored.get(key)):
                self.unwritten.add(key, since)
            if number % KEYS_PER_TURN == 0:
                await asyncio.sleep(0)

    def examine(
        self, key: ObjectKey, stored: StoredObject, content: bytes, log_end: int
    ) -> Finding:
        """Return the Finding for an object read from its bucket; write a wrong object again."""
        was_right = not self._rendering.differs(key, self._stored.get(key))
        self._stored.note_read(key, stored, asyncio.get_running_loop().time())
        finding = self._rendering.examine(key, stored, content, log_end)
        differs = self._rendering.differs(key, stored)
        if finding is Finding.RIGHT and was_right and differs:
            finding = Finding.WRONG  # An older version, or an object that should not exist.
        if finding is Finding.WRONG:
            self._wrong.add(key)
        if finding is Finding.WRONG or differs:
            self.unwritten.add(key)
            self._wake.set()
        return finding

    async def _write_some(self) -> None:
        """Write up to WRITES_MAX objects; raise the first error when all writes have ended."""
        writes: list[_Write] = []
        for key in self.unwritten.first(WRITES_MAX):
            self.unwritten.begin(key)
            write = await self._send(key)
            if write is not None:
                writes.append(write)
        if writes:
            await asyncio.wait([write.stored for write in writes], timeout=REPLY_TIMEOUT_S)
        results = [(write, await self._finish(write)) for write in writes]
        errors = await self._unparked(results)
        if errors:
            raise errors[0]

    async def _send(self, key: ObjectKey) -> _Write | None:
        """Send an object if it replaces the stored one; return None if nothing was sent."""
        stored, content, version = self._stored.get(key), b"", self._rendering.committed
        try:
            wanted, item = self._rendering.wanted(key)
            version = wanted.version
            if key not in self._wrong and not replaces(wanted, stored):
                self._parking.release(key)
                return None
            content = self._rendering.document(item)
        except NO_FAILURE:
            raise
        except Exception as error:  # A bug that affects only this object.
            await self._parking.park(key, version, content, describe(error))
            return None
        if cause := storing_fault(key, content, self._connection.max_payload):
            await self._parking.park(key, version, content, cause)
            return None
        subject = subject_of_object(key)
        future = await self._publisher.send(subject, content, headers_of(wanted, stored.position))
        return _Write(key, subject, content, wanted, future)

    async def _unparked(
        self, results: Sequence[tuple[_Write, Exception | None]]
    ) -> list[Exception]:
        """Return the errors of a round without those of objects that are parked.

        An object is parked if the server refuses it with an error about the object itself, or
        refuses it and stores another object. Other refused objects are written again: the server
        has no room, or the bucket is sealed.
        """
        errors: list[Exception] = []
        stores = any(error is None for _, error in results)
        for write, error in results:
            if isinstance(error, ServerRefusal) and is_about_object(error, stores=stores):
                version = write.written.version
                await self._parking.park(write.key, version, write.content, str(error))
            elif error is not None:
                if isinstance(error, ServerRefusal):
                    self.unwritten.refused(write.key, error)
                errors.append(error)
        return errors

    async def _finish(self, write: _Write) -> Exception | None:
        """Note the result of a write; return an error if the write is uncertain or refused."""
        future, now = write.stored, asyncio.get_running_loop().time()
        if not future.done():
            future.cancel()
            return InDoubt(f"{write.subject} may or may not be stored: no reply")
        error = future.exception()
        if error is None:
            self._stored.note(write.key, write.written._replace(position=future.result()), now)
            self._inspection.wrote(write.key[0], future.result())
            self._wrong.discard(write.key)
            self._parking.release(write.key)
        elif isinstance(error, Conflict):
            # Another replica wrote this object. Write it again if our version is newer.
            await self._reread(write, now)
            self.unwritten.again(write.key)
        elif isinstance(error, Exception):
            return error
        return None

    async def _reread(self, write: _Write, now: float) -> None:
        """Read one object again; distrust the whole bucket if older writes are gone from it too."""
        entry = await last_message(self._connection, f"KV_{write.key[0]}", write.subject)
        if (entry.position if entry else 0) < self._stored.get(write.key).position:
            self.unwritten.lost()
        if entry is None:
            self._stored.note_missing(write.key)
        else:
            self._stored.note(write.key, stored_object(entry.headers, entry.position), now)
