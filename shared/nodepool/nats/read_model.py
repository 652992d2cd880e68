"""The read model on the bus: rows written so that an older one never overwrites a newer one."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from nats.errors import Error as NatsError
from pydantic_core import to_json

from nodepool.contract.log import Entry
from nodepool.contract.messages import Message
from nodepool.nats.bus import (
    ANSWER_S,
    EPOCH,
    Conflict,
    Connection,
    InDoubt,
    Publisher,
    ServerRefusal,
    last_of,
)
from nodepool.nats.reader import Reader
from nodepool.service import Rows

S = TypeVar("S")
Place = tuple[str, str]
AT_ONCE_MAX = 512
"""How many rows are written side by side."""
TOMBSTONE_S = 3600
"""How long readers can see that a row is gone; after that it just is not there."""
VERSION = "Nodepool-Version"


@dataclass(frozen=True, slots=True)
class _Sent:
    place: Place
    subject: str
    headers: dict[str, str]
    waiting: asyncio.Future[int]


class ReadModelWriter(Generic[S]):
    """Writes the rows that changed, only the newest state of each.

    `positions` are the stream sequences of the stored rows: each write is conditional on the one
    it replaces, so two writers cannot undo each other. `outdated` is set while another replica
    outputs: what is known here is then not the newest, and none of it is written.
    """

    def __init__(self, connection: Connection, publisher: Publisher, rows: Rows[S]) -> None:
        self._connection = connection
        self._publisher = publisher
        self._rows = rows
        self._positions: dict[Place, int] = {}
        self._versions: dict[Place, int] = {}
        self._gone: set[Place] = set()
        self._dirty: dict[Place, None] = {}
        self._knock = asyncio.Event()
        self.state: S | None = None
        self.committed = 0
        self.known = False
        self.outdated = True

    def touched(self, state: S, messages: Iterable[Message], committed: int) -> None:
        """Notes which rows these messages may have changed; they are written soon."""
        for message in messages:
            for place in self._rows.touched(state, message):
                self._dirty[place] = None
        self.state, self.committed, self.outdated = state, committed, False
        if self._dirty:
            self._knock.set()

    def forget(self) -> None:
        """What is stored is not known any more: it will be read again before the next write."""
        self.known = False
        self._knock.set()

    async def run(self) -> None:
        """Writes for ever; failure with the bus only delays it."""
        while True:
            await self._knock.wait()
            self._knock.clear()
            try:
                await self.flush()
            except (InDoubt, ServerRefusal, NatsError, OSError):
                self.known = False
                await asyncio.sleep(0.1)
                self._knock.set()

    async def flush(self) -> None:
        """Writes what is noted now; nothing while another replica knows better."""
        while not self.outdated:
            if not self.known:
                await self._learn()
            await self._write_all()
            if self.known:
                return

    async def _learn(self) -> None:
        """Reads what is stored, and notes every row that differs from the state."""
        self._positions.clear()
        self._versions.clear()
        self._gone.clear()
        for bucket in self._rows.buckets:
            for entry in await _stored(self._connection, bucket):
                place = (bucket, _key(entry.subject, bucket))
                self._note(place, entry)
        self.known = True
        state = self.state
        if state is None:
            return
        there = {(b, key) for b in self._rows.buckets for key in self._rows.keys(state, b)}
        for place in sorted(there | (self._positions.keys() - self._gone)):
            row = self._rows.row(state, *place)
            if row is None or self._versions.get(place) != row.version:
                self._dirty[place] = None

    async def _write_all(self) -> None:
        while self._dirty:
            sent: list[_Sent] = []
            for place in list(self._dirty)[:AT_ONCE_MAX]:
                del self._dirty[place]
                found = await self._send(place)
                if found is not None:
                    sent.append(found)
            if sent:
                await asyncio.wait([one.waiting for one in sent], timeout=ANSWER_S)
            failure = [error for one in sent if (error := await self._stored(one)) is not None]
            if failure:
                raise failure[0]

    async def _send(self, place: Place) -> "_Sent | None":
        """Sends a row where it is newer than what is stored, and says on what condition."""
        state = self.state
        assert state is not None, "rows are written of a state"
        row = self._rows.row(state, *place)
        version = row.version if row is not None else self.committed
        nothing_there = place in self._gone or place not in self._positions
        if version <= self._versions.get(place, 0) or (row is None and nothing_there):
            return None
        subject = f"$KV.{place[0]}.{place[1].replace('/', '.')}"
        headers = {
            "Nats-Expected-Last-Subject-Sequence": str(self._positions.get(place, 0)),
            VERSION: str(version),
        }
        content = b""
        if row is not None:
            content = to_json(self._rows.render(row))
        else:
            headers |= {"KV-Operation": "DEL", "Nats-TTL": f"{TOMBSTONE_S}s"}
        waiting = await self._publisher.send(subject, content, headers)
        return _Sent(place, subject, headers, waiting)

    async def _stored(self, sent: "_Sent") -> Exception | None:
        """Notes what became of a row; the failure where nobody knows."""
        if not sent.waiting.done():
            sent.waiting.cancel()
            return InDoubt(f"{sent.subject} may or may not be stored: no output")
        error = sent.waiting.exception()
        if isinstance(error, Conflict):
            # Another wrote this row: look whose is newer, and write again if it is ours.
            found = await last_of(self._connection, f"KV_{sent.place[0]}", sent.subject)
            if (found.position if found else 0) < self._positions.get(sent.place, 0):
                self.known = False  # The bucket is not the one that was read: rows are missing.
            self._note(sent.place, found)
            self._dirty[sent.place] = None
        elif isinstance(error, Exception):
            return error
        else:
            position = sent.waiting.result()
            self._note(sent.place, Entry(position, EPOCH, sent.subject, b"", sent.headers))
        return None

    def _note(self, place: Place, entry: Entry | None) -> None:
        self._gone.discard(place)
        if entry is None:
            self._positions.pop(place, None)
            self._versions.pop(place, None)
            return
        self._positions[place] = entry.position
        self._versions[place] = int(entry.headers.get(VERSION, "0"))
        if entry.headers.get("KV-Operation") in ("DEL", "PURGE"):
            self._gone.add(place)


def _key(subject: str, bucket: str) -> str:
    # The last part may hold dots of its own: it is a name, and names may.
    return "/".join(subject.removeprefix(f"$KV.{bucket}.").split(".", 2))


async def _stored(connection: Connection, bucket: str) -> list[Entry]:
    reader = Reader(connection, f"KV_{bucket}", [f"$KV.{bucket}.>"], newest=True)
    await reader.open()
    found: list[Entry] = []
    while reader.pending:
        found += await reader.next(timeout_s=5)
    await reader.close()
    return found
