"""The read model on the bus: objects written so that an older one never replaces a newer one."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Generic, NamedTuple

from nodepool.contract.exceptions import NO_FAILURE, describe
from nodepool.nats.log.api import REPLY_TIMEOUT_S, leaders_message
from nodepool.nats.log.publisher import Bus
from nodepool.nats.log.reader import read_to_end
from nodepool.nats.log.streams import StreamInfo, provision_stream, stream_info, streams
from nodepool.nats.objects.parking import Parking, is_about_object, storing_fault
from nodepool.nats.objects.rendering import Rendering
from nodepool.nats.objects.stored_objects import (
    Finding,
    ObjectKey,
    Report,
    StoredObject,
    StoredObjects,
    headers_of,
    key_of_object,
    replaces,
    stored_object,
    stream_of,
    subject_of_object,
)
from nodepool.nats.objects.unwritten import Unwritten
from nodepool.nats.wire.errors import Conflict, InDoubt, ServerRefusal, StreamChanged
from nodepool.nats.wire.library import NatsError
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
    stored: what is known of the stored objects.
    suspended: whether writing waits for the next `update`.

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
        self.bus = bus
        self.report = report
        self.stored = StoredObjects()
        self._connection = bus.connection
        self._rendering = Rendering(projection, bus.log)
        self._parking = parking
        self._wrong: set[ObjectKey] = set()
        self.unwritten = Unwritten()
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()
        self.suspended = True

    @property
    def buckets(self) -> Sequence[str]:
        """The buckets that this writer writes to."""
        return self._rendering.buckets

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
            for key in self._rendering.list_touched(message):
                self.unwritten.add(key)
        self.suspended = False
        if self.unwritten:
            self._wake.set()

    def suspend(self) -> None:
        """Write nothing until the next `update`, because another replica has a newer state."""
        self.suspended = True

    def invalidate(self) -> None:
        """Read the buckets again, compare them with the state, and write the objects that differ.

        A pause after a failure ends, because conditions have changed since.
        """
        self.unwritten.note_loss()
        self._wake.set()
        self._hurry.set()

    @property
    def is_writing(self) -> bool:
        """Return whether this writer writes, and knows which objects are stored."""
        return self.is_current and not self.suspended

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
                self.unwritten.note_loss()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._hurry.wait()
            pause_s = min(2 * pause_s, RETRY_MAX_S)
            self._wake.set()

    async def flush(self) -> None:
        """Write every object that has changed so far; return early when suspended.

        Raises InDoubt, ServerRefusal or an error of the client; then `invalidate` and try again.
        """
        while not self.suspended:
            if not self.is_current:
                await self._compare()
            while self.unwritten:
                try:
                    await self._write_some()
                finally:
                    self.unwritten.clear_in_flight()
            if self.is_current:
                return

    async def _compare(self) -> None:
        """Read the buckets, and mark every object that differs from the state as changed."""
        self.stored.clear()
        others, now = 0, asyncio.get_running_loop().time()
        for bucket in self.buckets:
            info = await self._restore(bucket)
            if info is None:
                self.report(f"bucket {bucket} was gone", 1)
            async for entries in read_to_end(self._connection, *stream_of(bucket)):
                for number, entry in enumerate(entries, 1):
                    stored = stored_object(entry.headers, entry.position)
                    key = key_of_object(bucket, entry.subject)
                    age_s = (info.time - entry.time).total_seconds() if info else 0.0
                    self.stored.note_read(key, stored, now, max(age_s, 0.0))
                    others += stored.log not in ("", self.bus.log) and not stored.deleted
                    if number % KEYS_PER_TURN == 0:
                        await asyncio.sleep(0)
        if others:
            self.report("objects of another log", others)
        since = self.unwritten.note_recovery()
        for number, key in enumerate(chain(self._rendering.keys(), self.stored.live()), 1):
            if self._rendering.differs(key, self.stored.get(key)):
                self.unwritten.add(key, since)
            if number % KEYS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def _restore(self, bucket: str) -> StreamInfo | None:
        """Return the stream of a bucket; create the bucket and return None if it was gone."""
        name, _ = stream_of(bucket)
        info = await stream_info(self._connection, name)
        if info is None:
            await provision_stream(self._connection, name, streams(self.bus.replicas)[name])
        return info

    def examine(
        self, key: ObjectKey, stored: StoredObject, content: bytes, log_end: int
    ) -> Finding:
        """Return the Finding for an object read from its bucket; write a wrong object again."""
        was_right = not self._rendering.differs(key, self.stored.get(key))
        self.stored.note_read(key, stored, asyncio.get_running_loop().time())
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
            if (write := await self._send(key)) is not None:
                writes.append(write)
        if writes:
            await asyncio.wait([write.stored for write in writes], timeout=REPLY_TIMEOUT_S)
        results = [(write, await self._finish(write)) for write in writes]
        errors = await self._park_refused(results)
        if errors:
            raise errors[0]

    async def _send(self, key: ObjectKey) -> _Write | None:
        """Send an object if it replaces the stored one; return None if nothing was sent."""
        stored, content, version = self.stored.get(key), b"", self._rendering.committed
        try:
            wanted, item = self._rendering.build_stored_object(key)
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
        subject, headers = subject_of_object(key), headers_of(wanted, stored.position)
        future = await self.bus.publisher.send(subject, content, headers)
        return _Write(key, subject, content, wanted, future)

    async def _park_refused(
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
                    self.unwritten.note_refusal(write.key, error)
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
            self.stored.note(write.key, write.written._replace(position=future.result()), now)
            self.stored.extents[write.key[0]].note(future.result())
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
        entry = await leaders_message(self._connection, f"KV_{write.key[0]}", write.subject)
        if (entry.position if entry else 0) < self.stored.get(write.key).position:
            self.unwritten.note_loss()
        if entry is None:
            self.stored.note_missing(write.key)
        else:
            self.stored.note(write.key, stored_object(entry.headers, entry.position), now)
