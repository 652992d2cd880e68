"""Keeps the read model in memory current, and proves up to which position of the log it is."""

import asyncio
import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from gateway.model import Held, ReadModel
from gateway.refusals import Refusal
from nodepool.client.accepted import CHANGES, key_of_change, shows
from nodepool.client.objects import document_of
from nodepool.contract.buckets import BUCKETS, Bucket
from nodepool.contract.documents import Document, label, text
from nodepool.contract.log import Entry, LogId
from nodepool.explanation.documents import POOL_LABEL
from nodepool.nats.log import api
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM, StreamInfo
from nodepool.nats.objects.following import LOOK_S, objects_reader, present
from nodepool.nats.objects.stored_objects import ObjectKey, stored_object, subject_of_object
from nodepool.nats.wire.connection import Connection
from nodepool.nats.wire.errors import InDoubt, ServerRefusal
from nodepool.nats.wire.library import NatsError
from nodepool.nats.wire.waiting import until_first

if TYPE_CHECKING:
    from datetime import datetime

CATCH_UP_S: Final = 2.0
"""How long the read model may take to show what the log has accepted, in seconds."""
FRESH_S: Final = 0.5
"""How old the proof may be that the model is current before queries have it renewed."""
AHEAD_MAX: Final = 10_000
"""How far beyond the known end of the log a query may name a position to wait for."""
AGAIN_S: Final = 0.02
"""The pause between two proofs that a query waits for, in seconds."""
Place = tuple[Bucket, str]
"""A bucket, and the owner of objects there."""


class Bells:
    """Wakes what waits for a change of the objects of an owner."""

    def __init__(self) -> None:
        self._waiting: dict[Place, set[asyncio.Future[None]]] = {}

    def ring(self, place: Place) -> None:
        """Wake everything that waits for this place."""
        for waiting in self._waiting.pop(place, ()):
            if not waiting.done():
                waiting.set_result(None)

    async def wait(self, place: Place, timeout_s: float) -> None:
        """Return when the objects of a place have changed, or after the timeout."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(place, set()).add(waiting)
        try:
            await asyncio.wait((waiting,), timeout=max(timeout_s, 0))
        finally:
            others = self._waiting.get(place)
            if others is not None:
                others.discard(waiting)
                if not others:
                    del self._waiting[place]


class ModelReader:
    """Reads all buckets into the model.

    bells: ring when objects have changed.
    shown: up to which position of the log the model shows all that was accepted, by bucket.
    """

    def __init__(self, model: ReadModel) -> None:
        self.model = model
        self.bells = Bells()
        self.shown: dict[Bucket, int] = {}
        self._connection: Connection | None = None
        self._proofs: dict[Bucket, asyncio.Task[None]] = {}
        self._stale_at: dict[Bucket, float] = {}
        self._log_end = 0

    async def open(self, connection: Connection, log: LogId) -> list[tuple[Bucket, Reader]]:
        """Read all that is there; return the readers for `follow`."""
        self.shown.clear()
        self._stale_at.clear()
        self._connection, self._log_end = connection, 0
        readers: list[tuple[Bucket, Reader]] = []
        try:
            for bucket in BUCKETS:
                info = await present(connection, f"KV_{bucket}")
                reader = objects_reader(connection, bucket, f"$KV.{bucket}.>", log, info)
                await reader.open()
                readers.append((bucket, reader))
                await self._read_first(bucket, reader, log, info)
        except BaseException:
            for _, reader in readers:
                await reader.close()
            raise
        return readers

    async def _read_first(
        self, bucket: Bucket, reader: Reader, log: LogId, info: StreamInfo
    ) -> None:
        epoch = hashlib.sha256(f"{log} {info.created}".encode()).hexdigest()[:8]
        self.model.begin(bucket, epoch)
        times: list[tuple[int, datetime]] = []
        while reader.pending:
            entries = await reader.next(LOOK_S)
            times += [(entry.position, entry.time) for entry in entries]
            self._take(bucket, entries, log)
            await asyncio.sleep(0)
        self.model.note_beginning(bucket, times, info.last, info.time)

    async def follow(self, readers: Iterable[tuple[Bucket, Reader]], log: LogId) -> None:
        """Take every change until the task is cancelled."""
        try:
            await until_first(*(self._follow(bucket, reader, log) for bucket, reader in readers))
        finally:
            for proof in self._proofs.values():
                proof.cancel()
            self._proofs.clear()

    async def _follow(self, bucket: Bucket, reader: Reader, log: LogId) -> None:
        while True:
            self._take(bucket, await reader.next(), log)

    def _take(self, bucket: Bucket, entries: Iterable[Entry], log: LogId) -> None:
        touched: set[str] = set()
        for entry in entries:
            owner, key = place_in(bucket, entry.subject)
            written = stored_object(entry.headers, entry.position)
            document = document_of(entry) if written.log in ("", log) else None
            content, group = b"", ""
            if document is not None:
                content, group = entry.content, group_of(bucket, document)
            # The version of another log means nothing in this one.
            version = written.version if content or written.log == log else 0
            held = Held(entry.position, version, content, group)
            self.model.take(bucket, owner, key, held, entry.time)
            touched.add(owner)
        for owner in touched:
            self.bells.ring((bucket, owner))

    # What the model is known to show.

    async def find_end(self) -> int | Refusal:
        """Return the position at which the log ends now, or a refusal if the bus does not say."""
        refusal = Refusal("Unavailable", "the log does not answer", "ask again in a moment")
        if self._connection is None:
            return refusal
        try:
            end = await api.last_position(self._connection, STREAM)
        except (InDoubt, ServerRefusal, NatsError, OSError):
            return refusal
        self._log_end = max(end, self._log_end)
        return end

    async def show(self, bucket: Bucket, position: int, timeout_s: float) -> Refusal | None:
        """Wait until the model shows the log up to a position; return a refusal if that fails.

        Subscribers hear an event a moment before the log has it, so the log may lack the position.
        """
        clock = asyncio.get_running_loop().time
        ends = clock() + timeout_s
        while self.shown.get(bucket, 0) < position:
            left_s = ends - clock()
            if left_s <= 0 or (self._log_end and position > self._log_end + AHEAD_MAX):
                return self._refuse_position(position)
            await asyncio.wait((self.prove(bucket),), timeout=left_s)
            if self.shown.get(bucket, 0) < position:
                await asyncio.sleep(min(left_s, AGAIN_S))
        return None

    def _refuse_position(self, position: int) -> Refusal:
        if position > self._log_end:
            error, fix = f"the log ends at {self._log_end}", "name a position of the log"
            return Refusal("Invalid", error, fix, "notOlderThan")
        fix = "ask again in a moment, or without notOlderThan"
        return Refusal("Behind", "the read model is behind the log", fix, "notOlderThan")

    async def prove_all(self) -> None:
        """Prove how current each bucket is, as far as that can be proved soon."""
        await asyncio.wait([self.prove(bucket) for bucket in CHANGES])

    def refresh(self, bucket: Bucket) -> None:
        """Have it proved again how current the model is, at most every `FRESH_S` seconds."""
        now = asyncio.get_running_loop().time()
        if now >= self._stale_at.get(bucket, 0.0):
            self._stale_at[bucket] = now + FRESH_S
            self.prove(bucket)

    def prove(self, bucket: Bucket) -> "asyncio.Task[None]":
        """Begin to prove that the model is current, unless that is being done."""
        proof = self._proofs.get(bucket)
        if proof is None or proof.done():
            proof = self._proofs[bucket] = asyncio.create_task(self._prove(bucket))
        return proof

    async def _prove(self, bucket: Bucket) -> None:
        """Note in `shown` where the log ends now, once the model shows all that was accepted.

        The objects are written in the order in which they change, so it is enough that the object
        that was changed last is current.
        """
        connection = self._connection
        if connection is None:
            return
        try:
            end = await api.last_position(connection, STREAM)
            newest = await self._newest_change(connection, bucket)
        except (InDoubt, ServerRefusal, NatsError, OSError):
            return
        self._log_end = max(end, self._log_end)
        key = key_of_change(newest, bucket) if newest is not None else None
        if newest is None or key is None or await self._shows(key, newest):
            self.shown[bucket] = max(end, self.shown.get(bucket, 0))

    async def _newest_change(self, connection: Connection, bucket: Bucket) -> Entry | None:
        changes = CHANGES[bucket]
        place = changes.place.format(org="*", cluster="*")
        found = await asyncio.gather(
            *(
                api.leaders_message(connection, STREAM, f"np.evt.{service}.{place}.{name}")
                for service, name in changes.events
            )
        )
        return max(filter(None, found), key=lambda entry: entry.position, default=None)

    async def _shows(self, key: ObjectKey, change: Entry) -> bool:
        bucket: Bucket = key[0]  # type: ignore[assignment]  # It comes from a `Bucket`.
        owner, rest = place_in(bucket, subject_of_object(key))
        ends = asyncio.get_running_loop().time() + CATCH_UP_S
        while True:
            held = self.model.version(bucket, owner, rest)
            is_gone = held is None or not held.content
            if shows(held.version if held else 0, change, deleted=is_gone):
                return True
            left_s = ends - asyncio.get_running_loop().time()
            if left_s <= 0:
                return False
            await self.bells.wait((bucket, owner), left_s)


def place_in(bucket: str, subject: str) -> tuple[str, str]:
    """Return the owner and the rest of the key of the object on a subject."""
    owner, _, rest = subject.removeprefix(f"$KV.{bucket}.").partition(".")
    return owner, rest


def group_of(bucket: Bucket, document: Document) -> str:
    """Return what an object is listed by: the NodePool of a Node, the type of a machine."""
    if bucket == "nodes":
        return label(document, POOL_LABEL)
    return text(document, "spec", "instanceType") if bucket == "machines" else ""
