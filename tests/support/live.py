"""The stage of the real thing: a nats-server, and every service on it as its runtime runs it.

The services share this process with the test, in a thread of their own, so that a story can tell
when they have nothing left to say; everything else is as it is for anybody.
"""

import asyncio
import json
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from pydantic_core import to_json

from nodepool.contract.log import Entry
from nodepool.engine.replica import Replica
from nodepool.engine.snapshot import dump
from nodepool.host.runtime import Runtime
from nodepool.host.settings import Settings
from nodepool.local.server import NatsServer
from nodepool.nats import bus
from nodepool.nats.reader import Reader
from nodepool.service import AnyService
from support.harness import Harness
from support.services import services

T = TypeVar("T")
PATIENCE_S = 30.0
"""How long anything may take on a machine that has much else to do."""
PAUSE_S = 0.002
"""How often the stage looks whether everything has come to rest."""
Document = Mapping[str, object]


class Watched(Runtime[Any]):
    """A replica at work of which one can see whether a commit is on its way."""

    committing = False

    async def _commit(self, proposal: Any) -> bool:
        self.committing = True
        try:
            return await super()._commit(proposal)
        finally:
            self.committing = False

    def rests(self, wanted: int, last: int) -> bool:
        """Whether it has processed everything up to here, and waits for nothing that is due."""
        replica = self.replica
        due = replica.due()
        return (
            self.ready.is_set()
            and not self.committing
            and not replica.open
            and not replica.is_behind
            and replica.read_to >= wanted
            and replica.expected_sequence <= last
            and (due is None or due > datetime.now(UTC))
        )


class LiveHarness(Harness):
    """Tells a story on a real bus; what is asked has come to rest when a word returns."""

    def __init__(self, server: NatsServer, log_file: Path) -> None:
        super().__init__(services())
        self._entries: list[Entry] = []
        self._wanted = {service.name: 0 for service in self.services}
        self._seen = 0
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        settings = Settings(url=server.url, log_file=str(log_file))
        self._stop = asyncio.Event()
        self.runtimes = [Watched(service, settings) for service in self.services]
        self._tasks: list[asyncio.Task[None]] = []
        self._do(self._open(server.url))

    def _do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(2 * PATIENCE_S)

    async def _open(self, url: str) -> None:
        self._connection = await bus.connect(url, "stage", patience_s=PATIENCE_S)
        await self._clear()
        self._reader = Reader(self._connection, bus.STREAM, ["np.>"])
        await self._reader.open()
        self._tasks = [asyncio.create_task(runtime.run(self._stop)) for runtime in self.runtimes]
        async with asyncio.timeout(PATIENCE_S):
            for runtime in self.runtimes:
                await runtime.ready.wait()

    async def _clear(self) -> None:
        """Makes every stream anew; the server may need a moment to forget the old ones."""
        for stream in bus.streams():
            await _whatever(bus.ask(self._connection, f"$JS.API.STREAM.DELETE.{stream}"))
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if await _whatever(bus.provision(self._connection)) is None:
                    return
                await asyncio.sleep(PAUSE_S)

    def close(self) -> None:
        """Ends the services gracefully, and whatever else this stage began."""
        try:
            self._do(self._closed())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _closed(self) -> None:
        self._stop.set()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*self._tasks)
        await self._reader.close()
        await self._connection.close()

    def put(self, subject: str, content: bytes, id: str) -> None:
        self._do(bus.publish(self._connection, subject, content, id=id))

    def entries(self) -> Sequence[Entry]:
        return self._entries

    def run_until_idle(self) -> None:
        self._do(self._settled())

    async def _settled(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not self._rests(await bus.last_position(self._connection, bus.STREAM)):
                await asyncio.sleep(PAUSE_S)
                self._entries += await self._reader.taken()

    def _rests(self, last: int) -> bool:
        if (self._entries[-1].position if self._entries else 0) != last:
            return False
        for entry in self._entries[self._seen :]:
            for service in self.services:
                if service.wants(entry.subject):
                    self._wanted[service.name] = entry.position
        self._seen = len(self._entries)
        wanted = [self._wanted[service.name] for service in self.services]
        return all(
            runtime.rests(position, last)
            for runtime, position in zip(self.runtimes, wanted, strict=True)
        )

    def documents(self, bucket: str) -> Mapping[str, Document]:
        """The objects that lie on the bus, once they are those of the newest state."""
        return self._do(self._documents(bucket))

    def document(self, bucket: str, key: str) -> Document | None:
        return self.documents(bucket).get(key)

    async def _documents(self, bucket: str) -> Mapping[str, Document]:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found = await self._stored(bucket)
                if found == self._rendered(bucket):
                    return found
                await asyncio.sleep(PAUSE_S)

    def _rendered(self, bucket: str) -> dict[str, Document]:
        (runtime,) = (one for one in self.runtimes if one.service.rows is not None)
        rows, state = runtime.service.rows, runtime.replica.state
        assert rows is not None
        found = {key: rows.row(state, bucket, key) for key in rows.keys(state, bucket)}
        return {
            key: json.loads(to_json(rows.render(row)))
            for key, row in sorted(found.items())
            if row is not None
        }

    async def _stored(self, bucket: str) -> dict[str, Document]:
        prefix = f"$KV.{bucket}."
        stream = f"KV_{bucket}"
        reader = Reader(self._connection, stream, [f"{prefix}>"], newest=True)
        await reader.open()
        found: dict[str, Document] = {}
        while reader.pending:
            for entry in await reader.next(timeout_s=PATIENCE_S):
                if entry.content:
                    key = "/".join(entry.subject.removeprefix(prefix).split(".", 2))
                    found[key] = json.loads(entry.content)
        await reader.close()
        return dict(sorted(found.items()))

    def replay_differs(self) -> list[str]:
        self.run_until_idle()
        committed = self._do(self._at_work())
        self.run_until_idle()
        return [
            runtime.service.name
            for runtime, (expected_sequence, state) in zip(self.runtimes, committed, strict=True)
            if self._again(runtime.service, expected_sequence) != list(dump(state))
        ]

    async def _at_work(self) -> list[tuple[int, object]]:
        """How far each service is committed, and its state there; both of the same moment."""
        return [
            (runtime.replica.expected_sequence, runtime.replica.safe) for runtime in self.runtimes
        ]

    def _again(self, service: AnyService, expected_sequence: int) -> list[bytes]:
        """What the log alone makes of a service, up to this commit of it."""
        again = Replica(service)
        for entry in self._entries:
            if entry.position <= expected_sequence and service.wants(entry.subject):
                again.read(entry)
        return list(dump(again.safe))


async def _whatever(asked: Awaitable[object]) -> Exception | None:
    """Waits for an output; what the server refused, if it did."""
    try:
        await asked
    except (bus.Conflict, bus.ServerRefusal) as refusal:
        return refusal
    return None
