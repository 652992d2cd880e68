"""All services on a real bus: a nats-server, and every service on it in its own runtime.

The services run in a thread of the test's process, so that the harness can see when all of them
have come to rest. Everything else is as in production.
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
from nodepool.engine.folded import Folded
from nodepool.engine.replica import Replica
from nodepool.engine.snapshot import dump
from nodepool.host.runtime import Runtime
from nodepool.host.settings import Settings
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM, provision, streams
from nodepool.nats.wire.connection import connect
from nodepool.nats.wire.errors import Conflict, ServerRefusal
from nodepool.service import AnyService
from support.harness import Harness
from support.services import services

T = TypeVar("T")
PATIENCE_S = 30.0
"""How long anything may take on a machine that has much else to do."""
PAUSE_S = 0.002
"""The pause between two checks whether everything has come to rest."""
Document = Mapping[str, object]


def is_idle(runtime: Runtime[Any, Any, Any], wanted: int, last: int) -> bool:
    """Whether a replica has processed everything up to `wanted`, and has nothing due.

    `last` is the last position of the log; a commit beyond it is not read yet by the harness.
    """
    replica = runtime.replica
    due = replica.due()
    return (
        runtime.ready.is_set()
        and not runtime.committing
        and not replica.open
        and not replica.is_behind
        and replica.read_to >= wanted
        and replica.expected_sequence <= last
        and (due is None or due > datetime.now(UTC))
    )


class LiveHarness(Harness):
    """A `Harness` on a real bus; when a method returns, all that it caused has come to rest."""

    def __init__(
        self, server: NatsServer, log_file: Path, chosen: Sequence[AnyService] = ()
    ) -> None:
        super().__init__(chosen or services())
        self._entries: list[Entry] = []
        self._wanted = {service.name: 0 for service in self.services}
        self._checked = 0
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        settings = Settings(url=server.url, log_file=str(log_file))
        self._stop = asyncio.Event()
        self.runtimes = [Runtime(service, settings) for service in self.services]
        self._tasks: list[asyncio.Task[None]] = []
        self._do(self._open(server.url))

    def _do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(2 * PATIENCE_S)

    async def _open(self, url: str) -> None:
        self._connection = await connect(url, "harness", patience_s=PATIENCE_S)
        await self._clear()
        self._reader = Reader(self._connection, STREAM, ["np.>"])
        await self._reader.open()
        self._tasks = [asyncio.create_task(runtime.run(self._stop)) for runtime in self.runtimes]
        async with asyncio.timeout(PATIENCE_S):
            for runtime in self.runtimes:
                await runtime.ready.wait()

    async def _clear(self) -> None:
        """Creates every stream anew; the server may need some time to remove the old ones."""
        for stream in streams():
            await _refusal(api.request(self._connection, f"$JS.API.STREAM.DELETE.{stream}"))
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if await _refusal(provision(self._connection)) is None:
                    return
                await asyncio.sleep(PAUSE_S)

    def close(self) -> None:
        """Stops the services gracefully, and everything else that this harness has started."""
        try:
            self._do(self._close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _close(self) -> None:
        self._stop.set()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*self._tasks)
        await self._reader.close()
        await self._connection.close()

    def put(self, subject: str, content: bytes, id: str) -> None:
        headers = {"Nats-Msg-Id": id} if id else {}
        self._do(api.publish_event(self._connection, subject, content, headers))

    def entries(self) -> Sequence[Entry]:
        return self._entries

    def run_until_idle(self) -> None:
        self._do(self._run_until_idle())

    def pass_time(self, minutes: float = 0, seconds: float = 0) -> None:
        self._do(asyncio.sleep(60 * minutes + seconds))
        self.run_until_idle()

    async def _run_until_idle(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not await self._is_idle():
                await asyncio.sleep(PAUSE_S)
                self._entries += await self._reader.take()

    async def _is_idle(self) -> bool:
        """Whether everything rests; asks the server only once all that was read is processed."""
        last = self._entries[-1].position if self._entries else 0
        if not self._rests(last):
            return False
        return await api.last_position(self._connection, STREAM) == last and self._rests(last)

    def _rests(self, last: int) -> bool:
        for entry in self._entries[self._checked :]:
            for service in self.services:
                if service.wants(entry.subject):
                    self._wanted[service.name] = entry.position
        self._checked = len(self._entries)
        wanted = [self._wanted[service.name] for service in self.services]
        return all(
            is_idle(runtime, position, last)
            for runtime, position in zip(self.runtimes, wanted, strict=True)
        )

    def documents(self, bucket: str) -> Mapping[str, Document]:
        """The objects of a bucket, once they are those of the newest state."""
        return self._do(self._documents(bucket))

    def document(self, bucket: str, key: str) -> Document | None:
        return self.documents(bucket).get(key)

    async def _documents(self, bucket: str) -> Mapping[str, Document]:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                stored = await self._stored(bucket)
                if stored == self._rendered(bucket):
                    return stored
                await asyncio.sleep(PAUSE_S)

    def _rendered(self, bucket: str) -> dict[str, Document]:
        (runtime,) = (
            runtime for runtime in self.runtimes if runtime.service.projection is not None
        )
        projection, state = runtime.service.projection, runtime.replica.state
        assert projection is not None
        keys = sorted(projection.keys(state, bucket))
        objects = {key: projection.get(state, bucket, key) for key in keys}
        return {
            key: json.loads(to_json(projection.render(item)))
            for key, item in objects.items()
            if item is not None
        }

    async def _stored(self, bucket: str) -> dict[str, Document]:
        prefix = f"$KV.{bucket}."
        stream = f"KV_{bucket}"
        reader = Reader(self._connection, stream, [f"{prefix}>"], newest=True)
        await reader.open()
        documents: dict[str, Document] = {}
        while reader.pending:
            for entry in await reader.next(timeout_s=PATIENCE_S):
                if entry.content:
                    key = "/".join(entry.subject.removeprefix(prefix).split(".", 2))
                    documents[key] = json.loads(entry.content)
        await reader.close()
        return dict(sorted(documents.items()))

    def replay_differs(self) -> list[str]:
        self.run_until_idle()
        committed = self._do(self._committed())
        self.run_until_idle()
        return [
            runtime.service.name
            for runtime, (expected_sequence, folded) in zip(self.runtimes, committed, strict=True)
            if self._replayed(runtime, expected_sequence) != list(dump(folded))
        ]

    async def _committed(self) -> list[tuple[int, Folded[Any]]]:
        """The last commit of each service and its state there, read in the services' thread."""
        return [
            (runtime.replica.expected_sequence, runtime.replica.safe) for runtime in self.runtimes
        ]

    def _replayed(self, runtime: Runtime[Any, Any, Any], expected_sequence: int) -> list[bytes]:
        """The state of a service that the log alone gives, up to this commit of it."""
        service = runtime.service
        replica = Replica(service, log=runtime.replica.log)
        for entry in self._entries:
            if entry.position <= expected_sequence and service.wants(entry.subject):
                replica.read(entry)
        return list(dump(replica.safe))


async def _refusal(request: Awaitable[object]) -> Exception | None:
    """Waits for a request; the error of the server, None where there is none."""
    try:
        await request
    except (Conflict, ServerRefusal) as refusal:
        return refusal
    return None
